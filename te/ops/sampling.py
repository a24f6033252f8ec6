"""This module samples images between their elements: at the places of a grid, in regions, in moved windows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce as combine
from typing import Any

from ...tir.expr import Expr, Or, all_, cast, const, max_, min_, select
from ...tir.expr import max_ as larger
from ...tir.expr import min_ as smaller
from ...tir.expr.intrinsics.control_and_memory import if_then_else
from ...tir.expr.intrinsics.number_operations import abs_, floor, fmod, round_
from ..compute import compute
from ..reduce import max_ as max_over
from ..reduce import reduce_axis, sum_
from ..tensor import Tensor
from .blocks.operator_arguments import ELEMWISE, INJECTIVE, check_tensor, constant, per_dimension, require_same

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
    axis = _SampledAxis(data.dtype if data.dtype.bits >= 32 else "float32", method, padding_mode, align_corners)
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


def _places(data: Tensor, grid: Tensor, axis: _SampledAxis, name: str) -> Tensor:
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
class _SampledAxis:
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


def roi_align(
    data: Tensor, rois: Tensor, batch: Tensor, pooled_size: tuple[int, int], spatial_scale: float = 1.0,
    sample_ratio: int = 2, aligned: bool = True, mode: str = "avg", name: str = "T_roi_align",
) -> Tensor:  # fmt: skip
    """Returns the regions ``(R, C, *pooled_size)``. Each element is the mean or the maximum of samples.

    There are ``sample_ratio`` by ``sample_ratio`` samples per element.
    data: (N, C, H, W); rois: (R, 4) as x1, y1, x2, y2; batch: (R), which image each region lies in. ``aligned`` moves
    regions by half an element; ``mode="max"`` takes the largest weighted neighbour, as ONNX does.
    """
    op = "roi_align"
    check_tensor(op, data, 4, "the data")
    check_tensor(op, rois, 2, "the regions")
    check_tensor(op, batch, 1, "the images' numbers")
    if sample_ratio < 1 or min(pooled_size) < 1:
        raise ValueError(f"{op}: pooled_size={pooled_size}, sample_ratio={sample_ratio}; both have to be at least 1")
    if mode not in ("avg", "max"):
        raise ValueError(f"{op}: mode={mode!r}; there are avg and max")
    wide = data.dtype if data.dtype.is_float and data.dtype.bits >= 32 else "float32"
    half = const(0.5 if aligned else 0.0, wide)
    axes = [reduce_axis((0, sample_ratio), n) for n in ("sy", "sx")]
    images = cast(batch.dtype, data.shape[0])

    def place(r: Expr, d: int, cell: Expr, k: Expr) -> tuple[Expr, Expr]:
        """Returns a sample's coordinate inside the image, and whether it was outside."""
        low, high = [
            cast(wide, rois(r, const(n))) * const(spatial_scale, wide) - half for n in ((1, 3) if d == 0 else (0, 2))
        ]
        length = high - low if aligned else larger(high - low, const(1.0, wide))
        size = length / const(float(pooled_size[d]), wide)
        part = (cast(wide, k) + const(0.5, wide)) * size / const(float(sample_ratio), wide)
        at = low + cast(wide, cell) * size + part
        extent = cast(wide, data.shape[2 + d])
        outside = Or(at < const(-1.0, wide), at > extent)
        return smaller(larger(at, const(0.0, wide)), extent - const(1.0, wide)), outside

    def f(r: Expr, c: Expr, y: Expr, x: Expr) -> Any:
        image = smaller(larger(batch(r), const(0, batch.dtype)), images - const(1, batch.dtype))
        (py, oy), (px, ox) = [
            place(r, d, cell, axis.var) for d, (cell, axis) in enumerate(zip((y, x), axes, strict=True))
        ]
        terms = linear_sample(data, (image, c), (py, px))
        value = combine(larger if mode == "max" else lambda a, b: a + b, terms)
        value = if_then_else(Or(oy, ox), const(0.0, wide), value)
        return max_over(value, axis=axes) if mode == "max" else sum_(value, axis=axes)

    shape = (rois.shape[0], data.shape[1], *[const(n) for n in pooled_size])
    total = compute(shape, f, f"{name}_samples", tag="roi_align")
    share = const(1.0 if mode == "max" else 1.0 / sample_ratio**2, wide)
    out: Tensor = compute(shape, lambda *i: cast(data.dtype, total(*i) * share), name, ELEMWISE)
    return out


def deformable_windows(
    data: Tensor, offset: Tensor, mask: Tensor | None = None, *, kernel: Any, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1, name: str = "T_deformable_windows",
) -> Tensor:  # fmt: skip
    """Returns the elements of each window, (N, C, KH, KW, OH, OW); a product with the weights is the convolution.

    data: (N, C, H, W); offset: (N, groups · KH · KW · 2, OH, OW), y before x; mask: (N, groups · KH · KW, OH, OW), a
    factor. ``groups`` divide the channels; each has offsets of its own. ``padding`` is before the first element.
    """
    op = "deformable_windows"
    check_tensor(op, data, 4, "the data")
    check_tensor(op, offset, 4, "the offsets")
    kh, kw = per_dimension(op, "kernel", kernel, 2)
    strides, dilations = per_dimension(op, "stride", stride, 2), per_dimension(op, "dilation", dilation, 2)
    before = per_dimension(op, "padding", padding, 2, least=0)
    channels = constant(op, "the number of channels", data.shape[1])
    if (
        groups < 1
        or channels % groups
        or constant(op, "the number of offsets", offset.shape[1]) != groups * kh * kw * 2
    ):
        raise ValueError(f"{op}: {offset.shape[1]} offsets and {channels} channels for {groups} groups of {kh}x{kw}")
    if mask is not None and constant(op, "the channels of the mask", mask.shape[1]) != groups * kh * kw:
        raise ValueError(f"{op}: the mask has {mask.shape[1]} channels, not {groups * kh * kw}")
    wide = data.dtype if data.dtype.is_float and data.dtype.bits >= 32 else "float32"
    per_group = channels // groups

    def f(n: Expr, c: Expr, ky: Expr, kx: Expr, y: Expr, x: Expr) -> Any:
        tap = (c // per_group * kh + ky) * kw + kx
        places = []
        for d, (cell, k) in enumerate(((y, ky), (x, kx))):
            start = cast(wide, cell * strides[d] + k * dilations[d] - before[d])
            places.append(start + cast(wide, offset(n, tap * 2 + d, y, x)))
        value = combine(lambda a, b: a + b, linear_sample(data, (n, c), places))
        value = value if mask is None else value * cast(wide, mask(n, tap, y, x))
        return cast(data.dtype, value)

    shape = (data.shape[0], data.shape[1], const(kh), const(kw), *offset.shape[2:])
    out: Tensor = compute(shape, f, name, tag="deformable_windows")
    return out


def element_or_zero(x: Tensor, lead: Sequence[Expr], at: Sequence[Expr]) -> Expr:
    """Returns the element of ``x`` at ``lead`` and the whole float coordinates ``at``, in their data type; zero outside.

    NaN and infinite coordinates are outside.
    """
    wide = at[0].dtype
    zero, one = const(0.0, wide), const(1.0, wide)
    sizes = [cast(wide, e) for e in x.shape[len(lead) :]]
    tests = [t for e, size in zip(at, sizes, strict=True) for t in (e >= zero, e <= size - one)]
    index = [cast("int32", select(all_(*tests), e, zero)) for e in at]
    return if_then_else(all_(*tests), cast(wide, x(*lead, *index)), zero)


def linear_sample(x: Tensor, lead: Sequence[Expr], places: Sequence[Expr]) -> list[Expr]:
    """Returns the neighbours of a place, each times its weight; their sum is the linear interpolation."""
    wide = places[0].dtype
    one = const(1.0, wide)
    below = [floor(p) for p in places]
    terms = []
    for corner in itertools.product(range(2), repeat=len(places)):
        term = element_or_zero(x, lead, [b + const(float(k), wide) for b, k in zip(below, corner, strict=True)])
        for p, b, k in zip(places, below, corner, strict=True):
            term = term * ((p - b) if k else (one - (p - b)))
        terms.append(term)
    return terms
