"""These rules schedule products and convolutions on GPUs, by threads and on matrix units.

The recipes are those of :mod:`..recipes.gpu_products`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...codegen.machine.gpu_figures import BANKS, BARRIER_CYCLES, FETCH_CYCLES, GROUP_RATE, SECTOR, WARP, WARP_GROUP
from ...schedule import Schedule
from ...schedule.intrin.matrix_units import STEPS
from ...tir.expr import Var
from ...tir.expr.intrinsics.group_matrix_operations import PANEL
from ..cost.cost_features import Columns, Costs, ceil_div, up_to
from ..cost.gpu_model import GpuModel, GpuProduct, epilogue_of, gpu_product, multiplied, tile_elements, touched_bytes
from ..cost.machine_model import MachineModel
from ..program import BlockInfo, ProgramInfo
from ..recipes.gpu_products import (
    GROUP_WORDS,
    SUMS,
    SUMS_OFFSET,
    TILE,
    WORDS,
    GroupTiles,
    ThreadTiles,
    WarpTiles,
    group_product,
    threaded_product,
    warp_product,
)
from .schedule_rule import Decision, Group, Part, ScheduleRule, register_rule


class GpuTilingRule(ScheduleRule):
    """This rule takes a sum of products of two operands. The stages that pad them and the one that takes the result
    belong to it."""

    name = "gpu_tiling"
    priority = 10
    gpu = True

    def match(self, program: ProgramInfo, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        product = gpu_product(program, block, free)
        return None if product is None else Group(block, product.blocks)

    def parts(self, program: ProgramInfo, group: Group, machine: MachineModel) -> list[Part]:
        product = gpu_product(program, group.anchor, group.blocks)
        if product is None or not isinstance(machine, GpuModel):
            return []
        return [ThreadTilesPart(product, machine)]


class ThreadTilesPart(Part):
    """This part computes tiles in shared memory with sums in registers. Of rows and columns each it decides the virtual
    threads (``row_turns``), the threads (``row_threads``) and the elements of a thread (``row_elements``); then ``step``,
    the length of a tile along the first reduced axis, and ``versions`` of the tiles in shared memory."""

    structure = ("row_threads", "column_threads", "row_elements", "column_elements")

    def __init__(self, product: GpuProduct, machine: GpuModel) -> None:
        self.product, self.machine = product, machine
        block = self.block = product.block
        self.name = f"threads_{block.name}"
        self.rows, self.columns = block.extents[product.row], block.extents[product.column]
        self.first = block.extents[block.reduce[0]]
        self.inner = block.reduce_size // max(1, self.first)
        self.others = block.spatial_size // (self.rows * self.columns)
        versions = (1,) if product.padding or self.first == 1 else (1, 2, 3, 4)
        self.decisions = (
            *self._cuts("row", self.rows),
            *self._cuts("column", self.columns),
            Decision("step", up_to(self.first, 1, 2, 4, 8, 16, 32)),
            Decision("versions", versions),
        )

    @staticmethod
    def _cuts(name: str, extent: int) -> list[Decision]:
        threads = [n for n in (1, 2, 4, 8, 16, 32) if n < 2 * extent]
        return [
            Decision(f"{name}_turns", (1, 2) if extent >= 32 else (1,)),
            Decision(f"{name}_threads", tuple(threads)),
            Decision(f"{name}_elements", tuple([n for n in (1, 2, 4, 8) if n < 2 * extent])),
        ]

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        block, product = self.block, self.product
        wide = block.itemsize == 4 and all(use.buffer.dtype.bits == 32 for use in block.loads)
        tiles = ThreadTiles(
            block.spatial.index(product.row), block.spatial.index(product.column),
            (row["row_turns"], row["row_threads"], row["row_elements"]),
            (row["column_turns"], row["column_threads"], row["column_elements"]),
            row["step"], 4 if wide else 1, row["versions"],
        )  # fmt: skip
        after = None if product.epilogue is None else product.epilogue.name
        threaded_product(
            sch, block.name, len(block.spatial), tiles, after, [b.name for b in product.padding]
        )  # fmt: skip

    def mask(self, columns: Columns, rows: int) -> np.ndarray:
        threads, (tall, wide) = self._threads(columns), self._tile(columns)
        useful = (tall < 2 * self.rows) & (wide < 2 * self.columns)
        least = min(WARP, self.rows * self.columns)
        small = self._own(columns)[0] <= 128
        fits = self.machine.fits(threads, self._shared(columns), self._registers(columns))
        ahead = (columns["versions"] == 1) | (columns["versions"] <= ceil_div(self.first, columns["step"]))
        return np.asarray(fits & useful & small & ahead & (threads >= least) & (columns["step"] * self.inner <= 128))

    def costs(self, columns: Columns, rows: int) -> Costs:
        block, machine = self.block, self.machine
        threads, (tall, wide) = self._threads(columns), self._tile(columns)
        sums, own_rows, own_columns = self._own(columns)
        blocks = ceil_div(self.rows, tall) * ceil_div(self.columns, wide) * self.others
        steps = ceil_div(self.first, columns["step"])
        each = columns["step"] * self.inner  # instances of one element of the result in a step
        warps = np.ceil(threads / WARP)
        loads = [self._elements(use, columns) for use in block.loads]
        copied = np.sum(
            [np.ceil(n / threads / self._lanes(use, n, threads)) for use, n in zip(block.loads, loads, strict=True)],
            axis=0,
        )
        tile_bytes = np.sum([n * use.buffer.dtype.bytes for use, n in zip(block.loads, loads, strict=True)], axis=0)
        wide_rows = np.minimum(4.0, columns["step"]) if self.inner == 1 else np.ones(rows)
        read = own_rows / wide_rows + own_columns / np.minimum(columns["column_elements"], 4)
        instructions = each * (sums * max(1.0, block.operations / 2) + read) + 5.0 * copied + 8.0
        conflicts = self._conflicts(columns)
        turns = own_rows / wide_rows * conflicts + own_columns / np.minimum(columns["column_elements"], 4) * np.maximum(
            1.0, np.minimum(columns["column_threads"], WARP) * columns["column_elements"] / WARP
        )
        used = np.minimum(1.0, np.minimum(columns["step"], wide) * block.itemsize / SECTOR)
        moved = blocks * steps * tile_bytes / used + block.spatial_size * block.itemsize
        waiting = np.where(columns["versions"] > 1, FETCH_CYCLES / columns["versions"], FETCH_CYCLES + 200.0)
        busy = instructions * np.maximum(1.0, warps / 4)
        return machine.costs(
            rows, flops=block.flops, issue_slots=blocks * warps * steps * instructions,
            fma_lanes=blocks * tall * wide * steps * each * max(1.0, block.operations / 2),
            shared_wavefronts=blocks * warps * steps * (each * turns + copied),
            l2_bytes=moved, memory_bytes=machine.memory_bytes(touched_bytes(self.product.blocks), moved, blocks),
            blocks=blocks, threads=threads, registers=self._registers(columns), shared_bytes=self._shared(columns),
            chain_cycles=steps * (np.maximum(busy, 4.0 * each) + BARRIER_CYCLES + np.maximum(0.0, waiting - busy)) + 1500.0,
            coalescing=used, conflicts=conflicts, versions=columns["versions"], rows=own_rows, columns=own_columns,
            step=each, steps=steps, reduction=float(block.reduce_size), row_extent=float(self.rows),
            column_extent=float(self.columns),
        )  # fmt: skip

    # -- what a row of decisions means -----------------------------------------------------------------------------------

    @staticmethod
    def _threads(columns: Columns) -> np.ndarray:
        return columns["row_threads"] * columns["column_threads"]

    @staticmethod
    def _own(columns: Columns) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the sums of a thread, and its rows and columns."""
        tall = columns["row_turns"] * columns["row_elements"]
        wide = columns["column_turns"] * columns["column_elements"]
        return tall * wide, tall, wide

    def _tile(self, columns: Columns) -> tuple[np.ndarray, np.ndarray]:
        _, tall, wide = self._own(columns)
        return tall * columns["row_threads"], wide * columns["column_threads"]

    def _elements(self, use: object, columns: Columns) -> np.ndarray:
        """Returns the elements of an operand that a block copies for one step."""
        tall, wide = self._tile(columns)
        block = self.block
        steps: dict[Var, np.ndarray | float] = {v: float(block.extents[v]) for v in block.reduce[1:]}
        steps |= {self.product.row: np.minimum(tall, self.rows), self.product.column: np.minimum(wide, self.columns)}
        return tile_elements(use, {**steps, block.reduce[0]: columns["step"]})  # type: ignore[arg-type]

    def _lanes(self, use: object, elements: np.ndarray, threads: np.ndarray) -> np.ndarray:
        wide = not self.product.padding and self.block.itemsize == 4
        return np.where((elements % (4 * threads) == 0) & wide, 4.0, 1.0)

    def _shared(self, columns: Columns) -> np.ndarray:
        total = sum(self._elements(use, columns) * use.buffer.dtype.bytes for use in self.block.loads)
        return np.asarray(total * np.minimum(columns["versions"], ceil_div(self.first, columns["step"])))

    def _registers(self, columns: Columns) -> np.ndarray:
        sums, tall, wide = self._own(columns)
        return sums + 2.5 * (tall + wide) + 30.0

    @staticmethod
    def _conflicts(columns: Columns) -> np.ndarray:
        """Returns how many turns the threads of a warp take to read their rows of the left tile."""
        different = np.maximum(1.0, WARP / np.minimum(columns["column_threads"], WARP))
        distance = np.maximum(1.0, columns["row_elements"] * columns["step"])
        apart = BANKS / np.gcd(distance.astype(np.int64), BANKS)
        return np.maximum(1.0, different / apart)


register_rule(GpuTilingRule())


_RATE = {"float16": 1.0, "bfloat16": 1.0, "float32": 0.5, "int8": 2.0}
"""How fast matrix units multiply operands of a type, relative to float16."""


class GpuMatrixUnitRule(ScheduleRule):
    """This rule takes products of a type that matrix units of GPUs have. They are ``C[i, j] += A[i, k] * B[k, j]`` of
    float16, bfloat16, int8, or float32 rounded to tf32; 16 divides all extents. The element-wise stage that alone reads
    the result belongs to it."""

    name = "gpu_matrix_units"
    priority = 5
    gpu = True

    def match(self, program: ProgramInfo, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        if not _operand_type(block):
            return None
        after = epilogue_of(program, block, free)
        whole = after is not None and [after.extents[v] for v in after.axes] == [
            block.extents[v] for v in block.spatial
        ]
        return Group(block, (block, after) if after is not None and whole else (block,))

    def parts(self, program: ProgramInfo, group: Group, machine: MachineModel) -> list[Part]:
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

    def __init__(self, program: ProgramInfo, group: Group, machine: GpuModel) -> None:
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

    def __init__(self, program: ProgramInfo, group: Group, machine: GpuModel) -> None:
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
