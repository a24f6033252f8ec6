"""This module reorders and reshapes tensors, joins, splits and indexes them: slices, gathers, scatters, running sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...tir.expr import NE, Expr, IntImm, Var, all_, cast, const, convert, max_, min_, select
from ...tir.expr.intrinsics.control_and_memory import if_then_else
from ...tir.stmt import Buffer, BufferStore, For, IfThenElse, Stmt, seq
from ..compute import as_shape, compute, placeholder
from ..scan import scan
from ..tensor import ExternOp, Requirement, Tensor
from .arguments import (
    INJECTIVE,
    check_tensor,
    constant,
    normalize_axes,
    normalize_axis,
    per_dimension,
    prod_of,
    require_same,
    same,
    shape_text,
    slice_range,
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
    """Returns ``x`` without the dimensions ``axis``, whose extent is 1; by default all that are known to have it.

    That a symbolic extent is 1 is a condition for the call; by default, that it is another one.
    """
    check_tensor("squeeze", x)
    ones = [d for d, e in enumerate(x.shape) if isinstance(e, IntImm) and e.value == 1]
    axes = ones if axis is None else list(normalize_axes("squeeze", axis, x.ndim))
    requires: list[Requirement] = []
    for d, extent in enumerate(x.shape):
        if axis is None and not isinstance(extent, IntImm):
            text = f"squeeze: dimension {d} of {x.name}, {shape_text(x)}, would be left out if it were 1; name the axes"
            requires.append((NE(extent, const(1, extent.dtype)), text))
    for a in axes:
        if a not in ones:
            if isinstance(x.shape[a], IntImm):
                raise ValueError(f"squeeze: axis {a} of {shape_text(x)} has not the extent 1")
            text = f"squeeze: axis {a} of {x.name}, {shape_text(x)}, has to have the extent 1"
            requires.append((x.shape[a].equal(1), text))
    kept = [d for d in range(x.ndim) if d not in axes]

    def f(*i: Expr) -> Any:
        rest = iter(i)
        return x(*[const(0) if d in axes else next(rest) for d in range(x.ndim)])

    out: Tensor = compute([x.shape[d] for d in kept], f, name=name, tag=INJECTIVE, requires=requires)
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


_RUNNING: dict[str, tuple[Callable[[Expr, Expr], Expr], int]] = {
    "cumsum": (lambda total, e: total + e, 0),
    "cumprod": (lambda total, e: total * e, 1),
}
"""The step of each operator, and the value before the first one."""

_SHORT_RUN = 16
"""The steps up to which a condition tells the first one apart. A pass of its own would touch every line of memory once
more, and vectors along the last axis begin with the first step."""


def _running(op: str, x: Tensor, axis: int, exclusive: bool, reverse: bool, name: str) -> Tensor:
    """Returns a recurrence along ``axis``: one step for each element."""
    check_tensor(op, x)
    if x.ndim == 0:
        raise ValueError(f"{op}: the input has no dimension")
    combine, neutral = _RUNNING[op]
    axis = normalize_axis(op, axis, x.ndim)
    extent = x.shape[axis]
    wide = "float32" if x.dtype.is_float and x.dtype.bits < 32 else x.dtype
    length = extent.value if isinstance(extent, IntImm) else 0
    if length == 1:  # nothing runs
        return compute(x.shape, lambda *i: const(neutral, x.dtype) if exclusive else x(*i), name, tag=INJECTIVE)
    apart = length > _SHORT_RUN and axis < x.ndim - 1
    first = [const(int(apart)) if d == axis else e for d, e in enumerate(x.shape)]
    state = placeholder(x.shape, wide, f"{name}_state")

    def at(i: Sequence[Expr], step: Expr) -> tuple[Expr, ...]:
        return (*i[:axis], step, *i[axis + 1 :])

    def element(i: Sequence[Expr], step: Expr) -> Expr:
        return cast(wide, x(*at(i, extent - 1 - step if reverse else step)))

    def start(*i: Expr) -> Any:
        return const(neutral, wide) if exclusive else element(i, i[axis])

    def step(*i: Expr) -> Any:
        t = i[axis]
        new = combine(state(*at(i, t - 1)), element(i, t - 1 if exclusive else t))
        return if_then_else(t < 1, start(*i), new)  # known to be false after the first step

    sums = scan(
        compute(first, start, f"{name}_first"), compute(x.shape, step, f"{name}_step"), state, name=name, axis=axis
    )
    if not reverse and wide == x.dtype:
        out: Tensor = sums
        return out

    def result(*i: Expr) -> Any:
        return cast(x.dtype, sums(*at(i, extent - 1 - i[axis] if reverse else i[axis])))

    return compute(x.shape, result, f"{name}_result", tag=INJECTIVE)


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
    "max": max_,
    "min": min_,
}

Place = Callable[[Buffer, Sequence[Expr]], list[Expr]]
"""Returns the index in the result of an update, from the buffer of indices and the index of the update."""


def scatter_elements(
    x: Tensor, indices: Tensor, updates: Tensor, axis: int = 0, reduction: str = "none", name: str = "T_scatter"
) -> Tensor:
    """Returns ``x`` with ``updates`` at ``indices`` along ``axis``, the last of several for one element.

    ``reduction``: ``none``, or ``add``, ``mul``, ``max``, ``min`` of the element and its updates (NaN where one is). Negative
    indices count from the end; an update that lies outside is dropped.
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

    copied = _copied(source, out)
    body = seq(copied, _loops("u", updates.shape, write))
    made: Tensor = ExternOp(name, tensors, (source, at, new), (out,), body, requires=requires).output(0)
    return made


_COPIED_BYTES = 64
"""The bytes of a row that a copy moves at a time."""


def _copied(source: Buffer, out: Buffer) -> Stmt:
    """Returns loops that copy a buffer, vectors of a row at a time, and what is left of the row."""
    row = out.shape[-1] if out.shape else const(1)
    lanes = _COPIED_BYTES // out.dtype.bytes
    if not isinstance(row, IntImm) or row.value < lanes:
        return _loops("i", out.shape, lambda i: BufferStore(out, source[tuple(i)], tuple(i)))

    def vector(i: Sequence[Expr], begin: Expr, width: int) -> Stmt:
        lane = Var("lane", row.dtype)
        at = (*i, begin + lane)
        return For(lane, const(0, row.dtype), const(width, row.dtype), "vectorized", BufferStore(out, source[at], at))

    def copied_row(i: Sequence[Any]) -> Stmt:
        step, (steps, left) = Var("step", row.dtype), divmod(row.value, lanes)
        whole = For(step, const(0, row.dtype), const(steps, row.dtype), "serial", vector(i, step * lanes, lanes))
        return seq(whole, vector(i, const(steps * lanes, row.dtype), left)) if left else whole

    return _loops("i", out.shape[:-1], copied_row)


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
