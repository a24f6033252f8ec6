"""These recipes multiply int8 by dot-product instructions and by a matrix unit.

:func:`dot_tile` computes tiles of sums by dot-product instructions: several steps of a reduction for each lane at once.
:func:`matrix_unit_product` takes tiles of 16 by 64 bytes and 64 bytes by 16 columns (AMX). One instruction multiplies a tile of
each; its sums stay in tile registers over the whole reduction (:mod:`tilewright.schedule.intrin.matrix_units`). The operand with
the columns is packed, with several steps of the reduction contiguous for each column. Sizes that the tiles do not divide are
padded with zeros by the copies that pack.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...schedule import Schedule
from ...schedule.intrin import AMX_DOT_BF16_INTRIN, AMX_DOT_S8S8_INTRIN, AMX_DOT_U8S8_INTRIN
from .loop_steps import Panels, arrange, fuse_all, inline_padding, pack, pad_product, unroll_factor


@dataclass(frozen=True)
class DotInstruction:
    """A dot-product instruction: it takes ``lanes`` columns and ``width`` steps of a reduction at once. ``unroll`` says
    how many instructions along the reduction are in one iteration."""

    intrinsic: str
    lanes: int
    width: int
    unroll: int = 1


def dot_tile(
    sch: Schedule, block: Any, dot: DotInstruction, *, column: Any, step: Any, rows: Sequence[Any] = (), around: Sequence[Any] = ()
) -> None:  # fmt: skip
    """Compute a tile of ``block`` with a dot-product instruction.

    ``rows``, ``column`` and ``step`` are the innermost loops, in any order: over rows of the tile, over its columns, and
    over the reduction, of which ``around`` are further loops.
    """
    vector, lane = sch.split(column, [None, dot.lanes])
    outer, inner = sch.split(step, [None, dot.width])
    sch.reorder(*around, outer, *rows, vector, lane, inner)
    init = sch.decompose_reduction(block, [*around, outer][0])
    sch.vectorize(sch.get_loops(init)[-1])
    for loop in (*rows, vector, *sch.get_loops(init)[-2 - len(rows) : -1]):
        sch.unroll(loop)
    unroll_factor(sch, outer, dot.unroll)
    sch.tensorize(lane, dot.intrinsic)


TILE, TILE_BYTES = 16, 64
"""Rows of a tile, and columns of the sums; bytes of a row of a tile."""

_DOTS = {"int8": AMX_DOT_S8S8_INTRIN, "uint8": AMX_DOT_U8S8_INTRIN, "bfloat16": AMX_DOT_BF16_INTRIN}
"""The instruction by the type of the operand with the rows; the other one is int8 or bfloat16."""


@dataclass(frozen=True)
class UnitTiles:
    """The parameters of a product on a matrix unit.

    ``tall`` by ``wide`` tiles of sums are in registers at a time; all rows are multiplied by ``across`` tiles of columns
    before the next ones. ``left`` is the number of the operand with the rows, of the type ``dtype``; ``copied``: whether
    it is copied to contiguous memory first, ``"rows"`` as they are, ``"tiles"`` tile by tile, or ``""``. ``right`` is the
    layout of the other one, ``axes`` names the loops of rows, columns and steps ``i``, ``j`` and ``k`` in their order.
    """

    right: Panels
    across: int
    tall: int = 2
    wide: int = 2
    left: int = 0
    dtype: str = "int8"
    copied: str = ""
    axes: str = "i j k"
    shared: bool = False


def steps_of(dtype: str) -> int:
    """Returns the steps of the reduction in a tile of ``dtype``."""
    return TILE_BYTES // (2 if dtype == "bfloat16" else 1)


def matrix_unit_product(sch: Schedule, block: Any, tiles: UnitTiles) -> None:
    """Schedule ``block``, a product of two matrices, for the matrix unit."""
    block = sch.get_block(block) if isinstance(block, str) else block
    steps, word = steps_of(tiles.dtype), "f32" if tiles.dtype == "bfloat16" else "i32"
    padding = pad_product(sch, block, (tiles.tall * TILE, tiles.wide * TILE, steps))
    pack(sch, block, tiles.right)
    copy = sch.cache_read(block, tiles.left, "global", consumer_blocks=[block]) if tiles.copied else None
    if copy is not None and tiles.copied == "tiles":
        sch.transform_layout(copy, ("write", 0), lambda i, q: (i // TILE, q // steps, i % TILE, q % steps))
    result = inline_padding(sch, block, padding)
    sch.transform_layout(block, ("write", 0), lambda i, j: (i // TILE, j // TILE, i % TILE, j % TILE))
    sizes = {
        "i": [None, tiles.tall, TILE],
        "j": [None, tiles.across // tiles.wide, tiles.wide, TILE],
        "k": [None, steps],
    }
    loops = arrange(sch, block, tiles.axes, sizes, "j0 i0 j1 k0 i1 j2 i2 j3 k1")
    outer = fuse_all(sch, [loops["j0"], loops["i0"]])
    if tiles.shared:
        sch.parallel(outer)
    if copy is not None:
        sch.compute_at(copy, outer, preserve_unit_loops=True)
        _take_rows(sch, copy, steps, tiles.copied == "tiles")
    sch.reverse_compute_at(result, loops["j1"], preserve_unit_loops=True)
    init = sch.decompose_reduction(block, loops["k0"])
    sch.tensorize(loops["i2"], _DOTS[tiles.dtype])
    *over, inner, _ = sch.get_loops(init)[-4:]
    sch.tensorize(inner, f"fill_16x16_{word}_amx")
    i, j = sch.get_loops(result)[-2:]
    (i0, i1), (j0, j1) = sch.split(i, [None, TILE]), sch.split(j, [None, TILE])
    sch.reorder(i0, j0, i1, j1)
    if padding:
        sch.unroll(i1)
        sch.vectorize(j1)
    else:
        sch.tensorize(i1, f"store_16x16_{word}_amx")
    for loop in (loops["i1"], loops["j2"], *over, i0, j0):
        sch.unroll(loop)


def _take_rows(sch: Schedule, copy: Any, steps: int, by_tiles: bool) -> None:
    """Copy rows 64 bytes at a time, tile by tile or one row after the other."""
    i, q = sch.get_loops(copy)[-2:]
    over, lanes = sch.split(q, [None, steps])
    if by_tiles:
        i0, i1 = sch.split(i, [None, TILE])
        sch.reorder(i0, over, i1, lanes)
    sch.vectorize(lanes)
