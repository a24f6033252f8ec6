"""Converters of operators that move, cut and join elements, look them up, or write them at indices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph.graph import Value, dims, same_shape
from ...te.ops.arguments import slice_range
from ...tir.expr import DType, max_identity, min_identity
from ..common import Place, at_dimensions, looked_up, padded, picked, written
from .aten_call import AtenCall, aten


@aten("view", "reshape", "_unsafe_view", "squeeze.dim", "squeeze.dims", "squeeze", "unsqueeze")
def reshape(c: AtenCall, x: Value, *args: Any) -> Value:
    return c.op("reshape", x, shape=c.shape)


@aten("permute")
def permute(c: AtenCall, x: Value, dims: Sequence[int]) -> Value:
    return c.op("transpose", x, axes=tuple(c.axis(d, x) for d in dims)) if x.ndim else c.op("identity", x)


@aten("transpose.int", "t")
def transpose(c: AtenCall, x: Value, a: int = 0, b: int = 1) -> Value:
    order = list(range(x.ndim))
    if x.ndim > 1:
        a, b = c.axis(a, x), c.axis(b, x)
        order[a], order[b] = order[b], order[a]
    return c.op("transpose", x, axes=tuple(order))


@aten("expand")
def expand(c: AtenCall, x: Value, size: Any, implicit: bool = False) -> Value:
    return c.op("broadcast_to", x, shape=c.shape)


@aten("repeat")
def repeat(c: AtenCall, x: Value, repeats: Sequence[int]) -> Value:
    wide = c.op("reshape", x, shape=(*[1] * (len(repeats) - x.ndim), *x.shape))
    return c.op("tile", wide, reps=tuple(repeats))


@aten("cat")
def cat(c: AtenCall, tensors: Sequence[Value], dim: int = 0) -> Value:
    kept = [c.cast(t, c.dtype) for t in tensors if t.shape != (0,)]  # PyTorch ignores tensors of the shape (0,)
    if len(kept) < 2:
        return c.op("identity", kept[0]) if kept else c.full(c.shape, 0, c.dtype)
    return c.op("concatenate", *kept, axis=dim % len(c.shape))


@aten("stack")
def stack(c: AtenCall, tensors: Sequence[Value], dim: int = 0) -> Value:
    return c.op("stack", *[c.cast(t, c.dtype) for t in tensors], axis=dim % len(c.shape))


@aten("split_with_sizes", "split.Tensor", "unbind.int", "chunk")
def split(c: AtenCall, x: Value, *args: Any, dim: int = 0) -> tuple[Value, ...]:
    unbind = "unbind" in c.label
    axis = c.axis(args[0] if unbind and args else args[1] if len(args) > 1 else dim, x)
    count = c.result_count
    sizes = [1] * count if unbind else [c.shape_of(n)[axis] for n in range(count)]
    if count == 1:
        parts: tuple[Value, ...] = (c.op("identity", x),)
    else:
        parts = c.several("split", x, sections=tuple(int(e) for e in np.cumsum(sizes)[:-1]), axis=axis)
    return tuple(c.op("squeeze", p, axis=axis) for p in parts) if unbind else parts


@aten("slice.Tensor")
def slice_(c: AtenCall, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
    axis = c.axis(dim, x)
    if start in (0, None) and (end is None or end == 2**63 - 1) and step == 1:
        return c.op("identity", x)
    first, _ = slice_range(start, end, step, x.shape[axis])
    return c.part(x, axis, first, c.shape[axis], step)


@aten("select.int")
def select(c: AtenCall, x: Value, dim: int, index: Any) -> Value:
    axis = c.axis(dim, x)
    return c.op("squeeze", c.part(x, axis, c.place(index, x.shape[axis]), 1), axis=axis)


@aten("slice_scatter", "select_scatter")
def scatter_part(c: AtenCall, x: Value, source: Value, dim: int = 0, *place: Any, **named: Any) -> Value:
    axis = c.axis(dim, x)
    extent = x.shape[axis]
    if "select" in c.label:
        start, count, step = c.place(place[0], extent), 1, 1
        source = c.op("expand_dims", source, axis=axis)
    else:
        given = [*place, None, None, None][:3]
        begin, end, step = [named.get(key, given[n]) for n, key in enumerate(("start", "end", "step"))]
        step = 1 if step is None else step
        start, count = slice_range(begin, end, step, extent)
        if not same_shape((count,), (source.shape[axis],)) and not isinstance(source.shape[axis], int):
            count = source.shape[axis]  # PyTorch has compared them
    new = c.cast(source, c.dtype)
    if step != 1:
        return _scattered_by_steps(c, x, new, axis, start, count, step)
    after = start + count
    left = dims([extent - after])[0]
    parts = [] if isinstance(start, int) and start == 0 else [c.part(x, axis, 0, start)]
    parts.append(new)
    if not isinstance(left, int) or left:
        parts.append(c.part(x, axis, after, left))
    joined = c.op("concatenate", *parts, axis=axis) if len(parts) > 1 else parts[0]
    return c.op("reshape", joined, shape=c.shape)


def _scattered_by_steps(c: AtenCall, x: Value, new: Value, axis: int, start: Any, count: Any, step: int) -> Value:
    """Returns ``x`` with ``new`` at every ``step``-th place along an axis: each element finds out which of them it is."""
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    place = c.op("places", c.full(shape, 0, "int64"), axis=axis, dtype="int64")
    away = c.op("subtract", place, c.number(start, "int64"))
    number = c.op("floor_divide", away, c.constant(step, "int64"))
    none = c.constant(0, "int64")
    inside = c.op("logical_and", c.op("equal", c.op("multiply", number, c.constant(step, "int64")), away),
                  c.op("logical_and", c.op("greater_equal", number, none), c.op("less", number, c.number(count, "int64"))))  # fmt: skip
    if isinstance(count, int) and not count:
        return c.op("identity", x)
    flat = c.op("reshape", number, shape=(x.shape[axis],))
    picked = c.op("take", new, c.op("maximum", flat, none), axis=axis, mode="clip")
    return c.op("where", inside, c.op("broadcast_to", picked, shape=c.shape), x)


@aten("flip")
def flip(c: AtenCall, x: Value, dims: Sequence[int]) -> Value:
    return c.op("flip", x, axis=c.axes(dims, x)) if dims else c.op("identity", x)


@aten("constant_pad_nd", "reflection_pad1d", "reflection_pad2d", "reflection_pad3d", "replication_pad1d",
      "replication_pad2d", "replication_pad3d")  # fmt: skip
def pad(c: AtenCall, x: Value, pads: Sequence[int], value: Any = 0) -> Value:
    lead = x.ndim - len(pads) // 2
    before = [0] * lead + list(reversed(pads[::2]))
    after = [0] * lead + list(reversed(pads[1::2]))
    mode = "constant" if "constant" in c.label else "reflect" if "reflection" in c.label else "edge"
    if min((*before, *after), default=0) < 0 and mode != "constant":
        return picked(c, x, before, c.shape, mode)
    out = padded(c, x, before, after, value, mode=mode)
    return out if out is not x else c.op("identity", x)


@aten("diagonal")
def diagonal(c: AtenCall, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    a, b = c.axis(dim1, x), c.axis(dim2, x)
    others = [d for d in range(x.ndim) if d not in (a, b)]
    rows, columns = x.shape[a], x.shape[b]
    last = c.op("transpose", x, axes=(*others, a, b))
    flat = c.op("reshape", last, shape=(*[x.shape[d] for d in others], rows * columns))
    count = c.shape[-1]
    if isinstance(count, int) and not count:
        return c.full(c.shape, 0, c.dtype)
    first = offset if offset >= 0 else -offset * columns
    if all(isinstance(e, int) for e in (count, columns)):
        return c.op("take", flat, c.constant(first + np.arange(count) * (columns + 1)), axis=len(others), mode="fast")
    places = c.op("places", c.full((count,), 0, "int64"), axis=0, dtype="int64")
    places = c.op("multiply", places, c.number(columns + 1, "int64"))
    places = c.op("add", places, c.number(first, "int64"))
    return c.op("take", flat, places, axis=len(others), mode="fast")


@aten("as_strided")
def as_strided(c: AtenCall, x: Value, size: Sequence[int], stride: Sequence[int], storage_offset: Any = None) -> Value:
    given = c.given[0]
    if not given.is_contiguous():
        raise c.error("as_strided is supported on contiguous tensors")
    start = 0 if storage_offset is None else storage_offset - int(given.storage_offset())
    places = np.full(tuple(size), start)
    for d, (e, s) in enumerate(zip(size, stride, strict=True)):
        places += (np.arange(e) * s).reshape([-1 if n == d else 1 for n in range(len(size))])
    if places.size and (places.min() < 0 or places.max() >= math.prod(x.shape)):
        raise c.error("the view lies outside of the tensor")
    flat = c.op("reshape", x, shape=(math.prod(x.shape),))
    return c.op("take", flat, c.constant(places), axis=0, mode="fast")


@aten("arange.start_step", "arange.start", "arange")
def arange(c: AtenCall, *args: Any, **kwargs: Any) -> Value:
    start, _, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    if not all(isinstance(a, (int, float)) for a in (start, step, c.shape[0])):
        kind = c.dtype if DType(c.dtype).is_float else "int64"
        place = c.op("places", c.full(c.shape, 0, kind), axis=0, dtype=kind)
        moved = c.op("multiply", place, c.number(step, kind))
        return c.cast(c.op("add", moved, c.number(start, kind)), c.dtype)
    if not DType(c.dtype).is_float:
        start, step = int(start), int(step)
    return c.constant(start + np.arange(c.shape[0]) * step, c.dtype)


@aten(
    "empty.memory_format",
    "empty_strided",
    "empty_permuted",
    "new_empty",
    "empty_like",
    "new_zeros",
    "new_ones",
    "new_full",
)
def empty(c: AtenCall, *args: Any, **kwargs: Any) -> Value:
    word = c.label.split()[0]
    return c.full(c.shape, args[2] if "new_full" in word else 1 if "ones" in word else 0, c.dtype)


@aten("tril", "triu")
def triangle(c: AtenCall, x: Value, diagonal: int = 0) -> Value:
    return c.op("triangle", x, k=diagonal, upper="triu" in c.label)


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
    return _cut_to(c, x, end)


def _cut_to(c: AtenCall, x: Value, end: tuple[Any, ...]) -> Value:
    """Returns the first elements of each dimension. TorchError for a size that ``x`` does not tell the kernel that cuts."""
    if end == x.shape:
        return x
    c.require_numbers(*[e for e, own in zip(end, x.shape, strict=True) if e is not own])
    return c.op("strided_slice", x, begin=(0,) * x.ndim, end=end)


_REDUCTIONS = {"": "none", "add": "add", "sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}


@aten("scatter.src", "scatter.value", "scatter_add", "scatter_reduce.two")
def scatter(
    c: AtenCall, x: Value, dim: int, index: Value, source: Any, reduce: str = "", include_self: bool = True
) -> Value:
    reduce = reduce or ("add" if "scatter_add" in c.label else "")
    if not x.ndim:
        x, index = [c.op("reshape", v, shape=(math.prod(v.shape),)) for v in (x, index)]
        source = c.op("reshape", source, shape=(1,)) if isinstance(source, Value) else source
    if 0 in index.shape:
        return c.op("reshape", x, shape=c.shape)
    if isinstance(source, Value):
        source = _cut_to(c, source, index.shape)
    else:
        source = c.full(index.shape, source, x.dtype)
    where: list[Place] = [index if d == c.axis(dim, x) else d for d in range(x.ndim)]
    start = x
    if not include_self:
        first = {"prod": 1, "amax": max_identity(x.dtype), "amin": min_identity(x.dtype)}.get(reduce, 0)
        start = written(c, x, where, c.full(index.shape, first, x.dtype))
    out = written(c, start, where, c.cast(source, x.dtype), _REDUCTIONS[reduce])
    if reduce == "mean":
        ones = c.full(index.shape, 1, x.dtype)
        begin = c.full(x.shape, 1, x.dtype)
        begin = begin if include_self else written(c, begin, where, c.full(index.shape, 0, x.dtype))
        count = written(c, begin, where, ones, "add")
        out = c.op("divide" if DType(x.dtype).is_float else "floor_divide", out, count)
    return c.op("reshape", out, shape=c.shape)


def _by_arrays(c: AtenCall, x: Value, indices: Sequence[Value | None]) -> tuple[list[Place], tuple[Any, ...]]:
    """Returns the places that arrays of indices say, and the shape of what is there.

    The dimensions of the indices come first, or where the indices are when these stand together.
    """
    at = [d for d, v in enumerate(indices) if v is not None]
    given = [v for v in indices if v is not None]
    if any(v.dtype in ("bool", "uint8") for v in given):
        raise c.error(
            "a mask as index, which gives a size that depends on values, is not supported; torch.where selects by one"
        )
    outer = c.together(given)
    lead = at[0] if at == list(range(at[0], at[0] + len(at))) else 0
    others = [d for d in range(x.ndim) if d not in at]
    shape = (*[x.shape[d] for d in others[:lead]], *outer, *[x.shape[d] for d in others[lead:]])
    where: list[Place] = [0] * x.ndim
    for n, d in enumerate(others):
        where[d] = n if n < lead else n + len(outer)
    for d, v in zip(at, given, strict=True):
        index = c.from_the_start(v, x.shape[d])
        index = index if index.shape == outer else c.op("broadcast_to", index, shape=outer)
        where[d] = at_dimensions(c, index, range(lead, lead + len(outer)), len(shape))
    return where, shape


@aten("index.Tensor")
def index(c: AtenCall, x: Value, indices: Sequence[Value | None]) -> Value:
    return looked_up(c, x, *_by_arrays(c, x, indices))


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
    where, shape = _by_arrays(c, x, indices)
    updates = c.cast(values, x.dtype)
    updates = updates if updates.shape == shape else c.op("broadcast_to", updates, shape=shape)
    return written(c, x, where, updates, "add" if accumulate else "none")


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
