"""Converters of sorting."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...graph.graph import Value
from .hlo_call import HloCall, applied, hlo, op
from .jaxlib_package import plain

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
    places = _places(c, last, size)
    back = tuple(int(d) for d in np.argsort(order))
    found = [c.op("gather_elements", x, places, axis=rank - 1) for x in last]
    return tuple(c.op("transpose", v, axes=back) for v in found)


def _places(c: HloCall, xs: list[Value], size: int) -> Value:
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
