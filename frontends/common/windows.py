"""Padding, and what goes over windows: convolutions, transposed convolutions and maxima in one to three dimensions.

``stride``, ``dilation`` and the sizes of windows have a number for each spatial dimension; ``padding`` has those before
all of them, then those behind. Data is (N, C, spatial …).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph.graph import Value
from ...tir.expr import Expr
from ...tir.expr.dtype import from_bits, kept_as_bits
from .graph_call import GraphCall


def known_number(c: GraphCall, value: Value) -> Any:
    """Returns the number that a constant of one element is, or None for another value."""
    data = c.builder.constants.get(value)
    if data is None or data.size != 1:
        return None
    if kept_as_bits(value.dtype):
        data = from_bits(data, value.dtype)
    return data.reshape(-1)[0].item()


def spread(c: GraphCall, x: Value, gaps: Sequence[int], fill: Any = 0) -> Value:
    """Returns ``x`` with ``gaps[d]`` elements ``fill`` between each two along dimension ``d``."""
    for axis, gap in enumerate(gaps):
        extent = x.shape[axis]
        if not gap or (isinstance(extent, int) and extent < 2):
            continue
        wide = c.op("expand_dims", x, axis=axis + 1)
        after = tuple(gap if d == axis + 1 else 0 for d in range(wide.ndim))
        wide = c.op("pad", wide, pad_before=(0,) * wide.ndim, pad_after=after, value=fill)
        shape = [*x.shape[:axis], extent * (gap + 1), *x.shape[axis + 1 :]]
        flat = c.op("reshape", wide, shape=tuple(shape))
        shape[axis] -= gap
        x = c.op("strided_slice", flat, begin=(0,) * x.ndim, end=tuple(shape))
    return x


def padded(
    c: GraphCall,
    x: Value,
    low: Sequence[int],
    high: Sequence[int],
    fill: Any = 0,
    gaps: Sequence[int] = (),
    mode: str = "constant",
) -> Value:
    """Returns ``x`` with ``low[d]`` elements before and ``high[d]`` behind it along each dimension; ``x`` itself without any.

    Negative numbers cut elements off first. ``fill`` is a number, or a value of one element. ``gaps`` of it stand between
    each two elements (:func:`spread`). ``mode``: ``constant``, or elements of ``x`` by ``reflect``, ``edge`` or ``wrap``.
    """
    number = known_number(c, fill) if isinstance(fill, Value) else fill
    if number is None and mode == "constant" and not any(gaps or ()) and min((*low, *high), default=0) >= 0:
        ends = {"pad_before": tuple(low), "pad_after": tuple(high)}
        return c.op("pad", x, c.op("reshape", fill, shape=()), **ends) if any((*low, *high)) else x
    if number is None and mode == "constant":  # it is put where the same padding of a mask says so
        inside = c.op("broadcast_to", c.constant(True, "bool"), shape=x.shape)
        inside, wide = [padded(c, v, low, high, 0, gaps) for v in (inside, x)]
        return c.op("where", inside, wide, c.op("reshape", fill, shape=()))
    number = bool(number) if x.dtype == "bool" else number
    x = spread(c, x, gaps, number)
    if min((*low, *high), default=0) < 0:
        left = [e + min(b, 0) + min(a, 0) for b, e, a in zip(low, x.shape, high, strict=True)]
        x = c.op("strided_slice", x, begin=tuple([max(-b, 0) for b in low]), end=tuple(left), slice_mode="size")
    before, after = tuple([max(b, 0) for b in low]), tuple([max(a, 0) for a in high])
    if not any((*before, *after)):
        return x
    if mode == "wrap":
        return _wrapped(c, x, before, after)
    return c.op("pad", x, pad_before=before, pad_after=after, value=0 if number is None else number, mode=mode)


def _wrapped(c: GraphCall, x: Value, before: Sequence[int], after: Sequence[int]) -> Value:
    """Returns ``x`` repeated at both ends of each dimension, also more than once."""
    if all(isinstance(e, int) and max(b, a) <= e for b, e, a in zip(before, x.shape, after, strict=True)):
        return c.op("pad", x, pad_before=before, pad_after=after, mode="wrap")
    for d in range(x.ndim):
        if before[d] or after[d]:
            place = c.places(before[d] + x.shape[d] + after[d])
            index = c.op("subtract", place, c.constant(before[d], place.dtype))
            x = c.op("take", x, c.op("floor_mod", index, c.size(x.shape[d], index.dtype)), axis=d)
    return x


def picked(c: GraphCall, x: Value, low: Sequence[int], counts: Sequence[int], mode: str) -> Value:
    """Returns ``x`` padded and cut at once: elements picked along each dimension, those outside from the whole of ``x``.

    ``counts`` are the extents of the result, ``mode`` is ``reflect`` or ``edge``.
    """
    for axis, (before, count) in enumerate(zip(low, counts, strict=True)):
        extent = x.shape[axis]
        place = np.arange(count) - before
        place = extent - 1 - abs(extent - 1 - abs(place)) if mode == "reflect" else place.clip(0, extent - 1)
        if before or count != extent:
            x = c.op("take", x, c.constant(place), axis=axis, mode="fast")
    return x


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

    The operator of the graph computes the usual ones in one and two dimensions. Others are a convolution of the data with zeros
    between its elements, by flipped kernels.
    """
    n = x.ndim - 2
    _require_dimensions(c, n)
    usual = all(d == 1 for d in dilation) and all(isinstance(p, int) and p >= 0 for p in padding)
    if n == 1 and usual and max(stride) > 1:  # the only row of images
        rows = {"stride": (1, *stride), "padding": (0, padding[0], 0, padding[1]), "dilation": (1, 1)}
        image, kernels = [c.op("expand_dims", v, axis=2) for v in (x, weight)]
        wide = transposed_convolution(
            c, image, kernels, bias, output_padding=(0, *output_padding), groups=groups, **rows
        )  # fmt: skip
        return c.op("squeeze", wide, axis=2)
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
