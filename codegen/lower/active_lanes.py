"""Conditions on masks as a whole, which decide whether a masked statement runs at all."""

from __future__ import annotations

from ...tir.arith import Analyzer
from ...tir.dtype import lanes_of, with_lanes
from ...tir.expr import GE, GT, LE, LT, And, Broadcast, Call, Cast, Expr, IntImm, Not, Ramp, const
from ...tir.structure import negate


def any_lane(mask: Expr, analyzer: Analyzer) -> Expr:
    """Returns a simplified scalar condition that holds exactly where ``mask`` holds in at least one lane.

    >>> from ...tir.expr import Var
    >>> i = Var("i")
    >>> any_lane(LT(Ramp(i * 8, IntImm(1), 8), Broadcast(IntImm(13), 8)), Analyzer())
    i * 8 < 13
    """
    return analyzer.simplify(_some(mask))


def _some(mask: Expr) -> Expr:
    if lanes_of(mask.dtype) == 1:
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
    bytes_ = with_lanes("int8", lanes_of(mask.dtype))
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


def certainly_in_bounds(indices: tuple[Expr, ...], shape: tuple[Expr, ...], analyzer: Analyzer) -> bool:
    """Returns whether a scalar access certainly lies inside its buffer."""
    return all(analyzer.can_prove(i >= 0) and analyzer.can_prove(i < n) for i, n in zip(indices, shape, strict=True))
