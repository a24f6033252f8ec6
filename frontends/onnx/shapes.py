"""Converters of operators that move, cut and join elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...graph.graph import Value
from .call import Call
from .table import converter
from .types import dtype_of


@converter("Reshape")
def reshape(c: Call) -> Value:
    x = c.input(0)
    shape: list[Any] = list(c.attr("shape")) if c.attr("shape") is not None else c.dims(1)
    if not c.attr("allowzero", 0):
        shape = [x.shape[n] if isinstance(d, int) and d == 0 else d for n, d in enumerate(shape)]
    return c.op("reshape", x, shape=tuple(shape))


@converter("Flatten")
def flatten(c: Call) -> Value:
    x = c.input(0)
    axis = c.attr("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    if x.is_static:
        return c.op("reshape", x, shape=(math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
    lead: Any = 1
    for d in x.shape[:axis]:
        lead = lead * d
    return c.op("reshape", x, shape=(lead, -1))


@converter("Squeeze")
def squeeze(c: Call) -> Value:
    axes = c.ints(1, "axes")
    return c.op("squeeze", c.input(0), axis=None if axes is None else tuple(axes))


@converter("Unsqueeze")
def unsqueeze(c: Call) -> Value:
    return c.op("expand_dims", c.input(0), axis=tuple(c.ints(1, "axes")))


@converter("Transpose")
def transpose(c: Call) -> Value:
    x = c.input(0)
    return c.op("transpose", x, axes=tuple(c.attr("perm", tuple(reversed(range(x.ndim))))))


@converter("Expand")
def expand(c: Call) -> Value:
    x, wanted = c.input(0), c.dims(1)
    rank = max(x.ndim, len(wanted))
    shape: list[Any] = []
    for own, other in zip([1] * (rank - x.ndim) + list(x.shape), [1] * (rank - len(wanted)) + wanted, strict=True):
        shape.append(own if isinstance(other, int) and other == 1 else other)
    return c.op("broadcast_to", x, shape=tuple(shape))


@converter("Concat")
def concat(c: Call) -> Value:
    given = [v for v in c.inputs if v is not None]
    return c.op("concatenate", *given, axis=c.attr("axis", 1)) if len(given) > 1 else c.op("identity", given[0])


@converter("Split")
def split(c: Call) -> tuple[Value, ...]:
    x, axis = c.input(0), c.attr("axis", 0)
    sizes = c.ints(1, "split")
    extent = x.shape[axis]
    if not isinstance(extent, int):
        raise c.error("the extent that is split has to be known")
    if sizes is None:
        each = -(-extent // (c.attr("num_outputs") or c.outputs))
        sizes = [each] * (extent // each) + ([extent % each] if extent % each else [])
    if len(sizes) == 1:
        return (c.op("identity", x),)
    return c.several("split", x, sections=tuple([int(e) for e in np.cumsum(sizes)[:-1]]), axis=axis)


@converter("Slice")
def cut(c: Call) -> Value:
    x = c.input(0)
    starts, ends = c.ints(1, "starts"), c.ints(2, "ends")
    axes = c.ints(3, "axes", tuple(range(len(starts))))
    steps = c.ints(4, "", (1,) * len(starts))
    begin, end, stride = [0] * x.ndim, list(x.shape), [1] * x.ndim
    for a, lo, hi, s in zip(axes, starts, ends, steps, strict=True):
        extent = x.shape[a]
        if not isinstance(extent, int):
            raise c.error(f"axis {a} of {x.type_text} has no known size, so it cannot be cut")
        lo, hi, s = slice(_clamped(lo), _clamped(hi), s).indices(extent)
        begin[a], end[a], stride[a] = lo, hi if hi >= 0 else None, s
    if x.is_static:
        limits = [-e - 1 if h is None else h for h, e in zip(end, x.shape, strict=True)]
        return c.op("strided_slice", x, begin=tuple(begin), end=tuple(limits), strides=tuple(stride))
    raise c.error(f"{x.type_text} has symbolic sizes, so it cannot be cut")


def _clamped(n: int) -> int:
    return max(min(int(n), 1 << 60), -(1 << 60))


@converter("Gather")
def gather(c: Call) -> Value:
    x, indices, axis = c.input(0), c.input(1), c.attr("axis", 0)
    data = c.builder.constants.get(indices)
    extent = x.shape[axis]
    if data is not None and isinstance(extent, int):
        if data.size and (data.min() < -extent or data.max() >= extent):
            raise c.error(f"an index lies outside of axis {axis} of {x.type_text}")
        positive = np.where(data < 0, data + extent, data)
        if data.ndim == 0 and x.is_static:
            begin, end = [0] * x.ndim, list(x.shape)
            begin[axis], end[axis] = int(positive), int(positive) + 1
            one = c.op("strided_slice", x, begin=tuple(begin), end=tuple(end))
            return c.op("squeeze", one, axis=axis)
        return c.op("take", x, c.constant(positive), axis=axis)
    return c.op("take", x, from_the_start(c, indices, extent), axis=axis)


def from_the_start(c: Call, indices: Value, extent: Any) -> Value:
    """Returns indices counted from 0; negative ones count from the end."""
    moved = c.op("add", indices, c.like(extent, indices)) if isinstance(extent, int) else indices
    return (
        c.op("where", c.op("less", indices, c.like(0, indices)), moved, indices) if isinstance(extent, int) else indices
    )


@converter("GatherElements")
def gather_elements(c: Call) -> Value:
    return c.op("gather_elements", c.input(0), c.input(1), axis=c.attr("axis", 0))


@converter("GatherND")
def gather_nd(c: Call) -> Value:
    return c.op("gather_nd", c.input(0), c.input(1), batch_dims=c.attr("batch_dims", 0))


@converter("ScatterElements", "Scatter")
def scatter_elements(c: Call) -> Value:
    return c.op(
        "scatter_elements",
        c.input(0),
        c.input(1),
        c.input(2),
        axis=c.attr("axis", 0),
        reduction=c.attr("reduction", "none"),
    )


@converter("Tile")
def tile(c: Call) -> Value:
    return c.op("tile", c.input(0), reps=c.ints(1))


@converter("Pad")
def pad(c: Call) -> Value:
    x, mode = c.input(0), c.attr("mode", "constant")
    pads = c.ints(1, "pads")
    axes = c.ints(3, "", tuple(range(x.ndim)))
    value = c.attr("value", 0.0) if "pads" in c.attributes else c.known(2)
    number = 0 if value is None else np.asarray(value).reshape(-1)[0].item()
    before, after = [0] * x.ndim, [0] * x.ndim
    for n, a in enumerate(axes):
        before[a], after[a] = pads[n], pads[n + len(axes)]
    if min((*before, *after), default=0) < 0:
        end = [e + min(a, 0) for e, a in zip(x.shape, after, strict=True)]
        x = c.op("strided_slice", x, begin=tuple([max(-b, 0) for b in before]), end=tuple(end))
        before, after = [max(b, 0) for b in before], [max(a, 0) for a in after]
    if mode == "wrap":
        return _wrapped(c, x, before, after)
    return c.op("pad", x, pad_before=tuple(before), pad_after=tuple(after), value=number, mode=mode)


def _wrapped(c: Call, x: Value, before: list[int], after: list[int]) -> Value:
    for d in range(x.ndim):
        if before[d] or after[d]:
            index = np.arange(-before[d], int(x.shape[d]) + after[d]) % int(x.shape[d])
            x = c.op("take", x, c.constant(index), axis=d)
    return x


@converter("ConstantOfShape", "NonZero", "Range", "Unique", "Compress")
def shaped_by_values(c: Call) -> Value:
    """Results whose shape depends on values: they are evaluated when these are known, and refused otherwise."""
    for n in range(len(c.inputs)):
        c.known(n)
    raise c.error("the result's shape depends on values")


@converter("EyeLike")
def eye_like(c: Call) -> Value:
    x = c.input(0)
    rows, columns = x.shape
    dtype = dtype_of(c.attr("dtype"), c.label) if c.attr("dtype") is not None else x.dtype
    return c.constant(np.eye(rows, columns, c.attr("k", 0)), dtype)


@converter("DepthToSpace")
def depth_to_space(c: Call) -> Value:
    x, b = c.input(0), c.attr("blocksize")
    n, ch, h, w = x.shape
    first = c.attr("mode", "DCR") == "DCR"
    shape = (n, b, b, ch // (b * b), h, w) if first else (n, ch // (b * b), b, b, h, w)
    order = (0, 3, 4, 1, 5, 2) if first else (0, 1, 4, 2, 5, 3)
    moved = c.op("transpose", c.op("reshape", x, shape=shape), axes=order)
    return c.op("reshape", moved, shape=(n, ch // (b * b), h * b, w * b))


@converter("SpaceToDepth")
def space_to_depth(c: Call) -> Value:
    x, b = c.input(0), c.attr("blocksize")
    n, ch, h, w = x.shape
    cut_up = c.op("reshape", x, shape=(n, ch, h // b, b, w // b, b))
    moved = c.op("transpose", cut_up, axes=(0, 3, 5, 1, 2, 4))
    return c.op("reshape", moved, shape=(n, ch * b * b, h // b, w // b))


@converter("Trilu")
def trilu(c: Call) -> Value:
    k = c.known(1)
    return c.op("triangle", c.input(0), k=0 if k is None else int(k), upper=bool(c.attr("upper", 1)))


@converter("OneHot")
def one_hot(c: Call) -> Value:
    indices, axis = c.input(0), c.attr("axis", -1)
    depth, values = int(np.ravel(c.known(1))[0]), c.known(2)
    whole = c.cast(indices, "int64")
    hot = c.op("one_hot", from_the_start(c, whole, depth), depth=depth, dtype="bool")
    rank = indices.ndim + 1
    axis %= rank
    order = [*range(axis), rank - 1, *range(axis, rank - 1)]
    hot = hot if axis == rank - 1 else c.op("transpose", hot, axes=tuple(order))
    off, on = [c.constant(v, values.dtype.name) for v in values]
    shape = c.broadcast(hot, off)
    return c.op("where", hot, c.op("broadcast_to", on, shape=shape), c.op("broadcast_to", off, shape=shape))


@converter("CumSum", "CumProd")
def cumulative(c: Call) -> Value:
    axis = int(np.ravel(c.known(1))[0])
    return c.op(
        "cumsum" if c.op_type == "CumSum" else "cumprod", c.input(0), axis=axis, exclusive=bool(c.attr("exclusive", 0)),
        reverse=bool(c.attr("reverse", 0)),
    )  # fmt: skip


@converter("ReverseSequence")
def reverse_sequence(c: Call) -> Value:
    x, time, batch = c.input(0), c.attr("time_axis", 0), c.attr("batch_axis", 1)
    lengths, extent = c.known(1), x.shape[time]
    index = np.arange(extent)[:, None] * np.ones(len(lengths), np.int64)
    for n, length in enumerate(lengths):
        index[:length, n] = index[:length, n][::-1]
    shape = [1] * x.ndim
    shape[time], shape[batch] = index.shape
    index = index if time < batch else index.T
    whole = np.broadcast_to(index.reshape(shape), x.shape)
    return c.op("gather_elements", x, c.constant(np.ascontiguousarray(whole)), axis=time)
