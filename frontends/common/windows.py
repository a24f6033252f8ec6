"""Convolutions, transposed convolutions and maxima of windows, in one to three dimensions.

``stride``, ``dilation`` and the sizes of windows have a number for each spatial dimension; ``padding`` has those before
all of them, then those behind. Data is (N, C, spatial …).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...graph.graph import Value
from ...tir.expr import Expr
from .graph_call import GraphCall
from .shapes import padded


def convolution(
    c: GraphCall,
    x: Value,
    weight: Value,
    bias: Value | None,
    *,
    stride: Sequence[int],
    padding: Sequence[Any],
    dilation: Sequence[int],
    groups: int = 1,
    out_dtype: str | None = None,
) -> Value:
    """Returns a convolution by kernels (O, C / groups, spatial …); one group for each channel is a depthwise one."""
    n = x.ndim - 2
    _require_dimensions(c, n)
    attrs: dict[str, Any] = {"stride": tuple(stride), "padding": tuple(padding), "dilation": tuple(dilation)}
    if out_dtype is not None:
        attrs["out_dtype"] = out_dtype
    if n == 2 and groups > 1 and groups == x.shape[1] and weight.shape[1] == 1 and weight.shape[0] % groups == 0:
        kernels = c.op("reshape", weight, shape=(groups, weight.shape[0] // groups, *weight.shape[2:]))
        return c.op("depthwise_conv2d", x, kernels, bias, **attrs)
    return c.op(f"conv{n}d", x, weight, bias, groups=groups, **attrs)


def transposed_convolution(
    c: GraphCall,
    x: Value,
    weight: Value,
    bias: Value | None,
    *,
    stride: Sequence[int],
    padding: Sequence[Any],
    dilation: Sequence[int],
    output_padding: Sequence[Any],
    groups: int = 1,
) -> Value:
    """Returns a transposed convolution by kernels (C, O / groups, spatial …), with ``output_padding`` more elements behind.

    The operator of the graph computes the usual ones in two dimensions. Others are a convolution of the data with zeros
    between its elements, by flipped kernels.
    """
    n = x.ndim - 2
    _require_dimensions(c, n)
    usual = all(d == 1 for d in dilation) and all(isinstance(p, int) and p >= 0 for p in padding)
    if n == 2 and usual and all(isinstance(e, Expr) or e < s for e, s in zip(output_padding, stride, strict=True)):
        options = {"stride": tuple(stride), "padding": tuple(padding), "output_padding": tuple(output_padding)}
        return c.op("conv2d_transpose", x, weight, bias, groups=groups, **options)
    channels, outputs, *sizes = weight.shape
    flipped = c.op("flip", weight, axis=tuple(range(2, n + 2)))
    parts = c.op("reshape", flipped, shape=(groups, channels // groups, outputs, *sizes))
    turned = c.op("transpose", parts, axes=(0, 2, 1, *range(3, n + 3)))
    kernels = c.op("reshape", turned, shape=(groups * outputs, channels // groups, *sizes))
    reach = [(k - 1) * d for k, d in zip(sizes, dilation, strict=True)]
    low = [r - p for r, p in zip(reach, padding[:n], strict=True)]
    high = [r - p + e for r, p, e in zip(reach, padding[n:], output_padding, strict=True)]
    wide = padded(c, x, [0, 0, *low], [0, 0, *high], gaps=[0, 0, *[s - 1 for s in stride]])
    return c.op(f"conv{n}d", wide, kernels, bias, dilation=tuple(dilation), groups=groups)


def max_pool(
    c: GraphCall,
    x: Value,
    *,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool = False,
    positions: bool = False,
    column_major: bool = False,
) -> tuple[Value, ...]:
    """Returns the maxima of windows, and with ``positions`` where they are in the flattened ``x``.

    ``ceil_mode``: windows may reach beyond the padding. ``column_major``: positions in a plane are counted with the first
    spatial dimension innermost.
    """
    n = x.ndim - 2
    _require_dimensions(c, n)
    attrs: dict[str, Any] = {"kernel": tuple(kernel), "stride": tuple(stride), "dilation": tuple(dilation)}
    out = c.op(f"max_pool{n}d", x, padding=tuple(padding), ceil_mode=ceil_mode, **attrs)
    if not positions:
        return (out,)
    high = list(padding[n:])
    if ceil_mode:  # the padding that the last windows reach
        if not x.is_static:
            raise c.error("positions of maxima with ceil_mode need known sizes; shapes= can give them")
        for d, (extent, count) in enumerate(zip(x.shape[2:], out.shape[2:], strict=True)):
            reach = (count - 1) * stride[d] + (kernel[d] - 1) * dilation[d] + 1
            high[d] = max(high[d], reach - extent - padding[d])
    found = c.op("max_pool_positions", x, padding=(*padding[:n], *high), column_major=column_major, **attrs)
    if ceil_mode and found.shape != out.shape:  # more padding than needed makes windows that lie in it only
        found = c.op("strided_slice", found, begin=(0,) * found.ndim, end=out.shape)
    return out, found


def _require_dimensions(c: GraphCall, n: int) -> None:
    """Raise the reader's error for windows of other than one to three dimensions."""
    if n not in (1, 2, 3):
        raise c.error(f"windows in {n} dimensions are not supported; there are those in 1, 2 and 3")
