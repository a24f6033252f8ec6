"""Converters of lookups and scatters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...graph.graph import Value
from ...tir.expr import DType, max_identity, min_identity
from ..common import Place, at_dimensions, looked_up, written
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
