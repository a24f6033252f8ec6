"""Lanes of vectors: the first and the last one, and arithmetic that keeps lanes evenly spaced."""

from __future__ import annotations

from collections.abc import Callable

from ...tir.arith import Analyzer
from ...tir.expr import Add, BinaryOp, Broadcast, Expr, FloorDiv, FloorMod, IntImm, Mul, Ramp, Sub, const


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


def first_and_last_lane(e: Expr) -> tuple[Expr, Expr] | None:
    """Returns the first and the last lane of a vector whose lanes are evenly spaced."""
    if isinstance(e, Ramp):
        return e.base, e.base + e.stride * (e.lanes - 1)
    if isinstance(e, Broadcast):
        return e.value, e.value
    return (e, e) if e.dtype.lanes == 1 else None


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
