"""These kernels multiply int8 and bfloat16 matrices with the matrix unit of x86 (AMX).

Run it: ``python examples/kernels/matrix_unit.py [words of names]``.

The unit has eight registers of 16 rows of 64 bytes. One instruction multiplies a tile of A, 16 rows by 64 int8 (or 32
bfloat16), by a tile of B, 16 columns by as many steps, and adds the products to a tile of 16 by 16 sums: sixteen times what
a dot-product instruction on vectors does, in sixteen cycles. It reads int8 as it is, so that nothing has to be corrected.

* Two tiles of A by two of B and their four tiles of sums are the eight registers. Each tile that is read is used twice.
* The sums get a buffer laid out tile by tile. All its accesses are intrinsics on whole tiles: ``fill`` in front of the
  reduction, ``dot`` in it, ``store`` behind, so that the tiles stay in registers from the first to the last.
* B is packed ahead: four steps (two of bfloat16) side by side for each column, a tile of it 1 KiB in a row. * All rows
are multiplied by one part of B before the next; a part is as large as the second-level cache can keep. * A is packed 32
rows at a time, in the order in which it is read: rows of the caller's array may begin within a cache line,
  and where they are 4 KiB apart they compete for the same places of the first-level cache.
* Sizes that 32 and 64 do not divide are padded with zeros: the copies that pack do it. The last tiles then go to memory row by
  row, under a mask.

On machines without the unit, the int8 product takes the default schedule, with dot products on vectors. The bfloat16
product uses ``vdpbf16ps`` where that exists: the tile of a float32 product, with two steps in one instruction.
"""

from __future__ import annotations

import sys

import numpy as np
from kernel import Kernel, run

import tilewright as tw
from tilewright import te
from tilewright.tuner import default_schedule
from tilewright.tuner.recipes import (
    TILE,
    DotInstruction,
    Panels,
    UnitTiles,
    arrange,
    dot_tile,
    finish_tile,
    inline_padding,
    matrix_unit_product,
    pack,
    pad_product,
    steps_of,
)


def declare(m: int, n: int, k: int, dtype: str = "int8") -> tw.PrimFunc:
    """C = A @ B: int8 into int32, bfloat16 into float32. B is constant."""
    result = "int32" if dtype == "int8" else "float32"
    a, b = te.placeholder((m, k), dtype, name="A"), te.placeholder((k, n), dtype, name="B")
    q = te.reduce_axis((0, k), name="k")
    attrs = {"layout_free_placeholders": [b]}
    out = te.compute(
        (m, n), lambda i, j: te.sum(te.cast(result, a[i, q]) * te.cast(result, b[q, j]), axis=q), name="C", attrs=attrs
    )
    return te.create_prim_func([a, b, out])


def tiled(func: tw.PrimFunc, target: tw.Target) -> tw.Schedule:
    """Returns the schedule for the matrix unit; for dot products on vectors where there is none."""
    half = func.buffers[0].dtype == "bfloat16"
    if target.has_amx_bf16 if half else target.has_amx_int8:
        return on_tiles(func, target)
    if half and target.has_bf16 and target.vector_bits == 512:
        return on_vectors(func, target)
    return default_schedule(func, target)


def on_tiles(func: tw.PrimFunc, target: tw.Target) -> tw.Schedule:
    """Tiles of 32 by 32 sums in registers, along the rows of the result."""
    dtype = str(func.buffers[0].dtype)
    steps = steps_of(dtype)
    k, n = (-(-int(extent) // unit) for extent, unit in zip(func.buffers[1].shape, (steps, 2 * TILE), strict=True))
    sch = tw.Schedule(func)
    tiles = UnitTiles(
        across=columns_at_once(n * 2 * TILE, k * steps * (64 // steps), target) // TILE, types=(dtype, str(func.buffers[1].dtype)), copied=steps,
        shared=target.num_cores > 1,
    )  # fmt: skip
    matrix_unit_product(sch, "C", tiles)
    return sch


def columns_at_once(n: int, column_bytes: int, target: tw.Target) -> int:
    """Returns the number of columns that all rows are multiplied by before the next ones. This part of B fills half of
    the second-level cache."""
    pairs = n // (2 * TILE)
    room = target.l2_bytes // 2 // (2 * TILE * column_bytes)
    return 2 * TILE * max(d for d in range(1, pairs + 1) if pairs % d == 0 and (d <= room or d == 1))


def on_vectors(func: tw.PrimFunc, target: tw.Target, rows: int = 6, vectors: int = 4, unroll: int = 8) -> tw.Schedule:
    """Tiles of ``rows`` x ``vectors`` vectors of float32, two steps of k in one instruction."""
    lanes = 16
    sch = tw.Schedule(func)
    padding = pad_product(sch, "C", (1, vectors * lanes, 2))
    pack(sch, "C", Panels(1, column=1, width=vectors * lanes, inner=[0], steps=2))
    result = inline_padding(sch, "C", padding)
    loops = arrange(sch, "C", "i j k", {"i": [None, rows], "j": [None, vectors * lanes]}, "i0 j0 i1 j1 k")
    sch.reverse_compute_at(result, loops["j0"], preserve_unit_loops=True)
    if target.num_cores > 1:
        sch.parallel(loops["i0"])
    dot = DotInstruction("dot_16x2_bf16", lanes, 2, unroll)
    dot_tile(sch, "C", dot, column=loops["j1"], step=loops["k"], rows=[loops["i1"]])
    finish_tile(sch, result, loops["j0"], 1, lanes)
    return sch


def reference_int8(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """Compute the result with NumPy in float64, which holds these sums exactly; its products of integers are slow."""
    out[...] = a.astype("float64") @ b.astype("float64")


def reference_bf16(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """Compute the result with NumPy in float32; bfloat16 comes as its bits."""
    wide = [(x.astype("uint32") << 16).view("float32") for x in (a, b)]
    np.matmul(*wide, out=out)


KERNELS = [
    Kernel(
        "int8 matmul 1024³", declare(1024, 1024, 1024), tiled, reference_int8, "int8 matmul",
        goal="1.05 of PyTorch", tolerance=0.0,
    ),
    Kernel(
        "bfloat16 matmul 1024³", declare(1024, 1024, 1024, "bfloat16"), tiled, reference_bf16, "bfloat16 matmul",
        goal="1.0 of PyTorch",
    ),
]  # fmt: skip

if __name__ == "__main__":
    run(KERNELS, sys.argv[1:])
