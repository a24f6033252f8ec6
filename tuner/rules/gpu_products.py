"""Products and convolutions on GPUs by threads: tiles in shared memory, sums in registers. Schedule, costs and rule."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...codegen.machine.target import BANKS, BARRIER_CYCLES, FETCH_CYCLES, SECTOR, WARP
from ...schedule import Schedule
from ...tir.expr import Add, BufferLoad, Cast, Mul
from ...tir.stmt import BufferStore
from ..cost.cost_features import Columns, Costs, ceil_div, up_to
from ..cost.gpu_model import GpuModel, GpuProduct, gpu_product, touched_bytes
from ..cost.machine_model import MachineModel
from ..loop_steps import copy_ahead, extent_of, fuse_all, loops_within, unroll_factor
from ..program import BlockInfo, ProgramInfo, Use
from .product_form import OperandOrder, ProductAxes, axis_of_runs, in_product_form, length_of_lines, pads_around_lines
from .schedule_rule import Decision, Group, Part, ScheduleRule


@dataclass(frozen=True)
class ThreadTiles:
    """The tiles of a product over some ``axes``.

    ``sizes_of_rows`` and ``sizes_of_columns``: the virtual threads, the threads and the elements of one thread along each. ``step``: how
    far the sums go between two copies into shared memory. ``versions``: of the tiles in shared memory; with more than one, copies run ahead of
    the sums by that many steps less one. ``lanes``: the columns that a thread stores at once.
    """

    axes: ProductAxes
    sizes_of_rows: tuple[int, int, int] = (2, 8, 4)
    sizes_of_columns: tuple[int, int, int] = (2, 8, 4)
    step: int = 8
    versions: int = 1
    lanes: int = 1

    @property
    def threads(self) -> tuple[int, int]:
        """The threads of a block along y and x."""
        return self.sizes_of_rows[1], self.sizes_of_columns[1]


@dataclass(frozen=True)
class OperandTiles:
    """How an operand comes into shared memory. ``left``: it has the rows.
    ``by_step``: the steps of a row (or column) are neighbours in memory, so that neighbouring threads copy them. ``lanes``: the elements
    that a thread copies at once."""

    buffer: str
    left: bool
    by_step: bool = True
    lanes: int = 1


def threaded_product(
    sch: Schedule, block: Any, tiles: ThreadTiles, operands: Sequence[OperandTiles], epilogue: Any = None,
    padding: Sequence[str] = (),
) -> None:  # fmt: skip
    """Schedule ``block`` as ``C[b, i, j] += A[b, i, k] * B[b, k, j]`` with fused axes, tiles of which threads compute.

    ``epilogue`` is the element-wise stage that alone reads the result; without one, a copy writes the result.
    ``padding`` names stages that are inlined into the copies to shared memory. These also find the elements by the fused axes, and
    hold zeros where tiles are longer than an axis.
    """
    block = sch.get_block(block) if isinstance(block, str) else block
    orders = [OperandOrder(o.buffer, o.left, o.left and o.by_step) for o in operands]
    multiples = (math.prod(tiles.sizes_of_rows), math.prod(tiles.sizes_of_columns), tiles.step)
    copies, out = in_product_form(sch, block, tiles.axes, orders, multiples, epilogue, padding)
    *batch, i, j, k = sch.get_loops(block)
    r = sch.split(i, [None, *tiles.sizes_of_rows])
    c = sch.split(j, [None, *tiles.sizes_of_columns])
    outer, inner = sch.split(k, [None, tiles.step])
    sch.reorder(*batch, r[0], c[0], r[1], c[1], r[2], c[2], outer, inner, r[3], c[3])
    if batch:
        sch.bind(batch[0], "blockIdx.z")
    most, other = ("x", "y") if extent_of(sch, r[0]) > extent_of(sch, c[0]) else ("y", "x")
    sch.bind(r[0], f"blockIdx.{most}")
    sch.bind(c[0], f"blockIdx.{other}")
    for n, axis in ((1, "vthread"), (2, "threadIdx")):
        sch.bind(r[n], f"{axis}.y")
        sch.bind(c[n], f"{axis}.x")
    sch.reverse_compute_at(out, c[2])
    for copy in copies:
        sch.set_scope(copy, 0, "shared")
        sch.compute_at(copy, outer)
    for copy, operand in zip(copies, operands, strict=True):
        _copy_together(sch, copy, outer, tiles, operand)
    copy_ahead(sch, outer, tiles.versions)
    for loop in (inner, r[3], c[3]):
        unroll_factor(sch, loop, 16 if extent_of(sch, loop) <= 16 else 8)
    *rest, last = loops_within(sch, out, c[2]) or [None]
    for loop in rest:
        sch.unroll(loop)
    if last is not None and tiles.lanes > 1:
        last, lanes = sch.split(last, [None, tiles.lanes])
        sch.vectorize(lanes)
    if last is not None:
        sch.unroll(last)


def _copy_together(sch: Schedule, copy: Any, outer: Any, tiles: ThreadTiles, operand: OperandTiles) -> None:
    """Let all threads of the block copy elements that are neighbours in memory."""
    own = loops_within(sch, copy, outer)
    if not own:
        return
    buffer = sch.get(copy).writes[0].buffer
    turned = operand.by_step and not operand.left
    if turned and len(own) > 1:
        sch.reorder(own[-1], own[-2])
        own = loops_within(sch, copy, outer)
    if turned:
        sch.storage_align(copy, 0, -2, BANKS, 16 // buffer.dtype.bytes)
    y, x = tiles.threads
    lanes, line, total = operand.lanes, extent_of(sch, own[-1]), math.prod(extent_of(sch, loop) for loop in own)
    while lanes > 1 and (line % lanes or total % (x * y * lanes)):
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
    the length of a tile along the reduced axes, and ``versions`` of the tiles in shared memory."""

    structure = ("row_threads", "column_threads", "row_elements", "column_elements")

    def __init__(self, product: GpuProduct, machine: GpuModel) -> None:
        self.product, self.machine = product, machine
        block = self.block = product.block
        self.roles = product.roles
        self.name = f"threads_{block.name}"
        self.others, self.rows, self.columns, self.steps = product.sizes
        self.inner = axis_of_runs(block)
        self.adds_zeros = _is_sum_of_products(block)
        self.padded = {use.buffer for b in product.padding for use in b.stores}
        self.decisions = (
            *self._cuts("row", self.rows),
            *self._cuts("column", self.columns),
            Decision("step", up_to(self.steps, 1, 2, 4, 8, 16, 32)),
            Decision("versions", (1,) if self.steps == 1 else (1, 2, 3, 4)),
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
        block, roles, step = self.block, self.roles, row["step"]
        tiles = ThreadTiles(
            ProductAxes.of(block, roles, step), (row["row_turns"], row["row_threads"], row["row_elements"]),
            (row["column_turns"], row["column_threads"], row["column_elements"]), step, row["versions"],
            self._lanes_of_result(row["column_elements"]),
        )  # fmt: skip
        operands = [
            OperandTiles(use.buffer.name, use is roles.left, roles.by_step(use), self._most_lanes(use, step))
            for use in block.loads
        ]
        after = None if self.product.epilogue is None else self.product.epilogue.name
        threaded_product(sch, block.name, tiles, operands, after, [b.name for b in self.product.padding])

    def _most_lanes(self, use: Use, step: int) -> int:
        """Returns how many elements of an operand a thread can copy at once, 16 bytes or one."""
        block, by_step = self.block, self.roles.by_step(use)
        wide = 16 // use.buffer.dtype.bytes if use.buffer.dtype.bits == 32 else 1
        if by_step and (self.inner is not None or use is self.roles.right or step % wide):
            return 1
        if not pads_around_lines(use, self.product.padding):
            return 1
        return wide if length_of_lines(use, block.reduce if by_step else self.roles.side(use), block) % wide == 0 else 1

    def _lanes_of_result(self, elements: int) -> int:
        """Returns how many columns a thread stores at once, 16 bytes or one."""
        (store,), wide = self.block.stores, 4
        lines = length_of_lines(store, self.roles.columns, self.block)
        return wide if self.block.itemsize == 4 and lines % wide == 0 and elements % wide == 0 else 1

    def mask(self, columns: Columns, rows: int) -> np.ndarray:
        threads, (tall, wide) = self._threads(columns), self._tile(columns)
        useful = (tall < 2 * self.rows) & (wide < 2 * self.columns)
        least = min(WARP, self.rows * self.columns)
        small = self._own(columns)[0] <= 128
        fits = self.machine.fits(threads, self._shared(columns), self._registers(columns))
        ahead = (columns["versions"] == 1) | (columns["versions"] <= ceil_div(self.steps, columns["step"]))
        whole = (self.steps % columns["step"] == 0) | self.adds_zeros
        return np.asarray(fits & useful & small & ahead & whole & (threads >= least))

    def costs(self, columns: Columns, rows: int) -> Costs:
        block, machine = self.block, self.machine
        threads, (tall, wide) = self._threads(columns), self._tile(columns)
        sums, own_rows, own_columns = self._own(columns)
        blocks = ceil_div(self.rows, tall) * ceil_div(self.columns, wide) * self.others
        steps = ceil_div(self.steps, columns["step"])
        each = columns["step"]  # instances of one element of the result in a step
        warps = np.ceil(threads / WARP)
        loads = [self._elements(use, columns) for use in block.loads]
        copied = np.sum(
            [np.ceil(n / threads / self._lanes(use, columns)) for use, n in zip(block.loads, loads, strict=True)],
            axis=0,
        )
        indexed = np.sum([self._indexing(use) * np.ceil(n / threads / self._lanes(use, columns))
                          for use, n in zip(block.loads, loads, strict=True)], axis=0)  # fmt: skip
        tile_bytes = np.sum([n * use.buffer.dtype.bytes for use, n in zip(block.loads, loads, strict=True)], axis=0)
        along = (
            np.minimum(4.0, columns["step"])
            if self.roles.by_step(self.roles.left)
            else np.minimum(columns["row_elements"], 4)
        )
        read = own_rows / along + own_columns / np.minimum(columns["column_elements"], 4)
        # without copies ahead a step has two barriers, and waits that other blocks do not fill whole
        idle = np.where(columns["versions"] == 1, 1.1, 1.0)
        instructions = idle * (each * (sums * max(1.0, block.operations / 2) + read) + indexed + 8.0)
        conflicts = self._conflicts(columns)
        turns = own_rows / along * conflicts + own_columns / np.minimum(columns["column_elements"], 4) * np.maximum(
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

    def _indexing(self, use: Use) -> float:
        """Returns the instructions of copying an element: its place, and whether it lies in the padding."""
        return 12.0 if use.buffer in self.padded else 5.0 if use.plain else 8.0

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

    def _elements(self, use: Use, columns: Columns) -> np.ndarray:
        """Returns the elements of an operand that a block copies for one step."""
        tall, wide = self._tile(columns)
        return np.asarray(columns["step"] * (tall if use is self.roles.left else wide))

    def _lanes(self, use: Use, columns: Columns) -> np.ndarray:
        most = np.array([self._most_lanes(use, int(step)) for step in range(33)], float)
        whole = self._elements(use, columns) % (4 * self._threads(columns)) == 0
        return np.where(whole, most[columns["step"].astype(int)], 1.0)

    def _shared(self, columns: Columns) -> np.ndarray:
        total = sum(self._elements(use, columns) * use.buffer.dtype.bytes for use in self.block.loads)
        return np.asarray(total * np.minimum(columns["versions"], ceil_div(self.steps, columns["step"])))

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


def _is_sum_of_products(block: BlockInfo) -> bool:
    """Returns whether zeros in the operands add nothing to the results."""
    body = block.block.body
    added = body.value if isinstance(body, BufferStore) else None
    if (
        not isinstance(added, Add)
        or not isinstance(added.a, BufferLoad)
        or added.a.buffer is not block.stores[0].buffer
    ):
        return False
    factors = (
        [x.value if isinstance(x, Cast) else x for x in (added.b.a, added.b.b)] if isinstance(added.b, Mul) else []
    )
    return bool(factors) and all(isinstance(x, BufferLoad) for x in factors)
