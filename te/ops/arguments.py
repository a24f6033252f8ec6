"""This module checks the arguments of operators, and broadcasts shapes as NumPy does."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ...tir.analysis.simplify import simplify
from ...tir.arith import Analyzer
from ...tir.arith.normal_form.forms import difference
from ...tir.expr import EQ, DType, Expr, IntImm, Select, Var, any_, cast, const, convert, max_, min_, promote, select
from ...tir.walk import substitute, vars_in
from ..compute import as_shape, compute
from ..tensor import Requirement, Tensor

ELEMWISE, BROADCAST, INJECTIVE, COMM_REDUCE = "elemwise", "broadcast", "injective", "comm_reduce"


def shape_text(x: Tensor | Sequence[Any]) -> str:
    """Returns a shape as text, such as ``(2, n, 3)``."""
    dims = x.shape if isinstance(x, Tensor) else x
    return f"({', '.join(map(str, dims))}{',' if len(dims) == 1 else ''})"


def check_tensor(op: str, x: Any, ndim: int | Sequence[int] | None = None, what: str = "the input") -> Tensor:
    """Returns ``x`` when it is a tensor of rank ``ndim`` (or one of several), else TypeError or ValueError."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{op}: {what} is {type(x).__name__}, not a tensor")
    ranks = (ndim,) if isinstance(ndim, int) else ndim
    if ranks is not None and x.ndim not in ranks:
        wanted = " or ".join(map(str, ranks))
        raise ValueError(f"{op}: {what} has the shape {shape_text(x)}; {wanted} dimensions are expected")
    return x


def same(a: Any, b: Any) -> bool:
    """Returns whether two sizes are equal for sure."""
    a, b = convert(a), convert(b)
    return difference(a, b) == 0


def require_same(op: str, what: str, a: Any, b: Any, x: Tensor, y: Tensor) -> tuple[Requirement, ...]:
    """Returns that two sizes agree as a condition for the call, or nothing where they do for sure. ValueError with both
    shapes when they differ."""
    a, b = convert(a), convert(b)
    shapes = f"the shapes are {shape_text(x)} and {shape_text(y)}"
    apart = difference(a, b)
    if apart == 0:
        return ()
    if apart is not None:
        raise ValueError(f"{op}: {what} differs, {a} and {b}: {shapes}")
    return ((a.equal(b), f"{op}: {what} has to be the same in {x.name} and {y.name}, {a} and {b}: {shapes}"),)


def constant(op: str, what: str, e: Any) -> int:
    """Returns a size as an int; ValueError when it is symbolic."""
    e = convert(e)
    if not isinstance(e, IntImm):
        raise ValueError(f"{op}: {what} is {e}; it has to be a constant here")
    return e.value


def sizes_analyzer(*values: Any) -> Analyzer:
    """Returns an analyzer that knows of the variables in ``values`` that they are sizes, at least 0."""
    analyzer = Analyzer()
    for var in {v for e in values if isinstance(e, Expr) for v in vars_in(e)}:
        analyzer.bind(var, (0, None))
    return analyzer


def from_front(at: Any, extent: Any, analyzer: Analyzer) -> Any:
    """Returns an index counted from 0; a negative one counts from the end of an axis of ``extent`` elements."""
    if isinstance(at, int):
        return extent + at if at < 0 else at
    if analyzer.can_prove(at >= 0):
        return at
    return at + extent if analyzer.can_prove(at < 0) else select(at < 0, at + extent, at)


_FAR = 2**31 - 1
"""An index that lies beyond every axis whose extent is symbolic, whose type is int32."""


def slice_range(begin: Any, end: Any, step: int, extent: Any) -> tuple[Any, Any]:
    """Returns the first index of ``begin:end:step``, as Python reads it, and the number of elements.

    ``begin`` and ``end`` are numbers, expressions of sizes, or None. Of an axis or with ends that only the call knows, both
    are expressions; the first index lies on the axis where there is an element at all.
    """
    begin, end, extent = [int(e.value) if isinstance(e, IntImm) else e for e in (begin, end, extent)]
    if not any(isinstance(e, Expr) for e in (begin, end, extent)):
        first, last, _ = slice(begin, end, step).indices(extent)
        return first, max(math.ceil((last - first) / step), 0)
    an = sizes_analyzer(begin, end, extent)
    far_begin, far_end = [e if isinstance(e, int) and abs(e) >= _FAR else 0 for e in (begin, end)]
    if far_begin * step > 0 or far_end * step < 0:
        return 0, 0
    begin, end = None if far_begin else begin, None if far_end else end

    def clamped(e: Any, bound: Any, below: bool) -> Any:
        inside = convert(e) >= bound if below else convert(e) <= bound
        return e if an.can_prove(inside) else max_(e, bound) if below else min_(e, bound)

    if step > 0:  # a beginning beyond the end and an end before the beginning give no elements, whatever they are
        first = 0 if begin is None else clamped(from_front(begin, extent, an), 0, True)
        last = extent if end is None else clamped(from_front(end, extent, an), extent, False)
        count = (last - first + (step - 1)) // step
    else:
        first = extent - 1 if begin is None else clamped(from_front(begin, extent, an), extent - 1, False)
        last = -1 if end is None else clamped(from_front(end, extent, an), -1, True)
        count = (first - last + (-step - 1)) // -step
    return simplify(convert(first)), simplify(convert(clamped(simplify(convert(count)), 0, True)))


def normalize_axis(op: str, axis: Any, ndim: int) -> int:
    """Returns an axis counted from 0; negative ones count from the end."""
    if not isinstance(axis, int) or isinstance(axis, bool):
        raise TypeError(f"{op}: an axis is a whole number, not {axis!r}")
    if not -ndim <= axis < ndim:
        raise ValueError(f"{op}: axis {axis} of {ndim} dimensions")
    return axis % ndim


def normalize_axes(op: str, axis: Any, ndim: int) -> tuple[int, ...]:
    """Returns the sorted axes from None (all), one, or several."""
    if axis is None:
        return tuple(range(ndim))
    axes = [normalize_axis(op, a, ndim) for a in (axis if isinstance(axis, (tuple, list)) else (axis,))]
    if len(set(axes)) != len(axes):
        raise ValueError(f"{op}: an axis is given twice in {axis}")
    return tuple(sorted(axes))


def one_each(op: str, what: str, value: Any, n: int) -> tuple[Any, ...]:
    """Returns the ``n`` entries of a list, or a single value ``n`` times."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,) * n
    if len(values) != n:
        raise ValueError(f"{op}: {what} has {len(values)} entries for {n} dimensions")
    return values


def per_dimension(op: str, what: str, value: Any, n: int, least: int = 1) -> tuple[int, ...]:
    """Returns ``value`` for each of ``n`` dimensions, from one number or ``n``."""
    given = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    values = one_each(op, what, given[0] if len(given) == 1 else given, n)
    out = tuple([constant(op, what, v) for v in values])
    if min(out, default=least) < least:
        raise ValueError(f"{op}: {what}={value} has to be at least {least}")
    return out


def accumulator(op: str, dtypes: Sequence[str], out_dtype: str | None) -> tuple[str, str]:
    """Returns the data types of a sum of products and of its result.

    Integers of at most 16 bits add up in int32 and stay there; float16 and bfloat16 add up in float32 and are
    converted back; ``out_dtype`` asks for another result (and wider sums, if it is wider).
    """
    kinds = [DType(d) for d in dtypes]
    if any(d.is_float for d in kinds):
        wide = max((d for d in kinds if d.is_float), key=lambda d: d.bits)
        acc = DType("float32") if wide.bits < 32 else wide
        out = DType(out_dtype or wide)
    elif all(d.is_int for d in kinds):
        wide = max(kinds, key=lambda d: d.bits)
        acc = DType("int32") if wide.bits <= 16 else wide
        out = DType(out_dtype or acc)
    else:
        raise TypeError(f"{op}: cannot multiply and add {' and '.join(dtypes)}")
    if out.is_float and out.bits >= 32 and (not acc.is_float or out.bits > acc.bits):
        acc = out
    if out.is_int and acc.is_int and out.bits > acc.bits:
        acc = out
    return acc, out


def prod_of(dims: Sequence[Any]) -> Expr:
    """Returns the product of sizes."""
    out: Expr = const(1)
    for d in dims:
        e = convert(d)
        out = e if isinstance(out, IntImm) and out.value == 1 else out * e
    return out


def converted(total: Tensor, out_dtype: str, name: str) -> Tensor:
    """Returns ``total`` when it has the data type already, else a stage that converts it."""
    if total.dtype == out_dtype:
        return total
    out: Tensor = compute(total.shape, lambda *i: cast(out_dtype, total(*i)), name=name, tag=ELEMWISE)
    return out


def with_bias(op: str, total: Tensor, bias: Tensor | None, channel: int, acc: str, out: str, name: str) -> Tensor:
    """Returns ``total`` plus one number per channel, converted to ``out``."""
    if bias is None:
        return converted(total, out, name)
    b = check_tensor(op, bias, 1, "the bias")
    requires = require_same(op, "the number of output channels", total.shape[channel], b.shape[0], total, b)
    shifted: Tensor = compute(
        total.shape,
        lambda *i: total(*i) + cast(acc, b(i[channel])),
        name=f"{name}_bias",
        tag=BROADCAST,
        requires=requires,
    )
    return converted(shifted, out, f"{name}_out")


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

    Sizes that broadcast to one are collected, each once, so that they do not nest deeper with each operator. Of a size
    and a formula that is 1 where the size is, it is the size.
    """
    if same(x, y) or _is_one(y):
        return x
    if _is_one(x):
        return y
    if isinstance(x, IntImm) or isinstance(y, IntImm):
        return x if isinstance(x, IntImm) else y
    for one, other in ((x, y), (y, x)):  # a table that is cut at n has min(n, rows) of them
        if isinstance(one, Var) and one in vars_in(other) and _is_one(simplify(substitute(other, {one: const(1)}))):
            return one
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
