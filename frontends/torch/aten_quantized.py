"""Converters of quantized numbers: ``quantized_decomposed``, which PT2E exports hold, and products with narrow weights.

A number q stands for (q - zero point) · scale. The operators round to even after they multiply by the reciprocal of the scale,
as PyTorch defines them (``torch.ao.quantization.fx._decomposed``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...graph.graph import Value
from ...graph.quantize import dequantized
from .. import common
from ..common.graph_call import C
from .aten_call import AtenCall, aten, dtype_name, op

_LIBRARY = "quantized_decomposed"


def _operator(*names: str) -> Callable[[C], C]:
    return op(*[f"{_LIBRARY}.{name}" for name in names])


def _along(c: AtenCall, v: Value, x: Value, axis: int) -> Value:
    """Returns a vector of one number per index of ``axis`` in a shape that broadcasts to ``x``."""
    shape = [1] * x.ndim
    shape[axis % x.ndim] = v.shape[0]
    return c.op("reshape", v, shape=tuple(shape))


def _zeros_along(c: AtenCall, zeros: Value | None, x: Value, axis: int) -> Value | None:
    """Returns zero points in a shape that broadcasts to ``x``; None where there are none, or all are zero."""
    return None if zeros is None or _is_zero(c, zeros) else _along(c, zeros, x, axis)


def _is_zero(c: AtenCall, v: Value) -> bool:
    data = c.builder.constants.get(v)
    return data is not None and not data.any()


def _scalar(c: AtenCall, v: Any, dtype: str) -> Value:
    """Returns a number, or a tensor of one element, as a scalar."""
    if not isinstance(v, Value):
        return c.constant(np.asarray(v, dtype), dtype)
    return c.cast(c.op("reshape", v, shape=()) if v.ndim else v, dtype)


def _inverse(c: AtenCall, scale: Any) -> Value:
    """Returns the reciprocal of a scale in float32; that of a number is computed in float64."""
    if not isinstance(scale, Value):
        return c.constant(np.float32(1.0 / scale), "float32")
    wide = scale if scale.dtype in ("float32", "float64") else c.cast(scale, "float32")
    return c.cast(c.op("divide", c.constant(1.0, wide.dtype), wide), "float32")


def _numbers(
    c: AtenCall, x: Value, inverse: Value, zero: Value | None, ends: Any, dtype: Any, late: bool = False
) -> Value:
    """Returns the numbers of a tensor, cut at ``ends``. ``late``: rounded after the zero point is added."""
    scaled = c.op("multiply", c.cast(x, "float32"), inverse)
    whole = scaled if late else c.op("round", scaled)
    if zero is not None:
        whole = c.op("add", whole, c.cast(zero, "float32"))
    whole = c.op("round", whole) if late else whole
    return c.op("cast", c.op("clip", whole, low=float(ends[0]), high=float(ends[1])), dtype=dtype_name(dtype))


def _real(c: AtenCall, x: Value, scale: Value, zero: Value | None, to: Any) -> Value:
    real = dequantized(c.builder, x, c.cast(scale, "float32"), zero)
    return c.cast(real, "float32" if to is None else dtype_name(to))


@_operator("quantize_per_tensor.default", "quantize_per_tensor.tensor", "quantize_per_tensor.tensor2")
def quantize(c: AtenCall, x: Value, scale: Any, zero: Any, low: Any, high: Any, dtype: Any) -> Value:
    inverse = _inverse(c, c.op("reshape", scale, shape=()) if isinstance(scale, Value) and scale.ndim else scale)
    ends = [int(c.builder.constants[e].item()) if isinstance(e, Value) else e for e in (low, high)]
    return _numbers(c, x, inverse, _scalar(c, zero, "float32"), ends, dtype)


@_operator("dequantize_per_tensor.default", "dequantize_per_tensor.tensor", "dequantize_per_tensor.tensor2")
def dequantize(
    c: AtenCall, x: Value, scale: Any, zero: Any, low: Any, high: Any, dtype: Any, *, out_dtype: Any = None
) -> Value:
    place = _scalar(c, zero, "int32")
    return _real(c, x, _scalar(c, scale, "float32"), None if _is_zero(c, place) else place, out_dtype)


@_operator("quantize_per_channel.default")
def quantize_channels(
    c: AtenCall, x: Value, scales: Value, zeros: Value, axis: int, low: int, high: int, dtype: Any
) -> Value:
    inverse = _along(c, _inverse(c, scales), x, axis)
    return _numbers(c, x, inverse, _zeros_along(c, zeros, x, axis), (low, high), dtype)


@_operator("dequantize_per_channel.default")
def dequantize_channels(
    c: AtenCall, x: Value, scales: Value, zeros: Value | None, axis: int, low: int, high: int, dtype: Any, *,
    out_dtype: Any = None,
) -> Value:  # fmt: skip
    return _real(c, x, _along(c, scales, x, axis), _zeros_along(c, zeros, x, axis), out_dtype)


@_operator("quantize_per_token.default")
def quantize_tokens(c: AtenCall, x: Value, scales: Value, zeros: Value, low: int, high: int, dtype: Any) -> Value:
    return _numbers(c, x, _inverse(c, scales), zeros, (low, high), dtype, late=True)


@_operator("dequantize_per_token.default")
def dequantize_tokens(
    c: AtenCall, x: Value, scales: Value, zeros: Value, low: int, high: int, dtype: Any, to: Any
) -> Value:
    return _real(c, x, scales, None if _is_zero(c, zeros) else zeros, to)


@_operator("quantize_per_channel_group.default")
def quantize_groups(
    c: AtenCall, x: Value, scales: Value, zeros: Value, low: int, high: int, dtype: Any, group: int = 128
) -> Value:
    parts, inverse, places = _in_groups(c, x, group, _inverse(c, scales), zeros)
    return c.op("reshape", _numbers(c, parts, inverse, places, (low, high), dtype, late=True), shape=x.shape)


@_operator("dequantize_per_channel_group.default")
def dequantize_groups(
    c: AtenCall, x: Value, scales: Value, zeros: Value | None, low: int, high: int, dtype: Any, group: int = 128,
    to: Any = None,
) -> Value:  # fmt: skip
    kept = None if zeros is None or _is_zero(c, zeros) else zeros
    parts, factors, places = _in_groups(c, x, group, scales, kept)
    return c.op("reshape", _real(c, parts, factors, places, to), shape=x.shape)


def _in_groups(
    c: AtenCall, x: Value, group: int, scales: Value, zeros: Value | None
) -> tuple[Value, Value, Value | None]:
    """Returns a matrix in groups of its rows, and scales and zero points that broadcast to it."""
    rows, depth = x.shape
    size = depth if group > depth and scales.shape[-1] == 1 else group
    shape = (rows, depth // size, 1)
    moved = [v if v is None else c.op("reshape", v, shape=shape) for v in (scales, zeros)]
    assert moved[0] is not None
    return c.op("reshape", x, shape=(rows, depth // size, size)), moved[0], moved[1]


@_operator("choose_qparams.tensor", "choose_qparams_symmetric.tensor")
def choose(c: AtenCall, x: Value, low: int, high: int, eps: float, dtype: Any) -> tuple[Value, Value]:
    """Returns the scale (float64) and the zero point (int64) of a tensor, of one element each."""
    axes = tuple(range(x.ndim))
    wide = c.cast(x, "float32")
    ends = c.op("min", wide, axis=axes), c.op("max", wide, axis=axes)
    if "symmetric" in c.label:
        most = c.op(
            "maximum",
            c.op("negative", c.op("minimum", ends[0], c.constant(0.0))),
            c.op("maximum", ends[1], c.constant(0.0)),
        )
        scale = c.op(
            "maximum", c.op("divide", most, c.constant(np.float32((high - low) / 2))), c.constant(np.float32(eps))
        )
        zero = c.constant(np.int64(128 if dtype_name(dtype) == "uint8" else 0))
        return _of_one(c, scale, "float64"), _of_one(c, zero, "int64")
    below, scale = _range(c, *ends, high - low, eps)
    zero = c.op("subtract", c.constant(float(low)), c.op("round", c.op("divide", below, scale)))
    return _of_one(c, scale, "float64"), _of_one(c, c.op("clip", zero, low=float(low), high=float(high)), "int64")


def _of_one(c: AtenCall, v: Value, dtype: str) -> Value:
    return c.cast(c.op("reshape", v, shape=(1,)), dtype)


def _range(c: AtenCall, lowest: Value, highest: Value, steps: int, eps: float) -> tuple[Value, Value]:
    """Returns the least number or 0, and the scale of ``steps`` steps from there to the greatest or 0."""
    nothing = c.constant(0.0)
    below, above = c.op("minimum", lowest, nothing), c.op("maximum", highest, nothing)
    scale = c.op("divide", c.op("subtract", above, below), c.constant(np.float32(steps)))
    return below, c.op("maximum", scale, c.constant(np.float32(eps)))


@_operator("choose_qparams_per_token.default")
def choose_tokens(c: AtenCall, x: Value, dtype: Any) -> tuple[Value, Value]:
    most = c.cast(c.op("max", c.op("abs", x), axis=(x.ndim - 1,), keepdims=True), "float32")
    scale = c.op("divide", c.op("maximum", most, c.constant(np.float32(1e-5))), c.constant(np.float32(127)))
    return c.cast(scale, c.dtype), c.cast(c.op("subtract", scale, scale), c.dtype_of(1))


@_operator("choose_qparams_per_token_asymmetric.default")
def choose_tokens_asymmetric(c: AtenCall, x: Value, dtype: Any) -> tuple[Value, Value]:
    wide, axis = c.cast(x, "float32"), (x.ndim - 1,)
    ends = [c.op(name, wide, axis=axis, keepdims=True) for name in ("min", "max")]
    below, scale = _range(c, ends[0], ends[1], 255, float(np.finfo(np.float32).eps))
    low, high = c.constant(-128.0), c.constant(127.0)
    down, up = c.op("divide", below, scale), c.op("divide", c.op("maximum", ends[1], c.constant(0.0)), scale)
    errors = c.op("add", c.op("add", low, down), c.op("add", high, up))
    zero = c.op(
        "where", c.op("greater", errors, c.constant(0.0)), c.op("subtract", low, down), c.op("subtract", high, up)
    )
    zero = c.op("round", c.op("clip", zero, low=-128.0, high=127.0))
    return c.cast(scale, "float64"), c.cast(zero, "int64")


@aten("_int_mm")
def product_of_int8(c: AtenCall, a: Value, b: Value) -> Value:
    return common.product(c, a, b, "int32")


@aten("_weight_int8pack_mm")
def product_with_int8_weights(c: AtenCall, x: Value, weight: Value, scales: Value) -> Value:
    """A row of weights for each column of the result, with a scale."""
    real = c.op(
        "multiply", c.cast(weight, "float32"), c.op("reshape", c.cast(scales, "float32"), shape=(weight.shape[0], 1))
    )
    return c.cast(c.op("dense", c.cast(x, "float32"), real), x.dtype)
