"""Masks: in which lanes a vector of conditions holds."""

from __future__ import annotations

from ...tir.arith import Analyzer
from ...tir.expr import GE, GT, LE, LT, And, Broadcast, Call, Cast, CmpOp, DType, Expr, IntImm, Not, Ramp, const, negate
from .lanes import first_and_last_lane, widen


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
