"""This recipe computes an element-wise stage: one parallel loop outside, one vector loop inside.

Where the innermost axis strides through an input in which another axis is contiguous (a transpose), the two are tiled,
so that all of a cache line is used before it is evicted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ...schedule import Schedule
from .loop_steps import extent_of, fuse_all, loops_within


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
