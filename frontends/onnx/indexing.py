"""Converters of operators that read or write elements at indices, and of those that find them."""

from __future__ import annotations

import numpy as np

from ...graph.graph import Value
from .call import LARGEST_TABLE, Call
from .table import converter


@converter("Gather")
def gather(c: Call) -> Value:
    x, indices, axis = c.input(0), c.input(1), c.attr("axis", 0)
    data, extent = c.builder.constants.get(indices), x.shape[axis]
    if data is not None and isinstance(extent, int) and data.size and (data.min() < -extent or data.max() >= extent):
        raise c.error(f"an index lies outside of axis {axis} of {x.type_text}")
    if indices.ndim == 0 and (data is not None or indices in c.shapes):
        (place,) = c.dims(1)
        return c.op("squeeze", c.part(x, axis, c.place(place, extent), 1), axis=axis)
    return c.op("take", x, c.from_the_start(indices, extent), axis=axis)


@converter("GatherElements")
def gather_elements(c: Call) -> Value:
    return c.op("gather_elements", c.input(0), c.input(1), axis=c.attr("axis", 0))


@converter("GatherND")
def gather_nd(c: Call) -> Value:
    return c.op("gather_nd", c.input(0), c.input(1), batch_dims=c.attr("batch_dims", 0))


@converter("ScatterElements", "Scatter")
def scatter_elements(c: Call) -> Value:
    reduction = c.attr("reduction", "none")
    return c.op("scatter_elements", *[c.input(n) for n in range(3)], axis=c.attr("axis", 0), reduction=reduction)


@converter("ScatterND")
def scatter_nd(c: Call) -> Value:
    return c.op("scatter_nd", *[c.input(n) for n in range(3)], reduction=c.attr("reduction", "none"))


@converter("TensorScatter")
def tensor_scatter(c: Call) -> Value:
    """Updates of a cache: the places are counted from each batch's own beginning along the axis."""
    cache, new, begin = c.input(0), c.input(1), c.optional(2)
    axis = c.attr("axis", -2) % cache.ndim
    steps = new.shape[axis]
    c.limit((steps,), LARGEST_TABLE)
    if not new.is_static or not isinstance(cache.shape[axis], int):
        raise c.error(f"{new.type_text} into {cache.type_text}: the sizes have to be known")
    column = [1] * new.ndim
    column[axis] = steps
    at = c.constant(np.arange(steps).reshape(column), "int64")
    if begin is not None:
        at = c.op("add", at, c.cast(c.op("reshape", begin, shape=(new.shape[0], *[1] * (new.ndim - 1))), "int64"))
    if c.attr("mode", "linear") == "circular":
        at = c.op("floor_mod", at, c.like(cache.shape[axis], at))
    return c.op("scatter_elements", cache, c.op("broadcast_to", at, shape=new.shape), new, axis=axis)


@converter("TopK")
def top_k(c: Call) -> tuple[Value, ...]:
    x = c.input(0)
    (k,) = c.dims(1, "k")
    return c.several("topk", x, k=k, axis=c.attr("axis", -1), largest=bool(c.attr("largest", 1)))


@converter("OneHot")
def one_hot(c: Call) -> Value:
    indices, axis = c.input(0), c.attr("axis", -1)
    depth, values = int(np.ravel(c.known(1))[0]), c.known(2)
    whole = c.cast(indices, "int64")
    hot = c.op("one_hot", c.from_the_start(whole, depth), depth=depth, dtype="bool")
    rank = indices.ndim + 1
    axis %= rank
    order = [*range(axis), rank - 1, *range(axis, rank - 1)]
    hot = hot if axis == rank - 1 else c.op("transpose", hot, axes=tuple(order))
    off, on = [c.constant(v, values.dtype.name) for v in values]
    shape = c.broadcast(hot, off)
    return c.op("where", hot, c.op("broadcast_to", on, shape=shape), c.op("broadcast_to", off, shape=shape))


@converter("ReverseSequence")
def reverse_sequence(c: Call) -> Value:
    x, time, batch = c.input(0), c.attr("time_axis", 0), c.attr("batch_axis", 1)
    lengths, extent = c.known(1), x.shape[time]
    c.limit(x.shape, LARGEST_TABLE)
    index = np.arange(extent)[:, None] * np.ones(len(lengths), np.int64)
    for n, length in enumerate(lengths):
        index[:length, n] = index[:length, n][::-1]
    shape = [1] * x.ndim
    shape[time], shape[batch] = index.shape
    index = index if time < batch else index.T
    whole = np.broadcast_to(index.reshape(shape), x.shape)
    return c.op("gather_elements", x, c.constant(np.asarray(whole, order="C")), axis=time)
