"""This module has normalizations: layer, RMS, batch, group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...tir.expr import Expr, Range, cast, const
from ...tir.expr.intrinsics.number_operations import rsqrt
from ..compute import compute
from ..operation import Requirement
from ..reduce import reduce_axis, sum_
from ..tensor import Tensor
from .blocks.operator_arguments import (
    BROADCAST,
    ELEMWISE,
    check_tensor,
    constant,
    normalize_axes,
    normalize_axis,
    prod_of,
    require_same,
    shape_text,
)
from .blocks.reshape_transpose import reshape


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
