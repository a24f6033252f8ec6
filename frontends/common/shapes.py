"""Padding: before and behind the elements, between them, by constants, values or the elements themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph.graph import Value
from .graph_call import GraphCall


def known_number(c: GraphCall, value: Value) -> Any:
    """Returns the number that a constant of one element is, or None for another value."""
    data = c.builder.constants.get(value)
    if data is None or data.size != 1:
        return None
    if value.dtype == "bfloat16":  # the graph has its bits
        data = (data.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return data.reshape(-1)[0].item()


def spread(c: GraphCall, x: Value, gaps: Sequence[int], fill: Any = 0) -> Value:
    """Returns ``x`` with ``gaps[d]`` elements ``fill`` between each two along dimension ``d``."""
    for axis, gap in enumerate(gaps):
        extent = x.shape[axis]
        if not gap or (isinstance(extent, int) and extent < 2):
            continue
        wide = c.op("expand_dims", x, axis=axis + 1)
        after = tuple(gap if d == axis + 1 else 0 for d in range(wide.ndim))
        wide = c.op("pad", wide, pad_before=(0,) * wide.ndim, pad_after=after, value=fill)
        shape = [*x.shape[:axis], extent * (gap + 1), *x.shape[axis + 1 :]]
        flat = c.op("reshape", wide, shape=tuple(shape))
        shape[axis] -= gap
        x = c.op("strided_slice", flat, begin=(0,) * x.ndim, end=tuple(shape))
    return x


def padded(
    c: GraphCall,
    x: Value,
    low: Sequence[int],
    high: Sequence[int],
    fill: Any = 0,
    gaps: Sequence[int] = (),
    mode: str = "constant",
) -> Value:
    """Returns ``x`` with ``low[d]`` elements before and ``high[d]`` behind it along each dimension; ``x`` itself without any.

    Negative numbers cut elements off first. ``fill`` is a number, or a value of one element. ``gaps`` of it stand between
    each two elements (:func:`spread`). ``mode``: ``constant``, or elements of ``x`` by ``reflect``, ``edge`` or ``wrap``.
    """
    number = known_number(c, fill) if isinstance(fill, Value) else fill
    if number is None and mode == "constant":  # it is put where the same padding of a mask says so
        inside = c.op("broadcast_to", c.constant(True, "bool"), shape=x.shape)
        inside, wide = [padded(c, v, low, high, 0, gaps) for v in (inside, x)]
        return c.op("where", inside, wide, c.op("reshape", fill, shape=()))
    number = bool(number) if x.dtype == "bool" else number
    x = spread(c, x, gaps, number)
    if min((*low, *high), default=0) < 0:
        left = [e + min(b, 0) + min(a, 0) for b, e, a in zip(low, x.shape, high, strict=True)]
        x = c.op("strided_slice", x, begin=tuple([max(-b, 0) for b in low]), end=tuple(left), slice_mode="size")
    before, after = tuple([max(b, 0) for b in low]), tuple([max(a, 0) for a in high])
    if not any((*before, *after)):
        return x
    if mode == "wrap":
        return _wrapped(c, x, before, after)
    return c.op("pad", x, pad_before=before, pad_after=after, value=0 if number is None else number, mode=mode)


def _wrapped(c: GraphCall, x: Value, before: Sequence[int], after: Sequence[int]) -> Value:
    """Returns ``x`` repeated at both ends of each dimension."""
    for d in range(x.ndim):
        if before[d] or after[d]:
            place = c.places(before[d] + x.shape[d] + after[d])
            index = c.op("subtract", place, c.constant(before[d], place.dtype))
            x = c.op("take", x, c.op("floor_mod", index, c.size(x.shape[d], index.dtype)), axis=d)
    return x


def picked(c: GraphCall, x: Value, low: Sequence[int], counts: Sequence[int], mode: str) -> Value:
    """Returns ``x`` padded and cut at once: elements picked along each dimension, those outside from the whole of ``x``.

    ``counts`` are the extents of the result, ``mode`` is ``reflect`` or ``edge``.
    """
    for axis, (before, count) in enumerate(zip(low, counts, strict=True)):
        extent = x.shape[axis]
        place = np.arange(count) - before
        place = extent - 1 - abs(extent - 1 - abs(place)) if mode == "reflect" else place.clip(0, extent - 1)
        if before or count != extent:
            x = c.op("take", x, c.constant(place), axis=axis, mode="fast")
    return x
