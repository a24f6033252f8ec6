"""This rule schedules products on the matrix units of GPUs. The recipes are those of
:mod:`..recipes.gpu_matrix_units`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...codegen.machine.gpu_figures import BARRIER_CYCLES, FETCH_CYCLES, GROUP_RATE, SECTOR, WARP, WARP_GROUP
from ...schedule import Schedule
from ...schedule.intrin.warp_group_units import STEPS
from ...tir.expr.intrinsics.group_matrix_operations import PANEL
from ..cost.cost_features import Columns, Costs
from ..cost.gpu_model import GpuModel
from ..cost.gpu_roles import epilogue_of, multiplied, touched_bytes
from ..cost.machine_model import MachineModel
from ..program import BlockInfo, Program
from ..recipes.gpu_matrix_units import (
    GROUP_WORDS,
    SUMS,
    SUMS_OFFSET,
    TILE,
    WORDS,
    GroupTiles,
    WarpTiles,
    group_product,
    warp_product,
)
from .schedule_rule import Decision, Group, Part, ScheduleRule, register_rule

_RATE = {"float16": 1.0, "bfloat16": 1.0, "float32": 0.5, "int8": 2.0}
"""How fast matrix units multiply operands of a type, relative to float16."""


class GpuMatrixUnitRule(ScheduleRule):
    """This rule takes products of a type that matrix units of GPUs have. They are ``C[i, j] += A[i, k] * B[k, j]`` of
    float16, bfloat16, int8, or float32 rounded to tf32; 16 divides all extents. The element-wise stage that alone reads
    the result belongs to it."""

    name = "gpu_matrix_units"
    priority = 5
    gpu = True

    def match(self, program: Program, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        if not _operand_type(block):
            return None
        after = epilogue_of(program, block, free)
        whole = after is not None and [after.extents[v] for v in after.axes] == [
            block.extents[v] for v in block.spatial
        ]
        return Group(block, (block, after) if after is not None and whole else (block,))

    def parts(self, program: Program, group: Group, machine: MachineModel) -> list[Part]:
        if not isinstance(machine, GpuModel):
            return []
        groups = [GroupTilesPart(program, group, machine)] if machine.warp_groups and _for_groups(group.anchor) else []
        return [*groups, WarpTilesPart(program, group, machine)]


def _operand_type(block: BlockInfo) -> str:
    """Returns the type of the operands of a product that matrix units compute, or an empty text."""
    if not block.stores:
        return ""
    sums = str(block.stores[0].buffer.dtype)
    operands = multiplied(block, sums)
    if operands is None or any(block.extents[v] % TILE for v in block.axes):
        return ""
    dtype = str(operands[0].buffer.dtype)
    return dtype if dtype in WORDS and SUMS[WORDS[dtype][1]] == sums and operands[1].buffer.dtype == dtype else ""


def _for_groups(block: BlockInfo) -> bool:
    """Returns whether warp groups can compute a product that single warps can compute."""
    known = block.loads[0].buffer.dtype in GROUP_WORDS
    return known and all(block.extents[v] % PANEL == 0 for v in block.axes)


def _epilogue(sch: Schedule, group: Group, read: bool) -> Any:
    """Returns the stage that takes the sums from shared memory, or None.

    What other stages ``read`` is stored by a plain copy, for they cannot be scheduled around an intrinsic's pointers.
    """
    if len(group.blocks) > 1:
        return group.blocks[1].name
    return sch.cache_write(sch.get_block(group.anchor.name), 0, "shared") if read else None


def _shared_sums(read: bool, rows: np.ndarray, columns: np.ndarray) -> np.ndarray | float:
    """Returns the bytes of the sums in shared memory, where another stage takes them."""
    return rows * (columns + SUMS_OFFSET) * 4.0 if read else 0.0


class GroupTilesPart(Part):
    """This part computes tiles of 64 rows of sums by warp groups of sm_90a. Its decisions are the groups of a block along rows and
    columns, the tiles of a group, their columns, and the ``versions`` of operands in shared memory, 64 steps each."""

    structure = ("row_groups", "column_groups", "row_tiles", "width")

    def __init__(self, program: Program, group: Group, machine: GpuModel) -> None:
        self.group, self.machine = group, machine
        self.read = not program.is_output(group.anchor)
        block = self.block = group.anchor
        self.name = f"groups_{block.name}"
        self.dtype = str(block.loads[0].buffer.dtype)
        self.m, self.n, self.k = (block.extents[v] // PANEL for v in (*block.spatial, *block.reduce))
        self.decisions = (
            Decision("row_groups", (1, 2)), Decision("column_groups", (1, 2)), Decision("row_tiles", (1, 2)),
            Decision("width", (64, 128, 192, 256)), Decision("versions", (1, 2, 3, 4, 5)),
        )  # fmt: skip

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        groups = (row["row_groups"], row["column_groups"])
        sizes = GroupTiles(self.dtype, groups, row["row_tiles"], row["width"], row["versions"])
        group_product(sch, self.block.name, sizes, _epilogue(sch, self.group, self.read))

    def mask(self, columns: Columns, rows: int) -> np.ndarray:
        tall, wide = self._tiles(columns)
        divides = (self.m % tall == 0) & (self.n % wide == 0)
        ahead = (columns["versions"] <= self.k) | (columns["versions"] == 1)
        fits = self.machine.fits(self._threads(columns), self._shared(columns), self._registers(columns))
        return np.asarray(divides & ahead & fits)

    def costs(self, columns: Columns, rows: int) -> Costs:
        block, machine = self.block, self.machine
        (tall, wide), threads = self._tiles(columns), self._threads(columns)
        blocks, warps = self.m / tall * (self.n / wide), threads / WARP
        tile_bytes = (tall + wide) * PANEL * STEPS * 2.0
        products = 4.0 * columns["row_tiles"]
        instructions = 3 * products + 4 * tile_bytes / 16 / threads + 20
        flops = 2.0 * tall * wide * PANEL**2 * STEPS
        matrix = flops / machine.matrix_flops / GROUP_RATE
        operands = threads / WARP_GROUP * products * (PANEL + columns["width"]) * 16 * 2.0
        moved = blocks * self.k * tile_bytes
        busy = np.maximum(instructions * np.maximum(1.0, warps / 4), matrix) + 60.0
        behind = np.maximum(0.0, FETCH_CYCLES / np.maximum(1.0, columns["versions"] - 1) - busy)
        waiting = np.where(columns["versions"] > 1, behind, FETCH_CYCLES + 200.0)
        return machine.costs(
            rows, flops=block.flops, issue_slots=blocks * warps * self.k * instructions,
            matrix_flops=block.flops / GROUP_RATE,
            shared_wavefronts=blocks * self.k * (operands + tile_bytes) / 128,
            l2_bytes=moved + 4.0 * block.spatial_size,
            memory_bytes=machine.memory_bytes(touched_bytes(self.group.blocks), moved, blocks),
            blocks=blocks, threads=threads, registers=self._registers(columns), shared_bytes=self._shared(columns),
            chain_cycles=self.k * (busy + 2 * BARRIER_CYCLES + waiting) + 1500.0,
            coalescing=1.0, conflicts=1.0, versions=columns["versions"], rows=columns["row_tiles"],
            columns=columns["width"], step=float(STEPS), steps=float(self.k), reduction=float(block.reduce_size),
            row_extent=float(self.m * PANEL), column_extent=float(self.n * PANEL), variant=2.0,
        )  # fmt: skip

    @staticmethod
    def _tiles(columns: Columns) -> tuple[np.ndarray, np.ndarray]:
        """Returns the rows and columns of a block, in units of 64."""
        return columns["row_groups"] * columns["row_tiles"], columns["column_groups"] * columns["width"] / PANEL

    @staticmethod
    def _threads(columns: Columns) -> np.ndarray:
        return WARP_GROUP * columns["row_groups"] * columns["column_groups"]

    def _shared(self, columns: Columns) -> np.ndarray:
        tall, wide = self._tiles(columns)
        sums = _shared_sums(self.read, columns["row_groups"] * PANEL, wide * PANEL)
        return np.asarray((tall + wide) * PANEL * STEPS * 2.0 * columns["versions"] + 1024 + sums)

    def _registers(self, columns: Columns) -> np.ndarray:
        return np.asarray(columns["row_tiles"] * columns["width"] / 2 + 40.0)


class WarpTilesPart(Part):
    """This part computes tiles of 16 by 16 sums by warps. Its decisions are the warps of a block along rows and columns,
    the tiles of a warp, ``steps`` of 16 between two copies into shared memory, and ``versions`` of the copied tiles."""

    structure = ("row_warps", "column_warps", "row_tiles", "column_tiles")

    def __init__(self, program: Program, group: Group, machine: GpuModel) -> None:
        self.group, self.machine = group, machine
        self.read = not program.is_output(group.anchor)
        block = self.block = group.anchor
        self.name = f"warps_{block.name}"
        self.dtype = str(block.loads[0].buffer.dtype)
        self.bytes = block.loads[0].buffer.dtype.bytes
        self.m, self.n, self.k = (block.extents[v] // TILE for v in (*block.spatial, *block.reduce))
        self.decisions = (
            Decision("row_warps", (1, 2, 4)), Decision("column_warps", (1, 2, 4)), Decision("row_tiles", (1, 2, 3, 4)),
            Decision("column_tiles", (1, 2, 3, 4)), Decision("steps", (1, 2, 4)), Decision("versions", (1, 2, 3, 4)),
        )  # fmt: skip

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        sizes = WarpTiles(
            self.dtype, (row["row_warps"], row["column_warps"]), (row["row_tiles"], row["column_tiles"]), row["steps"],
            self._lanes(row["steps"]), row["versions"],
        )  # fmt: skip
        warp_product(sch, self.block.name, sizes, _epilogue(sch, self.group, self.read))

    def _lanes(self, steps: int) -> int:
        """Returns the elements that a thread copies at once: 16 bytes of a line."""
        return min(16 // self.bytes, steps * TILE)

    def mask(self, columns: Columns, rows: int) -> np.ndarray:
        tall, wide = self._tiles(columns)
        divides = (self.m % tall == 0) & (self.n % wide == 0) & (self.k % columns["steps"] == 0)
        threads, lanes = self._threads(columns), 16 // self.bytes
        together = threads * lanes
        copied = (tall * columns["steps"] * TILE**2 % together == 0) & (
            wide * columns["steps"] * TILE**2 % together == 0
        )
        ahead = (columns["versions"] <= self.k / columns["steps"]) | (columns["versions"] == 1)
        return np.asarray(
            divides & copied & ahead & self.machine.fits(threads, self._shared(columns), self._registers(columns))
        )

    def costs(self, columns: Columns, rows: int) -> Costs:
        block, machine = self.block, self.machine
        (tall, wide), threads = self._tiles(columns), self._threads(columns)
        blocks, warps = self.m / tall * (self.n / wide), threads / WARP
        steps = self.k / columns["steps"]
        sums = columns["row_tiles"] * columns["column_tiles"]
        fragments = columns["row_tiles"] + columns["column_tiles"]
        each = TILE * TILE * self.bytes
        tile_bytes = (tall + wide) * columns["steps"] * each
        copies = tile_bytes / 16 / threads
        products = columns["steps"] * sums * 2 / _RATE[self.dtype]
        instructions = products + columns["steps"] * fragments * (each / 128 / 4 + 4) + 6 * copies + 10
        moved = blocks * steps * tile_bytes
        matrix = 2.0 * TILE**3 * sums * columns["steps"] * warps / machine.matrix_flops / _RATE[self.dtype]
        waiting = np.where(columns["versions"] > 1, FETCH_CYCLES / columns["versions"], FETCH_CYCLES + 200.0)
        busy = np.maximum(instructions * np.maximum(1.0, warps / 4), matrix)
        return machine.costs(
            rows, flops=block.flops, issue_slots=blocks * warps * steps * instructions,
            matrix_flops=block.flops / _RATE[self.dtype],
            shared_wavefronts=blocks * steps * (warps * columns["steps"] * fragments * each / 128 + tile_bytes / 128),
            l2_bytes=moved + 4.0 * block.spatial_size,
            memory_bytes=machine.memory_bytes(touched_bytes(self.group.blocks), moved, blocks),
            blocks=blocks, threads=threads, registers=self._registers(columns), shared_bytes=self._shared(columns),
            chain_cycles=steps * (busy + 2 * BARRIER_CYCLES + np.maximum(0.0, waiting - busy)) + 1500.0,
            coalescing=np.minimum(1.0, columns["steps"] * TILE * self.bytes / SECTOR), conflicts=1.0,
            versions=columns["versions"], rows=columns["row_tiles"], columns=columns["column_tiles"],
            step=columns["steps"] * TILE, steps=steps, reduction=float(block.reduce_size),
            row_extent=float(self.m * TILE), column_extent=float(self.n * TILE), variant=1.0,
        )  # fmt: skip

    @staticmethod
    def _tiles(columns: Columns) -> tuple[np.ndarray, np.ndarray]:
        """Returns the tiles of a block along rows and columns."""
        return columns["row_warps"] * columns["row_tiles"], columns["column_warps"] * columns["column_tiles"]

    @staticmethod
    def _threads(columns: Columns) -> np.ndarray:
        return WARP * columns["row_warps"] * columns["column_warps"]

    def _shared(self, columns: Columns) -> np.ndarray:
        tall, wide = self._tiles(columns)
        left = tall * TILE * (columns["steps"] * TILE * self.bytes + 16)
        right = columns["steps"] * TILE * (wide * TILE * self.bytes + 16)
        sums = _shared_sums(self.read, columns["row_warps"] * TILE, wide * TILE)
        return np.asarray((left + right) * columns["versions"] + sums)

    def _registers(self, columns: Columns) -> np.ndarray:
        fragment = 8.0 * self.bytes / 2
        sums = columns["row_tiles"] * columns["column_tiles"]
        return 8.0 * sums + fragment * (columns["row_tiles"] + columns["column_tiles"]) + 40.0


register_rule(GpuMatrixUnitRule())
