"""This module compares expressions by their structure, finds pure calls, and negates conditions."""

from __future__ import annotations

from typing import Any

from .expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    And,
    BinaryOp,
    Broadcast,
    BufferLoad,
    Call,
    Cast,
    CmpOp,
    Expr,
    FloatImm,
    IntImm,
    Not,
    Ramp,
    Select,
    StringImm,
    const,
)  # fmt: skip
from .intrinsics import Effect, effect_of

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


def is_pure_call(call: Call) -> bool:
    """Return whether two such calls with equal arguments have equal values and no side effect."""
    return effect_of(call) is Effect.NONE


def same(a: Any, b: Any) -> bool:
    """Return whether two expressions have the same structure; variables and buffers are compared by identity."""
    if a is b:
        return True
    t = type(a)
    if t is not type(b):
        return False
    if isinstance(a, BinaryOp):
        return same(a.a, b.a) and same(a.b, b.b)
    if t is IntImm:
        return bool(a.value == b.value and a.dtype == b.dtype)
    if t is FloatImm:
        return repr(a.value) == repr(b.value) and a.dtype == b.dtype
    if t is Cast:
        return a.dtype == b.dtype and same(a.value, b.value)
    if t is BufferLoad:
        if a.buffer is not b.buffer or len(a.indices) != len(b.indices):
            return False
        if (
            (a.predicate is None) != (b.predicate is None)
            or a.predicate is not None
            and not same(a.predicate, b.predicate)
        ):
            return False
        return all(same(x, y) for x, y in zip(a.indices, b.indices, strict=True))
    if t is Call:
        if a.op != b.op or a.dtype != b.dtype or len(a.args) != len(b.args) or not is_pure_call(a):
            return False
        return all(same(x, y) for x, y in zip(a.args, b.args, strict=True))
    if t is Select:
        return (
            same(a.condition, b.condition) and same(a.true_value, b.true_value) and same(a.false_value, b.false_value)
        )
    if t is Not:
        return same(a.a, b.a)
    if t is Ramp:
        return a.lanes == b.lanes and same(a.base, b.base) and same(a.stride, b.stride)
    if t is Broadcast:
        return a.lanes == b.lanes and same(a.value, b.value)
    if t is StringImm:
        return bool(a.value == b.value)
    return False


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
