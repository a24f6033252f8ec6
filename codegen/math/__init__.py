"""The mathematical functions as vector code of additions, products and bit operations.

Each function is one file, written with :class:`MathBuilder`; :mod:`.expansions` says which call becomes which and how large
its error is.
"""

from __future__ import annotations

from .expansions import EXPANDED, expand
from .math_builder import MathBuilder
from .normal import named_sums

__all__ = ["EXPANDED", "MathBuilder", "expand", "named_sums"]
