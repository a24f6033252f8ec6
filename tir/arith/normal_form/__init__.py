"""This package brings index arithmetic into a normal form: polynomials over atoms, with what is known about these.

:mod:`.interval` and :mod:`.linear` stand for themselves, for those who need no analyzer. :mod:`.polynomial` has the
normal form, :mod:`.facts` ranges and conditions, :mod:`.floor_division` quotients and remainders, and
:mod:`.canonical` the conversion of expressions.
"""

from .canonical import Canonical
from .interval import EVERYTHING, Interval, interval_of
from .linear import Linear, collect, difference, expression_key

__all__ = ["EVERYTHING", "Canonical", "Interval", "Linear", "collect", "difference", "expression_key", "interval_of"]
