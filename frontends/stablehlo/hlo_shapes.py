"""Converters of operations that move, cut and join elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph.graph import Value
from .. import common
from .hlo_call import Given, HloCall, hlo


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
