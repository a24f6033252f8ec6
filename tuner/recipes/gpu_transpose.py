"""This recipe transposes through shared memory on a GPU, so that both sides are accessed in whole lines."""

from __future__ import annotations

from typing import Any

from ...schedule import Schedule
from .loop_steps import fuse_all, loops_within


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
