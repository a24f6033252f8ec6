"""These recipes compute element-wise stages, and stages along rows.

:func:`sweep_elements` makes one parallel loop outside and one vector loop inside. Where the innermost axis strides through an
input in which another axis is contiguous (a transpose), the two are tiled, so that all of a cache line is used before it is
evicted.

:func:`sweep_rows` computes all stages of some rows (softmax, norms, sums) while these are in the cache. A reduction in one
variable waits for each step to be done before the next. So each reduction gets the lanes of several vectors as partial results
of their own (rfactor, a fixed order of summation chosen by the schedule), which horizontal operations add up at the end of the
row. Several rows are computed together: while one waits for its horizontal sum, another continues, and memory delivers many
streams faster than one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...schedule import Schedule
from ...tir.expr import IntImm
from .loop_steps import by_lanes, extent_of, fuse_all, loops_of_axis, loops_within, unroll_factor


@dataclass(frozen=True)
class ElementSweep:
    """The parameters of a sweep over elements.

    ``width`` elements are computed per iteration, as vectors of ``lanes`` elements, 0 for one of all. ``fused``: the loops
    become one first. ``across`` is the number of the loop that is tiled with the innermost one, ``tile`` rows at a time;
    ``staged`` names an input whose part for a tile is copied to scratch memory. ``shared``: the threads share the loops
    outside the innermost one, and that one, too, where the others have fewer iterations than ``tasks``. ``unrolled``: the
    steps along a row are written out, so that conditions on the innermost axis are known in each.
    """

    width: int
    lanes: int = 0
    fused: bool = False
    across: int | None = None
    tile: int = 1
    staged: str = ""
    shared: bool = False
    tasks: int = 0
    unrolled: bool = False


def sweep_elements(sch: Schedule, block: Any, sweep: ElementSweep) -> Any:
    """Schedule ``block``; returns the loop over vectors, which lies outside the rows of a tile."""
    block = sch.get_block(block) if isinstance(block, str) else block
    order = list(sch.get_loops(block))
    if sweep.fused:
        order = [fuse_all(sch, order)]
    step, lanes = sch.split(order.pop(), [None, sweep.width])
    within: list[Any] = []
    if sweep.across is not None:
        order[sweep.across], inside = sch.split(order[sweep.across], [None, sweep.tile])
        within = [inside]
    sch.reorder(*order, step, *within, lanes)
    many = True
    if sweep.shared:
        many = bool(order) and math.prod(extent_of(sch, loop) for loop in order) >= sweep.tasks
        shared = fuse_all(sch, order if many else [*order, step])
        sch.parallel(shared)
        step = step if many else shared
    if sweep.unrolled and many:
        sch.unroll(step)
    if sweep.staged:
        copy = sch.cache_read(block, sweep.staged, "local", consumer_blocks=[block])
        sch.compute_at(copy, step)
        sch.vectorize(loops_within(sch, copy, step)[-1])
    if 0 < sweep.lanes < sweep.width:
        vector, lanes = sch.split(lanes, [None, sweep.lanes])
        sch.unroll(vector)
    sch.vectorize(lanes)
    return step


@dataclass(frozen=True)
class RowSweep:
    """The parameters of a sweep over rows.

    ``rank``: how many leading axes count the rows. ``rows`` are computed together, each with ``accumulators`` vectors of
    partial results of ``lanes`` elements; ``vectors`` of the element-wise stages are computed per iteration; ``unroll``:
    steps of a reduction per iteration. ``rows_inside``: element-wise stages take a vector of all rows after the other,
    so that what all rows share is loaded once. ``shared``: the threads share the rows.
    """

    lanes: int
    rank: int = 1
    rows: int = 1
    accumulators: int = 1
    vectors: int = 1
    unroll: int = 1
    rows_inside: bool = False
    shared: bool = False


@dataclass
class _Stage:
    """A block of the sweep; ``kind``: ``partial``, ``finish`` (what adds partial results up), ``reduce`` or ``map``."""

    name: str
    kind: str
    block: Any


def sweep_rows(sch: Schedule, blocks: Sequence[str], sweep: RowSweep, at: Any = None) -> dict[str, Any]:
    """Schedule ``blocks``, in program order, in the loop ``at``. Without one the last block has the loops over rows, in
    which the others are computed.

    Returns, by the names of the blocks, the innermost serial loops over a row, where there are such loops; the loop over
    groups of rows is named ``""``.
    """
    stages = [stage for name in blocks for stage in _stages(sch, name, sweep)]
    last = stages[-1] if at is None else None
    if last is not None:
        at = _groups_of_rows(sch, last.block, sweep)
    if at is not None:
        for stage in reversed(stages):
            if stage is not last:
                sch.compute_at(stage.block, at, preserve_unit_loops=sweep.rows > 1)
    steps = {"": at}
    for stage in stages:
        step = _finish(sch, stage, at, sweep, is_last=stage is last)
        if step is not None:
            steps[stage.name] = step
    return steps


def _groups_of_rows(sch: Schedule, block: Any, sweep: RowSweep) -> Any:
    """Returns the loop over groups of rows of ``block``; None when it has no rows."""
    loops = list(sch.get_loops(block)[: sweep.rank])
    if not loops:
        return None
    if sweep.rows > 1:
        loops[-1], _ = sch.split(loops[-1], [None, sweep.rows])
    at = fuse_all(sch, loops)
    if sweep.shared:
        sch.parallel(at)
    return at


def _stages(sch: Schedule, name: str, sweep: RowSweep) -> list[_Stage]:
    """Returns what runs within a row for a block; partial results come before the stage that adds them up."""
    block = sch.get_block(name)
    info = sch.get(block)
    loops = sch.get_loops(block)[sweep.rank :]
    reduced = [iv.dom.extent for iv in info.iter_vars if iv.kind == "reduce"]
    if not reduced:
        return [_Stage(name, "map", block)]
    extents = [extent.value if isinstance(extent, IntImm) else 0 for extent in reduced]
    size, width = 1, sweep.accumulators * sweep.lanes
    for extent in extents:
        size *= extent
    if len(info.writes) > 1 or size <= sweep.lanes:
        return [_Stage(name, "reduce", block)]
    extent, last = [(extent, loop) for extent, loop in zip(extents, loops, strict=True) if extent > 1][-1]
    if extent % width and extent < 2 * width and size % width == 0:  # short axes are fused, so vectors stay full
        last, extent = fuse_all(sch, loops), size
    partial = by_lanes(sch, block, last, min(width, extent), sweep.rank)
    return [_Stage(name, "partial", partial), _Stage(name, "finish", block)]


def _finish(sch: Schedule, stage: _Stage, at: Any, sweep: RowSweep, *, is_last: bool) -> Any:
    """Vectorize a stage; returns its innermost serial loop over a row, or None."""
    block, kind = stage.block, stage.kind
    loops = loops_within(sch, block, at) if at is not None else list(sch.get_loops(block))
    first = int(kind in ("partial", "finish"))  # their axis 0 are the lanes of the partial results
    rows = [loop for axis in range(first, first + sweep.rank) for loop in loops_of_axis(sch, block, loops, axis)]
    inside = [loop for loop in loops if all(loop is not row for row in rows)]
    if kind == "map":
        return _vectorize_columns(sch, rows, inside, sweep)
    if kind == "partial":
        return _vectorize_lanes(sch, block, rows, inside, sweep)
    if rows and inside:
        sch.reorder(*rows, *inside)
    if is_last and kind == "finish":  # nothing else runs meanwhile
        for row in rows:
            sch.vectorize(row)
    else:
        _unroll_rows(sch, rows, sweep)
    if kind == "finish":
        sch.annotate(inside[-1], "tir.horizontal_reduce", 1)
    elif rows and not is_last:  # a row no longer than a vector
        for loop in inside:
            unroll_factor(sch, loop, sweep.lanes)
    if not is_last:
        sch.set_scope(block, 0, "local")
    return None


def _vectorize_columns(sch: Schedule, rows: list[Any], inside: list[Any], sweep: RowSweep) -> Any:
    """Fuse the loops of an element-wise stage within a row and vectorize them; a row of one element stays."""
    if not inside:
        _unroll_rows(sch, rows, sweep)
        return None
    columns = fuse_all(sch, inside)
    size = extent_of(sch, columns)
    if size <= 1:
        return None
    step, lanes = sch.split(columns, [None, min(sweep.vectors * sweep.lanes, size)])
    if rows and sweep.rows_inside:
        sch.reorder(step, *rows, lanes)
        _unroll_rows(sch, rows, sweep)
    sch.vectorize(lanes)
    return step


def _unroll_rows(sch: Schedule, rows: Sequence[Any], sweep: RowSweep) -> None:
    """Unroll the rows that are computed at a time. A stage keeps the loop over rows that its consumers read besides."""
    for row in rows:
        if extent_of(sch, row) <= sweep.rows:
            sch.unroll(row)


def _vectorize_lanes(sch: Schedule, block: Any, rows: list[Any], inside: list[Any], sweep: RowSweep) -> Any:
    """Put the loops over the row outside, then the rows at hand, unrolled, and the lanes of the partial results."""
    (lanes,) = loops_of_axis(sch, block, inside, 0)
    over = [loop for loop in inside if loop is not lanes]
    if over:
        sch.reorder(*over, *rows, lanes)
        init = sch.decompose_reduction(block, over[0])
        *around, start = sch.get_loops(init)
        _unroll_rows(sch, [*rows, *around[len(around) - len(rows) :]], sweep)
        unroll_factor(sch, over[-1], sweep.unroll)
        sch.vectorize(start)
    sch.vectorize(lanes)
    sch.set_scope(block, 0, "local")
    return over[-1] if over else None
