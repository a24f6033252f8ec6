"""This rule schedules products and convolutions of int8 on machines that multiply and add four int8 in each lane.

Four steps of the reduction and 16 columns become one ``vpdpbusd`` of AVX-512 VNNI (:mod:`tilewright.schedule.intrin`);
the operand with the columns is packed into panels ``[panel, k // 4, column, k % 4]``. A convolution over NHWC is such a
product for each position in the window, with the channels as steps: the panels are ``[panel, ry, rx, k // 4, column, k
% 4]``. The instruction takes one signed and one unsigned factor; where both are signed or both unsigned, the packed one
is shifted by 128 while it is packed, and the sums are corrected by 128 times the row sums of the other one when a tile
is complete (``shift_operand``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...schedule import Schedule
from ...schedule.intrin import VNNI_DOT_16x4_INTRIN, VNNI_DOT_16x4_SWAPPED_INTRIN
from ..cost.axis_roles import DOT_LANES, DOT_WIDTH, Dot, dot_roles
from ..cost.cost_features import Costs, ceil_div, up_to
from ..cost.machine_model import MachineModel, worth_threads
from ..program import BlockInfo, Program
from ..recipes.dot_product import DotInstruction, dot_tile
from ..recipes.loop_steps import fuse_all, loops_within
from ..recipes.panels import pack
from ..recipes.row_sweep import RowSweep, sweep_rows
from .schedule_rule import Decision, Group, Part, ScheduleRule, register_rule


class DotRule(ScheduleRule):
    """This rule takes sums of products of int8 or uint8 with a multiple of 16 columns and of 4 steps."""

    name = "int8_dots"
    priority = 5

    def match(self, program: Program, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        return None if dot_roles(block) is None else Group(block, (block,))

    def parts(self, program: Program, group: Group, machine: MachineModel) -> list[Part]:
        roles = dot_roles(group.anchor)
        return [DotPart(group.anchor, roles, machine)] if machine.int8_dots and roles is not None else []


class DotPart(Part):
    """This part has the decisions ``rows`` and ``vectors`` of the tile, ``unroll`` of the steps, ``outer`` (1: panels
    outermost)."""

    structure = ("rows", "vectors")

    def __init__(self, block: BlockInfo, roles: Dot, machine: MachineModel) -> None:
        self.block, self.roles, self.machine = block, roles, machine
        self.name = f"dots_{block.name}"
        self.parallel = worth_threads(machine, [block])
        self.depth = math.prod(block.extents[v] for v in block.reduce)
        self.steps = self.depth // DOT_WIDTH
        height = block.extents[roles.row] if roles.row is not None else 1
        self.decisions = (
            Decision("rows", up_to(height, *range(1, 15))),
            Decision("vectors", tuple(v for v in (1, 2, 4) if block.extents[roles.column] % (v * DOT_LANES) == 0)),
            Decision("unroll", up_to(block.extents[roles.k] // DOT_WIDTH, 1, 2, 4, 8, 16)),
            Decision("outer", (0, 1)),
        )

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        roles, width = self.roles, row["vectors"] * DOT_LANES
        block = sch.get_block(self.block.name)
        shifted: Any = None
        sums: Any = None
        result: Any = None
        if roles.shifted:
            shifted, sums, result = sch.shift_operand(block, roles.right)
        packed = pack(sch, block, roles.panels(self.block, width, shared=self.parallel))
        if roles.shifted:
            part = sch.get_loops(packed)[-3]
            sch.compute_at(shifted, part)
            sch.vectorize(loops_within(sch, shifted, part)[-1])
            sch.set_scope(shifted, 0, "local")
            rank = len(sch.get_loops(sums)) - len(self.block.reduce)
            sweep_rows(sch, [sums.name], RowSweep(DOT_LANES, rank, unroll=4, shared=self.parallel))
            sch.set_scope(block, 0, "local")
        else:
            result = sch.cache_write(block, 0, "local")
        spatial = [v for v in self.block.axes if v in self.block.spatial]
        loop = dict(zip(spatial, sch.get_loops(result), strict=True))
        panel, over, lane = sch.split(loop[roles.column], [None, row["vectors"], DOT_LANES])
        outer = [loop[v] for v in roles.others]
        rows = []
        if roles.row is not None:
            tiles, within = sch.split(loop[roles.row], [None, row["rows"]])
            outer.append(tiles)
            rows.append(within)
        nest = [panel, *outer] if row["outer"] else [*outer, panel]
        sch.reorder(*nest, *rows, over, lane)
        if self.parallel:
            nest = [fuse_all(sch, nest)]
            sch.parallel(nest[0])
        sch.compute_at(block, nest[-1], preserve_unit_loops=True)
        loop = dict(zip(self.block.axes, sch.get_loops(block)[len(nest) :], strict=True))
        inside = [] if roles.row is None else [loop[roles.row]]
        for other in (*rows, over):
            sch.unroll(other)
        sch.vectorize(lane)
        intrinsic = VNNI_DOT_16x4_SWAPPED_INTRIN if roles.signed else VNNI_DOT_16x4_INTRIN
        dot_tile(
            sch, block, DotInstruction(intrinsic, DOT_LANES, DOT_WIDTH, row["unroll"]),
            column=loop[roles.column], step=loop[roles.k], rows=inside, around=[loop[v] for v in roles.window],
        )  # fmt: skip

    def mask(self, columns: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        tile = columns["rows"] * columns["vectors"]
        return np.asarray(tile + columns["vectors"] + 1 <= self.machine.registers)

    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        machine, roles, extents = self.machine, self.roles, self.block.extents
        height, width = columns["rows"], columns["vectors"] * DOT_LANES
        tile = height * columns["vectors"]
        panels = extents[roles.column] / width
        bands = ceil_div(extents[roles.row] if roles.row is not None else 1, height)
        bands = bands * math.prod(extents[v] for v in roles.others)
        tiles = bands * panels
        latency = np.maximum(1.0, 10.0 / tile)
        loads = height + columns["vectors"]
        packed = extents[roles.column] * self.depth
        outermost = columns["outer"] > 0
        panel_bytes = width * self.depth
        left = bands * height * self.depth  # bytes, as often as they are read
        # the prefetcher of the first-level cache follows about eight rows; lines of other rows arrive late
        far = np.where(height * self.depth + panel_bytes > 0.75 * machine.l1_bytes, 14.0, 4.0)
        waiting = far * np.maximum(0.0, height - 8) * self.depth / machine.line_bytes
        again = np.where(outermost & (panel_bytes < machine.l1_bytes), 0.3, 1.0)
        return Costs(rows).put(
            core_cycles=tiles * self.steps * tile * latency / machine.fma_pipes
            + (left / DOT_LANES if roles.shifted else 0.0),
            load_cycles=tiles * self.steps * loads / machine.loads_per_cycle,
            store_cycles=tiles * tile * 4,
            jump_cycles=(np.where(outermost, 60.0 * height, 0.0) + waiting) * tiles,  # each row is another page
            loop_cycles=tiles * (40.0 + self.steps * 0.5 / columns["unroll"]),
            l2_bytes=tiles * panel_bytes * again + tiles * height * self.depth,
            l3_bytes=np.where(outermost, packed, bands * packed) * float(packed > machine.l2_bytes),
            pack_bytes=2.5 * packed * float(self.block.loads[roles.right].buffer not in self.block.packed_ahead),
            flops=self.block.flops,
            regions=(2.0 + roles.shifted) * self.parallel,
            lanes_used=float(DOT_LANES), rows=height, columns=columns["vectors"], accumulators=tile,
            registers=tile + columns["vectors"] + 1, loads_per_fma=loads / tile, latency_bound=latency,
            unroll=columns["unroll"], body_size=columns["unroll"] * (tile + loads), reduction=float(self.depth),
            inner_trips=float(self.steps), panel_bytes=panel_bytes, packed=1.0, variant=columns["outer"],
            tasks=np.maximum(1.0, tiles) if self.parallel else 1.0,
        )  # fmt: skip


register_rule(DotRule())
