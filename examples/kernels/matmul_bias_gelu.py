"""This kernel applies bias and gelu to a matrix product while its tile is still in registers.

Run it: ``python examples/kernels/matmul_bias_gelu.py [words of names]``.

The schedule is that of ``matmul.py`` with one step more: the stage that would copy a finished tile to memory is inlined
into the stage that adds the bias and takes gelu, and that one is computed where the tile ends. The product itself is
never written to memory. gelu here is the exact one, with erf, as vector code.

The 9 MB of B do not fit into the level-2 cache. While all rows of A pass by one panel of it, the next one is fetched, a
little in every step of k (``pragma_prefetch_next``); otherwise the first tile of each panel would wait for all of it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

import numpy as np
from kernel import Kernel, run
from register_tiles import finish_tile

import tilewright as tw
from tilewright import te

Scheduler = Callable[[tw.PrimFunc, tw.Target], tw.Schedule]


def declare(m: int, n: int, k: int) -> tw.PrimFunc:
    """D = gelu(A @ B + bias), gelu(x) = x/2 (1 + erf(x / √2)); B is constant."""
    a = te.placeholder((m, k), name="A")
    b = te.placeholder((k, n), name="B")
    bias = te.placeholder((n,), name="bias")
    kk = te.reduce_axis((0, k), name="k")
    attrs = {"layout_free_placeholders": [b]}
    c = te.compute((m, n), lambda i, j: te.sum(a[i, kk] * b[kk, j], axis=kk), name="C", attrs=attrs)
    x = te.compute((m, n), lambda i, j: c[i, j] + bias[j], name="X")
    d = te.compute((m, n), lambda i, j: x[i, j] * 0.5 * (1.0 + te.erf(x[i, j] * math.sqrt(0.5))), name="D")
    return te.create_prim_func([a, b, bias, d])


def tiled(rows: int, vectors: int, panels: int, unroll: int = 8) -> Scheduler:
    """Returns a schedule: tiles of ``rows`` x ``vectors`` vectors, slices of ``panels`` panels, B packed ahead."""

    def schedule(func: tw.PrimFunc, target: tw.Target) -> tw.Schedule:
        lanes = target.vector_lanes("float32")
        cols = vectors * lanes
        n = int(func.buffer_map[func.params[1]].shape[1])
        sch = tw.Schedule(func)
        copy = sch.cache_write("C", 0, "local")

        # C: slices of columns; in each, tiles of rows; in each, panels; then k, and the tile itself.
        i, j, k = sch.get_loops("C")
        i0, i1 = sch.split(i, [None, rows])
        a_slice, panel, vector, lane = sch.split(j, [None, panels, vectors, lanes])
        sch.reorder(a_slice, i0, panel, k, i1, vector, lane)

        # B lies in panels, in the order in which they are used.
        packed = sch.cache_read("C", 1, "global")
        sch.transform_layout(
            "C", ("read", 1), lambda kk, jj: (jj // cols, kk, jj % cols), pad_value=0.0 if n % cols else None
        )
        *row, q = sch.get_loops(packed)
        if n % cols == 0:  # else the loops go through the panels already, zeros included
            part, q = sch.split(q, [None, cols])
            sch.reorder(part, *row, q)
        sch.vectorize(q)

        # The consumer reads the tile from its registers.
        sch.compute_inline(copy)
        sch.compute_inline("X")
        finish_tile(sch, "D", panel, 2, (i1, vector), lane, lanes)
        sch.annotate(k, "pragma_unroll_factor", unroll)
        sch.annotate(a_slice, "pragma_prefetch_next", ["B_global"])
        sch.decompose_reduction("C", k)
        if target.num_cores > 1:
            sch.parallel(a_slice)
        return sch

    return schedule


def reference(a: np.ndarray, b: np.ndarray, bias: np.ndarray, out: np.ndarray) -> None:
    """NumPy, with Python's erf in double precision."""
    x = a.astype("float64") @ b.astype("float64") + bias
    out[...] = x * 0.5 * (1.0 + np.vectorize(math.erf)(x * math.sqrt(0.5)))


KERNELS = [
    Kernel(
        "matmul+bias+gelu 128×3072×768", declare(128, 3072, 768), tiled(8, 3, 1), reference, "matmul bias gelu",
        goal="0.90 of peak",
    ),
]  # fmt: skip

if __name__ == "__main__":
    run(KERNELS, sys.argv[1:])
