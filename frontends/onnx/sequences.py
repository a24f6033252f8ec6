"""Sequences of tensors. The graph has none: a sequence is a list of values while the model is read, so that positions
and lengths have to be known, and only tensors go into and out of the model."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...graph.graph import Value
from .call import LARGEST_TABLE, OnnxCall, ValueList, converter
from .control_flow import stacked
from .types import dtype_of

SEQUENCE_OPERATORS = (
    "ConcatFromSequence", "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert",
    "SequenceLength", "SplitToSequence",
)  # fmt: skip
"""The operators that take or give a sequence."""


def _position(c: OnnxCall, n: int, length: int) -> int:
    """Returns the position that input ``n`` says; negative ones count from the end."""
    at = int(np.ravel(c.known(n))[0])
    if not -length <= at < length:
        raise c.error(f"position {at} is outside of a sequence of {length}")
    return at % length


@converter("SequenceConstruct")
def construct(c: OnnxCall) -> ValueList:
    given = [c.input(n) for n in range(len(c.inputs))]
    if len({v.dtype for v in given}) != 1:
        raise c.error("the tensors of a sequence have one data type")
    return ValueList(tuple(given), given[0].dtype)


@converter("SequenceEmpty")
def empty(c: OnnxCall) -> ValueList:
    return ValueList((), dtype_of(c.attr("dtype", 1), c.label))


@converter("SequenceLength")
def length(c: OnnxCall) -> Value:
    return c.constant(np.int64(len(c.sequence(0).items)), "int64")


@converter("SequenceAt")
def at(c: OnnxCall) -> Value:
    items = c.sequence(0).items
    return c.op("identity", items[_position(c, 1, len(items))])


@converter("SequenceErase")
def erase(c: OnnxCall) -> ValueList:
    given = c.sequence(0)
    gone = _position(c, 1, len(given.items)) if c.has(1) else len(given.items) - 1
    if not given.items:
        raise c.error("an empty sequence has nothing to erase")
    return ValueList((*given.items[:gone], *given.items[gone + 1 :]), given.dtype)


@converter("SequenceInsert")
def insert(c: OnnxCall) -> ValueList:
    given, new = c.sequence(0), c.input(1)
    if new.dtype != given.dtype:
        raise c.error(f"a tensor of {new.dtype} does not fit a sequence of {given.dtype}")
    places = len(given.items) + 1  # behind the last one as well
    place = int(np.ravel(c.known(2))[0]) if c.has(2) else places - 1
    if not -places < place < places:
        raise c.error(f"position {place} is outside of a sequence of {places - 1}")
    if place < 0:
        place += places - 1
    return ValueList((*given.items[:place], new, *given.items[place:]), given.dtype)


@converter("OptionalHasElement")
def has_element(c: OnnxCall) -> Value:
    return c.constant(np.bool_(c.has(0)), "bool")


@converter("ConcatFromSequence")
def concat_from(c: OnnxCall) -> Value:
    items, axis = c.sequence(0).items, c.attr("axis")
    if not items:
        raise c.error("an empty sequence cannot be joined")
    if c.attr("new_axis", 0):
        return stacked(c.builder, items, axis)
    return c.op("concatenate", *items, axis=axis) if len(items) > 1 else c.op("identity", items[0])


@converter("SplitToSequence")
def split_to(c: OnnxCall) -> ValueList:
    x = c.input(0)
    axis = c.attr("axis", 0) % max(x.ndim, 1)
    c.limit((x.shape[axis],), LARGEST_TABLE)
    sizes = _part_sizes(c, int(x.shape[axis]))
    begins = [int(e) for e in np.cumsum(sizes)[:-1]]
    parts = c.several("split", x, sections=tuple(begins), axis=axis) if begins else (c.op("identity", x),)
    if not c.has(1) and not c.attr("keepdims", 1):
        parts = tuple([c.op("squeeze", p, axis=axis) for p in parts])
    return ValueList(parts, x.dtype)


def _part_sizes(c: OnnxCall, extent: int) -> list[int]:
    split: Any = c.known(1) if c.has(1) else np.array(1)
    if np.ndim(split) == 0:
        each = int(split)
        if each < 1:
            raise c.error(f"parts of {each} elements")
        return [each] * (extent // each) + [extent % each] * (extent % each > 0)
    sizes = [int(e) for e in split]
    if min(sizes, default=0) < 0 or sum(sizes) != extent:
        raise c.error(f"parts of {sizes} elements do not make {extent}")
    return sizes
