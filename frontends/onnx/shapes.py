"""Converters of operators that move, cut and join elements, and of those that read or write them at indices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...graph.graph import Value, dims
from ...te.ops.arguments import broadcast_extent, first_not_one, slice_range
from ...tir.expr import convert, min_
from ..common import padded
from .call import LARGEST_TABLE, OnnxCall, converter, dtype_of


@converter("Reshape")
def reshape(c: OnnxCall) -> Value:
    x = c.input(0)
    shape: list[Any] = list(c.dims(1, "shape"))
    if not c.attr("allowzero", 0):
        shape = [x.shape[n] if isinstance(d, int) and d == 0 else d for n, d in enumerate(shape)]
    return c.op("reshape", x, shape=tuple(shape))


@converter("Flatten")
def flatten(c: OnnxCall) -> Value:
    x = c.input(0)
    axis = c.attr("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return c.op("reshape", x, shape=(math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@converter("Squeeze")
def squeeze(c: OnnxCall) -> Value:
    x, axes = c.input(0), c.ints(1, "axes")
    if axes is None:
        axes = [d for d in range(x.ndim) if c.is_one(x, d)]
        x = c.op("squeeze", x, axis=tuple(axes)) if axes else x
        return c.op("squeeze", x, axis=None)  # what is left is not 1 at the call
    return c.op("squeeze", x, axis=tuple(axes))


@converter("Unsqueeze")
def unsqueeze(c: OnnxCall) -> Value:
    return c.op("expand_dims", c.input(0), axis=tuple(c.ints(1, "axes")))


@converter("Transpose")
def transpose(c: OnnxCall) -> Value:
    x = c.input(0)
    return c.op("transpose", x, axes=tuple(c.attr("perm", tuple(reversed(range(x.ndim))))))


@converter("Expand")
def expand(c: OnnxCall) -> Value:
    x, wanted = c.input(0), list(c.dims(1))
    rank = max(x.ndim, len(wanted))
    shape: list[Any] = []
    for own, other in zip([1] * (rank - x.ndim) + list(x.shape), [1] * (rank - len(wanted)) + wanted, strict=True):
        symbolic = isinstance(own, int) and own != 1 and not isinstance(other, int)
        shape.append(
            first_not_one([other, convert(own)]) if symbolic else broadcast_extent(convert(own), convert(other))
        )
    return c.op("broadcast_to", x, shape=dims(shape))


@converter("Concat")
def concat(c: OnnxCall) -> Value:
    given = [v for v in c.inputs if v is not None]
    return c.op("concatenate", *given, axis=c.attr("axis", 1)) if len(given) > 1 else c.op("identity", given[0])


@converter("Split")
def split(c: OnnxCall) -> tuple[Value, ...]:
    x, axis = c.input(0), c.attr("axis", 0)
    sizes: Any = c.dims(1, "split")
    extent = x.shape[axis]
    if sizes is None and isinstance(extent, int):
        c.limit((extent,), LARGEST_TABLE)
        each = max(-(-extent // (c.attr("num_outputs") or c.outputs)), 1)
        sizes = [each] * (extent // each) + ([extent % each] if extent % each else [])
    elif sizes is None:
        return _equal_parts(c, x, axis, c.attr("num_outputs") or c.outputs)
    if len(sizes) == 1:
        return (c.op("identity", x),)
    if all(isinstance(e, int) for e in (extent, *sizes)):
        return c.several("split", x, sections=tuple([int(e) for e in np.cumsum(sizes)[:-1]]), axis=axis)
    begins = [sum(sizes[:k], 0) for k in range(len(sizes))]
    last = c.part(x, axis, begins[-1], extent - begins[-1])
    shape = list(x.shape)
    shape[axis] = sizes[-1]
    last = c.op("reshape", last, shape=tuple(shape))  # the call checks that the sizes add up to the extent
    return (*[c.part(x, axis, b, e) for b, e in zip(begins[:-1], sizes[:-1], strict=True)], last)


def _equal_parts(c: OnnxCall, x: Value, axis: int, count: int) -> tuple[Value, ...]:
    """Returns parts of equal size of an axis whose extent the call says; the last ones are shorter or empty."""
    extent = convert(x.shape[axis])
    each = (extent + (count - 1)) // count
    begins = [min_(each * k, extent) for k in range(count)]
    ends = [*begins[1:], extent]
    return tuple([c.part(x, axis, b, e - b) for b, e in zip(begins, ends, strict=True)])


@converter("Slice")
def cut(c: OnnxCall) -> Value:
    x = c.input(0)
    starts, ends = c.dims(1, "starts"), c.dims(2, "ends")
    axes = c.ints(3, "axes", tuple(range(len(starts))))
    steps = c.ints(4, "", (1,) * len(starts))
    begin, end, stride = [0] * x.ndim, list(x.shape), [1] * x.ndim
    for a, *bounds, step in zip(axes, starts, ends, steps, strict=True):
        begin[a], end[a] = bounds
        stride[a] = step
    return c.op("strided_slice", x, begin=tuple(begin), end=tuple(end), strides=tuple(stride))


@converter("Tile")
def tile(c: OnnxCall) -> Value:
    x, reps = c.input(0), c.dims(1)
    if all(isinstance(r, int) for r in reps):
        return c.op("tile", x, reps=reps)
    if len(reps) != x.ndim:
        raise c.error(f"{len(reps)} numbers of copies for {x.type_text}")
    apart = c.op("reshape", x, shape=tuple([e for d in x.shape for e in (1, d)]))
    copies = c.op("broadcast_to", apart, shape=tuple([e for pair in zip(reps, x.shape, strict=True) for e in pair]))
    return c.op("reshape", copies, shape=tuple([r * e for r, e in zip(reps, x.shape, strict=True)]))


@converter("Pad")
def pad(c: OnnxCall) -> Value:
    x, mode = c.input(0), c.attr("mode", "constant")
    pads = c.ints(1, "pads")
    axes = c.ints(3, "", tuple(range(x.ndim)))
    fill = c.attr("value", 0.0) if "pads" in c.attributes else c.optional(2)
    before, after = [0] * x.ndim, [0] * x.ndim
    for n, a in enumerate(axes):
        before[a], after[a] = pads[n], pads[n + len(axes)]
    out = padded(c, x, before, after, 0 if fill is None else fill, mode=mode)
    return out if out is not x else c.op("identity", x)


@converter("ConstantOfShape")
def constant_of_shape(c: OnnxCall) -> Value:
    shape, value = tuple(c.dims(0)), np.ravel(c.attr("value", np.zeros(1, np.float32)))
    c.limit([d for d in shape if isinstance(d, int)])
    return c.op("broadcast_to", c.constant(value[0], value.dtype.name), shape=shape)


@converter("Range")
def arange(c: OnnxCall) -> Value:
    """Numbers from a start to a limit; the limits may be formulas of sizes, the step is a number."""
    if any(v is not None and v not in c.shapes and v not in c.builder.constants for v in c.inputs):
        return shaped_by_values(c)
    if any(v in c.builder.constants and np.any(c.builder.constants[v] % 1) for v in c.inputs if v is not None):
        raise c.error("numbers that are not whole, with limits that depend on sizes")
    (start,), (limit,), (step,) = c.dims(0), c.dims(1), c.ints(2)
    _, count = slice_range(0, limit - start, step, limit - start) if step > 0 else (0, None)
    if count is None:
        raise c.error(f"a step of {step} with limits that depend on sizes")
    dtype = c.input(0).dtype
    places = c.op("places", c.op("broadcast_to", c.constant(0, dtype), shape=(count,)), axis=0, dtype=dtype)
    return c.op("add", c.op("multiply", places, c.constant(step, dtype)), c.size(start, dtype))


@converter("MelWeightMatrix")
def shaped_by_values(c: OnnxCall) -> Value:
    """Results whose shape depends on values: they are evaluated when these are known, and refused otherwise."""
    for n in range(len(c.inputs)):
        c.known(n)
    raise c.error("the result's shape depends on values")


@converter("EyeLike")
def eye_like(c: OnnxCall) -> Value:
    x = c.input(0)
    if x.ndim != 2:
        raise c.error(f"{x.type_text} is no matrix")
    rows, columns = [c.places(e, "int64", d, 2) for d, e in enumerate(x.shape)]
    dtype = dtype_of(c.attr("dtype"), c.label) if c.attr("dtype") is not None else x.dtype
    return c.cast(c.op("equal", c.op("add", rows, c.like(c.attr("k", 0), rows)), columns), dtype)


@converter("DepthToSpace")
def depth_to_space(c: OnnxCall) -> Value:
    return c.op("depth_to_space", c.input(0), block=c.attr("blocksize"), mode=c.attr("mode", "DCR"))


@converter("SpaceToDepth")
def space_to_depth(c: OnnxCall) -> Value:
    x, b = c.input(0), c.attr("blocksize")
    n, ch, h, w = x.shape
    cut_up = c.op("reshape", x, shape=(n, ch, h // b, b, w // b, b))
    first = c.attr("mode", "DCR") == "DCR"
    moved = c.op("transpose", cut_up, axes=(0, 3, 5, 1, 2, 4) if first else (0, 1, 3, 5, 2, 4))
    return c.op("reshape", moved, shape=(n, ch * b * b, h // b, w // b))


@converter("Trilu")
def trilu(c: OnnxCall) -> Value:
    k = c.known(1)
    return c.op("triangle", c.input(0), k=0 if k is None else int(k), upper=bool(c.attr("upper", 1)))


@converter("CumSum", "CumProd")
def cumulative(c: OnnxCall) -> Value:
    axis = int(np.ravel(c.known(1))[0])
    return c.op(
        "cumsum" if c.op_type == "CumSum" else "cumprod", c.input(0), axis=axis, exclusive=bool(c.attr("exclusive", 0)),
        reverse=bool(c.attr("reverse", 0)),
    )  # fmt: skip


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
    axis = c.axis(c.attr("axis", -2), cache)
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
