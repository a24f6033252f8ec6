"""Convolutions in one to three dimensions, channels first or last: strided, padded, dilated, grouped, transposed.

What deep learning calls a convolution is a correlation: the kernel is not flipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...tir.expr import Expr, IntImm, Range, cast, const
from ...tir.op import all_, if_then_else
from ..compute import compute
from ..reduce import reduce_axis, sum_
from ..tensor import Tensor
from ._common import BROADCAST, accumulator, check_tensor, constant, per_dimension, require_same, shape_text
from .matmul import converted
from .pad import pad, window_padding

__all__ = ["conv", "conv1d", "conv2d", "conv2d_transpose", "conv3d", "depthwise_conv2d"]

_SPATIAL = {1: "W", 2: "HW", 3: "DHW"}
_AXES = {"D": "zz", "H": "yy", "W": "xx"}
_WINDOW = {"D": "rz", "H": "ry", "W": "rx"}


def conv1d(data: Tensor, weight: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
           layout: str = "NCW", **rest: Any) -> Tensor:  # fmt: skip
    """:func:`conv2d` in one dimension, ``NCW`` (weights OIW) or ``NWC`` (weights WIO)."""
    return conv("conv1d", 1, data, weight, stride, padding, dilation, groups, layout, **rest)


def conv2d(data: Tensor, weight: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
           layout: str = "NCHW", **rest: Any) -> Tensor:  # fmt: skip
    """A convolution of images.

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
    """Where the channels and the first spatial dimension are: N, C, spatial… or N, spatial…, C."""
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
    return room // stride + 1


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
    """A convolution over ``n`` dimensions; see :func:`conv2d`."""
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
    padded = _padded(data, first, before, after)
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
    shape = _arranged(data.shape[0], outputs, room, channel)
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


def _arranged(batch: Expr, channels: Expr, spatial: Sequence[Expr], channel: int) -> list[Expr]:
    return [batch, channels, *spatial] if channel == 1 else [batch, *spatial, channels]


def _padded(data: Tensor, first: int, before: Sequence[int], after: Sequence[int]) -> Tensor:
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
    """A convolution of each channel by itself.

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
    padded = _padded(data, first, before, after)
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
    shape = _arranged(data.shape[0], weight.shape[at_c] * multiplier, room, channel)
    plain = bias is not None or acc == out
    total = compute(shape, f, name if plain else f"{name}_acc", name, varargs_names=names)
    return with_bias(op, total, bias, channel, acc, out, name)


def conv2d_transpose(
    data: Tensor,
    weight: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    layout: str = "NCHW",
    bias: Tensor | None = None,
    out_dtype: str | None = None,
    name: str = "",
) -> Tensor:
    """The transpose of :func:`conv2d`: it spreads each input over a window, ``stride`` apart.

    data: (N, C, H, W), weight: (C, O/groups, KH, KW) when ``layout`` is ``NCHW``; (N, H, W, C), (KH, KW, O/groups, C)
    when it is ``NHWC``. The output has ``(H - 1) * stride - padding + KH + output_padding`` rows.
    """
    op = "conv2d_transpose"
    check_tensor(op, data, 4, "the data")
    check_tensor(op, weight, 4, "the weight")
    channel, first = check_layout(op, layout, 2)
    order = "IOHW" if channel == 1 else "HWOI"
    strides = per_dimension(op, "stride", stride, 2)
    extra = per_dimension(op, "output_padding", output_padding, 2, least=0)
    if any(e >= s for e, s in zip(extra, strides, strict=True)):
        raise ValueError(f"{op}: output_padding={output_padding} has to be smaller than stride={stride}")
    kernel = [constant(op, "the kernel's size", weight.shape[order.index(d)]) for d in "HW"]
    depth, per_group = weight.shape[order.index("I")], weight.shape[order.index("O")]
    require_same(op, "the number of input channels", data.shape[channel], depth, data, weight)
    extents = data.shape[first : first + 2]
    before, after = window_padding(op, padding, kernel, [1, 1], extents)
    if isinstance(depth, IntImm) and depth.value % groups:
        raise ValueError(f"{op}: {groups} groups do not divide {depth.value} input channels")
    in_group = depth // groups
    room = [
        (e - 1) * s + k - lo - hi + more
        for e, s, k, lo, hi, more in zip(extents, strides, kernel, before, after, extra, strict=True)
    ]
    for e in room:
        if isinstance(e, IntImm) and e.value < 1:
            raise ValueError(f"{op}: the output has {e.value} rows or columns; the padding {padding} is too large")
    acc, out = accumulator(op, [data.dtype, weight.dtype], out_dtype)
    name = name or f"conv2d_transpose_{layout.lower()}"
    # The input, spread out by the stride and padded so that a plain convolution with the flipped kernel does the rest.
    lead = [k - 1 - lo for k, lo in zip(kernel, before, strict=True)]
    spread_shape = list(data.shape)
    for d in range(2):
        spread_shape[first + d] = room[d] + kernel[d] - 1

    def spread(*i: Expr) -> Any:
        index, inside = list(i), []
        for d in range(2):
            at = i[first + d] - lead[d]
            index[first + d] = at // strides[d]
            inside += [at >= 0, at < (extents[d] - 1) * strides[d] + 1]
            if strides[d] > 1:
                inside.append((at % strides[d]).equal(0))
        return if_then_else(all_(*inside), data(*index), const(0, data.dtype))

    wide = compute(spread_shape, spread, name="data_dilate", tag="injective,dilate")
    rc = reduce_axis(Range.from_extent(in_group), name="rc")
    ry, rx = reduce_axis((0, kernel[0]), name="ry"), reduce_axis((0, kernel[1]), name="rx")

    def f(*i: Expr) -> Any:
        ff = i[channel]
        source = rc.var if groups == 1 else ff // per_group * in_group + rc.var
        index: list[Any] = [i[0], None, None, None]
        index[channel], index[first], index[first + 1] = source, i[first] + ry.var, i[first + 1] + rx.var
        where = {"I": source, "O": ff if groups == 1 else ff % per_group,
                 "H": kernel[0] - 1 - ry.var, "W": kernel[1] - 1 - rx.var}  # fmt: skip
        return sum_(cast(acc, wide(*index)) * cast(acc, weight(*[where[d] for d in order])), axis=[rc, ry, rx])

    names = ["nn", "ff", "yy", "xx"] if channel == 1 else ["nn", "yy", "xx", "ff"]
    shape = _arranged(data.shape[0], per_group * groups, room, channel)
    plain = bias is not None or acc == out
    total = compute(shape, f, name if plain else f"{name}_acc", name, varargs_names=names)
    return with_bias(op, total, bias, channel, acc, out, name)
