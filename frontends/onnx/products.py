"""Converters of products of matrices, convolutions and Einstein sums."""

from __future__ import annotations

from typing import Any

from ...graph.graph import Value
from ...tir.expr import DType
from .call import Call, converter
from .sums_of_products import convolution, product, shifted


@converter("MatMul")
def matmul(c: Call) -> Value:
    return product(c, c.input(0), c.input(1))


@converter("Gemm")
def gemm(c: Call) -> Value:
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
def conv(c: Call) -> Value:
    return convolution(c, c.input(0), c.input(1), c.optional(2))


@converter("ConvTranspose")
def conv_transpose(c: Call) -> Value:
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
    padded = all(isinstance(p, int) and p >= 0 for p in pads)
    within = all(d == 1 and e < s for d, e, s in zip(dilations, extra, strides, strict=True))
    if n == 2 and padded and within:
        return c.op("conv2d_transpose", x, w, bias, stride=strides, padding=pads, output_padding=extra, groups=groups)
    spread = x
    for d in range(n):
        spread = _zeros_between(c, spread, 2 + d, strides[d])
    reach = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
    before = [r - p for r, p in zip(reach, pads[:n], strict=True)]
    after = [r - p + e for r, p, e in zip(reach, pads[n:], extra, strict=True)]
    spread = _padded(c, spread, before, after)
    flipped = c.op("flip", w, axis=tuple(range(2, 2 + n)))
    per_in, per_out = w.shape[0] // groups, w.shape[1]
    split = c.op("reshape", flipped, shape=(groups, per_in, per_out, *kernel))
    turned = c.op("transpose", split, axes=(0, 2, 1, *range(3, 3 + n)))
    weight = c.op("reshape", turned, shape=(groups * per_out, per_in, *kernel))
    return c.op(f"conv{n}d", spread, weight, bias, dilation=dilations, groups=groups)


def _zeros_between(c: Call, x: Value, axis: int, stride: int) -> Value:
    """Returns ``x`` with ``stride - 1`` zeros between neighbours along ``axis``."""
    if stride == 1:
        return x
    wide = c.op("expand_dims", x, axis=axis + 1)
    after = [0] * wide.ndim
    after[axis + 1] = stride - 1
    filled = c.op("pad", wide, pad_before=(0,) * wide.ndim, pad_after=tuple(after))
    extent = x.shape[axis] * stride
    flat = c.op("reshape", filled, shape=(*x.shape[:axis], extent, *x.shape[axis + 1 :]))
    end = list(flat.shape)
    end[axis] = extent - stride + 1
    return c.op("strided_slice", flat, begin=(0,) * flat.ndim, end=tuple(end))


def _padded(c: Call, x: Value, before: list[int], after: list[int]) -> Value:
    """Returns ``x`` with zeros at both ends of its spatial dimensions; negative numbers cut elements off."""
    lead = [0] * (x.ndim - len(before))
    if min((*before, *after)) < 0:
        begin = (*lead, *[max(-b, 0) for b in before])
        end = [e + min(a, 0) for e, a in zip(x.shape, (*lead, *after), strict=True)]
        x = c.op("strided_slice", x, begin=begin, end=tuple(end))
    low, high = (*lead, *[max(b, 0) for b in before]), (*lead, *[max(a, 0) for a in after])
    return c.op("pad", x, pad_before=low, pad_after=high) if any((*low, *high)) else x


@converter("MatMulInteger")
def matmul_integer(c: Call) -> Value:
    a, b = shifted(c, c.input(0), c.optional(2), -2), shifted(c, c.input(1), c.optional(3), -1)
    return product(c, a, b, "int32")


@converter("ConvInteger")
def conv_integer(c: Call) -> Value:
    x, w = shifted(c, c.input(0), c.optional(2), 0), shifted(c, c.input(1), c.optional(3), 0)
    return convolution(c, x, w, None, "int32")


@converter("Einsum")
def einsum(c: Call) -> Value:
    equation = c.attr("equation").replace(" ", "")
    return c.op("einsum", *[v for v in c.inputs if v is not None], equation=equation)
