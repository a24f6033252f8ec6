"""This module reduces tensors along axes (sums, extrema and their places, softmax), and normalizes: layer, RMS, batch, group.

The stages of softmax are those of TVM's topi, which schedule rules recognize.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from ...tir.expr import And, Expr, IntImm, Or, Range, cast, const, convert, max_value, min_value, select
from ...tir.expr import max_ as larger
from ...tir.expr.intrinsics.number_operations import exp, isnan, log, rsqrt
from ..compute import compute
from ..reduce import max_, min_, reduce_axis, sum_
from ..reduce import prod as product
from ..tensor import Requirement, Tensor
from .arguments import (
    BROADCAST,
    COMM_REDUCE,
    ELEMWISE,
    accumulator,
    check_tensor,
    constant,
    normalize_axes,
    normalize_axis,
    prod_of,
    require_same,
    shape_text,
)
from .shapes import reshape


def sum(x: Tensor, axis: Any = None, keepdims: bool = False, out_dtype: str | None = None, name: str = "T_sum") -> Any:
    """Returns the sum over ``axis``. Narrow integers add up in int32, float16 and bfloat16 in float32 (and come
    back)."""
    return _summed("sum", sum_, x, axis, keepdims, out_dtype, name)


def prod(
    x: Tensor, axis: Any = None, keepdims: bool = False, out_dtype: str | None = None, name: str = "T_prod"
) -> Any:
    """Returns the product over ``axis``, with the data types of :func:`sum`."""
    return _summed("prod", product, x, axis, keepdims, out_dtype, name)


def max(x: Tensor, axis: Any = None, keepdims: bool = False, name: str = "T_max") -> Any:
    """Returns the largest element over ``axis``; NaN wins. Over no elements it is -inf, or the smallest integer."""
    return _extreme("max", max_, x, axis, keepdims, name)


def min(x: Tensor, axis: Any = None, keepdims: bool = False, name: str = "T_min") -> Any:
    """Returns the smallest element over ``axis``; NaN wins. Over no elements it is inf, or the largest integer."""
    return _extreme("min", min_, x, axis, keepdims, name)


def _extreme(op: str, reducer: Any, x: Tensor, axis: Any, keepdims: bool, name: str) -> Any:
    """Returns the extreme. That of half floats is found in float32, which is exact and converts each element once."""
    check_tensor(op, x)
    if not (x.dtype.is_float and x.dtype.bits < 32):
        return reduce_over(op, x, axis, keepdims, name, lambda e, k: reducer(e, axis=k))
    wide = reduce_over(op, x, axis, keepdims, f"{name}_red", lambda e, k: reducer(cast("float32", e), axis=k))
    return compute(wide.shape, lambda *i: cast(x.dtype, wide(*i)), name=name, tag=ELEMWISE)


def mean(x: Tensor, axis: Any = None, keepdims: bool = False, name: str = "T_mean") -> Any:
    """Returns the mean over ``axis``: a sum, then a division (integers: in float32)."""
    check_tensor("mean", x)
    axes = normalize_axes("mean", axis, x.ndim)
    acc = x.dtype if x.dtype.is_float and x.dtype.bits >= 32 else "float32"
    total = reduce_over("mean", x, axis, keepdims, f"{name}_sum", lambda e, k: sum_(cast(acc, e), axis=k))
    count = prod_of([x.shape[a] for a in axes])
    out = x.dtype if x.dtype.is_float else "float32"
    return compute(total.shape, lambda *i: cast(out, total(*i) / cast(acc, count)), name=name, tag=ELEMWISE)


def _summed(op: str, reducer: Any, x: Tensor, axis: Any, keepdims: bool, out_dtype: str | None, name: str) -> Any:
    check_tensor(op, x)
    acc, out = accumulator(op, [x.dtype], out_dtype)
    first = name if acc == out else f"{name}_red"
    total = reduce_over(op, x, axis, keepdims, first, lambda e, k: reducer(cast(acc, e), axis=k))
    if acc == out:
        return total
    return compute(total.shape, lambda *i: cast(out, total(*i)), name=name, tag=ELEMWISE)


def extremes(x: Tensor, name: str = "T_extremes") -> Any:
    """Returns the largest and the smallest of all elements; NaN wins.

    The second one is the largest of -x, or of ~x for integers, which has no overflow. Over no elements they are those of
    :func:`max` and :func:`min`. A vector is read once; of more dimensions schedules take both one after the other.
    """
    check_tensor("extremes", x)
    wide = "float32" if x.dtype.is_float and x.dtype.bits < 32 else x.dtype
    loops = [reduce_axis(Range.from_extent(e), name=f"k{n}") for n, e in enumerate(x.shape or (const(1),))]

    def side(c: Expr, e: Expr) -> Expr:
        return select(c.equal(0), e, -e if x.dtype.is_float else ~e)

    def element(c: Expr) -> Expr:
        return side(c, cast(wide, x(*[k.var for k in loops[: x.ndim]])))

    found = compute((2,), lambda c: max_(element(c), axis=loops), name=f"{name}_red", tag=COMM_REDUCE)
    return compute((2,), lambda c: cast(x.dtype, side(c, found(c))), name=name, tag=ELEMWISE)


def reduce_over(op: str, x: Tensor, axis: Any, keepdims: bool, name: str, make: Callable[[Any, Any], Any]) -> Any:
    """Returns a stage that reduces the elements of ``x`` over ``axis`` with ``make(element, axes)``."""
    check_tensor(op, x)
    axes = normalize_axes(op, axis, x.ndim)
    extents = [x.shape[a] for a in axes] or [const(1)]  # each element alone, where there are no axes
    loops = [reduce_axis(Range.from_extent(e), name=f"k{n}") for n, e in enumerate(extents)]
    kept = [d for d in range(x.ndim) if d not in axes]
    shape = [const(1, x.shape[d].dtype) if d in axes else x.shape[d] for d in range(x.ndim)]
    if not keepdims:
        shape = [x.shape[d] for d in kept]

    def f(*i: Expr) -> Any:
        where: list[Any] = [None] * x.ndim
        for d, loop in zip(axes, loops, strict=bool(axes)):
            where[d] = loop.var
        for n, d in enumerate(kept):
            where[d] = i[d] if keepdims else i[n]
        return make(x(*where), loops)

    return compute(shape, f, name=name, tag=COMM_REDUCE)


def argmax(
    x: Tensor, axis: int | None = None, keepdims: bool = False, dtype: str = "int32", name: str = "T_argmax"
) -> Any:
    """Returns the position of the largest element along one axis or (None) in the flattened tensor. It is the first of
    equals, or the first NaN where there is one."""
    return _arg_extreme("argmax", x, axis, keepdims, dtype, name)


def argmin(
    x: Tensor, axis: int | None = None, keepdims: bool = False, dtype: str = "int32", name: str = "T_argmin"
) -> Any:
    """Returns the position of the smallest element along one axis or (None) in the flattened tensor. It is the first of
    equals, or the first NaN where there is one."""
    return _arg_extreme("argmin", x, axis, keepdims, dtype, name)


def _arg_extreme(op: str, x: Tensor, axis: Any, keepdims: bool, dtype: str, name: str) -> Any:
    check_tensor(op, x)
    if axis is not None:
        axis = normalize_axis(op, axis, x.ndim)

    axes = normalize_axes(op, axis, x.ndim)
    best = _extreme(op, max_ if op == "argmax" else min_, x, axis, True, f"{name}_value")
    count = prod_of([x.shape[a] for a in axes])
    wide = "int32" if isinstance(count, IntImm) and count.value < 1 << 31 else "int64"

    def place(*i: Expr) -> Any:
        """Returns the position of an element that is the extreme of its row, and of others one behind all."""
        position = reduce(lambda at, a: at * x.shape[a] + i[a], axes, const(0))
        own, extreme = x(*i), best(*[const(0) if d in axes else e for d, e in enumerate(i)])
        hit = own.equal(extreme)
        if x.dtype.is_float:
            hit = Or(hit, And(isnan(own), isnan(extreme)))
        return select(hit, cast(wide, convert(position)), const(max_value(wide), wide))

    places = compute(x.shape, place, name=f"{name}_place", tag=ELEMWISE)
    first = reduce_over(
        op, places, axis, keepdims, name if dtype == wide else f"{name}_first", lambda e, k: min_(e, axis=k)
    )
    return first if dtype == wide else compute(first.shape, lambda *i: cast(dtype, first(*i)), name=name, tag=ELEMWISE)


class _Rows:
    """The parts of both functions: indices with and without the axis, and the row's maximum and sum."""

    def __init__(self, op: str, x: Tensor, axis: int) -> None:
        check_tensor(op, x)
        if not x.dtype.is_float:
            raise TypeError(f"{op}: the input is {x.dtype}; convert it to a float with te.ops.cast")
        if x.ndim == 0:
            raise ValueError(f"{op}: the input has no dimension")
        self.x, self.axis = x, normalize_axis(op, axis, x.ndim)
        self.wide = x.dtype if x.dtype.bits >= 32 else "float32"
        self.rows = [e for d, e in enumerate(x.shape) if d != self.axis]

    def row(self, i: Sequence[Expr]) -> list[Expr]:
        """Returns the index of the row that holds ``i``."""
        return [e for d, e in enumerate(i) if d != self.axis]

    def along(self, row: Sequence[Expr], k: Any) -> list[Any]:
        """Returns the index of the ``k``-th element of a row."""
        return [*row[: self.axis], k, *row[self.axis :]]

    def element(self, i: Sequence[Any]) -> Expr:
        """Returns an element, at least float32."""
        return cast(self.wide, self.x(*i))

    def highest(self, m: Any, name: str) -> Tensor:
        """Returns the maximum of each row, by a reduction over ``m``."""
        stage: Tensor = compute(
            self.rows, lambda *r: max_(self.element(self.along(r, m.var)), axis=m), name=f"{name}_maxelem"
        )
        return stage

    def axis_of(self) -> Any:
        return reduce_axis(Range.from_extent(self.x.shape[self.axis]), name="k")


def softmax(x: Tensor, axis: int = -1, safe: bool = False, name: str = "T_softmax") -> Tensor:
    """Returns exp(x - max x) / Σ exp(x - max x) along ``axis``; a row of -inf is NaN, with ``safe`` 0.

    Stages ``T_softmax_maxelem``, ``T_softmax_exp``, ``T_softmax_expsum``, ``T_softmax_scale`` (one division per row in
    place of one per element; the sum is at least 1, so this costs one rounding), ``T_softmax_norm``. Narrow floats are
    computed in float32.
    """
    rows = _Rows("softmax", x, axis)
    k, m = rows.axis_of(), rows.axis_of()
    highest = rows.highest(m, name)

    one, lowest = const(1.0, rows.wide), const(min_value(rows.wide), rows.wide)

    def from_highest(*i: Expr) -> Any:
        most = highest(*rows.row(i))
        return exp(rows.element(i) - (larger(most, lowest) if safe else most))

    exps = compute(x.shape, from_highest, name=f"{name}_exp")
    total = compute(rows.rows, lambda *r: sum_(exps(*rows.along(r, k.var)), axis=k), name=f"{name}_expsum")
    scale = compute(rows.rows, lambda *r: one / (larger(total(*r), one) if safe else total(*r)), name=f"{name}_scale")
    out: Tensor = compute(
        x.shape,
        lambda *i: cast(x.dtype, exps(*i) * scale(*rows.row(i))),
        name=f"{name}_norm",
        tag="softmax_output",
        attrs={"axis": rows.axis},
    )
    return out


def log_softmax(x: Tensor, axis: int = -1, name: str = "T_log_softmax") -> Tensor:
    """Returns x - max x - log Σ exp(x - max x) along ``axis``."""
    rows = _Rows("log_softmax", x, axis)
    k, m = rows.axis_of(), rows.axis_of()
    highest = rows.highest(m, name)
    total = compute(
        rows.rows,
        lambda *r: sum_(exp(rows.element(rows.along(r, k.var)) - highest(*r)), axis=k),
        name=f"{name}_expsum",
    )
    logs = compute(rows.rows, lambda *r: log(total(*r)), name=f"{name}_log")
    out: Tensor = compute(
        x.shape,
        lambda *i: cast(x.dtype, rows.element(i) - highest(*rows.row(i)) - logs(*rows.row(i))),
        name=name,
        tag="softmax_output",
        attrs={"axis": rows.axis},
    )
    return out


class _Over:
    """A reduction over ``axes`` of ``x``: shapes and indices with and without them."""

    def __init__(self, op: str, x: Tensor, axis: Any) -> None:
        check_tensor(op, x)
        if not x.dtype.is_float:
            raise TypeError(f"{op}: the input is {x.dtype}; convert it to a float with te.ops.cast")
        self.x, self.axes = x, normalize_axes(op, axis, x.ndim)
        self.wide = x.dtype if x.dtype.bits >= 32 else "float32"
        self.kept = [x.shape[d] for d in range(x.ndim) if d not in self.axes]
        self.count = cast(self.wide, prod_of([x.shape[d] for d in self.axes]))

    def row(self, i: Sequence[Expr]) -> list[Expr]:
        return [e for d, e in enumerate(i) if d not in self.axes]

    def inside(self, i: Sequence[Expr]) -> list[Expr]:
        return [i[d] for d in self.axes]

    def element(self, i: Sequence[Any]) -> Expr:
        return cast(self.wide, self.x(*i))

    def total(self, f: Any, name: str) -> Tensor:
        """Returns the sum over the axes of ``f(index of the element, index of the row)``."""
        loops = [reduce_axis(Range.from_extent(self.x.shape[d]), name=f"k{n}") for n, d in enumerate(self.axes)]

        def body(*r: Expr) -> Any:
            rest = iter(r)
            index = [loops[self.axes.index(d)].var if d in self.axes else next(rest) for d in range(self.x.ndim)]
            return sum_(f(index, r), axis=loops)

        out: Tensor = compute(self.kept, body, name=name, tag="comm_reduce")
        return out

    def check(self, op: str, what: str, t: Tensor | None) -> list[Requirement]:
        """Check that ``t`` has the shape of the axes, and return what the call has to check."""
        if t is None:
            return []
        check_tensor(op, t, len(self.axes), what)
        pairs = zip(self.axes, t.shape, strict=True)
        return [r for d, e in pairs for r in require_same(op, f"the size of {what}", self.x.shape[d], e, self.x, t)]


def layer_norm(
    x: Tensor,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    axis: Any = -1,
    epsilon: float = 1e-5,
    name: str = "T_layer_norm",
) -> Tensor:
    """Returns (x - mean) / √(variance + ε) · gamma + beta over ``axis``, one or several. The source is Ba et al.
    (2016).

    The variance is that of the differences from the mean, in a second pass: exact where the sum of squares cancels.
    Stages ``…_sum``, ``…_mean``, ``…_sqsum``, ``…_rstd`` and the result; narrow floats are computed in float32.
    """
    op = "layer_norm"
    over = _Over(op, x, axis)
    requires = [*over.check(op, "gamma", gamma), *over.check(op, "beta", beta)]
    total = over.total(lambda i, r: over.element(i), f"{name}_sum")
    mean = compute(over.kept, lambda *r: total(*r) / over.count, name=f"{name}_mean", tag=ELEMWISE)

    def squared(i: Any, r: Any) -> Expr:
        apart: Expr = over.element(i) - mean(*r)
        return apart * apart

    squares = over.total(squared, f"{name}_sqsum")
    scale = compute(
        over.kept,
        lambda *r: rsqrt(squares(*r) / over.count + const(epsilon, over.wide)),
        name=f"{name}_rstd",
        tag=ELEMWISE,
    )

    def f(*i: Expr) -> Expr:
        e = (over.element(i) - mean(*over.row(i))) * scale(*over.row(i))
        if gamma is not None:
            e = e * cast(over.wide, gamma(*over.inside(i)))
        if beta is not None:
            e = e + cast(over.wide, beta(*over.inside(i)))
        return cast(x.dtype, e)

    out: Tensor = compute(x.shape, f, name=name, tag=BROADCAST, requires=requires)
    return out


def rms_norm(
    x: Tensor, weight: Tensor | None = None, axis: Any = -1, epsilon: float = 1e-5, name: str = "T_rms_norm"
) -> Tensor:
    """Returns x / √(mean of x² + ε) · weight (Zhang and Sennrich, 2019), over ``axis``."""
    op = "rms_norm"
    over = _Over(op, x, axis)
    requires = over.check(op, "the weight", weight)
    squares = over.total(lambda i, r: over.element(i) * over.element(i), f"{name}_sqsum")
    scale = compute(
        over.kept,
        lambda *r: rsqrt(squares(*r) / over.count + const(epsilon, over.wide)),
        name=f"{name}_rstd",
        tag=ELEMWISE,
    )

    def f(*i: Expr) -> Expr:
        e = over.element(i) * scale(*over.row(i))
        if weight is not None:
            e = e * cast(over.wide, weight(*over.inside(i)))
        return cast(x.dtype, e)

    out: Tensor = compute(x.shape, f, name=name, tag=BROADCAST, requires=requires)
    return out


def batch_norm(
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    axis: int = 1,
    epsilon: float = 1e-5,
    name: str = "T_batch_norm",
) -> Tensor:
    """Returns (x - mean) / √(var + ε) · gamma + beta with the statistics given. There is one of each per index along
    ``axis``.

    This is the form used after training. ``…_scale`` holds gamma / √(var + ε).
    """
    op = "batch_norm"
    check_tensor(op, x)
    if not x.dtype.is_float:
        raise TypeError(f"{op}: the input is {x.dtype}; convert it to a float with te.ops.cast")
    axis = normalize_axis(op, axis, x.ndim)
    requires: list[Requirement] = []
    for t, what in ((gamma, "gamma"), (beta, "beta"), (moving_mean, "the mean"), (moving_var, "the variance")):
        check_tensor(op, t, 1, what)
        requires += require_same(op, f"the size of {what}", x.shape[axis], t.shape[0], x, t)
    wide = x.dtype if x.dtype.bits >= 32 else "float32"
    scale = compute(
        (x.shape[axis],),
        lambda c: cast(wide, gamma(c)) * rsqrt(cast(wide, moving_var(c)) + const(epsilon, wide)),
        name=f"{name}_scale",
    )

    def f(*i: Expr) -> Expr:
        c = i[axis]
        apart = cast(wide, x(*i)) - cast(wide, moving_mean(c))
        return cast(x.dtype, apart * scale(c) + cast(wide, beta(c)))

    out: Tensor = compute(x.shape, f, name=name, tag=BROADCAST, requires=requires)
    return out


def group_norm(
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    groups: int,
    epsilon: float = 1e-5,
    name: str = "T_group_norm",
) -> Tensor:
    """Returns the layer norm over each of ``groups`` groups of channels (Wu and He, 2018). The shapes are x: (N, C, …),
    gamma and beta: (C,)."""
    op = "group_norm"
    check_tensor(op, x)
    if x.ndim < 2:
        raise ValueError(f"{op}: the input has the shape {shape_text(x)}; at least 2 dimensions are expected")
    channels = constant(op, "the number of channels", x.shape[1])
    if groups < 1 or channels % groups:
        raise ValueError(f"{op}: {groups} groups do not divide {channels} channels")
    requires: list[Requirement] = []
    for t, what in ((gamma, "gamma"), (beta, "beta")):
        check_tensor(op, t, 1, what)
        requires += require_same(op, f"the size of {what}", x.shape[1], t.shape[0], x, t)
    inside = [const(channels // groups), *x.shape[2:]]
    grouped = reshape(x, (x.shape[0], groups, *inside), name=f"{name}_groups")
    normal = layer_norm(grouped, axis=tuple(range(2, x.ndim + 1)), epsilon=epsilon, name=f"{name}_norm")

    def f(*i: Expr) -> Expr:
        c, width = i[1], channels // groups
        e = normal(i[0], c // width, c % width, *i[2:])
        return e * cast(x.dtype, gamma(c)) + cast(x.dtype, beta(c))

    out: Tensor = compute(x.shape, f, name=name, tag=BROADCAST, requires=requires)
    return out
