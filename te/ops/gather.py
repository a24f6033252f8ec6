"""This module gathers elements by indices, and makes sums and triangles along axes."""

from __future__ import annotations

from typing import Any

from ...tir.expr import Expr, Range, cast, const, max_, min_, select
from ...tir.expr.intrinsics.control_and_memory import if_then_else
from ..compute import compute
from ..reduce import prod, reduce_axis, sum_
from ..tensor import Tensor
from .blocks.operator_arguments import INJECTIVE, check_tensor, constant, normalize_axis


def _checked(op: str, x: Tensor, indices: Tensor) -> None:
    check_tensor(op, x)
    check_tensor(op, indices, None, "the indices")
    if not indices.dtype.is_int:
        raise TypeError(f"{op}: the indices are {indices.dtype}, not integers")


def _wrapped(at: Expr, extent: Expr) -> Expr:
    """Returns an index counted from 0; negative ones count from the end, those outside give the nearest element."""
    size = cast(at.dtype, extent)
    return min_(max_(select(at < 0, at + size, at), const(0, at.dtype)), size - const(1, at.dtype))


def gather_elements(x: Tensor, indices: Tensor, axis: int = 0, name: str = "T_gather_elements") -> Tensor:
    """Returns ``x[i, …, indices[i, …, k], …]`` along ``axis``, as ``numpy.take_along_axis``; negative indices count from the
    end."""
    _checked("gather_elements", x, indices)
    axis = normalize_axis("gather_elements", axis, x.ndim)
    check_tensor("gather_elements", indices, x.ndim, "the indices")

    def f(*i: Expr) -> Any:
        return x(*i[:axis], _wrapped(indices(*i), x.shape[axis]), *i[axis + 1 :])

    out: Tensor = compute(indices.shape, f, name=name, tag=INJECTIVE)
    return out


def gather_nd(x: Tensor, indices: Tensor, batch_dims: int = 0, name: str = "T_gather_nd") -> Tensor:
    """Returns the parts of ``x`` that the last axis of ``indices`` names, after ``batch_dims`` equal dimensions."""
    _checked("gather_nd", x, indices)
    depth = constant("gather_nd", "the last extent of the indices", indices.shape[-1])
    if depth + batch_dims > x.ndim:
        raise ValueError(f"gather_nd: {depth} indices after {batch_dims} batch dimensions of {x.ndim}")
    outer = indices.ndim - 1

    def f(*i: Expr) -> Any:
        where = [_wrapped(indices(*i[:outer], const(k)), x.shape[batch_dims + k]) for k in range(depth)]
        return x(*i[:batch_dims], *where, *i[outer:])

    out: Tensor = compute([*indices.shape[:-1], *x.shape[batch_dims + depth :]], f, name=name, tag=INJECTIVE)
    return out


_RUNNING: dict[str, tuple[Any, int]] = {"cumsum": (sum_, 0), "cumprod": (prod, 1)}
"""The reducer of each operator, and what takes the place of elements that do not count."""


def _running(op: str, x: Tensor, axis: int, exclusive: bool, reverse: bool, name: str) -> Tensor:
    check_tensor(op, x)
    reducer, neutral = _RUNNING[op]
    axis = normalize_axis(op, axis, x.ndim)
    k = reduce_axis(Range.from_extent(x.shape[axis]), name="k")

    def f(*i: Expr) -> Any:
        a, b = (i[axis], k.var) if reverse else (k.var, i[axis])
        inside = a < b if exclusive else a <= b
        return reducer(if_then_else(inside, x(*i[:axis], k.var, *i[axis + 1 :]), const(neutral, x.dtype)), axis=k)

    out: Tensor = compute(x.shape, f, name=name, tag="comm_reduce")
    return out


def cumsum(x: Tensor, axis: int = 0, exclusive: bool = False, reverse: bool = False, name: str = "T_cumsum") -> Tensor:
    """Returns the sums of the elements up to each one along ``axis``. ``exclusive`` leaves out the element itself,
    ``reverse`` begins at the end."""
    return _running("cumsum", x, axis, exclusive, reverse, name)


def cumprod(
    x: Tensor, axis: int = 0, exclusive: bool = False, reverse: bool = False, name: str = "T_cumprod"
) -> Tensor:
    """Returns the products of the elements up to each one along ``axis``; the arguments of :func:`cumsum`."""
    return _running("cumprod", x, axis, exclusive, reverse, name)


def triangle(x: Tensor, k: int = 0, upper: bool = True, name: str = "T_triangle") -> Tensor:
    """Returns the upper or lower triangle of the matrices in the last two dimensions, zero elsewhere.

    ``k`` moves the diagonal, as in ``numpy.triu`` and ``numpy.tril``.
    """
    check_tensor("triangle", x)
    if x.ndim < 2:
        raise ValueError("triangle: at least 2 dimensions are expected")

    def f(*i: Expr) -> Any:
        inside = i[-1] - i[-2] >= k if upper else i[-1] - i[-2] <= k
        return if_then_else(inside, x(*i), const(0, x.dtype))

    out: Tensor = compute(x.shape, f, name=name, tag=INJECTIVE)
    return out
