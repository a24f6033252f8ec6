"""Converters of quantized numbers."""

from __future__ import annotations

from ...graph.graph import Value
from ...tir.expr import max_value, min_value
from .call import Call
from .sums_of_products import convolution, product, shifted
from .table import converter
from .types import dtype_of


def along(c: Call, v: Value, x: Value, axis: int) -> Value:
    """Returns a scale or zero point in a shape that broadcasts to ``x``."""
    if v.ndim == 0 or v.shape == (1,):
        return c.op("reshape", v, shape=(1,) * x.ndim) if v.ndim != x.ndim and x.ndim else v
    if v.ndim == x.ndim:
        return blocked(c, v, x, axis)
    shape = [1] * x.ndim
    shape[axis % x.ndim] = v.shape[0]
    return c.op("reshape", v, shape=tuple(shape))


def blocked(c: Call, v: Value, x: Value, axis: int) -> Value:
    """Returns ``v`` with each entry repeated over its block along ``axis``."""
    size = c.attr("block_size", 0)
    if not size:
        return v
    wide = c.op("repeat", v, repeats=size, axis=axis % x.ndim)
    return wide if wide.shape == x.shape else c.op("strided_slice", wide, begin=(0,) * x.ndim, end=x.shape)


@converter("QuantizeLinear")
def quantize(c: Call) -> Value:
    x, scale, zero, axis = c.input(0), c.input(1), c.optional(2), c.attr("axis", 1)
    to = zero.dtype if zero is not None else "uint8"
    if c.attr("output_dtype", 0):
        to = dtype_of(c.attr("output_dtype"), c.label)
    return _quantized(c, x, along(c, scale, x, axis), None if zero is None else along(c, zero, x, axis), to)


def _quantized(c: Call, x: Value, scale: Value, zero: Value | None, to: str) -> Value:
    wide = c.cast(x, "float32")
    whole = c.op("round", c.op("divide", wide, c.cast(scale, "float32")))
    if zero is not None:
        whole = c.op("add", whole, c.cast(zero, "float32"))
    return c.op("cast", c.op("clip", whole, low=float(min_value(to)), high=float(max_value(to))), dtype=to)


@converter("DequantizeLinear")
def dequantize(c: Call) -> Value:
    x, scale, zero, axis = c.input(0), c.input(1), c.optional(2), c.attr("axis", 1)
    wide = c.cast(x, "int32")
    if zero is not None:
        wide = c.op("subtract", wide, c.cast(along(c, zero, x, axis), "int32"))
    to = dtype_of(c.attr("output_dtype"), c.label) if c.attr("output_dtype", 0) else scale.dtype
    return c.cast(
        c.op("multiply", c.op("cast", wide, dtype="float32"), c.cast(along(c, scale, x, axis), "float32")), to
    )


@converter("DynamicQuantizeLinear")
def dynamic_quantize(c: Call) -> tuple[Value, ...]:
    x = c.input(0)
    axes = tuple(range(x.ndim))
    zero_f = c.like(0, x)
    highest = c.op("maximum", c.op("max", x, axis=axes), zero_f)
    lowest = c.op("minimum", c.op("min", x, axis=axes), zero_f)
    wide = c.op("subtract", highest, lowest)
    all_zero = c.op("equal", wide, zero_f)
    scale = c.op("where", all_zero, c.like(1, x), c.op("divide", wide, c.like(255, x)))
    middle = c.op("round", c.op("divide", c.op("subtract", zero_f, lowest), scale))
    zero = c.op("cast", c.op("clip", middle, low=0.0, high=255.0), dtype="uint8")
    return _quantized(c, x, scale, zero, "uint8"), scale, zero


@converter("QLinearMatMul")
def qlinear_matmul(c: Call) -> Value:
    a, sa, za, b, sb, zb, sy, zy = [c.input(n) for n in range(8)]
    total = product(c, _shift(c, a, za, -2), _shift(c, b, zb, -1), "int32")
    scale = c.op("multiply", _fit(c, sa, total, -2), _fit(c, sb, total, -1))
    real = c.op("multiply", c.op("cast", total, dtype="float32"), c.cast(scale, "float32"))
    return _quantized(c, real, _fit(c, sy, total, -2), _fit(c, zy, total, -2), zy.dtype)


def _shift(c: Call, x: Value, zero: Value, axis: int) -> Value:
    return c.op("subtract", c.cast(x, "int32"), c.cast(_fit(c, zero, x, axis), "int32"))


def _fit(c: Call, v: Value, x: Value, axis: int) -> Value:
    if v.ndim == 1 and v.shape[0] != 1 and x.ndim > 1:
        shape = [1] * x.ndim
        shape[axis] = v.shape[0]
        return c.op("reshape", v, shape=tuple(shape))
    return v


@converter("QLinearConv")
def qlinear_conv(c: Call) -> Value:
    x, sx, zx, w, sw, zw, sy, zy = [c.input(n) for n in range(8)]
    total = convolution(c, shifted(c, x, zx, 0), shifted(c, w, zw, 0), c.optional(8), "int32")
    shape = (1, -1, *[1] * (x.ndim - 2))
    per_channel = c.op("reshape", sw, shape=(1, sw.shape[0], *shape[2:])) if sw.ndim and sw.shape[0] != 1 else sw
    scale = c.op("multiply", sx, per_channel)
    real = c.op("multiply", c.op("cast", total, dtype="float32"), scale)
    return _quantized(c, real, sy, zy, zy.dtype)
