"""This pass computes transposed convolutions as plain ones, so that no zeros are multiplied."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph import Graph, Value
from ..kernels import Services
from ..rules import Match, Rule, any_value, constant, either, op, rewritten, rule

_OP, _x, _w = "conv2d_transpose", any_value("x"), constant("w")


def split_transposed(graph: Graph, services: Services = Services()) -> Graph:
    """Put plain convolutions in place of transposed ones with strides and constant weights.

    Before::

        y = conv2d_transpose(x, w, stride=2)

    After::

        a = conv2d(x, w_1)
        y = depth_to_space(a, block=2)

    The results of a transposed convolution whose distance is a multiple of the stride are made by the same elements of the
    kernel. So each place between two strides is a channel of its own of a convolution with fewer elements ("sub-pixel
    convolution", Shi et al. 2016).
    """
    return rewritten(graph, RULES)


@rule(either(op(_OP, _x, _w), op(_OP, _x, _w, constant("b"))))
def transposed(m: Match) -> Value | None:
    """A transposed convolution is a convolution whose channels are then moved between the pixels.

    For all types, with sums in another order. The kernel is filled up with zeros to a multiple of the strides, so that NaN and
    infinite pixels also reach the up to stride - 1 places behind those that they belong to.
    """
    attrs, x, out = m.root.attrs, m["x"], m.out
    strides, low = _pair(attrs.get("stride", 1)), _befores(attrs.get("padding", 0))
    plain = attrs.get("groups", 1) == 1 and attrs.get("layout", "NCHW") == "NCHW" and not attrs.get("out_dtype")
    if not plain or low is None or max(strides) < 2:
        return None
    if not all(isinstance(d, int) for v in (x, out) for d in v.shape[1:]):
        return None
    weight = m.array("w")
    steps = [-(-k // s) for k, s in zip(weight.shape[2:], strides, strict=True)]
    before, after = [], []
    for d, (s, t, p) in enumerate(zip(strides, steps, low, strict=True), 2):
        count = -(-(out.shape[d] + p) // s) - p // s  # results of the convolution that are needed
        before.append(t - 1 - p // s)
        after.append(count + t - 1 - x.shape[d] - before[-1])
    if min(before) < 0:
        return None
    bias = [m.constant(np.tile(m.array("b"), strides[0] * strides[1]), m["b"].dtype)] if "b" in m else []
    padding = (*before, *[max(n, 0) for n in after])
    made = m.op("conv2d", x, m.constant(_by_place(weight, strides, steps), m["w"].dtype), *bias, padding=padding)
    wide = m.op("depth_to_space", made, block=strides)
    begin = (0, 0, *[p % s for p, s in zip(low, strides, strict=True)])
    if wide.shape == out.shape:
        return wide
    if not x.is_static:
        return None
    end = (out.shape[0], out.shape[1], begin[2] + out.shape[2], begin[3] + out.shape[3])
    return m.op("strided_slice", wide, begin=begin, end=end)


def _by_place(weight: Any, strides: tuple[int, ...], steps: list[int]) -> Any:
    """Returns the weights of (C, O, K, L) by place in the block. Their dimensions are the place and the channel of the
    result, the channel of the operand, and the steps."""
    (c, o, k, n), (s, t), (a, b) = weight.shape, strides, steps
    full = np.pad(weight, ((0, 0), (0, 0), (0, a * s - k), (0, b * t - n)))
    parts = full.reshape(c, o, a, s, b, t)[:, :, ::-1, :, ::-1, :]
    return np.asarray(parts.transpose(3, 5, 1, 0, 2, 4), order="C").reshape(s * t * o, c, a, b)


def _pair(value: Any) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value, value)


def _befores(padding: Any) -> tuple[int, ...] | None:
    """Returns the padding before rows and columns; None where it is given by a word or in pairs."""
    numbers = _pair(padding) if not isinstance(padding, str) else ()
    return numbers[:2] if len(numbers) in (2, 4) and all(isinstance(n, int) for n in numbers) else None


RULES: tuple[Rule, ...] = (transposed,)
