"""Bounds of integers, lane by lane, derived from the expressions that compute them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...tir.dtype import is_int, lanes_of, max_value, min_value
from ...tir.expr import Add, Broadcast, Call, Cast, Expr, FloorMod, IntImm, Max, Min, Ramp, Select, Sub, Var

if TYPE_CHECKING:
    from .llvm_expr import ExprEmitter

Interval = tuple["int | None", "int | None"]
_UNKNOWN: Interval = (None, None)


def range_of(em: ExprEmitter, e: Expr) -> Interval:
    """Returns the least and the greatest value that a lane of the integer ``e`` can have, each None where unknown."""
    rule = _RULES.get(type(e))
    found = rule(em, e) if rule is not None else _UNKNOWN
    if None in found and lanes_of(e.dtype) == 1 and is_int(e.dtype):
        low, high = em.analyzer.const_int_bound(e)
        found = (low if found[0] is None else found[0], high if found[1] is None else found[1])
    return found


def _within(interval: Interval, dtype: str) -> Interval:
    """Returns ``interval``, or an unknown one when the arithmetic that led to it may have wrapped."""
    low, high = interval
    if low is None or high is None or low < min_value(dtype) or high > max_value(dtype):
        return _UNKNOWN
    return interval


def _var(em: ExprEmitter, e: Var) -> Interval:
    value = em.meanings.get(e)
    return _UNKNOWN if value is None else range_of(em, value)


def _ramp(em: ExprEmitter, e: Ramp) -> Interval:
    (low, high), step = range_of(em, e.base), e.stride
    if low is None or high is None or not isinstance(step, IntImm):
        return _UNKNOWN
    reach = step.value * (e.lanes - 1)
    return _within((low + min(reach, 0), high + max(reach, 0)), e.dtype)


def _sum(em: ExprEmitter, e: Add | Sub) -> Interval:
    a, b = range_of(em, e.a), range_of(em, e.b)
    if a[0] is None or a[1] is None or b[0] is None or b[1] is None:
        return _UNKNOWN
    low, high = (b[0], b[1]) if isinstance(e, Add) else (-b[1], -b[0])
    return _within((a[0] + low, a[1] + high), e.dtype)


def _extreme(em: ExprEmitter, e: Min | Max) -> Interval:
    a, b = range_of(em, e.a), range_of(em, e.b)
    lows, highs = [x for x in (a[0], b[0]) if x is not None], [x for x in (a[1], b[1]) if x is not None]
    if isinstance(e, Max):
        return max(lows, default=None), max(highs) if len(highs) == 2 else None
    return min(lows) if len(lows) == 2 else None, min(highs, default=None)


def _remainder(em: ExprEmitter, e: FloorMod) -> Interval:
    low, high = range_of(em, e.b)
    return (0, None if high is None else high - 1) if low is not None and low > 0 else _UNKNOWN


def _cast(em: ExprEmitter, e: Cast) -> Interval:
    source = e.value.dtype
    if not is_int(source):
        return (0, 1) if source.startswith("bool") else _UNKNOWN
    low, high = range_of(em, e.value)
    widest: Interval = int(min_value(source)), int(max_value(source))
    return _within((widest[0] if low is None else low, widest[1] if high is None else high), e.dtype)


def _select(em: ExprEmitter, e: Select) -> Interval:
    a, b = range_of(em, e.true_value), range_of(em, e.false_value)
    return (
        None if a[0] is None or b[0] is None else min(a[0], b[0]),
        None if a[1] is None or b[1] is None else max(a[1], b[1]),
    )


def _call(em: ExprEmitter, e: Call) -> Interval:
    if e.op == "tir.bitwise_and":  # a bitwise and with a nonnegative number is at most that number
        for mask in e.args:
            low, high = range_of(em, mask)
            if low is not None and low >= 0 and high is not None:
                return 0, high
    return _UNKNOWN


_RULES: dict[type, Callable[[Any, Any], Interval]] = {
    IntImm: lambda em, e: (e.value, e.value),
    Broadcast: lambda em, e: range_of(em, e.value),
    Var: _var,
    Ramp: _ramp,
    Add: _sum,
    Sub: _sum,
    Min: _extreme,
    Max: _extreme,
    FloorMod: _remainder,
    Cast: _cast,
    Select: _select,
    Call: _call,
}
