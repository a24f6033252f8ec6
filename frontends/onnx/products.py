"""Converters of products of matrices, convolutions and Einstein sums."""

from __future__ import annotations

from typing import Any

from ...graph.graph import Value
from ...tir.expr import DType
from ..common import transposed_convolution
from .call import OnnxCall, converter
from .sums_of_products import convolution, product, shifted


@converter("MatMul")
def matmul(c: OnnxCall) -> Value:
    return product(c, c.input(0), c.input(1))


@converter("Gemm")
def gemm(c: OnnxCall) -> Value:
    a, b, bias = c.input(0), c.input(1), c.optional(2)
    alpha, beta = float(c.attr("alpha", 1.0)), float(c.attr("beta", 1.0))
    if c.attr("transA", 0):
        a = c.op("transpose", a, axes=(1, 0))
    attrs: dict[str, Any] = {} if DType(a.dtype).is_float else {"out_dtype": a.dtype}
    out = c.op("dense", a, b, **attrs) if c.attr("transB", 0) else c.op("matmul", a, b, **attrs)
    if alpha != 1.0:
        out = c.op("multiply", out, c.like(alpha, out))
    if bias is None or beta == 0.0:
        return out
    if not bias.is_static or not out.is_static:  # the bias has the product's shape, or broadcasts to it
        bias = c.op("broadcast_to", bias, shape=out.shape)
    return c.op("add", out, bias if beta == 1.0 else c.op("multiply", bias, c.like(beta, bias)))


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
    return transposed_convolution(c, x, w, bias, groups=groups, **windows)


@converter("MatMulInteger")
def matmul_integer(c: OnnxCall) -> Value:
    a, b = shifted(c, c.input(0), c.optional(2), -2), shifted(c, c.input(1), c.optional(3), -1)
    return product(c, a, b, "int32")


@converter("ConvInteger")
def conv_integer(c: OnnxCall) -> Value:
    x, w = shifted(c, c.input(0), c.optional(2), 0), shifted(c, c.input(1), c.optional(3), 0)
    return convolution(c, x, w, None, "int32")


@converter("Einsum")
def einsum(c: OnnxCall) -> Value:
    equation = c.attr("equation").replace(" ", "")
    return c.op("einsum", *[v for v in c.inputs if v is not None], equation=equation)
