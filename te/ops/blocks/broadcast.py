"""This module combines tensors and numbers element by element; shapes broadcast as in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....tir.expr import (
    EQ,
    DType,
    Expr,
    IntImm,
    Select,
    any_,
    cast,
    const,
    convert,
    min_,
    promote,
    select,
)
from ...compute import as_shape, compute
from ...operation import Requirement
from ...tensor import Tensor
from .operator_arguments import BROADCAST, ELEMWISE, check_tensor, same, shape_text


def broadcast_shape(
    op: str, a: Sequence[Expr], b: Sequence[Expr], tensors: tuple[Tensor, Tensor]
) -> tuple[tuple[Expr, ...], list[Requirement]]:
    """Returns the common shape, and what has to hold of symbolic sizes; ValueError shows both shapes.

    Shapes are aligned at the end, where extents are equal or 1. Of two symbolic sizes that may differ, the call decides
    which is 1. ``tensors`` have the shapes, for messages.
    """
    out: list[Expr] = []
    requires: list[Requirement] = []
    for i in range(1, max(len(a), len(b)) + 1):
        x = a[-i] if i <= len(a) else const(1)
        y = b[-i] if i <= len(b) else const(1)
        out.append(broadcast_extent(x, y))
        if same(x, y) or _is_one(x) or _is_one(y):
            continue
        if isinstance(x, IntImm) and isinstance(y, IntImm):
            raise ValueError(
                f"{op}: the shapes {shape_text(a)} and {shape_text(b)} do not broadcast: {x.value} against {y.value} "
                f"in dimension {-i}"
            )
        ones = [e.equal(1) for e in (x, y) if not isinstance(e, IntImm)]
        requires.append((
            any_(x.equal(y), *ones),
            f"{op}: the shapes {shape_text(a)} of {tensors[0].name} and {shape_text(b)} of {tensors[1].name} have to "
            f"broadcast: {x} against {y} in dimension {-i}",
        ))  # fmt: skip
    return tuple(reversed(out)), requires


def broadcast_extent(x: Expr, y: Expr) -> Expr:
    """Returns the size to which two sizes broadcast: a number, or the first symbolic size that is not 1.

    Sizes that broadcast to one are collected, each once, so that they do not nest deeper with each operator.
    """
    if same(x, y) or _is_one(y):
        return x
    if _is_one(x):
        return y
    if isinstance(x, IntImm) or isinstance(y, IntImm):
        return x if isinstance(x, IntImm) else y
    mine, theirs = chosen_from(x), chosen_from(y)
    for one, many, others in ((x, mine, theirs), (y, theirs, mine)):
        if all(any(same(a, b) for b in many) for a in others):
            return one
    return first_not_one([*mine, *[e for e in theirs if not any(same(e, known) for known in mine)]])


def first_not_one(sizes: Sequence[Expr]) -> Expr:
    """Returns the first of several sizes that is not 1, as an expression."""
    out = sizes[-1]
    for e in reversed(sizes[:-1]):
        wide = promote(out.dtype, e.dtype)
        out = select(e.equal(1), out.astype(wide), e.astype(wide))
    return out


def chosen_from(size: Expr) -> list[Expr]:
    """Returns the sizes that :func:`broadcast_extent` chooses from; of another size itself."""
    if isinstance(size, Select) and isinstance(size.condition, EQ) and _is_one(size.condition.b):
        first = size.condition.a
        if same(first, size.false_value):
            return [first, *chosen_from(size.true_value)]
    return [size]


def element(t: Tensor, i: Sequence[Expr], shape: Sequence[Expr]) -> Expr:
    """Returns the element of ``t`` that broadcasts to the index ``i`` of ``shape``."""
    lead = len(shape) - t.ndim
    return t(*[_place(e, extent, whole) for e, extent, whole in zip(i[lead:], t.shape, shape[lead:], strict=True)])


def _place(i: Expr, extent: Expr, whole: Expr) -> Expr:
    """Returns the index of a dimension that broadcasts to ``whole`` elements: 0 where it has one."""
    if _is_one(extent) and not _is_one(whole):
        return const(0, i.dtype)
    if same(extent, whole) or isinstance(extent, IntImm):
        return i
    return min_(i, cast(i.dtype, extent) - 1)  # i where the sizes agree


def _is_one(e: Expr) -> bool:
    return isinstance(e, IntImm) and e.value == 1


def combine(op: str, f: Callable[..., Any], operands: Sequence[Any], name: str) -> Any:
    """Returns ``f`` over tensors and numbers; of expressions alone it is just ``f``.

    A number has the data type of the last tensor; the first of three operands is a condition, whose type says nothing of the
    others. One operand has to be a tensor, when there is only one.
    """
    tensors = [t for t in operands if isinstance(t, Tensor)]
    if len(operands) == 1:
        check_tensor(op, operands[0])
    elif not tensors or (tensors[0].ndim == 0 and any(isinstance(e, Expr) for e in operands)):
        return f(*[convert(e) for e in operands])  # a tensor of rank 0 inside an expression
    shape, requires = tensors[0].shape, []
    for n, t in enumerate(tensors[1:], 1):
        shape, more = broadcast_shape(op, shape, t.shape, (tensors[n - 1], t))
        requires += more
    values = [t for t in operands[len(operands) == 3 :] if isinstance(t, Tensor)]

    def of_elements(*i: Expr) -> Any:
        return f(*[element(e, i, shape) if isinstance(e, Tensor) else _scalar(e, values) for e in operands])

    tag = ELEMWISE if len(tensors) == 1 else BROADCAST
    return compute(shape, of_elements, name=name, tag=tag, requires=requires)


def _scalar(value: Any, beside: Sequence[Tensor]) -> Expr:
    """Returns a number as an expression. Its type is that of the tensors beside it where it is a number of their kind."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and beside:
        dtype = beside[-1].dtype
        return const(value, dtype if DType(dtype).is_float or isinstance(value, int) else "float32")
    return convert(value)


def broadcast_to(x: Tensor, shape: Any, name: str = "T_broadcast_to") -> Tensor:
    """Returns ``x`` repeated along new dimensions and along those of extent 1."""
    check_tensor("broadcast_to", x)
    dims = as_shape(shape, "broadcast_to")
    text = f"{shape_text(x)} does not broadcast to {shape_text(dims)}"
    if x.ndim > len(dims):
        raise ValueError(f"broadcast_to: {text}")
    requires: list[Requirement] = []
    for e, whole in zip(x.shape, dims[len(dims) - x.ndim :], strict=True):
        if isinstance(e, IntImm) and isinstance(whole, IntImm) and e.value not in (1, whole.value):
            raise ValueError(f"broadcast_to: {text}")
        if not _is_one(e) and not same(e, whole):
            fits = e.equal(whole) if isinstance(e, IntImm) else any_(e.equal(1), e.equal(whole))
            requires.append(
                (fits, f"broadcast_to: the shape {text}: {e} has to be 1 or {whole}; the input is {x.name}")
            )
    for whole in dims:  # what broadcasting gave: all sizes that it was chosen from have to fit
        for e in chosen_from(whole) if isinstance(whole, Select) else ():
            requires.append((any_(e.equal(1), e.equal(whole)), f"broadcast_to: {e} has to be 1 or {whole}"))
    out: Tensor = compute(dims, lambda *i: element(x, i, dims), name=name, tag=BROADCAST, requires=requires)
    return out
