"""This kernel multiplies int8 matrices into int32 with the dot-product instruction of AVX-512 VNNI.  On machines with a
matrix unit, ``matrix_unit.py`` is faster.

Run it: ``python examples/kernels/int8_matmul.py [words of names]``.

``vpdpbusd`` multiplies 16 times 4 *unsigned* bytes by 4 signed ones and adds them up in 16 int32 lanes. Three things bring
a product of signed matrices there:

* A + 128 is unsigned, and A·B = (A + 128)·B - 128·B: the right term is one number per column, a product of its own with a
  row of 128s, and taken off when a tile is complete. All of it is exact.
* B is packed into panels ``[panel, k // 4, column, k % 4]``, so that four steps of k lie side by side for each lane. B is
  constant here and packed ahead.
* ``tensorize`` replaces the loops over 16 columns and 4 steps by the intrinsic. On a machine without the instruction the
  same program computes the same numbers with plain arithmetic.

One instruction does as much as four multiply-adds of float32, so the share of everything else is four times as large. A
tile of 6 rows by 4 vectors reads few numbers per instruction; tiles follow one another along the rows of the result,
whose lines are then fetched ahead by the hardware: 4 MB are written, and stores that jump from page to page would keep
the loads waiting.
"""

from __future__ import annotations

import sys

import numpy as np
from kernel import Kernel, Scheduler, run

import tilewright as tw
from tilewright import te
from tilewright.tuner.recipes import DotInstruction, Panels, arrange, dot_tile, finish_tile, pack

WIDTH = 4
"""Steps of k in one instruction."""


def declare(m: int, n: int, k: int) -> tw.PrimFunc:
    """D = A @ B; n is a multiple of 64, k of 4."""
    a, b = te.placeholder((m, k), "int8", name="A"), te.placeholder((k, n), "int8", name="B")
    shifted = te.compute((m, k), lambda i, q: te.cast("uint8", te.cast("int32", a[i, q]) + 128), name="U")
    row = te.compute((k,), lambda q: te.const(128, "uint8"), name="V")

    def product(x, y):
        return te.cast("int32", x) * te.cast("int32", y)

    k1, k2 = te.reduce_axis((0, k), name="k"), te.reduce_axis((0, k), name="k")
    attrs = {"layout_free_placeholders": [b]}
    total = te.compute((m, n), lambda i, j: te.sum(product(shifted[i, k1], b[k1, j]), axis=k1), name="C", attrs=attrs)
    excess = te.compute((n,), lambda j: te.sum(product(row[k2], b[k2, j]), axis=k2), name="S")
    out = te.compute((m, n), lambda i, j: total[i, j] - excess[j], name="D")
    return te.create_prim_func([a, b, out])


def tiled(rows: int, vectors: int, unroll: int = 8) -> Scheduler:
    """Returns a schedule: tiles of ``rows`` x ``vectors`` vectors of int32."""

    def schedule(func: tw.PrimFunc, target: tw.Target) -> tw.Schedule:
        lanes = target.vector_lanes("int32")
        dot = DotInstruction("dot_16x4_vnni" if lanes == 16 else "dot_8x4_avx_vnni", lanes, WIDTH, unroll)
        cols = vectors * 16
        sch = tw.Schedule(func)

        # B: panels of columns, in which four steps of k are neighbours.
        pack(sch, "C", Panels("B", column=1, width=cols, inner=[0], steps=WIDTH), also=["S"])

        # A + 128, as vectors.
        _, lane = sch.split(sch.get_loops("U")[-1], [None, 4 * lanes])
        sch.vectorize(lane)

        # The result: tiles along its rows. The accumulators belong to a tile and stay in registers.
        loops = arrange(sch, "D", "i j", {"i": [None, rows], "j": [None, cols // lanes, lanes]}, "i0 j0 i1 j1 j2")
        for name in ("i1", "j1"):
            sch.unroll(loops[name])
        sch.vectorize(loops["j2"])
        sch.set_scope("C", 0, "local")
        sch.compute_at("C", loops["j0"], preserve_unit_loops=True)
        row, column, k = sch.get_loops("C")[-3:]
        dot_tile(sch, "C", dot, column=column, step=k, rows=[row])

        # 128 times the sums of the columns, a panel at a time.
        sums = sch.cache_write("S", 0, "local")
        column, k = sch.get_loops("S")
        part, column = sch.split(column, [None, cols])
        sch.reverse_compute_at(sums, part, preserve_unit_loops=True)
        dot_tile(sch, "S", dot, column=column, step=k)
        finish_tile(sch, sums, part, 0, lanes)

        if target.num_cores > 1:
            sch.parallel(loops["i0"])
        return sch

    return schedule


def reference(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """Compute the result with NumPy in float64, which holds these sums exactly; its products of integers are slow."""
    out[...] = a.astype("float64") @ b.astype("float64")


KERNELS = [
    Kernel(
        "int8 matmul 1024³, VNNI", declare(1024, 1024, 1024), tiled(6, 4), reference, "int8 matmul",
        tolerance=0.0, without="amx-tile",
    ),
]  # fmt: skip

if __name__ == "__main__":
    run(KERNELS, sys.argv[1:])
