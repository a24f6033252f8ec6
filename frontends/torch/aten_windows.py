"""Converters of pooling and of its gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph.graph import Value, dims
from ...tir.expr import DType
from .. import common
from .aten_call import AtenCall, aten
from .aten_products import each


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
