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
from register_tiles import pack_steps

import tilewright as tw
from tilewright import te
from tilewright.tuner import default_schedule

TILE = 16
"""Rows of a tile, and columns of the sums."""


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
    half = func.buffers[0].dtype == "bfloat16"
    width, dot, word = (2, "dot_16x16x32_bf16_amx", "f32") if half else (4, "dot_16x16x64_s8s8_amx", "i32")
    steps = TILE * width
    sch = tw.Schedule(func)
    padded = pad(sch, 2 * TILE, 2 * TILE, steps)

    # B, panels of 16 columns: steps k side by side for each column.
    pack_steps(sch, TILE, width)

    # A, and the sums, tile by tile.
    pack_a = sch.cache_read("C", 0, "global")
    sch.transform_layout("C", ("read", 0), lambda i, q: (i // TILE, q // steps, i % TILE, q % steps))
    if padded:
        sch.compute_inline("A_pad")
        sch.compute_inline("B_pad")
        sch.set_scope("C", 0, "local")
        result = "C_pad"
    else:
        result = sch.cache_write("C", 0, "local")
    sch.transform_layout("C", ("write", 0), lambda i, j: (i // TILE, j // TILE, i % TILE, j % TILE))

    # The product.
    i, j, k = sch.get_loops("C")
    columns_of_block = columns_at_once(sch.get(j).extent.value, sch.get(k).extent.value * 4 // width, target)
    rows, i1, i2 = sch.split(i, [None, 2, TILE])
    block, columns, j1, j2 = sch.split(j, [None, columns_of_block // (2 * TILE), 2, TILE])
    k0, k1 = sch.split(k, [None, steps])
    sch.reorder(block, rows, columns, k0, i1, j1, i2, j2, k1)
    rows = sch.fuse(block, rows)
    if target.num_cores > 1:
        sch.parallel(rows)
    sch.compute_at(pack_a, rows, preserve_unit_loops=True)
    sch.reverse_compute_at(result, columns, preserve_unit_loops=True)
    init = sch.decompose_reduction("C", k0)
    sch.tensorize(i2, dot)
    *over, i2, _ = sch.get_loops(init)[-4:]
    sch.tensorize(i2, f"fill_16x16_{word}_amx")
    for loop in (i1, j1, *over):
        sch.unroll(loop)

    # A's rows, 64 bytes at a time.
    i, q = sch.get_loops(pack_a)[-2:]
    i0, i1 = sch.split(i, [None, TILE])
    q0, q1 = sch.split(q, [None, steps])
    sch.reorder(i0, q0, i1, q1)
    sch.vectorize(q1)

    # The result.
    i, j = sch.get_loops(result)[-2:]
    i0, i1 = sch.split(i, [None, TILE])
    j0, j1 = sch.split(j, [None, TILE])
    sch.reorder(i0, j0, i1, j1)
    for loop in (i0, j0):
        sch.unroll(loop)
    if padded:
        sch.unroll(i1)
        sch.vectorize(j1)
    else:
        sch.tensorize(i1, f"store_16x16_{word}_amx")
    return sch


def columns_at_once(n: int, column_bytes: int, target: tw.Target) -> int:
    """Returns the number of columns that all rows are multiplied by before the next ones: a part of B that fills half
    of the second-level cache."""
    pairs = n // (2 * TILE)
    room = target.l2_bytes // 2 // (2 * TILE * column_bytes)
    return 2 * TILE * max(d for d in range(1, pairs + 1) if pairs % d == 0 and (d <= room or d == 1))


def pad(sch: tw.Schedule, *multiples: int) -> bool:
    """Pad the product's axes to these multiples, where they are not yet."""
    i, j, k = sch.get_loops("C")
    extents = [sch.get(loop).extent.value for loop in (i, j, k)]
    if all(e % m == 0 for e, m in zip(extents, multiples, strict=True)):
        return False
    sch.pad_einsum("C", list(multiples))
    return True


def on_vectors(func: tw.PrimFunc, target: tw.Target, rows: int = 6, vectors: int = 4, unroll: int = 8) -> tw.Schedule:
    """Tiles of ``rows`` x ``vectors`` vectors of float32, two steps of k in one instruction."""
    lanes = 16
    width = vectors * lanes
    sch = tw.Schedule(func)
    padded = pad(sch, 1, width, 2)
    pack_steps(sch, width, 2)
    if padded:
        sch.compute_inline("B_pad")
        sch.set_scope("C", 0, "local")
    result = "C_pad" if padded else sch.cache_write("C", 0, "local")
    i, j, k = sch.get_loops("C")
    i0, i1 = sch.split(i, [None, rows])
    panel, vector, lane = sch.split(j, [None, vectors, lanes])
    k0, k1 = sch.split(k, [None, 2])
    sch.reorder(i0, panel, k0, i1, vector, lane, k1)
    sch.reverse_compute_at(result, panel, preserve_unit_loops=True)
    if target.num_cores > 1:
        sch.parallel(i0)
    sch.annotate(k0, "pragma_unroll_factor", unroll)
    init = sch.decompose_reduction("C", k0)
    sch.vectorize(sch.get_loops(init)[-1])
    for loop in (*sch.get_loops(init)[-3:-1], i1, vector):
        sch.unroll(loop)
    sch.tensorize(lane, "dot_16x2_bf16")
    i, j = sch.get_loops(result)[-2:]
    over, lane = sch.split(j, [None, lanes])
    for loop in (i, over):
        sch.unroll(loop)
    sch.vectorize(lane)
    return sch


def reference_int8(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """NumPy, whose products of integers are slow: float64 holds these sums exactly."""
    out[...] = a.astype("float64") @ b.astype("float64")


def reference_bf16(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """NumPy in float32; bfloat16 comes as its bits."""
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
