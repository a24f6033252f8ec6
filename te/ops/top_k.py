"""This module finds the largest or smallest elements along an axis."""

from __future__ import annotations

from typing import Any

from ...tir.expr import And, Expr, Not, Or, Range, all_, cast, convert
from ...tir.expr.intrinsics.float_operations import isnan
from ..compute import compute
from ..reduce import reduce_axis, sum_
from ..tensor import Tensor
from .blocks.operator_arguments import INJECTIVE, check_tensor, normalize_axis, sizes_analyzer


def topk(
    x: Tensor, k: Any = 1, axis: int = -1, largest: bool = True, dtype: str = "int64", name: str = "T_topk"
) -> tuple[Tensor, Tensor]:
    """Returns the ``k`` largest (or smallest) elements along ``axis`` in order, and their indices.

    Of equal elements the first comes first; NaN is larger than all numbers. Each element's rank is the number of
    elements before it, so the work is the square of the extent.
    """
    op = "topk"
    check_tensor(op, x)
    axis = normalize_axis(op, axis, x.ndim)
    extent = x.shape[axis]
    fits, sizes = all_(convert(k) >= 0, convert(k) <= extent), sizes_analyzer(k, extent)
    if sizes.can_prove(Not(fits)):
        raise ValueError(f"{op}: k={k} of {extent} elements")
    requires = () if sizes.can_prove(fits) else ((fits, f"{op}: k={k} of {extent} elements of {x.name}"),)
    j, place = [reduce_axis(Range.from_extent(x.shape[axis]), n) for n in ("j", "place")]

    def at(i: tuple[Expr, ...], e: Expr) -> Any:
        return x(*i[:axis], e, *i[axis + 1 :])

    def rank(*i: Expr) -> Any:
        own, other = at(i, i[axis]), at(i, j.var)
        level = Not(Or(_before(own, other, largest), _before(other, own, largest)))
        ahead = Or(_before(other, own, largest), And(level, j.var < i[axis]))
        return sum_(cast("int32", ahead), axis=j)

    ranks = compute(x.shape, rank, f"{name}_rank", tag="comm_reduce", requires=requires)
    shape = [convert(k) if d == axis else e for d, e in enumerate(x.shape)]

    def chosen(*i: Expr) -> Any:
        hit = ranks(*i[:axis], place.var, *i[axis + 1 :]).equal(cast("int32", i[axis]))
        return sum_(cast("int32", hit) * cast("int32", place.var), axis=place)

    positions = compute(shape, chosen, f"{name}_position", tag="comm_reduce")
    values: Tensor = compute(shape, lambda *i: at(i, positions(*i)), f"{name}_values", tag=INJECTIVE)
    indices: Tensor = compute(shape, lambda *i: cast(dtype, positions(*i)), f"{name}_indices", tag=INJECTIVE)
    return values, indices


def _before(a: Expr, b: Expr, largest: bool) -> Expr:
    """Returns whether ``a`` comes before ``b``: a total order in which NaN is the largest value."""
    more, less = (a, b) if largest else (b, a)
    if not a.dtype.is_float:
        return more > less
    tests = [e if e.dtype in ("float32", "float64") else cast("float32", e) for e in (more, less)]
    return Or(more > less, And(isnan(tests[0]), Not(isnan(tests[1]))))
