"""Matrix products on one thread or several: a register tile, panels of B, and what the sizes ask for.

Run it: ``python examples/kernels/matmul.py [words of names]``.
"""

from __future__ import annotations

import sys

import numpy as np
from kernel import Kernel, run

import tilewright as tw
from tilewright import te

__all__ = ["KERNELS"]


def declare(m: int, n: int, k: int, constant: bool = False) -> tw.PrimFunc:
    """C = A @ B; ``constant``: B stays the same from call to call and may be packed ahead."""
    a = te.placeholder((m, k), name="A")
    b = te.placeholder((k, n), name="B")
    kk = te.reduce_axis((0, k), name="k")
    attrs = {"layout_free_placeholders": [b]} if constant else {}
    c = te.compute((m, n), lambda i, j: te.sum(a[i, kk] * b[kk, j], axis=kk), name="C", attrs=attrs)
    return te.create_prim_func([a, b, c])


def tiled(rows: int, vectors: int, block: int = 32, pack: bool = True, unroll: int = 8):
    """A schedule: ``rows`` x ``vectors`` vectors of accumulators, ``block`` row tiles while the panels of B pass by."""

    def schedule(func: tw.PrimFunc, target: tw.Target) -> tw.Schedule:
        lanes = target.vector_lanes("float32")
        cols = vectors * lanes
        sch = tw.Schedule(func)
        out = sch.cache_write("C", 0, "local")
        i, j, k = sch.get_loops("C")
        i_block, i0, i1 = sch.split(i, [None, block, rows])
        j0, jv, j2 = sch.split(j, [None, vectors, lanes])
        sch.reorder(i_block, j0, i0, k, i1, jv, j2)
        if pack:
            packed = sch.cache_read("C", 1, "global")
            sch.transform_layout("C", ("read", 1), lambda kk, jj: (jj // cols, kk, jj % cols))
            row, column = sch.get_loops(packed)
            panel, q = sch.split(column, [None, cols])
            sch.reorder(panel, row, q)
            sch.vectorize(q)
        sch.reverse_compute_at(out, i0)
        r, c = sch.get_loops(out)[-2:]
        c0, c1 = sch.split(c, [None, lanes])
        for loop in (r, c0):
            sch.unroll(loop)
        sch.vectorize(c1)
        sch.unroll(i1)
        sch.unroll(jv)
        sch.vectorize(j2)
        sch.annotate(k, "pragma_unroll_factor", unroll)
        sch.decompose_reduction("C", k)
        if target.num_cores > 1:
            if pack:
                sch.parallel(panel)
            sch.parallel(sch.fuse(i_block, j0))
        return sch

    return schedule


def reference(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """NumPy."""
    np.matmul(a, b, out=out)


def _kernel(m: int, n: int, k: int, name: str, goal: str, schedule, constant: bool = False) -> Kernel:
    operation = "constant matmul" if constant else "matmul"
    return Kernel(name, declare(m, n, k, constant), schedule, reference, operation, goal=goal)


KERNELS = [
    _kernel(1024, 1024, 1024, "matmul 1024³", "0.93 of peak", tiled(8, 3)),
    _kernel(512, 512, 512, "matmul 512³", "0.96 of peak", tiled(8, 3)),
    _kernel(128, 3072, 768, "matmul 128×3072×768", "0.92 of peak", tiled(8, 3)),
    _kernel(197, 768, 768, "matmul 197×768×768", "0.96 of peak", tiled(8, 3)),
    _kernel(255, 255, 255, "matmul 255³", "0.93 of peak", tiled(8, 3)),
    _kernel(1024, 1024, 1024, "matmul 1024³, B packed ahead", "0.95 of peak", tiled(8, 3), True),
    _kernel(197, 768, 768, "matmul 197×768×768, B packed ahead", "0.97 of peak", tiled(8, 3), True),
    _kernel(64, 64, 64, "matmul 64³", "0.75 of peak", tiled(8, 2, pack=False)),
]

if __name__ == "__main__":
    run(KERNELS, sys.argv[1:])
