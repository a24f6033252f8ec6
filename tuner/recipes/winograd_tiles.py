"""This recipe computes a convolution by Winograd's method, block by block of its result.

    for block of tiles (shared by threads):
      copy the rows of the data with their border
      transform the pieces of the data: vectors of channels, both steps in registers
      for some channels of the result:
        for each place in a tile: a product of matrices in register tiles
        transform the products back: vectors of channels, both steps in registers
        the last stage: tiles to rows, bias, activation

A block's transformed pieces and products stay in the second-level cache. Their planes, one for each place in a tile,
lie an odd number of cache lines apart, so that no set of a cache gets them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...schedule import Schedule
from .loop_steps import (
    Panels,
    accumulate,
    extent_of,
    finish_tile,
    fuse_all,
    loops_of_axis,
    loops_within,
    pack,
    unroll_factor,
)

_OF_DATA, _OF_RESULTS = (0, 1), (2, 4)
"""The numbers of the axes within a tile: of the transformed data, and of the results."""

_CHANNEL = 5
"""The number of the axis of channels of all stages within a block."""

_LINE, _SETS = 64, 64
"""The bytes of a cache line, and the number of lines after which the sets of a first-level cache begin again."""

_VECTORS = 4
"""The vectors that copies take in one iteration."""


@dataclass(frozen=True)
class WinogradStages:
    """The blocks of a convolution by Winograd's method, by name. The block ``padding`` is empty where nothing is
    padded, and ``last`` takes the results from their tiles. ``weight`` is the name of the transformed weights'
    buffer."""

    padding: str
    data_rows: str
    data: str
    products: str
    result_rows: str
    results: str
    last: str
    weight: str


@dataclass(frozen=True)
class WinogradBlocks:
    """The sizes of a block of tiles. It has ``high`` rows and ``wide`` columns of tiles of ``tile`` results each;
    ``channels`` of the result at a time; the channels are shared by ``parts`` tasks.

    A register tile has ``rows2`` rows of tiles, ``rows`` tiles of each, and ``width`` channels; ``unroll`` steps of the
    sum are unrolled. ``lanes``: the elements of a vector.
    """

    tile: int
    high: int
    wide: int
    channels: int
    rows: int
    rows2: int
    width: int
    lanes: int
    parts: int = 1
    unroll: int = 1
    shared: bool = False


def winograd_tiles(sch: Schedule, stages: WinogradStages, sizes: WinogradBlocks) -> None:
    """Schedule the stages; the weights are packed into panels."""
    products = sch.get_block(stages.products)
    pack(sch, products, Panels(stages.weight, 3, sizes.width, [2], [0, 1], shared=sizes.shared))
    result = accumulate(sch, products, _CHANNEL)
    block, inner = _blocks(sch, stages.last, sizes)
    for stage in (stages.results, stages.result_rows, result, products):
        sch.compute_at(sch.get_block(stage) if isinstance(stage, str) else stage, inner)
    for name in (stages.data, stages.data_rows, stages.padding):
        if name:
            sch.compute_at(sch.get_block(name), block)
    line = _LINE // sch.get(result).writes[0].buffer.dtype.bytes
    for made in (sch.get_block(stages.data), result):
        sch.storage_align(made, 0, 1, _SETS * line, 5 * line)
    _products(sch, products, result, inner, sizes)
    _transform(sch, stages.data_rows, stages.data, block, _OF_DATA, sizes.lanes)
    _transform(sch, stages.result_rows, stages.results, inner, _OF_RESULTS, sizes.lanes)
    if stages.padding:
        _copy(sch, stages.padding, block, sizes.lanes)


def _blocks(sch: Schedule, last: str, sizes: WinogradBlocks) -> tuple[Any, Any]:
    """Cut the loops of the last stage into blocks. Returns the loop over blocks, and the one over channels in it."""
    n, h, w, k = sch.get_loops(last)
    outer, inner = [n], []
    for loop, size in ((h, sizes.high * sizes.tile), (w, sizes.wide * sizes.tile)):
        if size < extent_of(sch, loop):
            over, loop = sch.split(loop, [None, size])
            outer.append(over)
        inner.append(loop)
    if sizes.parts > 1:
        over, k = sch.split(k, [None, -(-extent_of(sch, k) // (sizes.parts * sizes.channels)) * sizes.channels])
        outer.append(over)
    some = None
    if sizes.channels < extent_of(sch, k):
        some, k = sch.split(k, [None, sizes.channels])
    sch.reorder(*outer, *([] if some is None else [some]), *inner, k)
    block = fuse_all(sch, outer)
    if sizes.shared:
        sch.parallel(block)
    _vectors(sch, k, sizes.lanes)
    return block, block if some is None else some


def _vectors(sch: Schedule, loop: Any, lanes: int) -> None:
    """Make vectors of a loop, some in one iteration."""
    if extent_of(sch, loop) > _VECTORS * lanes:
        loop = sch.split(loop, [None, _VECTORS * lanes])[1]
    sch.vectorize(loop)


def _axes(sch: Schedule, block: Any, at: Any) -> dict[int, Any]:
    """Returns the loop of each axis of ``block`` within ``at``; axes of one iteration have none."""
    loops = loops_within(sch, block, at)
    found = {d: loops_of_axis(sch, block, loops, d) for d in range(len(sch.get(block).iter_vars))}
    return {d: along[0] for d, along in found.items() if along}


def _products(sch: Schedule, products: Any, result: Any, at: Any, sizes: WinogradBlocks) -> None:
    """Put the sum over channels between the loops over register tiles and those within one."""
    axes = _axes(sch, products, at)
    tiles: Mapping[int, int] = {_CHANNEL: sizes.width, 3: sizes.rows2, 4: sizes.rows}
    outer = [axes[d] for d in (0, 1, 2) if d in axes]
    inside: dict[int, Any] = {}
    for d, size in tiles.items():
        if d in axes:
            loop = axes[d]
            if size < extent_of(sch, loop):
                over, loop = sch.split(loop, [None, size])
                outer.append(over)
            inside[d] = loop
    within = [inside[d] for d in sorted(inside)]
    reduce = [axes[6]] if 6 in axes else []
    sch.reorder(*outer, *reduce, *within)
    sch.reverse_compute_at(result, outer[-1])
    parts = [result]
    if reduce:
        parts.append(sch.decompose_reduction(products, reduce[0]))
        unroll_factor(sch, reduce[0], sizes.unroll)
    _straight(sch, within)
    for part in parts:
        finish_tile(sch, part, outer[-1], _CHANNEL)


def _transform(sch: Schedule, first: str, second: str, at: Any, fixed: Sequence[int], lanes: int) -> None:
    """Compute both steps of a transformation for one vector of channels at a time, without loops."""
    block, half = sch.get_block(second), sch.get_block(first)
    axes = _axes(sch, block, at)
    within = [axes.pop(d) for d in fixed if d in axes]
    rest = list(axes.values())
    if _CHANNEL in axes and extent_of(sch, axes[_CHANNEL]) > lanes:
        over, vector = sch.split(rest.pop(), [None, lanes])
        rest, within = [*rest, over], [*within, vector]
    elif _CHANNEL in axes:
        within.append(rest.pop())
    sch.reorder(*rest, *within)
    around = rest[-1] if rest else at
    sch.set_scope(half, 0, "local")
    sch.compute_at(half, around)
    for made in (block, half):
        _straight(sch, loops_within(sch, made, around))


def _straight(sch: Schedule, loops: Sequence[Any]) -> None:
    """Unroll loops, and make vectors of the innermost one."""
    for loop in loops[:-1]:
        sch.unroll(loop)
    sch.vectorize(loops[-1])


def _copy(sch: Schedule, name: str, at: Any, lanes: int) -> None:
    _vectors(sch, loops_within(sch, sch.get_block(name), at)[-1], lanes)
