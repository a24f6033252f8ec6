"""These recipes compute products on a GPU, by threads, and on its matrix units by warps and by warp groups.

:func:`threaded_product`, for convolutions too: tiles in shared memory, accumulators in registers. :func:`warp_product`: tiles of 16
by 16, sums in registers of warps. :func:`group_product` (``wgmma`` of sm_90a): operands in swizzled shared memory, sums in
registers. The two for matrix units share the steps below them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...codegen.machine.gpu_figures import WARP_GROUP
from ...schedule import Schedule
from ...schedule.intrin.matrix_units import STEPS
from ...tir.expr.intrinsics.group_matrix_operations import GROUP_ROWS, PANEL
from .loop_steps import arrange, copy_ahead, extent_of, fuse_all, loops_within, unroll_factor


@dataclass(frozen=True)
class ThreadTiles:
    """The tiles of a product. ``row`` and ``column`` are numbers of spatial loops of the block.

    ``rows`` and ``columns``: the virtual threads, the threads and the elements of one thread along each. ``step``: how
    far the first reduced loop goes between two copies into shared memory. ``lanes``: the elements that a thread copies at
    once, where they divide the lines of the tile. ``versions``: of the tiles in shared memory; with more than one, copies run
    ahead of the sums by that many steps less one.
    """

    row: int
    column: int
    rows: tuple[int, int, int] = (2, 8, 4)
    columns: tuple[int, int, int] = (2, 8, 4)
    step: int = 8
    lanes: int = 4
    versions: int = 1

    @property
    def threads(self) -> tuple[int, int]:
        """The threads of a block along y and x."""
        return self.rows[1], self.columns[1]


def threaded_product(
    sch: Schedule, block: Any, spatial: int, tiles: ThreadTiles, epilogue: Any = None, padding: Sequence[str] = ()
) -> None:
    """Schedule ``block``, whose first ``spatial`` loops are those of its result.

    ``epilogue`` is the element-wise stage that alone reads the result; without one, a copy writes the result.
    ``padding`` names stages that are inlined into the copies to shared memory.
    """
    block = sch.get_block(block) if isinstance(block, str) else block
    if epilogue is None:
        out = sch.cache_write(block, 0, "local")
    else:
        out = sch.get_block(epilogue) if isinstance(epilogue, str) else epilogue
        sch.set_scope(block, 0, "local")
    loops = list(sch.get_loops(block))
    reduced, rest = (
        loops[spatial:],
        [loop for n, loop in enumerate(loops[:spatial]) if n not in (tiles.row, tiles.column)],
    )
    r = sch.split(loops[tiles.row], [None, *tiles.rows])
    c = sch.split(loops[tiles.column], [None, *tiles.columns])
    outer, inner = sch.split(reduced[0], [None, tiles.step])
    sch.reorder(*rest, r[0], c[0], r[1], c[1], r[2], c[2], outer, inner, *reduced[1:], r[3], c[3])
    if rest:
        sch.bind(fuse_all(sch, rest), "blockIdx.z")
    for n, axis in enumerate(("blockIdx", "vthread", "threadIdx")):
        sch.bind(r[n], f"{axis}.y")
        sch.bind(c[n], f"{axis}.x")
    sch.reverse_compute_at(out, c[2])
    copies = [sch.cache_read(block, n, "shared") for n in range(len(sch.get(block).reads))]
    for copy in copies:
        sch.compute_at(copy, outer)
    for copy in copies:
        _copy_together(sch, copy, outer, tiles, lanes=1 if padding else tiles.lanes)
    for name in padding:
        sch.compute_inline(name)
    if not padding:
        copy_ahead(sch, outer, tiles.versions)
    for loop in (inner, *reduced[1:], r[3], c[3]):
        unroll_factor(sch, loop, 16 if extent_of(sch, loop) <= 16 else 8)
    for loop in loops_within(sch, out, c[2]):
        sch.unroll(loop)


def _copy_together(sch: Schedule, copy: Any, outer: Any, tiles: ThreadTiles, lanes: int) -> None:
    """Let all threads of the block copy neighbouring elements."""
    own = loops_within(sch, copy, outer)
    if not own:
        return
    y, x = tiles.threads
    line, total = extent_of(sch, own[-1]), math.prod(extent_of(sch, loop) for loop in own)
    whole = sch.get(copy).reads[0].buffer.shape[-1]
    while lanes > 1 and (line % lanes or total % (x * y * lanes) or int(whole) % lanes):
        lanes //= 2
    parts = sch.split(fuse_all(sch, own), [None, y, x, *([lanes] if lanes > 1 else [])])
    sch.bind(parts[1], "threadIdx.y")
    sch.bind(parts[2], "threadIdx.x")
    if lanes > 1:
        sch.vectorize(parts[3])


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


SUMS_OFFSET = 8
"""How far beside a multiple of 32 elements the rows of sums lie in shared memory: warps store eight rows at a time."""
_LANES = 4
"""The elements that a thread takes at once in a stage after a product."""


def tiles_on_blocks(
    sch: Schedule, block: Any, cut: Mapping[str, Sequence[int | None]], order: str, scope: str
) -> tuple[dict[str, Any], Any, list[Any]]:
    """Put tiles of ``block`` on the blocks and warps of a GPU. The block is a product with the loops i, j and k.

    The loops are cut and ordered as :func:`~.loop_steps.arrange` does it: ``i0`` and ``j0`` run on blocks, ``i1`` and ``j1``
    on the warps of a block. Both operands are copied into memory of ``scope`` in each iteration of ``k0``. Returns the loops by
    name, the loop of the warps, and the blocks that copy.
    """
    loops = arrange(sch, block, "i j k", cut, order)
    sch.bind(loops["i0"], "blockIdx.y")
    sch.bind(loops["j0"], "blockIdx.x")
    warps = fuse_all(sch, [loops["i1"], loops["j1"]])
    sch.bind(warps, "threadIdx.y")
    copies = [sch.cache_read(block, n, scope) for n in (0, 1)]
    for copy in copies:
        sch.compute_at(copy, loops["k0"])
    return loops, warps, copies


def out_at(sch: Schedule, out: Any, warps: Any, epilogue: Any, tall: int, threads: int) -> Any:
    """Let ``out``, the copy of the sums, run inside the loop of the warps; returns its loop.

    With an ``epilogue``, ``tall`` rows of the sums of each warp are copied to shared memory at a time, where the ``threads`` of a
    warp (or of a group of warps) read them: neighbouring threads take neighbouring elements of a row.
    """
    sch.reverse_compute_at(out, warps, preserve_unit_loops=True)
    if epilogue is None:
        return warps
    after = sch.get_block(epilogue) if isinstance(epilogue, str) else epilogue
    sch.set_scope(out, 0, "shared")
    rows = loops_within(sch, out, warps)[-2]
    tiles = extent_of(sch, rows) // tall
    over, _ = sch.split(rows, [None, tall])
    sch.transform_layout(out, ("write", 0), lambda i, j: (i // (tall * tiles), i // tall % tiles, i % tall, j))
    sch.reverse_compute_at(after, over, preserve_unit_loops=True)
    i, j = loops_within(sch, after, over)[-2:]
    lanes = _LANES if extent_of(sch, j) * tall % (_LANES * threads) == 0 else 1
    _, x, lane = sch.split(sch.fuse(i, j), [None, threads, lanes])
    sch.bind(x, "threadIdx.x")
    sch.vectorize(lane)
    sch.unroll(over)
    return over


def store_tiles(sch: Schedule, out: Any, warps: Any, tile: tuple[int, int], intrinsic: str) -> tuple[Any, Any]:
    """Let ``out`` store the sums of each warp in tiles by an intrinsic; returns its loops over tiles."""
    shared = sch.get(out).writes[0].buffer.scope == "shared"
    i, j = loops_within(sch, out, warps)[-2:]
    (i0, i1), (j0, j1) = sch.split(i, [None, tile[0]]), sch.split(j, [None, tile[1]])
    sch.reorder(i0, j0, i1, j1)
    sch.tensorize(i1, intrinsic)
    if shared:
        sch.storage_align(sch.get_child_blocks(j0)[0], 0, -2, 32, SUMS_OFFSET)
    return i0, j0
