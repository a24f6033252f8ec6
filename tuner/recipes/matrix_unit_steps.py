"""This module has the steps of products on matrix units of GPUs. They say where tiles run, what is copied for them, and
how results leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...schedule import Schedule
from .loop_steps import arrange, fuse_all, loops_within


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


def store_tiles(sch: Schedule, out: Any, warps: Any, tile: tuple[int, int], intrinsic: str) -> tuple[Any, Any]:
    """Let ``out`` store the sums of each warp in tiles by an intrinsic; returns its loops over tiles."""
    i, j = loops_within(sch, out, warps)[-2:]
    (i0, i1), (j0, j1) = sch.split(i, [None, tile[0]]), sch.split(j, [None, tile[1]])
    sch.reorder(i0, j0, i1, j1)
    sch.tensorize(i1, intrinsic)
    return i0, j0
