"""This module reads the windows of a deformable convolution, whose elements are moved by offsets (Dai et al., 2017)."""

from __future__ import annotations

from functools import reduce as combine
from typing import Any

from ...tir.expr import Expr, cast, const
from ..compute import compute
from ..tensor import Tensor
from .blocks.between_elements import linear_sample
from .blocks.operator_arguments import check_tensor, constant, per_dimension


def deformable_windows(
    data: Tensor, offset: Tensor, mask: Tensor | None = None, *, kernel: Any, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1, name: str = "T_deformable_windows",
) -> Tensor:  # fmt: skip
    """Returns the elements of each window, (N, C, KH, KW, OH, OW); a product with the weights is the convolution.

    data: (N, C, H, W); offset: (N, groups · KH · KW · 2, OH, OW), y before x; mask: (N, groups · KH · KW, OH, OW), a
    factor. ``groups`` divide the channels; each has offsets of its own. ``padding`` is before the first element.
    """
    op = "deformable_windows"
    check_tensor(op, data, 4, "the data")
    check_tensor(op, offset, 4, "the offsets")
    kh, kw = per_dimension(op, "kernel", kernel, 2)
    strides, dilations = per_dimension(op, "stride", stride, 2), per_dimension(op, "dilation", dilation, 2)
    before = per_dimension(op, "padding", padding, 2, least=0)
    channels = constant(op, "the number of channels", data.shape[1])
    if (
        groups < 1
        or channels % groups
        or constant(op, "the number of offsets", offset.shape[1]) != groups * kh * kw * 2
    ):
        raise ValueError(f"{op}: {offset.shape[1]} offsets and {channels} channels for {groups} groups of {kh}x{kw}")
    if mask is not None and constant(op, "the channels of the mask", mask.shape[1]) != groups * kh * kw:
        raise ValueError(f"{op}: the mask has {mask.shape[1]} channels, not {groups * kh * kw}")
    wide = data.dtype if data.dtype.is_float and data.dtype.bits >= 32 else "float32"
    per_group = channels // groups

    def f(n: Expr, c: Expr, ky: Expr, kx: Expr, y: Expr, x: Expr) -> Any:
        tap = (c // per_group * kh + ky) * kw + kx
        places = []
        for d, (cell, k) in enumerate(((y, ky), (x, kx))):
            start = cast(wide, cell * strides[d] + k * dilations[d] - before[d])
            places.append(start + cast(wide, offset(n, tap * 2 + d, y, x)))
        value = combine(lambda a, b: a + b, linear_sample(data, (n, c), places))
        value = value if mask is None else value * cast(wide, mask(n, tap, y, x))
        return cast(data.dtype, value)

    shape = (data.shape[0], data.shape[1], const(kh), const(kw), *offset.shape[2:])
    out: Tensor = compute(shape, f, name, tag="deformable_windows")
    return out
