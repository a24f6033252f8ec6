"""This recipe computes all stages of a row (softmax, norms, sums) by the threads of one block of a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...schedule import Schedule
from .loop_steps import fuse_all, loops_within

ROW_BYTES = 16 << 10
"""A row of a stage up to so many bytes stays in shared memory."""


def block_rows(sch: Schedule, stages: Sequence[str], rank: int, threads: int = 128, kept: Sequence[str] = ()) -> None:
    """Compute ``stages``, which share their first ``rank`` loops (the rows), row by row; the last one is the result.

    The threads of a block divide the columns of a stage, and reduce together. Results of the stages of ``kept`` are in
    shared memory; others stay where they are.
    """
    last = sch.get_block(stages[-1])
    loops = sch.get_loops(last)
    rows = fuse_all(sch, loops[:rank]) if rank else sch.add_unit_loop(loops[0])
    sch.bind(rows, "blockIdx.x")
    _threads(sch, last, rows, threads)
    for name in reversed(stages[:-1]):
        block = sch.get_block(name)
        sch.compute_at(block, rows)
        _threads(sch, block, rows, threads)
        if name in kept:
            sch.set_scope(block, 0, "shared")


def _threads(sch: Schedule, block: Any, rows: Any, threads: int) -> None:
    own = loops_within(sch, block, rows)
    if own:
        _, thread = sch.split(fuse_all(sch, own), [None, threads])
        sch.bind(thread, "threadIdx.x")
