"""This module moves channels of images into their rows and columns."""

from __future__ import annotations

from typing import Any

from ...tir.expr import Expr, IntImm
from ..compute import compute
from ..tensor import Tensor
from .blocks.operator_arguments import INJECTIVE, check_tensor, per_dimension
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
