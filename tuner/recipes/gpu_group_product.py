"""This recipe multiplies matrices by warp groups (``wgmma`` of sm_90a): operands in swizzled shared memory, sums in registers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...codegen.machine.gpu_figures import WARP_GROUP
from ...schedule import Schedule
from ...schedule.intrin.warp_group_units import STEPS
from ...tir.expr.intrinsics.group_matrix_operations import GROUP_ROWS, PANEL
from .loop_steps import copy_ahead, loops_within
from .matrix_unit_steps import out_at, store_tiles, tiles_on_blocks

GROUP_WORDS = {"float16": "f16", "bfloat16": "bf16"}
"""The words of intrinsics for an operand's type; sums are float32."""
_PIECE = 8
"""The elements that a thread copies at once: 16 bytes."""


@dataclass(frozen=True)
class GroupTiles:
    """The tiles of a product. ``groups``: warp groups of a block, along rows and columns; ``rows``: tiles of 64 rows of one group;
    ``columns``: of a tile, 64 to 256. ``versions``: of the 64 steps of both operands in shared memory; with more than one, copies run
    ahead of the products by that many less one. ``in_flight``: the products of a step go on during the next one, for which one of three
    or more versions is.
    """

    dtype: str
    groups: tuple[int, int] = (2, 1)
    rows: int = 1
    columns: int = 128
    versions: int = 1
    in_flight: bool = False


def group_product(sch: Schedule, block: Any, sizes: GroupTiles, epilogue: Any = None) -> None:
    """Schedule ``block``, ``C[i, j] += A[i, k] * B[k, j]``, on warp groups. The tiles of a block divide the extents,
    and 64 divides k's.

    ``epilogue`` is the element-wise stage that alone reads the result; each group passes it one tile at a time.
    """
    block = sch.get_block(block) if isinstance(block, str) else block
    wide = sizes.columns
    out = sch.cache_write(block, 0, "wgmma.accumulator")
    sch.transform_layout(block, ("write", 0), lambda i, j: (i // GROUP_ROWS, j // wide, i % GROUP_ROWS, j % wide))
    cut = {
        "i": [None, sizes.groups[0], sizes.rows, GROUP_ROWS],
        "j": [None, sizes.groups[1], wide],
        "k": [None, STEPS],
    }
    order = "i0 j0 i1 j1 k0 i2 i3 j2 k1"
    loops, group, copies = tiles_on_blocks(sch, block, cut, order, "shared.swizzled")
    for copy in copies:
        row, column = loops_within(sch, copy, loops["k0"])[-2:]
        panel, piece, lane = sch.split(column, [None, PANEL // _PIECE, _PIECE])
        over, y, line = sch.split(row, [None, sizes.groups[0] * sizes.groups[1], WARP_GROUP * _PIECE // PANEL])
        sch.reorder(panel, over, y, line, piece, lane)
        sch.bind(y, "threadIdx.y")
        sch.bind(sch.fuse(line, piece), "threadIdx.x")
        sch.vectorize(lane)
    copy_ahead(sch, loops["k0"], sizes.versions, sizes.in_flight)
    rows = out_at(sch, out, group, epilogue, GROUP_ROWS, WARP_GROUP)
    init = sch.decompose_reduction(block, loops["k0"])
    sch.transform_layout(copies[1], ("write", 0), lambda k, j: (j // PANEL, k, j % PANEL))
    sch.tensorize(loops["i3"], f"wgmma_64x{wide}x64_{GROUP_WORDS[sizes.dtype]}")
    fill = sch.get_loops(init)
    sch.tensorize(fill[-2], f"wgmma_fill_64x{wide}")
    i0, j0 = store_tiles(sch, out, rows, (GROUP_ROWS, wide), f"wgmma_store_64x{wide}")
    for loop in (loops["i2"], *fill[-3:-2], i0, j0):
        sch.unroll(loop)
