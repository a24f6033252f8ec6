"""This module has the depthwise convolution."""

from __future__ import annotations

from typing import Any

from ...tir.expr import Expr, cast, const
from ..compute import compute
from ..reduce import reduce_axis, sum_
from ..tensor import Tensor
from .blocks.operator_arguments import accumulator, check_tensor, constant, require_same
from .blocks.result_stages import with_bias
from .blocks.windows import Windows, arranged, check_layout


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
    channel, _ = check_layout(op, layout, 2)
    at_c, at_k = (0, 2) if channel == 1 else (2, 0)
    requires = require_same(op, "the number of channels", data.shape[channel], weight.shape[at_c], data, weight)
    multiplier = constant(op, "the channel multiplier", weight.shape[at_c + 1])
    kernel = [constant(op, "the kernel's size", e) for e in weight.shape[at_k : at_k + 2]]
    windows = Windows.of(op, data, layout, kernel, stride, padding, dilation)
    padded, room = windows.padded(), windows.counts()
    acc, out = accumulator(op, [data.dtype, weight.dtype], out_dtype)
    name = name or f"depthwise_conv2d_{layout.lower()}"
    ry, rx = reduce_axis((0, kernel[0]), name="ry"), reduce_axis((0, kernel[1]), name="rx")

    def f(*i: Expr) -> Any:
        c = i[channel]
        source = c // multiplier
        pick = c % multiplier if multiplier > 1 else const(0)
        w = weight(source, pick, ry, rx) if channel == 1 else weight(ry, rx, source, pick)
        return sum_(cast(acc, padded(*windows.index(i, source, [ry.var, rx.var]))) * cast(acc, w), axis=[ry, rx])

    shape = arranged(data.shape[0], weight.shape[at_c] * multiplier, room, channel)
    plain = bias is not None or acc == out
    names = arranged("nn", "cc", ["yy", "xx"], channel)
    total = compute(
        shape, f, name if plain else f"{name}_acc", name, varargs_names=names, requires=[*requires, *windows.requires()]
    )
    return with_bias(op, total, bias, channel, acc, out, name)
