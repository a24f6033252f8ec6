"""Converters of operators that find elements of their inputs: how many there are depends on data.

Each computes an array with room for all, and how many are found; that number is a size that the call computes
(``graph/computed_sizes.py``), and what comes behind has it as a symbolic size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph.builder import add_scan
from ...graph.computed_sizes import add_computed_size
from ...graph.graph import Dim, Value, dims
from ...tir.expr import DType, min_
from .call import OnnxCall, converter


def places_where(c: OnnxCall, holds: Value) -> Value:
    """Returns the places at which a vector of truth values holds, in order: int64, as many as a call finds."""
    (extent,) = holds.shape
    ones = c.cast(holds, "int64")
    count, rank = c.op("sum", ones, axis=0), _places_of_ones(c, ones)
    behind = c.op("where", holds, rank, c.size(extent, "int64"))  # what lies outside is dropped
    every = c.op("scatter_elements", _zeros(c, extent), behind, c.places(extent), axis=0)
    return c.part(every, 0, 0, add_computed_size(c.builder, count, extent))


def _places_of_ones(c: OnnxCall, ones: Value) -> Value:
    """Returns how many ones stand before each one of a vector."""
    return c.op("subtract", c.op("cumsum", ones, axis=0), c.constant(1, "int64"))


def _zeros(c: OnnxCall, extent: Dim) -> Value:
    return c.op("broadcast_to", c.constant(0, "int64"), shape=(extent,))


def _flat(c: OnnxCall, x: Value) -> Value:
    return c.op("reshape", x, shape=dims([_product(x.shape)]))


def _product(shape: Sequence[Dim]) -> Any:
    out: Any = 1
    for extent in shape:
        out = out * extent
    return out


def _require_values(c: OnnxCall, inputs: Sequence[int]) -> None:
    """Ask for the values of inputs where sizes that calls compute are not wanted; note the operator otherwise."""
    c.sized.append(c.label)
    if not c.computes_sizes:
        for n in inputs:
            c.known(n)


def _coordinates(c: OnnxCall, places: Value, shape: Sequence[Dim]) -> list[Value]:
    """Returns the index in each dimension of elements that ``places`` numbers in order."""
    out: list[Value] = []
    for extent in reversed(shape[1:]):
        size = c.size(extent, "int64")
        out.append(c.op("floor_mod", places, size))
        places = c.op("floor_divide", places, size)
    return [places, *reversed(out)]


@converter("NonZero")
def non_zero(c: OnnxCall) -> Value:
    _require_values(c, [0])
    x = c.input(0)
    shape = x.shape or (1,)
    places = places_where(c, _flat(c, c.cast(x, "bool")))
    found = [c.op("expand_dims", one, axis=0) for one in _coordinates(c, places, shape)]
    return c.op("concatenate", *found, axis=0) if len(found) > 1 else found[0]


@converter("Compress")
def compress(c: OnnxCall) -> Value:
    _require_values(c, [1])
    x, condition, axis = c.input(0), c.input(1), c.attr("axis")
    if condition.ndim != 1 or condition.dtype != "bool":
        raise c.error(f"the condition is {condition.type_text}, and not a vector of bool")
    x, along = (_flat(c, x), 0) if axis is None else (x, c.axis(axis, x))
    longest, extent = condition.shape[0], x.shape[along]
    if isinstance(longest, int) and isinstance(extent, int) and longest > extent:
        raise c.error(f"a condition of {longest} elements for {extent} along the axis")
    return c.op("take", x, places_where(c, condition), axis=along)


@converter("Unique")
def unique(c: OnnxCall) -> tuple[Value, ...]:
    """Returns the different elements, in ascending order or in that of their first places. NaN equals NaN.

    Further results are the first places, the number of each element of the input among them, and how often each occurs.
    """
    x, axis = c.input(0), c.attr("axis")
    flat = axis is None or x.ndim == 1
    _require_values(c, [0])
    if not flat:
        c.known(0)
    x = _flat(c, x)
    (extent,) = x.shape
    ordered, places = c.several("topk", x, k=extent, axis=0, largest=False)
    before = c.op("take", ordered, c.op("maximum", _one_less(c, extent), c.constant(0, "int64")), axis=0)
    differs = c.op("not_equal", ordered, before)
    if DType(x.dtype).is_float:
        number = c.op("logical_or", c.op("equal", ordered, ordered), c.op("equal", before, before))
        differs = c.op("logical_and", differs, number)
    begins = c.op("logical_or", differs, c.op("equal", c.places(extent), c.constant(0, "int64")))
    groups = _places_of_ones(c, c.cast(begins, "int64"))
    if c.attr("sorted", 1):
        numbers, first = groups, c.op("take", places, places_where(c, begins), axis=0)
    else:
        ones = c.cast(begins, "int64")
        is_first = c.op("scatter_elements", _zeros(c, extent), places, ones, axis=0)
        where = c.op("where", begins, groups, c.size(extent, "int64"))
        leaders = c.op("scatter_elements", _zeros(c, extent), where, places, axis=0)
        numbers = c.op("take", _places_of_ones(c, is_first), c.op("take", leaders, groups, axis=0), axis=0)
        first = places_where(c, c.cast(is_first, "bool"))
    inverse = c.op("scatter_elements", _zeros(c, extent), places, numbers, axis=0)
    once = c.op("broadcast_to", c.constant(1, "int64"), shape=(extent,))
    counts = c.op("scatter_elements", _zeros(c, extent), inverse, once, axis=0, reduction="add")
    return c.op("take", x, first, axis=0), first, inverse, c.part(counts, 0, 0, first.shape[0])


def _one_less(c: OnnxCall, extent: Dim) -> Value:
    return c.op("subtract", c.places(extent), c.constant(1, "int64"))


@converter("NonMaxSuppression")
def non_max_suppression(c: OnnxCall) -> Value:
    """Returns rows of batch, class and box: the largest scores, without boxes that overlap one of them.

    A step of the loop takes the box with the largest score of those that are left in each class. Of equal scores the first
    box is taken.
    """
    _require_values(c, range(len(c.inputs)))
    boxes, scores = c.input(0), c.input(1)
    if boxes.ndim != 3 or scores.ndim != 3:
        raise c.error(f"boxes {boxes.type_text} and scores {scores.type_text}; both have three dimensions")
    batches, classes, count = scores.shape
    most = c.builder.constants.get(c.input(2)) if c.has(2) else np.zeros(1, np.int64)
    steps: Any = count
    if most is not None:
        wanted = max(int(np.ravel(most)[0]), 0)
        steps = min(wanted, count) if isinstance(count, int) else dims([min_(count, wanted)])[0]
    if isinstance(steps, int) and steps == 0:
        return c.constant(np.zeros((0, 3), np.int64))
    limit = c.size(steps, "int64") if most is not None else _scalar(c, 2, "int64", 0)
    edges = _edges(c, boxes)
    area = _area(c, edges)
    threshold = _scalar(c, 3, boxes.dtype, 0.0)
    places, zero = c.places(count, "int64", 2, 3), c.like(0, boxes)
    of_class = c.op("multiply", c.places(_product((batches, classes)), "int64"), c.size(count, "int64"))
    of_batch = c.op("multiply", c.places(batches, "int64", 0, 2), c.size(count, "int64"))
    of_class = c.op("reshape", of_class, shape=(batches, classes))
    lowest = c.constant(-np.inf, scores.dtype)
    if c.has(4):
        left = c.op("greater", scores, _scalar(c, 4, scores.dtype, 0.0))
    else:
        left = c.op("broadcast_to", c.constant(True, "bool"), shape=scores.shape)

    def picked(x: Value, at: Value) -> Value:
        """Returns a number of the box at ``at`` for each batch and class."""
        found = c.op("take", _flat(c, x), c.op("add", at, of_batch), axis=0)
        return c.op("expand_dims", found, axis=2)

    def step(states: Sequence[Value], parts: Sequence[Value]) -> tuple[Sequence[Value], Sequence[Value]]:
        here, done = states
        best = c.op("argmax", c.op("where", here, scores, lowest), axis=2, dtype="int64")
        valid = c.op("take", _flat(c, here), c.op("add", best, of_class), axis=0)
        valid = c.op("logical_and", valid, c.op("less", done, limit))
        own = [picked(edge, best) for edge in edges]
        sides = [
            c.op("maximum", c.op("subtract", c.op("minimum", own[n + 2], edges[n + 2]), c.op("maximum", own[n], edges[n])), zero)
            for n in (0, 1)
        ]  # fmt: skip
        common = c.op("multiply", *sides)
        whole = c.op("subtract", c.op("add", picked(area, best), area), common)
        overlaps = c.op("greater", c.op("divide", common, whole), threshold)
        overlaps = c.op("logical_and", overlaps, c.op("greater", common, zero))
        gone = c.op("logical_or", overlaps, c.op("equal", places, c.op("expand_dims", best, axis=2)))
        rest = c.op("logical_and", here, c.op("logical_not", gone))
        return [rest, c.op("add", done, c.constant(1, "int64"))], [best, valid]

    none = c.constant(0, "int64")
    _, (best, valid) = add_scan(c.builder, [left, none], [], step, steps=steps)
    rows, holds = [_flat(c, c.op("transpose", v, axes=(1, 2, 0))) for v in (best, valid)]
    found = places_where(c, holds)
    batch, kind, _ = _coordinates(c, found, (batches, classes, steps))
    columns = (batch, kind, c.op("take", rows, found, axis=0))
    return c.op("concatenate", *[c.op("expand_dims", v, axis=1) for v in columns], axis=1)


def _scalar(c: OnnxCall, n: int, dtype: str, otherwise: float) -> Value:
    """Returns an input of one element as a scalar."""
    if not c.has(n):
        return c.constant(otherwise, dtype)
    return c.cast(c.op("reshape", c.input(n), shape=()), dtype)


def _edges(c: OnnxCall, boxes: Value) -> list[Value]:
    """Returns the lower and then the upper edges of boxes, each (batches, 1, boxes)."""
    a, b, d, e = [c.op("reshape", c.part(boxes, 2, n, 1), shape=(boxes.shape[0], 1, boxes.shape[1])) for n in range(4)]
    if c.attr("center_point_box", 0):
        half = [c.op("multiply", v, c.like(0.5, v)) for v in (d, e)]
        low = [c.op("subtract", v, h) for v, h in zip((a, b), half, strict=True)]
        return [*low, *[c.op("add", v, h) for v, h in zip((a, b), half, strict=True)]]
    return [c.op(kind, *pair) for kind in ("minimum", "maximum") for pair in ((a, d), (b, e))]


def _area(c: OnnxCall, edges: Sequence[Value]) -> Value:
    return c.op("multiply", *[c.op("subtract", edges[n + 2], edges[n]) for n in (0, 1)])
