"""This pass computes transposed convolutions as plain ones, so that no zeros are multiplied."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..graph import Graph, Value
from ..kernels import Services
from ..rules import Match, Rule, any_value, either, op, rewritten, rule

_OP, _x, _w = "conv2d_transpose", any_value("x"), any_value("w")


def split_transposed(graph: Graph, services: Services = Services()) -> Graph:
    """Put plain convolutions in place of transposed ones with strides.

    Before::

        y = conv2d_transpose(x, w, stride=2)

    After::

        w_1 = reshape(transpose(reshape(take(take(w)))))
        a = conv2d(x, w_1)
        y = depth_to_space(a, block=2)

    The results of a transposed convolution whose distance is a multiple of the stride are made by the same elements of the
    kernel. So each place between two strides is a channel of its own of a convolution with fewer elements ("sub-pixel
    convolution", Shi et al. 2016). The kernels are moved before the first call where they are constants.
    """
    return rewritten(graph, RULES)


@rule(either(op(_OP, _x, _w), op(_OP, _x, _w, any_value("b"))))
def transposed(m: Match) -> Value | None:
    """A transposed convolution is a convolution whose channels are then moved between the pixels.

    For all types, with sums in another order. Places that fewer elements of the kernel make are a convolution of their own where
    they have channels enough; otherwise the kernel is filled up with zeros to a multiple of the strides, so that NaN and infinite
    pixels also reach the up to stride - 1 places behind those that they belong to. A single row or column has any stride; it
    gets that of its kernel.
    """
    attrs, x, w, out = m.root.attrs, m["x"], m["w"], m.out
    low, groups = _befores(attrs.get("padding", 0)), attrs.get("groups", 1)
    plain = attrs.get("layout", "NCHW") == "NCHW" and not attrs.get("out_dtype")
    if not plain or low is None or not all(isinstance(d, int) for v in (x, out) for d in v.shape[1:]):
        return None
    channels, outputs, *kernel = w.shape
    strides = tuple([
        max(s, k) if extent == 1 else s
        for s, k, extent in zip(_pair(attrs.get("stride", 1)), kernel, x.shape[2:], strict=True)
    ])  # fmt: skip
    if max(strides) < 2:
        return None
    steps = [-(-k // s) for k, s in zip(kernel, strides, strict=True)]
    before, after = [], []
    for d, (s, t, p) in enumerate(zip(strides, steps, low, strict=True), 2):
        count = -(-(out.shape[d] + p) // s) - p // s  # results of the convolution that are needed
        before.append(t - 1 - p // s)
        after.append(count + t - 1 - x.shape[d] - before[-1])
    if min(before) < 0:
        return None
    ends = [a * s - k for a, s, k in zip(steps, strides, kernel, strict=True)]
    rows, columns = zip(strides, steps, ends, before, strict=True)
    together = outputs if groups == 1 else 0
    by_column = _runs(*columns, together)
    runs = [_runs(*rows, together if len(by_column) > 1 else together * strides[1]), by_column]
    more = [0 if len(r) > 1 else end for r, end in zip(runs, ends, strict=True)]
    if any(more):
        w = m.op("pad", w, pad_before=(0,) * 4, pad_after=(0, 0, *more))
    (s, t), (a, b), places = strides, steps, strides[0] * strides[1]
    pads = (*before, *[max(n, 0) for n in after])
    if groups > 1:  # the places of a channel follow one another; otherwise the channels of a place do, and are vectors
        parts = m.op("reshape", w, shape=(groups, channels // groups, outputs, a, s, b, t))
        if max(steps) > 1:
            parts = m.op("flip", parts, axis=(3, 5))
        kernels = m.op("transpose", parts, axes=(0, 2, 4, 6, 1, 3, 5))
        kernels = m.op("reshape", kernels, shape=(groups * outputs * places, channels // groups, a, b))
        bias = [_copies(m, (groups * outputs, 1), (groups * outputs, places))] if "b" in m else []
        wide, mode = m.op("conv2d", x, kernels, *bias, padding=pads, groups=groups), "CRD"
    else:
        lines = [_joined(m, [_places(m, w, strides, pads, r, c) for c in runs[1]], 2) for r in runs[0]]
        wide, mode = _joined(m, lines, 1), "DCR"
        wide = m.op("reshape", wide, shape=(wide.shape[0], places * outputs, *wide.shape[4:]))
    wide = m.op("depth_to_space", wide, block=strides, mode=mode)
    if wide.shape == out.shape:
        return wide
    if not x.is_static:
        return None
    begin = (0, 0, *[p % s for p, s in zip(low, strides, strict=True)])
    end = (out.shape[0], out.shape[1], begin[2] + out.shape[2], begin[3] + out.shape[3])
    return m.op("strided_slice", wide, begin=begin, end=end)


_WIDE = 16
"""Places are computed apart where their convolutions have so many channels at least: fewer do not fill vectors. With fewer
channels only the places of rows are, so that those of a row's columns fill them together."""

Run = tuple[range, int, int]
"""Places between two strides, the number of elements of the kernel that make them, and how many fewer these are than of others."""


def _runs(stride: int, steps: int, end: int, before: int, channels: int) -> list[Run]:
    """Returns the places of an axis in runs that are made by equally many elements of the kernel.

    There is one run where the places have too few ``channels``.
    """
    if not end or steps < 2 or not before or channels < _WIDE:
        return [(range(stride), steps, 0)]
    return [(range(stride - end), steps, 0), (range(stride - end, stride), steps - 1, 1)]


def _places(m: Match, w: Value, strides: tuple[int, ...], pads: tuple[int, ...], rows: Run, columns: Run) -> Value:
    """Returns the results at runs of places: (batch, rows, columns, outputs, …)."""
    depth, outputs = w.shape[:2]
    for axis, (stride, (run, steps, _)) in enumerate(zip(strides, (rows, columns), strict=True), 2):
        index = [n * stride + place for n in reversed(range(steps)) for place in run]
        if index != list(range(w.shape[axis])):
            w = m.op("take", w, m.constant(np.array(index)), axis=axis, mode="fast")
    (first, a, u), (second, b, v) = rows, columns
    parts = m.op("reshape", w, shape=(depth, outputs, a, len(first), b, len(second)))
    shape = (len(first) * len(second) * outputs, depth, a, b)
    kernels = m.op("reshape", m.op("transpose", parts, axes=(3, 5, 1, 0, 2, 4)), shape=shape)
    bias = [_copies(m, (1, outputs), (len(first) * len(second), outputs))] if "b" in m else []
    made = m.op("conv2d", m["x"], kernels, *bias, padding=(pads[0] - u, pads[1] - v, *pads[2:]), groups=1)
    return m.op("reshape", made, shape=(made.shape[0], len(first), len(second), outputs, *made.shape[2:]))


def _joined(m: Match, parts: list[Value], axis: int) -> Value:
    return parts[0] if len(parts) == 1 else m.op("concatenate", *parts, axis=axis)


def _copies(m: Match, row: tuple[int, int], sizes: tuple[int, int]) -> Value:
    """Returns the bias for each place."""
    copies = m.op("broadcast_to", m.op("reshape", m["b"], shape=row), shape=sizes)
    return m.op("reshape", copies, shape=(sizes[0] * sizes[1],))


@rule(either(op(_OP, _x, _w), op(_OP, _x, _w, any_value("b"))))
def of_single_pixels(m: Match) -> Value | None:
    """The transposed convolution of single pixels is a product of matrices."""
    attrs, x, w, out = m.root.attrs, m["x"], m["w"], m.out
    plain = attrs.get("layout", "NCHW") == "NCHW" and not attrs.get("out_dtype") and attrs.get("groups", 1) == 1
    sizes = [*x.shape[1:], *w.shape]
    if not plain or x.shape[2:] != (1, 1) or out.shape[1:] != w.shape[1:] or not all(isinstance(d, int) for d in sizes):
        return None
    if any(_befores(attrs.get("padding", 0)) or (1,)):
        return None
    rows = m.op("reshape", x, shape=x.shape[:2])
    made = m.op("matmul", rows, m.op("reshape", w, shape=(w.shape[0], math.prod(w.shape[1:]))))
    made = m.op("reshape", made, shape=out.shape)
    return m.op("add", made, m.op("reshape", m["b"], shape=(w.shape[1], 1, 1))) if "b" in m else made


def _pair(value: Any) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value, value)


def _befores(padding: Any) -> tuple[int, ...] | None:
    """Returns the padding before rows and columns; None where it is given by a word or in pairs."""
    numbers = _pair(padding) if not isinstance(padding, str) else ()
    return numbers[:2] if len(numbers) in (2, 4) and all(isinstance(n, int) for n in numbers) else None


RULES: tuple[Rule, ...] = (of_single_pixels, transposed)
