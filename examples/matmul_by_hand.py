"""This example schedules a matmul by hand, one step of a fast CPU kernel at a time.

Run it: ``python examples/matmul_by_hand.py [M N K]``. It checks the result and prints the share of the machine's peak.
"""

from __future__ import annotations

import sys

import numpy as np

import tilewright as tw
from tilewright import te


def declare(m: int, n: int, k: int) -> tw.PrimFunc:
    """Returns the function C = A @ B, unscheduled."""
    a = te.placeholder((m, k), name="A")
    b = te.placeholder((k, n), name="B")
    kk = te.reduce_axis((0, k), name="k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, kk] * b[kk, j], axis=kk), name="C")
    return te.create_prim_func([a, b, c])


def schedule(func: tw.PrimFunc, target: tw.Target) -> tw.Schedule:
    """Returns the schedule: a tile of ``rows`` x ``vectors * lanes`` accumulators stays in registers while k runs."""
    lanes = target.vector_lanes("float32")
    rows, vectors = (8, 3) if target.num_vector_registers >= 32 else (4, 3)
    sch = tw.Schedule(func)
    block = sch.get_block("C")
    cols = vectors * lanes

    # The accumulators get a buffer of their own, in registers, and are copied to C at the end.
    out = sch.cache_write(block, 0, "local")

    # Tiles need not divide the extents: elements beyond them are masked.
    i, j, k = sch.get_loops(block)
    i_block, i0, i1 = sch.split(i, [None, 32, rows])
    j0, jv, j2 = sch.split(j, [None, vectors, lanes])

    # 32 tiles of rows are a block of A that stays in the level-2 cache while all of B is read.
    sch.reorder(i_block, j0, i0, k, i1, jv, j2)

    # B is packed into panels as wide as the tile, so that the inner loop reads it front to back.
    packed = sch.cache_read(block, 1, "global")
    sch.transform_layout(block, ("read", 1), lambda kk, jj: (jj // cols, kk, jj % cols), leave_padding=True)
    row, column = sch.get_loops(packed)
    panel, q = sch.split(column, [None, cols])
    sch.reorder(panel, row, q)
    sch.vectorize(q)

    # The copy to C happens once a tile is complete.
    sch.reverse_compute_at(out, i0)
    r, c = sch.get_loops(out)[-2:]
    c0, c1 = sch.split(c, [None, lanes])
    for loop in (r, c0):
        sch.unroll(loop)
    sch.vectorize(c1)

    # The tile is written out in full; one iteration of the loop has eight steps of k.
    sch.unroll(i1)
    sch.unroll(jv)
    sch.vectorize(j2)
    sch.annotate(k, "pragma_unroll_factor", 8)
    sch.decompose_reduction(block, k)
    if target.num_cores > 1:
        sch.parallel(panel)
        sch.parallel(sch.fuse(i_block, j0))
    return sch


def main() -> None:
    """Build, check against NumPy, measure."""
    m, n, k = (int(x) for x in sys.argv[1:4]) if len(sys.argv) > 3 else (1024, 1024, 1024)
    target = tw.Target("native -num-cores=1")
    kernel = tw.build(schedule(declare(m, n, k), target), target=target, name="matmul")

    rng = np.random.default_rng(0)
    a, b = rng.random((m, k), "float32"), rng.random((k, n), "float32")
    c = np.empty((m, n), "float32")
    kernel(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4)

    seconds = kernel.time_evaluator(repeat=10)(a, b, c).median
    print(f"matmul {m}x{n}x{k}: {1e3 * seconds:.2f} ms, {2e-9 * m * n * k / seconds:.0f} GFLOP/s")


if __name__ == "__main__":
    main()
