"""This module builds expressions that are nodes of their own: choices, divisions, extremes, conditions, limits.

It also takes conditions apart and negates them. The operations that a :class:`Call` names are in
:mod:`tilewright.tir.expr.intrinsics`.
"""

from __future__ import annotations

from typing import Any

from ..base.dtype import max_value, min_value
from .arithmetic import make_binary, match_types
from .constants import const, convert
from .expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    And,
    Call,
    CmpOp,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Not,
    Or,
    Select,
    TruncDiv,
    TruncMod,
)


def select(cond: Any, t: Any, f: Any) -> Expr:
    """Return ``t`` where ``cond`` holds, else ``f``; both sides are evaluated."""
    c = convert(cond)
    if not c.dtype.is_bool:
        raise TypeError(f"select: the condition is {c.dtype}, not bool")
    a, b = match_types(t, f)
    return Select(c, a, b)


def max_(a: Any, b: Any) -> Expr:
    """Return the larger operand."""
    return make_binary(Max, *match_types(a, b))


def min_(a: Any, b: Any) -> Expr:
    """Return the smaller operand."""
    return make_binary(Min, *match_types(a, b))


def div(a: Any, b: Any) -> Expr:
    """Return ``a / b``; for integers rounded towards zero."""
    out: Expr = convert(a) / b
    return out


def floordiv(a: Any, b: Any) -> Expr:
    """Return ``a / b`` rounded towards minus infinity."""
    return make_binary(FloorDiv, *match_types(a, b))


def floormod(a: Any, b: Any) -> Expr:
    """Return the remainder of :func:`floordiv`."""
    return make_binary(FloorMod, *match_types(a, b))


def truncdiv(a: Any, b: Any) -> Expr:
    """Return ``a / b`` rounded towards zero."""
    return make_binary(TruncDiv, *match_types(a, b))


def truncmod(a: Any, b: Any) -> Expr:
    """Return the remainder of :func:`truncdiv`."""
    return make_binary(TruncMod, *match_types(a, b))


def ceildiv(a: Any, b: Any) -> Expr:
    """Return ``a / b`` rounded towards plus infinity."""
    x, y = match_types(a, b)
    return (x + (y - 1)) // y


def all_(*conds: Any) -> Expr:
    """Return whether every condition holds."""
    return _chain(And, True, conds)


def any_(*conds: Any) -> Expr:
    """Return whether some condition holds."""
    return _chain(Or, False, conds)


def _chain(cls: Any, empty: bool, conds: tuple[Any, ...]) -> Expr:
    out: Expr | None = None
    for c in conds:
        e = convert(c)
        if not e.dtype.is_bool:
            raise TypeError(f"a condition is {e.dtype}, not bool")
        out = e if out is None else cls(out, e)
    return const(empty, "bool") if out is None else out


def not_(x: Any) -> Expr:
    """Return the negation of a condition."""
    return Not(convert(x))


def infinity(dtype: str = "float32") -> Expr:
    """Return plus infinity."""
    return const(float("inf"), dtype)


def max_value_of(dtype: str) -> Expr:
    """Return the largest finite value of ``dtype``."""
    return const(max_value(dtype), dtype)


def min_value_of(dtype: str) -> Expr:
    """Return the smallest finite value of ``dtype``."""
    return const(min_value(dtype), dtype)


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
