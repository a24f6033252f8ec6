"""This package brings index arithmetic into a normal form: polynomials over atoms, with what is known about these.

:mod:`.forms` has the normal form, and intervals and linear forms for those who need no analyzer. :mod:`.facts` has ranges
and conditions, :mod:`.canonical` the conversion of expressions, quotients and remainders among them.
"""

from .canonical import Canonical
from .forms import EVERYTHING, Interval, Linear, collect, difference, expression_key, interval_of

__all__ = ["EVERYTHING", "Canonical", "Interval", "Linear", "collect", "difference", "expression_key", "interval_of"]
