"""This module has the steps of products on matrix units of GPUs. They say where tiles run, what is copied for them, and
how results leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...schedule import Schedule
from .loop_steps import arrange, extent_of, fuse_all, loops_within

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
