"""This module resizes images, and samples them between their elements: on grids, in regions, in moved windows.

:func:`resample` is the general form along one axis, whose indices and weights are tables.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce as combine
from typing import Any

from ...tir.expr import Expr, IntImm, Or, all_, cast, const, max_, min_, select
from ...tir.expr import max_ as larger
from ...tir.expr import min_ as smaller
from ...tir.expr.intrinsics.control_and_memory import if_then_else
from ...tir.expr.intrinsics.number_operations import abs_, floor, fmod, round_
from ..compute import compute
from ..reduce import max_ as max_over
from ..reduce import reduce_axis, sum_
from ..tensor import Tensor
from .arguments import (
    ELEMWISE,
    INJECTIVE,
    check_tensor,
    constant,
    normalize_axis,
    one_each,
    per_dimension,
    require_same,
)
from .windows import check_layout

_COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
_ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@dataclass(frozen=True, slots=True)
class _Interpolation:
    """How elements of the result are made of those of the image; :func:`resize2d` explains it."""

    method: str
    coordinate_mode: str
    rounding: str
    cubic_alpha: float

    def check(self, op: str) -> None:
        """Raise ValueError for a word that is not known."""
        for what, value, known in (
            ("method", self.method, ("nearest", "linear", "cubic")),
            ("coordinate_mode", self.coordinate_mode, _COORDINATES),
            ("rounding", self.rounding, _ROUNDINGS),
        ):
            if value not in known:
                raise ValueError(f"{op}: {what}={value!r}; there are {', '.join(map(repr, known))}")


def _place(i: Expr, size: Expr, out: int, mode: str) -> tuple[Expr, int]:
    """Returns where output ``i`` of ``out`` lies among ``size`` elements, as numerator and denominator, so that it is
    exact."""
    if mode == "asymmetric":
        return i * size, out
    if mode == "align_corners":
        return (i * (size - 1), out - 1) if out > 1 else (i * 0, 1)
    if mode == "pytorch_half_pixel" and out == 1:
        return i * 0, 1
    return (i * 2 + 1) * size - out, 2 * out


def _nearest(i: Expr, size: Expr, out: int, how: _Interpolation) -> Expr:
    above, below = _place(i, size, out, how.coordinate_mode)
    if how.rounding == "floor":
        at: Expr = above // below
    elif how.rounding == "ceil":
        at = (above + (below - 1)) // below
    elif how.rounding == "round_prefer_ceil":
        at = (above * 2 + below) // (2 * below)
    else:
        at = (above * 2 + (below - 1)) // (2 * below)
    return _clamped(at, size)


def _clamped(at: Expr, size: Expr) -> Expr:
    return min_(max_(at, 0), size - 1)


def _weights(t: Expr, method: str, a: float) -> list[Expr]:
    """Returns the weights of the neighbours for a point at ``t`` in [0, 1). The neighbours begin at 0 (linear) or -1
    (cubic)."""
    if method == "linear":
        return [1 - t, t]
    u = 1 - t  # Keys' kernel, in a form without cancellation: a d³ - 5a d² + 8a d - 4a = a (d - 1) (d - 2)²
    inner = [1 - d * d * ((a + 3) - d * (a + 2)) for d in (t, u)]
    return [t * u * u * a, *inner, t * t * u * a]


def _along(x: Tensor, axis: int, out: int, how: _Interpolation, name: str) -> Tensor:
    """Returns ``x`` interpolated along one dimension; the weights are computed in a small stage of their own."""
    size, acc = x.shape[axis], x.dtype
    first, taps = (0, 2) if how.method == "linear" else (-1, 4)

    def weight(o: Expr, k: Expr) -> Expr:
        above, below = _place(o, size, out, how.coordinate_mode)
        t = cast(acc, above % below) / const(float(below), acc)
        chosen, *others = reversed(_weights(t, how.method, how.cubic_alpha))
        for number, w in reversed(list(enumerate(reversed(others)))):
            chosen = select(k.equal(number), w, chosen)
        return chosen

    weights = compute((out, taps), weight, name=f"{name}_weights", tag=INJECTIVE)

    def f(*i: Expr) -> Expr:
        above, below = _place(i[axis], size, out, how.coordinate_mode)
        total: Expr | None = None
        for k in range(taps):
            at = _clamped(above // below + (first + k), size)
            term = x(*i[:axis], at, *i[axis + 1 :]) * weights(i[axis], k)
            total = term if total is None else total + term
        assert total is not None
        return total

    shape = [*x.shape[:axis], const(out), *x.shape[axis + 1 :]]
    result: Tensor = compute(shape, f, name=name, tag="resize")
    return result


def _resize(op: str, n: int, data: Tensor, size: Any, layout: str, how: _Interpolation, name: str) -> Tensor:
    check_tensor(op, data, n + 2, "the data")
    _, first = check_layout(op, layout, n)
    how.check(op)
    outs = [constant(op, "size", s) for s in one_each(op, f"size={size!r}", size, n)]
    if min(outs) < 1:
        raise ValueError(f"{op}: size={size!r} has to be at least 1")
    name = name or op
    axes = range(first, first + n)
    if how.method == "nearest":
        shape = list(data.shape)
        shape[first : first + n] = [const(o) for o in outs]

        def f(*i: Expr) -> Expr:
            index = list(i)
            for axis, out in zip(axes, outs, strict=True):
                index[axis] = _nearest(i[axis], data.shape[axis], out, how)
            return data(*index)

        nearest: Tensor = compute(shape, f, name=name, tag=INJECTIVE)
        return nearest
    acc = data.dtype if data.dtype.is_float and data.dtype.bits >= 32 else "float32"
    x = data if data.dtype == acc else compute(data.shape, lambda *i: cast(acc, data(*i)), name=f"{name}_wide")
    pairs = [(axis, out) for axis, out in zip(axes, outs, strict=True) if not _stays(data.shape[axis], out)]
    pairs.sort(
        key=lambda p: _growth(data.shape[p[0]], p[1])
    )  # dimensions that shrink come first, so that intermediate results are small
    for number, (axis, out) in enumerate(pairs):
        last = number == len(pairs) - 1
        x = _along(x, axis, out, how, name if last else f"{name}_{layout[axis].lower()}")
    back = data.dtype if data.dtype.is_float else acc
    if back != acc or x is data:
        wide = x
        x = compute(wide.shape, lambda *i: cast(back, wide(*i)), name=f"{name}_result")
    return x


def _stays(size: Expr, out: int) -> bool:
    """Returns whether a dimension keeps its size, so that each output element is an input element."""
    return isinstance(size, IntImm) and size.value == out


def _growth(size: Expr, out: int) -> float:
    return out / max(size.value, 1) if isinstance(size, IntImm) else 1.0


def resize1d(
    data: Tensor, size: Any, layout: str = "NCW", method: str = "linear", coordinate_mode: str = "half_pixel",
    rounding: str = "round_prefer_floor", cubic_alpha: float = -0.75, name: str = "",
) -> Tensor:  # fmt: skip
    """:func:`resize2d` in one dimension, ``NCW`` or ``NWC``."""
    how = _Interpolation(method, coordinate_mode, rounding, cubic_alpha)
    return _resize("resize1d", 1, data, size, layout, how, name)


def resize2d(
    data: Tensor, size: Any, layout: str = "NCHW", method: str = "linear", coordinate_mode: str = "half_pixel",
    rounding: str = "round_prefer_floor", cubic_alpha: float = -0.75, name: str = "",
) -> Tensor:  # fmt: skip
    """Returns the image at ``size`` (a number, or one per dimension) elements, as ONNX's Resize does it.

    ``method``: ``nearest``, ``linear``, ``cubic`` (with the coefficient ``cubic_alpha``). Output ``i`` of ``out`` lies among
    ``n`` elements at ``(i + 0.5) * n / out - 0.5`` (``coordinate_mode="half_pixel"``; ``pytorch_half_pixel`` is the same
    but for ``out`` = 1, which is at 0), ``i * n / out`` (``asymmetric``) or ``i * (n - 1) / (out - 1)`` (``align_corners``).
    ``rounding`` of ``nearest``: ``round_prefer_floor``, ``round_prefer_ceil``, ``floor``, ``ceil``. Outside the image the
    nearest element counts. Places are exact, whatever the sizes. ``linear`` and ``cubic`` of integers give float32.
    """
    how = _Interpolation(method, coordinate_mode, rounding, cubic_alpha)
    return _resize("resize2d", 2, data, size, layout, how, name)


def resize3d(
    data: Tensor, size: Any, layout: str = "NCDHW", method: str = "linear", coordinate_mode: str = "half_pixel",
    rounding: str = "round_prefer_floor", cubic_alpha: float = -0.75, name: str = "",
) -> Tensor:  # fmt: skip
    """:func:`resize2d` in three dimensions, ``NCDHW`` or ``NDHWC``."""
    how = _Interpolation(method, coordinate_mode, rounding, cubic_alpha)
    return _resize("resize3d", 3, data, size, layout, how, name)


def resample(x: Tensor, indices: Tensor, weights: Tensor, axis: int = -1, name: str = "T_resample") -> Tensor:
    """Returns ``sum over k of weights[i, k] * x[…, indices[i, k], …]`` for each ``i`` along ``axis``.

    Any interpolation is such a sum. An index outside gives the nearest element. Integers give float32.
    """
    op = "resample"
    check_tensor(op, x)
    axis = normalize_axis(op, axis, x.ndim)
    check_tensor(op, indices, 2, "the indices")
    check_tensor(op, weights, 2, "the weights")
    count, taps = indices.shape[0], constant(op, "the number of neighbours", indices.shape[1])
    requires = [
        r
        for d in (0, 1)
        for r in require_same(op, f"size {d} of the tables", indices.shape[d], weights.shape[d], indices, weights)
    ]
    wide = x.dtype if x.dtype.is_float and x.dtype.bits >= 32 else "float32"
    k = reduce_axis((0, taps), "k")
    shape = [count if d == axis else e for d, e in enumerate(x.shape)]

    def f(*i: Expr) -> Any:
        at = indices(i[axis], k.var)
        at = min_(max_(at, const(0, at.dtype)), cast(at.dtype, x.shape[axis]) - const(1, at.dtype))
        value = cast(wide, x(*i[:axis], at, *i[axis + 1 :]))
        return sum_(value * cast(wide, weights(i[axis], k.var)), axis=k)

    out: Tensor = compute(
        shape, f, name=name if wide == x.dtype else f"{name}_wide", tag="comm_reduce", requires=requires
    )
    if x.dtype.is_float and wide != x.dtype:
        narrow: Tensor = compute(shape, lambda *i: cast(x.dtype, out(*i)), name=name, tag=ELEMWISE)
        return narrow
    return out


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

    def places(d: int) -> Tensor:
        """Returns the coordinates of the samples, -1 for those outside of the image."""

        def place(r: Expr, cell: Expr, k: Expr) -> Any:
            low, high = [
                cast(wide, rois(r, const(n))) * const(spatial_scale, wide) - half
                for n in ((1, 3) if d == 0 else (0, 2))
            ]
            length = high - low if aligned else larger(high - low, const(1.0, wide))
            size = length / const(float(pooled_size[d]), wide)
            part = (cast(wide, k) + const(0.5, wide)) * size / const(float(sample_ratio), wide)
            at = low + cast(wide, cell) * size + part
            extent = cast(wide, data.shape[2 + d])
            inside = smaller(larger(at, const(0.0, wide)), extent - const(1.0, wide))
            return select(Or(at < const(-1.0, wide), at > extent), const(-1.0, wide), inside)

        shape = (rois.shape[0], const(pooled_size[d]), const(sample_ratio))
        made: Tensor = compute(shape, place, f"{name}_{'rows' if d == 0 else 'columns'}")
        return made

    rows, columns = places(0), places(1)

    def f(r: Expr, c: Expr, y: Expr, x: Expr) -> Any:
        image = smaller(larger(batch(r), const(0, batch.dtype)), images - const(1, batch.dtype))
        at = rows(r, y, axes[0].var), columns(r, x, axes[1].var)
        zero = const(0.0, wide)
        ends = [cast("int32", e) - 1 for e in data.shape[2:]]
        near = [smaller(cast("int32", floor(larger(p, zero))), end) for p, end in zip(at, ends, strict=True)]
        far = [smaller(low + 1, end) for low, end in zip(near, ends, strict=True)]
        shares = [p - cast(wide, low) for p, low in zip(at, near, strict=True)]
        weights = [(const(1.0, wide) - share, share) for share in shares]
        terms = [
            cast(wide, data(image, c, (near, far)[i][0], (near, far)[j][1])) * (weights[0][i] * weights[1][j])
            for i, j in itertools.product(range(2), repeat=2)
        ]
        value = combine(larger if mode == "max" else lambda a, b: a + b, terms)
        value = if_then_else(all_(*[p >= zero for p in at]), value, zero)
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
