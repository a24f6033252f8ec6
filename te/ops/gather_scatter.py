"""This module reads and writes elements at places that indices name, and makes sums and triangles along axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...tir.expr import Expr, Range, Var, all_, cast, const, max_, min_, select
from ...tir.expr.intrinsics.control_and_memory import if_then_else
from ...tir.stmt import Buffer, BufferStore, For, IfThenElse, Stmt, seq
from ..compute import compute
from ..operation import ExternOp, Requirement
from ..reduce import prod, reduce_axis, sum_
from ..tensor import Tensor
from .blocks.operator_arguments import INJECTIVE, check_tensor, constant, normalize_axis, require_same, shape_text


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


_STEPS: dict[str, Callable[[Expr, Expr], Expr]] = {
    "none": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": lambda old, new: select(new > old, new, old),
    "min": lambda old, new: select(new < old, new, old),
}

Place = Callable[[Buffer, Sequence[Expr]], list[Expr]]
"""Returns the index in the result of an update, from the buffer of indices and the index of the update."""


def scatter_elements(
    x: Tensor, indices: Tensor, updates: Tensor, axis: int = 0, reduction: str = "none", name: str = "T_scatter"
) -> Tensor:
    """Returns ``x`` with ``updates`` at ``indices`` along ``axis``, the last of several for one element.

    ``reduction``: ``none``, or ``add``, ``mul``, ``max``, ``min`` of the element and its updates. Negative indices count
    from the end; an update that lies outside is dropped.
    """
    op = "scatter_elements"
    check_tensor(op, indices, x.ndim, "the indices")
    axis = normalize_axis(op, axis, x.ndim)
    requires: list[Requirement] = []
    for d in range(x.ndim):
        requires += require_same(
            op, f"dimension {d} of indices and updates", indices.shape[d], updates.shape[d], indices, updates
        )

    def place(at: Buffer, i: Sequence[Expr]) -> list[Expr]:
        return [*i[:axis], at[tuple(i)], *i[axis + 1 :]]

    return _scattered(op, (x, indices, updates), place, reduction, name, requires)


def scatter_nd(
    x: Tensor, indices: Tensor, updates: Tensor, reduction: str = "none", name: str = "T_scatter_nd"
) -> Tensor:
    """Returns ``x`` with ``updates`` in the parts that the last axis of ``indices`` names. It is the counterpart of
    :func:`gather_nd`, and ``reduction`` is as in :func:`scatter_elements`."""
    op = "scatter_nd"
    check_tensor(op, indices, None, "the indices")
    if not indices.ndim:
        raise ValueError(f"{op}: the indices are a scalar")
    depth, outer = constant(op, "the last extent of the indices", indices.shape[-1]), indices.ndim - 1
    if not 0 <= depth <= x.ndim or updates.ndim != outer + x.ndim - depth:
        raise ValueError(
            f"{op}: updates of the shape {shape_text(updates)} for indices {shape_text(indices)} into {shape_text(x)}"
        )
    requires: list[Requirement] = []
    for d, extent in enumerate((*indices.shape[:-1], *x.shape[depth:])):
        requires += require_same(op, f"dimension {d} of the updates", updates.shape[d], extent, updates, x)

    def place(at: Buffer, i: Sequence[Expr]) -> list[Expr]:
        return [*[at[(*i[:outer], const(k))] for k in range(depth)], *i[outer:]]

    return _scattered(op, (x, indices, updates), place, reduction, name, requires)


def _scattered(
    op: str,
    tensors: tuple[Tensor, Tensor, Tensor],
    place: Place,
    reduction: str,
    name: str,
    requires: Sequence[Requirement],
) -> Tensor:
    x, indices, updates = tensors
    for t, what in ((x, "the input"), (indices, "the indices"), (updates, "the updates")):
        check_tensor(op, t, None, what)
    if not indices.dtype.is_int:
        raise TypeError(f"{op}: the indices are {indices.dtype}, not integers")
    if updates.dtype != x.dtype:
        raise TypeError(f"{op}: the updates are {updates.dtype}, the input is {x.dtype}")
    if reduction not in _STEPS:
        raise ValueError(f"{op}: reduction={reduction!r}; there are {', '.join(_STEPS)}")

    source, at, new = [Buffer(t.name, t.shape, t.dtype) for t in tensors]
    out = Buffer(name, x.shape, x.dtype)

    def write(i: Sequence[Expr]) -> Stmt:
        where = [_counted_from_zero(e, extent) for e, extent in zip(place(at, i), x.shape, strict=True)]
        moved = [(e, extent) for e, extent in zip(where, x.shape, strict=True) if not isinstance(e, Var)]
        inside = [test for e, extent in moved for test in _within(e, extent)]
        store = BufferStore(out, _STEPS[reduction](out[tuple(where)], new[tuple(i)]), tuple(where))
        return IfThenElse(all_(*inside), store) if inside else store

    copied = _loops("i", x.shape, lambda i: BufferStore(out, source[tuple(i)], tuple(i)))
    body = seq(copied, _loops("u", updates.shape, write))
    made: Tensor = ExternOp(name, tensors, (source, at, new), (out,), body, requires=requires).output(0)
    return made


def _counted_from_zero(at: Expr, extent: Expr) -> Expr:
    """Returns an index counted from 0; a loop's variable is one already."""
    return at if isinstance(at, Var) else select(at < const(0, at.dtype), at + cast(at.dtype, extent), at)


def _within(at: Expr, extent: Expr) -> list[Expr]:
    return [at >= const(0, at.dtype), at < cast(at.dtype, extent)]


def _loops(letter: str, shape: Sequence[Expr], body: Callable[[Sequence[Any]], Stmt]) -> Stmt:
    """Returns serial loops over ``shape`` around a body made of their variables."""
    variables = [Var(f"{letter}{d}", e.dtype) for d, e in enumerate(shape)]
    out = body(variables)
    for var, extent in reversed(list(zip(variables, shape, strict=True))):
        out = For(var, const(0, var.dtype), extent, "serial", out)
    return out
