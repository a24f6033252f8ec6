"""Lookups and writes of elements at places that are computed, in several dimensions at once.

A place, for each dimension of an array, is an array of indices with as many dimensions as the result (or the updates), of
extent 1 where it does not vary; or the number of the result's dimension that runs along all of it.

    x[i, :, j]  for i and j of the shape (n,):  where = [i as (n, 1), 1, j as (n, 1)]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...graph.graph import Value, dims, same_shape
from .graph_call import GraphCall

Place = Value | int
"""The indices into a dimension, or the dimension of the result that runs along it."""


def at_dimensions(c: GraphCall, x: Value, axes: Sequence[int], rank: int) -> Value:
    """Returns ``x`` with its dimensions at ``axes`` of ``rank``, the others of extent 1."""
    shape: list[Any] = [1] * rank
    for d, extent in zip(axes, x.shape, strict=True):
        shape[d] = extent
    return x if same_shape(x.shape, tuple(shape)) else c.op("reshape", x, shape=tuple(shape))


def looked_up(c: GraphCall, x: Value, where: Sequence[Place], shape: Sequence[Any]) -> Value:
    """Returns an array of ``shape`` of elements of ``x`` at the places ``where``, which lie inside and count from 0.

    Dimensions at both ends that the result runs along as a whole stay as they are; the places in those between become one
    index.
    """
    rank, first, last = len(shape), 0, x.ndim
    while first < last and where[first] == first and _is_one(where, first):
        first += 1
    while last > first and where[last - 1] == rank - 1 - (x.ndim - last) and _is_one(where, where[last - 1]):
        last -= 1
    lead, middle, tail = x.shape[:first], x.shape[first:last], x.shape[last:]
    outer = tuple(shape[first : rank - len(tail)])
    if not middle:
        one = c.op("reshape", x, shape=(*lead, *[1] * len(outer), *tail))
        return c.op("broadcast_to", one, shape=tuple(shape))
    index: Value | None = None
    for extent, place in zip(middle, where[first:last], strict=True):
        if isinstance(place, int):
            at = c.places(shape[place], "int64", place - first, len(outer))
        else:
            at = c.cast(place, "int64") if len(middle) > 1 else place
            at = c.op("reshape", at, shape=place.shape[first : rank - len(tail)]) if rank > len(outer) else at
        index = at if index is None else c.op("add", c.op("multiply", index, c.size(extent, "int64")), at)
    assert index is not None
    if not same_shape(index.shape, outer):
        index = c.op("broadcast_to", index, shape=outer)
    if len(middle) > 1:
        x = c.op("reshape", x, shape=(*lead, *dims([math.prod(middle)]), *tail))
    return c.op("take", x, index, axis=first, mode="fast")


def written(c: GraphCall, x: Value, where: Sequence[Place], updates: Value, reduction: str = "none") -> Value:
    """Returns ``x`` with ``updates`` at the places ``where``, the last of several for one element.

    ``reduction``: ``none``, or ``add``, ``mul``, ``max``, ``min`` of the element and its updates; sums of bools say whether
    one is true, products whether all are. Negative indices count from the end; an update that lies outside is dropped.
    """
    if x.dtype == "bool":
        row = {"add": "max", "mul": "min"}.get(reduction, reduction)
        wide, new = [c.op("cast", v, dtype="uint8") for v in (x, updates)]
        return c.cast(written(c, wide, where, new, row), "bool")
    if any(isinstance(e, int) and not e for e in updates.shape):
        return c.op("identity", x)
    rank, last = updates.ndim, x.ndim
    while last > 1 and where[last - 1] == rank - 1 - (x.ndim - last) and _is_one(where, where[last - 1]):
        last -= 1
    outer = updates.shape[: rank - (x.ndim - last)]
    parts = []
    for place in where[:last]:
        if isinstance(place, int):
            at = c.places(outer[place], "int64", place, len(outer))
        else:
            at = c.cast(place, "int64")
            at = c.op("reshape", at, shape=place.shape[: len(outer)]) if rank > len(outer) else at
        at = at if same_shape(at.shape, outer) else c.op("broadcast_to", at, shape=outer)
        parts.append(c.op("expand_dims", at, axis=len(outer)))
    places = parts[0] if len(parts) == 1 else c.op("concatenate", *parts, axis=len(outer))
    return c.op("scatter_nd", x, places, updates, reduction=reduction)


def _is_one(where: Sequence[Place], dim: Any) -> bool:
    """Returns whether no indices vary along a dimension of the result."""
    extents = [place.shape[dim] for place in where if isinstance(place, Value)]
    return all(isinstance(e, int) and e == 1 for e in extents)
