"""Converters of products of matrices, convolutions and Einstein sums, and the arguments of windows and zero points."""

from __future__ import annotations

from typing import Any

from ...graph.graph import Value
from ...tir.expr import DType
from .. import common
from .call import OnnxCall, converter


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


@converter("MatMul")
def matmul(c: OnnxCall) -> Value:
    return common.product(c, c.input(0), c.input(1))


@converter("Gemm")
def gemm(c: OnnxCall) -> Value:
    a, b, bias = c.input(0), c.input(1), c.optional(2)
    alpha, beta = float(c.attr("alpha", 1.0)), float(c.attr("beta", 1.0))
    if c.attr("transA", 0):
        a = c.op("transpose", a, axes=(1, 0))
    attrs: dict[str, Any] = {} if DType(a.dtype).is_float else {"out_dtype": a.dtype}
    out = c.op("dense", a, b, **attrs) if c.attr("transB", 0) else c.op("matmul", a, b, **attrs)
    if bias is not None and (
        not bias.is_static or not out.is_static
    ):  # it has the product's shape, or broadcasts to it
        bias = c.op("broadcast_to", bias, shape=out.shape)
    return common.scaled_sum(c, out, bias, alpha, beta)


@converter("Conv")
def conv(c: OnnxCall) -> Value:
    return convolution(c, c.input(0), c.input(1), c.optional(2))


@converter("ConvTranspose")
def conv_transpose(c: OnnxCall) -> Value:
    x, w, bias = c.input(0), c.input(1), c.optional(2)
    n = x.ndim - 2
    kernel = tuple(c.attr("kernel_shape", w.shape[2:]))
    strides, dilations = tuple(c.attr("strides", (1,) * n)), tuple(c.attr("dilations", (1,) * n))
    extra, pads = tuple(c.attr("output_padding", (0,) * n)), tuple(c.attr("pads", (0,) * 2 * n))
    wanted, auto = c.attr("output_shape"), c.attr("auto_pad", "NOTSET")
    groups = c.attr("group", 1)
    if auto.startswith("SAME") and wanted is None:
        wanted = [e * s for e, s in zip(x.shape[2:], strides, strict=True)]
    if wanted is not None:
        totals = [
            s * (e - 1) + p + (k - 1) * d + 1 - o
            for s, e, p, k, d, o in zip(strides, x.shape[2:], extra, kernel, dilations, wanted, strict=True)
        ]
        halves = [int(t / 2) for t in totals]  # towards zero
        low = [t - h if auto == "SAME_LOWER" else h for t, h in zip(totals, halves, strict=True)]
        pads = (*low, *[t - b for t, b in zip(totals, low, strict=True)])
    windows = {"stride": strides, "padding": pads, "dilation": dilations, "output_padding": extra}
    return common.transposed_convolution(c, x, w, bias, groups=groups, **windows)


@converter("MatMulInteger")
def matmul_integer(c: OnnxCall) -> Value:
    a, b = shifted(c, c.input(0), c.optional(2), -2), shifted(c, c.input(1), c.optional(3), -1)
    return common.product(c, a, b, "int32")


@converter("ConvInteger")
def conv_integer(c: OnnxCall) -> Value:
    x, w = shifted(c, c.input(0), c.optional(2), 0), shifted(c, c.input(1), c.optional(3), 0)
    return convolution(c, x, w, None, "int32")


@converter("Einsum")
def einsum(c: OnnxCall) -> Value:
    equation = c.attr("equation").replace(" ", "")
    return c.op("einsum", *[v for v in c.inputs if v is not None], equation=equation)
