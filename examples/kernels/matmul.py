"""These kernels are matrix products with a register tile and slices of B packed into panels.

Run it: ``python examples/kernels/matmul.py [words of names]``.

The tile of C that a loop over k works on stays in registers: ``rows`` x ``vectors`` accumulators, at most 26 of the 32, so
that the vectors of B and one element of A find room. Each step of k then takes ``vectors`` loads and ``rows`` broadcasts
for ``rows * vectors`` multiply-adds; the two units for these are busy all the time and the two for loads half of it.

B is read again for each tile of rows. Its columns lie far apart in memory, so a *slice* of it, as much as half of the
level-2 cache holds, is copied into *panels* as wide as the tile, one after the other, where the hardware sees a single
stream. A packed slice is used by all rows of A, which are read once for each slice.

Memory beyond the level-2 cache has a long latency. While one slice is used, the next one is fetched, and while one tile
of rows is multiplied by the panels, the next tile of A: a little in every step, so that no step waits.

Rows of A whose distance is a power of two all fall into the same sets of the level-1 cache, which has room for 12 of them:
for 1024 the tile is 6 rows high and 4 vectors wide.

A small product is not packed: instead the rows of B that are needed ``prefetch`` steps later are prefetched.
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


def declare(m: int, n: int, k: int, constant: bool = False) -> tw.PrimFunc:
    """C = A @ B; ``constant``: B stays the same from call to call, so that it may be packed ahead."""
    a = te.placeholder((m, k), name="A")
    b = te.placeholder((k, n), name="B")
    kk = te.reduce_axis((0, k), name="k")
    attrs = {"layout_free_placeholders": [b]} if constant else {}
    c = te.compute((m, n), lambda i, j: te.sum(a[i, kk] * b[kk, j], axis=kk), name="C", attrs=attrs)
    return te.create_prim_func([a, b, c])


def tiled(
    rows: int, vectors: int, panels: int, *, fetch: str = "", prefetch: int = 0, ahead: bool = False, unroll: int = 8
) -> Scheduler:
    """Returns a schedule: tiles of ``rows`` x ``vectors`` vectors, slices of ``panels`` panels.

    ``fetch``: the operands, of ``"AB"``, whose next part is fetched while one is used; ``ahead``: B is packed before all
    calls; ``prefetch``: it is not packed, but asked for so many steps of k ahead.
    """

    def schedule(func: tw.PrimFunc, target: tw.Target) -> tw.Schedule:
        lanes = target.vector_lanes("float32")
        cols = vectors * lanes
        n = int(func.buffer_map[func.params[1]].shape[1])
        whole = n % (panels * cols) == 0  # else slices of one panel, the last one padded
        sch = tw.Schedule(func)
        out = sch.cache_write("C", 0, "local")

        # C: slices of columns; in each, tiles of rows; in each, panels; then k, and the tile itself.
        i, j, k = sch.get_loops("C")
        i0, i1 = sch.split(i, [None, rows])
        a_slice, panel, vector, lane = sch.split(j, [None, panels if whole else 1, vectors, lanes])
        sch.reorder(a_slice, i0, panel, k, i1, vector, lane)

        # B: a row of the slice after the other, each cut into panels.
        if not prefetch:
            packed = sch.cache_read("C", 1, "global")
            sch.transform_layout(
                "C", ("read", 1), lambda kk, jj: (jj // cols, kk, jj % cols), pad_value=0.0 if n % cols else None
            )
            if not ahead:
                sch.compute_at(packed, a_slice, preserve_unit_loops=True)
            row, column = sch.get_loops(packed)[-2:]
            part, q = sch.split(column, [None, cols])
            sch.vectorize(q)
            if ahead:
                sch.reorder(part, row)
                if target.num_cores > 1:
                    sch.parallel(part)
        else:
            sch.annotate(k, "pragma_prefetch_distance", {"B": prefetch})

        # What is used next comes from beyond the level-2 cache.
        if "A" in fetch:
            sch.annotate(i0, "pragma_prefetch_next", ["A"])
        if "B" in fetch:
            sch.annotate(a_slice, "pragma_prefetch_next", ["B_global" if ahead else "B"])

        # A tile is copied to C when it is complete.
        finish_tile(sch, out, panel, 2, (i1, vector), lane, lanes)
        sch.annotate(k, "pragma_unroll_factor", unroll)
        sch.decompose_reduction("C", k)
        if target.num_cores > 1:
            sch.parallel(a_slice)
        return sch

    return schedule


def reference(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """NumPy."""
    np.matmul(a, b, out=out)


def kernel(shape: tuple[int, int, int], name: str, goal: str, schedule: Scheduler, constant: bool = False) -> Kernel:
    """Returns one shape, scheduled."""
    operation = "constant matmul" if constant else "matmul"
    return Kernel(name, declare(*shape, constant), schedule, reference, operation, goal=goal)


KERNELS = [
    kernel((1024,) * 3, "matmul 1024³", "0.93 of peak", tiled(6, 4, 2, fetch="AB")),
    kernel((512,) * 3, "matmul 512³", "0.96 of peak", tiled(12, 2, 8, fetch="A")),
    kernel((128, 3072, 768), "matmul 128×3072×768", "0.92 of peak", tiled(11, 2, 8, fetch="B")),
    kernel((197, 768, 768), "matmul 197×768×768", "0.96 of peak", tiled(9, 3, 2, fetch="B")),
    kernel((255,) * 3, "matmul 255³", "0.93 of peak", tiled(13, 2, 8)),
    kernel((1024,) * 3, "matmul 1024³, B packed ahead", "0.95 of peak", tiled(6, 4, 4, ahead=True, fetch="AB"), True),
    kernel(
        (197, 768, 768),
        "matmul 197×768×768, B packed ahead",
        "0.97 of peak",
        tiled(9, 3, 2, ahead=True, fetch="B"),
        True,
    ),
    kernel((64,) * 3, "matmul 64³", "0.75 of peak", tiled(8, 2, 2, prefetch=64)),
]

if __name__ == "__main__":
    run(KERNELS, sys.argv[1:])
