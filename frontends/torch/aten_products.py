"""Converters of matrix products, convolutions and resizing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph.graph import Value
from .. import common
from .aten_call import AtenCall, aten


@aten("mm", "bmm", "matmul")
def product(c: AtenCall, a: Value, b: Value) -> Value:
    return common.product(c, a, b)


@aten("addmm", "baddbmm")
def product_and_sum(c: AtenCall, bias: Value, a: Value, b: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    return common.scaled_sum(c, common.product(c, a, b), bias, alpha, beta)


@aten("linear")
def linear(c: AtenCall, x: Value, weight: Value, bias: Value | None = None) -> Value:
    return c.op("dense", x, weight, bias)


@aten("convolution")
def convolution(c: AtenCall, x: Value, weight: Value, bias: Value | None, *sizes: Any) -> Value:
    stride, padding, dilation, transposed, output_padding, groups = sizes
    n = weight.ndim - 2
    alone = x.ndim == n + 1
    if alone:
        x = c.op("expand_dims", x, axis=0)
    options: dict[str, Any] = {
        "stride": each(stride, n),
        "padding": each(padding, n) * 2,
        "dilation": each(dilation, n),
    }
    if transposed:
        more = each(output_padding, n)
        out = common.transposed_convolution(c, x, weight, bias, output_padding=more, groups=groups, **options)
    else:
        out = common.convolution(c, x, weight, bias, groups=groups, **options)
    return c.op("squeeze", out, axis=0) if alone else out


def each(numbers: Sequence[int], n: int) -> tuple[int, ...]:
    """Returns one number per dimension."""
    return tuple(numbers) if len(numbers) == n else tuple(numbers) * n


@aten("grid_sampler_2d")
def grid_sampler(c: AtenCall, x: Value, grid: Value, mode: int, padding: int, align_corners: bool) -> Value:
    return c.op(
        "grid_sample", x, grid, method=("linear", "nearest", "cubic")[mode],
        padding_mode=("zeros", "border", "reflection")[padding], align_corners=bool(align_corners),
    )  # fmt: skip


@aten("col2im")
def col2im(c: AtenCall, x: Value, image: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Value:
    options = {"kernel": tuple(kernel), "stride": each(stride, 2), "padding": each(padding, 2)}
    wide = x if x.ndim == 3 else c.op("expand_dims", x, axis=0)
    out = c.op("col2im", wide, image=tuple(image), dilation=each(dilation, 2), **options)
    return out if x.ndim == 3 else c.op("squeeze", out, axis=0)


@aten("_cdist_forward")
def distances(c: AtenCall, a: Value, b: Value, p: float, mode: int | None) -> Value:
    return _norm(
        c, c.op("subtract", c.op("expand_dims", a, axis=a.ndim - 1), c.op("expand_dims", b, axis=b.ndim - 2)), p
    )


@aten("_pdist_forward")
def own_distances(c: AtenCall, x: Value, p: float = 2.0) -> Value:
    rows, columns = np.triu_indices(x.shape[0], 1)
    first, second = [c.op("take", x, c.constant(n), axis=0, mode="fast") for n in (rows, columns)]
    return _norm(c, c.op("subtract", first, second), p)


def _norm(c: AtenCall, x: Value, p: float) -> Value:
    """Returns the p-norm along the last axis."""
    axis = (x.ndim - 1,)
    size = c.op("abs", x)
    if p == 0:
        return c.op("sum", c.cast(c.op("greater", size, c.constant(0, x.dtype)), x.dtype), axis=axis)
    if p in (1, math.inf):
        return c.op("sum" if p == 1 else "max", size, axis=axis)
    if p == 2:
        return c.op("sqrt", c.op("sum", c.op("square", x), axis=axis))
    total = c.op("sum", c.op("power", size, c.constant(p, x.dtype)), axis=axis)
    return c.op("power", total, c.constant(1 / p, x.dtype))


@aten("upsample_nearest2d.vec", "upsample_nearest2d", "upsample_bilinear2d.vec", "upsample_bilinear2d")
def upsample(c: AtenCall, x: Value, size: Any, *rest: Any) -> Value:
    out = c.shape[2:]
    if "nearest" in c.label:
        return c.op("resize2d", x, size=out, method="nearest", coordinate_mode="asymmetric", rounding="floor")
    corners = bool(rest[0]) if rest else False
    if not corners and any(o % i and i % o for o, i in zip(out, x.shape[2:], strict=True)) and rest[-1] is not None:
        raise c.error("resizing by a factor that is not the ratio of the sizes is not supported")
    return c.op("resize2d", x, size=out, method="linear", coordinate_mode="align_corners" if corners else "half_pixel")
