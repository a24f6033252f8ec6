"""Converters of lookups and writes at places that are computed: gather, scatter, dynamic slices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph.graph import Value, dims
from ...tir.expr import Expr
from .hlo_call import HloCall, hlo, meaning
from .jaxlib_package import load_jaxlib
from .known_arrays import KnownArray, known

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
    rank = len(outer) + x.ndim - len(left_out)
    offsets = list(d.offset_dims)
    batch = [n for n in range(rank) if n not in offsets]
    simple = list(d.start_index_map)
    if not batching and len(simple) == 1 and simple == list(d.collapsed_slice_dims):
        (axis,) = simple
        if [s for n, s in enumerate(sizes) if n != axis] == [e for n, e in enumerate(x.shape) if n != axis]:
            return _taken(c, x, start, axis, batch)
    if isinstance(c.args[1], KnownArray) and not outer and not left_out:  # a slice
        begin = [0] * x.ndim
        for axis, at in zip(simple, c.args[1].data.reshape(-1), strict=True):
            begin[axis] = _moved_inside(c, at, x.shape[axis] - sizes[axis])
        return c.cut(x, begin, [b + s if b else s for b, s in zip(begin, sizes, strict=True)])
    if not x.is_static or not start.is_static:
        raise c.error("a gather of symbolic sizes is supported along one dimension only")
    kept = [n for n in range(x.ndim) if n not in left_out]
    shape = [0] * rank
    for n, extent in zip(batch, outer, strict=True):
        shape[n] = extent
    for n, axis in zip(offsets, kept, strict=True):
        shape[n] = sizes[axis]
    where: list[Value | None] = [None] * x.ndim
    for k, axis in enumerate(simple):
        most = c.constant(x.shape[axis] - sizes[axis], "int64")
        at = c.op("minimum", c.op("maximum", _component(c, start, k), c.constant(0, "int64")), most)
        where[axis] = _placed(c, at, batch, rank)
    for axis, n in zip(batching, starting, strict=True):
        place = batch[n if n < d.index_vector_dim else n - 1]
        where[axis] = _counted(c, x.shape[axis], place, rank)
    for n, axis in zip(offsets, kept, strict=True):
        if sizes[axis] > 1:
            where[axis] = _sum(c, where[axis], _counted(c, sizes[axis], n, rank))
    flat = c.op("reshape", x, shape=(math.prod(x.shape),))
    return c.op("take", flat, c.broadcast(_flat(c, where, x.shape), shape), axis=0, mode="fast")


def _taken(c: HloCall, x: Value, start: Value, axis: int, batch: list[int]) -> Value:
    """Returns whole slices along one axis."""
    at = c.op("squeeze", start, axis=start.ndim - 1)
    out = c.op("take", x, at, axis=axis, mode="clip")
    rank = out.ndim
    rest = [n for n in range(rank) if n not in range(axis, axis + at.ndim)]
    offsets = [n for n in range(rank) if n not in batch]
    order = [0] * rank
    for n, source in zip((*batch, *offsets), (*range(axis, axis + at.ndim), *rest), strict=True):
        order[n] = source
    return out if order == list(range(rank)) else c.op("transpose", out, axes=tuple(order))


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


def _placed(c: HloCall, v: Value, dims: Sequence[int], rank: int) -> Value:
    """Returns ``v`` with its dimensions at ``dims`` of ``rank``, the others of extent 1."""
    shape = [1] * rank
    for n, extent in zip(dims, v.shape, strict=True):
        shape[n] = extent
    return c.op("reshape", v, shape=tuple(shape))


def _counted(c: HloCall, extent: int, dim: int, rank: int) -> Value:
    """Returns 0, 1, 2 … along a dimension."""
    return c.constant(np.arange(extent).reshape([-1 if n == dim else 1 for n in range(rank)]), "int64")


def _sum(c: HloCall, a: Value | None, b: Value) -> Value:
    return b if a is None else c.op("add", a, b)


def _flat(c: HloCall, where: Sequence[Value | None], shape: Sequence[int]) -> Value:
    """Returns the index in the flattened array of these indices; None is 0."""
    total: Value | None = None
    for n, at in enumerate(where):
        step = math.prod(shape[n + 1 :])
        if at is not None:
            total = _sum(c, total, at if step == 1 else c.op("multiply", at, c.constant(step, "int64")))
    return total if total is not None else c.constant(0, "int64")


@hlo("scatter")
def scatter(c: HloCall) -> Value:
    d = load_jaxlib("dialects.stablehlo").ScatterDimensionNumbers(c.operation.attributes["scatter_dimension_numbers"])
    row = _REDUCTIONS.get(meaning(c.regions[0]))
    if len(c.args) != 3 or row is None:
        raise c.error(
            "only scatters of one operand that add, multiply, take the larger or smaller or the new are supported"
        )
    x, start, updates = c.values
    if not x.is_static or not updates.is_static:
        raise c.error("a scatter of symbolic sizes is not supported")
    start = _index_last(c, start, d.index_vector_dim)
    windows, rank = list(d.update_window_dims), updates.ndim
    batch = [n for n in range(rank) if n not in windows]
    batching = list(d.input_batching_dims)
    kept = [n for n in range(x.ndim) if n not in (*d.inserted_window_dims, *batching)]
    extents = {axis: updates.shape[n] for n, axis in zip(windows, kept, strict=True)}
    where: list[Value | None] = [None] * x.ndim
    inside: Value | None = None
    for k, axis in enumerate(d.scattered_dims_to_operand_dims):
        at = _component(c, start, k)
        good = c.op("logical_and", c.op("greater_equal", at, c.constant(0, "int64")),
                    c.op("less_equal", at, c.constant(x.shape[axis] - extents.get(axis, 1), "int64")))  # fmt: skip
        inside = good if inside is None else c.op("logical_and", inside, good)
        where[axis] = _placed(c, at, batch, rank)
    for axis, n in zip(batching, d.scatter_indices_batching_dims, strict=True):
        where[axis] = _counted(c, x.shape[axis], batch[n if n < d.index_vector_dim else n - 1], rank)
    for n, axis in zip(windows, kept, strict=True):
        if updates.shape[n] > 1:
            where[axis] = _sum(c, where[axis], _counted(c, updates.shape[n], n, rank))
    total = math.prod(x.shape)
    at = c.broadcast(_flat(c, where, x.shape), updates.shape)
    if inside is not None:  # an update of which a part lies outside is dropped
        at = c.op("where", _placed(c, inside, batch, rank), at, c.constant(total, "int64"))
    return _written(c, x, at, updates, row)


def _written(c: HloCall, x: Value, at: Value, updates: Value, row: str) -> Value:
    """Returns ``x`` with updates at indices into the flattened array."""
    count = math.prod(updates.shape)
    flat, places, new = [c.op("reshape", v, shape=(math.prod(v.shape),)) for v in (x, at, updates)]
    if not count:
        return x
    kind = x.dtype
    if kind == "bool":
        flat, new = c.op("cast", flat, dtype="uint8"), c.op("cast", new, dtype="uint8")
    out = c.op("scatter_elements", flat, places, new, axis=0, reduction=row)
    return c.op("reshape", c.cast(out, kind), shape=x.shape)


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
        wide = _placed(c, within, [axis], x.ndim)
        inside = wide if inside is None else c.op("logical_and", inside, wide)
        near = c.op("minimum", c.op("maximum", at, c.constant(0, "int64")), most)
        new = c.op("take", new, near, axis=axis, mode="fast")
    return new if inside is None else c.op("where", inside, new, x)
