"""This recipe sums whole rows. Some rows at a time are added to all results, so that memory is read as it lies.

    for k0: for j0: for k1 (unrolled): for j1 (a vector): y[j] += x[k] * B[k, j]

Each result is summed in the order of k, as in the program.
"""

from __future__ import annotations

from typing import Any

from ...schedule import Schedule
from .loop_steps import extent_of


def outer_sums(sch: Schedule, block: Any, vector: int, width: int, steps: int, *, share: int = 0) -> None:
    """Schedule ``block``, a reduction over one loop whose results lie along its loop number ``vector``.

    ``width``: elements of a vector. ``steps``: rows that are added at a time. ``share``: the elements of one thread's part
    of the results; 0 for one thread.
    """
    loops = list(sch.get_loops(block))
    results, reduction = loops[vector], loops[-1]
    others = [loop for loop in loops if loop is not results and loop is not reduction]
    parts = []
    if 0 < share < extent_of(sch, results):
        part, results = sch.split(results, [None, share])
        parts.append(part)
    blocks, vectors = sch.split(results, [None, min(width, extent_of(sch, results))])
    far, near = sch.split(reduction, [None, min(steps, extent_of(sch, reduction))])
    sch.reorder(*others, *parts, far, blocks, near, vectors)
    if parts:
        sch.parallel(parts[0])
    init = sch.decompose_reduction(block, far)
    sch.unroll(near)
    sch.vectorize(vectors)
    sch.vectorize(sch.get_loops(init)[-1])
