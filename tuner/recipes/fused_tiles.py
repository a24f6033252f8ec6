"""This recipe computes several stages together, tile by tile of the last one.

The loops of the last stage are tiled; in each tile all other stages compute what it needs of them. Stages may be
element-wise, or reductions: with a register tile of sums, or with partial sums in the lanes of a vector. What stages
need beyond a tile (the border of a stencil) is computed again in the next tile, or kept for it in circular buffers. Tiles
need not divide the extents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...schedule import Schedule
from .loop_steps import (
    Panels,
    accumulate,
    by_lanes,
    extent_of,
    finish_tile,
    fuse_all,
    loops_of_axis,
    loops_within,
    pack,
    unroll_factor,
)

Kind = Literal["map", "tile", "lanes", "plain"]


@dataclass(frozen=True)
class TileStage:
    """How one stage is computed within a tile.

    ``kind``: ``map`` (element-wise, in vectors), ``tile`` (sums of a register tile), ``lanes`` (partial sums in the lanes
    of vectors), ``plain`` (one element after the other). ``vector`` is the number of the axis that becomes vectors, of
    ``width`` elements each time; ``row`` that of the rows of a register tile, ``rows`` at a time. ``unroll``: steps of the
    reduction per iteration. ``packed``: an operand that is copied into panels before everything else. ``end``: a result of
    the stages, of the same extents as the last one, that none of them reads. ``rolls``: what the next tile needs again is
    kept in a circular buffer, whose rows begin at multiples of so many elements; that takes one loop over tiles, which no
    threads share. 0: it is computed again.
    """

    name: str
    kind: Kind
    vector: int = 0
    width: int = 1
    row: int | None = None
    rows: int = 1
    unroll: int = 1
    packed: Panels | None = None
    end: bool = False
    rolls: int = 0


@dataclass
class _Made:
    """A stage that is being scheduled: its block, and the block that finishes its sums. That one takes them to memory,
    or adds partial sums up."""

    stage: TileStage
    block: Any
    result: Any = None

    @property
    def blocks(self) -> list[Any]:
        """Returns its blocks in program order; the last one writes what it computes."""
        return [self.block] if self.result is None else [self.block, self.result]


def fused_tiles(sch: Schedule, stages: Sequence[TileStage], tiles: Mapping[int, int], *, shared: bool = False) -> Any:
    """Schedule ``stages``, in program order; returns the loop over tiles, None when there is one tile only.

    ``tiles``: for axes of the last stage, by number, the extent of a tile. ``shared``: the threads share the tiles.
    """
    made = [_prepared(sch, stage) for stage in stages]
    ends = [m for m in made if m.stage.end or m is made[-1]]
    loops = [_tile_loop(sch, m.blocks[-1], tiles) for m in ends]
    at, first = loops[-1], made.index(ends[0])
    if at is not None:
        _move_in(sch, made[first:], dict(zip(map(id, ends), loops, strict=True)))
        at = sch.merge(*loops) if len(loops) > 1 else at
        if shared:
            sch.parallel(at)
        _move_in(sch, made[:first], {}, at)
    for m in made:
        if m.stage.rolls and at is not None:
            sch.rolling_buffer(m.block, 0)
            rank = len(sch.get(m.block).writes[0].buffer.shape)
            if rank > 1:
                sch.storage_align(m.block, 0, rank - 2, m.stage.rolls, 0)
    for m in made:
        _FINISH[m.stage.kind](sch, m, at)
    return at


def _prepared(sch: Schedule, stage: TileStage) -> _Made:
    block = sch.get_block(stage.name)
    if stage.packed is not None:
        pack(sch, block, stage.packed)
    if stage.kind == "tile":
        return _Made(stage, block, accumulate(sch, block, stage.vector))
    if stage.kind == "lanes":
        spatial = sum(1 for iv in sch.get(block).iter_vars if iv.kind == "spatial")
        return _Made(stage, by_lanes(sch, block, sch.get_loops(block)[-1], stage.width, spatial), block)
    return _Made(stage, block)


def _move_in(sch: Schedule, made: Sequence[_Made], loops: Mapping[int, Any], at: Any = None) -> None:
    """Compute stages in tiles. A stage goes in the loop of the result that follows it (``loops``, by the identity of
    its stage), which computes its own sums there, else in ``at``."""
    for m in reversed(made):
        at = loops.get(id(m), at)
        for block in reversed(m.blocks[:-1] if id(m) in loops else m.blocks):
            sch.compute_at(block, at)


def _tile_loop(sch: Schedule, block: Any, tiles: Mapping[int, int]) -> Any:
    """Split the loops of ``block``, and return the one loop over tiles."""
    outer, inner = [], []
    for number, loop in enumerate(sch.get_loops(block)):
        tile = tiles.get(number, 0)
        if 0 < tile < extent_of(sch, loop):
            over, loop = sch.split(loop, [None, tile])
            outer.append(over)
        inner.append(loop)
    if not outer:
        return None
    sch.reorder(*outer, *inner)
    return fuse_all(sch, outer)


def _loops(sch: Schedule, block: Any, at: Any) -> list[Any]:
    return list(sch.get_loops(block)) if at is None else loops_within(sch, block, at)


def _reduction_loops(sch: Schedule, block: Any, loops: Sequence[Any]) -> list[Any]:
    axes = [n for n, iv in enumerate(sch.get(block).iter_vars) if iv.kind == "reduce"]
    used = [loop for n in axes for loop in loops_of_axis(sch, block, loops, n)]
    return [loop for loop in loops if loop in used]


def _vectorize_map(sch: Schedule, made: _Made, at: Any) -> None:
    loops = _loops(sch, made.block, at)
    along = loops_of_axis(sch, made.block, loops, made.stage.vector)
    if not along:
        return
    loop = along[-1]
    if loop is not loops[-1]:
        sch.reorder(*[other for other in loops if other is not loop], loop)
    if extent_of(sch, loop) > made.stage.width:
        loop = sch.split(loop, [None, made.stage.width])[1]
    sch.vectorize(loop)


def _register_tile(sch: Schedule, made: _Made, at: Any) -> None:
    """Put the reduction between the loops over register tiles and those within one."""
    block, stage = made.block, made.stage
    loops = _loops(sch, block, at)
    reduction = _reduction_loops(sch, block, loops)
    inside, over = [], []
    for axis, size in ((stage.row, stage.rows), (stage.vector, stage.width)):
        along = [] if axis is None else [x for x in loops_of_axis(sch, block, loops, axis) if x not in reduction]
        if along:
            tiles, inner = sch.split(along[-1], [None, min(size, extent_of(sch, along[-1]))])
            over.append((along[-1], tiles))
            inside.append(inner)
    tiled = [loop for loop, _ in over]
    others = [loop for loop in loops if loop not in tiled and loop not in reduction]
    outer = [*others, *[loop for _, loop in over]]
    sch.reorder(*outer, *reduction, *inside)
    around = outer[-1] if outer else at
    if outer:
        sch.reverse_compute_at(made.result, around)
    init = sch.decompose_reduction(block, reduction[0]) if reduction else None
    if reduction:
        unroll_factor(sch, reduction[-1], stage.unroll)
    for loop in inside[:-1]:
        sch.unroll(loop)
    if inside:
        sch.vectorize(inside[-1])
    if around is not None:
        for part in (init, made.result):
            if part is not None:
                finish_tile(sch, part, around, stage.vector)


def _lanes(sch: Schedule, made: _Made, at: Any) -> None:
    """Sum up in the lanes of a vector, then the lanes, for each element."""
    block, finish, stage = made.block, made.result, made.stage
    across = _reduction_loops(sch, finish, _loops(sch, finish, at))
    elements = [loop for loop in _loops(sch, finish, at) if loop not in across]
    if elements:
        sch.reorder(*elements, *across)
        sch.compute_at(block, elements[-1])
        at = elements[-1]
    loops = _loops(sch, block, at)
    (lanes,) = loops_of_axis(sch, block, loops, 0)
    reduction = [loop for loop in loops if loop is not lanes]
    sch.set_scope(block, 0, "local")
    if reduction:
        sch.reorder(*reduction, lanes)
        init = sch.decompose_reduction(block, reduction[0])
        unroll_factor(sch, reduction[-1], stage.unroll)
        sch.vectorize(sch.get_loops(init)[-1])
    sch.vectorize(lanes)
    if across:
        sch.annotate(across[-1], "tir.horizontal_reduce", 1)


def _plain(sch: Schedule, made: _Made, at: Any) -> None:
    """Leave the loops of a stage as they are."""


_FINISH = {"map": _vectorize_map, "tile": _register_tile, "lanes": _lanes, "plain": _plain}
