"""This kernel finds the position of the largest element of each row: a reduction of pairs.

A pair is a position and a value. Of two pairs the one with the larger value stays, and of equal values the first one.
By lanes this is two vectors, compared and blended under one mask. Rows are read once, so the limit is the bandwidth of
reading, as for ``row_sum.py``, and as there many rows go side by side; with two vectors each, eight.

Run it: ``python examples/kernels/argmax.py``.
"""

from __future__ import annotations

import sys

import numpy as np
from kernel import Kernel, run
from row_sweeps import below, by_lanes, row_width

import tilewright as tw
from tilewright import te


def _earlier_or_larger(x, y):
    return te.any(x[1] > y[1], te.all(x[1] == y[1], x[0] < y[0]))


argmax = te.comm_reducer(
    lambda x, y: (
        te.select(_earlier_or_larger(x, y), x[0], y[0]),
        te.select(x[1] > y[1], x[1], y[1]),
    ),
    lambda place, value: (te.const(-1, place), te.min_value(value)),
    name="argmax",
)


def declare(m: int, n: int) -> tw.PrimFunc:
    """V[i] = max of X[i, :], P[i] = the first place where it is"""
    x = te.placeholder((m, n), name="X")
    k = te.reduce_axis((0, n), name="k")
    place, value = te.compute((m,), lambda i: argmax((k.var, x[i, k]), axis=k), name="A")
    return te.create_prim_func([x, value, place])


def by_rows(rows: int, ahead: int):
    """A schedule: ``rows`` rows side by side, a vector of pairs for each, fetched ``ahead`` steps before."""

    def schedule(func: tw.PrimFunc, target: tw.Target) -> tw.Schedule:
        sch = tw.Schedule(func)
        pairs = by_lanes(sch, "A", row_width(sch, sch.get_loops("A")[-1], target, 1))
        sch.set_scope(pairs, 1, "local")
        tile, _ = sch.split(sch.get_loops("A")[0], [None, rows])
        sch.compute_at(pairs, tile, preserve_unit_loops=True)
        lane, row, step = below(sch, pairs, tile)
        sch.reorder(step, row, lane)
        for part in (sch.decompose_reduction(pairs, step), pairs):
            *_, row, lane = sch.get_loops(part)
            sch.unroll(row)
            sch.vectorize(lane)
        sch.annotate(step, "pragma_prefetch_distance", {"X": ahead})
        if target.num_cores > 1:
            sch.parallel(tile)
        return sch

    return schedule


def reference(x: np.ndarray, value: np.ndarray, out: np.ndarray) -> None:
    """NumPy; ``value`` is the other output."""
    out[...] = np.argmax(x, axis=1)


KERNELS = [
    Kernel(
        "argmax 4096²",
        declare(4096, 4096),
        by_rows(8, 8),
        reference,
        "argmax",
        yardstick="read",
        goal="0.9 of bandwidth",
    ),
]

if __name__ == "__main__":
    run(KERNELS, sys.argv[1:])
