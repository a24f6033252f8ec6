"""This rule puts blocks that keep the order of their loops on GPUs. These are scans, triangles, and loops with several
statements: the outermost spatial loop is on blocks and threads, the others as they stand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...codegen.machine.gpu_figures import FETCH_CYCLES, WARP
from ...schedule import Schedule
from ...tir.expr import IntImm
from ..cost.cost_features import Costs, ceil_div
from ..cost.gpu_model import GpuModel
from ..cost.machine_model import MachineModel
from ..program import BlockInfo, Program
from .schedule_rule import Decision, Group, Part, ScheduleRule, register_rule


class GpuOrderRule(ScheduleRule):
    """This rule takes the blocks that share an outermost loop with one that keeps its order."""

    name = "gpu_in_order"
    priority = 80
    in_order = True
    gpu = True

    def match(self, program: Program, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        if not block.keeps_order:
            return None
        together = tuple([b for b in free if b is block or (block.loops and b.loops[:1] == block.loops[:1])])
        return Group(block, together)

    def parts(self, program: Program, group: Group, machine: MachineModel) -> list[Part]:
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


register_rule(GpuOrderRule())
