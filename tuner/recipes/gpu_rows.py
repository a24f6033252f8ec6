"""This recipe computes all stages of a row (softmax, norms, sums) by the threads of one block of a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...schedule import Schedule
from ...tir.annotations import ATOMIC
from .loop_steps import extent_of, fuse_all, loops_within


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
