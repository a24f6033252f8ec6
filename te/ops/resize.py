"""This module resizes images by nearest, linear or cubic interpolation, with ONNX's coordinate modes.

:func:`resample` is the general form along one axis, whose indices and weights are tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...tir.expr import Expr, IntImm, cast, const, max_, min_, select
from ..compute import compute
from ..reduce import reduce_axis, sum_
from ..tensor import Tensor
from .blocks.operator_arguments import (
    ELEMWISE,
    INJECTIVE,
    check_tensor,
    constant,
    normalize_axis,
    one_each,
    require_same,
)
from .blocks.windows import check_layout

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
