"""Products and convolutions of int8 and bfloat16, by dot-product instructions: their schedules, costs and rules.

:func:`dot_tile` computes tiles of sums by dot-product instructions, several steps of the reduction for each lane at once. On
machines that multiply and add four int8 in each lane, four steps and 16 columns become one ``vpdpbusd`` of AVX-512 VNNI
(:mod:`tilewright.schedule.intrin`); the operand with the columns is packed into panels ``[panel, k // 4, column, k % 4]``. A
convolution over NHWC is such a product for each position in the window, with the channels as steps: the panels are ``[panel, ry, rx,
k // 4, column, k % 4]``. Other processors take fewer columns at once (:mod:`tilewright.tuner.cost.dot_forms`). That instruction takes one signed and one unsigned factor, those
of AArch64's ``dotprod`` two of one signedness; where the factors are others, the packed one is shifted by 128 while it is packed, and the sums
are corrected by 128 times the row sums of the other one when a tile is complete (``shift_operand``). Without such an instruction x86
multiplies pairs of int16 (``vpmaddwd``): the factor with the rows is copied as int16, the packed one is widened where it is loaded.

The rule offers tiles of a matrix unit beside them, where there is one (:mod:`.matrix_unit`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...schedule import Schedule
from ..cost.axis_roles import (
    Dot,
    dot_form,
    dot_roles,
    element_epilogue,
    pays_packing,
    tile_product,
)
from ..cost.cost_features import Costs, ceil_div, up_to
from ..cost.dot_forms import DotForm
from ..cost.machine_model import MachineModel, worth_threads
from ..cost.walker import chain_factor
from ..loop_steps import (
    extent_of,
    fuse_all,
    loops_within,
    pack,
    pad_product,
    unroll_factor,
)
from ..program import BlockInfo, ProgramInfo
from .matrix_unit import TilePart
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


class DotRule(ScheduleRule):
    """This rule takes sums of products of int8, uint8 or bfloat16.

    They are computed by instructions for dot products, and by tiles of a matrix unit. Columns and steps are padded to
    multiples of what these take.
    """

    name = "dots"
    priority = 5

    def match(self, program: ProgramInfo, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        roles = dot_roles(block)
        if roles is None or not pays_packing(block, roles):
            return None
        epilogue = program.epilogue_of(block, free)
        return Group(block, (block,) if epilogue is None else (block, epilogue))

    def parts(self, program: ProgramInfo, group: Group, machine: MachineModel) -> list[Part]:
        block, epilogue = group.anchor, group.blocks[1] if len(group.blocks) > 1 else None
        roles, product = dot_roles(block), tile_product(block) if machine.int8_tiles or machine.bf16_tiles else None
        form = None if roles is None else dot_form(block, roles, machine)
        out: list[Part] = []
        if roles is not None and form is not None:
            out.append(DotPart(block, roles, form, machine, epilogue))
        taken = epilogue is None or epilogue is element_epilogue(program, block, [epilogue])
        if product is not None and machine.multiplies_tiles(product.dtype) and taken:
            out.append(TilePart(product, machine, epilogue))
        return out


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
