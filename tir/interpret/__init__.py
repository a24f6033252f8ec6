"""This package runs programs on NumPy arrays, slowly and simply: it is the oracle for all else.

Statements become Python functions (:mod:`.interpret_stmt`), expressions Python texts (:mod:`.interpret_expr`); every
access to memory is checked (:mod:`.interpret_memory`). What operations mean stands in :mod:`..expr.intrinsics`.
"""

from .interpret_expr import InterpretError
from .interpret_stmt import interpret

__all__ = ["InterpretError", "interpret"]
