"""This module concatenates, splits and indexes tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...tir.expr import Expr, const, convert, max_, min_, select
from ...tir.expr.intrinsics.control_and_memory import if_then_else
from ..compute import as_shape, compute
from ..operation import Requirement
from ..tensor import Tensor
from .blocks.operator_arguments import (
    INJECTIVE,
    check_tensor,
    constant,
    normalize_axis,
    require_same,
    same,
    shape_text,
    slice_range,
)
from .blocks.reshape_transpose import expand_dims, flatten

_IN_A_ROW = 8
"""The number of tensors among which an element is sought one after the other; among more by halving."""


def concatenate(tensors: Sequence[Tensor], axis: int = 0, name: str = "T_concat") -> Tensor:
    """Returns the tensors one after the other along ``axis``; they agree in the other dimensions and in the data
    type."""
    if not tensors:
        raise ValueError("concatenate: no tensors")
    first = check_tensor("concatenate", tensors[0])
    axis = normalize_axis("concatenate", axis, first.ndim)
    starts: list[Expr] = [const(0)]
    requires: list[Requirement] = []
    for t in tensors:
        check_tensor("concatenate", t, first.ndim)
        if t.dtype != first.dtype:
            raise TypeError(f"concatenate: the data types {first.dtype} and {t.dtype}")
        for d in range(first.ndim):
            if d != axis:
                requires += require_same("concatenate", f"dimension {d}", first.shape[d], t.shape[d], first, t)
        starts.append(starts[-1] + t.shape[axis])
    shape = list(first.shape)
    shape[axis] = starts[-1]

    def f(*i: Expr) -> Any:
        def part(n: int) -> Expr:
            return tensors[n](*i[:axis], i[axis] - starts[n], *i[axis + 1 :])

        def among(first: int, end: int) -> Expr:
            if end - first > _IN_A_ROW:  # halves: the depth grows with the logarithm of the number of tensors
                half = (first + end) // 2
                return if_then_else(i[axis] < starts[half], among(first, half), among(half, end))
            out = part(end - 1)
            for n in range(end - 2, first - 1, -1):
                out = if_then_else(i[axis] < starts[n + 1], part(n), out)
            return out

        return among(0, len(tensors))

    out: Tensor = compute(shape, f, name=name, tag=INJECTIVE, requires=requires)
    return out


def stack(tensors: Sequence[Tensor], axis: int = 0, name: str = "T_stack") -> Tensor:
    """Returns the tensors, all of one shape, along a new dimension ``axis``."""
    if not tensors:
        raise ValueError("stack: no tensors")
    return concatenate([expand_dims(t, axis, f"{name}_part") for t in tensors], axis, name)


def split(x: Tensor, sections: int | Sequence[int], axis: int = 0, name: str = "T_split") -> tuple[Tensor, ...]:
    """Returns ``x`` cut along ``axis`` into so many equal parts, or (a sequence) at these positions."""
    check_tensor("split", x)
    axis = normalize_axis("split", axis, x.ndim)
    extent = constant("split", "the extent", x.shape[axis])
    if isinstance(sections, int):
        if sections < 1 or extent % sections:
            raise ValueError(f"split: {extent} elements along axis {axis} of {shape_text(x)} in {sections} equal parts")
        cuts = [extent // sections * n for n in range(1, sections)]
    else:
        cuts = [int(c) for c in sections]
    ends = [0, *cuts, extent]
    if any(a > b for a, b in zip(ends, ends[1:], strict=False)):
        raise ValueError(f"split: the positions {cuts} do not rise between 0 and {extent}")

    def part(n: int) -> Tensor:
        shape = list(x.shape)
        shape[axis] = const(ends[n + 1] - ends[n])
        out: Tensor = compute(
            shape, lambda *i: x(*i[:axis], i[axis] + ends[n], *i[axis + 1 :]), name=f"{name}_{n}", tag=INJECTIVE
        )
        return out

    return tuple([part(n) for n in range(len(ends) - 1)])


def strided_slice(
    x: Tensor,
    begin: Sequence[Any],
    end: Sequence[Any],
    strides: Any = 1,
    slice_mode: str = "end",
    name: str = "T_strided_slice",
) -> Tensor:
    """Returns ``x[begin:end:strides]`` per dimension, as NumPy reads it (None: from or to the edge, each one).

    ``begin`` and ``end`` are numbers or expressions of sizes. ``slice_mode`` is ``end``, or as in TVM ``size``: ``end`` has
    the numbers of elements, and ``begin``, counted from 0, has to leave room for them, which the call checks.
    """
    op = "strided_slice"
    check_tensor(op, x)
    given = list(strides) if isinstance(strides, (tuple, list)) else [strides] * x.ndim
    if not len(begin) == len(end) == len(given) == x.ndim:
        raise ValueError(f"{op}: begin, end and strides need one entry for each of {x.ndim} dimensions")
    if slice_mode not in ("end", "size"):
        raise ValueError(f"{op}: slice_mode={slice_mode!r}; there are 'end' and 'size'")
    starts, steps, shape = list[Any](), list[int](), list[Any]()
    for d in range(x.ndim):
        step = 1 if given[d] is None else constant(op, "a stride", given[d])
        if step == 0:
            raise ValueError(f"{op}: a stride of 0")
        first, count = begin[d], end[d]
        if step == 1 and (first is None or same(first, 0)) and (count is None or same(count, x.shape[d])):
            first, count = 0, x.shape[d]
        elif slice_mode == "end":
            first, count = slice_range(first, count, step, x.shape[d])
        starts.append(first)
        steps.append(step)
        shape.append(count)
    out: Tensor = compute(
        shape,
        lambda *i: x(*[first + e * step for e, first, step in zip(i, starts, steps, strict=True)]),
        name=name,
        tag=INJECTIVE,
    )
    return out


def take(x: Tensor, indices: Tensor, axis: int | None = None, mode: str = "clip", name: str = "T_take") -> Tensor:
    """Returns the elements at ``indices`` along ``axis`` (None: of the flattened tensor), as ``numpy.take``.

    ``mode`` is the treatment of an index outside: ``clip`` (the nearest index, as in TVM), ``wrap`` (the index modulo
    the extent), ``fast`` (such an index must not occur).
    """
    op = "take"
    check_tensor(op, x)
    check_tensor(op, indices, None, "the indices")
    if not indices.dtype.is_int:
        raise TypeError(f"{op}: the indices are {indices.dtype}, not integers")
    if mode not in ("clip", "wrap", "fast"):
        raise ValueError(f"{op}: mode={mode!r}; there are 'clip', 'wrap' and 'fast'")
    source, axis = (flatten(x, 0, f"{name}_flat"), 0) if axis is None else (x, normalize_axis(op, axis, x.ndim))
    extent, n = source.shape[axis], indices.ndim

    def f(*i: Expr) -> Any:
        at = indices(*i[axis : axis + n])
        if mode == "clip":
            at = min_(max_(at, 0), extent - 1)
        elif mode == "wrap":
            at = at % extent
        return source(*i[:axis], at, *i[axis + n :])

    shape = (*source.shape[:axis], *indices.shape, *source.shape[axis + 1 :])
    out: Tensor = compute(shape, f, name=name, tag=INJECTIVE)
    return out


def full(shape: Any, value: float, dtype: str = "float32", name: str = "T_full") -> Tensor:
    """Returns a tensor of one value."""
    out: Tensor = compute(as_shape(shape, "full"), lambda *i: const(value, dtype), name=name, tag=INJECTIVE)
    return out


def one_hot(indices: Tensor, depth: int, dtype: str = "float32", name: str = "T_one_hot") -> Tensor:
    """Returns 1 at ``indices`` along a new last dimension of extent ``depth``, 0 elsewhere."""
    check_tensor("one_hot", indices)
    if not indices.dtype.is_int:
        raise TypeError(f"one_hot: the indices are {indices.dtype}, not integers")
    out: Tensor = compute(
        (*indices.shape, convert(depth)),
        lambda *i: select(indices(*i[:-1]).equal(i[-1]), const(1, dtype), const(0, dtype)),
        name=name,
        tag=INJECTIVE,
    )
    return out
