"""Evaluates expressions for all threads of several blocks at once: a value is one number for all, or an array.

Integers of at most 64 bits with a sign are held as int64, floats in their own type, bfloat16 as float32, as in the
interpreter (:mod:`tilewright.tir.interpret`), whose rounding and wrapping hold here.

The evaluation is no :class:`~tilewright.codegen.backend.emitter.Emitter`, although a value could be an array there. An emitter writes a
program once, in which both sides of a condition stand; here a side is evaluated only in the lanes that take it, so that
each node is asked with a mask, and operations come from their rows (:data:`~tilewright.tir.expr.intrinsics.OPERATIONS`) already.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ...tir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    BinaryOp,
    BufferLoad,
    Call,
    Cast,
    CmpOp,
    Div,
    DType,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Select,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
    index_like,
    to_numpy,
)
from ...tir.expr.dtype import round_bfloat16, round_float
from ...tir.expr.intrinsics import OPERATIONS
from ...tir.expr.intrinsics.control_and_memory import CHANGES
from ...tir.expr.intrinsics.number_operations import FIXED_POINT, fixed_point_steps
from ...tir.expr.intrinsics.numpy_values import divider, saturated, value_dtype
from ..launch.cross_thread_reduction import distance_of
from ..launch.launch_form import GpuError

Value = Any
"""A NumPy number, or an array with an element for each lane."""
Mask = Any
"""True, or a bool array: the lanes that take part."""


class LaneMemory(Protocol):
    """What an evaluation needs of the memory: loads, and the values of other lanes."""

    values: dict[Var, Value]

    def load(self, e: BufferLoad, indices: list[Value], mask: Mask) -> Value: ...
    def from_lane(self, value: Value, distance: int, mask: Mask) -> Value: ...
    def change(self, e: Call, mask: Mask) -> Value: ...


def held_type(dtype: DType) -> np.dtype:
    """Returns the NumPy type in which values of ``dtype`` are held."""
    if dtype.is_bool or not (dtype.is_int or dtype.kind == "uint"):
        return value_dtype(dtype)
    return np.dtype("uint64" if dtype.kind == "uint" and dtype.bits == 64 else "int64")


def wrapped(value: Value, dtype: DType) -> Value:
    """Returns an integer wrapped to its type."""
    bits, kind = dtype.bits, dtype.kind
    if bits == 64:
        return value
    low = value & ((1 << bits) - 1)
    return low if kind != "int" else low - ((low >> (bits - 1)) << bits)


def evaluate(e: Expr, memory: LaneMemory, mask: Mask) -> Value:
    """Returns the value of ``e`` in the lanes of ``mask``; other lanes have arbitrary ones."""
    visit = _TABLE.get(type(e))
    if visit is None or e.dtype.lanes > 1:
        raise GpuError(f"the simulated GPU cannot evaluate {e}")
    return visit(e, memory, mask)


def both(mask: Mask, condition: Value) -> Mask:
    """Returns the lanes of ``mask`` in which a condition holds."""
    if mask is True:
        return condition if isinstance(condition, np.ndarray) and condition.ndim else bool(condition)
    return mask & condition if not isinstance(condition, (bool, np.bool_)) else (mask if condition else False)


def nobody(mask: Mask) -> bool:
    """Returns whether no lane takes part."""
    return mask is False or (isinstance(mask, np.ndarray) and not mask.any())


def _integer(e: IntImm, memory: LaneMemory, mask: Mask) -> Value:
    return bool(e.value) if e.dtype.is_bool else held_type(e.dtype).type(e.value)


def _floating(e: FloatImm, memory: LaneMemory, mask: Mask) -> Value:
    return value_dtype(e.dtype).type(round_float(e.value, e.dtype))


def _variable(e: Var, memory: LaneMemory, mask: Mask) -> Value:
    return memory.values[e]


_PLAIN: dict[type, Callable[..., Any]] = {
    Add: np.add, Sub: np.subtract, Mul: np.multiply, Min: np.minimum, Max: np.maximum,
    LT: np.less, LE: np.less_equal, GT: np.greater, GE: np.greater_equal, EQ: np.equal, NE: np.not_equal,
}  # fmt: skip
_DIVISIONS = {FloorDiv: "floordiv", FloorMod: "floormod", TruncDiv: "truncdiv", TruncMod: "truncmod", Div: "truncdiv"}


def _binary(e: BinaryOp, memory: LaneMemory, mask: Mask) -> Value:
    a, b = evaluate(e.a, memory, mask), evaluate(e.b, memory, mask)
    integer = e.dtype.kind in ("int", "uint")
    if type(e) in _DIVISIONS and integer:
        out = divider(_DIVISIONS[type(e)], e.dtype.with_lanes(2))(np.asarray(a), np.asarray(b))
        return wrapped(out, e.dtype)
    out = np.true_divide(a, b) if type(e) is Div else _PLAIN[type(e)](a, b)
    if e.dtype.kind == "bfloat":
        return round_bfloat16(out)
    if integer and type(e) in (Add, Sub, Mul) and not index_like(e):
        return wrapped(out, e.dtype)
    return out


def _compare(e: CmpOp, memory: LaneMemory, mask: Mask) -> Value:
    return _PLAIN[type(e)](evaluate(e.a, memory, mask), evaluate(e.b, memory, mask))


def _and(e: And, memory: LaneMemory, mask: Mask) -> Value:
    a = evaluate(e.a, memory, mask)
    inner = both(mask, a)
    return a if nobody(inner) else np.logical_and(a, evaluate(e.b, memory, inner))


def _or(e: Or, memory: LaneMemory, mask: Mask) -> Value:
    a = evaluate(e.a, memory, mask)
    inner = both(mask, np.logical_not(a))
    return a if nobody(inner) else np.logical_or(a, evaluate(e.b, memory, inner))


def _not(e: Not, memory: LaneMemory, mask: Mask) -> Value:
    return np.logical_not(evaluate(e.a, memory, mask))


def _select(e: Select, memory: LaneMemory, mask: Mask) -> Value:
    parts = [evaluate(x, memory, mask) for x in (e.condition, e.true_value, e.false_value)]
    return np.where(*parts)[()]


def _choice(e: Call, memory: LaneMemory, mask: Mask) -> Value:
    condition = evaluate(e.args[0], memory, mask)
    yes, no = both(mask, condition), both(mask, np.logical_not(condition))
    if nobody(no):
        return evaluate(e.args[1], memory, yes)
    if nobody(yes):
        return evaluate(e.args[2], memory, no)
    return np.where(condition, evaluate(e.args[1], memory, yes), evaluate(e.args[2], memory, no))


def _cast(e: Cast, memory: LaneMemory, mask: Mask) -> Value:
    value, to, given = evaluate(e.value, memory, mask), e.dtype, e.value.dtype
    if to == given:
        return value
    if to.kind == "bfloat":
        return round_bfloat16(np.asarray(value, np.float32))
    if to.is_bool:
        return np.not_equal(value, 0)
    if to.kind not in ("int", "uint"):
        return np.asarray(value).astype(value_dtype(to))
    if given.is_float:
        value = saturated(value, to)
    return wrapped(np.asarray(value).astype(held_type(to)), to)


def _let(e: Let, memory: LaneMemory, mask: Mask) -> Value:
    memory.values[e.var] = evaluate(e.value, memory, mask)
    return evaluate(e.body, memory, mask)


def _load(e: BufferLoad, memory: LaneMemory, mask: Mask) -> Value:
    if e.predicate is not None:
        raise GpuError(f"the simulated GPU cannot evaluate the masked load {e}")
    return memory.load(e, [evaluate(i, memory, mask) for i in e.indices], mask)


def _call(e: Call, memory: LaneMemory, mask: Mask) -> Value:
    special = _CALLS.get(e.op)
    if special is not None:
        return special(e, memory, mask)
    if e.op in FIXED_POINT:
        return evaluate(fixed_point_steps(e), memory, mask)
    row = OPERATIONS.get(e.op)
    if row is None or row.evaluate is None:
        raise GpuError(f"the simulated GPU cannot evaluate the call {e}")
    types = [a.dtype.with_lanes(2) for a in e.args]
    run = row.evaluate(e.dtype.with_lanes(2), types)
    values = [np.asarray(evaluate(a, memory, mask)) for a in e.args]
    exact = [
        v.astype(to_numpy(a.dtype)) if a.dtype.kind in ("int", "uint") else v
        for v, a in zip(np.broadcast_arrays(*[np.atleast_1d(v) for v in values]), e.args, strict=True)
    ]
    out = np.asarray(run(*exact)).astype(held_type(e.dtype))
    return out if any(v.ndim for v in values) else out[0]


def _shuffle(e: Call, memory: LaneMemory, mask: Mask) -> Value:
    found = distance_of(e)
    if found is None:
        raise GpuError(f"the simulated GPU does not know the intrinsic {e.args[0]}")
    value, distance = found
    return memory.from_lane(evaluate(value, memory, mask), int(evaluate(distance, memory, mask)), mask)


_CALLS: dict[str, Callable[[Any, LaneMemory, Mask], Value]] = {
    "tir.if_then_else": _choice,
    "tir.likely": lambda e, memory, mask: evaluate(e.args[0], memory, mask),
    "tir.call_llvm_pure_intrin": _shuffle,
    **{row.op: lambda e, memory, mask: memory.change(e, mask) for row in CHANGES},
}
_TABLE: dict[type, Callable[[Any, LaneMemory, Mask], Value]] = {
    IntImm: _integer,
    FloatImm: _floating,
    Var: _variable,
    **dict.fromkeys((Add, Sub, Mul, Div, TruncDiv, TruncMod, FloorDiv, FloorMod, Min, Max), _binary),
    **dict.fromkeys((LT, LE, GT, GE, EQ, NE), _compare),
    And: _and,
    Or: _or,
    Not: _not,
    Select: _select,
    Cast: _cast,
    Let: _let,
    BufferLoad: _load,
    Call: _call,
}
