"""This module has the transposed convolution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...tir.expr import Expr, IntImm, Range, all_, cast, const
from ...tir.expr.intrinsics.control_and_memory import if_then_else
from ..compute import compute
from ..reduce import reduce_axis, sum_
from ..tensor import Tensor
from .blocks.operator_arguments import accumulator, check_tensor, constant, per_dimension, require_same
from .blocks.result_stages import with_bias
from .blocks.windows import arranged, check_layout, window_padding


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
