"""Products and convolutions of int8 and bfloat16 by a matrix unit (AMX): their schedule and costs.

:func:`matrix_unit_product` takes tiles of 16 by 64 bytes and 64 bytes by 16 columns. One instruction multiplies a tile of
each; its sums stay in tile registers over the whole reduction (:mod:`tilewright.schedule.intrin`). Rows, columns and steps
may be several axes each (:mod:`.product_form`): the rows of a convolution are its pixels, and its steps the channels of all places of
the window. A band of rows is copied tile by tile before it is multiplied, unless its tiles lie in memory as they are. The
operand with the columns is packed, with several steps of the reduction contiguous for each column. Sizes that the tiles do not divide are
padded with zeros by the copies.

Sums that an element-wise stage takes, or that go to several axes, leave the registers by way of a few tiles of scratch, which
stay in the first-level cache: they are stored once, in their final form.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...schedule import Schedule
from ...schedule.intrin import (
    AMX_DOT_BF16_INTRIN,
    AMX_DOT_S8S8_INTRIN,
    AMX_DOT_S8U8_INTRIN,
    AMX_DOT_U8S8_INTRIN,
    AMX_DOT_U8U8_INTRIN,
)
from ..cost.axis_roles import TILE, TILE_BYTES, TileProduct, up_to_multiple
from ..cost.cost_features import Costs, ceil_div
from ..cost.machine_model import MachineModel, worth_threads
from ..loop_steps import Panels, arrange, extent_of, fuse_all, lay_in_panels, unroll_factor
from ..program import BlockInfo
from .product_form import OperandOrder, ProductAxes, in_product_form
from .schedule_rule import Decision, Part

_DOTS = {
    ("int8", "int8"): AMX_DOT_S8S8_INTRIN,
    ("int8", "uint8"): AMX_DOT_S8U8_INTRIN,
    ("uint8", "int8"): AMX_DOT_U8S8_INTRIN,
    ("uint8", "uint8"): AMX_DOT_U8U8_INTRIN,
    ("bfloat16", "bfloat16"): AMX_DOT_BF16_INTRIN,
}
"""The instruction by the types of the operand with the rows and of the other one."""


@dataclass(frozen=True)
class UnitTiles:
    """The parameters of a product on a matrix unit.

    ``tall`` by ``wide`` tiles of sums are in registers at a time; all rows are multiplied by ``across`` tiles of columns
    before the next ones. ``left`` is the number of the operand with the rows; ``types`` are its type and that of the other one. ``copied``: how many of its
    steps are copied at once into tiles, 0 to read it in place, which takes one axis of rows and one of steps, and no padding.
    ``turned``: the steps of the other operand are neighbours in memory, not its columns. ``axes`` are those of the block.
    """

    across: int
    tall: int = 2
    wide: int = 2
    left: int = 0
    types: tuple[str, str] = ("int8", "int8")
    copied: int = 0
    turned: bool = False
    axes: ProductAxes = ProductAxes((), (0,), (1,), (2,))
    shared: bool = False


def steps_of(dtype: str) -> int:
    """Returns the steps of the reduction in a tile of ``dtype``."""
    return TILE_BYTES // (2 if dtype == "bfloat16" else 1)


def matrix_unit_product(sch: Schedule, block: Any, tiles: UnitTiles, epilogue: Any = None) -> None:
    """Schedule ``block``, a product of two matrices or one whose axes make two, for the matrix unit. ``epilogue`` is the
    element-wise stage that alone reads the result, if it is to take the sums from the tiles."""
    block = sch.get_block(block) if isinstance(block, str) else block
    steps, word, known = steps_of(tiles.types[0]), "f32" if tiles.types[0] == "bfloat16" else "i32", sch.get(block)
    sizes = [int(axis.dom.extent) for axis in known.iter_vars]
    multiples = (tiles.tall * TILE, tiles.wide * TILE, steps)
    orders = [
        OperandOrder(region.buffer.name, n == tiles.left, n == tiles.left or tiles.turned)
        for n, region in enumerate(known.reads)
    ]
    sides = (tiles.axes.rows, tiles.axes.columns)
    whole = all(
        len([n for n in axes if sizes[n] > 1]) == 1 and math.prod(sizes[n] for n in axes) % multiple == 0
        for axes, multiple in zip(sides, multiples, strict=False)
    )
    copies, out = in_product_form(sch, block, tiles.axes, orders, multiples, epilogue)
    store = out
    if epilogue is not None or not whole:
        sch.set_scope(block, 0, "global")
        store = sch.cache_write(block, 0, "local")
    left, right = copies[tiles.left], copies[1 - tiles.left]
    batch = [0] if tiles.axes.batch else []
    column, k = len(batch) + (not tiles.turned), len(batch) + tiles.turned
    lay_in_panels(sch, right, Panels("", column, TILE, [k], batch, steps=steps // TILE, shared=tiles.shared))
    if tiles.copied:
        sch.transform_layout(left, ("write", 0), lambda *at: _tile_of(at, TILE, steps))
    else:
        sch.compute_inline(left)
    sch.transform_layout(block, ("write", 0), lambda *at: _tile_of(at, TILE, TILE))
    parts = {
        "i": [None, tiles.tall, TILE],
        "j": [None, tiles.across // tiles.wide, tiles.wide, TILE],
        "k": [None, steps],
    }
    outer_axes = ["b"] if batch else []
    names = [*outer_axes, "i", "j", "k"]
    loops = arrange(sch, block, " ".join(names), parts, " ".join([*outer_axes, "j0 i0 j1 k0 i1 j2 i2 j3 k1"]))
    outer = fuse_all(sch, [*(loops[name] for name in outer_axes), loops["j0"], loops["i0"]])
    if tiles.shared:
        sch.parallel(outer)
    if tiles.copied:
        sch.compute_at(left, outer, preserve_unit_loops=True)
        _take_rows(sch, left, steps, tiles.copied)
    sch.reverse_compute_at(store, loops["j1"], preserve_unit_loops=True)
    if store is not out:
        sch.reverse_compute_at(out, loops["j1"], preserve_unit_loops=True)
        _, lanes = sch.split(sch.get_loops(out)[-1], [None, TILE])
        sch.vectorize(lanes)
        sch.unroll(sch.get_loops(out)[-2])
    init = sch.decompose_reduction(block, loops["k0"])
    sch.tensorize(loops["i2"], _DOTS[tiles.types])
    *over, inner, _ = sch.get_loops(init)[-4:]
    sch.tensorize(inner, f"fill_16x16_{word}_amx")
    i, j = sch.get_loops(store)[-2:]
    (i0, i1), (j0, j1) = sch.split(i, [None, TILE]), sch.split(j, [None, TILE])
    sch.reorder(i0, j0, i1, j1)
    sch.tensorize(i1, f"store_16x16_{word}_amx")
    for loop in (loops["i1"], loops["j2"], *over, i0, j0):
        sch.unroll(loop)


def _tile_of(at: Any, tall: int, wide: int) -> tuple[Any, ...]:
    """Returns the place of an element of a matrix, or of one of several, in tiles of ``tall`` by ``wide``."""
    *batch, i, j = at
    return (*batch, i // tall, j // wide, i % tall, j % wide)


def _take_rows(sch: Schedule, copy: Any, steps: int, lanes: int) -> None:
    """Copy rows by vectors of ``lanes`` elements into tiles."""
    i, q = sch.get_loops(copy)[-2:]
    i0, i1 = sch.split(i, [None, TILE])
    over, at = sch.split(q, [None, steps])
    sch.reorder(i0, i1, over, at)
    unroll_factor(sch, over, 16 if extent_of(sch, over) <= 16 else 4)
    if lanes < steps:
        part, at = sch.split(at, [None, lanes])
        sch.unroll(part)
    if lanes > 1:
        sch.vectorize(at)


_REGISTERS = 8
_DOT_CYCLES, _LOAD_CYCLES = 16.0, 8.0
"""Cycles from one product to the next, and from one load to the next (Intel's optimization manual)."""


class TilePart(Part):
    """This part multiplies tiles with the matrix unit. Its decisions are ``tall`` and ``wide``, the tiles of sums;
    ``across``, the number of column tiles that are multiplied with all rows before the next ones; ``pack``, whether
    rows of A are first copied to contiguous memory. ``epilogue``: the stage that takes the sums from the tiles."""

    structure = ("tall", "wide", "pack")

    def __init__(self, product: TileProduct, machine: MachineModel, epilogue: BlockInfo | None = None) -> None:
        block = self.block = product.block
        self.product, self.machine, self.epilogue = product, machine, epilogue
        self.name = f"tiles_{block.name}"
        self.parallel = worth_threads(machine, [block])
        self.axes = ProductAxes.of(block, product.roles, 1)
        self.batch, self.rows, self.columns, self.depth = product.sizes
        self.steps = steps_of(product.dtype)
        self.column_tiles = up_to_multiple(self.columns, TILE) // TILE
        across = [d for d in range(1, self.column_tiles + 1) if self.column_tiles % d == 0]
        self.decisions = (
            Decision("tall", (1, 2, 3)),
            Decision("wide", tuple(w for w in (1, 2, 3) if self.column_tiles % w == 0)),
            Decision("across", tuple(across)),
            Decision("pack", (0, 1) if product.in_place and self.depth % self.steps == 0 else (1,)),
        )

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        product = self.product
        tiles = UnitTiles(
            row["across"], row["tall"], row["wide"], product.left, product.dot.types,
            product.run(self.steps) if row["pack"] else 0, product.turned, self.axes, self.parallel,
        )  # fmt: skip
        after = None if self.epilogue is None else sch.get_block(self.epilogue.name)
        matrix_unit_product(sch, self.block.name, tiles, after)

    def mask(self, columns: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        """Returns which rows fit the tile registers and divide the columns. The sums, all tiles of B and one of A are
        in registers, and column tiles divide the columns. What is padded is copied."""
        tall, wide = columns["tall"], columns["wide"]
        fits = (tall * wide + 1 + wide <= _REGISTERS) & (columns["across"] % wide == 0)
        whole = (columns["pack"] > 0) | (self.rows % (tall * TILE) == 0)
        return np.asarray(fits & whole & ((tall - 1) * TILE < self.rows))

    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        machine, tall, wide, pack = self.machine, columns["tall"], columns["wide"], columns["pack"] > 0
        steps, itemsize = math.ceil(self.depth / self.steps), TILE_BYTES // self.steps
        deep = steps * TILE_BYTES  # bytes of a row
        bands = ceil_div(self.rows, tall * TILE)
        height, width = bands * tall * TILE, self.column_tiles * TILE  # rows and columns, padded
        groups = self.batch * bands * self.column_tiles / wide
        tiles = groups * tall * wide
        parts = self.column_tiles / columns["across"]
        part_bytes = width * deep / parts
        left_bytes, right_bytes = tall * TILE * deep, wide * TILE * deep
        first_level = left_bytes + right_bytes < 0.75 * machine.l1_bytes
        loads = groups * steps * (tall + wide)
        crossing = np.where(pack, 1.0, 1.5)  # rows that begin within a cache line
        fits = part_bytes < 0.5 * machine.l2_bytes
        result_bytes = 4.0 * self.batch * height * width
        copies = pack * parts * self.batch * height * (deep / itemsize / self.product.run(self.steps))
        # sums that pass through scratch are loaded again
        vectors = self.batch * height * self.column_tiles
        taken = 0.0 if self.epilogue is None else self.epilogue.operations
        return Costs(rows).put(
            core_cycles=tiles * steps * _DOT_CYCLES * np.where(tall * wide < 4, 52.0 / 16 / (tall * wide), 1.0),
            load_cycles=loads * _LOAD_CYCLES * crossing,
            store_cycles=tiles * 2 * TILE,
            spill_cycles=2.0 * copies + vectors * (taken / machine.fma_pipes + (0.0 if self.product.in_place else 2.0)),
            loop_cycles=groups * (60.0 + 2.0 * steps),
            l2_bytes=groups * (right_bytes + np.where(first_level, 0.3, 1.0) * left_bytes),
            l3_bytes=np.where(fits, self.batch * width * deep, self.batch * bands * width * deep)
            + parts * self.batch * height * deep + result_bytes,
            pack_bytes=2.5 * self.batch * width * deep * float(self.product.roles.right.buffer not in self.block.packed_ahead),
            flops=self.block.flops, regions=2.0 * self.parallel,
            lanes_used=float(TILE), rows=tall, columns=wide, accumulators=tall * wide,
            registers=tall * wide + wide + 1, loads_per_fma=(tall + wide) / (tall * wide), unroll=1.0,
            body_size=tall * wide + tall + wide, reduction=float(self.depth), inner_trips=float(steps),
            panel_bytes=right_bytes, packed=1.0 + pack, variant=pack,
            tasks=np.maximum(1.0, self.batch * bands * parts) if self.parallel else 1.0,
        )  # fmt: skip
