"""Many small products of matrices: each operand is small enough that nothing needs to be packed.

Run it: ``python examples/kernels/batch_matmul.py [words of names]``.

A product of 128×128 by 128×64 reads its right operand for each tile of rows; all of it fits into the first-level cache,
and its rows are as wide as four vectors. A tile of 6 rows by these four takes whole rows of it, one after the other in
memory, so that packing would change nothing. With 128 steps of k, setting a tile up and storing it takes some percent.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from kernel import Kernel, run
from register_tiles import finish_tile

import tilewright as tw
from tilewright import te

Scheduler = Callable[[tw.PrimFunc, tw.Target], tw.Schedule]


def declare(batch: int, m: int, n: int, k: int) -> tw.PrimFunc:
    """C[b] = A[b] @ B[b]"""
    a = te.placeholder((batch, m, k), name="A")
    b = te.placeholder((batch, k, n), name="B")
    kk = te.reduce_axis((0, k), name="k")
    c = te.compute((batch, m, n), lambda p, i, j: te.sum(a[p, i, kk] * b[p, kk, j], axis=kk), name="C")
    return te.create_prim_func([a, b, c])


def tiled(rows: int, vectors: int, unroll: int = 4) -> Scheduler:
    """Returns a schedule: tiles of ``rows`` x ``vectors`` vectors."""

    def schedule(func: tw.PrimFunc, target: tw.Target) -> tw.Schedule:
        lanes = target.vector_lanes("float32")
        sch = tw.Schedule(func)
        out = sch.cache_write("C", 0, "local")
        batch, i, j, k = sch.get_loops("C")
        i0, i1 = sch.split(i, [None, rows])
        panel, vector, lane = sch.split(j, [None, vectors, lanes])
        sch.reorder(batch, panel, i0, k, i1, vector, lane)
        finish_tile(sch, out, i0, 2, (i1, vector), lane, lanes)
        sch.annotate(k, "pragma_unroll_factor", unroll)
        sch.decompose_reduction("C", k)
        if target.num_cores > 1:
            sch.parallel(batch)
        return sch

    return schedule


def reference(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """NumPy."""
    np.matmul(a, b, out=out)


KERNELS = [
    Kernel(
        "batch_matmul 12×128×64×128", declare(12, 128, 64, 128), tiled(6, 4), reference, "batch matmul",
        goal="0.88 of peak",
    ),
]  # fmt: skip

if __name__ == "__main__":
    run(KERNELS, sys.argv[1:])
