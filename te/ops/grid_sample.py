"""This module samples images at places that a grid names, as ONNX's GridSample and PyTorch's grid_sample do."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...tir.expr import Expr, all_, cast, const, max_, min_, select
from ...tir.expr.intrinsics.control_and_memory import if_then_else
from ...tir.expr.intrinsics.float_operations import abs_, floor, fmod, round_
from ..compute import compute
from ..tensor import Tensor
from .blocks.operator_arguments import INJECTIVE, check_tensor, constant, require_same

_METHODS, _PADDINGS = ("nearest", "linear", "cubic"), ("zeros", "border", "reflection")
_ALPHA = -0.75


def grid_sample(
    data: Tensor, grid: Tensor, method: str = "linear", padding_mode: str = "zeros", align_corners: bool = False,
    name: str = "T_grid_sample",
) -> Tensor:  # fmt: skip
    """Returns the images at the places of ``grid``: data (N, C, D1…), grid (N, O1…, n), result (N, C, O1…).

    The last axis of the grid has the coordinates, last dimension first; -1 and 1 are the image's ends: the middle of
    the outermost elements with ``align_corners``, else their edges. ``method``: ``nearest``, ``linear``, ``cubic``
    (Keys, -0.75). Outside the image there are ``zeros``, its ``border``, or its ``reflection``.
    """
    op = "grid_sample"
    check_tensor(op, data, (3, 4, 5), "the data")
    check_tensor(op, grid, data.ndim, "the grid")
    n = data.ndim - 2
    for what, given, known in (("method", method, _METHODS), ("padding_mode", padding_mode, _PADDINGS)):
        if given not in known:
            raise ValueError(f"{op}: {what}={given!r}; there are {', '.join(known)}")
    if constant(op, "the last extent of the grid", grid.shape[-1]) != n:
        raise ValueError(f"{op}: the grid has {grid.shape[-1]} coordinates for {n} dimensions")
    requires = require_same(op, "the batch", data.shape[0], grid.shape[0], data, grid)
    if not (data.dtype.is_float and grid.dtype.is_float):
        raise TypeError(f"{op}: floats are needed, not {data.dtype} and {grid.dtype}")
    axis = _Axis(data.dtype if data.dtype.bits >= 32 else "float32", method, padding_mode, align_corners)
    taps = {"nearest": 1, "linear": 2, "cubic": 4}[method]
    places = _places(data, grid, axis, f"{name}_places")
    points = (data.shape[0], *grid.shape[1:-1])
    table = (*points, const(n), const(taps))

    def chosen(d: Expr, make: Callable[[int], Expr]) -> Expr:
        """Returns ``make`` of the dimension ``d``."""
        out = make(n - 1)
        for k in range(n - 2, -1, -1):
            out = select(d.equal(k), make(k), out)
        return out

    def neighbour(*i: Expr) -> Any:
        at = floor(places(*i[:-1])) + cast(axis.dtype, i[-1] - (taps // 2 - 1)) if taps > 1 else round_(places(*i[:-1]))
        return chosen(i[-2], lambda d: axis.element(at, axis.size(data, d)))

    def weight(*i: Expr) -> Any:
        place = places(*i[:-1])
        return axis.weight(place - floor(place), i[-1])

    where = compute(table, neighbour, f"{name}_elements", tag=INJECTIVE)
    weights = None if taps == 1 else compute(table, weight, f"{name}_weights", tag=INJECTIVE)

    def f(*i: Expr) -> Any:
        total: Expr | None = None
        for corner in itertools.product(range(taps), repeat=n):
            at = [where(i[0], *i[2:], const(d), const(k)) for d, k in enumerate(corner)]
            inside = all_(*[e >= 0 for e in at])
            term = if_then_else(inside, cast(axis.dtype, data(*i[:2], *at)), const(0.0, axis.dtype))
            for d, k in enumerate(corner):
                term = term if weights is None else term * weights(i[0], *i[2:], const(d), const(k))
            total = term if total is None else total + term
        assert total is not None
        return cast(data.dtype, total)

    out: Tensor = compute([*data.shape[:2], *grid.shape[1:-1]], f, name=name, tag="grid_sample", requires=requires)
    return out


def _places(data: Tensor, grid: Tensor, axis: _Axis, name: str) -> Tensor:
    """Returns where each point lies among the elements, (N, O1…, n), first dimension first."""
    n = data.ndim - 2

    def place(*i: Expr) -> Any:
        p = cast(axis.dtype, grid(*i[:-1], n - 1 - i[-1]))
        out = axis.place(p, axis.size(data, n - 1))
        for d in range(n - 2, -1, -1):
            out = select(i[-1].equal(d), axis.place(p, axis.size(data, d)), out)
        return out

    raw = compute(grid.shape, place, name, tag=INJECTIVE)
    if axis.padding == "zeros" or axis.method == "cubic":
        return raw

    def moved(*i: Expr) -> Any:
        out = axis.inside(raw(*i), axis.size(data, n - 1))
        for d in range(n - 2, -1, -1):
            out = select(i[-1].equal(d), axis.inside(raw(*i), axis.size(data, d)), out)
        return out

    inside: Tensor = compute(grid.shape, moved, f"{name}_inside", tag=INJECTIVE)
    return inside


@dataclass(frozen=True)
class _Axis:
    """What coordinates along one dimension become; all numbers are of ``dtype``."""

    dtype: str
    method: str
    padding: str
    align: bool

    def number(self, value: float) -> Expr:
        return const(value, self.dtype)

    def size(self, data: Tensor, d: int) -> Expr:
        return cast(self.dtype, data.shape[2 + d])

    def place(self, p: Expr, size: Expr) -> Expr:
        """Returns where a coordinate from -1 to 1 lies among the elements."""
        one, half = self.number(1.0), self.number(0.5)
        return (p + one) * half * (size - one) if self.align else ((p + one) * size - one) * half

    def inside(self, at: Expr, size: Expr) -> Expr:
        """Returns the coordinate of the element that padding shows at ``at``."""
        zero, one = self.number(0.0), self.number(1.0)
        if self.padding == "reflection":
            low = zero if self.align else self.number(-0.5)
            span = size - one if self.align else size
            turn = fmod(abs_(at - low), max_(span * self.number(2.0), one))
            at = span - abs_(turn - span) + low
        return min_(max_(at, zero), size - one)

    def element(self, at: Expr, size: Expr) -> Expr:
        """Returns the index of a whole coordinate, -1 for one that is outside or NaN."""
        at = at if self.padding == "zeros" else self.inside(at, size)
        is_there = all_(at >= self.number(0.0), at <= size - self.number(1.0))
        return cast("int32", select(is_there, at, self.number(-1.0)))

    def weight(self, t: Expr, k: Expr) -> Expr:
        """Returns the weight of neighbour ``k`` for a point ``t`` behind the one below."""
        one, two = self.number(1.0), self.number(2.0)
        if self.method == "linear":
            return select(k.equal(0), one - t, t)
        a, d = self.number(_ALPHA), abs_(t - cast(self.dtype, k - 1))
        near = ((a + two) * d - (a + self.number(3.0))) * d * d + one
        far = ((d - self.number(5.0)) * d + self.number(8.0)) * d * a - a * self.number(4.0)
        return select(d <= one, near, far)
