"""Converters of reductions, also over windows, of their gradients, and of batch normalization."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ...graph.graph import Value
from ...tir.expr import DType
from ..common import batch_normalized, reduced
from .hlo_call import Given, HloCall, applied, hlo, is_neutral, meaning
from .hlo_shapes import padded

_ROWS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}


@hlo("reduce")
def reduce(c: HloCall) -> tuple[Value, ...]:
    count = len(c.args) // 2
    axes = tuple(c.attribute("dimensions"))
    (region,) = c.regions
    name = meaning(region)
    if count == 1 and not axes:
        return tuple(_with_start(c, region, name, [c.x], c.args[1:]))
    if count == 1 and name in (*_ROWS, "and", "or"):
        out = _by_row(c, name, c.x, axes)
        if out is not None:
            return tuple(_with_start(c, region, name, [out], c.args[1:]))
    return tuple(folded(c, region, c.values[:count], c.args[count:], axes))


def _by_row(c: HloCall, name: str, x: Value, axes: tuple[int, ...]) -> Value | None:
    """Returns a reduction that the table of operators has; None for others."""
    if x.dtype != "bool":
        return reduced(c, _ROWS[name], x, axes) if name in _ROWS else None
    return reduced(c, "max" if name in ("or", "add", "maximum") else "min", x, axes)


def _with_start(c: HloCall, region: Any, name: str, found: list[Value], starts: Sequence[Given]) -> list[Value]:
    """Returns results combined with the start values, which are left out where they change nothing."""
    if len(found) == 1 and name and is_neutral(c, name, starts[0]):
        return found
    wide = [c.broadcast(c.value(s), v.shape) for s, v in zip(starts, found, strict=True)]
    return applied(c, region, [*wide, *found])


def folded(c: HloCall, region: Any, xs: list[Value], starts: Sequence[Given], axes: tuple[int, ...]) -> list[Value]:
    """Returns a reduction by any function: neighbours are combined, then pairs of neighbours, and so on."""
    others = [d for d in range(xs[0].ndim) if d not in axes]
    count = 1
    for a in axes:
        extent = xs[0].shape[a]
        if not isinstance(extent, int):
            raise c.error("this reduction over a symbolic size is not supported")
        count *= extent
    rest = [xs[0].shape[d] for d in others]
    order = (*axes, *others)
    parts = [c.op("reshape", c.op("transpose", x, axes=order), shape=(count, *rest)) for x in xs]
    if not count:
        return [c.broadcast(c.value(s), rest) for s in starts]
    while count > 1:
        even = count - count % 2
        first = [_every_other(c, p, 0, even) for p in parts]
        second = [_every_other(c, p, 1, even) for p in parts]
        combined = applied(c, region, [*first, *second])
        if count % 2:
            tails = [c.cut(p, [even, *[0] * len(rest)], [count, *rest]) for p in parts]
            combined = [c.op("concatenate", a, b, axis=0) for a, b in zip(combined, tails, strict=True)]
        parts, count = combined, count // 2 + count % 2
    found = [c.op("reshape", p, shape=tuple(rest)) for p in parts]
    return _with_start(c, region, meaning(region), found, starts)


def _every_other(c: HloCall, x: Value, first: int, end: int) -> Value:
    rest = x.shape[1:]
    return c.cut(x, [first, *[0] * len(rest)], [end, *rest], [2, *[1] * len(rest)])


@hlo("map")
def mapped(c: HloCall) -> tuple[Value, ...]:
    return tuple(applied(c, c.regions[0], c.values))


# batch normalization


def _per_channel(c: HloCall, x: Value, v: Value) -> Value:
    axis = c.attribute("feature_index")
    return c.op("reshape", v, shape=tuple(e if d == axis else 1 for d, e in enumerate(x.shape)))


def _axes(c: HloCall, x: Value) -> tuple[int, ...]:
    return tuple(d for d in range(x.ndim) if d != c.attribute("feature_index"))


def _root(c: HloCall, var: Value) -> Value:
    return c.op("sqrt", c.op("add", var, c.constant(c.attribute("epsilon"), var.dtype)))


@hlo("batch_norm_inference")
def batch_norm(c: HloCall) -> Value:
    x, scale, offset, mean, var = c.values
    return c.op("batch_norm", x, scale, offset, mean, var, axis=c.attribute("feature_index"),
                epsilon=float(c.attribute("epsilon")))  # fmt: skip


@hlo("batch_norm_training")
def batch_norm_training(c: HloCall) -> tuple[Value, ...]:
    x, scale, offset = c.values
    return batch_normalized(c, x, scale, offset, c.attribute("epsilon"), c.attribute("feature_index"))[:3]


@hlo("batch_norm_grad")
def batch_norm_gradient(c: HloCall) -> tuple[Value, ...]:
    x, scale, mean, var, given = c.values
    axes = _axes(c, x)
    if not DType(x.dtype).is_float:
        raise c.error("floats are needed")
    root = _per_channel(c, x, _root(c, var))
    normal = c.op("divide", c.op("subtract", x, _per_channel(c, x, mean)), root)
    of_offset = c.op("sum", given, axis=axes)
    of_scale = c.op("sum", c.op("multiply", given, normal), axis=axes)
    count = 1
    for a in axes:
        count = count * x.shape[a]
    part = c.constant(1 / count, x.dtype)
    mean_given = c.op("multiply", _per_channel(c, x, of_offset), part)
    mean_along = c.op("multiply", _per_channel(c, x, of_scale), part)
    inner = c.op("subtract", c.op("subtract", given, mean_given), c.op("multiply", normal, mean_along))
    return c.op("divide", c.op("multiply", inner, _per_channel(c, x, scale)), root), of_scale, of_offset


LARGEST_WINDOW = 1024
"""Windows of more elements are not supported."""


@dataclass(frozen=True)
class HloWindows:
    """The windows of an operation, with a number per dimension for each property. These are the extent, the step from
    one to the next, the step inside, the gaps between elements, and what is put before and behind."""

    sizes: list[int]
    strides: list[int]
    dilations: list[int]
    gaps: list[int]
    pads: list[tuple[int, int]]

    @staticmethod
    def of(c: HloCall, rank: int) -> HloWindows:
        """Returns what the attributes of an operation say."""
        ones = [1] * rank
        pads = [(a, b) for a, b in c.attribute("padding", [[0, 0]] * rank)]
        gaps = [d - 1 for d in c.attribute("base_dilations", ones)]
        return HloWindows(c.attribute("window_dimensions"), c.attribute("window_strides", ones),
                       c.attribute("window_dilations", ones), gaps, pads)  # fmt: skip

    def places(self) -> Iterator[tuple[int, ...]]:
        """Yields the places in a window."""
        return product(*[range(s) for s in self.sizes])

    def counts(self, shape: Sequence[int]) -> list[int]:
        """Returns how many windows there are in an operand of that shape, per dimension."""
        out = []
        for d, extent in enumerate(shape):
            room = (extent - 1) * (self.gaps[d] + 1) + 1 + sum(self.pads[d]) if extent else sum(self.pads[d])
            out.append(max((room - (self.sizes[d] - 1) * self.dilations[d] - 1) // self.strides[d] + 1, 0))
        return out

    def part(self, c: HloCall, x: Value, place: Sequence[int], counts: Sequence[int]) -> Value:
        """Returns the elements of the padded ``x`` that lie at one place of their windows."""
        begin = [p * d for p, d in zip(place, self.dilations, strict=True)]
        end = [b + (n - 1) * s + 1 for b, n, s in zip(begin, counts, self.strides, strict=True)]
        return c.cut(x, begin, end, self.strides)


@hlo("reduce_window")
def reduce_window(c: HloCall) -> tuple[Value, ...]:
    count = len(c.args) // 2
    xs, starts = c.values[:count], c.args[count:]
    windows = HloWindows.of(c, xs[0].ndim)
    (region,) = c.regions
    name = meaning(region)
    simple = count == 1 and is_neutral(c, name, starts[0])
    if simple and name == "maximum" and _is_pooling(xs[0], windows):
        return (_pooled(c, xs[0], windows),)
    along = _running_axis(xs[0], windows)
    if simple and along is not None:
        return (_running(c, region, xs[0], starts[0], along, windows.pads[along][0] > 0),)
    if math.prod(windows.sizes) > LARGEST_WINDOW:
        raise c.error(f"windows of more than {LARGEST_WINDOW} elements are not supported")
    low, high = [a for a, _ in windows.pads], [b for _, b in windows.pads]
    wide = [padded(c, x, s, low, high, windows.gaps) for x, s in zip(xs, starts, strict=True)]
    counts = windows.counts(xs[0].shape)
    if 0 in counts:
        return tuple(c.broadcast(c.value(s), counts) for s in starts)
    total = [] if simple else [c.broadcast(c.value(s), counts) for s in starts]
    for place in windows.places():
        parts = [windows.part(c, x, place, counts) for x in wide]
        total = applied(c, region, [*total, *parts]) if total else parts
    return tuple(total)


def _is_pooling(x: Value, windows: HloWindows) -> bool:
    inner = _inner(windows)
    return 1 <= len(inner) <= 3 and not any(windows.gaps) and x.is_static and DType(x.dtype).is_float


def _inner(windows: HloWindows) -> list[int]:
    """Returns the dimensions along which windows have extents."""
    every = zip(windows.sizes, windows.strides, windows.pads, strict=True)
    return [d for d, (size, stride, pads) in enumerate(every) if size > 1 or stride > 1 or any(pads)]


def _pooled(c: HloCall, x: Value, windows: HloWindows) -> Value:
    inner = _inner(windows)
    outer = [d for d in range(x.ndim) if d not in inner]
    low = [min(windows.pads[d]) for d in inner]
    n = len(inner)
    order = [*outer, *inner]
    moved = x if order == list(range(x.ndim)) else c.op("transpose", x, axes=tuple(order))
    lead = [x.shape[d] for d in outer]
    two = lead if len(lead) == 2 else [1, math.prod(lead)]
    if len(lead) != 2:
        moved = c.op("reshape", moved, shape=(*two, *[x.shape[d] for d in inner]))
    if min(low) < 0:
        raise c.error("windows that cut off elements are not supported")
    pads = (*[windows.pads[d][0] for d in inner], *[windows.pads[d][1] for d in inner])
    out = c.op(
        f"max_pool{n}d", moved, kernel=tuple(windows.sizes[d] for d in inner), padding=pads,
        stride=tuple(windows.strides[d] for d in inner), dilation=tuple(windows.dilations[d] for d in inner),
    )  # fmt: skip
    if len(lead) != 2:
        out = c.op("reshape", out, shape=(*lead, *out.shape[2:]))
    back = tuple(int(d) for d in np.argsort(order))
    return out if back == tuple(range(x.ndim)) else c.op("transpose", out, axes=back)


def _running_axis(x: Value, windows: HloWindows) -> int | None:
    """Returns the axis along which windows reach from one end up to each element; None for other windows."""
    inner = _inner(windows)
    if len(inner) != 1 or any(windows.gaps):
        return None
    (d,) = inner
    size = windows.sizes[d]
    whole = size == x.shape[d] and windows.strides[d] == windows.dilations[d] == 1
    return d if whole and windows.pads[d] in ((size - 1, 0), (0, size - 1)) else None


def _running(c: HloCall, region: Any, x: Value, start: Any, axis: int, forwards: bool) -> Value:
    """Returns what a function makes of all elements up to each one. It takes as many steps as the extent has binary
    digits."""
    extent, far, none = x.shape[axis], 1, [0] * x.ndim
    while far < extent:
        move = [far if d == axis else 0 for d in range(x.ndim)]
        back = [-far if d == axis else 0 for d in range(x.ndim)]
        shifted = padded(c, x, start, *((move, back) if forwards else (back, move)), none)
        (x,) = applied(c, region, [shifted, x] if forwards else [x, shifted])
        far *= 2
    return x


@hlo("select_and_scatter")
def select_and_scatter(c: HloCall) -> Value:
    x, source = c.values[:2]
    windows = HloWindows.of(c, x.ndim)
    select, scatter = c.regions
    if not x.is_static or math.prod(windows.sizes) > LARGEST_WINDOW:
        raise c.error("windows of symbolic sizes, and large ones, are not supported")
    counts = windows.counts(x.shape)
    chosen = _chosen(c, x, windows, select, counts)
    low, high = [a for a, _ in windows.pads], [b for _, b in windows.pads]
    room = [e + a + b for e, a, b in zip(x.shape, low, high, strict=True)]
    add = meaning(scatter) == "add"
    zero = c.constant(0, x.dtype)
    total = c.broadcast(c.value(2), room)
    for n, place in enumerate(windows.places()):
        hit = c.op("equal", chosen, c.constant(n, "int32"))
        ends = [e - p - (k - 1) * s - 1 for e, p, k, s in zip(room, place, counts, windows.strides, strict=True)]
        gaps = [s - 1 for s in windows.strides]
        part = c.op("where", hit, source, c.constant(0, source.dtype))
        moved = padded(c, part, zero, place, ends, gaps)
        if add:
            total = c.op("add", total, moved)
            continue
        mask = padded(c, c.op("cast", hit, dtype="uint8"), c.constant(0, "uint8"), place, ends, gaps)
        (new,) = applied(c, scatter, [total, moved])
        total = c.op("where", c.op("not_equal", mask, c.constant(0, "uint8")), new, total)
    return c.cut(total, low, [e - b for e, b in zip(room, high, strict=True)])


def _chosen(c: HloCall, x: Value, windows: HloWindows, select: Any, counts: list[int]) -> Value:
    """Returns the number of the place in each window whose element is selected."""
    low, high = [a for a, _ in windows.pads], [b for _, b in windows.pads]
    wide = padded(c, x, c.constant(0, x.dtype), low, high, [0] * x.ndim)
    inside = np.pad(np.ones(x.shape, bool), list(zip(low, high, strict=True)))
    best = windows.part(c, wide, [0] * x.ndim, counts)
    chosen = c.full(counts, 0, "int32")
    ready = np.zeros(counts, bool)
    for n, place in enumerate(windows.places()):
        span = [slice(p, p + (k - 1) * s + 1, s) for p, k, s in zip(place, counts, windows.strides, strict=True)]
        valid = inside[tuple(span)]
        value = windows.part(c, wide, place, counts)
        (keep,) = applied(c, select, [best, value])
        if not ready.all():
            keep = c.op("logical_and", keep, c.constant(ready, "bool"))
        take = c.op("logical_not", keep)
        if not valid.all():
            take = c.op("logical_and", take, c.constant(valid, "bool"))
        best, chosen = c.op("where", take, value, best), c.op("where", take, c.constant(n, "int32"), chosen)
        ready = ready | valid
    return chosen
