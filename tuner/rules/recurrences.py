"""Recurrences along one axis whose other axes are independent, such as running sums: the schedule, its costs and its rule.

A step needs the one before, so the steps stay in order, and what is independent lies beside them: vectors along the axis
that is contiguous in memory; where that is the axis of the steps itself, several rows side by side, whose steps overlap in
the processor's pipelines, or a vector of rows, whose steps code generation transposes in registers. Steps that combine
what the one before stored with one more term, as running sums do, become prefix sums within vectors. All other axes are
outside, and shared by the threads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ...schedule import Schedule
from ...tir.expr import LT, BinaryOp, BufferLoad, Call, Expr, IntImm, Var, is_const_int
from ...tir.expr.reducers import REDUCERS
from ...tir.stmt import Buffer, BufferStore
from ...tir.walk import pre_order
from ..cost.cost_features import Costs, ceil_div, up_to
from ..cost.loop_nest import swept_bytes
from ..cost.machine_model import MachineModel, crowding, worth_threads
from ..cost.walker import Walk, WalkedLoop
from ..loop_steps import fuse_all
from ..program import BlockInfo, ProgramInfo, Use
from .schedule_rule import Decision, Group, Part, ScheduleRule

_FORWARDING_CYCLES = 5.0
"""From the store of an element to the use of what a load of it gives, in cycles."""

_LEAST_BYTES = 4
"""The least size of an element whose vectors are summed within: lanes of fewer bytes cost several instructions to move."""

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
    if len(steps) != 1 or block.reduce or block.shared or block.obstacle is not None:
        return None
    if len(block.spatial) == 0 and not is_running(block, steps[0]):
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


LEAST_STEPS = 4
"""The least number of steps along the contiguous axis that become lanes of vectors, or are turned into lanes of rows."""


def steps_in_a_row(block: BlockInfo) -> int:
    """Returns the number of steps of a recurrence that lie side by side in memory, and 0 for other blocks.

    They are lanes of vectors, each of which waits for the one before.
    """
    steps = axis_of_steps(block)
    return block.extents[steps] if steps is not None and block.stores[0].stride(steps) == 1 else 0


def is_one_by_one(block: BlockInfo) -> bool:
    """Returns whether a recurrence is computed element by element: its steps are contiguous, and too few for vectors."""
    return 1 < steps_in_a_row(block) < LEAST_STEPS


def is_running(block: BlockInfo, steps: Var) -> bool:
    """Returns whether a step combines, in whatever order, what the one before stored with a term of its own."""
    store = block.block.body
    if not isinstance(store, BufferStore) or block.itemsize < _LEAST_BYTES or store.value.dtype == "bool":
        return False
    value = store.value
    if isinstance(value, Call) and value.op == "tir.if_then_else" and _is_first_step(value.args[0], steps):
        value = value.args[2]
    if not any(r.lanes and r.either_way and type(value) is r.node for r in REDUCERS):
        return False
    assert isinstance(value, BinaryOp)
    own = [n for n in pre_order(value) if isinstance(n, BufferLoad) and n.buffer is store.buffer]
    stored, read = block.stores[0], [use for use in block.loads if use.buffer is store.buffer]
    if (
        len(own) != 1
        or len(read) != 1
        or not any(own[0] is e for e in (value.a, value.b))
        or abs(stored.stride(steps) or 0) != 1
    ):
        return False
    ago = [(a, b) for a, b in zip(stored.offsets, read[0].offsets, strict=True) if a is None or a != b]
    return stored.dims == read[0].dims and len(ago) == 1 and None not in ago[0] and ago[0][0] - ago[0][1] == 1


def vectors_kept(block: BlockInfo) -> float:
    """Returns how many of the loads read what the step before stored, which a register keeps."""
    own = {use.buffer for use in block.stores}
    return float(sum(use.buffer in own for use in block.loads))


def _is_choice(n: object, steps: Var) -> bool:
    """Returns whether a node computes under a condition other than that on the first steps, or calls a function."""
    if not isinstance(n, Call):
        return False
    if n.op != "tir.if_then_else":
        return n.op.startswith("tir.call")
    return not _is_first_step(n.args[0], steps)


def _is_first_step(test: Expr, steps: Var) -> bool:
    return isinstance(test, LT) and test.a is steps and isinstance(test.b, IntImm)


class RecurrencePart(Part):
    """This part computes so many ``vectors`` of a step along the contiguous axis, or so many ``rows`` side by side.

    With ``apart`` chunks of vectors are computed one after the other, each through all steps. With ``turned`` the rows are
    the lanes of a vector, with ``within`` the steps are.
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
        rest = wide[-1] if wide else block.spatial[-1] if block.spatial else None
        self.steps = next(v for v in block.axes if v not in block.spatial)
        self.beside = rest if self.vector is None else self.vector
        self.joined = self._in_line(self.vector) if self.vector is not None else () if rest is None else (rest,)
        self.inner = math.prod(block.extents[v] for v in self.joined)
        if self.vector is not None:
            self.decisions = (Decision("vectors", up_to(math.ceil(self.inner / self.lanes), 1, 2, 4, 8)),)
            if self.inner > self.lanes:  # chunks of rows one after the other, or a step of all of them
                self.decisions += (Decision("apart", (0, 1)),)
        else:
            self.decisions = (Decision("rows", up_to(self.inner, 1, 2, 4, 8, 16)),)
            self.turned = min(self.lanes, _MOST_TURNED)
            if self._may_turn():
                self.decisions += (Decision("turned", (0, 1)),)
            if is_running(block, self.steps) and block.extents[self.steps] >= LEAST_STEPS:
                self.decisions += (Decision("within", (0, 1)),)
        self.structure = (self.decisions[0].name,)

    @property
    def within(self) -> int:
        """The lanes of a vector of steps: all that there are, or the next power of two above few steps."""
        return min(self.lanes, 1 << (self.block.extents[self.steps] - 1).bit_length())

    def _in_line(self, near: Var) -> tuple[Var, ...]:
        """Returns the loops that lie as one axis in all arrays, the contiguous one last."""
        block, uses = self.block, (*self.block.stores, *self.block.loads)
        last = first = block.axes.index(near)
        size = block.extents[near]
        while first > 0 and block.axes[first - 1] in block.spatial:
            outer = block.axes[first - 1]
            steps = [(use.stride(outer), use.stride(near)) for use in uses]
            if any(far is None or step is None or far != step * size for far, step in steps):
                break
            first, size = first - 1, size * block.extents[outer]
        return tuple(block.axes[first : last + 1])

    def _may_turn(self) -> bool:
        """Returns whether the steps of a vector of rows are squares of memory, which no condition chooses."""
        steps, beside = self.steps, self.beside
        if beside is None or any(_is_choice(n, steps) for n in pre_order(self.block.block.body)):
            return False
        uses = (*self.block.stores, *self.block.loads)
        along = all(use.affine and use.stride(steps) in (0, 1) and (use.stride(beside) or 0) >= 0 for use in uses)
        whole = self.inner % self.turned == 0 or 4 * math.ceil(self.inner / self.turned) * self.turned <= 5 * self.inner
        return along and whole and self.turned >= 4 and self.block.extents[steps] >= LEAST_STEPS

    def mask(self, columns: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        if self.vector is not None:
            return np.ones(rows, dtype=bool)
        turned, within = (columns.get(name, np.zeros(rows)) > 0 for name in ("turned", "within"))
        beside = columns["rows"]
        return np.where(within, ~turned & (beside == 1), ~turned | (beside == self.turned))

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        block = self.block
        loops = dict(zip(block.axes, sch.get_loops(sch.get_block(block.name)), strict=True))
        if self.beside is None or row.get("within", 0):
            if row.get("within", 0):
                sch.annotate(sch.split(loops[self.steps], [None, self.within])[-1], "tir.horizontal_reduce", 1)
            if self.parallel and block.spatial:
                sch.parallel(fuse_all(sch, [loops[v] for v in block.spatial]))
            return
        width = min(row["vectors"] * self.lanes if self.vector is not None else row["rows"], self.inner)
        if len(self.joined) > 1:
            loops[self.beside] = fuse_all(sch, [loops[v] for v in self.joined])
        outer = [loops[v] for v in block.spatial if v not in self.joined]
        steps = loops[self.steps]
        inside = [loops[self.beside]]
        # one vector of an example: more of a symbolic size is in further ones, each of which goes through all steps
        single = self.vector is not None and width >= self.inner and width <= self.lanes
        if width < self.inner or single:
            inside = list(sch.split(loops[self.beside], [None, width]))
        within = inside[-1:]
        if self.vector is None or single or row.get("apart", 0):
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
        own = [use for use in block.loads if use.buffer is block.stores[0].buffer]
        walk = self._walk(columns, rows, own)
        counts = walk.counts()
        issued, around = walk.steps * walk.instances, block.spatial_size / self.inner
        if self.vector is not None:
            apart = columns.get("apart", np.zeros(rows))  # what a step stores, a register keeps for the next one
            counts["load_cycles"] = counts["load_cycles"] + (1 - apart) * issued * len(own) / machine.loads_per_cycle
            counts["core_cycles"] = np.maximum(counts["core_cycles"], apart * walk.steps * machine.fma_latency)
        else:
            self._add_chains(counts, walk, columns, around)
        swept = swept_bytes(float(block.array_bytes), machine, beyond=block.bytes_from_beyond)
        turned, within = (columns.get(name, np.zeros(rows)) > 0 for name in ("turned", "within"))
        return Costs(rows).put(
            **counts,
            **swept,
            flops=block.flops,
            regions=float(self.parallel),
            lanes_used=np.where(turned | within | (self.vector is not None), self.lanes, 1),
            columns=columns[self.decisions[0].name],
            tasks=self._tasks(columns, rows) if self.parallel else 1.0,
            column_extent=float(self.inner),
        )

    def _walk(self, columns: Mapping[str, np.ndarray], rows: int, own: Sequence[Use]) -> Walk:
        """Returns the loops: a vector or some rows side by side, and outside them steps and chunks of the axis."""
        block, side = self.block, self.beside
        width = columns["rows"] if self.vector is None else columns["vectors"] * self.lanes
        width = np.minimum(width, self.inner)
        apart = columns.get("apart", np.ones(rows)) > 0
        chunks, loops = ceil_div(self.inner, width), [WalkedLoop(self.steps, np.full(rows, float(self._steps)))]
        if side is not None:
            inside = [WalkedLoop(side, width, written_out=True), WalkedLoop(side, np.where(apart, 1.0, chunks))]
            loops = [*inside, *loops, WalkedLoop(side, np.where(apart, chunks, 1.0))]
        loops += [WalkedLoop(v, np.full(rows, float(block.extents[v]))) for v in block.spatial if v not in self.joined]
        return Walk(block, self.machine, loops, rows, vector=self.vector, lanes=self.lanes, elsewhere=own)

    def _add_chains(
        self, counts: dict[str, np.ndarray], walk: Walk, columns: Mapping[str, np.ndarray], around: float
    ) -> None:
        """Add what rows wait for: each step for the one before, and lines of rows that share a set. With ``turned`` the
        steps of a vector of rows are squares that are transposed in registers, with ``within`` a vector is summed by a
        shuffle for each doubling, and the next one waits for its last lane."""
        machine, block, beside = self.machine, self.block, self.beside
        apart = 0 if beside is None else abs(block.stores[0].stride(beside) or 0) * block.itemsize
        crowd = crowding(columns["rows"] * len(self._arrays), apart, machine)
        forwarded = 0.0 if self._is_carried() else _FORWARDING_CYCLES
        chain = walk.steps * (forwarded + machine.fma_latency)
        late = walk.steps * walk.instances * len(self._arrays) * machine.jump_cycles * crowd / machine.loads_per_cycle
        scalar = dict(counts)
        counts["core_cycles"] = np.maximum(counts["core_cycles"], chain)
        counts["load_cycles"] = counts["load_cycles"] + late
        none = np.zeros(len(columns["rows"]))
        turned, within = columns.get("turned", none) > 0, columns.get("within", none) > 0

        def put(where: np.ndarray, lanes: float, core: np.ndarray | float, loop: np.ndarray | float) -> None:
            made = {"core_cycles": core, "loop_cycles": loop}
            made |= {name: scalar[name] / lanes for name in ("load_cycles", "store_cycles")}
            counts.update({name: np.where(where, value, counts[name]) for name, value in made.items()})

        if turned.any():
            size = self.turned
            groups = around * ceil_div(self.inner, columns["rows"])
            squares = groups * math.ceil(self._steps / size)
            arrays = sum(use.stride(beside) != 0 for use in (*block.loads, *block.stores) if beside is not None)
            shuffles = (
                squares * size * math.log2(size) * (arrays - vectors_kept(block)) * 1.2 * machine.vector_bytes / 64
            )
            waits = squares * size * machine.fma_latency / 2  # the other half is filled with shuffles
            starts = groups * 3.0 * size  # lane by lane
            core = np.maximum(scalar["core_cycles"], chain) / size + shuffles + waits + starts
            put(turned, size, core, squares * 20.0)
        if within.any():
            size = self.within
            alone = around * self.inner
            vectors = math.ceil(self._steps / size)
            moves = math.log2(size) + 3.0
            sums = alone * vectors * np.maximum(moves, machine.fma_latency if vectors > 4 else 0.0)
            padded = vectors * size / self._steps
            put(within, size / padded, scalar["core_cycles"] / size * padded + sums, alone * vectors)

    def _is_carried(self) -> bool:
        """Returns whether registers hold all that a step reads of earlier ones: what the one before stored."""
        store = self.block.stores[0]
        own = [use for use in self.block.loads if use.buffer is store.buffer]
        ago = [sum(store.offsets) - sum(use.offsets) for use in own if None not in use.offsets]
        return len(ago) == len(own) and all(n == 1 for n in ago)

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
        return self.block.extents[self.steps]
