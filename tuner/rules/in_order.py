"""These rules take blocks whose loops keep their order, on processors and on GPUs.

They are scans, which read earlier instances, triangles of loops, and blocks that share loops with other statements.
On processors their outermost spatial loop is parallel and their innermost spatial loop is vectorized. Loops are not
reordered, except that a reduction in the block's own loops goes around the spatial loop that becomes vectors. On GPUs the
outermost spatial loop is on blocks and threads, the others as they stand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ...codegen.machine.target import FETCH_CYCLES, WARP
from ...schedule import Schedule
from ...tir.expr import IntImm, Var, is_const_int
from ..cost.cost_features import Costs, ceil_div, up_to
from ..cost.gpu_model import GpuModel
from ..cost.loop_nest import swept_bytes
from ..cost.machine_model import MachineModel, worth_threads
from ..cost.walker import Walk, WalkedLoop
from ..program import BlockInfo, ProgramInfo
from .schedule_rule import Decision, Group, Part, ScheduleRule


class InOrderRule(ScheduleRule):
    """This rule takes any block that keeps the order of its loops, by itself."""

    name = "in_order"
    priority = 95
    in_order = True

    def match(self, program: ProgramInfo, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        return Group(block, (block,)) if block.keeps_order else None

    def parts(self, program: ProgramInfo, group: Group, machine: MachineModel) -> list[Part]:
        return [InOrderPart(group.anchor, machine)]


def _reduction_inside(block: BlockInfo, own: Sequence[Var]) -> int:
    """Returns how many of the block's own innermost axes reduce, where their order may change. Rows that are contiguous
    in what it reads are left to the code generator."""
    count = 0
    while count < len(own) and own[-1 - count] in block.reduce:
        count += 1
    known = block.block.init is not None and all(isinstance(loop.extent, IntImm) for loop in block.loops)
    return count if known and count < len(own) else 0


class InOrderPart(Part):
    """This part has the decision ``vectors`` per iteration of the innermost loop; 0 leaves the loop as it is."""

    structure = ("vectors",)

    def __init__(self, block: BlockInfo, machine: MachineModel) -> None:
        self.block, self.machine = block, machine
        self.name = f"in_order_{block.name}"
        self.lanes = machine.lanes(block.itemsize)
        own = block.axes[block.shared :]
        spatial = [axis in block.spatial for axis in own]
        self.parallel = len(spatial) > 1 and spatial[0] and not block.shared and worth_threads(machine, [block])
        self.around = _reduction_inside(block, own)
        last = own[-1 - self.around] if len(own) > self.around and spatial[-1 - self.around] else None
        begins = {axis: loop.min for axis, loop in zip(block.axes, block.loops, strict=True)}
        usable = last is not None and block.extents[last] > 1 and is_const_int(begins[last], 0)
        self.last = last if usable else None
        self.inner = block.extents[self.last] if self.last is not None else 0
        vectors = up_to(math.ceil(self.inner / self.lanes), 1, 2, 4) if self.inner else ()
        self.decisions = (Decision("vectors", (0, *vectors)),)

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        block = sch.get_block(self.block.name)
        loops = list(sch.get_loops(block))
        if row["vectors"]:
            width, vector = row["vectors"] * self.lanes, loops[len(loops) - 1 - self.around]
            lanes, reduction = [vector], loops[len(loops) - self.around :]
            extent = sch.get(vector).extent
            if not isinstance(extent, IntImm) or extent.value > width:
                lanes = list(sch.split(vector, [None, width]))
            if reduction:
                sch.reorder(*lanes[:-1], *reduction, lanes[-1])
                init = sch.decompose_reduction(block, reduction[0])
                sch.vectorize(sch.get_loops(init)[-1])
            sch.vectorize(lanes[-1])
        if self.parallel:
            sch.parallel(loops[0])

    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        block, last = self.block, self.last
        scalar = columns["vectors"] == 0
        each = [self._walk(some, columns, rows) for some in (None, last)]
        counts = [walk.counts() for walk in each]
        if len(block.spatial) + len(block.reduce) < len(block.axes):  # each step waits for the one before
            counts[0]["core_cycles"] = counts[0]["core_cycles"] * self.machine.fma_latency * self.machine.fma_pipes
        moved = float(block.array_bytes)
        more = [self.lanes for u in block.stores if last is not None and u.stride(last) not in (0, 1)]
        counts[1]["store_cycles"] = counts[1]["store_cycles"] * max(1, *more, 1)
        return Costs(rows).put(
            **{name: np.where(scalar, counts[0][name], counts[1][name]) for name in counts[0]},
            **swept_bytes(moved, self.machine, beyond=block.bytes_from_beyond),
            flops=block.flops,
            regions=float(self.parallel),
            lanes_used=np.where(scalar, 1.0, float(self.lanes)),
            columns=columns["vectors"],
            strided=float(bool(more)),
            tasks=float(block.extents[block.axes[0]]) if self.parallel else 1.0,
            column_extent=float(max(1, self.inner)),
        )

    def _walk(self, vector: Var | None, columns: Mapping[str, np.ndarray], rows: int) -> Walk:
        """Returns the loops as they are nested, with vectors along the axis ``vector``, or without."""
        loops, size = [], np.ones(rows)
        if vector is not None:
            size = np.minimum(np.maximum(columns["vectors"], 1.0) * self.lanes, self.inner)
            loops.append(WalkedLoop(vector, size, written_out=True))
        own = [v for v in reversed(self.block.axes) if v is not vector]
        loops += [WalkedLoop(v, np.full(rows, float(self.block.extents[v]))) for v in own[: self.around]]
        if vector is not None:
            loops.append(WalkedLoop(vector, ceil_div(self.inner, size)))
        loops += [WalkedLoop(v, np.full(rows, float(self.block.extents[v]))) for v in own[self.around :]]
        return Walk(self.block, self.machine, loops, rows, vector=vector, lanes=self.lanes)


class GpuOrderRule(ScheduleRule):
    """This rule takes the blocks that share an outermost loop with one that keeps its order."""

    name = "gpu_in_order"
    priority = 80
    in_order = True
    gpu = True

    def match(self, program: ProgramInfo, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        if not block.keeps_order:
            return None
        together = tuple([b for b in free if b is block or (block.loops and b.loops[:1] == block.loops[:1])])
        return Group(block, together)

    def parts(self, program: ProgramInfo, group: Group, machine: MachineModel) -> list[Part]:
        return [OrderPart(group, machine)] if isinstance(machine, GpuModel) else []


class OrderPart(Part):
    """This part gives each iteration of the outermost loop a thread, where no other one needs what it computes. Else
    one thread does everything. Its decision is ``threads`` of a block."""

    def __init__(self, group: Group, machine: GpuModel) -> None:
        self.blocks, self.machine, block = group.blocks, machine, group.anchor
        self.name = f"in_order_{block.name}"
        outer = block.loops[0] if block.loops else None
        self.free = all(b.loops and b.realize.iter_values and _is_spatial(b, b.loops[0].loop_var) for b in self.blocks)
        self.extent = outer.extent.value if self.free and outer is not None and isinstance(outer.extent, IntImm) else 1
        self.decisions = (Decision("threads", (32, 64, 128, 256) if self.extent > 1 else (1,)),)

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        name = self.blocks[0].name
        if self.extent > 1:
            outer, thread = sch.split(sch.get_loops(name)[0], [None, row["threads"]])
        else:
            loops = sch.get_loops(name)
            thread = sch.add_unit_loop(loops[0] if loops else sch.get_block(name))
            outer = sch.add_unit_loop(thread)
        sch.bind(outer, "blockIdx.x")
        sch.bind(thread, "threadIdx.x")

    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        flops = sum(b.flops for b in self.blocks)
        threads = columns["threads"]
        each = 8.0 * flops / self.extent
        return self.machine.costs(
            rows, flops=flops, issue_slots=8.0 * flops * np.maximum(1.0, WARP / np.minimum(threads, WARP)),
            blocks=ceil_div(self.extent, threads), threads=threads, registers=40.0,
            chain_cycles=1000.0 + each * 4.0 + FETCH_CYCLES * each / 32,
        )  # fmt: skip


def _is_spatial(block: BlockInfo, loop: object) -> bool:
    values = block.realize.iter_values
    return any(v is loop and iv.var in block.spatial for iv, v in zip(block.block.iter_vars, values, strict=True))
