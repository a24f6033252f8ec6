"""This module reads elements at places between the elements; outside there are zeros."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from ....tir.expr import Expr, all_, cast, const, select
from ....tir.expr.intrinsics.control_and_memory import if_then_else
from ....tir.expr.intrinsics.float_operations import floor
from ...tensor import Tensor


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
