"""Lanes of vectors: the value in one lane, the distances between lanes, arithmetic that keeps lanes evenly spaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...tir.arith import Analyzer
from ...tir.expr import Add, BinaryOp, Broadcast, Expr, FloorDiv, FloorMod, IntImm, Mul, Ramp, Sub, const, make_binary
from ..constant_lanes import flat_lanes


class NotVectorizable(Exception):
    """Raised for a statement without a vector form; its loop stays serial."""


def widen(e: Expr, lanes: int) -> Expr:
    """Returns a scalar repeated in every lane, and a vector of ``lanes`` as it is."""
    have = e.dtype.lanes
    if have == lanes:
        return e
    if have == 1:
        return Broadcast(e, lanes)
    raise NotVectorizable(f"{have} lanes where {lanes} are needed")


def value_in_lane(e: Expr, lane: Expr) -> Expr | None:
    """Returns the value of a vector index in one lane, or None when it is not known.

    >>> value_in_lane(Ramp(IntImm(3), IntImm(2), 4) * Broadcast(IntImm(5), 4), IntImm(1))
    25
    """
    if isinstance(e, Ramp):
        return e.base + e.stride * lane
    if isinstance(e, Broadcast):
        return e.value
    if isinstance(e, (Add, Sub, Mul, FloorDiv, FloorMod)):
        a, b = value_in_lane(e.a, lane), value_in_lane(e.b, lane)
        return None if a is None or b is None else make_binary(type(e), a, b)
    return None


def first_and_last_lane(e: Expr) -> tuple[Expr, Expr] | None:
    """Returns the first and the last lane of a vector whose lanes are evenly spaced."""
    if isinstance(e, Ramp):
        return e.base, e.base + e.stride * (e.lanes - 1)
    if isinstance(e, Broadcast):
        return e.value, e.value
    return (e, e) if e.dtype.lanes == 1 else None


def constant_run(indices: Sequence[Expr], strides: Sequence[int]) -> tuple[int, int] | None:
    """Returns the first element of an access and its number of lanes, or None unless it is constant and contiguous.

    >>> constant_run([IntImm(2), Ramp(IntImm(3), IntImm(1), 4)], [8, 1])
    (19, 4)
    """
    first, lanes = 0, 1
    for index, step in zip(indices, strides, strict=True):
        if type(index) is Ramp and lanes == 1 and type(index.stride) is IntImm and index.stride.value * step == 1:
            lanes, index = index.lanes, index.base
        if type(index) is not IntImm:
            return _constant_rows(indices, strides)
        first += index.value * step
    return first, lanes


def _constant_rows(indices: Sequence[Expr], strides: Sequence[int]) -> tuple[int, int] | None:
    """Returns :func:`constant_run` for contiguous rows, written as ``T.Ramp(0, 1, 256) // 16`` and similarly."""
    flat = flat_lanes(indices, [IntImm(step) for step in strides])
    if flat is None:
        return None
    places, lanes = flat
    if not lanes or lanes != list(range(lanes[0], lanes[0] + len(lanes))):
        return None
    if not all(isinstance(place, IntImm) for place, _ in places):
        return None
    return lanes[0] + sum(place.value * step.value for place, step in places), len(lanes)  # type: ignore[attr-defined]


# -- arithmetic on evenly spaced lanes -----------------------------------------------------------------------------------


def ramp_arithmetic(kind: type[BinaryOp], a: Expr, b: Expr, analyzer: Analyzer) -> Expr | None:
    """Returns arithmetic on ramps that gives a ramp, or one value for all lanes; None for other arithmetic."""
    rule = _RAMP_RULES.get(kind)
    return None if rule is None else rule(kind, a, b, analyzer)


def _sum(kind: type[BinaryOp], a: Expr, b: Expr, analyzer: Analyzer) -> Expr | None:
    simplify = analyzer.simplify
    if isinstance(a, Ramp) and isinstance(b, Ramp):
        stride = simplify(kind(a.stride, b.stride))
        base = simplify(kind(a.base, b.base))
        return base if isinstance(stride, IntImm) and stride.value == 0 else Ramp(base, stride, a.lanes)
    if isinstance(a, Ramp) and b.dtype.lanes == 1:
        return Ramp(simplify(kind(a.base, b)), a.stride, a.lanes)
    if isinstance(b, Ramp) and a.dtype.lanes == 1:
        stride = b.stride if kind is Add else simplify(0 - b.stride)
        return Ramp(simplify(kind(a, b.base)), stride, b.lanes)
    return None


def _product(kind: type[BinaryOp], a: Expr, b: Expr, analyzer: Analyzer) -> Expr | None:
    r, s = (a, b) if isinstance(a, Ramp) else (b, a)
    if isinstance(r, Ramp) and s.dtype.lanes == 1:
        return Ramp(analyzer.simplify(r.base * s), analyzer.simplify(r.stride * s), r.lanes)
    return None


def _quotient(kind: type[BinaryOp], a: Expr, b: Expr, analyzer: Analyzer) -> Expr | None:
    if not (isinstance(a, Ramp) and isinstance(b, IntImm) and b.value > 0):
        return None
    if not (isinstance(a.stride, IntImm) and a.stride.value >= 0):
        return None
    simplify = analyzer.simplify
    inside = simplify(a.base % b)
    reach = (a.lanes - 1) * a.stride.value
    if analyzer.can_prove(inside + reach < b):
        return simplify(a.base // b) if kind is FloorDiv else Ramp(inside, a.stride, a.lanes)
    if a.stride.value % b.value:
        return None
    if kind is FloorMod:
        return inside
    return Ramp(simplify(a.base // b), const(a.stride.value // b.value, a.base.dtype), a.lanes)


_RAMP_RULES: dict[type, Callable[[type[BinaryOp], Expr, Expr, Analyzer], Expr | None]] = {
    Add: _sum,
    Sub: _sum,
    Mul: _product,
    FloorDiv: _quotient,
    FloorMod: _quotient,
}
