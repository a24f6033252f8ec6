"""Converters of operators that read or write elements at indices, and of those that find them."""

from __future__ import annotations

from ...graph.graph import Value
from .call import OnnxCall, converter


@converter("Gather")
def gather(c: OnnxCall) -> Value:
    x, indices, axis = c.input(0), c.input(1), c.attr("axis", 0)
    data, extent = c.builder.constants.get(indices), x.shape[axis]
    if data is not None and isinstance(extent, int) and data.size and (data.min() < -extent or data.max() >= extent):
        raise c.error(f"an index lies outside of axis {axis} of {x.type_text}")
    if indices.ndim == 0 and (data is not None or indices in c.shapes):
        (place,) = c.dims(1)
        return c.op("squeeze", c.part(x, axis, c.place(place, extent), 1), axis=axis)
    return c.op("take", x, c.from_the_start(indices, extent), axis=axis)


@converter("GatherElements")
def gather_elements(c: OnnxCall) -> Value:
    return c.op("gather_elements", c.input(0), c.input(1), axis=c.attr("axis", 0))


@converter("GatherND")
def gather_nd(c: OnnxCall) -> Value:
    return c.op("gather_nd", c.input(0), c.input(1), batch_dims=c.attr("batch_dims", 0))


@converter("ScatterElements", "Scatter")
def scatter_elements(c: OnnxCall) -> Value:
    reduction = c.attr("reduction", "none")
    return c.op("scatter_elements", *[c.input(n) for n in range(3)], axis=c.attr("axis", 0), reduction=reduction)


@converter("ScatterND")
def scatter_nd(c: OnnxCall) -> Value:
    return c.op("scatter_nd", *[c.input(n) for n in range(3)], reduction=c.attr("reduction", "none"))


@converter("TensorScatter")
def tensor_scatter(c: OnnxCall) -> Value:
    """Returns a cache with updates: the places are counted from each batch's own beginning along the axis."""
    cache, new, begin = c.input(0), c.input(1), c.optional(2)
    axis = c.attr("axis", -2) % cache.ndim
    at = c.places(new.shape[axis], "int64", axis, new.ndim)
    if begin is not None:
        at = c.op("add", at, c.cast(c.op("reshape", begin, shape=(new.shape[0], *[1] * (new.ndim - 1))), "int64"))
    if c.attr("mode", "linear") == "circular":
        at = c.op("floor_mod", at, c.size(cache.shape[axis], at.dtype))
    return c.op("scatter_elements", cache, c.op("broadcast_to", at, shape=new.shape), new, axis=axis)


@converter("TopK")
def top_k(c: OnnxCall) -> tuple[Value, ...]:
    x = c.input(0)
    (k,) = c.dims(1, "k")
    return c.several("topk", x, k=k, axis=c.attr("axis", -1), largest=bool(c.attr("largest", 1)))


@converter("OneHot")
def one_hot(c: OnnxCall) -> Value:
    indices, axis = c.input(0), c.attr("axis", -1)
    (depth,), values = c.dims(1), c.known(2)
    rank = indices.ndim + 1
    axis %= rank
    whole = c.op("expand_dims", c.from_the_start(c.cast(indices, "int64"), depth), axis=axis)
    hot = c.op("equal", whole, c.places(depth, "int64", axis, rank))
    off, on = [c.constant(v, values.dtype.name) for v in values]
    return c.op("where", hot, on, off)


@converter("ReverseSequence")
def reverse_sequence(c: OnnxCall) -> Value:
    x, time, batch = c.input(0), c.attr("time_axis", 0), c.attr("batch_axis", 1)
    shape = [1] * x.ndim
    shape[batch] = x.shape[batch]
    length = c.op("reshape", c.cast(c.input(1), "int64"), shape=tuple(shape))
    place = c.places(x.shape[time], "int64", time, x.ndim)
    mirrored = c.op("subtract", c.op("subtract", length, c.like(1, length)), place)
    index = c.op("where", c.op("less", place, length), mirrored, place)
    return c.op("gather_elements", x, c.op("broadcast_to", index, shape=x.shape), axis=time)
