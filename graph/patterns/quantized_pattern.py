"""Products of quantized numbers, written as products of what they stand for: they become products of integers.

The sums of the integers are exact, where the written steps round each product: the rules hold where a sum cannot leave int32
and the product of both scales is a normal float32. ``product_of_shifted`` is exact always, as int32 wraps around.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...tir.expr import DType, max_value, min_value
from ..graph import Node, Value
from ..rules import Match, Pattern, Rule, any_value, constant, either, op, optional, rule
from ..weighted import PRODUCTS, Array, Channels, channels_of, sums_whole_windows

_BITS = 8
"""Numbers of so many bits are multiplied as integers; sums of their products are int32."""


def _shifted(name: str, inner: Pattern) -> Pattern:
    """Returns a pattern of number - zero point, in int32."""
    whole = op("cast", inner, dtype="int32")
    return either(whole - constant(f"{name}_zero"), whole, inner)


def _widened(name: str, inner: Pattern) -> Pattern:
    """Returns a pattern of (number - zero point) · scale, as dequantizing is written."""
    return op("cast", _shifted(name, inner), dtype="float32") * constant(f"{name}_scale")


_data = optional("reshape", _widened("x", any_value("x")), bind="view")
_weight = _widened("w", constant("w"))


@rule(op(PRODUCTS, _data, _weight))
def product_of_quantized(m: Match) -> Value | None:
    """A product of quantized operands becomes a product of integers that is scaled. (x - z) · s times w · t is (x · w -
    z · w) · (s · t)."""
    return _integer_product(m, None)


@rule(op("conv1d conv2d conv3d depthwise_conv2d dense", _data, _weight, any_value("bias")))
def product_of_quantized_with_bias(m: Match) -> Value | None:
    """The same with a bias, which is added at the end."""
    return _integer_product(m, m["bias"])


@rule(op(PRODUCTS, _shifted("x", any_value("x")), _shifted("w", constant("w")), out_dtype="int32"))
def product_of_shifted(m: Match) -> Value | None:
    """A product of shifted integers becomes a product of narrow ones. (x - z) · w is x · w - z · w."""
    if m["x"] is m.root.inputs[0]:
        return None
    found = _total(m)
    return None if found is None else found[0]


def _integer_product(m: Match, bias: Value | None) -> Value | None:
    if m.root.output.dtype != "float32" or m.root.attrs.get("out_dtype"):
        return None
    found = _total(m)
    if found is not None and not _sums_fit(m, found[1]):
        return None
    scale = None if found is None else _scales(m, found[1])
    if found is None or scale is None:
        return None
    total, channels = found
    with np.errstate(over="ignore"):
        scale32 = scale.astype(np.float32)
    if not (np.isfinite(scale32) & (np.abs(scale32) >= np.finfo(np.float32).tiny) | (scale == 0)).all():
        return None
    out = m.op("multiply", m.op("cast", total, dtype="float32"), m.constant(scale32))
    if bias is None:
        return out
    shape = _along(np.empty(bias.shape), m.out, channels).shape
    return m.op("add", out, bias if bias.shape == shape else m.op("reshape", bias, shape=shape))


def _total(m: Match) -> tuple[Value, Channels] | None:
    """Returns the int32 sums of products of the numbers less the zero point, and where the channels are. None stands
    for numbers that are not narrow integers, and for weights with a zero point."""
    node, x, weight = m.root, m["x"], m.array("w")
    narrow = all(DType(v.dtype).is_int and DType(v.dtype).bits <= _BITS for v in (x, m["w"]))
    zero = _number(m, "x_zero")
    if not narrow or not x.is_static or zero is None or _number(m, "w_zero") != 0:
        return None
    shaped = node.inputs[0] if "view" not in m else m.node("view").inputs[0]
    if node.inputs[1] is None or m["w"].shape != node.inputs[1].shape or shaped is None or x.shape != shaped.shape:
        return None  # a scale or a zero point broadcasts the numbers
    if "view" in m:
        x = m.op("reshape", x, shape=m.node("view").output.shape)
    channels = channels_of(Node(node.op, (x, m["w"]), node.outputs, node.attrs))
    if channels is None:
        return None
    attrs = {**node.attrs, "out_dtype": "int32"}
    if zero and not sums_whole_windows(node) and not min_value(x.dtype) <= zero <= max_value(x.dtype):
        return None
    if zero and not sums_whole_windows(node):
        padded = _padded(m, x, attrs, zero)
        if padded is None:
            return None
        x, attrs = padded, {**attrs, "padding": 0}
    total = m.op(node.op, x, m["w"], **attrs)
    if zero:
        every = tuple([d for d in range(weight.ndim) if d not in channels.weight_out])
        moved = -zero * weight.astype(np.int64).sum(axis=every).reshape(-1)
        total = m.op("add", total, m.constant(_along(moved, m.out, channels).astype(np.int32)))
    return total, channels


def _sums_fit(m: Match, channels: Channels) -> bool:
    """Returns whether each sum of (number - zero point) · weight, and of its parts, is below 2³¹ for all numbers."""
    weight = np.abs(m.array("w").astype(np.int64))
    every = tuple([d for d in range(weight.ndim) if d not in channels.weight_out])
    largest = 255 + abs(_number(m, "x_zero") or 0)
    return int(weight.sum(axis=every).max(initial=0)) * largest < 1 << 31


def _number(m: Match, name: str) -> int | None:
    """Returns the zero point, 0 where none is written; None when there are several."""
    if name not in m:
        return 0
    data = m.array(name)
    return None if not data.size or np.any(data != data.reshape(-1)[0]) else int(data.reshape(-1)[0])


def _scales(m: Match, channels: Channels) -> Array | None:
    """Returns the product of both scales in a shape that broadcasts to the result. None stands for scales that are not
    one per channel."""
    data, weight = m.numbers("x_scale").astype(np.float64), m.numbers("w_scale").astype(np.float64)
    if data.size != 1:
        return None
    if weight.size == 1:
        return np.asarray(data.reshape(-1)[0] * weight.reshape(-1)[0])
    shape = [1] * (m["w"].ndim - weight.ndim) + list(weight.shape)
    if any(extent != 1 for d, extent in enumerate(shape) if d not in channels.weight_out):
        return None
    count = math.prod(m["w"].shape[d] for d in channels.weight_out)
    inner = [m["w"].shape[d] if d in channels.weight_out else 1 for d in range(m["w"].ndim)]
    each = np.broadcast_to(weight.reshape(shape), inner).reshape(count)
    return _along(each * data.reshape(-1)[0], m.out, channels)


def _along(vector: Array, out: Value, channels: Channels) -> Array:
    """Returns one number per channel in a shape that broadcasts to the result."""
    return vector.reshape((-1,) + (1,) * (out.ndim - 1 - channels.result))


def _padded(m: Match, x: Value, attrs: Mapping[str, Any], zero: int) -> Value | None:
    """Returns the data with zero points around them, which stand for the zeros of a padded convolution."""
    padding, n = attrs.get("padding", 0), x.ndim - 2
    every = padding if isinstance(padding, (tuple, list)) else (padding,) * n
    if any(not isinstance(p, int) for p in every) or len(every) not in (n, 2 * n):
        return None
    before, after = (every[:n], every[n:]) if len(every) == 2 * n else (every, every)
    return m.op("pad", x, pad_before=(0, 0, *before), pad_after=(0, 0, *after), value=zero)


RULES: tuple[Rule, ...] = (product_of_quantized, product_of_quantized_with_bias, product_of_shifted)
