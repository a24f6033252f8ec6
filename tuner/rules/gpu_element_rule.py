"""This rule schedules element-wise stages, and all others that no other rule takes, on GPUs. It decides elements per
thread, and transposes through shared memory. The recipes are those of
:mod:`..recipes.gpu_elements`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ...codegen.machine.gpu_figures import BARRIER_CYCLES, FETCH_CYCLES, SECTOR, WARP
from ...schedule import Schedule
from ...tir.expr import Var
from ..cost.cost_features import Columns, Costs, ceil_div
from ..cost.gpu_model import GpuModel
from ..cost.gpu_roles import share_used, special_operations, touched_bytes
from ..cost.machine_model import MachineModel
from ..program import BlockInfo, Program, copies
from ..recipes.gpu_elements import spread_elements, staged_transpose
from .schedule_rule import Decision, Group, Part, ScheduleRule, register_rule


class GpuElementRule(ScheduleRule):
    """This rule takes any block by itself. A thread runs reductions alone."""

    name = "gpu_elements"
    priority = 90
    gpu = True

    def match(self, program: Program, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        return Group(block, (block,))

    def parts(self, program: Program, group: Group, machine: MachineModel) -> list[Part]:
        block = group.anchor
        if not isinstance(machine, GpuModel):
            return []
        parts: list[Part] = [ElementThreadsPart(block, machine)]
        across = transposed_axis(block)
        if across is not None:
            parts.append(TransposePart(block, across, machine))
        return parts


def transposed_axis(block: BlockInfo) -> int | None:
    """Returns the number of the loop along which the only input of a copy is contiguous. None stands for the last
    loop."""
    if block.is_reduction or len(block.loads) != 1 or not block.loads[0].affine or len(block.spatial) < 2:
        return None
    use, last = block.loads[0], block.spatial[-1]
    found = [n for n, v in enumerate(block.spatial[:-1]) if use.stride(v) == 1 and block.extents[v] > 1]
    if not found or (use.stride(last) or 0) < 2 or block.extents[last] < 2 or not use.plain:
        return None
    return found[0]


def neighbours(block: BlockInfo) -> int:
    """Returns how many neighbours along the last axis a thread may take at once. Every access of them is contiguous or
    one element, and rows are a multiple of them."""
    wide = [v for v in block.spatial if block.extents[v] > 1]
    if block.is_reduction or not wide or not all(use.affine for use in (*block.loads, *block.stores)):
        return 1
    last, uses = wide[-1], [use for use in (*block.loads, *block.stores) if use.dims]
    if any(use.stride(last) not in (0, 1) or any(use.offsets) for use in uses) or block.spatial[-1] is not last:
        return 1
    size = max([use.buffer.dtype.bytes for use in uses], default=4)
    extent = block.extents[last]
    return max([n for n in (1, 2, 4, 8) if extent % n == 0 and n * size <= 16], default=1)


class ElementThreadsPart(Part):
    """This part gives each thread ``lanes`` neighbouring elements, in blocks of ``threads``."""

    structure = ("lanes",)

    def __init__(self, block: BlockInfo, machine: GpuModel) -> None:
        self.block, self.machine = block, machine
        self.name = f"map_{block.name}"
        most = neighbours(block)
        wide = [v for v in block.spatial if block.extents[v] > 1]
        self.last: Var | None = wide[-1] if wide else None
        self.decisions = (
            Decision(
                "threads", tuple([t for t in (32, 64, 128, 256, 512, 1024) if t < 2 * max(block.spatial_size, WARP)])
            ),
            Decision("lanes", tuple([n for n in (1, 2, 4, 8) if n <= most])),
        )

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        block = self.block
        if block.axes != (*block.spatial, *block.reduce):
            loops = dict(zip(block.axes, sch.get_loops(block.name), strict=True))
            sch.reorder(*[loops[v] for v in (*block.spatial, *block.reduce)])
        spread_elements(sch, block.name, len(block.reduce), row["threads"], row["lanes"])

    def costs(self, columns: Columns, rows: int) -> Costs:
        block, machine = self.block, self.machine
        threads, lanes = columns["threads"], columns["lanes"]
        blocks = ceil_div(block.spatial_size, threads * lanes)
        accesses = sum(1 for use in (*block.loads, *block.stores) if use.dims)
        used = share_used(block, self.last, lanes)
        each = block.reduce_size * (lanes * block.operations + 2.0 * accesses) + 8.0
        moved = touched_bytes([block])
        return machine.costs(
            rows, flops=block.flops, issue_slots=blocks * threads / WARP * each,
            special_lanes=special_operations(block) * block.spatial_size * block.reduce_size, l2_bytes=moved / used,
            memory_bytes=moved / used, blocks=blocks, threads=threads, registers=20.0 + 4.0 * lanes,
            chain_cycles=1000.0 + FETCH_CYCLES * math.ceil(block.reduce_size / 4) + each * np.maximum(1.0, threads / WARP / 4),
            coalescing=used, lanes=lanes, steps=float(block.reduce_size),
            bytes_in_flight=lanes * block.itemsize * max(1, len(block.loads)), reduction=float(block.reduce_size),
            row_extent=float(block.spatial_size),
        )  # fmt: skip


class TransposePart(Part):
    """This part takes squares of ``tile`` elements through shared memory, ``lines`` of a square at a time."""

    structure = ("tile",)

    def __init__(self, block: BlockInfo, across: int, machine: GpuModel) -> None:
        self.block, self.across, self.machine = block, across, machine
        self.name = f"squares_{block.name}"
        self.decisions = (Decision("tile", (16, 32, 64)), Decision("lines", (4, 8, 16)))

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        staged_transpose(sch, self.block.name, self.across, tile=row["tile"], rows=row["lines"])

    def mask(self, columns: Columns, rows: int) -> np.ndarray:
        return self.machine.fits(
            columns["tile"] * columns["lines"],
            columns["tile"] * (columns["tile"] + 1) * self.block.itemsize,
            np.full(rows, 32.0),
        )

    def costs(self, columns: Columns, rows: int) -> Costs:
        block, machine, tile = self.block, self.machine, columns["tile"]
        tall, wide = block.extents[block.spatial[self.across]], block.extents[block.spatial[-1]]
        blocks = ceil_div(tall, tile) * ceil_div(wide, tile) * (block.spatial_size / (tall * wide))
        threads = tile * columns["lines"]
        each = tile / columns["lines"] * (block.operations + 14.0)
        used = np.minimum(1.0, tile * block.itemsize / SECTOR)
        moved = touched_bytes([block])
        return machine.costs(
            rows, flops=block.flops, issue_slots=blocks * threads / WARP * each,
            special_lanes=special_operations(block) * block.spatial_size,
            shared_wavefronts=2.0 * blocks * tile * np.maximum(1.0, tile * block.itemsize / 128), l2_bytes=moved / used,
            memory_bytes=moved / used, blocks=blocks, threads=threads, registers=32.0,
            shared_bytes=tile * (tile + 1) * block.itemsize,
            chain_cycles=1000.0 + FETCH_CYCLES + BARRIER_CYCLES + each * np.maximum(1.0, threads / WARP / 4),
            coalescing=used, lanes=1.0, rows=columns["lines"], columns=tile,
            bytes_in_flight=block.itemsize * np.minimum(4.0, tile / columns["lines"]),
            row_extent=float(tall), column_extent=float(wide), variant=0.0 if copies(block) else 1.0,
        )  # fmt: skip


register_rule(GpuElementRule())
