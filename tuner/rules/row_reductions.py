"""This rule schedules reductions along rows, such as softmax, norms and sums. It computes all stages of a row together,
while it is in the cache. The recipe is :func:`..recipes.sweeps.sweep_rows`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ...schedule import Schedule
from ..cost.axis_roles import row_group
from ..cost.cost_features import Costs, ceil_div, up_to
from ..cost.machine_model import MachineModel, crowding, worth_threads
from ..program import BlockInfo, ProgramInfo
from ..recipes.sweeps import RowSweep, sweep_rows
from .schedule_rule import Decision, Group, Part, ScheduleRule, register_rule


class RowReductionRule(ScheduleRule):
    """This rule takes blocks that share their leading axes (the rows), of which at least one reduces the other axes."""

    name = "row_reduction"
    priority = 20

    def match(self, program: ProgramInfo, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        members = row_group(program, block, free)
        return None if members is None else Group(block, members)

    def parts(self, program: ProgramInfo, group: Group, machine: MachineModel) -> list[Part]:
        return [RowPart(group, machine)]


class RowPart(Part):
    """This part computes all stages of some rows together. Its decisions are ``accumulators`` (independent vectors of
    partial sums), ``unroll`` of the loop over the row, ``vectors`` per iteration of the element-wise stages, and
    ``rows`` that are computed together: while one waits for its horizontal sum, another continues."""

    structure = ("accumulators", "vectors", "rows")

    def __init__(self, group: Group, machine: MachineModel) -> None:
        self.group, self.machine = group, machine
        self.anchor = group.anchor
        self.parallel = worth_threads(machine, group.blocks)
        self.rank = len(self.anchor.spatial)
        self.lanes = machine.lanes(self.anchor.itemsize)
        self.name = f"rows_{self.anchor.name}"
        row = math.ceil(max(self._row_size(b) for b in group.blocks) / self.lanes)
        reductions = [b.reduce_size for b in group.blocks if b.is_reduction]
        steps = math.ceil(max(reductions) / self.lanes)
        self.decisions = (
            Decision("accumulators", up_to(steps, 1, 2, 4, 8)),
            Decision("unroll", up_to(steps, 1, 2, 4)),
            Decision("vectors", up_to(row, 1, 2, 4, 8)),
            Decision("rows", tuple(r for r in (1, 2, 4, 8, 16) if self._last_extent() % r == 0)),
        )

    def _last_extent(self) -> int:
        """Returns the rows along the innermost of their axes; 1 where the recipe cannot compute several rows at a
        time."""
        blocks = self.group.blocks
        simple = all(len(b.reduce) <= 1 and len(b.stores) == 1 for b in blocks)
        return self.anchor.extents[self.anchor.spatial[-1]] if self.anchor.spatial and simple else 1

    def _row_size(self, block: BlockInfo) -> int:
        """Returns the elements of one row that the block goes through."""
        return block.reduce_size * math.prod(block.extents[v] for v in block.spatial[self.rank :])

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        sweep_rows(
            sch,
            [b.name for b in self.group.blocks],
            RowSweep(
                self.lanes,
                self.rank,
                row["rows"],
                row["accumulators"],
                row["vectors"],
                row["unroll"],
                shared=self.parallel,
            ),
        )

    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        machine = self.machine
        count = math.prod(self.anchor.extents[v] for v in self.anchor.spatial)
        core, loads, stores, overhead = np.zeros(rows), np.zeros(rows), np.zeros(rows), np.zeros(rows)
        width = columns["accumulators"] * self.lanes
        together = columns["rows"]
        for info in self.group.blocks:
            size = self._row_size(info)
            step = width if info.is_reduction else columns["vectors"] * self.lanes
            steps = ceil_div(size, step)
            vectors = steps * step / self.lanes
            work = vectors * info.operations / machine.fma_pipes
            if info.is_reduction:
                work = np.maximum(work, steps * machine.fma_latency / together)
                crowded = np.maximum(1.0, columns["accumulators"] * together / (0.75 * machine.registers))
                work = work * crowded  # accumulators that registers do not hold are stored and loaded
                waits = (1 + 1 / together) / 2  # half of a horizontal sum is waiting, which other rows fill
                overhead = overhead + waits * (4 * np.log2(np.maximum(width, 2.0)) + 6 * columns["accumulators"])
                trip = columns["unroll"] * columns["accumulators"] * together
                overhead = overhead + 10 + 2 * steps / (columns["unroll"] * together) + trip / 2
            else:
                overhead = overhead + 10 + 2 * steps / columns["unroll"]
            core = core + work
            loads = loads + vectors * len(info.loads) / machine.loads_per_cycle
            stores = stores + (0 if info.is_reduction else vectors / machine.stores_per_cycle)
        moved = self._bytes()
        row_bytes = max(self._row_size(b) * b.itemsize for b in self.group.blocks)
        if row_bytes % 4096 == 0 and not all(b.is_reduction for b in self.group.blocks):
            # rows at the same places of their pages: their lines and pending stores collide
            overhead = overhead + loads * (together - 1) / 2
        streams = 0.6 + 0.4 / together  # memory delivers several streams faster than one
        streams = streams * (1.0 + crowding(together, row_bytes, machine))  # whose lines may share a set
        again = (len(self.group.blocks) > 1) * (2 * row_bytes * together > machine.l1_bytes) * moved
        return Costs(rows).put(
            core_cycles=core * count,
            load_cycles=loads * count,
            store_cycles=stores * count,
            loop_cycles=overhead * count,
            l2_bytes=moved + again,
            l3_bytes=streams * float(moved if moved > machine.l2_bytes else 0),
            memory_bytes=streams * float(moved if moved > machine.l3_bytes else 0),
            flops=sum(b.flops for b in self.group.blocks),
            regions=float(self.parallel),
            lanes_used=float(self.lanes),
            accumulators=columns["accumulators"],
            columns=columns["vectors"],
            unroll=columns["unroll"],
            reduction=float(self.anchor.reduce_size),
            row_extent=float(count),
            column_extent=float(self._row_size(self.anchor)),
            tasks=float(max(1, count)) if self.parallel else 1.0,
            tasks_per_core=float(count) / machine.cores,
            epilogue=float(len(self.group.blocks)),
        )

    def _bytes(self) -> int:
        inside = {use.buffer for b in self.group.blocks for use in b.stores}
        seen = {use.buffer: use for b in self.group.blocks for use in (*b.loads, *b.stores)}
        outside = [b for b in seen if b not in inside]
        last = {use.buffer for use in self.group.blocks[-1].stores}
        return sum(b.num_bytes() or 0 for b in (*outside, *last))


register_rule(RowReductionRule())
