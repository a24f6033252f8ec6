"""Converters of operations that move, cut and join elements, look them up, write them at computed places, or sort them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from ...graph.graph import Value, dims, same_shape
from ...tir.expr import Expr
from .. import common
from ..common import Place, at_dimensions, looked_up, written
from .hlo_call import Given, HloCall, KnownArray, applied, hlo, known, load_jaxlib, meaning, op, plain


@hlo("reshape")
def reshape(c: HloCall) -> Value:
    return c.op("reshape", c.x, shape=c.shape)


@hlo("dynamic_reshape")
def dynamic_reshape(c: HloCall) -> Value:
    return c.op("reshape", c.x, shape=tuple(_sizes(c, 1)))


def _sizes(c: HloCall, n: int) -> list[Any]:
    """Returns the shape that an operand gives; numbers are Python's own."""
    return [d if hasattr(d, "dtype") and not isinstance(d, np.generic) else int(d) for d in c.numbers(n, "the shape")]


@hlo("transpose")
def transpose(c: HloCall) -> Value:
    return c.op("transpose", c.x, axes=tuple(c.attribute("permutation"))) if c.x.ndim else c.x


@hlo("broadcast_in_dim", "dynamic_broadcast_in_dim")
def broadcast_in_dim(c: HloCall) -> Value:
    x = c.x
    shape = _sizes(c, 1) if len(c.args) > 1 else list(c.shape)
    if not shape:
        return x
    wide: list[Any] = [1] * len(shape)
    for d, extent in zip(c.attribute("broadcast_dimensions"), x.shape, strict=True):
        wide[d] = extent
    order = list(c.attribute("broadcast_dimensions"))
    if order != sorted(order):
        x = c.op("transpose", x, axes=tuple(int(n) for n in np.argsort(order)))
    first = c.narrow.get(x, x)
    if not first.shape:
        return c.broadcast(first, shape)
    return c.broadcast(x if x.shape == tuple(wide) else c.op("reshape", x, shape=tuple(wide)), shape)


@hlo("broadcast")
def broadcast(c: HloCall) -> Value:
    return c.broadcast(c.x, [*c.attribute("broadcast_sizes"), *c.x.shape])


@hlo("dynamic_iota")
def dynamic_iota(c: HloCall) -> Value:
    shape, along = _sizes(c, 0), c.attribute("iota_dimension")
    if not isinstance(shape[along], int):
        return c.op("places", c.full(shape, 0, c.dtype), axis=along, dtype=c.dtype)
    numbers = np.arange(shape[along]).reshape([-1 if d == along else 1 for d in range(len(shape))])
    return c.broadcast(c.constant(numbers, c.dtype), shape)


@hlo("concatenate")
def concatenate(c: HloCall) -> Value:
    parts = [v for v in c.values if v.shape[c.attribute("dimension")] != 0]
    if len(parts) < 2:
        return c.op("identity", (parts or c.values)[0])
    return c.op("concatenate", *parts, axis=c.attribute("dimension"))


@hlo("slice")
def cut(c: HloCall) -> Value:
    return c.cut(c.x, c.attribute("start_indices"), _ends(c), c.attribute("strides"))


def _ends(c: HloCall) -> list[Any]:
    """Returns where a slice ends; one of a symbolic dimension takes all of it."""
    ends = c.attribute("limit_indices")
    return [e if isinstance(d, int) else d for e, d in zip(ends, c.x.shape, strict=True)]


@hlo("real_dynamic_slice")
def real_dynamic_slice(c: HloCall) -> Value:
    begin, end, steps = [_sizes(c, n) for n in (1, 2, 3)]
    return c.cut(c.x, begin, end, steps)


@hlo("reverse")
def reverse(c: HloCall) -> Value:
    axes = tuple(c.attribute("dimensions"))
    return c.op("flip", c.x, axis=axes) if axes else c.op("identity", c.x)


@hlo("pad")
def pad(c: HloCall) -> Value:
    low, high = c.attribute("edge_padding_low"), c.attribute("edge_padding_high")
    return padded(c, c.x, c.args[1], low, high, c.attribute("interior_padding"))


@hlo("dynamic_pad")
def dynamic_pad(c: HloCall) -> Value:
    return padded(c, c.x, c.args[1], _sizes(c, 2), _sizes(c, 3), _sizes(c, 4))


def padded(
    c: HloCall, x: Value, value: Given, low: Sequence[int], high: Sequence[int], interior: Sequence[int]
) -> Value:
    """Returns ``x`` with ``value`` before, behind and between its elements; negative numbers cut elements off."""
    return common.padded(c, x, low, high, c.value(value), interior)


@hlo("torch_index_select")
def index_select(c: HloCall) -> Value:
    x, index = c.values
    axis, batch = c.attribute("dim"), c.attribute("batch_dims", 0)
    if batch:
        raise c.error("batch dimensions are not supported")
    return c.op("take", x, index, axis=axis, mode="clip")


_REDUCTIONS = {"add": "add", "multiply": "mul", "maximum": "max", "minimum": "min", "second": "none"}


@hlo("gather", "dynamic_gather")
def gather(c: HloCall) -> Value:
    d = load_jaxlib("dialects.stablehlo").GatherDimensionNumbers(c.operation.attributes["dimension_numbers"])
    x, start = c.x, c.value(1)
    sizes: list[Any] = c.numbers(2, "the sizes") if c.name == "dynamic_gather" else c.attribute("slice_sizes")
    sizes = [n if isinstance(n, Expr) else int(n) for n in sizes]
    batching, starting = list(d.operand_batching_dims), list(d.start_indices_batching_dims)
    left_out = [*d.collapsed_slice_dims, *batching]
    start = _index_last(c, start, d.index_vector_dim)
    outer = start.shape[:-1]
    if isinstance(c.args[1], KnownArray) and not outer and not left_out:  # a slice
        begin = [0] * x.ndim
        for axis, at in zip(d.start_index_map, c.args[1].data.reshape(-1), strict=True):
            begin[axis] = _moved_inside(c, at, x.shape[axis] - sizes[axis])
        return c.cut(x, begin, [b + s if b else s for b, s in zip(begin, sizes, strict=True)])
    kept = [n for n in range(x.ndim) if n not in left_out]
    offsets = dict(zip(kept, d.offset_dims, strict=True))
    rank = len(outer) + len(kept)
    batch = [n for n in range(rank) if n not in d.offset_dims]
    shape: list[Any] = [0] * rank
    for n, extent in zip((*batch, *offsets.values()), (*outer, *[sizes[axis] for axis in kept]), strict=True):
        shape[n] = extent
    starts: dict[int, Value] = {}
    zero = c.constant(0, "int64")
    for k, axis in enumerate(d.start_index_map):
        most = c.size(dims([x.shape[axis] - sizes[axis]])[0], "int64")
        starts[axis] = at_dimensions(
            c, c.op("minimum", c.op("maximum", _component(c, start, k), zero), most), batch, rank
        )
    return looked_up(
        c, x, _places(c, x, starts, sizes, offsets, _along_batches(d, batching, starting, batch), rank), shape
    )


def _along_batches(
    numbers: Any, batching: Sequence[int], indices: Sequence[int], batch: Sequence[int]
) -> dict[int, int]:
    """Returns the dimension of the result that runs along each batching dimension of the operand."""
    vector = numbers.index_vector_dim
    return {axis: batch[n if n < vector else n - 1] for axis, n in zip(batching, indices, strict=True)}


def _places(
    c: HloCall,
    x: Value,
    starts: Mapping[int, Value],
    sizes: Sequence[Any],
    offsets: Mapping[int, int],
    along: Mapping[int, int],
    rank: int,
) -> list[Place]:
    """Returns the places of windows of ``sizes`` that begin at ``starts``, 0 where there is none.

    ``offsets`` and ``along`` say which dimension of the result runs along a window's dimension and along a whole one.
    """
    out: list[Place] = []
    for axis, size in enumerate(sizes):
        begin = starts.get(axis)
        if axis in along:
            out.append(along[axis])
        elif begin is None and axis in offsets and same_shape((size,), (x.shape[axis],)):
            out.append(offsets[axis])
        elif isinstance(size, int) and size == 1:
            out.append(c.constant(np.zeros((1,) * rank), "int64") if begin is None else begin)
        else:
            at = c.places(size, "int64", offsets[axis], rank)
            out.append(at if begin is None else c.op("add", begin, at))
    return out


def _index_last(c: HloCall, start: Value, axis: int) -> Value:
    """Returns the indices with the dimension of their components last."""
    wide = start if start.dtype == "int64" else c.op("cast", start, dtype="int64")
    if axis == start.ndim:
        return c.op("expand_dims", wide, axis=axis)
    if axis == start.ndim - 1:
        return wide
    return c.op("transpose", wide, axes=tuple([n for n in range(start.ndim) if n != axis] + [axis]))


def _component(c: HloCall, start: Value, k: int) -> Value:
    begin, end = [0] * start.ndim, list(start.shape)
    begin[-1], end[-1] = k, k + 1
    return c.op("squeeze", c.cut(start, begin, end), axis=start.ndim - 1)


@hlo("scatter")
def scatter(c: HloCall) -> Value:
    d = load_jaxlib("dialects.stablehlo").ScatterDimensionNumbers(c.operation.attributes["scatter_dimension_numbers"])
    row = _REDUCTIONS.get(meaning(c.regions[0]))
    if len(c.args) != 3 or row is None:
        raise c.error(
            "only scatters of one operand that add, multiply, take the larger or smaller or the new are supported"
        )
    x, start, updates = c.values
    start = _index_last(c, start, d.index_vector_dim)
    rank, batching = updates.ndim, list(d.input_batching_dims)
    batch = [n for n in range(rank) if n not in d.update_window_dims]
    kept = [n for n in range(x.ndim) if n not in (*d.inserted_window_dims, *batching)]
    offsets = dict(zip(kept, d.update_window_dims, strict=True))
    sizes = [updates.shape[offsets[axis]] if axis in offsets else 1 for axis in range(x.ndim)]
    starts: dict[int, Value] = {}
    inside: list[Value] = []
    for k, axis in enumerate(d.scattered_dims_to_operand_dims):
        starts[axis] = at_dimensions(c, _component(c, start, k), batch, rank)
        most = c.size(dims([x.shape[axis] - sizes[axis]])[0], "int64")
        inside += [c.op("greater_equal", starts[axis], c.constant(0, "int64")), c.op("less_equal", starts[axis], most)]
    if starts:  # an update of which a part lies outside is dropped: it begins behind the end
        axis, at = next(iter(starts.items()))
        is_inside = reduce(lambda a, b: c.op("logical_and", a, b), inside)
        starts[axis] = c.op("where", is_inside, at, c.size(x.shape[axis], "int64"))
    along = _along_batches(d, batching, d.scatter_indices_batching_dims, batch)
    return written(c, x, _places(c, x, starts, sizes, offsets, along, rank), updates, row)


# dynamic slices


def _starts(c: HloCall, first: int, x: Value, sizes: Sequence[Any]) -> list[Any]:
    """Returns where a slice begins: numbers where they are known, else values, all moved inside."""
    out: list[Any] = []
    for n, (extent, size) in enumerate(zip(x.shape, sizes, strict=True)):
        given = c.args[first + n]
        if isinstance(given, KnownArray) and not given.is_symbolic:
            out.append(_moved_inside(c, given.data.item(), extent - size))
        elif extent is size or extent == size:
            out.append(0)
        else:
            at = c.cast(c.value(given), "int64")
            out.append(
                c.op(
                    "minimum",
                    c.op("maximum", at, c.constant(0, "int64")),
                    c.value(known(np.array(extent - size), "int64")),
                )
            )
    return out


def _moved_inside(c: HloCall, start: Any, room: Any) -> int:
    """Returns the start of a slice that leaves ``room`` beside it; an error where a symbolic size decides on it."""
    (last,) = dims([room])
    if isinstance(last, int) and not isinstance(start, Expr):
        return max(0, min(int(start), last))
    if not isinstance(start, Expr) and start <= 0:
        return 0
    raise c.error("a slice of a symbolic size is supported from its first element on only")


@hlo("dynamic_slice")
def dynamic_slice(c: HloCall) -> Value:
    x, sizes = c.x, c.attribute("slice_sizes")
    starts = _starts(c, 1, x, sizes)
    begin = [s if isinstance(s, int) else 0 for s in starts]
    end = [s + n if isinstance(s, int) else e for s, n, e in zip(starts, sizes, x.shape, strict=True)]
    out = c.cut(x, begin, end)
    for axis, s in enumerate(starts):
        if not isinstance(s, int):
            at = c.op("add", c.constant(np.arange(sizes[axis]), "int64"), s)
            out = c.op("take", out, at, axis=axis, mode="clip")
    return out


@hlo("dynamic_update_slice")
def dynamic_update_slice(c: HloCall) -> Value:
    x, new = c.values[:2]
    starts = _starts(c, 2, x, new.shape)
    inside: Value | None = None
    for axis, s in enumerate(starts):
        if new.shape[axis] == x.shape[axis]:
            continue
        count = np.arange(x.shape[axis])
        at = c.constant(count - s, "int64") if isinstance(s, int) else c.op("subtract", c.constant(count, "int64"), s)
        most = c.constant(new.shape[axis] - 1, "int64")
        within = c.op("logical_and", c.op("greater_equal", at, c.constant(0, "int64")), c.op("less_equal", at, most))
        wide = at_dimensions(c, within, [axis], x.ndim)
        inside = wide if inside is None else c.op("logical_and", inside, wide)
        near = c.op("minimum", c.op("maximum", at, c.constant(0, "int64")), most)
        new = c.op("take", new, near, axis=axis, mode="fast")
    return new if inside is None else c.op("where", inside, new, x)


MOST_COMPARISONS = 1 << 28
"""Sorts that make more comparisons are not supported."""


@hlo("sort")
def sort(c: HloCall) -> tuple[Value, ...]:
    """Returns the operands in order: an element's place is the number of elements that come before it."""
    xs = c.values
    rank = xs[0].ndim
    axis = c.attribute("dimension", -1) % rank
    size = xs[0].shape[axis]
    if not xs[0].is_static or math.prod(xs[0].shape) * size > MOST_COMPARISONS:
        raise c.error(f"sorting {xs[0].type_text} along {axis} is not supported: that takes too many comparisons")
    order = (*[d for d in range(rank) if d != axis], axis)
    last = [c.op("transpose", x, axes=order) for x in xs]
    places = _sorted_places(c, last, size)
    back = tuple(int(d) for d in np.argsort(order))
    found = [c.op("gather_elements", x, places, axis=rank - 1) for x in last]
    return tuple(c.op("transpose", v, axes=back) for v in found)


def _sorted_places(c: HloCall, xs: list[Value], size: int) -> Value:
    """Returns where the elements that come first, second and so on along the last axis are."""
    rank = xs[0].ndim
    wide = (*xs[0].shape, size)
    mine = [c.broadcast(c.op("expand_dims", x, axis=rank), wide) for x in xs]
    other = [c.broadcast(c.op("expand_dims", x, axis=rank - 1), wide) for x in xs]
    (ahead,) = applied(c, c.regions[0], _paired(other, mine))
    (behind,) = applied(c, c.regions[0], _paired(mine, other))
    earlier = c.constant(np.tril(np.ones((size, size), bool), -1), "bool")
    level = c.op("logical_and", c.op("logical_not", behind), earlier)
    before = c.op("logical_or", ahead, level)
    ranks = c.op("sum", c.op("cast", before, dtype="int32"), axis=(rank,))
    numbers = c.op("broadcast_to", c.constant(np.arange(size), "int32"), shape=xs[0].shape)
    return c.op("scatter_elements", c.full(xs[0].shape, 0, "int32"), ranks, numbers, axis=rank - 1)


def _paired(first: list[Value], second: list[Value]) -> list[Value]:
    return [v for pair in zip(first, second, strict=True) for v in pair]


@op("chlo.top_k", "composite chlo.top_k")
def top_k(c: HloCall) -> tuple[Value, ...]:
    attributes: Any = c.operation.attributes
    k = plain(attributes["k"] if "k" in attributes else attributes["composite_attributes"]["k"])
    return c.builder.several("topk", c.x, k=k, axis=c.x.ndim - 1, dtype=c.dtype_of(1))
