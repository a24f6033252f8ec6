"""This rule schedules products of int8 into int32 on machines with a matrix unit (AMX).

The recipe is :mod:`..recipes.matrix_unit_product`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...schedule import Schedule
from ..cost.axis_roles import Dot, dot_roles
from ..cost.cost_features import Costs
from ..cost.machine_model import MachineModel, worth_threads
from ..program import BlockInfo, Program
from ..recipes.matrix_unit_product import TILE, TILE_BYTES, UnitTiles, matrix_unit_product
from .schedule_rule import Decision, Group, Part, ScheduleRule, register_rule

_STEPS = TILE_BYTES
_REGISTERS = 8
_DOT_CYCLES, _LOAD_CYCLES = 16.0, 8.0
"""Cycles from one product to the next, and from one load to the next (Intel's optimization manual)."""


class TileRule(ScheduleRule):
    """This rule takes products of int8 whose extents tiles divide. They are ``C[row, column] += A[row, k] * B[k,
    column]``, B int8 and A of either sign; 16 divides the rows, 64 columns and steps."""

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
    if block.extents[roles.row] % TILE or block.extents[roles.column] % (4 * TILE) or block.extents[roles.k] % _STEPS:
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
        across = [d for d in range(1, self.columns // TILE + 1) if self.columns // TILE % d == 0]
        self.decisions = (
            Decision("tall", tuple(t for t in (1, 2, 3) if self.rows % (t * TILE) == 0)),
            Decision("wide", tuple(w for w in (1, 2, 3) if self.columns % (w * TILE) == 0)),
            Decision("across", tuple(across)),
            Decision("pack", (0, 1)),
        )

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        roles, names = self.roles, {self.row: "i", self.roles.column: "j", self.roles.k: "k"}
        tiles = UnitTiles(
            roles.panels(self.block, TILE, shared=self.parallel), row["across"], row["tall"], row["wide"], roles.left,
            "int8" if roles.signed else "uint8", "rows" if row["pack"] else "", shared=self.parallel,
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
        steps = self.k // _STEPS
        tiles = (self.rows // TILE) * (self.columns // TILE)
        groups = tiles / (tall * wide)
        parts = self.columns / (TILE * columns["across"])
        part_bytes = self.columns * self.k / parts
        left_bytes, right_bytes = tall * TILE * self.k, wide * TILE * self.k
        first_level = left_bytes + right_bytes < 0.75 * machine.l1_bytes
        loads = groups * steps * (tall + wide)
        crossing = np.where(pack, 1.0, 1.5)  # rows that begin within a cache line
        bands = self.rows / (tall * TILE)
        fits = part_bytes < 0.5 * machine.l2_bytes
        result_bytes = 4.0 * self.rows * self.columns
        return Costs(rows).put(
            core_cycles=tiles * steps * _DOT_CYCLES * np.where(tall * wide < 4, 52.0 / 16 / (tall * wide), 1.0),
            load_cycles=loads * _LOAD_CYCLES * crossing,
            store_cycles=tiles * 2 * TILE + pack * parts * self.rows * self.k / machine.vector_bytes * 2,
            loop_cycles=groups * (60.0 + 2.0 * steps),
            l2_bytes=groups * (right_bytes + np.where(first_level, 0.3, 1.0) * left_bytes),
            l3_bytes=np.where(fits, right_bytes * self.columns / (wide * TILE), bands * self.columns * self.k)
            + parts * self.rows * self.k + result_bytes,
            pack_bytes=2.5 * self.columns * self.k,
            flops=self.block.flops, regions=2.0 * self.parallel,
            lanes_used=float(TILE), rows=tall, columns=wide, accumulators=tall * wide,
            registers=tall * wide + wide + 1, loads_per_fma=(tall + wide) / (tall * wide), unroll=1.0,
            body_size=tall * wide + tall + wide, reduction=float(self.k), inner_trips=float(steps),
            panel_bytes=right_bytes, packed=1.0 + pack, variant=pack,
            tasks=np.maximum(1.0, bands * parts) if self.parallel else 1.0,
        )  # fmt: skip


register_rule(TileRule())
