"""These recipes compute an element, or a few neighbours, per thread of a GPU, and transpose through shared memory."""

from __future__ import annotations

from typing import Any

from ...schedule import Schedule
from .loop_steps import extent_of, fuse_all, loops_within


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
