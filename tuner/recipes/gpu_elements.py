"""This recipe computes an element, or a few neighbours, per thread of a GPU."""

from __future__ import annotations

from typing import Any

from ...schedule import Schedule
from .loop_steps import extent_of, fuse_all


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
