"""This module gathers elements by indices, and makes sums and triangles along axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...tir.expr import Expr, Range, cast, const, select
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
    """Returns an index counted from 0; negative ones count from the end."""
    return select(at < 0, at + cast(at.dtype, extent), at)


def gather_elements(x: Tensor, indices: Tensor, axis: int = 0, name: str = "T_gather_elements") -> Tensor:
    """``x[i, …, indices[i, …, k], …]`` along ``axis``, as ``numpy.take_along_axis``; negative indices count from the
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


def _running(
    op: str, reducer: Any, x: Tensor, axis: int, exclusive: bool, reverse: bool, name: str, neutral: int
) -> Tensor:
    check_tensor(op, x)
    axis = normalize_axis(op, axis, x.ndim)
    k = reduce_axis(Range.from_extent(x.shape[axis]), name="k")

    def f(*i: Expr) -> Any:
        a, b = (i[axis], k.var) if reverse else (k.var, i[axis])
        inside = a < b if exclusive else a <= b
        return reducer(if_then_else(inside, x(*i[:axis], k.var, *i[axis + 1 :]), const(neutral, x.dtype)), axis=k)

    out: Tensor = compute(x.shape, f, name=name, tag="comm_reduce")
    return out


def cumsum(x: Tensor, axis: int = 0, exclusive: bool = False, reverse: bool = False, name: str = "T_cumsum") -> Tensor:
    """Returns the sums of the elements up to each one along ``axis``; ``exclusive`` leaves out the element itself,
    ``reverse`` begins at the end."""
    return _running("cumsum", sum_, x, axis, exclusive, reverse, name, 0)


def cumprod(
    x: Tensor, axis: int = 0, exclusive: bool = False, reverse: bool = False, name: str = "T_cumprod"
) -> Tensor:
    """Returns the products of the elements up to each one along ``axis``; the arguments of :func:`cumsum`."""
    return _running("cumprod", prod, x, axis, exclusive, reverse, name, 1)


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


def scatter_elements(
    x: Tensor, indices: Tensor, updates: Tensor, axis: int = 0, reduction: str = "none", name: str = "T_scatter"
) -> Tensor:
    """Returns ``x`` with ``updates`` at ``indices`` along ``axis``, the last of several for one element.

    ``reduction``: ``none``, or ``add``, ``mul``, ``max``, ``min`` of the element and its updates. Each element looks
    through the indices of its line, so the work is the product of both lengths.
    """
    op = "scatter_elements"
    _checked(op, x, indices)
    axis = normalize_axis(op, axis, x.ndim)
    steps: dict[str, Callable[[Expr, Expr], Expr]] = {
        "none": lambda old, new: new,
        "add": lambda old, new: old + new,
        "mul": lambda old, new: old * new,
        "max": lambda old, new: select(new > old, new, old),
        "min": lambda old, new: select(new < old, new, old),
    }
    if reduction not in steps:
        raise ValueError(f"{op}: reduction={reduction!r}; there are {', '.join(steps)}")
    count = constant(op, "the number of indices", indices.shape[axis])
    extents = [constant(op, "a size", e) for e in indices.shape]

    def f(*i: Expr) -> Any:
        value = x(*i)
        inside = None
        for d in range(x.ndim):
            if d != axis and (not hasattr(x.shape[d], "value") or extents[d] < constant(op, "a size", x.shape[d])):
                here = i[d] < extents[d]
                inside = here if inside is None else inside & here
        for k in range(count):
            at = [*i[:axis], const(k), *i[axis + 1 :]]
            hit = cast("int64", _wrapped(indices(*at), x.shape[axis])).equal(cast("int64", i[axis]))
            met = (
                hit
                if inside is None
                else select(inside, if_then_else(inside, hit, const(False, "bool")), const(False, "bool"))
            )
            value = if_then_else(met, steps[reduction](value, updates(*at)), value)
        return value

    out: Tensor = compute(x.shape, f, name=name, tag=INJECTIVE)
    return out
