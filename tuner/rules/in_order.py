"""This rule takes blocks whose loops keep their order. These are scans, which read earlier instances, triangles of
loops, and blocks that share loops with other statements.

Their outermost spatial loop is parallel and their innermost spatial loop is vectorized. Loops are not reordered, except
that a reduction in the block's own loops goes around the spatial loop that becomes vectors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ...schedule import Schedule
from ...tir.expr import IntImm, Var, is_const_int
from ..cost.axis_roles import lane_loads
from ..cost.cost_features import Costs, ceil_div, up_to
from ..cost.machine_model import MachineModel, worth_threads
from ..program import BlockInfo, Program
from .schedule_rule import Decision, Group, Part, ScheduleRule, register_rule


class InOrderRule(ScheduleRule):
    """This rule takes any block that keeps the order of its loops, by itself."""

    name = "in_order"
    priority = 95
    in_order = True

    def match(self, program: Program, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        return Group(block, (block,)) if block.keeps_order else None

    def parts(self, program: Program, group: Group, machine: MachineModel) -> list[Part]:
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
        machine, block = self.machine, self.block
        width = columns["vectors"] * self.lanes
        scalar = width == 0
        inner = float(max(1, self.inner))
        steps = np.where(scalar, inner, ceil_div(inner, np.maximum(width, 1.0)))
        around = block.spatial_size * block.reduce_size * self._others / inner
        vectors = around * steps * np.maximum(columns["vectors"], 1.0)
        latency = np.where(scalar, machine.fma_latency, 1.0 / machine.fma_pipes)
        moved = float(sum(b.num_bytes() or 0 for b in {u.buffer for u in (*block.loads, *block.stores)}))
        last = self.last
        more = [] if last is None else [lane_loads(u, last, self.lanes) - 1 for u in block.loads]
        more += [self.lanes for u in block.stores if last is not None and u.stride(last) not in (0, 1)]
        strided = float(sum(more))
        return Costs(rows).put(
            core_cycles=vectors * block.operations * latency,
            load_cycles=vectors * (len(block.loads) + np.where(scalar, 0.0, strided)) / machine.loads_per_cycle,
            store_cycles=vectors / machine.stores_per_cycle,
            loop_cycles=around * (12.0 + 1.5 * steps),
            l2_bytes=moved,
            l3_bytes=moved if moved > machine.l2_bytes else 0.0,
            memory_bytes=moved if moved > machine.l3_bytes else 0.0,
            flops=block.flops,
            regions=float(self.parallel),
            lanes_used=np.where(scalar, 1.0, float(self.lanes)),
            columns=columns["vectors"],
            strided=strided / self.lanes,
            tasks=float(block.extents[block.axes[0]]) if self.parallel else 1.0,
            column_extent=inner,
        )

    @property
    def _others(self) -> int:
        """Returns the instances along axes that are neither spatial nor reduced."""
        block = self.block
        return math.prod(block.extents[v] for v in block.axes if v not in block.spatial and v not in block.reduce)


register_rule(InOrderRule())
