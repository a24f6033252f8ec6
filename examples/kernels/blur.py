"""A 3×3 box blur, both directions fused, with sums of rows in a rolling buffer.

Nine additions become four: sums of three neighbours in a row, then sums of three of those in a column. A row of such sums
serves three rows of the result. It is computed when the first of these needs it (``compute_at``) and kept while the others
do: ``rolling_buffer`` leaves room for three rows, which stay in the first-level cache, and computes only the new one.
Threads work on blocks of rows of the result, each with its sums.

What remains is to read the image once and to write the result once. The result is stored past the caches, which then do
not read its lines first, and the image is prefetched. Where all data stay in a large cache this takes a fifteenth
longer; where memory is slow, or other processes use it too, it takes two thirds of the time.

Run it: ``python examples/kernels/blur.py``.
"""

from __future__ import annotations

import sys

import numpy as np
from kernel import Kernel, run

import tilewright as tw
from tilewright import te


def declare(height: int, width: int) -> tw.PrimFunc:
    """Y[i, j] = mean of X[i : i + 3, j : j + 3]"""
    x = te.placeholder((height, width), name="X")
    rows = te.compute((height, width - 2), lambda i, j: x[i, j] + x[i, j + 1] + x[i, j + 2], name="rows")
    y = te.compute(
        (height - 2, width - 2), lambda i, j: (rows[i, j] + rows[i + 1, j] + rows[i + 2, j]) * (1 / 9), name="Y"
    )
    return te.create_prim_func([x, y])


def rolling(vectors: int, ahead: int):
    """A schedule: one row at a time, ``vectors`` vectors per iteration, fetched ``ahead`` iterations before."""

    def schedule(func: tw.PrimFunc, target: tw.Target) -> tw.Schedule:
        lanes = target.vector_lanes("float32")
        sch = tw.Schedule(func)
        i, _ = sch.get_loops("Y")
        if target.num_cores == 1:
            sch.compute_at("rows", i, preserve_unit_loops=True)
        else:  # the loop over a rolling buffer runs in order; blocks of rows do not share a buffer
            block, _ = sch.split(i, [None, 16])
            sch.compute_at("rows", block, preserve_unit_loops=True)
            sch.parallel(block)
        for block in ("Y", "rows"):
            step, vector, lane = sch.split(sch.get_loops(block)[-1], [None, vectors, lanes])
            sch.unroll(vector)
            sch.vectorize(lane)
        sch.annotate(step, "pragma_prefetch_distance", {"X": ahead})
        if target.num_cores == 1:
            sch.rolling_buffer("rows", 0)
        sch.annotate("Y", "pragma_nontemporal_store", 1)
        return sch

    return schedule


def reference(x: np.ndarray, out: np.ndarray) -> None:
    """NumPy."""
    rows = x[:, :-2] + x[:, 1:-1]
    rows += x[:, 2:]
    np.add(rows[:-2], rows[1:-1], out=out)
    out += rows[2:]
    out *= np.float32(1 / 9)


KERNELS = [
    Kernel(
        "blur 3×3 2048²",
        declare(2048, 2048),
        rolling(2, 16),
        reference,
        "blur",
        yardstick="copy",
        goal="1.25 × JAX",
    ),
]

if __name__ == "__main__":
    run(KERNELS, sys.argv[1:])
