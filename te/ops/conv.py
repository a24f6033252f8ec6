"""This module has convolutions in one to three dimensions, channels first or last: strided, padded, dilated, grouped.

The depthwise and the transposed one are beside them. What deep learning calls a convolution is a correlation: the
kernel is not flipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...tir.expr import Expr, IntImm, Range, all_, cast, const
from ...tir.expr.intrinsics.control_and_memory import if_then_else
from ..compute import compute
from ..operation import Requirement
from ..reduce import reduce_axis, sum_
from ..tensor import Tensor
from .blocks.operator_arguments import (
    accumulator,
    check_tensor,
    constant,
    per_dimension,
    require_same,
    same,
    shape_text,
    with_bias,
)
from .blocks.windows import AXES, SPATIAL, Windows, arranged, check_layout, window_padding

_WINDOW = {"D": "rz", "H": "ry", "W": "rx"}


@dataclass(frozen=True, slots=True)
class _Form:
    """The arguments of a convolution beside its operands; :func:`conv2d` explains them."""

    stride: Any
    padding: Any
    dilation: Any
    groups: int
    layout: str
    kernel_layout: str = ""
    bias: Tensor | None = None
    out_dtype: str | None = None
    name: str = ""


def conv1d(data: Tensor, weight: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
           layout: str = "NCW", **rest: Any) -> Tensor:  # fmt: skip
    """:func:`conv2d` in one dimension, ``NCW`` (weights OIW) or ``NWC`` (weights WIO)."""
    return _conv("conv1d", 1, data, weight, _Form(stride, padding, dilation, groups, layout, **rest))


def conv2d(data: Tensor, weight: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
           layout: str = "NCHW", **rest: Any) -> Tensor:  # fmt: skip
    """Returns a convolution of images.

    data: (N, C, H, W) and weight: (O, C/groups, KH, KW) when ``layout`` is ``NCHW``; (N, H, W, C) and
    (KH, KW, C/groups, O) when it is ``NHWC``; ``kernel_layout="OIHW" | "HWIO" | "OHWI"`` says otherwise.

    ``stride`` and ``dilation``: a number or one per dimension. ``padding``: a number, one or two per dimension (top,
    left, bottom, right), ``"same"`` or ``"valid"``; it is a stage of its own, ``pad_temp``. ``bias=``: (O,).
    ``out_dtype=``: see :func:`matmul`. ``name=``: of the stage.
    """
    return _conv("conv2d", 2, data, weight, _Form(stride, padding, dilation, groups, layout, **rest))


def conv3d(data: Tensor, weight: Tensor, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
           layout: str = "NCDHW", **rest: Any) -> Tensor:  # fmt: skip
    """:func:`conv2d` in three dimensions, ``NCDHW`` (weights OIDHW) or ``NDHWC`` (weights DHWIO)."""
    return _conv("conv3d", 3, data, weight, _Form(stride, padding, dilation, groups, layout, **rest))


def _conv(op: str, n: int, data: Tensor, weight: Tensor, form: _Form) -> Tensor:
    """Returns a convolution over ``n`` dimensions; see :func:`conv2d`."""
    check_tensor(op, data, n + 2, "the data")
    check_tensor(op, weight, n + 2, "the weight")
    channel, _ = check_layout(op, form.layout, n)
    spatial = SPATIAL[n]
    order = form.kernel_layout or ("OI" + spatial if channel == 1 else spatial + "IO")
    if sorted(order) != sorted("OI" + spatial):
        raise ValueError(f"{op}: kernel_layout={order!r} has to name each of {'OI' + spatial} once")
    kernel = [constant(op, "the kernel's size", weight.shape[order.index(d)]) for d in spatial]
    outputs, depth = weight.shape[order.index("O")], weight.shape[order.index("I")]
    groups = constant(op, "groups", form.groups)
    requires = _check_groups(op, groups, data.shape[channel], outputs, depth, data, weight)
    windows = Windows.of(op, data, form.layout, kernel, form.stride, form.padding, form.dilation)
    padded, room = windows.padded(), windows.counts()
    acc, out = accumulator(op, [data.dtype, weight.dtype], form.out_dtype)
    name = form.name or f"{op}_{form.layout.lower()}"
    rc = reduce_axis(Range.from_extent(depth), name="rc")
    window = [reduce_axis((0, k), name=_WINDOW[d]) for k, d in zip(kernel, spatial, strict=True)]

    def f(*i: Expr) -> Any:
        ff = i[channel]
        source = rc.var if groups == 1 else ff // (outputs // groups) * depth + rc.var
        where = {"O": ff, "I": rc.var, **{d: w.var for d, w in zip(spatial, window, strict=True)}}
        w = weight(*[where[d] for d in order])
        axes = [rc, *window] if channel == 1 else [*window, rc]
        element = padded(*windows.index(i, source, [w.var for w in window]))
        return sum_(cast(acc, element) * cast(acc, w), axis=axes)

    names = arranged("nn", "ff", [AXES[d] for d in spatial], channel)
    shape = arranged(data.shape[0], outputs, room, channel)
    plain = form.bias is not None or acc == out
    total = compute(
        shape, f, name if plain else f"{name}_acc", name, varargs_names=names, requires=[*requires, *windows.requires()]
    )
    return with_bias(op, total, form.bias, channel, acc, out, name)


def _check_groups(
    op: str, groups: int, channels: Any, outputs: Any, depth: Any, data: Tensor, weight: Tensor
) -> list[Requirement]:
    """Returns the conditions on channels that the call has to check; ValueError where groups do not divide them."""
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
    both = f"{op}: the channels of the data have to be {groups} times those of the weight, {channels} and {depth}"
    return [] if same(channels, depth * groups) else [(channels.equal(depth * groups), both)]


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
    """Returns the transpose of :func:`conv2d`: it spreads each input over a window, ``stride`` apart.

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
    requires = require_same(op, "the number of input channels", data.shape[channel], depth, data, weight)
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
    lead = [k - 1 - lo for k, lo in zip(kernel, before, strict=True)]
    wide = _spread(data, first, strides, lead, [r + k - 1 for r, k in zip(room, kernel, strict=True)])
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

    names = arranged("nn", "ff", ["yy", "xx"], channel)
    shape = arranged(data.shape[0], per_group * groups, room, channel)
    plain = bias is not None or acc == out
    total = compute(shape, f, name if plain else f"{name}_acc", name, varargs_names=names, requires=requires)
    return with_bias(op, total, bias, channel, acc, out, name)


def _spread(data: Tensor, first: int, strides: Sequence[int], lead: Sequence[int], extents: Sequence[Expr]) -> Tensor:
    """Returns a stage of ``data`` whose elements lie ``strides`` apart, after ``lead`` zeros.

    A plain convolution of it with the flipped kernel is the transposed convolution.
    """
    shape, old = list(data.shape), data.shape[first : first + 2]
    shape[first : first + 2] = extents

    def spread(*i: Expr) -> Any:
        index, inside = list(i), []
        for d in range(2):
            at = i[first + d] - lead[d]
            index[first + d] = at // strides[d]
            inside += [at >= 0, at < (old[d] - 1) * strides[d] + 1]
            if strides[d] > 1:
                inside.append((at % strides[d]).equal(0))
        return if_then_else(all_(*inside), data(*index), const(0, data.dtype))

    out: Tensor = compute(shape, spread, name="data_dilate", tag="injective,dilate")
    return out
