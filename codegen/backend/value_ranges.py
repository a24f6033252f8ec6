"""This module bounds integers, lane by lane, from the expressions that compute them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...tir.arith.normal_form.interval import EVERYTHING, Interval, interval_of
from ...tir.expr import Add, Broadcast, BufferLoad, Call, Cast, Expr, FloorMod, IntImm, Max, Min, Ramp, Select, Sub, Var
from ...tir.walk import pre_order
from .emitter import Emitter
from .expressions import constant_of


def range_of(em: Emitter, e: Expr) -> Interval:
    """Return the least and the greatest value that a lane of the integer ``e`` can have."""
    rule = _RULES.get(type(e))
    found = rule(em, e) if rule is not None else EVERYTHING
    if None in found and e.dtype.lanes == 1 and e.dtype.is_int:
        known = em.analyzer.const_int_bound(e)
        found = Interval(known.lo if found.lo is None else found.lo, known.hi if found.hi is None else found.hi)
    return found


def _var(em: Emitter, e: Var) -> Interval:
    value = em.meanings.get(e)
    return EVERYTHING if value is None else range_of(em, value)


def _ramp(em: Emitter, e: Ramp) -> Interval:
    if not isinstance(e.stride, IntImm):
        return EVERYTHING
    reach = e.stride.value * (e.lanes - 1)
    return range_of(em, e.base).plus(Interval(min(reach, 0), max(reach, 0))).unless_wrapped(e.dtype)


def _operands(em: Emitter, e: Any) -> tuple[Interval, Interval]:
    return range_of(em, e.a), range_of(em, e.b)


def _cast(em: Emitter, e: Cast) -> Interval:
    source = e.value.dtype
    if not source.is_int:
        return Interval(0, 1) if source.startswith("bool") else EVERYTHING
    low, high = range_of(em, e.value)
    widest = interval_of(source)
    return Interval(widest.lo if low is None else low, widest.hi if high is None else high).unless_wrapped(e.dtype)


def _call(em: Emitter, e: Call) -> Interval:
    if e.op == "tir.bitwise_and":  # a bitwise and with a nonnegative number is at most that number
        for mask in e.args:
            low, high = range_of(em, mask)
            if low is not None and low >= 0 and high is not None:
                return Interval(0, high)
    return EVERYTHING


def divisor_range(em: Emitter, e: Expr) -> tuple[int | None, int | None]:
    """Return a constant divisor, or None, and the least value that a lane of the divisor can have, or None.

    Nothing is known of lanes that were never stored to, such as those of register values outside of a mask.
    """
    constant = constant_of(e)
    if isinstance(constant, int):
        return constant, constant
    if e.dtype.lanes > 1 and any(isinstance(n, BufferLoad) and n.buffer in em.registers for n in pre_order(e)):
        return None, None
    return None, range_of(em, e).lo


_RULES: dict[type, Callable[[Any, Any], Interval]] = {
    IntImm: lambda em, e: Interval(e.value, e.value),
    Broadcast: lambda em, e: range_of(em, e.value),
    Var: _var,
    Ramp: _ramp,
    Add: lambda em, e: Interval.plus(*_operands(em, e)).unless_wrapped(e.dtype),
    Sub: lambda em, e: Interval.minus(*_operands(em, e)).unless_wrapped(e.dtype),
    Min: lambda em, e: Interval.minimum(*_operands(em, e)),
    Max: lambda em, e: Interval.maximum(*_operands(em, e)),
    FloorMod: lambda em, e: EVERYTHING.remainder(range_of(em, e.b)),
    Cast: _cast,
    Select: lambda em, e: range_of(em, e.true_value).union(range_of(em, e.false_value)),
    Call: _call,
}
