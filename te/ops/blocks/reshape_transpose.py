"""This module puts the elements of a tensor into another order or shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....tir.expr import Expr, IntImm, const
from ...compute import as_shape, compute
from ...tensor import Tensor
from .operator_arguments import (
    INJECTIVE,
    check_tensor,
    normalize_axes,
    normalize_axis,
    per_dimension,
    prod_of,
    same,
    shape_text,
)


def transpose(x: Tensor, axes: Sequence[int] | None = None, name: str = "T_transpose") -> Tensor:
    """Returns ``x`` with other order of dimensions: ``d`` of the result is ``axes[d]`` of ``x``; by default all in reverse."""
    check_tensor("transpose", x)
    order = tuple(reversed(range(x.ndim))) if axes is None else tuple(axes)
    order = tuple([normalize_axis("transpose", a, x.ndim) for a in order])
    if sorted(order) != list(range(x.ndim)):
        raise ValueError(
            f"transpose: axes={tuple(axes or ())} is not an order of the {x.ndim} dimensions of {shape_text(x)}"
        )
    back = [order.index(d) for d in range(x.ndim)]
    out: Tensor = compute([x.shape[a] for a in order], lambda *i: x(*[i[b] for b in back]), name=name, tag=INJECTIVE)
    return out


def _flat(index: Sequence[Any], shape: Sequence[Expr]) -> Expr:
    at: Expr = const(0)
    for e, extent in zip(index, shape, strict=True):
        at = at * extent + e
    return at


def _unravel(at: Expr, shape: Sequence[Expr]) -> list[Expr]:
    """Returns the index in ``shape`` of the ``at``-th element."""
    out: list[Expr] = []
    for d in range(len(shape)):
        inner = prod_of(shape[d + 1 :])
        e = at // inner
        out.append(e % shape[d] if d else e)
    return out


def reshape(x: Tensor, shape: Any, name: str = "T_reshape") -> Tensor:
    """Returns the elements in row-major order, in another shape; one extent may be -1 when the others are constant."""
    check_tensor("reshape", x)
    dims = list(shape) if isinstance(shape, (tuple, list)) else [shape]
    holes = [d for d, e in enumerate(dims) if isinstance(e, int) and e == -1]
    if len(holes) > 1:
        raise ValueError(f"reshape: more than one -1 in {tuple(dims)}")
    if holes:
        known = prod_of([e for d, e in enumerate(dims) if d != holes[0]])
        total = prod_of(x.shape)
        if isinstance(known, IntImm) and isinstance(total, IntImm):
            if known.value == 0 or total.value % known.value:
                raise ValueError(f"reshape: {shape_text(x)} does not fit into {tuple(dims)}")
        dims[holes[0]] = total // known
    new = as_shape(dims, "reshape")
    old_size, new_size = prod_of(x.shape), prod_of(new)
    if isinstance(old_size, IntImm) and isinstance(new_size, IntImm) and old_size.value != new_size.value:
        raise ValueError(
            f"reshape: {shape_text(x)} has {old_size.value} elements, {shape_text(new)} has {new_size.value}"
        )
    text = f"reshape: {shape_text(x)} of {x.name} has to have as many elements as {shape_text(new)}"
    requires = [] if same(old_size, new_size) else [(old_size.equal(new_size), text)]
    groups = _aligned(x.shape, new)
    empty = next((d for d, e in enumerate(new) if isinstance(e, IntImm) and e.value == 0), None)

    def f(*i: Expr) -> Any:
        if empty is not None:  # nothing is read: any index in bounds does
            return x(*[i[empty] if isinstance(e, IntImm) and e.value == 0 else const(0) for e in x.shape])
        index: list[Expr] = []
        for old, target in groups:
            at = _flat([i[d] for d in target], [new[d] for d in target])
            index += _unravel(at, [x.shape[d] for d in old])
        return x(*index)

    out: Tensor = compute(new, f, name=name, tag=INJECTIVE, requires=requires)
    return out


def _aligned(old: Sequence[Expr], new: Sequence[Expr]) -> list[tuple[list[int], list[int]]]:
    """Returns the groups of dimensions with the same number of elements. They are as small as possible, so that each
    index depends on few others."""
    groups: list[tuple[list[int], list[int]]] = []
    a = b = 0
    while a < len(old) or b < len(new):
        left, right = [a] if a < len(old) else [], [b] if b < len(new) else []
        a, b = a + len(left), b + len(right)
        while not same(prod_of([old[d] for d in left]), prod_of([new[d] for d in right])):
            size_l, size_r = (prod_of([s[d] for d in g]) for s, g in ((old, left), (new, right)))
            small_left = isinstance(size_l, IntImm) and isinstance(size_r, IntImm) and size_l.value < size_r.value
            if a < len(old) and (small_left or b == len(new)):
                left.append(a)
                a += 1
            elif b < len(new):
                right.append(b)
                b += 1
            else:  # sizes that only the call will know
                break
        groups.append((left, right))
    return groups


def flatten(x: Tensor, start: int = 1, name: str = "T_flatten") -> Tensor:
    """Returns all dimensions from ``start`` on, merged into one."""
    check_tensor("flatten", x)
    start = normalize_axis("flatten", start, x.ndim) if x.ndim else 0
    return reshape(x, [*x.shape[:start], prod_of(x.shape[start:])], name)


def squeeze(x: Tensor, axis: Any = None, name: str = "T_squeeze") -> Tensor:
    """Returns ``x`` without the dimensions ``axis``, whose extent is 1; by default all such."""
    check_tensor("squeeze", x)
    ones = [d for d, e in enumerate(x.shape) if isinstance(e, IntImm) and e.value == 1]
    axes = ones if axis is None else list(normalize_axes("squeeze", axis, x.ndim))
    for a in axes:
        if a not in ones:
            raise ValueError(f"squeeze: axis {a} of {shape_text(x)} has not the extent 1")
    kept = [d for d in range(x.ndim) if d not in axes]

    def f(*i: Expr) -> Any:
        rest = iter(i)
        return x(*[const(0) if d in axes else next(rest) for d in range(x.ndim)])

    out: Tensor = compute([x.shape[d] for d in kept], f, name=name, tag=INJECTIVE)
    return out


def expand_dims(x: Tensor, axis: Any, name: str = "T_expand_dims") -> Tensor:
    """Returns ``x`` with new dimensions of extent 1 at ``axis`` (one, or several) of the result."""
    check_tensor("expand_dims", x)
    count = len(axis) if isinstance(axis, (tuple, list)) else 1
    axes = normalize_axes("expand_dims", axis, x.ndim + count)
    rest = iter(x.shape)
    shape = [const(1) if d in axes else next(rest) for d in range(x.ndim + count)]
    out: Tensor = compute(shape, lambda *i: x(*[e for d, e in enumerate(i) if d not in axes]), name=name, tag=INJECTIVE)
    return out


def tile(x: Tensor, reps: Any, name: str = "T_tile") -> Tensor:
    """Returns ``x`` repeated as a whole, ``reps`` times per dimension, as ``numpy.tile``."""
    check_tensor("tile", x)
    counts = list(reps) if isinstance(reps, (tuple, list)) else [reps]
    rank = max(len(counts), x.ndim)
    counts = [1] * (rank - len(counts)) + counts
    extents = [const(1)] * (rank - x.ndim) + list(x.shape)
    counts = list(per_dimension("tile", "reps", counts, rank, least=0)) if rank else []
    lead = rank - x.ndim
    out: Tensor = compute(
        [e * c for e, c in zip(extents, counts, strict=True)],
        lambda *i: x(*[e % extent for e, extent in zip(i[lead:], x.shape, strict=True)]),
        name=name,
        tag=INJECTIVE,
    )
    return out


def repeat(x: Tensor, repeats: int, axis: int = 0, name: str = "T_repeat") -> Tensor:
    """Returns each element ``repeats`` times along ``axis``."""
    check_tensor("repeat", x)
    axis = normalize_axis("repeat", axis, x.ndim)
    if repeats < 1:
        raise ValueError(f"repeat: repeats={repeats}")
    shape = list(x.shape)
    shape[axis] = shape[axis] * repeats
    out: Tensor = compute(shape, lambda *i: x(*i[:axis], i[axis] // repeats, *i[axis + 1 :]), name=name, tag=INJECTIVE)
    return out


def flip(x: Tensor, axis: Any = None, name: str = "T_flip") -> Tensor:
    """Returns the order along ``axis`` (None: every axis) reversed."""
    check_tensor("flip", x)
    axes = normalize_axes("flip", axis, x.ndim)
    out: Tensor = compute(
        x.shape,
        lambda *i: x(*[x.shape[d] - 1 - e if d in axes else e for d, e in enumerate(i)]),
        name=name,
        tag=INJECTIVE,
    )
    return out
