"""Converters of lookups and scatters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph.graph import Value
from ...tir.expr import DType, max_identity, min_identity
from .aten_call import AtenCall, aten


@aten("embedding")
def embedding(c: AtenCall, weight: Value, indices: Value, *rest: Any) -> Value:
    return c.op("take", weight, indices, axis=0, mode="fast")


@aten("index_select")
def index_select(c: AtenCall, x: Value, dim: int, index: Value) -> Value:
    if not x.ndim:
        return c.op("identity", x)
    flat = c.op("reshape", index, shape=(math.prod(index.shape),))
    return c.op("take", x, flat, axis=c.axis(dim, x), mode="fast")


@aten("gather")
def gather(c: AtenCall, x: Value, dim: int, index: Value, sparse_grad: bool = False) -> Value:
    if not x.ndim or not index.ndim:
        return c.op("reshape", x, shape=c.shape)
    return c.op("gather_elements", _front(c, x, index, c.axis(dim, x)), index, axis=c.axis(dim, x))


def _front(c: AtenCall, x: Value, index: Value, axis: int) -> Value:
    """Returns the part of ``x`` over which the index reaches in the other dimensions."""
    end = tuple(e if d == axis else i for d, (e, i) in enumerate(zip(x.shape, index.shape, strict=True)))
    return x if end == x.shape else c.op("strided_slice", x, begin=(0,) * x.ndim, end=end)


_REDUCTIONS = {"": "none", "add": "add", "sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}


@aten("scatter.src", "scatter.value", "scatter_add", "scatter_reduce.two")
def scatter(
    c: AtenCall, x: Value, dim: int, index: Value, source: Any, reduce: str = "", include_self: bool = True
) -> Value:
    reduce = reduce or ("add" if "scatter_add" in c.label else "")
    if x.dtype == "bool" and reduce:  # sums of truth values say whether there is one, products whether all are
        wide = [c.op("cast", v, dtype="uint8") for v in (x, c.value(source, "bool"))]
        row = {"add": "amax", "sum": "amax", "prod": "amin"}.get(reduce, reduce)
        return c.cast(scatter(c, wide[0], dim, index, wide[1], row, include_self), "bool")
    if not x.ndim:
        x, index = [c.op("reshape", v, shape=(math.prod(v.shape),)) for v in (x, index)]
        source = c.op("reshape", source, shape=(1,)) if isinstance(source, Value) else source
    if 0 in index.shape:
        return c.op("reshape", x, shape=c.shape)
    if isinstance(source, Value):
        end = index.shape
        source = source if source.shape == end else c.op("strided_slice", source, begin=(0,) * source.ndim, end=end)
    else:
        source = c.full(index.shape, source, x.dtype)
    places = _coordinates(c, index, c.axis(dim, x))
    start = x
    if not include_self:
        first = {"prod": 1, "amax": max_identity(x.dtype), "amin": min_identity(x.dtype)}.get(reduce, 0)
        start = c.op("scatter_nd", x, places, c.full(index.shape, first, x.dtype))
    out = c.op("scatter_nd", start, places, c.cast(source, x.dtype), reduction=_REDUCTIONS[reduce])
    if reduce == "mean":
        ones = c.full(index.shape, 1, x.dtype)
        begin = c.full(x.shape, 1, x.dtype)
        begin = begin if include_self else c.op("scatter_nd", begin, places, c.full(index.shape, 0, x.dtype))
        count = c.op("scatter_nd", begin, places, ones, reduction="add")
        out = c.op("divide" if DType(x.dtype).is_float else "floor_divide", out, count)
    return c.op("reshape", out, shape=c.shape)


def _coordinates(c: AtenCall, index: Value, axis: int) -> Value:
    """Returns the places of updates in all dimensions, along a new last one; those along ``axis`` are given."""
    if index.ndim == 1:
        return c.op("expand_dims", c.cast(index, "int64"), axis=1)
    parts = []
    for d, extent in enumerate(index.shape):
        numbers = c.constant(np.arange(extent).reshape([-1 if k == d else 1 for k in range(index.ndim)]))
        wide = c.cast(index, "int64") if d == axis else c.op("broadcast_to", numbers, shape=index.shape)
        parts.append(c.op("expand_dims", wide, axis=index.ndim))
    return c.op("concatenate", *parts, axis=index.ndim)


@aten("index.Tensor")
def index(c: AtenCall, x: Value, indices: Sequence[Value | None]) -> Value:
    at = [d for d, v in enumerate(indices) if v is not None]
    given = [v for v in indices if v is not None]
    if any(v.dtype in ("bool", "uint8") for v in given):
        raise c.error("a mask as index gives a size that depends on values, which is not supported")
    if len(given) == 1:
        return c.op("take", x, c.from_the_start(given[0], x.shape[at[0]]), axis=at[0], mode="fast")
    together = at == list(range(at[0], at[0] + len(at)))
    others = [d for d in range(x.ndim) if d not in at]
    shape = c.together(given)
    parts = [c.from_the_start(c.op("broadcast_to", v, shape=shape), x.shape[d]) for d, v in zip(at, given, strict=True)]
    flat: Value | None = None
    for d, part in zip(at, parts, strict=True):
        wide = part if part.dtype == "int64" else c.op("cast", part, dtype="int64")
        flat = wide if flat is None else c.op("add", c.op("multiply", flat, c.size(x.shape[d], "int64")), wide)
    moved = c.op("transpose", x, axes=(*at, *others))
    rows = c.op("reshape", moved, shape=(math.prod(x.shape[d] for d in at), *[x.shape[d] for d in others]))
    found = c.op("take", rows, flat, axis=0, mode="fast")
    if not together:
        return found
    before = [d for d in others if d < at[0]]
    rank, n = len(shape), len(before)
    order = (*range(rank, rank + n), *range(rank), *range(rank + n, found.ndim))
    return c.op("transpose", found, axes=order)


@aten("index_put")
def index_put(c: AtenCall, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False) -> Value:
    given = [v for v in indices if v is not None]
    if len(given) == 1 and given[0].dtype == "bool":
        first = next(d for d, v in enumerate(indices) if v is not None)
        mask = given[0]
        if values.ndim or first:
            if math.prod(values.shape) != 1:
                raise c.error("a mask as index takes one value, which is put everywhere")
        wide = c.op("reshape", mask, shape=(*[1] * first, *mask.shape, *[1] * (x.ndim - first - mask.ndim)))
        one = c.op("reshape", c.cast(values, x.dtype), shape=(1,) * x.ndim)
        return c.op("where", wide, c.op("add", x, one) if accumulate else one, x)
    if any(v.dtype in ("bool", "uint8") for v in given):
        raise c.error("masks beside other indices are not supported")
    at = [d for d, v in enumerate(indices) if v is not None]
    others = [d for d in range(x.ndim) if d not in at]
    outer = c.together(given)
    parts = [
        c.op("broadcast_to", c.cast(c.from_the_start(v, x.shape[d]), "int64"), shape=outer)
        for d, v in zip(at, given, strict=True)
    ]
    places = c.op("concatenate", *[c.op("expand_dims", p, axis=len(outer)) for p in parts], axis=len(outer))
    order = (*at, *others)
    moved = x if order == tuple(range(x.ndim)) else c.op("transpose", x, axes=order)
    rest = tuple(x.shape[d] for d in others)
    updates = _as_updates(c, c.cast(values, x.dtype), at, outer, rest)
    kind = x.dtype
    if kind == "bool":
        moved, updates = c.op("cast", moved, dtype="uint8"), c.op("cast", updates, dtype="uint8")
    out = c.op("scatter_nd", moved, places, updates, reduction="add" if accumulate else "none")
    out = c.cast(out, kind)
    back = tuple(int(d) for d in np.argsort(order))
    return out if back == tuple(range(x.ndim)) else c.op("transpose", out, axes=back)


def _as_updates(c: AtenCall, values: Value, at: list[int], outer: tuple[int, ...], rest: tuple[int, ...]) -> Value:
    """Returns the values as (indices…, other dimensions…); indices that stand together come at their own place."""
    together = at == list(range(at[0], at[0] + len(at)))
    if not together or not at[0]:
        return c.op("broadcast_to", values, shape=(*outer, *rest))
    n = at[0]
    wide = c.op("broadcast_to", values, shape=(*rest[:n], *outer, *rest[n:]))
    order = (*range(n, n + len(outer)), *range(n), *range(n + len(outer), wide.ndim))
    return c.op("transpose", wide, axes=order)


@aten("masked_scatter")
def masked_scatter(c: AtenCall, x: Value, mask: Value, source: Value) -> Value:
    wide = c.op("broadcast_to", mask, shape=c.shape)
    count = math.prod(c.shape)
    if not count or not math.prod(source.shape):
        return c.op("broadcast_to", x, shape=c.shape)
    flat = c.op("cast", c.op("reshape", wide, shape=(count,)), dtype="int32")
    number = c.op("subtract", c.op("cumsum", flat, axis=0), c.constant(1, "int32"))
    found = c.op("take", c.op("reshape", source, shape=(math.prod(source.shape),)), number, axis=0, mode="clip")
    return c.op("where", wide, c.op("reshape", found, shape=c.shape), x)
