"""The mathematical functions as vector code of additions, products and bit operations.

Functions are written with :class:`MathBuilder`; each file says which calls it expands, and docs/reference/math.md how large
the errors are.
"""

from __future__ import annotations

from .expansions import EXPANDED, expand
from .math_builder import MathBuilder
from .normal import named_sums

__all__ = ["EXPANDED", "MathBuilder", "expand", "named_sums"]
