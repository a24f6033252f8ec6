"""Products and convolutions on GPUs, by threads and on matrix units: schedules, costs and rules.

:func:`threaded_product`, for convolutions too: tiles in shared memory, accumulators in registers. :func:`warp_product`: tiles of 16
by 16, sums in registers of warps. :func:`group_product` (``wgmma`` of sm_90a): operands in swizzled shared memory, sums in
registers. The two for matrix units share the steps below them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...codegen.machine.target import BANKS, BARRIER_CYCLES, FETCH_CYCLES, SECTOR, WARP
from ...schedule import Schedule
from ...tir.expr import Var
from ..cost.cost_features import Columns, Costs, ceil_div, up_to
from ..cost.gpu_model import GpuModel, GpuProduct, gpu_product, tile_elements, touched_bytes
from ..cost.machine_model import MachineModel
from ..loop_steps import copy_ahead, extent_of, fuse_all, loops_within, unroll_factor
from ..program import BlockInfo, ProgramInfo
from .schedule_rule import Decision, Group, Part, ScheduleRule


@dataclass(frozen=True)
class ThreadTiles:
    """The tiles of a product. ``row`` and ``column`` are numbers of spatial loops of the block.

    ``rows`` and ``columns``: the virtual threads, the threads and the elements of one thread along each. ``step``: how
    far the first reduced loop goes between two copies into shared memory. ``lanes``: the elements that a thread copies at
    once, where they divide the lines of the tile. ``versions``: of the tiles in shared memory; with more than one, copies run
    ahead of the sums by that many steps less one.
    """

    row: int
    column: int
    rows: tuple[int, int, int] = (2, 8, 4)
    columns: tuple[int, int, int] = (2, 8, 4)
    step: int = 8
    lanes: int = 4
    versions: int = 1

    @property
    def threads(self) -> tuple[int, int]:
        """The threads of a block along y and x."""
        return self.rows[1], self.columns[1]


def threaded_product(
    sch: Schedule, block: Any, spatial: int, tiles: ThreadTiles, epilogue: Any = None, padding: Sequence[str] = ()
) -> None:
    """Schedule ``block``, whose first ``spatial`` loops are those of its result.

    ``epilogue`` is the element-wise stage that alone reads the result; without one, a copy writes the result.
    ``padding`` names stages that are inlined into the copies to shared memory.
    """
    block = sch.get_block(block) if isinstance(block, str) else block
    if epilogue is None:
        out = sch.cache_write(block, 0, "local")
    else:
        out = sch.get_block(epilogue) if isinstance(epilogue, str) else epilogue
        sch.set_scope(block, 0, "local")
    loops = list(sch.get_loops(block))
    reduced, rest = (
        loops[spatial:],
        [loop for n, loop in enumerate(loops[:spatial]) if n not in (tiles.row, tiles.column)],
    )
    r = sch.split(loops[tiles.row], [None, *tiles.rows])
    c = sch.split(loops[tiles.column], [None, *tiles.columns])
    outer, inner = sch.split(reduced[0], [None, tiles.step])
    sch.reorder(*rest, r[0], c[0], r[1], c[1], r[2], c[2], outer, inner, *reduced[1:], r[3], c[3])
    if rest:
        sch.bind(fuse_all(sch, rest), "blockIdx.z")
    for n, axis in enumerate(("blockIdx", "vthread", "threadIdx")):
        sch.bind(r[n], f"{axis}.y")
        sch.bind(c[n], f"{axis}.x")
    sch.reverse_compute_at(out, c[2])
    copies = [sch.cache_read(block, n, "shared") for n in range(len(sch.get(block).reads))]
    for copy in copies:
        sch.compute_at(copy, outer)
    for copy in copies:
        _copy_together(sch, copy, outer, tiles, lanes=1 if padding else tiles.lanes)
    for name in padding:
        sch.compute_inline(name)
    if not padding:
        copy_ahead(sch, outer, tiles.versions)
    for loop in (inner, *reduced[1:], r[3], c[3]):
        unroll_factor(sch, loop, 16 if extent_of(sch, loop) <= 16 else 8)
    for loop in loops_within(sch, out, c[2]):
        sch.unroll(loop)


def _copy_together(sch: Schedule, copy: Any, outer: Any, tiles: ThreadTiles, lanes: int) -> None:
    """Let all threads of the block copy neighbouring elements."""
    own = loops_within(sch, copy, outer)
    if not own:
        return
    y, x = tiles.threads
    line, total = extent_of(sch, own[-1]), math.prod(extent_of(sch, loop) for loop in own)
    whole = sch.get(copy).reads[0].buffer.shape[-1]
    while lanes > 1 and (line % lanes or total % (x * y * lanes) or int(whole) % lanes):
        lanes //= 2
    parts = sch.split(fuse_all(sch, own), [None, y, x, *([lanes] if lanes > 1 else [])])
    sch.bind(parts[1], "threadIdx.y")
    sch.bind(parts[2], "threadIdx.x")
    if lanes > 1:
        sch.vectorize(parts[3])


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
