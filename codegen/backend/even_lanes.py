"""Says which lanes with irregular indices are evenly spaced all the same, such as those of neighbouring rows."""

from __future__ import annotations

from collections.abc import Sequence

from ...tir.expr import Expr, IntImm
from ..constant_lanes import flat_lanes
from .lane_offsets import EVEN_LANES, Products


def even_lanes(indices: Sequence[Expr], strides: Sequence[Expr]) -> tuple[Products, int] | None:
    """Returns the offset of the first lane and the distance of neighbouring ones, or None unless they are evenly spaced."""
    flat = flat_lanes(indices, strides)
    gaps = [] if flat is None else [b - a for a, b in zip(flat[1], flat[1][1:], strict=False)]
    if flat is None or len(set(gaps)) != 1:
        return None
    return ((IntImm(flat[1][0]), IntImm(1)), *flat[0]), gaps[0]


EVEN_LANES.set(even_lanes)
