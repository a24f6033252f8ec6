"""Converters of products of matrices, convolutions and Einstein sums."""

from __future__ import annotations

import math
from typing import Any

from ...graph.graph import Value
from ...tir.dtype import DType
from .call import Call
from .table import converter


@converter("MatMul")
def matmul(c: Call) -> Value:
    return product(c, c.input(0), c.input(1))


def product(c: Call, a: Value, b: Value, out_dtype: str | None = None) -> Value:
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
    return c.op("add", out, bias if beta == 1.0 else c.op("multiply", bias, c.like(beta, bias)))


def window_arguments(c: Call, kernel: tuple[int, ...], data: Value) -> tuple[tuple[int, ...], tuple[int, ...], Any]:
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


@converter("Conv")
def conv(c: Call) -> Value:
    return convolution(c, c.input(0), c.input(1), c.optional(2))


def convolution(c: Call, x: Value, w: Value, bias: Value | None, out_dtype: str | None = None) -> Value:
    """Returns a convolution in one to three dimensions; one group per channel is a depthwise one."""
    n = x.ndim - 2
    if n not in (1, 2, 3):
        raise c.error(f"a convolution in {n} dimensions is not supported")
    kernel = tuple(c.attr("kernel_shape", w.shape[2:]))
    strides, dilations, padding = window_arguments(c, kernel, x)
    groups = c.attr("group", 1)
    attrs: dict[str, Any] = {"stride": strides, "padding": padding, "dilation": dilations}
    if out_dtype is not None:
        attrs["out_dtype"] = out_dtype
    if n == 2 and groups > 1 and groups == x.shape[1] and w.shape[1] == 1:
        multiplier = w.shape[0] // groups
        weight = w if multiplier == 1 else c.op("reshape", w, shape=(groups, multiplier, *w.shape[2:]))
        return c.op("depthwise_conv2d", x, weight, bias, **attrs)
    return c.op(f"conv{n}d", x, w, bias, groups=groups, **attrs)


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
        low = [t - t // 2 if auto == "SAME_LOWER" else t // 2 for t in totals]
        pads = (*low, *[t - b for t, b in zip(totals, low, strict=True)])
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


def shifted(c: Call, x: Value, zero: Value | None, axis: int) -> Value:
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


@converter("Einsum")
def einsum(c: Call) -> Value:
    equation = c.attr("equation").replace(" ", "")
    return c.op("einsum", *[v for v in c.inputs if v is not None], equation=equation)
