"""Converters of lookups and scatters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph.graph import Value
from .aten_call import AtenCall
from .aten_table import aten


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


@aten("scatter.src", "scatter.value", "scatter_add", "scatter_reduce.two")
def scatter(
    c: AtenCall, x: Value, dim: int, index: Value, source: Any, reduce: str = "", include_self: bool = True
) -> Value:
    row = (
        "add"
        if "scatter_add" in c.label
        else {"": "none", "sum": "add", "prod": "mul", "amax": "max", "amin": "min"}.get(reduce)
    )
    if row is None or not include_self or not x.ndim:
        raise c.error(f"reduce={reduce!r}, include_self={include_self} is not supported")
    axis = c.axis(dim, x)
    if isinstance(source, Value):
        end = index.shape
        source = source if source.shape == end else c.op("strided_slice", source, begin=(0,) * source.ndim, end=end)
    else:
        source = c.full(index.shape, source, x.dtype)
    others = [d for d in range(x.ndim) if d != axis]
    if any(index.shape[d] != x.shape[d] for d in others):
        raise c.error(f"an index of the shape {index.shape} into {x.type_text} is not supported")
    return c.op("scatter_elements", x, index, c.cast(source, x.dtype), axis=axis, reduction=row)


@aten("index.Tensor")
def index(c: AtenCall, x: Value, indices: Sequence[Value | None]) -> Value:
    at = [d for d, v in enumerate(indices) if v is not None]
    given = [v for v in indices if v is not None]
    if any(v.dtype in ("bool", "uint8") for v in given):
        raise c.error("a mask as index gives a size that depends on values, which is not supported")
    if len(given) == 1:
        return c.op("take", x, _from_front(c, given[0], x.shape[at[0]]), axis=at[0], mode="fast")
    together = at == list(range(at[0], at[0] + len(at)))
    others = [d for d in range(x.ndim) if d not in at]
    shape = np.broadcast_shapes(*[v.shape for v in given])
    parts = [_from_front(c, c.op("broadcast_to", v, shape=shape), x.shape[d]) for d, v in zip(at, given, strict=True)]
    flat: Value | None = None
    for d, part in zip(at, parts, strict=True):
        wide = part if part.dtype == "int64" else c.op("cast", part, dtype="int64")
        flat = wide if flat is None else c.op("add", c.op("multiply", flat, c.constant(x.shape[d], "int64")), wide)
    moved = c.op("transpose", x, axes=(*at, *others))
    rows = c.op("reshape", moved, shape=(math.prod(x.shape[d] for d in at), *[x.shape[d] for d in others]))
    found = c.op("take", rows, flat, axis=0, mode="fast")
    if not together:
        return found
    before = [d for d in others if d < at[0]]
    rank, n = len(shape), len(before)
    order = (*range(rank, rank + n), *range(rank), *range(rank + n, found.ndim))
    return c.op("transpose", found, axes=order)


def _from_front(c: AtenCall, index: Value, extent: int) -> Value:
    """Returns the index with negative numbers counted from the end."""
    data = c.builder.constants.get(index)
    if data is not None:
        return c.constant(np.where(data < 0, data + extent, data))
    negative = c.op("less", index, c.constant(0, index.dtype))
    wrapped = c.op("add", index, c.constant(extent, index.dtype))
    return c.op("where", negative, wrapped, index)


@aten("index_put")
def index_put(c: AtenCall, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False) -> Value:
    given = [v for v in indices if v is not None]
    if len(given) == 1 and given[0].dtype == "bool":
        at = next(d for d, v in enumerate(indices) if v is not None)
        mask = given[0]
        if values.ndim or at:
            if math.prod(values.shape) != 1:
                raise c.error("a mask as index takes one value, which is put everywhere")
        wide = c.op("reshape", mask, shape=(*[1] * at, *mask.shape, *[1] * (x.ndim - at - mask.ndim)))
        one = c.op("reshape", c.cast(values, x.dtype), shape=(1,) * x.ndim)
        new = c.op("add", x, one) if accumulate else c.op("broadcast_to", one, shape=x.shape)
        return c.op("where", c.op("broadcast_to", wide, shape=x.shape), new, x)
    if len(given) != 1 or indices[0] is None or given[0].ndim != 1:
        raise c.error("index_put is supported for one index of one dimension along the first axis")
    place = _from_front(c, given[0], x.shape[0])
    shape = (place.shape[0], *x.shape[1:])
    updates = c.op("broadcast_to", c.cast(values, x.dtype), shape=shape)
    wide_place = c.op("broadcast_to", c.op("reshape", place, shape=(-1, *[1] * (x.ndim - 1))), shape=shape)
    return c.op("scatter_elements", x, wide_place, updates, axis=0, reduction="add" if accumulate else "none")
