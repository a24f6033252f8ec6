"""This rule computes attention and its like by one kernel: a product, stages of its rows, and a second product. The recipe is
:mod:`..recipes.gpu_row_chain`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ...codegen.machine.gpu_figures import BARRIER_CYCLES, FETCH_CYCLES, WARP
from ...schedule import Schedule
from ..cost.cost_features import Costs, ceil_div
from ..cost.gpu_model import GpuModel
from ..cost.gpu_roles import product_axes, special_operations, touched_bytes
from ..cost.machine_model import MachineModel
from ..cost.row_groups import rows_agree
from ..program import BlockInfo, Program
from ..recipes.gpu_row_chain import LANES, RowChain, row_chain
from .schedule_rule import Decision, Group, Part, ScheduleRule, register_rule


class GpuRowChainRule(ScheduleRule):
    """This rule takes a product with all stages that its rows are computed from. One of these is a product as well."""

    name = "gpu_row_chain"
    priority = 9
    gpu = True
    fuses = True

    def match(self, program: Program, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        if product_axes(block) is None or len(block.spatial) < 2:
            return None
        members = _sources(program, block, free)
        products = [b for b in members if b is not block and product_axes(b) is not None]
        inner = [b for b in members if b is not block]
        hidden = all(not program.is_output(b) and set(program.consumers(b)) <= set(members) for b in inner)
        rank = len(block.spatial) - 1
        if len(products) != 1 or len(inner) < 2 or not hidden or not rows_agree(members, block, rank):
            return None
        wide = len(products[0].spatial) == rank + 1 and len(products[0].reduce) == len(block.reduce) == 1
        paired = block.extents[block.spatial[rank - 1]] % 2 == 0
        return Group(block, tuple(members)) if wide and paired else None

    def parts(self, program: Program, group: Group, machine: MachineModel) -> list[Part]:
        return [RowChainPart(group, machine)] if isinstance(machine, GpuModel) else []


def _sources(program: Program, block: BlockInfo, free: Sequence[BlockInfo]) -> list[BlockInfo]:
    """Returns the blocks among ``free`` that ``block`` is computed from, and itself, in program order."""
    members, todo = {block}, [block]
    while todo:
        found = [b for b in program.producers(todo.pop()) if b in free and b not in members]
        members |= set(found)
        todo += found
    return [b for b in program.blocks if b in members]


class RowChainPart(Part):
    """This part keeps some rows of all stages in shared memory. Its decisions are the ``rows`` of a block, and the ``teams`` of
    32 threads among which they are divided."""

    structure = ("rows", "teams")

    def __init__(self, group: Group, machine: GpuModel) -> None:
        self.blocks, self.anchor, self.machine = group.blocks, group.anchor, machine
        self.rank = len(self.anchor.spatial) - 1
        self.first = next(b for b in self.blocks if product_axes(b) is not None)
        self.name = f"chain_{self.anchor.name}"
        self.columns = self.first.extents[self.first.spatial[-1]]
        self.all_rows = math.prod(self.anchor.extents[v] for v in self.anchor.spatial[: self.rank])
        near = self.anchor.extents[self.anchor.spatial[self.rank - 1]]
        rows = tuple([n for n in (2, 4, 8, 16, 32) if near % n == 0])
        self.decisions = (Decision("rows", rows), Decision("teams", (1, 2, 4, 8, 16)))

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        how = RowChain(row["rows"], row["teams"])
        row_chain(sch, [b.name for b in self.blocks], self.first.name, self.rank, how)

    def mask(self, columns: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        threads = LANES * columns["teams"]
        fits = self.machine.fits(threads, self._shared(columns), 40.0 + 3 * columns["rows"])
        return np.asarray(fits & (columns["rows"] % columns["teams"] == 0))

    def _shared(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        each = sum(
            b.itemsize * math.prod(b.extents[v] for v in b.spatial[self.rank :])
            for b in self.blocks
            if b is not self.anchor
        )
        return np.asarray(columns["rows"] * each)

    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        machine, together, teams = self.machine, columns["rows"], columns["teams"]
        blocks, threads = self.all_rows / together, LANES * teams
        wide, deep = self.anchor.extents[self.anchor.spatial[-1]], self.first.reduce_size
        products = 0.5 * (self.first.flops + self.anchor.flops)
        per_block = products / blocks / threads  # multiply-adds of a thread
        own = ceil_div(wide, LANES) * together / teams  # sums of a thread in the second product
        loads = per_block / 2 * (1 / together + 1 / 4) + per_block / 2 * (1 / own + 1 / 4)
        stages = [b for b in self.blocks if b is not self.anchor and b is not self.first]
        steps = sum(
            ceil_div(math.prod(b.extents[v] for v in b.spatial[self.rank :]) * b.reduce_size, LANES) for b in stages
        )
        each = per_block + loads + together / teams * steps * 8.0
        moved = touched_bytes(self.blocks)
        operands = self.columns * (deep + wide) * self.anchor.itemsize
        warps = threads / WARP
        return machine.costs(
            rows, flops=sum(b.flops for b in self.blocks), issue_slots=blocks * warps * each, fma_lanes=products,
            special_lanes=sum(special_operations(b) * b.spatial_size * b.reduce_size for b in stages),
            shared_wavefronts=blocks * warps * (per_block / 2 / 4 + together / teams * steps * 2.0),
            l2_bytes=blocks * operands + moved, memory_bytes=moved, blocks=blocks, threads=threads,
            registers=40.0 + 3 * together, shared_bytes=self._shared(columns),
            chain_cycles=each * np.maximum(2.0, warps / 4) + FETCH_CYCLES * 4 + BARRIER_CYCLES * 2 * len(stages),
            coalescing=1.0, rows=together, columns=teams, reduction=float(self.columns), row_extent=float(self.all_rows),
            column_extent=float(wide), variant=5.0,
        )  # fmt: skip


register_rule(GpuRowChainRule())
