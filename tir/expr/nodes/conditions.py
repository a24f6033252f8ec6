"""This module takes conditions apart and negates them."""

from __future__ import annotations

from .constants import const
from .expr import EQ, GE, GT, LE, LT, NE, And, Call, CmpOp, Expr, IntImm, Not

_OPPOSITE: dict[type, type[CmpOp]] = {LT: GE, GE: LT, LE: GT, GT: LE, EQ: NE, NE: EQ}


def conjuncts(condition: Expr) -> list[Expr]:
    """Return the conditions that ``condition`` joins by "and"; none when it is the constant true."""
    if isinstance(condition, And):
        return conjuncts(condition.a) + conjuncts(condition.b)
    if isinstance(condition, IntImm) and condition.value:
        return []
    if isinstance(condition, Call) and condition.op == "tir.likely":
        return conjuncts(condition.args[0])
    return [condition]


def negate(e: Expr) -> Expr | None:
    """Return the opposite of a comparison of integers, as a comparison; None where there is none.

    ``not a < b`` is ``b <= a`` for integers, but not for floats, because of NaN.
    """
    if isinstance(e, CmpOp) and not e.a.dtype.is_float:
        return _OPPOSITE[type(e)](e.a, e.b)
    if isinstance(e, Not):
        return e.a
    return const(not e.value, "bool") if isinstance(e, IntImm) else None


def logical_not(e: Expr) -> Expr:
    """Return a condition that holds exactly when ``e`` does not."""
    simple = negate(e)
    return Not(e) if simple is None else simple
