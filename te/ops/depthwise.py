"""This module has the depthwise convolution."""

from __future__ import annotations

from typing import Any

from ...tir.expr import Expr, cast, const
from ..compute import compute
from ..reduce import reduce_axis, sum_
from ..tensor import Tensor
from ._common import accumulator, check_tensor, constant, per_dimension, require_same
from .conv import arranged, check_layout, output_extent, padded_input, with_bias
from .pad import window_padding


def depthwise_conv2d(
    data: Tensor,
    weight: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    layout: str = "NCHW",
    bias: Tensor | None = None,
    out_dtype: str | None = None,
    name: str = "",
) -> Tensor:
    """Returns a convolution of each channel by itself.

    data: (N, C, H, W), weight: (C, M, KH, KW) when ``layout`` is ``NCHW``; (N, H, W, C), (KH, KW, C, M) when it is
    ``NHWC``; output channel ``c * M + m`` is channel ``c`` with its ``m``-th kernel.
    """
    op = "depthwise_conv2d"
    check_tensor(op, data, 4, "the data")
    check_tensor(op, weight, 4, "the weight")
    channel, first = check_layout(op, layout, 2)
    at_c, at_k = (0, 2) if channel == 1 else (2, 0)
    strides, dilations = per_dimension(op, "stride", stride, 2), per_dimension(op, "dilation", dilation, 2)
    require_same(op, "the number of channels", data.shape[channel], weight.shape[at_c], data, weight)
    multiplier = constant(op, "the channel multiplier", weight.shape[at_c + 1])
    kernel = [constant(op, "the kernel's size", e) for e in weight.shape[at_k : at_k + 2]]
    windows = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    extents = data.shape[first : first + 2]
    before, after = window_padding(op, padding, windows, strides, extents)
    padded = padded_input(data, first, before, after)
    room = [
        output_extent(op, data, e, w, s, lo, hi)
        for e, w, s, lo, hi in zip(extents, windows, strides, before, after, strict=True)
    ]
    acc, out = accumulator(op, [data.dtype, weight.dtype], out_dtype)
    name = name or f"depthwise_conv2d_{layout.lower()}"
    ry, rx = reduce_axis((0, kernel[0]), name="ry"), reduce_axis((0, kernel[1]), name="rx")

    def f(*i: Expr) -> Any:
        c, y, x = i[channel], i[first], i[first + 1]
        source = c // multiplier
        pick = c % multiplier if multiplier > 1 else const(0)
        index: list[Any] = [i[0], None, None, None]
        index[channel] = source
        index[first] = y * strides[0] + ry.var * dilations[0]
        index[first + 1] = x * strides[1] + rx.var * dilations[1]
        w = weight(source, pick, ry, rx) if channel == 1 else weight(ry, rx, source, pick)
        return sum_(cast(acc, padded(*index)) * cast(acc, w), axis=[ry, rx])

    names = ["nn", "cc", "yy", "xx"] if channel == 1 else ["nn", "yy", "xx", "cc"]
    shape = arranged(data.shape[0], weight.shape[at_c] * multiplier, room, channel)
    plain = bias is not None or acc == out
    total = compute(shape, f, name if plain else f"{name}_acc", name, varargs_names=names)
    return with_bias(op, total, bias, channel, acc, out, name)
