"""This rule takes blocks whose loops keep their order: scans, which read earlier instances, and triangles of loops.

Their outermost spatial loop is parallel and their innermost spatial loop is vectorized; loops are not reordered.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ...schedule import Schedule
from ...tir.expr import IntImm
from ..cost.cost_features import Costs
from ..cost.machine_model import MachineModel, worth_threads
from ..cost.step_sizes import ceil_div, up_to
from ..program import BlockInfo, Program
from .schedule_rule import Group, ScheduleRule, register_rule
from .sketch_part import Decision, Part


class InOrderRule(ScheduleRule):
    """This rule takes any block that keeps the order of its loops, by itself."""

    name = "in_order"
    priority = 95
    in_order = True

    def match(self, program: Program, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        return Group(block, (block,)) if block.keeps_order else None

    def parts(self, program: Program, group: Group, machine: MachineModel) -> list[Part]:
        return [InOrderPart(group.anchor, machine)]


class InOrderPart(Part):
    """This part has the decision ``vectors`` per iteration of the innermost loop; 0 leaves the loop as it is."""

    structure = ("vectors",)

    def __init__(self, block: BlockInfo, machine: MachineModel) -> None:
        self.block, self.machine = block, machine
        self.name = f"in_order_{block.name}"
        self.lanes = machine.lanes(block.itemsize)
        spatial = [axis in block.spatial for axis in block.axes]
        self.parallel = len(spatial) > 1 and spatial[0] and worth_threads(machine, [block])
        last = block.axes[-1] if spatial and spatial[-1] else None
        self.inner = block.extents[last] if last is not None and block.extents[last] > 1 else 0
        vectors = up_to(math.ceil(self.inner / self.lanes), 1, 2, 4) if self.inner else ()
        self.decisions = (Decision("vectors", (0, *vectors)),)

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        loops = sch.get_loops(sch.get_block(self.block.name))
        if row["vectors"]:
            width = row["vectors"] * self.lanes
            extent = sch.get(loops[-1]).extent
            if not isinstance(extent, IntImm) or extent.value > width:
                _, lanes = sch.split(loops[-1], [None, width])
            else:
                lanes = loops[-1]
            sch.vectorize(lanes)
        if self.parallel:
            sch.parallel(loops[0])

    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        machine, block = self.machine, self.block
        width = columns["vectors"] * self.lanes
        scalar = width == 0
        inner = float(max(1, self.inner))
        steps = np.where(scalar, inner, ceil_div(inner, np.maximum(width, 1.0)))
        around = block.spatial_size * block.reduce_size * self._others / inner
        vectors = around * steps * np.maximum(columns["vectors"], 1.0)
        latency = np.where(scalar, machine.fma_latency, 1.0 / machine.fma_pipes)
        moved = float(sum(b.num_bytes() or 0 for b in {u.buffer for u in (*block.loads, *block.stores)}))
        strided = sum(1 for u in (*block.loads, *block.stores) if self.inner and (u.stride(block.axes[-1]) or 2) > 1)
        return Costs(rows).put(
            core_cycles=vectors * block.operations * latency,
            load_cycles=vectors
            * (len(block.loads) + strided * np.where(scalar, 0, self.lanes))
            / machine.loads_per_cycle,
            store_cycles=vectors / machine.stores_per_cycle,
            loop_cycles=around * (12.0 + 1.5 * steps),
            l2_bytes=moved,
            l3_bytes=moved if moved > machine.l2_bytes else 0.0,
            memory_bytes=moved if moved > machine.l3_bytes else 0.0,
            flops=block.flops,
            regions=float(self.parallel),
            lanes_used=np.where(scalar, 1.0, float(self.lanes)),
            columns=columns["vectors"],
            strided=float(strided),
            tasks=float(block.extents[block.axes[0]]) if self.parallel else 1.0,
            column_extent=inner,
        )

    @property
    def _others(self) -> int:
        """Instances along axes that are neither spatial nor reduced."""
        block = self.block
        return math.prod(block.extents[v] for v in block.axes if v not in block.spatial and v not in block.reduce)


register_rule(InOrderRule())
