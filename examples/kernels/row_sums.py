"""These kernels reduce the rows of a matrix: sums, products with a vector, and the place of the largest element.

Every element is read once, so the limit is the bandwidth of reading. A sum in one variable would wait four cycles for each
addition. Here a row is summed into the lanes of a vector (``rfactor`` makes them partial sums of their own), which are added
up once at the end of the row, and many rows go side by side: memory answers that many streams faster than one. What a later
step reads is asked for ahead of time: the processor's own prefetching stops at each page.

Sixteen rows go side by side for the product with a vector, of which a vector is loaded once for all of them; eight for
``argmax``, a reduction of pairs: of two pairs of a position and a value the one with the larger value stays, and of equal
values the first one. By lanes this is two vectors, compared and blended under one mask.

Run it: ``python examples/kernels/row_sums.py [words of names]``.
"""

from __future__ import annotations

import sys

import numpy as np
from kernel import Kernel, Scheduler, run

import tilewright as tw
from tilewright import te
from tilewright.tuner.recipes import RowSweep, by_lanes, loops_within, sweep_rows


def declare_sum(m: int, n: int) -> tw.PrimFunc:
    """S[i] = sum over j of X[i, j]"""
    x = te.placeholder((m, n), name="X")
    j = te.reduce_axis((0, n), name="j")
    return te.create_prim_func([x, te.compute((m,), lambda i: te.sum(x[i, j], axis=j), name="S")])


def declare_gemv(m: int, n: int) -> tw.PrimFunc:
    """S[i] = sum over j of A[i, j] * X[j]"""
    a, x = te.placeholder((m, n), name="A"), te.placeholder((n,), name="X")
    j = te.reduce_axis((0, n), name="j")
    return te.create_prim_func([a, x, te.compute((m,), lambda i: te.sum(a[i, j] * x[j], axis=j), name="S")])


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


def declare_argmax(m: int, n: int) -> tw.PrimFunc:
    """V[i] = max of X[i, :], P[i] = the first place where it is"""
    x = te.placeholder((m, n), name="X")
    k = te.reduce_axis((0, n), name="k")
    place, value = te.compute((m,), lambda i: argmax((k.var, x[i, k]), axis=k), name="S")
    return te.create_prim_func([x, value, place])


def by_rows(rows: int, ahead: int) -> Scheduler:
    """A schedule: ``rows`` rows at a time, a vector of partial sums for each, fetched ``ahead`` steps before."""

    def schedule(func: tw.PrimFunc, target: tw.Target) -> tw.Schedule:
        sch = tw.Schedule(func)
        sweep = RowSweep(target.vector_lanes("float32"), rows=rows, shared=target.num_cores > 1)
        steps = sweep_rows(sch, ["S"], sweep)
        if "S" in steps:  # else a vector holds a row
            sch.annotate(steps["S"], "pragma_prefetch_distance", {func.buffers[0].name: ahead})
        return sch

    return schedule


def pairs_by_rows(rows: int, ahead: int) -> Scheduler:
    """The same for pairs, which are joined at the end of a row one by one."""

    def schedule(func: tw.PrimFunc, target: tw.Target) -> tw.Schedule:
        sch = tw.Schedule(func)
        i, k = sch.get_loops("S")
        width = min(target.vector_lanes("float32"), 1 << int(sch.get(k).extent).bit_length() - 1)
        pairs = by_lanes(sch, "S", k, width, 1)
        for number in (0, 1):
            sch.set_scope(pairs, number, "local")
        tile, _ = sch.split(i, [None, rows])
        sch.compute_at(pairs, tile, preserve_unit_loops=True)
        lane, row, step = loops_within(sch, pairs, tile)
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


def reference_argmax(x: np.ndarray, value: np.ndarray, out: np.ndarray) -> None:
    """Compute the result with NumPy; ``value`` is the other output."""
    out[...] = np.argmax(x, axis=1)


KERNELS = [
    Kernel(
        "row sum 4096²", declare_sum(4096, 4096), by_rows(8, 4), lambda x, out: np.sum(x, axis=1, out=out), "row sum",
        yardstick="read", goal="0.95 of bandwidth",
    ),
    Kernel(
        "gemv 4096²", declare_gemv(4096, 4096), by_rows(16, 8), np.matmul, "gemv",
        yardstick="read", goal="0.95 of bandwidth",
    ),
    Kernel(
        "argmax 4096²", declare_argmax(4096, 4096), pairs_by_rows(8, 8), reference_argmax, "argmax",
        yardstick="read", goal="0.9 of bandwidth",
    ),
]  # fmt: skip

if __name__ == "__main__":
    run(KERNELS, sys.argv[1:])
