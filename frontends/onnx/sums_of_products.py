"""This module makes sums of products from a node's arguments: products of matrices, windows, convolutions, zero points."""

from __future__ import annotations

import math
from typing import Any

from ...graph.graph import Value
from ...tir.expr import DType
from .. import common
from .call import OnnxCall


def product(c: OnnxCall, a: Value, b: Value, out_dtype: str | None = None) -> Value:
    """Returns the product of matrices, and of vectors as NumPy treats them."""
    attrs = {} if out_dtype is None else {"out_dtype": out_dtype}
    if not DType(a.dtype).is_float and out_dtype is None:
        attrs = {"out_dtype": a.dtype}
    left, right = a, b
    if a.ndim == 1:
        left = c.op("expand_dims", a, axis=0)
    if b.ndim == 1:
        right = c.op("expand_dims", b, axis=1)
    if left.ndim > 2 and right.ndim == 2 and left.is_static:  # one product of all rows
        rows = math.prod(left.shape[:-1])
        flat = c.op("matmul", c.op("reshape", left, shape=(rows, left.shape[-1])), right, **attrs)
        out = c.op("reshape", flat, shape=(*left.shape[:-1], right.shape[-1]))
    else:
        out = c.op("matmul", left, right, **attrs)
    if a.ndim == 1:
        out = c.op("squeeze", out, axis=out.ndim - 2)
    return c.op("squeeze", out, axis=out.ndim - 1) if b.ndim == 1 else out


def window_arguments(c: OnnxCall, kernel: tuple[int, ...], data: Value) -> tuple[tuple[int, ...], tuple[int, ...], Any]:
    """Returns strides, dilations and padding of a window, with ``auto_pad`` worked out."""
    n = len(kernel)
    strides = tuple(c.attr("strides", (1,) * n))
    dilations = tuple(c.attr("dilations", (1,) * n))
    auto = c.attr("auto_pad", "NOTSET")
    if auto in ("NOTSET", ""):
        return strides, dilations, tuple(c.attr("pads", (0,) * (2 * n)))
    if auto == "VALID":
        return strides, dilations, (0,) * (2 * n)
    before, after = [], []
    for extent, k, s, d in zip(data.shape[2:], kernel, strides, dilations, strict=True):
        if not isinstance(extent, int):
            raise c.error(f"auto_pad={auto} needs known sizes")
        total = max((-(-extent // s) - 1) * s + (k - 1) * d + 1 - extent, 0)
        more = total - total // 2
        before.append(more if auto == "SAME_LOWER" else total // 2)
        after.append(total - before[-1])
    return strides, dilations, (*before, *after)


def convolution(c: OnnxCall, x: Value, w: Value, bias: Value | None, out_dtype: str | None = None) -> Value:
    """Returns the convolution that the node's attributes describe."""
    strides, dilations, padding = window_arguments(c, tuple(c.attr("kernel_shape", w.shape[2:])), x)
    windows = {"stride": strides, "padding": padding, "dilation": dilations}
    return common.convolution(c, x, w, bias, groups=c.attr("group", 1), out_dtype=out_dtype, **windows)


def shifted(c: OnnxCall, x: Value, zero: Value | None, axis: int) -> Value:
    """Returns ``x`` less its zero point in int32, or ``x`` itself without one. A vector holds one per index of ``axis``."""
    if zero is None:
        return x
    data = c.builder.constants.get(zero)
    if data is not None and not data.any():
        return x
    wide = c.cast(zero, "int32")
    if zero.ndim == 1 and zero.shape[0] != 1:
        shape = [1] * x.ndim
        shape[axis] = zero.shape[0]
        wide = c.op("reshape", wide, shape=tuple(shape))
    elif zero.ndim == 1:
        wide = c.op("reshape", wide, shape=(1,) * x.ndim)
    return c.op("subtract", c.cast(x, "int32"), wide)
