"""This recipe computes products and convolutions on a GPU: tiles in shared memory, accumulators in registers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...schedule import Schedule
from .loop_steps import copy_ahead, extent_of, fuse_all, loops_within, unroll_factor


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
