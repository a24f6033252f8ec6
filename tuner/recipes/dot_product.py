"""This recipe computes tiles of sums by dot-product instructions: several steps of a reduction for each lane at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...schedule import Schedule
from .loop_steps import unroll_factor


def dot_tile(
    sch: Schedule, block: Any, *, intrinsic: str, lanes: int, width: int, column: Any, step: Any,
    rows: Sequence[Any] = (), around: Sequence[Any] = (), unroll: int = 1,
) -> Any:  # fmt: skip
    """Compute a tile of ``block`` with ``intrinsic``, which takes ``lanes`` columns and ``width`` steps at once.

    ``rows``, ``column`` and ``step`` are the innermost loops, in any order: over rows of the tile, over its columns, and
    over the reduction, of which ``around`` are further loops. Returns the block that sets the sums to zero.
    """
    vector, lane = sch.split(column, [None, lanes])
    outer, inner = sch.split(step, [None, width])
    sch.reorder(*around, outer, *rows, vector, lane, inner)
    init = sch.decompose_reduction(block, [*around, outer][0])
    sch.vectorize(sch.get_loops(init)[-1])
    for loop in (*rows, vector, *sch.get_loops(init)[-2 - len(rows) : -1]):
        sch.unroll(loop)
    unroll_factor(sch, outer, unroll)
    sch.tensorize(lane, intrinsic)
    return init
