"""This module has convolutions in one to three dimensions, channels first or last: strided, padded, dilated, grouped.

What deep learning calls a convolution is a correlation: the kernel is not flipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...tir.expr import Expr, IntImm, Range, cast
from ..compute import compute
from ..operation import Requirement
from ..reduce import reduce_axis, sum_
from ..tensor import Tensor
from .blocks.operator_arguments import accumulator, check_tensor, constant, same, shape_text
from .blocks.result_stages import with_bias
from .blocks.windows import AXES, SPATIAL, Windows, arranged, check_layout

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
    """Returns what the call has to check of the channels; ValueError where groups do not divide them."""
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
