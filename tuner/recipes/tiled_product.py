"""This recipe computes a reduction in register tiles: matrix products, convolutions, pooling.

It follows Goto and van de Geijn ("Anatomy of high-performance matrix multiplication", TOMS 2008) for any affine
reduction: a tile of accumulators stays in registers for the whole reduction; an operand that depends on the vector axis
is packed into panels; tiles are computed in blocks. Tiles need not divide the extents.

A product of one row sums whole rows instead (:func:`outer_sums`): some rows at a time are added to all results, so that
memory is read as it lies.

    for k0: for j0: for k1 (unrolled): for j1 (a vector): y[j] += x[k] * B[k, j]

Each result is summed in the order of k, as in the program.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...schedule import BlockRV, Schedule
from .loop_steps import Panels, accumulate, arrange, extent_of, finish_tile, fuse_all, pack, pack_within, unroll_factor


@dataclass(frozen=True)
class TileNest:
    """The loops of a tiled reduction, by name.

    ``axes`` names the loops of the block from the outermost one; ``sizes`` has the parts into which :func:`.arrange`
    splits some of them, so that ``j`` becomes ``j0``, ``j1``, …  Then, from the outside: ``outer``, the loops over tiles;
    ``reduce``, the loops of the reduction; ``tile``, the loops of a tile, of which the last one becomes vectors.
    ``shared``: how many of the outer loops become one loop that the threads share. Where that has fewer iterations than
    ``tasks``, the other outer loops join it.
    """

    axes: str
    sizes: Mapping[str, Sequence[int | None]]
    outer: str
    reduce: str
    tile: str
    shared: int = 0
    tasks: int = 0
    lanes: int = 0
    """Elements of a vector of the result; 0 for as many as the last loop of the tile has."""
    unroll: Mapping[str, int] = field(default_factory=dict)
    """By how much loops of the reduction are unrolled."""

    @property
    def vector(self) -> int:
        """Returns the number of the spatial axis that becomes vectors."""
        parts = {f"{axis}{n}": axis for axis, sizes in self.sizes.items() for n in range(len(sizes))}
        last, reduced = self.tile.split()[-1], self.reduce.split()
        spatial = [axis for axis in self.axes.split() if axis not in reduced]
        return spatial.index(parts.get(last, last))


def tiled_product(
    sch: Schedule, block: Any, nest: TileNest, *, packed: Panels | None = None, within: str = "",
    epilogue: Sequence[str] = (),
) -> tuple[dict[str, Any], Any]:  # fmt: skip
    """Schedule ``block``; return its loops by name, and the copy of the packed operand (None without one).

    ``packed``: the operand that is copied into panels, before everything else or, with ``within``, in that loop.
    ``epilogue``: the stages that read the result element by element; all but the last one are inlined into the last one,
    which is computed tile by tile while the sums are in registers.
    """
    block = sch.get_block(block) if isinstance(block, str) else block
    vector = nest.vector
    copy = pack(sch, block, packed, whole=not within) if packed is not None else None
    result = _result(sch, block, vector, epilogue)
    loops = arrange(sch, block, nest.axes, nest.sizes, f"{nest.outer} {nest.reduce} {nest.tile}")
    outer, reduce, tile = ([loops[name] for name in part.split()] for part in (nest.outer, nest.reduce, nest.tile))
    if nest.shared:
        count = nest.shared
        if math.prod(extent_of(sch, loop) for loop in outer[:count]) < nest.tasks:
            count = len(outer)
        outer[:count] = [fuse_all(sch, outer[:count])]
        sch.parallel(outer[0])
        loops.update(dict.fromkeys(nest.outer.split()[:count], outer[0]))
    if packed is not None and within:
        pack_within(sch, copy, packed, loops[within])
    sch.reverse_compute_at(result, outer[-1])
    init = sch.decompose_reduction(block, reduce[0])
    for name, factor in nest.unroll.items():
        unroll_factor(sch, loops[name], factor)
    for loop in tile[:-1]:
        sch.unroll(loop)
    sch.vectorize(tile[-1])
    for part in (init, result):
        finish_tile(sch, part, outer[-1], vector, nest.lanes)
    return loops, copy


def _result(sch: Schedule, block: Any, vector: int, epilogue: Sequence[str]) -> Any:
    """Returns the block that takes a tile of sums to memory; the accumulators of a vector are made neighbours."""
    result = accumulate(sch, block, vector)
    if not epilogue:
        return result
    stages: list[BlockRV | str] = [result, *epilogue[:-1]]
    for stage in stages:
        sch.compute_inline(stage)
    return sch.get_block(epilogue[-1])


def outer_sums(sch: Schedule, block: Any, vector: int, width: int, steps: int, *, share: int = 0) -> None:
    """Schedule ``block``, a reduction over one loop whose results lie along its loop number ``vector``.

    ``width``: elements of a vector. ``steps``: rows that are added at a time. ``share``: the elements of one thread's part
    of the results; 0 for one thread.
    """
    loops = list(sch.get_loops(block))
    results, reduction = loops[vector], loops[-1]
    others = [loop for loop in loops if loop is not results and loop is not reduction]
    parts = []
    if 0 < share < extent_of(sch, results):
        part, results = sch.split(results, [None, share])
        parts.append(part)
    blocks, vectors = sch.split(results, [None, min(width, extent_of(sch, results))])
    far, near = sch.split(reduction, [None, min(steps, extent_of(sch, reduction))])
    sch.reorder(*others, *parts, far, blocks, near, vectors)
    if parts:
        sch.parallel(parts[0])
    init = sch.decompose_reduction(block, far)
    sch.unroll(near)
    sch.vectorize(vectors)
    sch.vectorize(sch.get_loops(init)[-1])
