"""Converters of operators on single elements: the table of element-wise operators has most, and these are the others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...graph.builder import add_scan
from ...graph.graph import Value
from ...te.ops.elements import ElementOperator
from ...tir.expr import DType, Expr
from ..common.arithmetic import OF_TRUTHS, power_of_integers
from ..common.graph_call import Converter, enter_row
from .aten_call import CONVERTERS, AtenCall, aten, op, operators_of_table


def _convert(row: ElementOperator, told: Mapping[str, Any]) -> Converter:
    """Returns the converter of an operator that is a row of the table.

    It has PyTorch's types, and the row's parameters in their order.
    """

    def convert(c: AtenCall, *args: Any, **named: Any) -> Value:
        given = {**dict(zip(told, args[row.operands :], strict=False)), **named}
        for name, value in given.items():
            if name not in told:
                raise c.error(f"the argument {name} is not supported; there are {', '.join(told) or 'none'}")
            if isinstance(value, (Value, Expr)):
                raise c.error(f"{name} has to be a number")
        return c.op(*_converted(c, row, args[: row.operands]), **given)

    return convert


def _converted(c: AtenCall, row: ElementOperator, operands: Sequence[Any]) -> tuple[Any, ...]:
    """Returns the operator for the types of a call, and its operands in the type to compute in."""
    name, dtype = row.name, c.dtype
    if row.types == "test":
        return name, *operands
    if row.types == "truth":
        return name, *[c.value(x, "bool") for x in operands]
    if row.types == "choice":
        return name, c.value(operands[0], "bool"), *[c.value(x, dtype) for x in operands[1:]]
    if row.types == "order":
        dtype = c.common(0, 1)
        values = [c.value(x, dtype) for x in operands]
        return name, *[c.op("cast", v, dtype="uint8") if dtype == "bool" else v for v in values]
    if dtype == "bool":
        name = OF_TRUTHS.get(name, name.replace("bitwise", "logical") if row.types == "bits" else "identity")
    if row.types == "rounding" and not DType(dtype).is_float:
        name = "identity"
    return name, *[c.value(x, dtype) for x in operands]


for _name, _row, _told in operators_of_table():
    enter_row(CONVERTERS, _row, _convert(_row, _told), _name)


@aten("add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar")
def add(c: AtenCall, x: Any, y: Any, alpha: Any = 1) -> Value:
    b = c.value(y, c.dtype)
    if alpha != 1:
        b = c.op("multiply", b, c.constant(alpha, c.dtype))
    if "sub" in c.label:
        return c.op("subtract", c.value(x, c.dtype), b)
    return c.op("logical_or" if c.dtype == "bool" else "add", c.value(x, c.dtype), b)


@aten("div.Tensor", "div.Scalar", "div.Tensor_mode", "div.Scalar_mode", "true_divide.Tensor")
def divide(c: AtenCall, x: Any, y: Any, rounding_mode: str | None = None) -> Value:
    a, b = c.value(x, c.dtype), c.value(y, c.dtype)
    if rounding_mode == "floor":
        return c.op("floor_divide", a, b)
    if rounding_mode == "trunc":
        return c.op("trunc", c.op("divide", a, b)) if DType(c.dtype).is_float else c.op("truncate_divide", a, b)
    return c.op("divide", a, b)


@aten("fmod.Tensor", "fmod.Scalar", "remainder.Tensor", "remainder.Scalar")
def remainder(c: AtenCall, x: Any, y: Any) -> Value:
    row = "remainder" if "fmod" in c.label else "floor_mod"
    return c.op(row, c.value(x, c.dtype), c.value(y, c.dtype))


@aten(
    "__lshift__.Scalar", "__lshift__.Tensor", "bitwise_left_shift.Tensor", "bitwise_left_shift.Tensor_Scalar",
    "__rshift__.Scalar", "__rshift__.Tensor", "bitwise_right_shift.Tensor", "bitwise_right_shift.Tensor_Scalar",
)  # fmt: skip
def shifted(c: AtenCall, x: Any, y: Any) -> Value:
    if DType(c.dtype).is_float:
        raise c.error("shifts of floats are not supported")
    row = "left_shift" if "lshift" in c.label or "left" in c.label else "right_shift"
    return c.op(row, c.value(x, c.dtype), c.value(y, c.dtype))


@aten("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar")
def power(c: AtenCall, x: Any, y: Any) -> Value:
    a = c.value(x, c.dtype)
    if not isinstance(y, Value):
        if y == 2:
            return c.op("multiply", a, a)
        if y == 3:
            return c.op("multiply", c.op("multiply", a, a), a)
        if y == 0.5:
            return c.op("sqrt", a)
        if y == 1:
            return c.op("identity", a)
        if y == -1 and DType(c.dtype).is_float:
            return c.op("divide", c.constant(1, c.dtype), a)
        if y == -0.5:
            return c.op("rsqrt", a)
    if DType(c.dtype).is_float:
        wide = c.dtype if c.dtype in ("float32", "float64") else "float64"
        return c.cast(c.op("power", c.cast(a, wide), c.value(y, wide)), c.dtype)
    if isinstance(y, Value):
        return _power_of_integers(c, a, c.cast(y, c.dtype))
    if y < 0:
        raise c.error("integers have no negative powers")
    out = c.op("add", c.op("subtract", a, a), c.constant(1, c.dtype))
    while y:
        out = c.op("multiply", out, a) if y & 1 else out
        y >>= 1
        a = c.op("multiply", a, a) if y else a
    return out


_LARGEST_EXPONENT = 63
"""Larger powers of integers other than -1, 0 and 1 overflow."""


def _power_of_integers(c: AtenCall, base: Value, exponent: Value) -> Value:
    """Returns a power of integers; negative powers are 0, but for those of 1 and -1."""
    one, none = c.constant(1, c.dtype), c.constant(0, c.dtype)
    signed = DType(c.dtype).kind == "int"
    size = c.op("maximum", exponent, c.op("subtract", none, exponent)) if signed else exponent
    odd = c.op("bitwise_and", size, one)
    e = c.op("where", c.op("greater", size, c.constant(_LARGEST_EXPONENT, c.dtype)),
             c.op("add", odd, c.constant(_LARGEST_EXPONENT - 1, c.dtype)), size)  # fmt: skip
    out = power_of_integers(c.op, base, e, one, _LARGEST_EXPONENT.bit_length())
    if not signed:
        return out
    unit = c.op("equal", c.op("multiply", base, base), one)
    kept = c.op("logical_or", unit, c.op("greater_equal", exponent, none))
    return c.op("where", kept, out, none)


@aten("clamp", "clamp.Tensor")
def clamp(c: AtenCall, x: Value, low: Any = None, high: Any = None, **named: Any) -> Value:
    low, high = named.get("min", low), named.get("max", high)
    out = c.cast(x, c.dtype)
    for limit, row in ((low, "maximum"), (high, "minimum")):
        if limit is not None:
            out = c.op(row, out, c.value(limit, c.dtype))
    return out if out is not x else c.op("identity", x)


@aten("sign", "sgn")
def sign(c: AtenCall, x: Value) -> Value:
    """Returns -1, 0 or 1; NaN and both zeros give 0."""
    if x.dtype == "bool":
        return c.op("identity", x)
    none = c.constant(0, x.dtype)
    above, below = [c.cast(c.op(row, x, none), x.dtype) for row in ("greater", "less")]
    return above if DType(x.dtype).kind == "uint" else c.op("subtract", above, below)


@aten("fmax", "fmin")
def extreme_of_numbers(c: AtenCall, x: Value, y: Value) -> Value:
    """Returns the larger or the smaller, without NaN as far as there is a number."""
    a, b = c.value(x, c.dtype), c.value(y, c.dtype)
    out = c.op("maximum" if "fmax" in c.label else "minimum", a, b)
    for one, other in ((a, b), (b, a)) if DType(c.dtype).is_float else ():
        out = c.op("where", c.op("is_nan", one), other, out)
    return out


@aten("ldexp.Tensor")
def ldexp(c: AtenCall, x: Value, y: Value) -> Value:
    power = c.op("power", c.constant(2, c.dtype), c.cast(y, c.dtype))
    return c.op("multiply", c.cast(x, c.dtype), power)


@aten("_to_copy", "clone", "alias", "detach", "lift_fresh_copy")
@op("prims.convert_element_type.default")
def copy(c: AtenCall, x: Value, *args: Any, **kwargs: Any) -> Value:
    if x.dtype == c.dtype:
        return c.op("identity", x)
    if c.dtype == "float8_e4m3fn":  # PyTorch saturates, infinities too; e5m2 has infinities
        x = c.op("clip", c.cast(x, "float32"), low=-448.0, high=448.0)
    return c.cast(x, c.dtype)


@aten("copy")
def copied(c: AtenCall, x: Value, source: Value, non_blocking: bool = False) -> Value:
    return c.op("broadcast_to", c.cast(source, c.dtype), shape=c.shape)


@aten("fill.Scalar", "full_like", "full", "scalar_tensor", "zeros", "ones", "zeros_like", "ones_like")
def full(c: AtenCall, *args: Any, **kwargs: Any) -> Value:
    word = c.label.split()[0]
    number: Any = 0 if "zeros" in word else 1 if "ones" in word else args[-1]
    return c.full(c.shape, number.item() if hasattr(number, "item") else number, c.dtype)


# number theory, and the bits of elements


@aten("gcd")
def greatest_common_divisor(c: AtenCall, x: Value, y: Value) -> Value:
    """Adds Euclid's algorithm: the remainders of Fibonacci's numbers take the most steps, 1.45 for each bit."""
    shape = c.shape
    states = [c.op("broadcast_to", c.op("abs", c.cast(v, c.dtype)), shape=shape) for v in (x, y)]
    zero, one = c.constant(0, c.dtype), c.constant(1, c.dtype)

    def step(before: Sequence[Value], _: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        a, b = before
        ends = c.op("equal", b, zero)
        rest = c.op("remainder", a, c.op("where", ends, one, b))
        return [c.op("where", ends, a, b), c.op("where", ends, zero, rest)], []

    (divisor, _), _ = add_scan(c.builder, states, [], step, steps=math.ceil(1.45 * DType(c.dtype).bits))
    return divisor


@aten("view.dtype")
def view_as_type(c: AtenCall, x: Value, dtype: Any) -> Value:
    """Reads the bits of elements as another type. Of another width it has more or fewer elements along the last axis."""
    if c.dtype == "bool" and x.dtype != "bool":
        raise c.error("bits cannot be read as bool; compare with 0 instead: x != 0")
    x = c.cast(x, "uint8") if x.dtype == "bool" else x
    have, want = DType(x.dtype).bits, DType(c.dtype).bits
    if have == want:
        return c.op("reinterpret", x, dtype=c.dtype) if x.dtype != c.dtype else c.cast(x, c.dtype)
    x = c.op("reinterpret", x, dtype=f"uint{have}")
    if have > want:
        parts = [c.op("right_shift", x, c.constant(n * want, x.dtype)) for n in range(have // want)]
        out = c.op("stack", *[c.cast(p, f"uint{want}") for p in parts], axis=x.ndim)
        return c.op("reinterpret", c.op("reshape", out, shape=c.shape), dtype=c.dtype)
    count = want // have
    wide = c.op("reshape", c.cast(x, f"uint{want}"), shape=(*c.shape, count))
    total: Any = None
    for n in range(count):
        part = c.op("squeeze", c.part(wide, wide.ndim - 1, n, 1), axis=wide.ndim - 1)
        part = c.op("left_shift", part, c.constant(n * have, part.dtype))
        total = part if total is None else c.op("bitwise_or", total, part)
    return c.op("reinterpret", total, dtype=c.dtype)
