"""Recurrences along one axis whose other axes are independent, such as running sums: the schedule, its costs and its rule.

A step needs the one before, so the steps stay in order, and what is independent lies beside them: vectors along the axis
that is contiguous in memory; where that is the axis of the steps itself, several rows side by side, whose steps overlap in
the processor's pipelines, or a vector of rows, whose steps code generation transposes in registers. All other axes are
outside, and shared by the threads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ...schedule import Schedule
from ...tir.expr import IntImm, Var, is_const_int
from ...tir.stmt import Buffer
from ..cost.axis_roles import lane_loads
from ..cost.cost_features import Costs, ceil_div, up_to
from ..cost.machine_model import MachineModel, crowding, worth_threads
from ..loop_steps import fuse_all
from ..program import BlockInfo, ProgramInfo
from .schedule_rule import Decision, Group, Part, ScheduleRule

_FORWARDING_CYCLES = 5.0
"""From the store of an element to the use of what a load of it gives, in cycles."""

_MOST_TURNED = 16
"""The most rows that code generation transposes at a time."""


class RecurrenceRule(ScheduleRule):
    """This rule takes a block with one axis of steps, each of which reads earlier ones of its own row."""

    name = "recurrences"
    priority = 94
    in_order = True

    def match(self, program: ProgramInfo, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        return Group(block, (block,)) if axis_of_steps(block) is not None else None

    def parts(self, program: ProgramInfo, group: Group, machine: MachineModel) -> list[Part]:
        return [RecurrencePart(group.anchor, machine)]


def axis_of_steps(block: BlockInfo) -> Var | None:
    """Returns the axis along which the block needs its own results, where all others are independent; else None."""
    steps = [v for v in block.axes if v not in block.spatial]
    if len(steps) != 1 or block.reduce or block.shared or len(block.spatial) == 0 or block.obstacle is not None:
        return None
    if not all(isinstance(loop.extent, IntImm) for loop in block.loops):
        return None
    starts = {axis: loop.min for axis, loop in zip(block.axes, block.loops, strict=True)}
    if not all(is_const_int(starts[v], 0) for v in block.spatial):
        return None
    own = {use.buffer for use in block.stores}
    for use in (*block.stores, *block.loads):
        if use.buffer not in own:
            continue
        others = [(dim, k) for dim, k in zip(use.dims, use.offsets, strict=True) if dim is None or steps[0] not in dim]
        if len(others) != len(block.spatial) or any(dim is None or len(dim) != 1 or k for dim, k in others):
            return None
        if {(v, k) for dim, _ in others for v, k in (dim or {}).items()} != {(v, 1) for v in block.spatial}:
            return None
    return steps[0]


def vectors_kept(block: BlockInfo) -> float:
    """Returns how many of the loads read what the step before stored, which a register keeps."""
    own = {use.buffer for use in block.stores}
    return float(sum(use.buffer in own for use in block.loads))


class RecurrencePart(Part):
    """This part computes so many ``vectors`` of a step along the contiguous axis, or so many ``rows`` side by side.

    With ``apart`` chunks of vectors are computed one after the other, each through all steps. With ``turned`` the rows are
    the lanes of a vector.
    """

    def __init__(self, block: BlockInfo, machine: MachineModel) -> None:
        self.block, self.machine = block, machine
        self.name = f"recurrence_{block.name}"
        self.lanes = machine.lanes(block.itemsize)
        self.parallel = worth_threads(machine, [block])
        store = block.stores[0]
        near = [v for v in block.spatial if store.stride(v) == 1 and block.extents[v] > 1]
        self.vector = near[0] if near else None
        wide = [v for v in block.spatial if block.extents[v] > 1]
        rest = wide[-1] if wide else block.spatial[-1]
        self.beside = rest if self.vector is None else self.vector
        self.inner = block.extents[self.beside]
        if self.vector is not None:
            self.decisions = (Decision("vectors", up_to(math.ceil(self.inner / self.lanes), 1, 2, 4, 8)),)
            if self.inner > self.lanes:  # chunks of rows one after the other, or a step of all of them
                self.decisions += (Decision("apart", (0, 1)),)
        else:
            self.decisions = (Decision("rows", up_to(self.inner, 1, 2, 4, 8, 16)),)
            self.turned = min(self.lanes, _MOST_TURNED)
            if self._may_turn():
                self.decisions += (Decision("turned", (0, 1)),)
        self.structure = (self.decisions[0].name,)

    def _may_turn(self) -> bool:
        """Returns whether the steps of a vector of rows are squares of memory."""
        steps = next(v for v in self.block.axes if v not in self.block.spatial)
        uses = (*self.block.stores, *self.block.loads)
        along = all(use.affine and use.stride(steps) in (0, 1) for use in uses)
        whole = self.inner % self.turned == 0 or 4 * math.ceil(self.inner / self.turned) * self.turned <= 5 * self.inner
        return along and whole and self.turned >= 4 and self.block.extents[steps] >= 4

    def mask(self, columns: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        if "turned" not in columns:
            return np.ones(rows, dtype=bool)
        return np.asarray((columns["turned"] == 0) | (columns["rows"] == self.turned))

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        block = self.block
        loops = dict(zip(block.axes, sch.get_loops(sch.get_block(block.name)), strict=True))
        width = min(row["vectors"] * self.lanes if self.vector is not None else row["rows"], self.inner)
        outer = [loops[v] for v in block.spatial if v is not self.beside]
        steps = next(loops[v] for v in block.axes if v not in block.spatial)
        inside = [loops[self.beside]]
        if width < self.inner:
            inside = list(sch.split(loops[self.beside], [None, width]))
        within = inside[-1:]
        if self.vector is None or row.get("apart", 0):
            outer, inside = [*outer, *inside[:-1]], []
        sch.interchange(*outer, steps, *inside[:-1], *within)
        if self.vector is not None or row.get("turned", 0):
            sch.vectorize(within[0])
        elif width > 1:
            sch.unroll(within[0])
        if self.parallel and outer:
            sch.parallel(fuse_all(sch, outer))

    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        machine, block = self.machine, self.block
        every = float(block.spatial_size * self._steps)
        latency = _FORWARDING_CYCLES + machine.fma_latency
        if self.vector is not None:
            vectors = columns["vectors"]
            chunks = ceil_div(self.inner, vectors * self.lanes)
            issued = every / self.inner * chunks * vectors
            loads = np.full(rows, sum(lane_loads(u, self.vector, self.lanes) for u in block.loads))
            apart = columns.get("apart", np.zeros(rows))
            chain = apart * every / self.inner * chunks * machine.fma_latency
            turns = every / self.inner * (chunks * 1.5 + 4.0 * (1 - apart))
            loads = loads - apart * vectors_kept(block)
        else:
            beside = columns["rows"]
            groups = ceil_div(self.inner, beside)
            issued = every / self.inner * groups * beside
            crowd = crowding(
                beside * len(self._arrays), abs(block.stores[0].stride(self.beside) or 0) * block.itemsize, machine
            )
            loads = len(block.loads) + len(self._arrays) * machine.jump_cycles * crowd
            chain = every / self.inner * groups * latency
            turns = every / self.inner * groups * 1.5
            if "turned" in columns:
                turned = columns["turned"] > 0
                squares = every / self.inner / self._steps * groups * math.ceil(self._steps / self.turned)
                arrays = sum(use.stride(self.beside) != 0 for use in (*block.loads, *block.stores)) - vectors_kept(
                    block
                )
                shuffles = squares * self.turned * math.log2(self.turned) * arrays * 1.2
                waits = squares * self.turned * machine.fma_latency / 2  # the other half is filled with shuffles
                issued = np.where(turned, squares * self.turned, issued)
                loads = np.where(turned, float(len(block.loads)), loads)
                starts = every / self.inner / self._steps * groups * 3.0 * self.turned  # lane by lane
                chain = np.where(turned, shuffles + waits + starts, chain)
                turns = np.where(turned, squares * 20.0, turns)
        moved = float(sum(b.num_bytes() or 0 for b in self._arrays))
        return Costs(rows).put(
            core_cycles=np.maximum(issued * block.operations / machine.fma_pipes, chain),
            load_cycles=issued * loads / machine.loads_per_cycle,
            store_cycles=issued / machine.stores_per_cycle,
            loop_cycles=turns,
            l2_bytes=moved,
            l3_bytes=moved if moved > machine.l2_bytes else 0.0,
            memory_bytes=moved if moved > machine.l3_bytes else 0.0,
            flops=block.flops,
            regions=float(self.parallel),
            lanes_used=np.where(
                columns.get("turned", np.zeros(rows)) > 0, self.lanes, self.lanes if self.vector is not None else 1
            ),
            columns=columns[self.decisions[0].name],
            tasks=self._tasks(columns, rows) if self.parallel else 1.0,
            column_extent=float(self.inner),
        )

    def _tasks(self, columns: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        """Returns how many pieces of work the threads share: rows, or chunks of them."""
        others = np.full(rows, float(self.block.spatial_size // self.inner))
        if self.vector is None:
            return others * ceil_div(self.inner, columns["rows"])
        chunks = ceil_div(self.inner, columns["vectors"] * self.lanes)
        return np.maximum(others * np.where(columns.get("apart", np.zeros(rows)) > 0, chunks, 1.0), 1.0)

    @property
    def _arrays(self) -> set[Buffer]:
        return {u.buffer for u in (*self.block.loads, *self.block.stores)}

    @property
    def _steps(self) -> int:
        return math.prod(self.block.extents[v] for v in self.block.axes if v not in self.block.spatial)
