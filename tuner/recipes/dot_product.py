"""This recipe computes tiles of sums by dot-product instructions: several steps of a reduction for each lane at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...schedule import Schedule
from .loop_steps import unroll_factor


@dataclass(frozen=True)
class DotInstruction:
    """A dot-product instruction: it takes ``lanes`` columns and ``width`` steps of a reduction at once. ``unroll`` says
    how many instructions along the reduction are in one iteration."""

    intrinsic: str
    lanes: int
    width: int
    unroll: int = 1


def dot_tile(
    sch: Schedule, block: Any, dot: DotInstruction, *, column: Any, step: Any, rows: Sequence[Any] = (), around: Sequence[Any] = ()
) -> None:  # fmt: skip
    """Compute a tile of ``block`` with a dot-product instruction.

    ``rows``, ``column`` and ``step`` are the innermost loops, in any order: over rows of the tile, over its columns, and
    over the reduction, of which ``around`` are further loops.
    """
    vector, lane = sch.split(column, [None, dot.lanes])
    outer, inner = sch.split(step, [None, dot.width])
    sch.reorder(*around, outer, *rows, vector, lane, inner)
    init = sch.decompose_reduction(block, [*around, outer][0])
    sch.vectorize(sch.get_loops(init)[-1])
    for loop in (*rows, vector, *sch.get_loops(init)[-2 - len(rows) : -1]):
        sch.unroll(loop)
    unroll_factor(sch, outer, dot.unroll)
    sch.tensorize(lane, dot.intrinsic)
