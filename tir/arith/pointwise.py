"""This module computes bounds of an expression at each point of a small grid.

They are needed for indices computed in floating point, as resizing has them.

An interval contains every value that the machine may compute: a float operation whose result is not exact is widened by
a few units in the last place, so that rounding after each operation, fused multiply-adds and wider registers all stay
inside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ..expr import (
    Add,
    Call,
    Cast,
    Div,
    DType,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Select,
    Sub,
    Var,
    max_value,
    min_value,
)
from ..expr.traversal import pre_order

Numbers = NDArray[np.float64]
Ends = tuple[Numbers, Numbers]

_MOST_POINTS = 1 << 16
_WHOLE = 2.0**52
"""Whole numbers below this are exact as float64, the type of all computations here."""

_ULPS = {"float64": 2.0**-50, "float32": 2.0**-22, "float16": 2.0**-9, "bfloat16": 2.0**-6}
"""Four roundings of each type, relative to the value; results close to 0 also get the smallest numbers."""

_FINE = 2.0**10
_COARSE = {"float64": 2.0**24, "float32": 2.0**24, "float16": 2.0**11, "bfloat16": 2.0**8}
"""Multiples of 1/1024 below 2^24 / 1024 (less for short types) are exact in each type, and their products in
float64."""


def grid(ranges: Mapping[Var, tuple[int | None, int | None]]) -> dict[Var, Numbers] | None:
    """Return all points of a box: for each variable its value at each point. None for an unbounded or a large box."""
    sides = []
    points = 1
    for lo, hi in ranges.values():
        if lo is None or hi is None or abs(lo) >= _WHOLE or abs(hi) >= _WHOLE:
            return None
        points *= max(0, hi - lo + 1)
        if points > _MOST_POINTS:
            return None
        sides.append(np.arange(lo, hi + 1, dtype=np.float64))
    mesh = np.meshgrid(*sides, indexing="ij") if sides else []
    return {v: m.reshape(-1) for v, m in zip(ranges, mesh, strict=True)}


def lies_between(e: Expr, low: Expr, high: Expr, range_of: Callable[[Var], tuple[int | None, int | None]]) -> bool:
    """Return whether ``low <= e <= high`` at each point of the ranges of their variables.

    ``e`` is an integer computed in floating point, such as ``int(floor(float(i) * c + d))``, for which no rule gives
    bounds. The result is False also for other expressions, and where the ranges are large or symbolic.
    """
    if not any(isinstance(n, Cast) and n.value.dtype.is_float for n in pre_order(e)):
        return False
    names = dict.fromkeys(n for part in (e, low, high) for n in pre_order(part) if isinstance(n, Var))
    points = grid({v: range_of(v) for v in names})
    found = [] if points is None else [bounds_at_points(part, points) for part in (e, low, high)]
    if not found or any(ends is None for ends in found):
        return False
    (least, most), (_, first), (last, _) = found  # type: ignore[misc]
    return bool((least >= first).all() and (most <= last).all())


def bounds_at_points(e: Expr, points: Mapping[Var, Numbers]) -> Ends | None:
    """Return the least and the greatest value of ``e`` at each point, as arrays; None for unsupported expressions."""
    if isinstance(e, Var):
        return (points[e], points[e]) if e in points else None
    if isinstance(e, (IntImm, FloatImm)):
        size = len(next(iter(points.values()), np.zeros(1)))
        value = np.full(size, float(e.value))
        return (value, value) if abs(float(e.value)) < _WHOLE else None
    if isinstance(e, Cast):
        inside = bounds_at_points(e.value, points)
        return None if inside is None else _cast(inside, e.value.dtype, e.dtype)
    if isinstance(e, (Call, Select)):
        return _call(e, points)
    rule = _RULES.get(type(e))
    if rule is None:
        return None
    a, b = bounds_at_points(e.a, points), bounds_at_points(e.b, points)  # type: ignore[attr-defined]
    if a is None or b is None:
        return None
    found = rule(a, b)
    return None if found is None else _fitting(found, e.dtype, (*a, *b))


def _call(e: Call | Select, points: Mapping[Var, Numbers]) -> Ends | None:
    if isinstance(e, Select) or e.op == "tir.if_then_else":
        sides = (e.true_value, e.false_value) if isinstance(e, Select) else e.args[1:]
        one, two = (bounds_at_points(s, points) for s in sides)
        return None if one is None or two is None else (np.minimum(one[0], two[0]), np.maximum(one[1], two[1]))
    step = {"tir.floor": np.floor, "tir.ceil": np.ceil, "tir.trunc": np.trunc}.get(e.op)
    inside = bounds_at_points(e.args[0], points) if step is not None else None
    return None if step is None or inside is None else (step(inside[0]), step(inside[1]))


def _cast(inside: Ends, source: DType, target: DType) -> Ends | None:
    lo, hi = inside
    if source.is_float and not target.is_float:
        lo, hi = np.trunc(lo), np.trunc(hi)
    return _fitting((lo, hi), target, (lo, hi))


def _fitting(found: Ends, dtype: DType, operands: Sequence[Numbers]) -> Ends | None:
    """Return the ends as values of ``dtype``, or None where a number does not fit. They are widened where a float
    operation may round."""
    lo, hi = found
    if not (np.isfinite(lo).all() and np.isfinite(hi).all()):
        return None
    if not dtype.is_float:
        fits = max(float(min_value(dtype)), -_WHOLE) <= lo.min(initial=0) and hi.max(initial=0) <= min(
            float(max_value(dtype)), _WHOLE
        )
        return found if fits else None
    if dtype not in _ULPS or max(np.abs(lo).max(initial=0), np.abs(hi).max(initial=0)) > float(max_value(dtype)) / 4:
        return None
    exact = np.ones(len(lo), dtype=bool)
    for part in (lo, hi, *operands):  # sums and products of such numbers are exact, or too large for such a number
        exact &= (np.abs(part) * _FINE < _COARSE[dtype]) & (np.floor(part * _FINE) == part * _FINE)
    slack = _ULPS[dtype] * np.maximum(np.abs(lo), np.abs(hi)) + 1e-30
    return np.where(exact, lo, lo - slack), np.where(exact, hi, hi + slack)


def _products(a: Ends, b: Ends) -> Ends:
    all_of = [x * y for x in a for y in b]
    return np.minimum.reduce(all_of), np.maximum.reduce(all_of)


def _quotients(a: Ends, b: Ends) -> Ends | None:
    if bool(((b[0] <= 0) & (b[1] >= 0)).any()):
        return None
    all_of = [x / y for x in a for y in b]
    return np.minimum.reduce(all_of), np.maximum.reduce(all_of)


def _floor_quotients(a: Ends, b: Ends) -> Ends | None:
    found = _quotients(a, b)
    return None if found is None or bool((b[0] != b[1]).any()) else (np.floor(found[0]), np.floor(found[1]))


def _floor_remainders(a: Ends, b: Ends) -> Ends | None:
    if bool((b[0] != b[1]).any() or (b[0] <= 0).any()):
        return None
    known = a[0] == a[1]
    rest = a[0] - np.floor(a[0] / b[0]) * b[0]
    return np.where(known, rest, 0.0), np.where(known, rest, b[0] - 1)


_RULES: dict[type, Callable[[Ends, Ends], Ends | None]] = {
    Add: lambda a, b: (a[0] + b[0], a[1] + b[1]),
    Sub: lambda a, b: (a[0] - b[1], a[1] - b[0]),
    Mul: _products,
    Div: _quotients,
    Min: lambda a, b: (np.minimum(a[0], b[0]), np.minimum(a[1], b[1])),
    Max: lambda a, b: (np.maximum(a[0], b[0]), np.maximum(a[1], b[1])),
    FloorDiv: _floor_quotients,
    FloorMod: _floor_remainders,
}
