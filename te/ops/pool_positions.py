"""This module finds where the maxima of windows lie."""

from __future__ import annotations

import math
from typing import Any

from ...tir.expr import Expr, IntImm, all_, cast, const, max_identity, max_value, select
from ...tir.expr.reducers import ARGMAX, ARGMAX_OR_NAN
from ..compute import compute
from ..reduce import reduce_axis, reduction_by
from ..tensor import Tensor
from .blocks.operator_arguments import INJECTIVE, check_tensor
from .blocks.windows import SPATIAL, Windows


def max_pool_positions(
    data: Tensor, kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, column_major: bool = False,
    name: str = "T_max_pool_positions",
) -> Tensor:  # fmt: skip
    """Returns the position in the flattened ``data`` (N, C, spatial…) of the maximum of each window, the first of equals.

    The windows are those of :func:`max_pool2d` in one to three dimensions. With ``column_major`` positions are counted
    with the first spatial dimension innermost.
    """
    op = "max_pool_positions"
    check_tensor(op, data, (3, 4, 5), "the data")
    n = data.ndim - 2
    windows = Windows.of(op, data, "NC" + SPATIAL[n], kernel, stride, padding, dilation)
    extents: list[Any] = [e.value if isinstance(e, IntImm) else e for e in data.shape]
    padded = windows.padded(max_identity(data.dtype))
    axes = [reduce_axis((0, k), f"k{d}") for d, k in enumerate(windows.sizes)]
    larger = reduction_by(ARGMAX_OR_NAN if data.dtype.is_float else ARGMAX)

    def places(i: tuple[Expr, ...]) -> list[Expr]:
        """Returns the spatial index in the data itself, which lies outside for an element of the padding."""
        at = windows.index(i, i[1], [axis.var for axis in axes])[2:]
        return [p - before for p, before in zip(at, windows.before, strict=True)]

    def f(*i: Expr) -> Any:
        position: Expr = const(0)
        inner = list(zip(places(i), extents[2:], strict=True))
        for place, extent in reversed(inner) if column_major else inner:
            position = position * extent + place
        position = cast("int64", position)
        if padded is not data:  # of equals the element with the smaller position is taken: never the padding
            inside = all_(*[c for place, extent in inner for c in (place >= 0, place < extent)])
            position = select(inside, position, const(max_value("int64"), "int64"))
        return larger((position, padded(*windows.index(i, i[1], [a.var for a in axes]))), axis=axes)

    shape = [*data.shape[:2], *windows.counts()]
    inside = compute(shape, f, f"{name}_inside", tag="comm_reduce", requires=windows.requires())[0]
    plane = math.prod([cast("int64", e) for e in data.shape[2:]])

    def whole(*i: Expr) -> Any:
        return cast("int64", i[0] * extents[1] + i[1]) * plane + inside(*i)

    out: Tensor = compute(shape, whole, name, tag=INJECTIVE)
    return out
