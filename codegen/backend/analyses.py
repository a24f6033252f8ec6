"""What a statement uses from outside and may write, and the bounds of integers, lane by lane."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...tir.arith.normal_form.forms import EVERYTHING, Interval, interval_of
from ...tir.expr import (
    Add,
    Broadcast,
    BufferLoad,
    Call,
    Cast,
    DType,
    Expr,
    FloatImm,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Ramp,
    Select,
    Sub,
    Var,
    max_value,
    min_value,
)
from ...tir.expr.dtype import round_float
from ...tir.expr.intrinsics import Effect, effect_of
from ...tir.expr.node import IRNode
from ...tir.stmt import Allocate, AssertStmt, Buffer, BufferStore, Stmt, statements_in
from ...tir.walk import distinct, pre_order, statements
from ..lowered import REGISTER_SCOPE
from .emitter import EmitError, Emitter, constant_of


class Effects:
    """What statements may write, found once for each of them."""

    def __init__(self, calls_out: bool) -> None:
        self.calls_out = calls_out
        """Whether the function holds calls that may write through a pointer."""
        self._known: dict[int, tuple[Stmt, frozenset[Buffer], frozenset[Var]]] = {}

    def of(self, s: Stmt) -> tuple[frozenset[Buffer], frozenset[Var]]:
        """Return the register values and the data pointers that ``s`` may write."""
        known = self._known.get(id(s))
        if known is not None:
            return known[1], known[2]
        registers: set[Buffer] = set()
        memory: set[Var] = set()
        for child in statements_in(s):
            if type(child) is BufferStore and not self.calls_out:
                _add_target(child, registers, memory)
            else:
                r, m = self.of(child)
                registers |= r
                memory |= m
        if self.calls_out:
            for part in s.children():
                if isinstance(part, Expr):
                    memory |= _written_by_calls(part)
        if isinstance(s, BufferStore):
            _add_target(s, registers, memory)
        found = (s, frozenset(registers), frozenset(memory))
        self._known[id(s)] = found
        return found[1], found[2]


def _add_target(s: BufferStore, registers: set[Buffer], memory: set[Var]) -> None:
    if s.buffer.scope == REGISTER_SCOPE:
        registers.add(s.buffer)
    else:
        memory.add(s.buffer.data)


def _written_by_calls(e: Expr) -> set[Var]:
    """Returns the data pointers through which calls inside an expression may write."""
    out: set[Var] = set()
    for n in pre_order(e, lambda n: not (isinstance(n, Call) and effect_of(n) is Effect.READS)):
        if isinstance(n, Call) and effect_of(n) in (Effect.ADDRESS, Effect.WRITES):
            for inner in pre_order(n):
                if isinstance(inner, BufferLoad):
                    out.add(inner.buffer.data)
                elif isinstance(inner, Var) and inner.dtype == "handle":
                    out.add(inner)
    return out


def is_external_call(e: IRNode) -> bool:
    """Returns whether a node calls a function from outside the program."""
    return isinstance(e, Call) and e.op.startswith(("tir.call_extern", "tir.call_pure_extern"))


# Finds what a statement uses from outside, and whether it can fail.


def captured(em: Emitter[Any], body: Stmt) -> tuple[list[Var], list[Var]]:
    """Returns the variables and the data pointers in scope that a statement uses, in order of first use.

    The sizes and strides of a buffer that it accesses are used as well. Register values cannot be captured.
    """
    found: dict[Var, None] = {}
    data: dict[Var, None] = {}

    def see(node: IRNode) -> None:
        for n in distinct(node):  # unrolled copies share their expressions
            if isinstance(n, Var) and n in em.vars:
                found.setdefault(n)
            elif isinstance(n, Var) and n in em.bases:
                data.setdefault(n)
            for buffer in n.used_buffers():
                if buffer.data in em.bases and buffer.data not in data:
                    data.setdefault(buffer.data)
                    for e in (*buffer.shape, *buffer.element_strides(), buffer.elem_offset):
                        see(e)
            for buffer in n.declared_buffers():
                for e in buffer.shape:
                    see(e)
            if isinstance(n, BufferLoad) and n.buffer in em.registers:
                raise EmitError(f"the register value {n.buffer.name} crosses a parallel loop")

    see(body)
    return list(found), list(data)


def asserts(body: Stmt) -> bool:
    """Returns whether a statement holds assertions."""
    return any(isinstance(n, AssertStmt) for n in statements(body))


def needs_scratch(body: Stmt, on_stack: frozenset[Buffer]) -> bool:
    """Returns whether a statement allocates memory of the runtime, which may refuse it."""
    return any(
        isinstance(n, Allocate) and n.buffer.scope != REGISTER_SCOPE and n.buffer not in on_stack
        for n in statements(body)
    )


def range_of(em: Emitter[Any], e: Expr) -> Interval:
    """Return the least and the greatest value that a lane of the integer ``e`` can have."""
    rule = _RULES.get(type(e))
    found = rule(em, e) if rule is not None else EVERYTHING
    if None in found and e.dtype.lanes == 1 and e.dtype.is_int:
        known = em.analyzer.const_int_bound(e)
        found = Interval(known.lo if found.lo is None else found.lo, known.hi if found.hi is None else found.hi)
    return found


def _var(em: Emitter[Any], e: Var) -> Interval:
    value = em.meanings.get(e)
    return EVERYTHING if value is None else range_of(em, value)


def _ramp(em: Emitter[Any], e: Ramp) -> Interval:
    if not isinstance(e.stride, IntImm):
        return EVERYTHING
    reach = e.stride.value * (e.lanes - 1)
    return range_of(em, e.base).plus(Interval(min(reach, 0), max(reach, 0))).unless_wrapped(e.dtype)


def _operands(em: Emitter[Any], e: Any) -> tuple[Interval, Interval]:
    return range_of(em, e.a), range_of(em, e.b)


def _cast(em: Emitter[Any], e: Cast) -> Interval:
    source = e.value.dtype
    if not source.is_int:
        return Interval(0, 1) if source.startswith("bool") else EVERYTHING
    low, high = range_of(em, e.value)
    widest = interval_of(source)
    return Interval(widest.lo if low is None else low, widest.hi if high is None else high).unless_wrapped(e.dtype)


def _call(em: Emitter[Any], e: Call) -> Interval:
    if e.op == "tir.bitwise_and":  # a bitwise and with a nonnegative number is at most that number
        for mask in e.args:
            low, high = range_of(em, mask)
            if low is not None and low >= 0 and high is not None:
                return Interval(0, high)
    return EVERYTHING


def whole_in_range(em: Emitter[Any], e: Expr, to: DType) -> bool:
    """Return whether each lane of the float ``e``, truncated, is a value of the integer type ``to``, or NaN."""
    low, high = _ends(em, e)
    return low > float(min_value(to)) - 1 and high < float(int(max_value(to)) + 1) and to.bits < 64


def _ends(em: Emitter[Any], e: Expr, depth: int = 10) -> tuple[float, float]:
    """Return the least and the greatest number that a lane of the float ``e`` can have. Nothing is said of NaN."""
    if isinstance(e, (FloatImm, IntImm)):
        return (float(e.value),) * 2 if e.value == e.value else _ANY_FLOAT
    if not depth:  # a part may be read twice at each level
        return _ANY_FLOAT
    depth -= 1
    if isinstance(e, Let):
        return _ends(em, e.body, depth)
    if isinstance(e, Var) and e in em.meanings:
        return _ends(em, em.meanings[e], depth)
    if isinstance(e, Broadcast) or (isinstance(e, Cast) and e.value.dtype.is_float and e.dtype.is_float):
        low, high = _ends(em, e.value, depth)
        return _rounded(low, e.dtype), _rounded(high, e.dtype)
    if isinstance(e, Cast):
        least, most = (0, 1) if e.value.dtype.is_bool else range_of(em, e.value)
        whole = interval_of(e.value.dtype) if e.value.dtype.is_int else Interval(0, 1)
        assert whole.lo is not None and whole.hi is not None  # a type has ends
        return (
            _rounded(whole.lo if least is None else least, e.dtype),
            _rounded(whole.hi if most is None else most, e.dtype),
        )
    if isinstance(e, (Min, Max)):
        (a, b), (c, d) = _ends(em, e.a, depth), _ends(em, e.b, depth)
        return (min(a, c), min(b, d)) if isinstance(e, Min) else (max(a, c), max(b, d))
    if isinstance(e, Select):
        (a, b), (c, d) = _ends(em, e.true_value, depth), _ends(em, e.false_value, depth)
        return min(a, c), max(b, d)
    if isinstance(e, (Add, Sub)):  # rounding keeps the order: the end of a rounded sum is the rounded sum of ends
        (a, b), (c, d) = _ends(em, e.a, depth), _ends(em, e.b, depth)
        low, high = (a + c, b + d) if isinstance(e, Add) else (a - d, b - c)
        return (_rounded(low, e.dtype), _rounded(high, e.dtype)) if math.isfinite(low + high) else _ANY_FLOAT
    step = _STEPS.get(e.op) if isinstance(e, Call) else None
    if step is None or not isinstance(e, Call):
        return _ANY_FLOAT
    return tuple(step(x) if math.isfinite(x) else x for x in _ends(em, e.args[0], depth))  # type: ignore[return-value]


def _rounded(value: float, dtype: DType) -> float:
    return round_float(float(value), dtype.element) if math.isfinite(value) else value


_ANY_FLOAT = (-math.inf, math.inf)
_STEPS: dict[str, Callable[[float], float]] = {
    "tir.ceil": math.ceil, "tir.floor": math.floor, "tir.nearbyint": round, "tir.round": round, "tir.trunc": math.trunc,
}  # fmt: skip


def divisor_range(em: Emitter[Any], e: Expr) -> tuple[int | None, int | None]:
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
