"""What kernels that go row by row share: sums (or maxima) of a row by lanes, finished once at its end.

A reduction in one variable waits for each step to be done before the next. ``by_lanes`` makes the lanes of a few vectors
partial results of their own (``rfactor``), so that a step takes whole vectors and the steps overlap; what is left at the
end of the row is one horizontal step per halving of the vector.
"""

from __future__ import annotations

from typing import Any

import tilewright as tw

__all__ = ["by_lanes", "row_width", "sweep"]


def row_width(sch: tw.Schedule, loop: Any, target: tw.Target, vectors: int) -> int:
    """Lanes of partial results: ``vectors`` vectors, or as large a power of two as the row fills."""
    width = vectors * target.vector_lanes("float32")
    while width > int(sch.get(loop).extent):
        width //= 2
    return width


def by_lanes(sch: tw.Schedule, block: str, width: int) -> Any:
    """Split the reduction of ``block`` into ``width`` partial results, kept in registers; returns their block."""
    inner = sch.get_loops(block)[-1]
    _, lane = sch.split(inner, [None, width])
    partial = sch.rfactor(lane, len(sch.get_loops(block)) - 2)
    sch.set_scope(partial, 0, "local")
    return partial


def sweep(sch: tw.Schedule, partial: Any, block: str, at: Any) -> None:
    """Order the loops of the partial results below ``at``: steps outside, rows unrolled, lanes as vectors; and finish
    the rows by horizontal operations."""
    inside = sch.get_loops(partial)
    lane, *rows, step = inside[inside.index(at) + 1 :]
    sch.reorder(step, *rows, lane)
    start = sch.decompose_reduction(partial, step)
    for part in (start, partial):
        *_, lane = sch.get_loops(part)
        for row in sch.get_loops(part)[-1 - len(rows) : -1]:
            sch.unroll(row)
        sch.vectorize(lane)
    sch.annotate(sch.get_loops(block)[-1], "tir.horizontal_reduce", 1)
