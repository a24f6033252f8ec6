"""This rule schedules products of int8 into int32 on machines with a matrix unit (AMX).

A product of tiles of 16 by 64 and 64 by 16 is one instruction; its sums stay in tile registers over the whole reduction
(:mod:`tilewright.schedule.intrin.tiles`). The operand with the columns is packed, with four steps of the reduction
contiguous for each column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...schedule import Schedule
from ...schedule.intrin import AMX_DOT_S8S8_INTRIN, AMX_DOT_U8S8_INTRIN
from ..cost.cost_features import Costs
from ..cost.machine_model import MachineModel, worth_threads
from ..product_roles import Dot, dot_roles
from ..program import BlockInfo, Program
from ..recipes.loop_steps import fuse_all
from ..sketch_part import Decision, Part
from .schedule_rule import Group, ScheduleRule, register_rule

_TILE, _WIDTH, _STEPS = 16, 4, 64
_REGISTERS = 8
_DOT_CYCLES, _LOAD_CYCLES = 16.0, 8.0
"""Cycles from one product to the next, and from one load to the next (Intel's optimization manual)."""


class TileRule(ScheduleRule):
    """``C[row, column] += A[row, k] * B[k, column]``, B int8 and A of either sign; 16 divides the rows, 64 columns and steps."""

    name = "int8_tiles"
    priority = 4

    def match(self, program: Program, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        return None if _roles(block) is None else Group(block, (block,))

    def parts(self, program: Program, group: Group, machine: MachineModel) -> list[Part]:
        roles = _roles(group.anchor)
        return [TilePart(group.anchor, roles, machine)] if machine.int8_tiles and roles is not None else []


def _roles(block: BlockInfo) -> Dot | None:
    roles = dot_roles(block)
    if roles is None or roles.row is None or roles.others or roles.window:
        return None
    right, left = block.loads[roles.right], block.loads[roles.left]
    if right.buffer.dtype != "int8" or not left.plain or left.dim_of(roles.row) is None:
        return None
    if block.extents[roles.row] % _TILE or block.extents[roles.column] % (4 * _TILE) or block.extents[roles.k] % _STEPS:
        return None
    return roles


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
        self.rows, self.columns, self.k = (block.extents[v] for v in (roles.row, roles.column, roles.k))
        across = [d for d in range(1, self.columns // _TILE + 1) if self.columns // _TILE % d == 0]
        self.decisions = (
            Decision("tall", tuple(t for t in (1, 2, 3) if self.rows % (t * _TILE) == 0)),
            Decision("wide", tuple(w for w in (1, 2, 3) if self.columns % (w * _TILE) == 0)),
            Decision("across", tuple(across)),
            Decision("pack", (0, 1)),
        )

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        roles, tall, wide = self.roles, row["tall"], row["wide"]
        block = sch.get_block(self.block.name)
        packed = sch.cache_read(block, roles.right, "global", consumer_blocks=[block])
        right = self.block.loads[roles.right]
        at_k, at_column = right.dim_of(roles.k), right.dim_of(roles.column)
        assert at_k is not None and at_column is not None
        sch.transform_layout(
            block, ("read", roles.right),
            lambda *i: (i[at_column] // _TILE, i[at_k] // _WIDTH, i[at_column] % _TILE, i[at_k] % _WIDTH),
        )  # fmt: skip
        loops = sch.get_loops(packed)
        k0, k1 = sch.split(loops[at_k], [None, _WIDTH])
        part, column = sch.split(loops[at_column], [None, _TILE])
        sch.reorder(k0, part, k1, column)
        sch.unroll(k1)
        sch.vectorize(column)
        copy = sch.cache_read(block, roles.left, "global", consumer_blocks=[block]) if row["pack"] else None
        result = sch.cache_write(block, 0, "local")
        sch.transform_layout(block, ("write", 0), lambda i, j: (i // _TILE, j // _TILE, i % _TILE, j % _TILE))
        loop = dict(zip(self.block.axes, sch.get_loops(block), strict=True))
        rows, i1, i2 = sch.split(loop[self.row], [None, tall, _TILE])
        across, columns, j1, j2 = sch.split(loop[roles.column], [None, row["across"] // wide, wide, _TILE])
        steps, k1 = sch.split(loop[roles.k], [None, _STEPS])
        sch.reorder(across, rows, columns, steps, i1, j1, i2, j2, k1)
        outer = fuse_all(sch, [across, rows])
        if self.parallel:
            sch.parallel(k0)
            sch.parallel(outer)
        if copy is not None:
            sch.compute_at(copy, outer, preserve_unit_loops=True)
            _, lanes = sch.split(sch.get_loops(copy)[-1], [None, _STEPS])
            sch.vectorize(lanes)
        sch.reverse_compute_at(result, columns, preserve_unit_loops=True)
        init = sch.decompose_reduction(block, steps)
        sch.tensorize(i2, AMX_DOT_S8S8_INTRIN if roles.signed else AMX_DOT_U8S8_INTRIN)
        *over, inner, _ = sch.get_loops(init)[-4:]
        sch.tensorize(inner, "fill_16x16_i32_amx")
        i, j = sch.get_loops(result)[-2:]
        i0, i1_ = sch.split(i, [None, _TILE])
        j0, j1_ = sch.split(j, [None, _TILE])
        sch.reorder(i0, j0, i1_, j1_)
        sch.tensorize(i1_, "store_16x16_i32_amx")
        for other in (i1, j1, *over, i0, j0):
            sch.unroll(other)

    def mask(self, columns: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        """Returns which rows keep the sums, all tiles of B and one of A in registers, with column tiles that divide the
        columns."""
        tall, wide = columns["tall"], columns["wide"]
        return np.asarray((tall * wide + 1 + wide <= _REGISTERS) & (columns["across"] % wide == 0))

    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        machine, tall, wide, pack = self.machine, columns["tall"], columns["wide"], columns["pack"] > 0
        steps = self.k // _STEPS
        tiles = (self.rows // _TILE) * (self.columns // _TILE)
        groups = tiles / (tall * wide)
        parts = self.columns / (_TILE * columns["across"])
        part_bytes = self.columns * self.k / parts
        left_bytes, right_bytes = tall * _TILE * self.k, wide * _TILE * self.k
        first_level = left_bytes + right_bytes < 0.75 * machine.l1_bytes
        loads = groups * steps * (tall + wide)
        crossing = np.where(pack, 1.0, 1.5)  # rows that begin within a cache line
        bands = self.rows / (tall * _TILE)
        fits = part_bytes < 0.5 * machine.l2_bytes
        result_bytes = 4.0 * self.rows * self.columns
        return Costs(rows).put(
            core_cycles=tiles * steps * _DOT_CYCLES * np.where(tall * wide < 4, 52.0 / 16 / (tall * wide), 1.0),
            load_cycles=loads * _LOAD_CYCLES * crossing,
            store_cycles=tiles * 2 * _TILE + pack * parts * self.rows * self.k / machine.vector_bytes * 2,
            loop_cycles=groups * (60.0 + 2.0 * steps),
            l2_bytes=groups * (right_bytes + np.where(first_level, 0.3, 1.0) * left_bytes),
            l3_bytes=np.where(fits, right_bytes * self.columns / (wide * _TILE), bands * self.columns * self.k)
            + parts * self.rows * self.k + result_bytes,
            pack_bytes=2.5 * self.columns * self.k,
            flops=self.block.flops, regions=2.0 * self.parallel,
            lanes_used=float(_TILE), rows=tall, columns=wide, accumulators=tall * wide,
            registers=tall * wide + wide + 1, loads_per_fma=(tall + wide) / (tall * wide), unroll=1.0,
            body_size=tall * wide + tall + wide, reduction=float(self.k), inner_trips=float(steps),
            panel_bytes=right_bytes, packed=1.0 + pack, variant=pack,
            tasks=np.maximum(1.0, bands * parts) if self.parallel else 1.0,
        )  # fmt: skip


register_rule(TileRule())
