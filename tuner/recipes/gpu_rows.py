"""These recipes compute rows and elements on GPUs.

They are: all stages of a row (softmax, norms, sums) by the threads of one block; a product, stages of its rows
and a second product (attention) by one kernel; an element, or a few neighbours, per thread, and transposes through shared memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...schedule import Schedule
from ...tir.annotations import ATOMIC
from .loop_steps import extent_of, fuse_all, loops_within, unroll_factor


def spread_elements(sch: Schedule, block: Any, serial: int = 0, threads: int = 256, lanes: int = 1) -> Any:
    """Give each thread ``lanes`` neighbouring elements of ``block``; returns the loop over threads.

    The last ``serial`` loops of the block stay in a thread: those of a reduction. ``lanes`` should divide the last spatial
    loop, along which neighbours should be contiguous in all that the block touches.
    """
    block = sch.get_block(block) if isinstance(block, str) else block
    loops = list(sch.get_loops(block))
    own = loops[: len(loops) - serial] or [sch.add_unit_loop(loops[0] if loops else block)]
    if lanes > 1:
        own[-1], lane = sch.split(own[-1], [None, lanes])
        sch.vectorize(lane)
    every = fuse_all(sch, own)
    outer, thread = sch.split(every, [None, min(threads, max(1, extent_of(sch, every)))])
    sch.bind(outer, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    return thread


def staged_transpose(sch: Schedule, block: Any, across: int, read: int = 0, tile: int = 32, rows: int = 8) -> None:
    """Compute ``block`` in squares of ``tile`` elements, ``rows`` rows of one at a time.

    ``across`` is the number of the block's loop along which its input number ``read`` is contiguous. The square's rows
    are one element longer in shared memory than they need to be, so that a column lies in different banks.
    """
    block = sch.get_block(block) if isinstance(block, str) else block
    loops = list(sch.get_loops(block))
    inner, other = loops.pop(), loops.pop(across)
    tall, y = sch.split(other, [None, tile])
    wide, x = sch.split(inner, [None, tile])
    steps, y = sch.split(y, [None, rows])
    sch.reorder(*loops, tall, wide, steps, y, x)
    at = wide
    for loop, axis in ((wide, "blockIdx.x"), (tall, "blockIdx.y")):
        sch.bind(loop, axis)
    if loops:
        sch.bind(fuse_all(sch, loops), "blockIdx.z")
    sch.bind(y, "threadIdx.y")
    sch.bind(x, "threadIdx.x")
    copy = sch.cache_read(block, read, "shared")
    sch.compute_at(copy, at)
    own = loops_within(sch, copy, at)
    lines = fuse_all(sch, own[:-1])
    _, line = sch.split(lines, [None, rows])
    sch.bind(line, "threadIdx.y")
    _, element = sch.split(own[-1], [None, tile])
    sch.bind(element, "threadIdx.x")
    sch.storage_align(copy, 0, -2, tile, 1)


@dataclass(frozen=True)
class RowThreads:
    """How threads share rows. ``threads``: those of one row; ``rows``: the rows of a block, which divide all rows;
    ``lanes``: neighbouring elements of a thread, where they divide the rows of a stage."""

    threads: int = 128
    rows: int = 1
    lanes: int = 1


def block_rows(sch: Schedule, stages: Sequence[str], rank: int, how: RowThreads, kept: Sequence[str] = ()) -> None:
    """Compute ``stages``, which share their first ``rank`` loops (the rows), row by row; the last one is the result.

    The threads of a row divide the columns of a stage, and reduce together. Results of the stages of ``kept`` are in
    shared memory; others stay where they are.
    """
    last = sch.get_block(stages[-1])
    loops = sch.get_loops(last)
    rows = fuse_all(sch, loops[:rank]) if rank else sch.add_unit_loop(loops[0])
    if how.rows > 1:
        rows, row = sch.split(rows, [None, how.rows])
        sch.bind(row, "threadIdx.y")
    else:
        row = rows
    sch.bind(rows, "blockIdx.x")
    _threads(sch, last, row, how)
    for name in reversed(stages[:-1]):
        block = sch.get_block(name)
        sch.compute_at(block, row)
        _threads(sch, block, row, how)
        if name in kept:
            sch.set_scope(block, 0, "shared")


def _threads(sch: Schedule, block: Any, rows: Any, how: RowThreads) -> None:
    own = loops_within(sch, block, rows)
    if not own:
        return
    whole = fuse_all(sch, own)
    if how.lanes > 1 and extent_of(sch, whole) % how.lanes == 0:
        _, thread, lane = sch.split(whole, [None, how.threads, how.lanes])
        if any(iv.kind == "reduce" for iv in sch.get(block).iter_vars):
            sch.unroll(lane)
        else:
            sch.vectorize(lane)
    else:
        _, thread = sch.split(whole, [None, how.threads])
    sch.bind(thread, "threadIdx.x")


def block_columns(sch: Schedule, block: Any, column: int, threads: tuple[int, int]) -> None:
    """Compute ``block``, a reduction, with neighbouring threads on neighbours along its loop ``column``.

    ``threads``: those that share the reduction, and those along the columns. All other spatial loops are blocks.
    """
    block = sch.get_block(block) if isinstance(block, str) else block
    loops, kinds = list(sch.get_loops(block)), [iv.kind for iv in sch.get(block).iter_vars]
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind != "reduce"]
    reduced = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == "reduce"]
    wide, x = sch.split(loops[column], [None, threads[1]])
    around = [loop for loop in spatial if loop is not loops[column]]
    sch.reorder(*around, wide, x, *reduced)
    sch.bind(fuse_all(sch, [*around, wide]), "blockIdx.x")
    sch.bind(x, "threadIdx.x")
    _, y = sch.split(fuse_all(sch, reduced), [None, threads[0]])
    sch.bind(y, "threadIdx.y")


def _partial_sums(sch: Schedule, block: Any, rank: int, parts: int) -> tuple[Any, Any]:
    """Divide ``block``, a reduction of ``rank`` spatial loops; returns it and the block of the ``parts`` results of each element."""
    block = sch.get_block(block) if isinstance(block, str) else block
    part, _ = sch.split(fuse_all(sch, sch.get_loops(block)[rank:]), [parts, None])
    return block, sch.rfactor(part, 0)


def atomic_sums(sch: Schedule, block: Any, rank: int, parts: int, how: RowThreads) -> None:
    """Compute ``block``, a sum of ``rank`` spatial loops, in one kernel behind one that sets zeros. There are ``parts``
    blocks for each element, which add what they summed atomically. The order of these additions differs from run to
    run."""
    block, partial = _partial_sums(sch, block, rank, parts)
    *rows, last = sch.get_loops(block)
    zeros = sch.decompose_reduction(block, rows[0] if rows else last)
    sch.annotate(block, ATOMIC, 1)
    if rows:
        sch.bind(fuse_all(sch, rows), "blockIdx.x")
    sch.bind(last, "blockIdx.y")
    sch.compute_at(partial, last)
    sch.set_scope(partial, 0, "local")
    _threads(sch, partial, last, how)
    over = sch.get_loops(zeros)
    if over:
        start, thread = sch.split(fuse_all(sch, over), [None, 128])
        sch.bind(thread, "threadIdx.x")
    else:
        start = sch.add_unit_loop(zeros)
    sch.bind(start, "blockIdx.x")


def split_sums(sch: Schedule, block: Any, rank: int, parts: int, how: RowThreads) -> None:
    """Compute ``block``, a reduction of ``rank`` spatial loops, in two kernels. The first makes ``parts`` partial
    results of each element by blocks of their own, the second puts those together."""
    block, partial = _partial_sums(sch, block, rank, parts)
    block_rows(sch, [partial.name], rank + 1, how)
    last = 32
    while last < min(parts, 256):
        last *= 2
    block_rows(sch, [block.name], rank, RowThreads(last))


LANES = 32
"""The threads of a team: those of a warp."""


@dataclass(frozen=True)
class RowChain:
    """How blocks share rows. ``rows``: of a block, which divide all rows; ``teams`` of 32 threads, which divide ``rows``."""

    rows: int = 8
    teams: int = 4


def row_chain(sch: Schedule, stages: Sequence[str], first: str, rank: int, how: RowChain) -> None:
    """Compute ``stages``, in program order, of which the last is the second product and ``first`` the first one.

    Their first ``rank`` loops are shared; the last of these are the rows. All results but the last stay in shared memory.
    """
    result = sch.cache_write(stages[-1], 0, "local")
    scores = sch.cache_write(first, 0, "local")
    loops = list(sch.get_loops(result))
    block, _ = sch.split(loops[rank - 1], [None, how.rows])
    if rank > 1:
        sch.bind(fuse_all(sch, loops[: rank - 1]), "blockIdx.y")
    sch.bind(block, "blockIdx.x")
    _second(sch, stages[-1], result, block, how)
    for name in reversed(stages[:-1]):
        if name == first:
            sch.compute_at(scores, block)
            _first(sch, first, scores, block, how)
            sch.set_scope(scores, 0, "shared")
            continue
        stage = sch.get_block(name)
        sch.compute_at(stage, block)
        _rows(sch, stage, block, how)
        sch.set_scope(stage, 0, "shared")


def _second(sch: Schedule, name: str, result: Any, block: Any, how: RowChain) -> None:
    """Let each team sum some rows of the result, and neighbouring threads neighbouring columns."""
    own = loops_within(sch, result, block)
    (team, rows), (lane, columns) = sch.split(own[0], [how.teams, None]), sch.split(own[-1], [LANES, None])
    sch.reorder(team, lane, rows, *own[1:-1], columns)
    sch.bind(team, "threadIdx.y")
    sch.bind(lane, "threadIdx.x")
    _sum_in_registers(sch, name, lane)
    for loop in loops_within(sch, result, lane):
        sch.unroll(loop)


def _first(sch: Schedule, name: str, scores: Any, block: Any, how: RowChain) -> None:
    """Let each thread compute all rows of some columns of the first product."""
    row, column = loops_within(sch, scores, block)
    turns, team, lane = sch.split(column, [None, how.teams, LANES])
    sch.reorder(turns, team, lane, row)
    sch.bind(team, "threadIdx.y")
    sch.bind(lane, "threadIdx.x")
    _sum_in_registers(sch, name, lane)
    sch.unroll(row)


def _sum_in_registers(sch: Schedule, name: str, lane: Any) -> None:
    """Compute the product ``name`` in the thread ``lane``: the loops of its sums inside, unrolled."""
    product = sch.get_block(name)
    sch.compute_at(product, lane)
    inner = loops_within(sch, product, lane)
    kinds = [iv.kind for iv in sch.get(product).iter_vars][-len(inner) :]
    reduced = [loop for loop, kind in zip(inner, kinds, strict=True) if kind == "reduce"]
    spatial = [loop for loop in inner if loop not in reduced]
    sch.reorder(*reduced, *spatial)
    unroll_factor(sch, reduced[-1], 4)
    for loop in spatial:
        sch.unroll(loop)


def _rows(sch: Schedule, stage: Any, block: Any, how: RowChain) -> None:
    """Give each row of a stage to a team, whose lanes divide its columns."""
    own = loops_within(sch, stage, block)
    team, _ = sch.split(own[0], [how.teams, None])
    sch.bind(team, "threadIdx.y")
    if own[1:]:
        _, lane = sch.split(fuse_all(sch, own[1:]), [None, LANES])
        sch.bind(lane, "threadIdx.x")
