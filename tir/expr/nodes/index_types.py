"""This module recognizes index arithmetic, which never overflows and reads no memory.

It may therefore be moved, and computed in more bits.
"""

from __future__ import annotations

from ..base.dtype import max_value, min_value
from .expr import Add, Cast, Expr, FloorDiv, FloorMod, IntImm, Max, Min, Mul, Sub, Var

INDEX_TYPES = frozenset(("int32", "int64"))
"""The data types of indices; integers of other types are data, which wraps around."""


def index_like(e: Expr) -> bool:
    """Return whether ``e`` consists of scalar variables and constants of index types and of operations on indices.

    >>> i = Var("i")
    >>> index_like(i * 3 + 1), index_like((i * 3).astype("int64")), index_like((i * 3).astype("int8"))
    (True, True, False)
    """
    kind = type(e)
    if kind in _ARITHMETIC:  # the type is that of the operands
        return index_like(e.a) and index_like(e.b)  # type: ignore[attr-defined]
    if kind is IntImm or kind is Var:
        return e.dtype in INDEX_TYPES
    return isinstance(e, Cast) and e.dtype in INDEX_TYPES and widens(e) and index_like(e.value)


_ARITHMETIC = frozenset((Add, Sub, Mul, FloorDiv, FloorMod, Min, Max))


def widens(e: Cast) -> bool:
    """Return whether a conversion from integer to integer keeps every value."""
    source, to = e.value.dtype, e.dtype
    return source.is_int and min_value(to) <= min_value(source) and max_value(source) <= max_value(to)
