"""This recipe multiplies matrices on a GPU's matrix units: tiles of 16 by 16, sums in registers of warps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...schedule import Schedule
from .loop_steps import copy_ahead, fuse_all, loops_within
from .matrix_unit_steps import out_at, store_tiles, tiles_on_blocks

TILE = 16
WORDS = {"float16": ("f16", "f32"), "bfloat16": ("bf16", "f32"), "float32": ("tf32", "f32"), "int8": ("s8", "s32")}
"""The words of intrinsics for an operand's type, and for the type of its sums."""
SUMS = {"f32": "float32", "s32": "int32"}
"""The types of sums by their words."""


@dataclass(frozen=True)
class WarpTiles:
    """The tiles of a product. ``warps``: of a block, along rows and columns; ``tiles``: of sums that a warp holds along each;
    ``steps``: tiles of the reduction between two copies into shared memory; ``lanes``: elements that a thread copies at once.
    ``versions``: of the tiles in shared memory; with more than one, copies run ahead of the products by that many steps less one.
    """

    dtype: str
    warps: tuple[int, int] = (2, 2)
    tiles: tuple[int, int] = (2, 2)
    steps: int = 2
    lanes: int = 8
    versions: int = 1


def warp_product(sch: Schedule, block: Any, sizes: WarpTiles, epilogue: Any = None) -> None:
    """Schedule ``block``, ``C[i, j] += A[i, k] * B[k, j]`` with extents that the tiles of a block divide.

    ``epilogue`` is the element-wise stage that alone reads the result; each warp passes it 16 rows of sums at a time.
    """
    block = sch.get_block(block) if isinstance(block, str) else block
    operand, sums = WORDS[sizes.dtype]
    out = sch.cache_write(block, 0, "wmma.accumulator")
    sch.transform_layout(block, ("write", 0), lambda i, j: (i // TILE, j // TILE, i % TILE, j % TILE))
    cut = {
        "i": [None, sizes.warps[0], sizes.tiles[0], TILE],
        "j": [None, sizes.warps[1], sizes.tiles[1], TILE],
        "k": [None, sizes.steps, TILE],
    }
    order = "i0 j0 i1 j1 k0 k1 i2 j2 i3 j3 k2"
    loops, warp, copies = tiles_on_blocks(sch, block, cut, order, "shared")
    for copy in copies:
        parts = [None, sizes.warps[0] * sizes.warps[1], 32, sizes.lanes]
        _, y, x, lane = sch.split(fuse_all(sch, loops_within(sch, copy, loops["k0"])), parts)
        sch.bind(y, "threadIdx.y")
        sch.bind(x, "threadIdx.x")
        sch.vectorize(lane)
        offset = 16 // sch.get(copy).writes[0].buffer.dtype.bytes  # rows lie 16 bytes beside a multiple of 32
        factor = 2 * offset
        sch.storage_align(copy, 0, -2, factor, offset)
    copy_ahead(sch, loops["k0"], sizes.versions)
    rows = out_at(sch, out, warp, epilogue, TILE, 32)
    init = sch.decompose_reduction(block, loops["k0"])
    sch.tensorize(loops["i3"], f"wmma_16x16x16_{operand}")
    fill = sch.get_loops(init)
    sch.tensorize(fill[-2], f"wmma_fill_16x16_{sums}")
    i0, j0 = store_tiles(sch, out, rows, (TILE, TILE), f"wmma_store_16x16_{sums}")
    for loop in (loops["k1"], loops["i2"], loops["j2"], *fill[-4:-2], i0, j0):
        sch.unroll(loop)
