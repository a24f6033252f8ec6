"""Converters of gradients: convolutions, normalizations, tables of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...graph.graph import Value
from ..common import convolution, transposed_convolution
from .aten_call import AtenCall, aten
from .aten_products import each


@aten("convolution_backward")
def convolution_gradients(
    c: AtenCall, gradient: Value, x: Value, weight: Value, bias_sizes: Any, *rest: Any
) -> tuple[Value | None, ...]:
    stride, padding, dilation, transposed, _, groups, wanted = rest
    n = weight.ndim - 2
    window: dict[str, Any] = {"stride": each(stride, n), "padding": each(padding, n) * 2, "dilation": each(dilation, n)}
    out: list[Value | None] = [None, None, None]
    if wanted[0] and transposed:
        out[0] = convolution(c, gradient, weight, None, groups=groups, **window)
    elif wanted[0]:
        numbers = (window["stride"], each(padding, n), window["dilation"])
        every = zip(x.shape[2:], gradient.shape[2:], weight.shape[2:], *numbers, strict=True)
        more = [e - ((g - 1) * s - 2 * p + d * (k - 1) + 1) for e, g, k, s, p, d in every]
        out[0] = transposed_convolution(c, gradient, weight, None, output_padding=more, groups=groups, **window)
    if wanted[1]:
        data, other = (gradient, x) if transposed else (x, gradient)
        out[1] = _of_weight(c, data, other, weight.shape, groups, window)
    if wanted[2]:
        out[2] = c.op("sum", gradient, axis=(0, *range(2, n + 2)))
    return tuple(out)


def _of_weight(
    c: AtenCall, data: Value, gradient: Value, shape: Sequence[int], groups: int, window: dict[str, Any]
) -> Value:
    """Returns the gradient of the weights. It is a convolution of the data by the gradient, over the batch in place of
    channels."""
    batch, channels, *space = data.shape
    n = len(space)
    parts = c.op("reshape", data, shape=(batch, groups, channels // groups, *space))
    parts = c.op("transpose", parts, axes=(2, 1, 0, *range(3, n + 3)))
    parts = c.op("reshape", parts, shape=(channels // groups, groups * batch, *space))
    kernels = c.op("transpose", gradient, axes=(1, 0, *range(2, n + 2)))
    out = c.op(
        f"conv{n}d", parts, kernels, None, stride=window["dilation"], padding=window["padding"],
        dilation=window["stride"], groups=groups,
    )  # fmt: skip
    out = c.op("transpose", out, axes=(1, 0, *range(2, n + 2)))
    end = tuple(shape)
    return out if out.shape == end else c.op("strided_slice", out, begin=(0,) * out.ndim, end=end)


@aten("native_layer_norm_backward")
def layer_norm_gradients(
    c: AtenCall, gradient: Value, x: Value, shape: Any, mean: Value, root: Value, weight: Value | None,
    bias: Value | None, wanted: Sequence[bool],
) -> tuple[Value | None, ...]:  # fmt: skip
    lead = x.ndim - len(shape)
    inner, outer = tuple(range(lead, x.ndim)), tuple(range(lead))
    normal = c.op("multiply", c.op("subtract", x, c.cast(mean, x.dtype)), c.cast(root, x.dtype))
    scaled = gradient if weight is None else c.op("multiply", gradient, weight)
    of_x = c.op("multiply", _centred(c, scaled, normal, inner), c.cast(root, x.dtype)) if wanted[0] else None
    of_weight = _summed(c, c.op("multiply", gradient, normal), outer) if wanted[1] else None
    return of_x, of_weight, _summed(c, gradient, outer) if wanted[2] else None


def _centred(c: AtenCall, gradient: Value, normal: Value, axes: tuple[int, ...]) -> Value:
    """Returns the gradient without its mean, and without its part along the normalized data."""
    mean = c.op("mean", gradient, axis=axes, keepdims=True)
    along = c.op("mean", c.op("multiply", gradient, normal), axis=axes, keepdims=True)
    return c.op("subtract", c.op("subtract", gradient, mean), c.op("multiply", normal, along))


def _summed(c: AtenCall, x: Value, axes: tuple[int, ...]) -> Value:
    return c.op("sum", x, axis=axes) if axes else c.op("identity", x)


@aten("native_group_norm_backward")
def group_norm_gradients(
    c: AtenCall, gradient: Value, x: Value, mean: Value, root: Value, weight: Value | None, *rest: Any
) -> tuple[Value | None, ...]:
    batch, channels, space, groups, wanted = rest
    shape = (batch, groups, channels // groups, space)
    parts, given = [c.op("reshape", v, shape=shape) for v in (x, gradient)]
    middle, scale = [c.op("reshape", v, shape=(batch, groups, 1, 1)) for v in (mean, root)]
    normal = c.op("multiply", c.op("subtract", parts, middle), scale)
    scaled = given
    if weight is not None:
        scaled = c.op("multiply", given, c.op("reshape", weight, shape=(1, groups, channels // groups, 1)))
    out: list[Value | None] = [None, None, None]
    if wanted[0]:
        out[0] = c.op("reshape", c.op("multiply", _centred(c, scaled, normal, (2, 3)), scale), shape=x.shape)
    if wanted[1]:
        total = c.op("sum", c.op("multiply", given, normal), axis=(0, 3))
        out[1] = c.op("reshape", total, shape=(channels,))
    if wanted[2]:
        out[2] = c.op("reshape", c.op("sum", given, axis=(0, 3)), shape=(channels,))
    return tuple(out)


@aten("embedding_dense_backward")
def embedding_gradient(
    c: AtenCall, gradient: Value, indices: Value, rows: int, padding: int, by_frequency: bool
) -> Value:
    count, width = math.prod(indices.shape), gradient.shape[-1]
    flat = c.op("reshape", indices, shape=(count, 1))
    new = c.op("reshape", gradient, shape=(count, width))
    if by_frequency:
        ones = c.full((count, 1), 1, gradient.dtype)
        often = c.op("scatter_nd", c.full((rows, 1), 0, gradient.dtype), flat, ones, reduction="add")
        new = c.op("divide", new, c.op("gather_nd", often, flat))
    out = c.op("scatter_nd", c.full((rows, width), 0, gradient.dtype), flat, new, reduction="add")
    if padding < 0:
        return out
    here = c.op("equal", c.op("reshape", c.constant(list(range(rows))), shape=(rows, 1)), c.constant(padding, "int64"))
    return c.op("where", here, c.constant(0, out.dtype), out)
