"""This module simplifies what is not index arithmetic: truth values, floats, casts, vectors, integer data.

Each rule is ``(analyzer, node) -> a simpler node or None``; its docstring states the algebra. Floats change only
where the result is the same to the last bit: ``x + 0.0`` stays (it turns -0.0 into 0.0), ``x - 0.0`` goes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    BinaryOp,
    Broadcast,
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
    LogicalOp,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Ramp,
    Select,
    Shuffle,
    Sub,
    TruncDiv,
    TruncMod,
    const,
    make_binary,
    negate,
    same,
)
from ..expr.intrinsics import OPERATIONS, Lanes

Rule = Callable[[Any, Any], "Expr | None"]


def truth(e: Any) -> bool | None:
    """Return the value of a bool constant or of a broadcast bool constant; None for others."""
    if isinstance(e, Broadcast):
        e = e.value
    return bool(e.value) if isinstance(e, IntImm) and e.dtype.is_bool else None


def fold_not(an: Any, e: Not) -> Expr | None:
    """Simplifies a negation: not not a = a; not (a < b) = a >= b for integers. It holds as well that not (a and b) =
    not a or not b when both sides negate."""
    if isinstance(e.a, Broadcast):
        return Broadcast(Not(e.a.value), e.a.lanes)
    simple = negate(e.a)
    if simple is None and isinstance(e.a, LogicalOp):
        a, b = negate(e.a.a), negate(e.a.b)
        if a is not None and b is not None:
            return (Or if isinstance(e.a, And) else And)(a, b)
    return simple


def fold_and(an: Any, e: And) -> Expr | None:
    """true and a = a; false and a = false; a and a = a"""
    for x, y in ((e.a, e.b), (e.b, e.a)):
        known = truth(x)
        if known is not None:
            return y if known else x
    return e.a if same(e.a, e.b) else None


def fold_or(an: Any, e: Or) -> Expr | None:
    """false or a = a; true or a = true; a or a = a"""
    for x, y in ((e.a, e.b), (e.b, e.a)):
        known = truth(x)
        if known is not None:
            return x if known else y
    return e.a if same(e.a, e.b) else None


def fold_select(an: Any, e: Select) -> Expr | None:
    """Simplifies a selection. true ? a : b = a; c ? a : a = a; (not c) ? a : b = c ? b : a; c ? true : false = c"""
    known = truth(e.condition)
    if known is not None:
        return e.true_value if known else e.false_value
    if same(e.true_value, e.false_value):
        return e.true_value
    if isinstance(e.condition, Not):
        return Select(e.condition.a, e.false_value, e.true_value)
    if truth(e.true_value) is True and truth(e.false_value) is False and e.dtype == e.condition.dtype:
        return e.condition
    if isinstance(e.condition, Broadcast) and isinstance(e.true_value, Broadcast):
        if isinstance(e.false_value, Broadcast):
            picked = Select(e.condition.value, e.true_value.value, e.false_value.value)
            return Broadcast(picked, e.true_value.lanes)
    return None


def fold_call(an: Any, e: Call) -> Expr | None:
    """if_then_else of a constant or of equal sides; likely of a constant; bit operations of constants"""
    if e.op == "tir.if_then_else":
        known = truth(e.args[0])
        if known is not None:
            return e.args[1] if known else e.args[2]
        return e.args[1] if same(e.args[1], e.args[2]) else None
    if e.op == "tir.likely":
        return e.args[0] if truth(e.args[0]) is not None else None
    if e.op == "tir.reinterpret" and e.args[0].dtype == e.dtype:
        return e.args[0]
    return _value_of_constants(e)


def _value_of_constants(e: Call) -> Expr | None:
    """Return the value of an operation on integer constants."""
    row, values = OPERATIONS.get(e.op), [a.value for a in e.args if isinstance(a, IntImm)]
    if row is None or row.evaluate is None or row.lanes is not Lanes.EACH or not e.dtype.is_int:
        return None
    if not values or len(values) < len(e.args):
        return None
    return IntImm(row.evaluate(e.dtype, [a.dtype for a in e.args])(*values), e.dtype)


def wrap(value: int, dtype: DType) -> int:
    """Return ``value`` wrapped to an integer type."""
    bits = dtype.bits
    value &= (1 << bits) - 1
    return value - (1 << bits) if dtype.is_signed and value >> (bits - 1) else value


def fold_cast(an: Any, e: Cast) -> Expr | None:
    """Simplifies a conversion of a constant, to the same type, of a conversion, or of a broadcast. int8 → int32 → int64
    is int8 → int64; a broadcast's cast is a cast's broadcast."""
    v = e.value
    if v.dtype == e.dtype:
        return v
    if isinstance(v, Broadcast):
        return Broadcast(Cast(e.dtype.element, v.value), v.lanes)
    if isinstance(v, IntImm):
        if e.dtype.is_int:
            return IntImm(wrap(v.value, e.dtype), e.dtype)
        if e.dtype.is_bool:
            return IntImm(int(v.value != 0), e.dtype)
        if e.dtype == "float64" or (e.dtype == "float32" and abs(v.value) <= 1 << 24):
            return FloatImm(float(v.value), e.dtype)
    if isinstance(v, FloatImm) and (v.dtype, e.dtype) in (("float32", "float64"), ("float64", "float32")):
        if math.isfinite(v.value):
            with np.errstate(all="ignore"):
                return FloatImm(float(np.float32(v.value)), e.dtype)
    if isinstance(v, Cast) and e.dtype.is_int and v.dtype.is_int and v.value.dtype.is_int:
        inner, middle, outer = v.value.dtype, v.dtype, e.dtype
        keeps = (
            inner.kind == middle.kind and inner.bits <= middle.bits or inner.bits < middle.bits and middle.kind == "int"
        )
        if keeps and outer.bits >= middle.bits:
            return Cast(e.dtype, v.value)
    return None


def fold_float(an: Any, e: BinaryOp) -> Expr | None:
    """Simplifies float arithmetic where the result stays the same. x * 1 = x; x / 1 = x; x - 0.0 = x; x + -0.0 = x;
    constants when the result is finite"""
    if not e.a.dtype.is_float:
        return None
    t, (a, b) = type(e), (e.a, e.b)
    if isinstance(b, FloatImm):
        if b.value == 1.0 and t in (Mul, Div):
            return a
        if b.value == 0.0 and (t is Sub) is (math.copysign(1.0, b.value) > 0) and t in (Add, Sub):
            return a
    if isinstance(a, FloatImm):
        if a.value == 1.0 and t is Mul:
            return b
        if a.value == 0.0 and math.copysign(1.0, a.value) < 0 and t is Add:
            return b
        if isinstance(b, FloatImm) and e.dtype in ("float32", "float64"):
            kind = np.dtype(e.dtype).type
            with np.errstate(all="ignore"):
                value = float(t.compute(kind(a.value), kind(b.value))) if t in (Add, Sub, Mul, Div) else math.nan
            return FloatImm(value, e.dtype) if math.isfinite(value) else None
    return None


def fold_int(an: Any, e: BinaryOp) -> Expr | None:
    """Simplifies integer arithmetic of any width with constants and identities. These are x + 0, x * 1, x * 0, x // 1,
    x % 1, x - x."""
    if not e.a.dtype.is_int or e.a.dtype.lanes != 1:
        return None
    if isinstance(e, Sub) and same(e.a, e.b):
        return const(0, e.dtype)
    if isinstance(e.b, IntImm) and e.b.value == 0 and isinstance(e, (FloorDiv, FloorMod, TruncDiv, TruncMod)):
        return None
    new = make_binary(type(e), e.a, e.b)
    return None if type(new) is type(e) else new


def fold_extreme(an: Any, e: Min | Max) -> Expr | None:
    """min(x, x) = x; constants, NaN aside"""
    if same(e.a, e.b):
        return e.a
    if isinstance(e.a, FloatImm) and isinstance(e.b, FloatImm) and e.a.value != e.b.value:
        if not (math.isnan(e.a.value) or math.isnan(e.b.value)):
            return e.a if (e.a.value < e.b.value) is (type(e) is Min) else e.b
    return None


def fold_compare(an: Any, e: CmpOp) -> Expr | None:
    """constants; x == x for integers; an unsigned x < 0 never holds"""
    if isinstance(e.a, (IntImm, FloatImm)) and isinstance(e.b, (IntImm, FloatImm)):
        if e.a.dtype in ("float16", "bfloat16"):
            return None
        kind = np.float32 if e.a.dtype == "float32" else lambda v: v
        with np.errstate(all="ignore"):
            return const(bool(e.compute(kind(e.a.value), kind(e.b.value))), "bool")
    if not e.a.dtype.is_float and same(e.a, e.b):
        return const(type(e) in (EQ, LE, GE), e.dtype)
    if (e.a.dtype.kind == "uint") and isinstance(e.b, IntImm) and e.b.value == 0 and type(e) in (LT, GE):
        return const(type(e) is GE, "bool")
    return None


def push_broadcast(an: Any, e: BinaryOp) -> Expr | None:
    """broadcast(a) op broadcast(b) = broadcast(a op b)"""
    if isinstance(e.a, Broadcast) and isinstance(e.b, Broadcast):
        return Broadcast(type(e)(e.a.value, e.b.value), e.a.lanes)
    return None


def ramp_arithmetic(an: Any, e: BinaryOp) -> Expr | None:
    """ramp(b, s) + broadcast(x) = ramp(b + x, s), and so on for sums, differences and products of index vectors"""
    a, b, t = e.a, e.b, type(e)
    if not (isinstance(a, Ramp) or isinstance(b, Ramp)) or e.dtype.element not in ("int32", "int64"):
        return None
    (ba, sa), (bb, sb) = _ramp(a), _ramp(b)
    if ba is None or bb is None:
        return None
    lanes = a.dtype.lanes
    if t in (Add, Sub):
        return Ramp(make_binary(t, ba, bb), make_binary(t, sa, sb), lanes)
    if t is Mul and (isinstance(a, Broadcast) or isinstance(b, Broadcast)):
        k = ba if isinstance(a, Broadcast) else bb
        base, stride = (bb, sb) if isinstance(a, Broadcast) else (ba, sa)
        return Ramp(make_binary(Mul, base, k), make_binary(Mul, stride, k), lanes)
    return None


def _ramp(e: Expr) -> tuple[Any, Any]:
    if isinstance(e, Ramp):
        return e.base, e.stride
    if isinstance(e, Broadcast):
        return e.value, const(0, e.value.dtype)
    return None, None


def _exact(an: Any, base: Expr, stride: Expr, lanes: int) -> bool:
    """Return whether no lane of the ramp wraps around."""
    last = make_binary(Add, base, make_binary(Mul, stride, const(lanes - 1, stride.dtype)))
    return all(an.exact(an.poly(e), base.dtype) for e in (base, last))


def ramp_division(an: Any, e: FloorDiv | FloorMod) -> Expr | None:
    """Divides the lanes of a ramp by a constant. ramp(b, c*s) // c = ramp(b // c, s) and % c = broadcast(b % c);
    ramp(b, s) inside one period of c likewise"""
    a, b = e.a, e.b
    if not (isinstance(a, Ramp) and isinstance(b, Broadcast) and isinstance(b.value, IntImm)):
        return None
    c, stride = b.value, a.stride
    if c.value <= 0 or not isinstance(stride, IntImm) or stride.dtype not in ("int32", "int64"):
        return None
    if not _exact(an, a.base, stride, a.lanes):
        return None
    quotient = isinstance(e, FloorDiv)
    if stride.value % c.value == 0:
        if quotient:
            return Ramp(make_binary(FloorDiv, a.base, c), IntImm(stride.value // c.value, stride.dtype), a.lanes)
        return Broadcast(make_binary(FloorMod, a.base, c), a.lanes)
    offset = an.simp(make_binary(FloorMod, a.base, c))
    lo, hi = an.const_int_bound(offset)
    reach = stride.value * (a.lanes - 1)
    if lo is not None and hi is not None and lo + min(reach, 0) >= 0 and hi + max(reach, 0) < c.value:
        return Broadcast(make_binary(FloorDiv, a.base, c), a.lanes) if quotient else Ramp(offset, stride, a.lanes)
    return None


def ramp_compare(an: Any, e: CmpOp) -> Expr | None:
    """A comparison of index vectors with one result in the first and the last lane has it in all lanes. That does not
    hold of == and !=."""
    a, b, t = e.a, e.b, type(e)
    if t in (EQ, NE) or not (isinstance(a, Ramp) or isinstance(b, Ramp)) or a.dtype.element not in ("int32", "int64"):
        return None
    (ba, sa), (bb, sb) = _ramp(a), _ramp(b)
    if ba is None or bb is None:
        return None
    lanes = a.dtype.lanes
    if not (_exact(an, ba, sa, lanes) and _exact(an, bb, sb, lanes)):
        return None
    last = const(lanes - 1, ba.dtype)
    first_lane = an.simp(t(ba, bb))
    if not isinstance(first_lane, IntImm):
        return None
    last_lane = an.simp(t(ba + sa * last, bb + sb * last))
    if isinstance(last_lane, IntImm) and last_lane.value == first_lane.value:
        return Broadcast(first_lane, lanes)
    return None


def fold_ramp(an: Any, e: Ramp) -> Expr | None:
    """ramp(b, 0) = broadcast(b); one lane is the base"""
    if e.lanes == 1:
        return e.base
    return Broadcast(e.base, e.lanes) if isinstance(e.stride, IntImm) and e.stride.value == 0 else None


def fold_broadcast(an: Any, e: Broadcast) -> Expr | None:
    """one lane is the value itself"""
    return e.value if e.lanes == 1 else None


def fold_shuffle(an: Any, e: Shuffle) -> Expr | None:
    """all lanes of one vector in order are the vector; a lane of a broadcast is its value"""
    if len(e.vectors) == 1:
        v = e.vectors[0]
        if e.indices == tuple(range(v.dtype.lanes)):
            return v
        if isinstance(v, Broadcast):
            return v.value if len(e.indices) == 1 else Broadcast(v.value, len(e.indices))
        if isinstance(v, Ramp) and len(e.indices) == 1:
            return v.base + v.stride * const(e.indices[0], v.stride.dtype)
    return None


def fold_load(an: Any, e: BufferLoad) -> Expr | None:
    """a load whose lanes are all marked needs no predicate"""
    if e.predicate is not None and truth(e.predicate) is True:
        return BufferLoad(e.buffer, e.indices)
    return None


_ARITHMETIC: tuple[Rule, ...] = (push_broadcast, fold_float, fold_int, ramp_arithmetic)
RULES: dict[type, tuple[Rule, ...]] = {
    Add: _ARITHMETIC,
    Sub: _ARITHMETIC,
    Mul: _ARITHMETIC,
    Div: (push_broadcast, fold_float),
    FloorDiv: (push_broadcast, fold_int, ramp_division),
    FloorMod: (push_broadcast, fold_int, ramp_division),
    TruncDiv: (push_broadcast, fold_int),
    TruncMod: (push_broadcast, fold_int),
    Min: (push_broadcast, fold_int, fold_extreme),
    Max: (push_broadcast, fold_int, fold_extreme),
    **{t: (push_broadcast, fold_compare, ramp_compare) for t in (EQ, NE, LT, LE, GT, GE)},
    And: (fold_and, push_broadcast),
    Or: (fold_or, push_broadcast),
    Not: (fold_not,),
    Select: (fold_select,),
    Call: (fold_call,),
    Cast: (fold_cast,),
    Ramp: (fold_ramp,),
    Broadcast: (fold_broadcast,),
    Shuffle: (fold_shuffle,),
    BufferLoad: (fold_load,),
}
