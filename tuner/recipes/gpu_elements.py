"""This recipe computes an element, or a few neighbours, per thread of a GPU."""

from __future__ import annotations

from typing import Any

from ...schedule import Schedule
from .loop_steps import extent_of, fuse_all


def spread_elements(sch: Schedule, block: Any, reduces: int = 0, threads: int = 256, lanes: int = 1) -> Any:
    """Give each thread ``lanes`` neighbouring elements of ``block``; returns the loop over threads.

    The last ``reduces`` loops of the block are those of a reduction, which each thread runs by itself. The number of
    elements should be a multiple of ``lanes``, and neighbours should be contiguous in all that the block touches.
    """
    block = sch.get_block(block) if isinstance(block, str) else block
    loops = list(sch.get_loops(block))
    own = loops[: len(loops) - reduces] or [sch.add_unit_loop(loops[0] if loops else block)]
    every = fuse_all(sch, own)
    threads = min(threads, max(1, extent_of(sch, every)))
    if lanes > 1:
        outer, thread, lane = sch.split(every, [None, threads, lanes])
        sch.vectorize(lane)
    else:
        outer, thread = sch.split(every, [None, threads])
    sch.bind(outer, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    return thread
