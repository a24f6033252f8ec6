"""This module has convolutions in one to three dimensions, channels first or last: strided, padded, dilated, grouped.

What deep learning calls a convolution is a correlation: the kernel is not flipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...tir.expr import Expr, IntImm, Range, cast
from ..compute import compute
from ..reduce import reduce_axis, sum_
from ..tensor import Tensor
from ._common import BROADCAST, accumulator, check_tensor, constant, per_dimension, require_same, shape_text
from .matmul import converted
from .pad import pad, window_padding

_SPATIAL = {1: "W", 2: "HW", 3: "DHW"}
_AXES = {"D": "zz", "H": "yy", "W": "xx"}
_WINDOW = {"D": "rz", "H": "ry", "W": "rx"}


def conv1d(data: Tensor, weight: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
           layout: str = "NCW", **rest: Any) -> Tensor:  # fmt: skip
    """:func:`conv2d` in one dimension, ``NCW`` (weights OIW) or ``NWC`` (weights WIO)."""
    return conv("conv1d", 1, data, weight, stride, padding, dilation, groups, layout, **rest)


def conv2d(data: Tensor, weight: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
           layout: str = "NCHW", **rest: Any) -> Tensor:  # fmt: skip
    """Returns a convolution of images.

    data: (N, C, H, W) and weight: (O, C/groups, KH, KW) when ``layout`` is ``NCHW``; (N, H, W, C) and
    (KH, KW, C/groups, O) when it is ``NHWC``; ``kernel_layout="OIHW" | "HWIO" | "OHWI"`` says otherwise.

    ``stride`` and ``dilation``: a number or one per dimension. ``padding``: a number, one or two per dimension (top,
    left, bottom, right), ``"same"`` or ``"valid"``; it is a stage of its own, ``pad_temp``. ``bias=``: (O,).
    ``out_dtype=``: see :func:`matmul`. ``name=``: of the stage.
    """
    return conv("conv2d", 2, data, weight, stride, padding, dilation, groups, layout, **rest)


def conv3d(data: Tensor, weight: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
           layout: str = "NCDHW", **rest: Any) -> Tensor:  # fmt: skip
    """:func:`conv2d` in three dimensions, ``NCDHW`` (weights OIDHW) or ``NDHWC`` (weights DHWIO)."""
    return conv("conv3d", 3, data, weight, stride, padding, dilation, groups, layout, **rest)


def check_layout(op: str, layout: str, n: int) -> tuple[int, int]:
    """Returns where the channels and the first spatial dimension are: N, C, spatial… or N, spatial…, C."""
    spatial = _SPATIAL[n]
    if layout == "NC" + spatial:
        return 1, 2
    if layout == "N" + spatial + "C":
        return n + 1, 1
    raise ValueError(f"{op}: layout={layout!r}; there are {'NC' + spatial!r} and {'N' + spatial + 'C'!r}")


def output_extent(op: str, x: Tensor, extent: Expr, window: int, stride: int, before: Any, after: Any) -> Expr:
    """``(extent + padding - window) // stride + 1``; ValueError when the window does not fit."""
    room = extent + before + after - window
    if isinstance(room, IntImm) and room.value < 0:
        raise ValueError(
            f"{op}: a window of {window} elements does not fit into {extent} with padding {before} and {after}; "
            f"the input has the shape {shape_text(x)}"
        )
    extent = room // stride + 1
    return extent


def conv(
    op: str,
    n: int,
    data: Tensor,
    weight: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    layout: str = "",
    kernel_layout: str = "",
    bias: Tensor | None = None,
    out_dtype: str | None = None,
    name: str = "",
) -> Tensor:
    """Returns a convolution over ``n`` dimensions; see :func:`conv2d`."""
    check_tensor(op, data, n + 2, "the data")
    check_tensor(op, weight, n + 2, "the weight")
    channel, first = check_layout(op, layout, n)
    spatial = _SPATIAL[n]
    order = kernel_layout or ("OI" + spatial if channel == 1 else spatial + "IO")
    if sorted(order) != sorted("OI" + spatial):
        raise ValueError(f"{op}: kernel_layout={order!r} has to name each of {'OI' + spatial} once")
    strides, dilations = per_dimension(op, "stride", stride, n), per_dimension(op, "dilation", dilation, n)
    kernel = [constant(op, "the kernel's size", weight.shape[order.index(d)]) for d in spatial]
    outputs, depth = weight.shape[order.index("O")], weight.shape[order.index("I")]
    groups = constant(op, "groups", groups)
    channels = data.shape[channel]
    _check_groups(op, groups, channels, outputs, depth, data, weight)
    windows = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    extents = data.shape[first : first + n]
    before, after = window_padding(op, padding, windows, strides, extents)
    padded = padded_input(data, first, before, after)
    room = [
        output_extent(op, data, e, w, s, lo, hi)
        for e, w, s, lo, hi in zip(extents, windows, strides, before, after, strict=True)
    ]
    acc, out = accumulator(op, [data.dtype, weight.dtype], out_dtype)
    name = name or f"{op}_{layout.lower()}"
    rc = reduce_axis(Range.from_extent(depth), name="rc")
    window = [reduce_axis((0, k), name=_WINDOW[d]) for k, d in zip(kernel, spatial, strict=True)]

    def f(*i: Expr) -> Any:
        ff, at = i[channel], i[first : first + n]
        source = rc.var if groups == 1 else ff // (outputs // groups) * depth + rc.var
        index: list[Any] = [i[0], *[None] * (n + 1)]
        index[channel] = source
        for d in range(n):
            index[first + d] = at[d] * strides[d] + window[d].var * dilations[d]
        where = {"O": ff, "I": rc.var, **{d: w.var for d, w in zip(spatial, window, strict=True)}}
        w = weight(*[where[d] for d in order])
        axes = [rc, *window] if channel == 1 else [*window, rc]
        return sum_(cast(acc, padded(*index)) * cast(acc, w), axis=axes)

    names = ["nn", "ff", *[_AXES[d] for d in spatial]] if channel == 1 else ["nn", *[_AXES[d] for d in spatial], "ff"]
    shape = arranged(data.shape[0], outputs, room, channel)
    plain = bias is not None or acc == out
    total = compute(shape, f, name if plain else f"{name}_acc", name, varargs_names=names)
    return with_bias(op, total, bias, channel, acc, out, name)


def with_bias(op: str, total: Tensor, bias: Tensor | None, channel: int, acc: str, out: str, name: str) -> Tensor:
    """``total`` plus one number per channel, converted to ``out``."""
    if bias is None:
        return converted(total, out, name)
    b = check_tensor(op, bias, 1, "the bias")
    require_same(op, "the number of output channels", total.shape[channel], b.shape[0], total, b)
    shifted: Tensor = compute(
        total.shape, lambda *i: total(*i) + cast(acc, b(i[channel])), name=f"{name}_bias", tag=BROADCAST
    )
    return converted(shifted, out, f"{name}_out")


def arranged(batch: Expr, channels: Expr, spatial: Sequence[Expr], channel: int) -> list[Expr]:
    return [batch, channels, *spatial] if channel == 1 else [batch, *spatial, channels]


def padded_input(data: Tensor, first: int, before: Sequence[int], after: Sequence[int]) -> Tensor:
    if not any(before) and not any(after):
        return data
    lo, hi = [0] * data.ndim, [0] * data.ndim
    lo[first : first + len(before)] = before
    hi[first : first + len(after)] = after
    return pad(data, lo, hi)


def _check_groups(op: str, groups: int, channels: Any, outputs: Any, depth: Any, data: Tensor, weight: Tensor) -> None:
    if groups < 1:
        raise ValueError(f"{op}: groups={groups}")
    for size, what in ((channels, "input"), (outputs, "output")):
        if isinstance(size, IntImm) and size.value % groups:
            raise ValueError(f"{op}: {groups} groups do not divide {size.value} {what} channels")
    if isinstance(channels, IntImm) and isinstance(depth, IntImm) and channels.value != depth.value * groups:
        raise ValueError(
            f"{op}: the data has {channels.value} channels in {groups} group(s), the weight {depth.value} per group: the "
            f"shapes are {shape_text(data)} and {shape_text(weight)}"
        )
