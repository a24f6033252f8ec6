"""Reductions, chains of rows and element-wise stages on GPUs: schedules, costs and rules.

:class:`GpuRowRule`: the threads of a block compute all stages of rows (softmax, norms, sums), neighbouring threads columns, and two
kernels long sums. :class:`GpuRowChainRule`: attention and its like by one kernel, which is a product, stages of its rows, and a
second product. :class:`GpuElementRule`: element-wise stages, and all others that no other rule takes. It decides elements per
thread, and transposes through shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from ...codegen.machine.target import BARRIER_CYCLES, FETCH_CYCLES, SECTOR, WARP
from ...schedule import Schedule
from ...tir.annotations import ATOMIC
from ...tir.expr import Var
from ...tir.stmt import Buffer
from ..cost.axis_roles import product_axes, row_group, rows_agree
from ..cost.cost_features import Columns, Costs, ceil_div
from ..cost.gpu_model import GpuModel, share_used, special_operations, touched_bytes
from ..cost.machine_model import MachineModel
from ..loop_steps import extent_of, fuse_all, loops_within, unroll_factor
from ..program import BlockInfo, ProgramInfo, Use, copies
from .schedule_rule import Decision, Group, Part, ScheduleRule


def spread_elements(sch: Schedule, block: Any, serial: int = 0, threads: int = 256, lanes: int = 1) -> Any:
    """Give each thread ``lanes`` neighbouring elements of ``block``; returns the loop over threads.

    The last ``serial`` loops of the block stay in a thread: those of a reduction. ``lanes`` should divide the last spatial
    loop, along which neighbours should be contiguous in all that the block touches.
    """
    block = sch.get_block(block) if isinstance(block, str) else block
    loops = list(sch.get_loops(block))
    own = loops[: len(loops) - serial] or [sch.add_unit_loop(loops[0] if loops else block)]
    if lanes > 1:
        own[-1], lane = sch.split(own[-1], [None, lanes])
        sch.vectorize(lane)
    every = fuse_all(sch, own)
    outer, thread = sch.split(every, [None, min(threads, max(1, extent_of(sch, every)))])
    sch.bind(outer, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    return thread


def staged_transpose(sch: Schedule, block: Any, across: int, read: int = 0, tile: int = 32, rows: int = 8) -> None:
    """Compute ``block`` in squares of ``tile`` elements, ``rows`` rows of one at a time.

    ``across`` is the number of the block's loop along which its input number ``read`` is contiguous. The square's rows
    are one element longer in shared memory than they need to be, so that a column lies in different banks.
    """
    block = sch.get_block(block) if isinstance(block, str) else block
    loops = list(sch.get_loops(block))
    inner, other = loops.pop(), loops.pop(across)
    tall, y = sch.split(other, [None, tile])
    wide, x = sch.split(inner, [None, tile])
    steps, y = sch.split(y, [None, rows])
    sch.reorder(*loops, tall, wide, steps, y, x)
    at = wide
    for loop, axis in ((wide, "blockIdx.x"), (tall, "blockIdx.y")):
        sch.bind(loop, axis)
    if loops:
        sch.bind(fuse_all(sch, loops), "blockIdx.z")
    sch.bind(y, "threadIdx.y")
    sch.bind(x, "threadIdx.x")
    copy = sch.cache_read(block, read, "shared")
    sch.compute_at(copy, at)
    own = loops_within(sch, copy, at)
    lines = fuse_all(sch, own[:-1])
    _, line = sch.split(lines, [None, rows])
    sch.bind(line, "threadIdx.y")
    _, element = sch.split(own[-1], [None, tile])
    sch.bind(element, "threadIdx.x")
    sch.storage_align(copy, 0, -2, tile, 1)


@dataclass(frozen=True)
class RowThreads:
    """How threads share rows. ``threads``: those of one row; ``rows``: the rows of a block, which divide all rows;
    ``lanes``: neighbouring elements of a thread, where they divide the rows of a stage."""

    threads: int = 128
    rows: int = 1
    lanes: int = 1


def block_rows(
    sch: Schedule, stages: Sequence[str], rank: int, how: RowThreads, kept: Mapping[str, str] = MappingProxyType({}),
    read: Sequence[tuple[Sequence[str], int]] = (),
) -> None:  # fmt: skip
    """Compute ``stages``, which share their first ``rank`` loops (the rows), row by row; the last one is the result.

    The threads of a row divide the columns of a stage, and reduce together. ``kept`` says in which memory results of stages
    are: ``"shared"``, or ``"local"`` for registers, which hold the columns of a thread, or the one value of a row in each thread.
    Others stay where they are. ``read``: inputs whose rows are read into registers before anything is computed, by the stages
    that read one and its number among the loads of the first of these. All columns of registers have the same threads.
    """
    last = sch.get_block(stages[-1])
    copies = [sch.cache_read(readers[0], n, "local", consumer_blocks=list(readers)) for readers, n in read]
    loops = sch.get_loops(last)
    rows = fuse_all(sch, loops[:rank]) if rank else sch.add_unit_loop(loops[0])
    if how.rows > 1:
        rows, row = sch.split(rows, [None, how.rows])
        sch.bind(row, "threadIdx.y")
    else:
        row = rows
    sch.bind(rows, "blockIdx.x")
    places = [(sch.get_block(name), kept.get(name, "")) for name in stages[:-1]]
    places = [*[(block, "") for block in copies], *places]
    for block, _ in reversed(places):
        sch.compute_at(block, row)
    whole = bool(copies) or any(scope == "local" and _columns(sch, block, row) > 1 for block, scope in places)
    _threads(sch, last, row, how, whole)
    for block, scope in places:
        columns = _threads(sch, block, row, how, whole, each=scope == "local")
        if scope:
            sch.set_scope(block, 0, scope)
        if columns and (scope == "local" or block in copies):
            _divide_columns(sch, block, rank, how, columns)


def _columns(sch: Schedule, block: Any, rows: Any) -> int:
    """Returns how many results of a row a stage that is no reduction has."""
    reduces = any(iv.kind == "reduce" for iv in sch.get(block).iter_vars)
    return 1 if reduces else math.prod(extent_of(sch, loop) for loop in loops_within(sch, block, rows))


def _divide_columns(sch: Schedule, block: Any, rank: int, how: RowThreads, columns: int) -> None:
    """Store the result of ``block`` by the threads that compute its ``columns``, so that registers hold those of one thread."""
    lanes, threads = how.lanes if columns % how.lanes == 0 else 1, how.threads
    shape = [int(n) for n in sch.get(block).writes[0].buffer.shape[rank:]]

    def places(*index: Any) -> tuple[Any, ...]:
        flat = index[rank]
        for n, at in zip(shape[1:], index[rank + 1 :], strict=True):
            flat = flat * n + at
        return (*index[:rank], flat // (threads * lanes), flat // lanes % threads, flat % lanes)

    sch.transform_layout(block, ("write", 0), places, leave_padding=True)


def _threads(sch: Schedule, block: Any, rows: Any, how: RowThreads, whole: bool = False, each: bool = False) -> int:
    """Divide the columns of a stage among the threads of a row; returns their number, 0 for one value.

    ``whole``: steps are written out, so that what is read in all of them can be on its way at once. ``each``: a stage of one
    value of a row is computed by every thread.
    """
    own = loops_within(sch, block, rows)
    reduces = any(iv.kind == "reduce" for iv in sch.get(block).iter_vars)
    if not own:
        return 0
    columns = fuse_all(sch, own)
    count = extent_of(sch, columns)
    if each and count == 1 and not reduces:
        return 0
    if how.lanes > 1 and count % how.lanes == 0:
        step, thread, lane = sch.split(columns, [None, how.threads, how.lanes])
        if reduces:
            sch.unroll(lane)
        else:
            sch.vectorize(lane)
    else:
        step, thread = sch.split(columns, [None, how.threads])
    sch.bind(thread, "threadIdx.x")
    if whole:
        sch.unroll(step)
    return 0 if reduces else count


def block_columns(sch: Schedule, block: Any, column: int, threads: tuple[int, int]) -> None:
    """Compute ``block``, a reduction, with neighbouring threads on neighbours along its loop ``column``.

    ``threads``: those that share the reduction, and those along the columns. All other spatial loops are blocks.
    """
    block = sch.get_block(block) if isinstance(block, str) else block
    loops, kinds = list(sch.get_loops(block)), [iv.kind for iv in sch.get(block).iter_vars]
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind != "reduce"]
    reduced = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == "reduce"]
    wide, x = sch.split(loops[column], [None, threads[1]])
    around = [loop for loop in spatial if loop is not loops[column]]
    sch.reorder(*around, wide, x, *reduced)
    sch.bind(fuse_all(sch, [*around, wide]), "blockIdx.x")
    sch.bind(x, "threadIdx.x")
    _, y = sch.split(fuse_all(sch, reduced), [None, threads[0]])
    sch.bind(y, "threadIdx.y")


def _partial_sums(sch: Schedule, block: Any, rank: int, parts: int) -> tuple[Any, Any]:
    """Divide ``block``, a reduction of ``rank`` spatial loops; returns it and the block of the ``parts`` results of each element."""
    block = sch.get_block(block) if isinstance(block, str) else block
    part, _ = sch.split(fuse_all(sch, sch.get_loops(block)[rank:]), [parts, None])
    return block, sch.rfactor(part, 0)


def atomic_sums(sch: Schedule, block: Any, rank: int, parts: int, how: RowThreads) -> None:
    """Compute ``block``, a sum of ``rank`` spatial loops, in one kernel behind one that sets zeros. There are ``parts``
    blocks for each element, which add what they summed atomically. The order of these additions differs from run to
    run."""
    block, partial = _partial_sums(sch, block, rank, parts)
    *rows, last = sch.get_loops(block)
    zeros = sch.decompose_reduction(block, rows[0] if rows else last)
    sch.annotate(block, ATOMIC, 1)
    if rows:
        sch.bind(fuse_all(sch, rows), "blockIdx.x")
    sch.bind(last, "blockIdx.y")
    sch.compute_at(partial, last)
    sch.set_scope(partial, 0, "local")
    _threads(sch, partial, last, how)
    over = sch.get_loops(zeros)
    if over:
        start, thread = sch.split(fuse_all(sch, over), [None, 128])
        sch.bind(thread, "threadIdx.x")
    else:
        start = sch.add_unit_loop(zeros)
    sch.bind(start, "blockIdx.x")


def split_sums(sch: Schedule, block: Any, rank: int, parts: int, how: RowThreads) -> None:
    """Compute ``block``, a reduction of ``rank`` spatial loops, in two kernels. The first makes ``parts`` partial
    results of each element by blocks of their own, the second puts those together."""
    block, partial = _partial_sums(sch, block, rank, parts)
    block_rows(sch, [partial.name], rank + 1, how)
    last = 32
    while last < min(parts, 256):
        last *= 2
    block_rows(sch, [block.name], rank, RowThreads(last))


LANES = 32
"""The threads of a team: those of a warp."""


@dataclass(frozen=True)
class RowChain:
    """How blocks share rows. ``rows``: of a block, which divide all rows; ``teams`` of 32 threads, which divide ``rows``."""

    rows: int = 8
    teams: int = 4


def row_chain(sch: Schedule, stages: Sequence[str], first: str, rank: int, how: RowChain) -> None:
    """Compute ``stages``, in program order, of which the last is the second product and ``first`` the first one.

    Their first ``rank`` loops are shared; the last of these are the rows. All results but the last stay in shared memory.
    """
    result = sch.cache_write(stages[-1], 0, "local")
    scores = sch.cache_write(first, 0, "local")
    loops = list(sch.get_loops(result))
    block, _ = sch.split(loops[rank - 1], [None, how.rows])
    if rank > 1:
        sch.bind(fuse_all(sch, loops[: rank - 1]), "blockIdx.y")
    sch.bind(block, "blockIdx.x")
    _second(sch, stages[-1], result, block, how)
    for name in reversed(stages[:-1]):
        if name == first:
            sch.compute_at(scores, block)
            _first(sch, first, scores, block, how)
            sch.set_scope(scores, 0, "shared")
            continue
        stage = sch.get_block(name)
        sch.compute_at(stage, block)
        _rows(sch, stage, block, how)
        sch.set_scope(stage, 0, "shared")


def _second(sch: Schedule, name: str, result: Any, block: Any, how: RowChain) -> None:
    """Let each team sum some rows of the result, and neighbouring threads neighbouring columns."""
    own = loops_within(sch, result, block)
    (team, rows), (lane, columns) = sch.split(own[0], [how.teams, None]), sch.split(own[-1], [LANES, None])
    sch.reorder(team, lane, rows, *own[1:-1], columns)
    sch.bind(team, "threadIdx.y")
    sch.bind(lane, "threadIdx.x")
    _sum_in_registers(sch, name, lane)
    for loop in loops_within(sch, result, lane):
        sch.unroll(loop)


def _first(sch: Schedule, name: str, scores: Any, block: Any, how: RowChain) -> None:
    """Let each thread compute all rows of some columns of the first product."""
    row, column = loops_within(sch, scores, block)
    turns, team, lane = sch.split(column, [None, how.teams, LANES])
    sch.reorder(turns, team, lane, row)
    sch.bind(team, "threadIdx.y")
    sch.bind(lane, "threadIdx.x")
    _sum_in_registers(sch, name, lane)
    sch.unroll(row)


def _sum_in_registers(sch: Schedule, name: str, lane: Any) -> None:
    """Compute the product ``name`` in the thread ``lane``: the loops of its sums inside, unrolled."""
    product = sch.get_block(name)
    sch.compute_at(product, lane)
    inner = loops_within(sch, product, lane)
    kinds = [iv.kind for iv in sch.get(product).iter_vars][-len(inner) :]
    reduced = [loop for loop, kind in zip(inner, kinds, strict=True) if kind == "reduce"]
    spatial = [loop for loop in inner if loop not in reduced]
    sch.reorder(*reduced, *spatial)
    unroll_factor(sch, reduced[-1], 4)
    for loop in spatial:
        sch.unroll(loop)


def _rows(sch: Schedule, stage: Any, block: Any, how: RowChain) -> None:
    """Give each row of a stage to a team, whose lanes divide its columns."""
    own = loops_within(sch, stage, block)
    team, _ = sch.split(own[0], [how.teams, None])
    sch.bind(team, "threadIdx.y")
    if own[1:]:
        _, lane = sch.split(fuse_all(sch, own[1:]), [None, LANES])
        sch.bind(lane, "threadIdx.x")


_EXCHANGE = 12.0
"""Instructions by which the lanes of a warp combine their values."""


class GpuRowRule(ScheduleRule):
    """This rule takes blocks that share their leading axes (the rows), of which at least one reduces the other axes."""

    name = "gpu_rows"
    priority = 20
    gpu = True

    def match(self, program: ProgramInfo, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        members = row_group(program, block, free)
        return None if members is None else Group(block, members)

    def parts(self, program: ProgramInfo, group: Group, machine: MachineModel) -> list[Part]:
        if not isinstance(machine, GpuModel):
            return []
        parts: list[Part] = [RowThreadsPart(group, machine)]
        if len(group.blocks) == 1:
            parts.append(ColumnThreadsPart(group.anchor, machine))
            parts.append(SerialSumsPart(group.anchor, machine))
            if len(group.anchor.stores) == 1 and group.anchor.reduce_size >= 4096:
                parts.append(SplitSumsPart(group.anchor, machine))
        return parts


def _inner(block: BlockInfo, rank: int) -> int:
    """Returns how many elements of one row a block goes through."""
    return block.reduce_size * math.prod(block.extents[v] for v in block.spatial[rank:])


def _fastest(block: BlockInfo, rank: int) -> Var | None:
    """Returns the axis along which the threads of a row are neighbours."""
    own = [*block.spatial[rank:], *block.reduce]
    wide = [v for v in own if block.extents[v] > 1]
    return wide[-1] if wide else None


_MOST_HELD = 64
"""The columns of a row that a thread holds in registers at most."""


def _held_inputs(blocks: Sequence[BlockInfo], rank: int, columns: int) -> list[tuple[list[str], int]]:
    """Returns the inputs of which each thread reads the columns that it computes. Each is the stages that read one, and its
    number among the loads of the first."""
    inside = {use.buffer for b in blocks for use in b.stores}
    readers: dict[Buffer, list[tuple[BlockInfo, int]]] = {}
    for b in blocks:
        for n, use in enumerate(b.loads):
            if use.buffer not in inside:
                readers.setdefault(use.buffer, []).append((b, n))
    return [
        ([b.name for b, _ in found], found[0][1])
        for buffer, found in readers.items()
        if all(_reads_own_columns(b, b.loads[n], rank, columns) for b, n in found)
    ]


def _reads_own_columns(block: BlockInfo, use: Use, rank: int, columns: int) -> bool:
    """Returns whether a stage goes through the whole rows of an input in its own order."""
    shape = [getattr(n, "value", None) for n in use.buffer.shape]
    return (
        _inner(block, rank) == columns
        and shape == [block.extents[v] for v in block.axes]
        and use.is_at(block.axes, block.extents)
    )


class RowThreadsPart(Part):
    """This part computes rows by the threads of a block. Its decisions are the ``threads`` of a row, the ``rows`` of a block,
    the ``lanes`` of a thread, and where it is to ``keep`` stages as long as a row. That is global memory (0), shared memory (1),
    or registers (2), which then hold the row of an input as well, so that it is read once."""

    structure = ("threads", "rows", "lanes", "keep")
    for_any_size = True

    def __init__(self, group: Group, machine: GpuModel) -> None:
        self.blocks, self.machine, self.anchor = group.blocks, machine, group.anchor
        self.rank = len(self.anchor.spatial)
        self.name = f"rows_{self.anchor.name}"
        self.count = math.prod(self.anchor.extents[v] for v in self.anchor.spatial)
        self.sizes = [_inner(b, self.rank) for b in self.blocks]
        longest = max(self.sizes)
        threads = [t for t in (32, 64, 128, 256, 512, 1024) if t < 2 * longest] or [32]
        lanes = [n for n in (1, 2, 4, 8) if all(size % n == 0 or size == 1 for size in self.sizes)]
        self.narrow = min([self.anchor.itemsize, *[use.buffer.dtype.bytes for use in self.anchor.loads if use.dims]])
        self.long = [b for b in self.blocks[:-1] if len(b.spatial) > self.rank and _inner(b, self.rank) > 1]
        self.held = _held_inputs(self.blocks, self.rank, longest)
        registers = self._columns_agree(longest) and bool(self.long or self.held)
        self.most_live = self._live()
        self.decisions = (
            Decision("threads", tuple(threads)),
            Decision("rows", tuple([r for r in (1, 2, 4, 8) if self.count % r == 0])),
            Decision("lanes", tuple([n for n in lanes if n * self.narrow <= 16])),
            Decision("keep", (0, *([1] if self.long else []), *([2] if registers else []))),
        )

    def _columns_agree(self, columns: int) -> bool:
        """Return whether what one thread computes of a long stage, the same thread alone reads."""
        long = {use.buffer for b in self.long for use in b.stores}
        reads = [(b, use) for b in self.blocks for use in b.loads if use.buffer in long]
        return all(not b.is_reduction and _inner(b, self.rank) == columns for b in self.long) and all(
            _inner(b, self.rank) == columns and use.is_at(b.axes, b.extents) for b, use in reads
        )

    def _live(self) -> int:
        """Return how many rows registers hold at a time."""
        last = {use.buffer: n for n, b in enumerate(self.blocks) for use in b.loads}
        made = {use.buffer: n for n, b in enumerate(self.blocks) if b in self.long for use in b.stores}
        made |= {self._input(readers, n).buffer: -1 for readers, n in self.held}
        return max(
            [sum(first <= n < last[b] for b, first in made.items()) for n in range(-1, len(self.blocks))], default=0
        )

    def _input(self, readers: Sequence[str], n: int) -> Use:
        return next(b for b in self.blocks if b.name == readers[0]).loads[n]

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        long = ("", "shared", "local")[row["keep"]]
        kept = {b.name: long if b in self.long else "local" for b in self.blocks[:-1]}
        how = RowThreads(row["threads"], row["rows"], row["lanes"])
        block_rows(sch, [b.name for b in self.blocks], self.rank, how, kept, self.held if row["keep"] == 2 else ())

    def mask(self, columns: Columns, rows: int) -> np.ndarray:
        threads = columns["threads"] * columns["rows"]
        fits = self.machine.fits(threads, self._shared(columns), self._registers(columns))
        few = (columns["rows"] == 1) | (columns["threads"] <= 128)
        held = (columns["keep"] < 2) | (self._of_thread(columns) <= _MOST_HELD)
        return np.asarray(fits & few & held & (columns["threads"] * columns["lanes"] < 2 * max(max(self.sizes), WARP)))

    def _of_thread(self, columns: Columns) -> np.ndarray:
        """Return the columns of a row that a thread has."""
        steps = ceil_div(max(self.sizes), columns["threads"] * columns["lanes"])
        return np.asarray(steps * columns["lanes"])

    def _registers(self, columns: Columns) -> np.ndarray:
        held = np.where(columns["keep"] == 2, self.most_live * self._of_thread(columns), 4.0 * columns["lanes"])
        return np.asarray(24.0 + held)

    def _shared(self, columns: Columns) -> np.ndarray:
        kept = sum(_inner(b, self.rank) * b.itemsize for b in self.long)
        sums = sum(b.itemsize for b in self.blocks if b.is_reduction)
        return np.asarray(columns["rows"] * ((columns["keep"] == 1) * kept + sums * columns["threads"] / WARP + 64))

    def costs(self, columns: Columns, rows: int) -> Costs:
        machine, threads, lanes = self.machine, columns["threads"], columns["lanes"]
        warps = threads / WARP
        issue, special, chain, shared = np.zeros(rows), np.zeros(rows), np.full(rows, 1000.0), np.zeros(rows)
        inside = {use.buffer for b in self.blocks for use in b.stores}
        read: Any = 0.0
        for block, size in zip(self.blocks, self.sizes, strict=True):
            steps = ceil_div(size, threads * lanes)
            accesses = len(block.loads) + (0 if block.is_reduction else 1)
            held = columns["keep"] == 2
            each = steps * (
                (lanes if size > 1 else 1.0) * block.operations + np.where(held, 0.5, 1.0) * (accesses * 2.0 + 3.0)
            )
            if block.is_reduction:
                each = each + _EXCHANGE * len(block.stores) + np.where(warps > 1, 2.0 * warps + 10.0, 0.0)
                chain = chain + 150.0 + np.where(warps > 1, 2 * BARRIER_CYCLES + 8.0 * warps, 0.0)
            issue = issue + warps * each
            special = special + size * special_operations(block)
            fetched = any(use.buffer not in inside for use in block.loads)
            waits = np.where(held & (block is not self.blocks[0]), 60.0, FETCH_CYCLES) if fetched else 60.0
            chain = chain + each * np.maximum(1.0, warps * columns["rows"] / 4) + waits
            own = sum(1 for use in block.loads if use.buffer in inside and len(use.dims) > self.rank)
            shared = shared + np.where(columns["keep"] == 1, own * size * block.itemsize / 128, 0.0)
            for use in block.loads:
                again = any(
                    block.name in readers[1:] and self._input(readers, m).buffer is use.buffer
                    for readers, m in self.held
                )
                times = np.where(columns["keep"] == 2, 0.0, 1.0) if again else 1.0
                read = read + (0.0 if use.buffer in inside else times * size * use.buffer.dtype.bytes)
        moved = touched_bytes(self.blocks)
        spilled = np.where(columns["keep"] > 0, 0.0, 2.0 * sum(_inner(b, self.rank) * b.itemsize for b in self.long))
        used = share_used(self.anchor, _fastest(self.anchor, self.rank), lanes)
        steps = ceil_div(max(self.sizes), threads * lanes)
        return machine.costs(
            rows, flops=sum(b.flops for b in self.blocks), issue_slots=issue * self.count,
            special_lanes=special * self.count, shared_wavefronts=shared * self.count,
            l2_bytes=(self.count * (read + spilled) + moved) / used, memory_bytes=moved / used + 0.5 * spilled * self.count,
            blocks=self.count / columns["rows"], threads=threads * columns["rows"], registers=self._registers(columns),
            shared_bytes=self._shared(columns), chain_cycles=chain, coalescing=used, lanes=lanes, rows=columns["rows"],
            steps=steps,
            bytes_in_flight=lanes * self.narrow * np.minimum(np.where(columns["keep"] == 2, 16.0, 4.0), steps),
            reduction=float(self.anchor.reduce_size), row_extent=float(self.count), variant=columns["keep"],
        )  # fmt: skip


class ColumnThreadsPart(Part):
    """This part gives each result neighbouring threads. There are ``across`` neighbours along one axis, and
    ``together`` threads share the sum of one element."""

    structure = ("together", "across")
    for_any_size = True

    def __init__(self, block: BlockInfo, machine: GpuModel) -> None:
        self.block, self.machine = block, machine
        self.name = f"columns_{block.name}"
        wide = [v for v in block.spatial if block.extents[v] > 1]
        together = [n for n in (1, 2, 4, 8, 16, 32) if n < 2 * block.reduce_size]
        self.column = wide[-1] if wide else None
        across = [n for n in (8, 16, 32, 64, 128) if self.column is not None and n < 2 * block.extents[self.column]]
        self.decisions = (Decision("together", tuple(together[1:] or (1,))), Decision("across", tuple(across or (1,))))

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        assert self.column is not None
        block_columns(sch, self.block.name, self.block.axes.index(self.column), (row["together"], row["across"]))

    def mask(self, columns: Columns, rows: int) -> np.ndarray:
        threads = columns["together"] * columns["across"]
        return np.asarray((threads <= self.machine.block_threads) & (threads >= WARP) & (self.column is not None))

    def costs(self, columns: Columns, rows: int) -> Costs:
        block, machine = self.block, self.machine
        assert self.column is not None
        threads = columns["together"] * columns["across"]
        extent = block.extents[self.column]
        blocks = ceil_div(extent, columns["across"]) * (block.spatial_size / extent)
        steps = ceil_div(block.reduce_size, columns["together"])
        each = steps * (block.operations + 2.0 * len(block.loads) + 3.0) + 8.0 * np.log2(columns["together"])
        used = share_used(block, self.column)
        moved = touched_bytes([block])
        return machine.costs(
            rows, flops=block.flops, issue_slots=blocks * threads / WARP * each,
            special_lanes=special_operations(block) * block.spatial_size * block.reduce_size,
            shared_wavefronts=blocks * threads / WARP * 2 * np.log2(columns["together"]), l2_bytes=moved / used,
            memory_bytes=moved / used, blocks=blocks, threads=threads, registers=32.0,
            shared_bytes=threads * block.itemsize,
            chain_cycles=1000.0 + each * np.maximum(1.0, threads / WARP / 4) + ceil_div(steps, 4) * FETCH_CYCLES
            + BARRIER_CYCLES * np.log2(columns["together"]),
            coalescing=used, lanes=1.0, rows=columns["together"], columns=columns["across"], steps=steps,
            bytes_in_flight=block.itemsize * np.minimum(4.0, steps), reduction=float(block.reduce_size),
            row_extent=float(block.spatial_size), variant=2.0,
        )  # fmt: skip


class SerialSumsPart(Part):
    """This part gives each result one thread, which sums by itself. Its decision is ``threads`` of a block."""

    for_any_size = True

    def __init__(self, block: BlockInfo, machine: GpuModel) -> None:
        self.block, self.machine = block, machine
        self.name = f"serial_{block.name}"
        self.decisions = (
            Decision("threads", tuple([t for t in (32, 64, 128, 256) if t < 2 * block.spatial_size] or [32])),
        )

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        spread_elements(sch, self.block.name, len(self.block.reduce), row["threads"])

    def costs(self, columns: Columns, rows: int) -> Costs:
        block, machine = self.block, self.machine
        blocks = ceil_div(block.spatial_size, columns["threads"])
        wide = [v for v in block.spatial if block.extents[v] > 1]
        used = share_used(block, wide[-1] if wide else None)
        each = block.reduce_size * (block.operations + 2.0 * len(block.loads) + 3.0)
        moved = touched_bytes([block])
        again = sum(block.reduce_size * block.spatial_size * use.buffer.dtype.bytes for use in block.loads)
        return machine.costs(
            rows, flops=block.flops, issue_slots=blocks * columns["threads"] / WARP * each,
            special_lanes=special_operations(block) * block.spatial_size * block.reduce_size,
            l2_bytes=np.maximum(moved, 0.3 * again) / used, memory_bytes=moved / np.sqrt(used), blocks=blocks,
            threads=columns["threads"], registers=32.0,
            chain_cycles=1000.0 + each * np.maximum(1.0, columns["threads"] / WARP / 4)
            + math.ceil(block.reduce_size / 4) * FETCH_CYCLES * np.where(used < 0.5, 0.6, 0.4),
            coalescing=used, lanes=1.0, rows=1.0, steps=float(block.reduce_size), bytes_in_flight=4.0 * block.itemsize,
            reduction=float(block.reduce_size), row_extent=float(block.spatial_size), variant=3.0,
        )  # fmt: skip


class SplitSumsPart(Part):
    """This part sums in two kernels: ``parts`` partial results of each element, by ``threads`` each, then those together."""

    structure = ("parts",)

    def __init__(self, block: BlockInfo, machine: GpuModel) -> None:
        self.block, self.machine = block, machine
        self.name = f"parts_{block.name}"
        size = block.reduce_size
        self.decisions = (
            Decision("parts", tuple([n for n in (8, 16, 32, 64, 128, 256, 512, 1024) if n * 128 <= size])),
            Decision("threads", (128, 256, 512)), Decision("lanes", tuple([n for n in (1, 2, 4) if size % n == 0])),
        )  # fmt: skip

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        how = RowThreads(row["threads"], 1, row["lanes"])
        split_sums(sch, self.block.name, len(self.block.spatial), row["parts"], how)

    def mask(self, columns: Columns, rows: int) -> np.ndarray:
        enough = columns["parts"] * columns["threads"] * columns["lanes"] <= self.block.reduce_size
        return np.asarray(enough & (columns["threads"] <= self.machine.block_threads))

    def costs(self, columns: Columns, rows: int) -> Costs:
        block, machine = self.block, self.machine
        blocks = columns["parts"] * block.spatial_size
        steps = ceil_div(block.reduce_size / columns["parts"], columns["threads"] * columns["lanes"])
        warps = columns["threads"] / WARP
        each = steps * (columns["lanes"] * block.operations + 2.0 * len(block.loads) + 3.0) + _EXCHANGE + 2.0 * warps
        used = share_used(block, _fastest(block, len(block.spatial)), columns["lanes"])
        moved = touched_bytes([block])
        return machine.costs(
            rows, kernels=2.0, flops=block.flops, issue_slots=blocks * warps * each,
            special_lanes=special_operations(block) * block.spatial_size * block.reduce_size,
            l2_bytes=moved / used + 8.0 * blocks, memory_bytes=moved / used, blocks=blocks, threads=columns["threads"],
            registers=24.0 + 4.0 * columns["lanes"], shared_bytes=4.0 * warps,
            chain_cycles=3000.0 + each * np.maximum(1.0, warps / 4) + ceil_div(steps, 4) * FETCH_CYCLES,
            coalescing=used, lanes=columns["lanes"], rows=1.0, steps=steps,
            bytes_in_flight=columns["lanes"] * block.itemsize * np.minimum(4.0, steps),
            reduction=float(block.reduce_size), row_extent=float(block.spatial_size), variant=4.0,
        )  # fmt: skip


class GpuRowChainRule(ScheduleRule):
    """This rule takes a product with all stages that its rows are computed from. One of these is a product as well."""

    name = "gpu_row_chain"
    priority = 9
    gpu = True
    fuses = True

    def match(self, program: ProgramInfo, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
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

    def parts(self, program: ProgramInfo, group: Group, machine: MachineModel) -> list[Part]:
        return [RowChainPart(group, machine)] if isinstance(machine, GpuModel) else []


def _sources(program: ProgramInfo, block: BlockInfo, free: Sequence[BlockInfo]) -> list[BlockInfo]:
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


class GpuElementRule(ScheduleRule):
    """This rule takes any block by itself. A thread runs reductions alone."""

    name = "gpu_elements"
    priority = 90
    gpu = True

    def match(self, program: ProgramInfo, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        return Group(block, (block,))

    def parts(self, program: ProgramInfo, group: Group, machine: MachineModel) -> list[Part]:
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
    for_any_size = True

    def __init__(self, block: BlockInfo, machine: GpuModel) -> None:
        self.block, self.machine = block, machine
        self.name = f"map_{block.name}"
        most = neighbours(block)
        wide = [v for v in block.spatial if block.extents[v] > 1]
        self.last: Var | None = wide[-1] if wide else None
        useful = min(machine.block_threads, 2 * max(block.spatial_size, WARP) - 1)
        self.decisions = (
            Decision("threads", tuple([t for t in (32, 64, 128, 256, 512, 1024) if t <= useful])),
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
    for_any_size = True

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
