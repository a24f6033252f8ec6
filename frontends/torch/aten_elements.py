"""Converters of operators on single elements: arithmetic, comparisons, functions, conversions."""

from __future__ import annotations

from typing import Any

from ...graph.graph import Value
from ...tir.expr import DType
from ..composed_operators import power_of_integers
from .aten_call import CONVERTERS, AtenCall, aten

FUNCTIONS = (
    "acos acosh asin asinh atan atanh cos cosh erf exp exp2 expm1 log log10 log1p log2 rsqrt sigmoid sin sinh sqrt tan tanh"
).split()
"""Functions whose result is a float, under the same name in both systems."""

_ROUNDINGS = {"ceil": "ceil", "floor": "floor", "round": "round", "trunc": "trunc"}
_KEEPING = {"abs": "abs", "neg": "negative", "relu": "relu"}
_ARITHMETIC = {"mul": "multiply", "maximum": "maximum", "minimum": "minimum"}
_PAIRS = {
    "atan2": "atan2",
    "copysign": "copysign",
    "hypot": "hypot",
    "logaddexp": "logaddexp",
    "nextafter": "nextafter",
}
"""Functions of two numbers whose result is a float."""
_BITS = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}
_ORDER = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}


def _function(c: AtenCall, x: Value, row: str) -> Value:
    return c.op(row, c.cast(x, c.dtype))


def _rounded(c: AtenCall, x: Value, row: str) -> Value:
    return c.op(row if DType(x.dtype).is_float else "identity", x)


def _kept(c: AtenCall, x: Value, row: str) -> Value:
    if x.dtype == "bool":
        return c.op("identity", x)
    if row == "relu" and not DType(x.dtype).is_float:
        return c.op("maximum", x, c.constant(0, x.dtype))
    return c.op("identity" if row == "abs" and DType(x.dtype).kind == "uint" else row, x)


def _pair(c: AtenCall, x: Any, y: Any, row: str) -> Value:
    return c.op(row, c.value(x, c.dtype), c.value(y, c.dtype))


def _arithmetic(c: AtenCall, x: Any, y: Any, row: str) -> Value:
    a, b = c.value(x, c.dtype), c.value(y, c.dtype)
    if c.dtype == "bool":
        row = "logical_or" if row in ("add", "maximum") else "logical_and"
    return c.op(row, a, b)


def _compared(c: AtenCall, x: Any, y: Any, row: str) -> Value:
    dtype = c.common(0, 1)
    a, b = c.value(x, dtype), c.value(y, dtype)
    if dtype == "bool":
        a, b = c.op("cast", a, dtype="uint8"), c.op("cast", b, dtype="uint8")
    return c.op(row, a, b)


def _logical(c: AtenCall, x: Value, y: Value, row: str) -> Value:
    return c.op(row, c.cast(x, "bool"), c.cast(y, "bool"))


def _bitwise(c: AtenCall, x: Any, y: Any, row: str) -> Value:
    kind = "logical" if c.dtype == "bool" else "bitwise"
    return c.op(f"{kind}_{row}", c.value(x, c.dtype), c.value(y, c.dtype))


def _enter(convert: Any, names: Any, *overloads: str) -> None:
    for name, row in names.items():
        for overload in overloads:
            CONVERTERS[f"aten.{name}.{overload}"] = lambda c, *args, row=row: convert(c, *args, row)


_enter(_function, {name: name for name in FUNCTIONS}, "default")
_enter(_rounded, _ROUNDINGS, "default")
_enter(_kept, _KEEPING, "default")
_enter(_arithmetic, _ARITHMETIC, "Tensor", "Scalar", "default")
_enter(_pair, _PAIRS, "Tensor", "Scalar", "default")
_enter(_compared, _ORDER, "Tensor", "Scalar")
_enter(_logical, {f"logical_{n}": f"logical_{n}" for n in ("and", "or", "xor")}, "default")
_enter(_bitwise, _BITS, "Tensor", "Scalar")


@aten("add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar")
def add(c: AtenCall, x: Any, y: Any, alpha: Any = 1) -> Value:
    b = c.value(y, c.dtype)
    if alpha != 1:
        b = c.op("multiply", b, c.constant(alpha, c.dtype))
    if "sub" in c.label:
        return c.op("subtract", c.value(x, c.dtype), b)
    return _arithmetic(c, x, b, "add")


@aten("div.Tensor", "div.Scalar", "div.Tensor_mode", "div.Scalar_mode")
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
    e = c.op("where", *_same(c, c.op("greater", size, c.constant(_LARGEST_EXPONENT, c.dtype)),
                             c.op("add", odd, c.constant(_LARGEST_EXPONENT - 1, c.dtype)), size))  # fmt: skip
    out = power_of_integers(c.op, base, e, one, _LARGEST_EXPONENT.bit_length())
    if not signed:
        return out
    unit = c.op("equal", c.op("multiply", base, base), one)
    kept = c.op("logical_or", unit, c.op("greater_equal", exponent, none))
    return c.op("where", *_same(c, kept, out, none))


@aten("clamp", "clamp.Tensor", "hardtanh")
def clamp(c: AtenCall, x: Value, low: Any = None, high: Any = None, **named: Any) -> Value:
    low, high = named.get("min", low), named.get("max", high)
    if "hardtanh" in c.label:
        low, high = named.get("min_val", -1 if low is None else low), named.get("max_val", 1 if high is None else high)
    out = c.cast(x, c.dtype)
    for limit, row in ((low, "maximum"), (high, "minimum")):
        if limit is not None:
            out = c.op(row, out, c.value(limit, c.dtype))
    return out if out is not x else c.op("identity", x)


@aten("reciprocal")
def reciprocal(c: AtenCall, x: Value) -> Value:
    return c.op("divide", c.constant(1, c.dtype), c.cast(x, c.dtype))


@aten("logical_not")
def logical_not(c: AtenCall, x: Value) -> Value:
    return c.op("logical_not", c.cast(x, "bool"))


@aten("bitwise_not")
def bitwise_not(c: AtenCall, x: Value) -> Value:
    return c.op("logical_not" if x.dtype == "bool" else "bitwise_not", x)


@aten("sign", "sgn")
def sign(c: AtenCall, x: Value) -> Value:
    """Returns -1, 0 or 1; NaN and both zeros give 0."""
    if x.dtype == "bool":
        return c.op("identity", x)
    none = c.constant(0, x.dtype)
    above, below = [c.cast(c.op(row, x, none), x.dtype) for row in ("greater", "less")]
    return above if DType(x.dtype).kind == "uint" else c.op("subtract", above, below)


@aten("signbit")
def signbit(c: AtenCall, x: Value) -> Value:
    if DType(x.dtype).is_float:
        x = c.op("copysign", c.constant(1, x.dtype), x)
    return c.full(x.shape, False, "bool") if x.dtype == "bool" else c.op("less", x, c.constant(0, x.dtype))


@aten("fmax", "fmin")
def extreme_of_numbers(c: AtenCall, x: Value, y: Value) -> Value:
    """Returns the larger or the smaller, without NaN as far as there is a number."""
    a, b = c.value(x, c.dtype), c.value(y, c.dtype)
    out = c.op("maximum" if "fmax" in c.label else "minimum", a, b)
    for one, other in ((a, b), (b, a)) if DType(c.dtype).is_float else ():
        out = c.op("where", *_same(c, c.op("is_nan", one), other, out))
    return out


@aten("ldexp.Tensor")
def ldexp(c: AtenCall, x: Value, y: Value) -> Value:
    power = c.op("power", c.constant(2, c.dtype), c.cast(y, c.dtype))
    return c.op("multiply", c.cast(x, c.dtype), power)


@aten("isnan", "isinf")
def special(c: AtenCall, x: Value) -> Value:
    if not DType(x.dtype).is_float:
        return c.full(x.shape, False, "bool")
    return c.op("is_nan" if "isnan" in c.label else "is_inf", x)


@aten("gelu")
def gelu(c: AtenCall, x: Value, approximate: str = "none") -> Value:
    return c.op("gelu", x, approximate=approximate)


@aten("leaky_relu")
def leaky_relu(c: AtenCall, x: Value, negative_slope: float = 0.01) -> Value:
    return c.op("leaky_relu", x, alpha=float(negative_slope))


@aten("elu")
def elu(c: AtenCall, x: Value, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Value:
    scaled = x if input_scale == 1 else c.op("multiply", x, c.constant(input_scale, x.dtype))
    low = c.op("multiply", c.op("expm1", scaled), c.constant(alpha, x.dtype))
    out = c.op("where", c.op("greater", x, c.full(x.shape, 0, x.dtype)), x, low)
    return out if scale == 1 else c.op("multiply", out, c.constant(scale, x.dtype))


@aten("where.self")
def where(c: AtenCall, condition: Value, x: Value, y: Value) -> Value:
    parts = [c.cast(condition, "bool"), c.value(x, c.dtype), c.value(y, c.dtype)]
    wide = [v if v.shape == c.shape else c.op("broadcast_to", v, shape=c.shape) for v in parts]
    return c.op("where", *wide)


@aten("_to_copy", "clone", "alias", "detach", "lift_fresh_copy")
def copy(c: AtenCall, x: Value, *args: Any, **kwargs: Any) -> Value:
    return c.op("identity", x) if x.dtype == c.dtype else c.cast(x, c.dtype)


@aten("copy")
def copied(c: AtenCall, x: Value, source: Value, non_blocking: bool = False) -> Value:
    return c.op("broadcast_to", c.cast(source, c.dtype), shape=c.shape)


@aten("fill.Scalar", "full_like", "full", "scalar_tensor", "zeros", "ones", "zeros_like", "ones_like")
def full(c: AtenCall, *args: Any, **kwargs: Any) -> Value:
    word = c.label.split()[0]
    number: Any = 0 if "zeros" in word else 1 if "ones" in word else args[-1]
    return c.full(c.shape, number.item() if hasattr(number, "item") else number, c.dtype)


def _same(c: AtenCall, *values: Value) -> list[Value]:
    return [v if v.shape == c.shape else c.op("broadcast_to", v, shape=c.shape) for v in values]
