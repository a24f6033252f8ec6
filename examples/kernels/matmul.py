"""These kernels are matrix products with a register tile: one by one, in batches, and with bias and gelu.

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

A small product is not packed: instead the rows of B that are needed ``prefetch`` steps later are prefetched. Nor are the
operands of a batch: a product of 128×128 by 128×64 takes whole rows of B, which fit the first-level cache.

Bias and gelu (the exact one, with erf, as vector code) are applied to a tile while it is in registers: the stage that would
copy it to memory is inlined into the stage that adds the bias, that one into gelu, which is computed where the tile ends.
"""

from __future__ import annotations

import math
import sys

import numpy as np
from kernel import Kernel, Scheduler, run

import tilewright as tw
from tilewright import te
from tilewright.tuner.recipes import Panels, TileNest, tiled_product


def declare(m: int, n: int, k: int, constant: bool = False) -> tw.PrimFunc:
    """Returns C = A @ B. With ``constant``, B stays the same from call to call, so that it may be packed ahead."""
    a = te.placeholder((m, k), name="A")
    b = te.placeholder((k, n), name="B")
    kk = te.reduce_axis((0, k), name="k")
    attrs = {"layout_free_placeholders": [b]} if constant else {}
    c = te.compute((m, n), lambda i, j: te.sum(a[i, kk] * b[kk, j], axis=kk), name="C", attrs=attrs)
    return te.create_prim_func([a, b, c])


def declare_batch(batch: int, m: int, n: int, k: int) -> tw.PrimFunc:
    """C[b] = A[b] @ B[b]"""
    a = te.placeholder((batch, m, k), name="A")
    b = te.placeholder((batch, k, n), name="B")
    kk = te.reduce_axis((0, k), name="k")
    c = te.compute((batch, m, n), lambda p, i, j: te.sum(a[p, i, kk] * b[p, kk, j], axis=kk), name="C")
    return te.create_prim_func([a, b, c])


def declare_gelu(m: int, n: int, k: int) -> tw.PrimFunc:
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


def tiled(
    rows: int, vectors: int, panels: int, *, fetch: str = "", prefetch: int = 0, ahead: bool = False, unroll: int = 8
) -> Scheduler:
    """Returns a schedule: tiles of ``rows`` x ``vectors`` vectors, slices of ``panels`` panels.

    ``fetch``: the operands, of ``"AB"``, whose next part is fetched while one is used; ``ahead``: B is packed before all
    calls; ``prefetch``: it is not packed, but asked for so many steps of k ahead. Stages that read the product element by
    element are computed tile by tile.
    """

    def schedule(func: tw.PrimFunc, target: tw.Target) -> tw.Schedule:
        lanes, threads = target.vector_lanes("float32"), target.num_cores > 1
        n = int(func.buffer_map[func.params[1]].shape[1])
        whole = n % (panels * vectors * lanes) == 0  # else slices of one panel, the last one padded
        sch = tw.Schedule(func)
        nest = TileNest(  # slices of columns; in each, tiles of rows; in each, panels; then k, and the tile itself
            "i j k", {"i": [None, rows], "j": [None, panels if whole else 1, vectors, lanes]},
            outer="j0 i0 j1", reduce="k", tile="i1 j2 j3", lanes=lanes, shared=threads, unroll={"k": unroll},
        )  # fmt: skip
        panel = None if prefetch else Panels("B", column=1, width=vectors * lanes, inner=[0], shared=threads)
        after = [name for name in ("X", "D") if len(func.buffers) > 3]
        loops, _ = tiled_product(sch, "C", nest, packed=panel, within="" if ahead else "j0", epilogue=after)
        if prefetch:
            sch.annotate(loops["k"], "pragma_prefetch_distance", {"B": prefetch})
        if "A" in fetch:
            sch.annotate(loops["i0"], "pragma_prefetch_next", ["A"])
        if "B" in fetch:
            sch.annotate(loops["j0"], "pragma_prefetch_next", ["B_global" if ahead else "B"])
        return sch

    return schedule


def batched(rows: int, vectors: int, unroll: int = 4) -> Scheduler:
    """Returns a schedule for a batch of small products: tiles of ``rows`` x ``vectors`` vectors, nothing packed."""

    def schedule(func: tw.PrimFunc, target: tw.Target) -> tw.Schedule:
        lanes = target.vector_lanes("float32")
        sch = tw.Schedule(func)
        nest = TileNest(
            "p i j k", {"i": [None, rows], "j": [None, vectors, lanes]},
            outer="p j0 i0", reduce="k", tile="i1 j1 j2", lanes=lanes, shared=target.num_cores > 1, unroll={"k": unroll},
        )  # fmt: skip
        tiled_product(sch, "C", nest)
        return sch

    return schedule


def reference(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """Compute the result with NumPy."""
    np.matmul(a, b, out=out)


def reference_gelu(a: np.ndarray, b: np.ndarray, bias: np.ndarray, out: np.ndarray) -> None:
    """Compute the result with NumPy, and Python's erf in double precision."""
    x = a.astype("float64") @ b.astype("float64") + bias
    out[...] = x * 0.5 * (1.0 + np.vectorize(math.erf)(x * math.sqrt(0.5)))


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
    kernel((197, 768, 768), "matmul 197×768×768, B packed ahead", "0.97 of peak", tiled(9, 3, 2, ahead=True, fetch="B"), True),
    kernel((64,) * 3, "matmul 64³", "0.75 of peak", tiled(8, 2, 2, prefetch=64)),
    Kernel(
        "batch_matmul 12×128×64×128", declare_batch(12, 128, 64, 128), batched(6, 4), reference, "batch matmul",
        goal="0.88 of peak",
    ),
    Kernel(
        "matmul+bias+gelu 128×3072×768", declare_gelu(128, 3072, 768), tiled(8, 3, 1, ahead=True, fetch="B"),
        reference_gelu, "matmul bias gelu", goal="0.90 of peak",
    ),
]  # fmt: skip

if __name__ == "__main__":
    run(KERNELS, sys.argv[1:])
