"""Converters of matrix products, convolutions, resizing, pooling, and the gradients of pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph.graph import Value, dims
from ...tir.expr import DType
from .. import common
from .aten_call import AtenCall, aten, op


@aten("mm", "bmm", "matmul")
def product(c: AtenCall, a: Value, b: Value) -> Value:
    return common.product(c, a, b)


@aten("addmm", "baddbmm")
def product_and_sum(c: AtenCall, bias: Value, a: Value, b: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    return common.scaled_sum(c, common.product(c, a, b), bias, alpha, beta)


@op("aten._grouped_mm.default", "transformers.grouped_mm_fallback.default")
def product_of_groups(
    c: AtenCall, a: Value, b: Value, offs: Value | None = None, bias: Value | None = None, out_dtype: Any = None
) -> Value:
    if bias is not None or (a.ndim, b.ndim, offs is not None) not in ((2, 3, True), (3, 3, False)):
        form = f"{a.ndim} and {b.ndim} dimensions, {'a' if offs is not None else 'no'} list of ends"
        raise c.error(f"groups are rows of the first operand, or batches, without a bias; here: {form}")
    whole = common.product(c, a, b) if offs is None else c.op("grouped_matmul", a, b, offs)
    return c.cast(whole, c.dtype)


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


def _window(kernel: Any, stride: Any, padding: Any, n: int) -> dict[str, Any]:
    size = each(kernel, n)
    return {"kernel": size, "stride": each(stride, n) if stride else size, "padding": each(padding, n)}


def _batched(c: AtenCall, x: Value, n: int, pool: Any) -> Value:
    if x.ndim == n + 2:
        out: Value = pool(x)
        return out
    return c.op("squeeze", pool(c.op("expand_dims", x, axis=0)), axis=0)


@aten("max_pool2d_with_indices", "max_pool3d_with_indices", "max_pool2d")
def max_pool(c: AtenCall, x: Value, kernel: Any, *rest: Any) -> tuple[Value, ...]:
    given: list[Any] = [*rest, *[(), (0,), (1,), False][len(rest) :]]
    stride, padding, dilation, ceil_mode = given
    n = 3 if "pool3d" in c.label else 2
    alone = x.ndim == n + 1
    size = each(kernel, n)
    out = common.max_pool(
        c, c.op("expand_dims", x, axis=0) if alone else x, kernel=size, stride=each(stride, n) if stride else size,
        padding=each(padding, n) * 2, dilation=each(dilation if isinstance(dilation, (list, tuple)) else [dilation], n),
        ceil_mode=bool(ceil_mode), positions="with_indices" in c.label and c.needs(1),
    )  # fmt: skip
    out = tuple([c.op("squeeze", v, axis=0) for v in out]) if alone else out
    if len(out) == 1:
        return out
    plane = c.size(dims([math.prod(x.shape[-n:])])[0], "int64")  # PyTorch counts in each plane
    return out[0], c.op("floor_mod", out[1], plane)


@aten("max_pool2d_with_indices_backward")
def max_pool_gradient(c: AtenCall, gradient: Value, x: Value, *rest: Any) -> Value:
    """Returns the gradients of the inputs: each result's goes to the place of its maximum."""
    places = rest[-1]
    planes, count, plane = math.prod(x.shape[:-2]), math.prod(places.shape[-2:]), math.prod(x.shape[-2:])
    at, new = [c.op("reshape", v, shape=(planes, count)) for v in (places, gradient)]
    out = c.op("scatter_elements", c.full((planes, plane), 0, x.dtype), at, new, axis=1, reduction="add")
    return c.op("reshape", out, shape=x.shape)


# averages: along each dimension a product with a matrix that says which elements lie in which window


def _members(extent: int, count: int, kernel: int, stride: int, padding: int) -> Any:
    """Returns (count, extent): whether an element lies in a window."""
    first = np.arange(count)[:, None] * stride - padding
    place = np.arange(extent)[None]
    return ((place >= first) & (place < first + kernel)).astype(np.float64)


def _room(extent: int, count: int, kernel: int, stride: int, padding: int) -> Any:
    """Returns how many elements of the padded extent lie in each window."""
    first = np.arange(count) * stride - padding
    return np.minimum(first + kernel, extent + padding) - first


def _divisors(x: Value, counts: Sequence[int], window: dict[str, Any], padded: bool, divisor: int | None) -> Any:
    """Returns what the sum of each window is divided by."""
    out: Any = np.ones(())
    sizes = zip(x.shape[-len(counts) :], counts, window["kernel"], window["stride"], window["padding"], strict=True)
    for extent, count, k, s, p in sizes:
        along = _room(extent, count, k, s, p) if padded else _members(extent, count, k, s, p).sum(1)
        out = out[..., None] * along
    return np.full(out.shape, divisor) if divisor is not None else out


def _along(c: AtenCall, x: Value, matrices: Sequence[Any]) -> Value:
    """Returns ``x`` multiplied by a matrix along each of its last dimensions."""
    n = len(matrices)
    for d, matrix in enumerate(matrices):
        axis = x.ndim - n + d
        order = [*[k for k in range(x.ndim) if k != axis], axis]
        wide = c.op("transpose", x, axes=tuple(order))
        flat = c.op("reshape", wide, shape=(math.prod(wide.shape[:-1]), wide.shape[-1]))
        made = c.op("matmul", flat, c.constant(np.asarray(matrix.T, order="C"), x.dtype))
        back = c.op("reshape", made, shape=(*wide.shape[:-1], matrix.shape[0]))
        x = c.op("transpose", back, axes=tuple(int(k) for k in np.argsort(order)))
    return x


def _matrices(x: Value, counts: Sequence[int], window: dict[str, Any]) -> list[Any]:
    sizes = zip(x.shape[-len(counts) :], counts, window["kernel"], window["stride"], window["padding"], strict=True)
    return [_members(*each_size) for each_size in sizes]


@aten("avg_pool2d", "avg_pool3d", "avg_pool1d")
def avg_pool(c: AtenCall, x: Value, kernel: Any, *rest: Any) -> Value:
    given: list[Any] = [*rest, *[(), (0,), False, True, None][len(rest) :]]
    stride, padding, ceil_mode, count_include_pad, divisor = given
    n = int(c.label.split("avg_pool")[1][0])
    window = _window(kernel, stride, padding, n)
    if not DType(x.dtype).is_float:  # sums below 2**53, divided towards zero
        sums = _along(c, c.cast(x, "float64"), _matrices(x, c.shape[-n:], window))
        parts = _divisors(x, c.shape[-n:], window, bool(count_include_pad), divisor)
        return c.cast(c.op("divide", sums, c.constant(parts, "float64")), c.dtype)
    if divisor is not None:
        sums = _along(c, x, _matrices(x, c.shape[-n:], window))
        return c.op("divide", sums, c.constant(divisor, x.dtype))
    attrs = {"ceil_mode": bool(ceil_mode), "count_include_pad": bool(count_include_pad)}
    return _batched(c, x, n, lambda v: c.op(f"avg_pool{n}d", v, **attrs, **window))


@aten("avg_pool2d_backward")
def avg_pool_gradient(c: AtenCall, gradient: Value, x: Value, kernel: Any, *rest: Any) -> Value:
    stride, padding, _, padded, divisor = rest
    window = _window(kernel, stride, padding, 2)
    counts = gradient.shape[-2:]
    parts = c.op("divide", gradient, c.constant(_divisors(x, counts, window, padded, divisor), x.dtype))
    return _along(c, parts, [m.T for m in _matrices(x, counts, window)])


@aten("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_avg_pool1d")
def adaptive_avg_pool(c: AtenCall, x: Value, size: Sequence[int]) -> Value:
    n = len(size)
    if all(s == 1 for s in size) and x.ndim == n + 2:
        return c.op("global_avg_pool", x)
    return _batched(c, x, n, lambda v: c.op(f"adaptive_avg_pool{n}d", v, output_size=tuple(size)))


@aten("_adaptive_avg_pool2d_backward")
def adaptive_avg_pool_gradient(c: AtenCall, gradient: Value, x: Value) -> Value:
    return _along(c, gradient, [_shares(e, n).T for e, n in zip(x.shape[-2:], gradient.shape[-2:], strict=True)])


def _shares(extent: int, count: int) -> Any:
    """Returns (count, extent): the share of an element in the mean of a window."""
    out = np.zeros((count, extent))
    for n in range(count):
        first, end = n * extent // count, -(-(n + 1) * extent // count)
        out[n, first:end] = 1 / (end - first)
    return out
