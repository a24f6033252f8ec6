"""Lanes of vectors: first, last, evenly spaced ones, those where a condition holds, and values computed lane by lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...tir.arith import Analyzer
from ...tir.expr import (
    GE,
    GT,
    LE,
    LT,
    Add,
    And,
    BinaryOp,
    Broadcast,
    BufferLoad,
    Call,
    Cast,
    CmpOp,
    DType,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Mul,
    Not,
    Ramp,
    Shuffle,
    Sub,
    const,
    negate,
    reads_memory,
)
from ...tir.walk import distinct
from ..lane_offsets import constant_lane_offsets


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


def all_inside(indices: Sequence[Expr], shape: Sequence[Expr], analyzer: Analyzer) -> bool:
    """Returns whether an access, whose indices may be vectors, certainly lies inside its buffer in every lane."""
    prove = analyzer.can_prove
    for index, extent in zip(indices, shape, strict=True):
        ends = _least_and_greatest(index)
        if ends is None or not all(prove(end >= 0) and prove(end < extent) for end in dict.fromkeys(ends)):
            return False
    return True


def _least_and_greatest(e: Expr) -> tuple[Expr, Expr] | None:
    """Returns the least and the greatest lane, in either order, where lanes are evenly spaced or at known distances."""
    ends = first_and_last_lane(e)
    if ends is None and (found := constant_lane_offsets(e)) is not None:
        ends = found[0] + min(found[1]), found[0] + max(found[1])
    return ends


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
    if _stays_within(a, b.value, analyzer) or analyzer.can_prove(inside + reach < b):
        return simplify(a.base // b) if kind is FloorDiv else Ramp(inside, a.stride, a.lanes)
    if a.stride.value % b.value:
        return None
    if kind is FloorMod:
        return inside
    return Ramp(simplify(a.base // b), const(a.stride.value // b.value, a.base.dtype), a.lanes)


def _stays_within(a: Ramp, step: int, analyzer: Analyzer) -> bool:
    """Returns whether all lanes lie between two neighbouring multiples of ``step``. They do where they lie between multiples of a power
    of two that divides it."""
    assert isinstance(a.stride, IntImm)
    reach = (a.lanes - 1) * a.stride.value
    power = 1 << max(0, reach).bit_length()
    if reach < 0 or step % power:
        return False
    first = analyzer.simplify(a.base % const(power, a.base.dtype))
    return isinstance(first, IntImm) and first.value + reach < power


def _limit(kind: type[BinaryOp], a: Expr, b: Expr, analyzer: Analyzer) -> Expr | None:
    """Returns a comparison of a ramp with a constant that holds in all lanes or in none; None for others."""
    if not (isinstance(a, Ramp) and isinstance(a.stride, IntImm) and isinstance(b, IntImm)):
        return None
    end = b.value + (kind in (GT, LE))  # the first number on the other side
    return kind(a.base, b) if end and _stays_within(a, end, analyzer) else None


_RAMP_RULES: dict[type, Callable[[type[BinaryOp], Expr, Expr, Analyzer], Expr | None]] = {
    Add: _sum,
    Sub: _sum,
    Mul: _product,
    FloorDiv: _quotient,
    FloorMod: _quotient,
    LT: _limit,
    LE: _limit,
    GT: _limit,
    GE: _limit,
}


# Masks: in which lanes a vector of conditions holds.


def both_masks(a: Expr | None, b: Expr | None) -> Expr | None:
    """Returns the lanes in which two conditions hold, each of which may be None for all lanes."""
    if a is None:
        return b
    if b is None:
        return a
    lanes = max(a.dtype.lanes, b.dtype.lanes)
    return And(widen(a, lanes), widen(b, lanes)) if lanes > 1 else And(a, b)


def all_lanes(mask: Expr, analyzer: Analyzer) -> bool | None:
    """Returns True when a condition holds in all lanes, False when it holds in none, else None."""
    if isinstance(mask, And):
        a, b = all_lanes(mask.a, analyzer), all_lanes(mask.b, analyzer)
        return False if a is False or b is False else True if a and b else None
    if isinstance(mask, (Broadcast, IntImm)):
        return all_lanes(mask.value, analyzer) if isinstance(mask, Broadcast) else bool(mask.value)
    return _comparison(mask, analyzer) if isinstance(mask, (LT, LE, GT, GE)) else None


def _comparison(mask: CmpOp, analyzer: Analyzer) -> bool | None:
    """Returns :func:`all_lanes` of a comparison from its first and its last lane, where the lanes are evenly spaced."""
    a_ends, b_ends = first_and_last_lane(mask.a), first_and_last_lane(mask.b)
    if a_ends is None or b_ends is None:
        return None
    corners = [analyzer.simplify(type(mask)(a, b)) for a, b in zip(a_ends, b_ends, strict=True)]
    known = [bool(c.value) for c in corners if isinstance(c, IntImm)]
    return known[0] if len(known) == 2 and known[0] is known[1] else None


def any_lane(mask: Expr, analyzer: Analyzer) -> Expr:
    """Returns a simplified scalar condition that holds exactly where ``mask`` holds in at least one lane.

    >>> from tilewright.tir.expr import Var
    >>> i = Var("i")
    >>> any_lane(LT(Ramp(i * 8, IntImm(1), 8), Broadcast(IntImm(13), 8)), Analyzer())
    i < 2
    """
    return analyzer.simplify(_some(mask))


def _some(mask: Expr) -> Expr:
    if mask.dtype.lanes == 1:
        return mask
    if isinstance(mask, Broadcast):
        return mask.value
    if isinstance(mask, Not):
        opposite = negate(mask.a)
        if opposite is not None:
            return _some(opposite)
    if isinstance(mask, And):
        for one, other in ((mask.a, mask.b), (mask.b, mask.a)):
            if isinstance(one, Broadcast):  # the same in all lanes
                return And(one.value, _some(other))
    lane = _best_lane(mask)
    if lane is not None:
        return lane
    bytes_ = DType("int8").with_lanes(mask.dtype.lanes)
    return Call("tir.vector_reduce_max", (Cast(bytes_, mask),), "int8") != const(0, "int8")


def _best_lane(mask: Expr) -> Expr | None:
    """Returns the comparison in the first or last lane of an evenly spaced vector.

    It is the lane where the comparison holds if it holds in any lane.
    """
    if not isinstance(mask, (LT, LE, GT, GE)):
        return None
    a, b = mask.a, mask.b
    if isinstance(a, Broadcast) and isinstance(b, Ramp):
        swapped = {LT: GT, GT: LT, LE: GE, GE: LE}[type(mask)]
        return _best_lane(swapped(b, a))
    if not (isinstance(a, Ramp) and isinstance(b, Broadcast) and isinstance(a.stride, IntImm)):
        return None
    first = (a.stride.value >= 0) is isinstance(mask, (LT, LE))
    return type(mask)(a.base if first else a.base + a.stride * (a.lanes - 1), b.value)


def keeps_lanes(value: Expr) -> bool:
    """Returns whether each lane of a value depends on the same lane of what it loads, or on scalars."""
    for n in distinct(value):
        if isinstance(n, Shuffle) or (isinstance(n, Call) and n.op.startswith("tir.vector_reduce")):
            return False
        if isinstance(n, BufferLoad) and any([reads_memory(i) for i in n.indices]):
            return False
    return True
