"""This module moves elements between channels, windows and the rows and columns of images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...tir.expr import Expr, IntImm, all_, const
from ...tir.expr.intrinsics.control_and_memory import if_then_else
from ..compute import compute
from ..reduce import reduce_axis, sum_
from ..tensor import Tensor
from .blocks.operator_arguments import INJECTIVE, check_tensor, constant, per_dimension
from .blocks.windows import check_layout


def depth_to_space(
    x: Tensor, block: Any = 2, layout: str = "NCHW", mode: str = "DCR", name: str = "T_depth_to_space"
) -> Tensor:
    """Returns images of ``block`` times as many rows and columns, made of as many times fewer channels.

    ``block``: a number, or one for the rows and one for the columns. The channels are numbered by row in the block, column
    in the block and channel of the result in ``mode`` ``DCR``, and by channel of the result first in ``CRD``, as in ONNX.
    """
    op = "depth_to_space"
    check_tensor(op, x, 4, "the data")
    channel, first = check_layout(op, layout, 2)
    rows, columns = per_dimension(op, "block", block, 2)
    if mode not in ("DCR", "CRD"):
        raise ValueError(f"{op}: mode={mode!r}; there are 'DCR' and 'CRD'")
    depth = x.shape[channel]
    if isinstance(depth, IntImm) and depth.value % (rows * columns):
        raise ValueError(f"{op}: blocks of {rows} x {columns} do not divide {depth.value} channels")
    left = depth // (rows * columns)
    shape = list(x.shape)
    shape[channel], shape[first], shape[first + 1] = left, x.shape[first] * rows, x.shape[first + 1] * columns

    def f(*i: Expr) -> Any:
        index, place = list(i), i[first] % rows * columns + i[first + 1] % columns
        index[first], index[first + 1] = i[first] // rows, i[first + 1] // columns
        index[channel] = place * left + i[channel] if mode == "DCR" else i[channel] * (rows * columns) + place
        return x(*index)

    out: Tensor = compute(shape, f, name=name, tag=INJECTIVE)
    return out


def col2im(
    columns: Tensor, image: Sequence[int], kernel: Sequence[int], stride: Any = 1, padding: Any = 0, dilation: Any = 1,
    name: str = "T_col2im",
) -> Tensor:  # fmt: skip
    """Returns the image ``(N, C, *image)`` that windows make. Each element is the sum of the window elements that lie
    on it.

    columns: ``(N, C · kernel elements, windows)``. ``padding``: one number, one per dimension, or all befores, then
    all afters, of the image from which the windows were cut.
    """
    op, n = "col2im", len(image)
    check_tensor(op, columns, 3, "the columns")
    sizes, taps = per_dimension(op, "image", image, n), per_dimension(op, "kernel", kernel, n)
    strides, dilations = per_dimension(op, "stride", stride, n), per_dimension(op, "dilation", dilation, n)
    given = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,) * n
    pads = given if len(given) == 2 * n else (*given, *given)
    reach = [(k - 1) * d + 1 for k, d in zip(taps, dilations, strict=True)]
    counts = [(e + pads[d] + pads[n + d] - reach[d]) // strides[d] + 1 for d, e in enumerate(sizes)]
    width, windows = math.prod(taps), math.prod(counts)
    rows, found = constant(op, "the rows", columns.shape[1]), constant(op, "the windows", columns.shape[2])
    if rows % width or found != windows or min(counts) < 1:
        raise ValueError(f"{op}: {rows}x{found} columns for windows of {width} elements, {windows} of them")
    axes = [reduce_axis((0, k), f"k{d}") for d, k in enumerate(taps)]

    def f(*i: Expr) -> Any:
        row, column, tests = i[1], const(0), []
        for d, axis in enumerate(axes):
            row = row * taps[d] + axis.var
            start = i[2 + d] + pads[d] - axis.var * dilations[d]
            at = start // strides[d]
            tests += [at >= 0, at < counts[d], (start % strides[d]).equal(0)]
            column = column * counts[d] + at
        return sum_(if_then_else(all_(*tests), columns(i[0], row, column), const(0, columns.dtype)), axis=axes)

    shape = (columns.shape[0], const(rows // width), *[const(e) for e in sizes])
    out: Tensor = compute(shape, f, name, tag="comm_reduce")
    return out
