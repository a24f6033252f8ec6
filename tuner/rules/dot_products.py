"""Products and convolutions of int8 and bfloat16, by dot-product instructions and by a matrix unit: their schedules, costs and rules.

:func:`dot_tile` computes tiles of sums by dot-product instructions, several steps of the reduction for each lane at once. On
machines that multiply and add four int8 in each lane, four steps and 16 columns become one ``vpdpbusd`` of AVX-512 VNNI
(:mod:`tilewright.schedule.intrin`); the operand with the columns is packed into panels ``[panel, k // 4, column, k % 4]``. A
convolution over NHWC is such a product for each position in the window, with the channels as steps: the panels are ``[panel, ry, rx,
k // 4, column, k % 4]``. Other processors take fewer columns at once (:mod:`tilewright.tuner.cost.dot_forms`). That instruction takes one signed and one unsigned factor, those
of AArch64's ``dotprod`` two of one signedness; where the factors are others, the packed one is shifted by 128 while it is packed, and the sums
are corrected by 128 times the row sums of the other one when a tile is complete (``shift_operand``). Without such an instruction x86
multiplies pairs of int16 (``vpmaddwd``): the factor with the rows is copied as int16, the packed one is widened where it is loaded.

:func:`matrix_unit_product` takes tiles of 16 by 64 bytes and 64 bytes by 16 columns (AMX). One instruction multiplies a tile of
each; its sums stay in tile registers over the whole reduction (:mod:`tilewright.schedule.intrin`). The operand with
the columns is packed, with several steps of the reduction contiguous for each column. Sizes that the tiles do not divide are
padded with zeros by the copies that pack.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...schedule import Schedule
from ...schedule.intrin import AMX_DOT_BF16_INTRIN, AMX_DOT_S8S8_INTRIN, AMX_DOT_U8S8_INTRIN
from ..cost.axis_roles import (
    TILE,
    TILE_BYTES,
    Dot,
    dot_form,
    dot_roles,
    pays_packing,
    tile_roles,
    up_to_multiple,
)
from ..cost.cost_features import Costs, ceil_div, up_to
from ..cost.dot_forms import DotForm
from ..cost.machine_model import MachineModel, worth_threads
from ..cost.walker import chain_factor
from ..loop_steps import (
    Panels,
    arrange,
    extent_of,
    fuse_all,
    inline_padding,
    loops_within,
    pack,
    pad_product,
    unroll_factor,
)
from ..program import BlockInfo, ProgramInfo
from .schedule_rule import Decision, Group, Part, ScheduleRule
from .sweeps import RowSweep, sweep_rows

_DOT_LATENCY = 5.0
"""Cycles from one dot product to the next that adds to it."""


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


class DotRule(ScheduleRule):
    """This rule takes sums of products of int8, uint8 or bfloat16. Columns and steps are padded to multiples of what the instruction takes."""

    name = "dots"
    priority = 5

    def match(self, program: ProgramInfo, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        roles = dot_roles(block)
        if roles is None or not pays_packing(block, roles):
            return None
        epilogue = program.epilogue_of(block, free)
        return Group(block, (block,) if epilogue is None else (block, epilogue))

    def parts(self, program: ProgramInfo, group: Group, machine: MachineModel) -> list[Part]:
        roles = dot_roles(group.anchor)
        form = None if roles is None else dot_form(group.anchor, roles, machine)
        if roles is None or form is None:
            return []
        return [DotPart(group.anchor, roles, form, machine, group.blocks[1] if len(group.blocks) > 1 else None)]


class DotPart(Part):
    """This part has the decisions ``rows`` and ``vectors`` of the tile, ``unroll`` of the steps, ``outer`` (1: panels
    outermost). ``epilogue``: the stage that takes the sums of a tile to memory, where there is one."""

    structure = ("rows", "vectors")

    def __init__(
        self, block: BlockInfo, roles: Dot, form: DotForm, machine: MachineModel, epilogue: BlockInfo | None = None
    ) -> None:
        self.block, self.roles, self.form, self.machine, self.epilogue = block, roles, form, machine, epilogue
        self.name = f"dots_{block.name}"
        self.parallel = worth_threads(machine, [block])
        self.depth = math.prod(block.extents[v] for v in block.reduce)
        self.steps = self.depth // block.extents[roles.k] * math.ceil(block.extents[roles.k] / form.width)
        vectors = math.ceil(block.extents[roles.column] / form.lanes)
        height = block.extents[roles.row] if roles.row is not None else 1
        self.decisions = (
            Decision("rows", up_to(height, *range(1, 15))),
            Decision("vectors", tuple(v for v in (1, 2, 4) if vectors % v == 0)),
            Decision("unroll", up_to(math.ceil(block.extents[roles.k] / form.width), 1, 2, 4, 8, 16)),
            Decision("outer", (0, 1)),
        )

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        roles, form, width = self.roles, self.form, row["vectors"] * self.form.lanes
        block = sch.get_block(self.block.name)
        given = {producer.name for producer in sch.get_producers(block)}
        self._end_rows_with_steps(sch, block)
        result = self._pad(sch, block)
        shifted: Any = None
        sums: Any = None
        corrected: Any = None
        if form.shifts:
            shifted, sums, corrected = sch.shift_operand(block, roles.right)
        if form.widens:
            self._widen(sch, block, given)
        packed = pack(sch, block, roles.panels(self.block, width, form.width, shared=self.parallel))
        if form.shifts:
            self._shift(sch, shifted, packed)
            rank = len(sch.get_loops(sums)) - len(self.block.reduce)
            sweep_rows(sch, [sums.name], RowSweep(form.lanes, rank, unroll=4, shared=self.parallel))
            if result is None:
                result = corrected
            else:
                sch.compute_inline(corrected)
        if result is None:
            result = sch.cache_write(block, 0, "local")
        else:
            sch.set_scope(block, 0, "local")
        loop = dict(zip(self.block.axes, sch.get_loops(block), strict=True))
        panel, column = sch.split(loop[roles.column], [None, width])
        outer, rows = [loop[v] for v in roles.others], []
        if roles.row is not None:
            tiles, within = sch.split(loop[roles.row], [None, row["rows"]])
            outer.append(tiles)
            rows.append(within)
        nest = [panel, *outer] if row["outer"] else [*outer, panel]
        around = [loop[v] for v in roles.window]
        sch.reorder(*nest, *around, loop[roles.k], *rows, column)
        if self.parallel:
            nest = [fuse_all(sch, nest)]
            sch.parallel(nest[0])
        sch.reverse_compute_at(result, nest[-1], preserve_unit_loops=True)
        *others, last = sch.get_loops(result)[-len(self.block.spatial) :]
        for other in others:
            sch.unroll(other)
        over, lane = sch.split(last, [None, form.lanes])
        sch.unroll(over)
        sch.vectorize(lane)
        dot_tile(
            sch, block, DotInstruction(form.intrinsic, form.lanes, form.width, row["unroll"]),
            column=column, step=loop[roles.k], rows=rows, around=around,
        )  # fmt: skip

    def _shift(self, sch: Schedule, shifted: Any, packed: Any) -> None:
        """Shift the right factor while it is packed."""
        *_, lanes, step = sch.get_loops(packed)
        if extent_of(sch, step) == self.form.width:
            sch.compute_inline(shifted)
            return
        part = sch.get_loops(packed)[-3]
        sch.compute_at(shifted, part)
        sch.vectorize(loops_within(sch, shifted, part)[-1])
        sch.set_scope(shifted, 0, "local")

    def _widen(self, sch: Schedule, block: Any, given: set[str]) -> None:
        """Make the left factor's copy one of int16; ``given``: producers that are no copies."""
        left = sch.get(block).reads[self.roles.left].buffer
        made = [p for p in sch.get_producers(block) if p.name not in given]
        copies = [p for p in made if sch.get(p).writes[0].buffer is left]
        if not copies:
            copies = [sch.cache_read(block, self.roles.left, "global")]
            self._copy(sch, copies[0], self.machine.lanes(2))
        sch.unsafe_set_dtype(copies[0], 0, "int16")

    def _end_rows_with_steps(self, sch: Schedule, block: Any) -> None:
        """Copy the left operand where dimensions follow that of the steps, as in weights of windows of one element."""
        left = self.block.loads[self.roles.left]
        if left.dim_of(self.roles.k) != len(left.dims) - 1:
            self._copy(sch, sch.reindex(block, ("read", left.buffer.name)), 64)

    def _pad(self, sch: Schedule, block: Any) -> Any:
        """Round columns and steps up to what the instruction takes; returns the stage that takes the sums to memory.

        The stage is the epilogue, else the copy that leaves the padding out, else
        None.
        """
        epilogue = None if self.epilogue is None else sch.get_block(self.epilogue.name)
        multiples = {self.roles.column: self.form.lanes, self.roles.k: self.form.width}
        if not any(self.block.extents[v] % m for v, m in multiples.items()):
            return epilogue
        copies = pad_product(sch, block, [multiples.get(v, 1) for v in self.block.axes])
        for copy in [c for c in copies if c.name in {p.name for p in sch.get_producers(block)}]:
            self._copy(sch, copy, 64)
        if self.block.extents[self.roles.column] % self.form.lanes == 0:
            return epilogue
        (result,) = [c for c in copies if c.name in {c.name for c in sch.get_consumers(block)}]
        if not sch.get_consumers(result):
            return result
        sch.compute_inline(result)
        return epilogue

    def _copy(self, sch: Schedule, copy: Any, lanes: int) -> None:
        """Copy by vectors of at most ``lanes`` elements; threads share the rows."""
        *outer, last = sch.get_loops(copy)
        if self.parallel and outer:
            sch.parallel(fuse_all(sch, outer))
        sch.vectorize(sch.split(last, [None, lanes])[1] if extent_of(sch, last) > lanes else last)

    def mask(self, columns: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        tile = columns["rows"] * columns["vectors"]
        # without a loop over the steps their panels are the same for all tiles: LLVM loads them before, and spills them
        loaded = np.where(columns["unroll"] >= self.steps, self.steps, 1) * columns["vectors"]
        # of the left factor, unless it is an operand in memory, and of products before they are added
        passing = 1 + self.form.widens + (not self.machine.broadcasts_operands)
        return np.asarray(tile + loaded + passing <= self.machine.registers)

    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        machine, roles, form, extents = self.machine, self.roles, self.form, self.block.extents
        height, width = columns["rows"], columns["vectors"] * form.lanes
        tile = height * columns["vectors"]
        panels = ceil_div(extents[roles.column], form.lanes) / columns["vectors"]
        bands = ceil_div(extents[roles.row] if roles.row is not None else 1, height)
        bands = bands * math.prod(extents[v] for v in roles.others)
        tiles = bands * panels
        loads = height + columns["vectors"]
        latency = chain_factor(tile, self.steps * (tile + loads), machine, _DOT_LATENCY)
        deep = self.depth * (4 // roles.word)  # bytes of a row
        packed = extents[roles.column] * deep
        row_bytes = deep * (2 if form.widens else 1)  # of the left factor
        outermost = columns["outer"] > 0
        panel_bytes = width * deep
        left = bands * height * row_bytes  # bytes, as often as they are read
        # the prefetcher of the first-level cache follows about eight rows; lines of other rows arrive late
        far = np.where(height * row_bytes + panel_bytes > 0.75 * machine.l1_bytes, 14.0, 4.0)
        waiting = far * np.maximum(0.0, height - 8) * row_bytes / machine.line_bytes
        again = np.where(outermost & (panel_bytes < machine.l1_bytes), 0.3, 1.0)
        return Costs(rows).put(
            core_cycles=tiles * self.steps * (form.work * tile * latency + form.widens * columns["vectors"]) / machine.fma_pipes
            + (left / form.lanes if form.shifts else 0.0),
            load_cycles=tiles * self.steps * loads / machine.loads_per_cycle,
            store_cycles=tiles * tile * 4,
            spill_cycles=tiles * tile * (0 if self.epilogue is None else self.epilogue.operations) / machine.fma_pipes,
            jump_cycles=(np.where(outermost, 60.0 * height, 0.0) + waiting) * tiles,  # each row is another page
            loop_cycles=tiles * (40.0 + self.steps * 0.5 / columns["unroll"]),
            l2_bytes=tiles * panel_bytes * again + tiles * height * row_bytes,
            l3_bytes=np.where(outermost, packed, bands * packed) * float(packed > machine.l2_bytes),
            pack_bytes=2.5 * packed * float(self.block.loads[roles.right].buffer not in self.block.packed_ahead),
            flops=self.block.flops,
            regions=(2.0 + form.shifts + form.widens) * self.parallel,
            lanes_used=float(form.lanes), rows=height, columns=columns["vectors"], accumulators=tile,
            registers=tile + columns["vectors"] + 1, loads_per_fma=loads / tile, latency_bound=latency,
            unroll=columns["unroll"], body_size=columns["unroll"] * (tile + loads), reduction=float(self.depth),
            inner_trips=float(self.steps), panel_bytes=panel_bytes, packed=1.0, variant=columns["outer"],
            tasks=np.maximum(1.0, tiles) if self.parallel else 1.0,
        )  # fmt: skip


_REGISTERS = 8
_DOT_CYCLES, _LOAD_CYCLES = 16.0, 8.0
"""Cycles from one product to the next, and from one load to the next (Intel's optimization manual)."""


class TileRule(ScheduleRule):
    """This rule takes products of int8 and bfloat16 whose extents tiles divide, or nearly so. They are ``C[row, column] +=
    A[row, k] * B[k, column]``; of int8 B is signed and A of either sign. A tile has 16 rows or columns, and 64 bytes of steps."""

    name = "tiles"
    priority = 4

    def match(self, program: ProgramInfo, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        roles = tile_roles(block)
        return None if roles is None or not pays_packing(block, roles) else Group(block, (block,))

    def parts(self, program: ProgramInfo, group: Group, machine: MachineModel) -> list[Part]:
        roles = tile_roles(group.anchor)
        if roles is None or not (machine.int8_tiles if roles.dtype == "int8" else machine.bf16_tiles):
            return []
        return [TilePart(group.anchor, roles, machine)]


class TilePart(Part):
    """This part multiplies tiles with the matrix unit. Its decisions are ``tall`` and ``wide``, the tiles of sums;
    ``across``, the number of column tiles that are multiplied with all rows before the next ones; ``pack``, whether
    rows of A are first copied to contiguous memory."""

    structure = ("tall", "wide", "pack")

    def __init__(self, block: BlockInfo, roles: Dot, machine: MachineModel) -> None:
        assert roles.row is not None
        self.block, self.roles, self.row, self.machine = block, roles, roles.row, machine
        self.name = f"tiles_{block.name}"
        self.parallel = worth_threads(machine, [block])
        multiples = {roles.row: TILE, roles.column: TILE, roles.k: steps_of(roles.dtype)}
        self.rows, self.columns, self.k = (up_to_multiple(block.extents[v], m) for v, m in multiples.items())
        across = [d for d in range(1, self.columns // TILE + 1) if self.columns // TILE % d == 0]
        self.decisions = (
            Decision("tall", tuple(t for t in (1, 2, 3) if self.rows % (t * TILE) == 0)),
            Decision("wide", tuple(w for w in (1, 2, 3) if self.columns % (w * TILE) == 0)),
            Decision("across", tuple(across)),
            Decision("pack", (0, 1)),
        )

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        roles, left = self.roles, self.block.loads[self.roles.left]
        names = {self.row: "i", self.roles.column: "j", self.roles.k: "k"}
        tiles = UnitTiles(
            roles.panels(self.block, TILE, roles.word, shared=self.parallel), row["across"], row["tall"], row["wide"], roles.left,
            str(left.buffer.dtype), "rows" if row["pack"] else "", shared=self.parallel,
            axes=" ".join(names[v] for v in self.block.axes),
        )  # fmt: skip
        matrix_unit_product(sch, self.block.name, tiles)

    def mask(self, columns: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        """Returns which rows fit the tile registers and divide the columns. The sums, all tiles of B and one of A are
        in registers, and column tiles divide the columns."""
        tall, wide = columns["tall"], columns["wide"]
        return np.asarray((tall * wide + 1 + wide <= _REGISTERS) & (columns["across"] % wide == 0))

    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        machine, tall, wide, pack = self.machine, columns["tall"], columns["wide"], columns["pack"] > 0
        steps, deep = self.k // steps_of(self.roles.dtype), self.k * (4 // self.roles.word)  # bytes of a row
        tiles = (self.rows // TILE) * (self.columns // TILE)
        groups = tiles / (tall * wide)
        parts = self.columns / (TILE * columns["across"])
        part_bytes = self.columns * deep / parts
        left_bytes, right_bytes = tall * TILE * deep, wide * TILE * deep
        first_level = left_bytes + right_bytes < 0.75 * machine.l1_bytes
        loads = groups * steps * (tall + wide)
        crossing = np.where(pack, 1.0, 1.5)  # rows that begin within a cache line
        bands = self.rows / (tall * TILE)
        fits = part_bytes < 0.5 * machine.l2_bytes
        result_bytes = 4.0 * self.rows * self.columns
        return Costs(rows).put(
            core_cycles=tiles * steps * _DOT_CYCLES * np.where(tall * wide < 4, 52.0 / 16 / (tall * wide), 1.0),
            load_cycles=loads * _LOAD_CYCLES * crossing,
            store_cycles=tiles * 2 * TILE + pack * parts * self.rows * deep / machine.vector_bytes * 2,
            loop_cycles=groups * (60.0 + 2.0 * steps),
            l2_bytes=groups * (right_bytes + np.where(first_level, 0.3, 1.0) * left_bytes),
            l3_bytes=np.where(fits, right_bytes * self.columns / (wide * TILE), bands * self.columns * deep)
            + parts * self.rows * deep + result_bytes,
            pack_bytes=2.5 * self.columns * deep,
            flops=self.block.flops, regions=2.0 * self.parallel,
            lanes_used=float(TILE), rows=tall, columns=wide, accumulators=tall * wide,
            registers=tall * wide + wide + 1, loads_per_fma=(tall + wide) / (tall * wide), unroll=1.0,
            body_size=tall * wide + tall + wide, reduction=float(self.k), inner_trips=float(steps),
            panel_bytes=right_bytes, packed=1.0 + pack, variant=pack,
            tasks=np.maximum(1.0, bands * parts) if self.parallel else 1.0,
        )  # fmt: skip
