"""Analyses of programs: the tree of statements, accesses, scopes, regions and dependences.

Each analysis returns a result, None or a :class:`~tilewright.tir.expr.Reason`; what a caller makes of a reason
(an error, a note, another way) is its own matter.
"""

from . import constant_dependence as _constant_dependence  # noqa: F401  (registers itself)
from . import private_buffers as _private_buffers  # noqa: F401  (registers itself)
