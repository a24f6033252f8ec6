"""This module has the schedule steps of row-wise kernels: sums (or maxima) by lanes, which are combined at the end of a
row.

Where memory is the limit, several rows are computed together: memory delivers many streams faster than one, above all
when other processes use it too (eight rows instead of one took half the time then).

A reduction in one variable waits for each step to be done before the next. ``by_lanes`` makes the lanes of a few
vectors partial results of their own (``rfactor``), so that a step takes whole vectors and the steps overlap; at the end
of the row one horizontal step remains per halving of the vector.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tilewright as tw


def by_rows(
    block: str, matrix: str, rows: int, vectors: int, ahead: int
) -> Callable[[tw.PrimFunc, tw.Target], tw.Schedule]:
    """Returns a schedule for a sum ``block`` over the rows of ``matrix``: ``rows`` rows at a time, ``vectors`` vectors
    of partial sums for each, fetched ``ahead`` steps before."""

    def schedule(func: tw.PrimFunc, target: tw.Target) -> tw.Schedule:
        sch = tw.Schedule(func)
        i, j = sch.get_loops(block)
        partial = by_lanes(sch, block, row_width(sch, j, target, vectors))
        tile, _ = sch.split(sch.get_loops(block)[0], [None, rows])
        sch.compute_at(partial, tile, preserve_unit_loops=True)
        step = sweep(sch, partial, block, tile)
        sch.annotate(step, "pragma_prefetch_distance", {matrix: ahead})
        if target.num_cores > 1:
            sch.parallel(tile)
        return sch

    return schedule


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


def sweep(sch: tw.Schedule, partial: Any, block: str, at: Any) -> Any:
    """Order the loops of the partial results below ``at``: steps outside, rows unrolled, lanes as vectors; and finish
    the rows by horizontal operations. Returns the loop of steps."""
    lane, *rows, step = below(sch, partial, at)
    width = int(sch.get(lane).extent)
    sch.reorder(step, *rows, lane)
    start = sch.decompose_reduction(partial, step)
    for part in (start, partial):
        for loop in below(sch, part, at)[-1 - len(rows) : -1]:
            sch.unroll(loop)
        sch.vectorize(sch.get_loops(part)[-1])
    *rows, lane = sorted(below(sch, block, at), key=lambda loop: int(sch.get(loop).extent) == width)
    sch.reorder(*rows, lane)
    for row in rows:
        sch.unroll(row)
    sch.annotate(lane, "tir.horizontal_reduce", 1)
    return step


def below(sch: tw.Schedule, block: Any, at: Any) -> list[Any]:
    """Returns the loops of ``block`` inside the loop ``at``."""
    loops = list(sch.get_loops(block))
    return loops[loops.index(at) + 1 :]
