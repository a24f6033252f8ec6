"""This module makes each element a weighted sum of a few elements along one axis, which tables name."""

from __future__ import annotations

from typing import Any

from ...tir.expr import Expr, cast, const, max_, min_
from ..compute import compute
from ..reduce import reduce_axis, sum_
from ..tensor import Tensor
from .blocks.operator_arguments import ELEMWISE, check_tensor, constant, normalize_axis, require_same


def resample(x: Tensor, indices: Tensor, weights: Tensor, axis: int = -1, name: str = "T_resample") -> Tensor:
    """Returns ``sum over k of weights[i, k] * x[…, indices[i, k], …]`` for each ``i`` along ``axis``.

    Any interpolation is such a sum. An index outside gives the nearest element. Integers give float32.
    """
    op = "resample"
    check_tensor(op, x)
    axis = normalize_axis(op, axis, x.ndim)
    check_tensor(op, indices, 2, "the indices")
    check_tensor(op, weights, 2, "the weights")
    count, taps = indices.shape[0], constant(op, "the number of neighbours", indices.shape[1])
    requires = [
        r
        for d in (0, 1)
        for r in require_same(op, f"size {d} of the tables", indices.shape[d], weights.shape[d], indices, weights)
    ]
    wide = x.dtype if x.dtype.is_float and x.dtype.bits >= 32 else "float32"
    k = reduce_axis((0, taps), "k")
    shape = [count if d == axis else e for d, e in enumerate(x.shape)]

    def f(*i: Expr) -> Any:
        at = indices(i[axis], k.var)
        at = min_(max_(at, const(0, at.dtype)), cast(at.dtype, x.shape[axis]) - const(1, at.dtype))
        value = cast(wide, x(*i[:axis], at, *i[axis + 1 :]))
        return sum_(value * cast(wide, weights(i[axis], k.var)), axis=k)

    out: Tensor = compute(
        shape, f, name=name if wide == x.dtype else f"{name}_wide", tag="comm_reduce", requires=requires
    )
    if x.dtype.is_float and wide != x.dtype:
        narrow: Tensor = compute(shape, lambda *i: cast(x.dtype, out(*i)), name=name, tag=ELEMWISE)
        return narrow
    return out
