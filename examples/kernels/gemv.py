"""A matrix times a vector: the matrix is read once and used once, so the limit is the bandwidth of reading.

As in ``row_sum.py``, each row has its own partial sums. ``rows`` rows are worked on together: a vector of x is loaded once
for all of them, and memory sees that many streams.

Run it: ``python examples/kernels/gemv.py``.
"""

from __future__ import annotations

import sys

import numpy as np
from kernel import Kernel, run
from rows import by_lanes, row_width, sweep

import tilewright as tw
from tilewright import te

__all__ = ["KERNELS"]


def declare(m: int, n: int) -> tw.PrimFunc:
    """Y[i] = sum over j of A[i, j] * X[j]"""
    a, x = te.placeholder((m, n), name="A"), te.placeholder((n,), name="X")
    j = te.reduce_axis((0, n), name="j")
    y = te.compute((m,), lambda i: te.sum(a[i, j] * x[j], axis=j), name="Y")
    return te.create_prim_func([a, x, y])


def by_rows(rows: int, vectors: int, ahead: int):
    """A schedule: ``rows`` rows at a time, ``vectors`` vectors of partial sums for each, fetched ``ahead`` steps before."""

    def schedule(func: tw.PrimFunc, target: tw.Target) -> tw.Schedule:
        sch = tw.Schedule(func)
        i, j = sch.get_loops("Y")
        partial = by_lanes(sch, "Y", row_width(sch, j, target, vectors))
        block, _ = sch.split(sch.get_loops("Y")[0], [None, rows])
        sch.compute_at(partial, block, preserve_unit_loops=True)
        step = sweep(sch, partial, "Y", block)
        sch.annotate(step, "pragma_prefetch_distance", {"A": ahead})
        if target.num_cores > 1:
            sch.parallel(block)
        return sch

    return schedule


def reference(a: np.ndarray, x: np.ndarray, out: np.ndarray) -> None:
    """NumPy."""
    np.matmul(a, x, out=out)


KERNELS = [
    Kernel(
        "gemv 4096²",
        declare(4096, 4096),
        by_rows(4, 4, 8),
        reference,
        "gemv",
        yardstick="read",
        goal="0.95 of bandwidth",
    ),
]

if __name__ == "__main__":
    run(KERNELS, sys.argv[1:])
