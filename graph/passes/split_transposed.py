"""This pass computes transposed convolutions as plain ones, so that no zeros are multiplied."""

from __future__ import annotations

import math
from typing import Any

from ..graph import Graph, Value
from ..kernels import Services
from ..rules import Match, Rule, any_value, either, op, rewritten, rule

_OP, _x, _w = "conv2d_transpose", any_value("x"), any_value("w")


def split_transposed(graph: Graph, services: Services = Services()) -> Graph:
    """Put plain convolutions in place of transposed ones with strides.

    Before::

        y = conv2d_transpose(x, w, stride=2)

    After::

        w_1 = reshape(transpose(flip(reshape(w))))
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

    For all types, with sums in another order. The kernel is filled up with zeros to a multiple of the strides, so that NaN and
    infinite pixels also reach the up to stride - 1 places behind those that they belong to. A single row or column has any
    stride; it gets that of its kernel.
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
    if any(ends):
        w = m.op("pad", w, pad_before=(0,) * 4, pad_after=(0, 0, *ends))
    (s, t), (a, b), places = strides, steps, strides[0] * strides[1]
    # with groups, the places of a channel follow one another; otherwise the channels of a place do, and are vectors
    order, mode = ((0, 2, 4, 6, 1, 3, 5), "CRD") if groups > 1 else ((4, 6, 0, 2, 1, 3, 5), "DCR")
    depth = channels // groups
    parts = m.op("reshape", w, shape=(groups, depth, outputs, a, s, b, t))
    if max(steps) > 1:
        parts = m.op("flip", parts, axis=(3, 5))
    kernels = m.op("reshape", m.op("transpose", parts, axes=order), shape=(groups * outputs * places, depth, a, b))
    bias = []
    if "b" in m:
        all_outputs = groups * outputs
        row, sizes = (
            ((1, all_outputs), (places, all_outputs)) if mode == "DCR" else ((all_outputs, 1), (all_outputs, places))
        )
        copies = m.op("broadcast_to", m.op("reshape", m["b"], shape=row), shape=sizes)
        bias = [m.op("reshape", copies, shape=(all_outputs * places,))]
    padding = (*before, *[max(n, 0) for n in after])
    wide = m.op("conv2d", x, kernels, *bias, padding=padding, groups=groups)
    wide = m.op("depth_to_space", wide, block=strides, mode=mode)
    if wide.shape == out.shape:
        return wide
    if not x.is_static:
        return None
    begin = (0, 0, *[p % s for p, s in zip(low, strides, strict=True)])
    end = (out.shape[0], out.shape[1], begin[2] + out.shape[2], begin[3] + out.shape[3])
    return m.op("strided_slice", wide, begin=begin, end=end)


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
