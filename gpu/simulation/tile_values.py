"""Tiles that a warp or a warp group of the simulated GPU holds together, and products on their way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ...codegen.lower.tile_accesses import tile_rows, tile_spans
from ...codegen.machine.target import WARP, WARP_GROUP
from ...tir.expr import Broadcast, BufferLoad, Call, Expr, Ramp
from ...tir.expr.dtype import bfloat16_from_bits, bfloat16_to_bits, from_bits
from ...tir.expr.intrinsics.matrix_operations import (
    GROUP_LOADS,
    GROUP_ROWS,
    TRANSPOSED_LOADS,
    WARP_LOADS,
    across,
    dot_of_group,
    dot_of_tiles,
    group_columns,
    group_steps,
    rows_of,
    tile_part,
)
from ...tir.stmt import Buffer
from ..launch.launch_form import GpuError, threads_of_scope, threads_of_tile, tile_rank
from ..launch.tile_arithmetic import elementwise, is_leaf
from .kernel_counts import KernelCounts
from .lane_values import Mask, evaluate, held_type
from .watched_memory import RaceError, RunningThreads, WatchedArray


class WarpMemory(Protocol):
    """What tiles need of a simulation."""

    values: Any
    lanes: RunningThreads
    epoch: int
    products: GroupProducts

    def _memory(self, buffer: Buffer) -> WatchedArray: ...


def whole_teams(sim: WarpMemory, mask: Mask, threads: int) -> np.ndarray:
    """Return which warps, or warp groups, take part; GpuError where only some threads of one do."""
    together = sim.lanes.threads % threads == 0
    parts = np.broadcast_to(mask, (sim.lanes.count,)).reshape(-1, threads) if together else None
    if parts is None or (parts != parts[:, :1]).any():
        name = "warp" if threads == WARP else "warp group"
        raise GpuError(
            f"not all threads of a {name} take part in an operation on tiles; threadIdx.x has to be {threads} long"
        )
    return parts[:, 0]


def tile_value(e: Expr, sim: Any, mask: Mask) -> Any:
    """Returns the tile ``e`` of each warp or warp group."""
    if isinstance(e, Call) and e.op in _OPERATIONS:
        return _OPERATIONS[e.op](e, sim, mask)
    threads = threads_of_tile(e.dtype)
    if threads and not is_leaf(e):
        return _arithmetic(e, threads, sim, mask)
    if not threads or not isinstance(e, (Broadcast, BufferLoad)):
        raise GpuError(f"the simulated GPU cannot evaluate {e}")
    whole_teams(sim, mask, threads)
    if isinstance(e, Broadcast):
        number = _of_teams(e.value, threads, sim, mask).astype(held_type(e.dtype.element))
        return np.broadcast_to(number, (sim.lanes.count // threads, e.dtype.lanes))
    sim.products.uses(e.buffer)
    return _registers(e, sim, mask)


def _arithmetic(e: Expr, threads: int, sim: Any, mask: Mask) -> Any:
    """Return arithmetic on tiles, number by number."""
    active = whole_teams(sim, mask, threads)
    leaves, number = elementwise(e)
    for var, leaf in leaves.items():
        if isinstance(leaf, Broadcast):
            sim.values[var] = _of_teams(leaf.value, threads, sim, mask)
        elif isinstance(leaf, Ramp):
            first, step = [_of_teams(x, threads, sim, mask) for x in (leaf.base, leaf.stride)]
            sim.values[var] = first + step * np.arange(leaf.lanes)
        else:
            sim.values[var] = tile_value(leaf, sim, mask)
    numbers = _TileNumbers(sim, active, threads, e.dtype.lanes)
    found = np.broadcast_to(evaluate(number, numbers, True), (sim.lanes.count // threads, e.dtype.lanes))
    for var in leaves:
        del sim.values[var]
    return found.astype(held_type(e.dtype.element))


class _TileNumbers:
    """The numbers of the tiles of all teams as lanes, for arithmetic that reads memory at indices of their own."""

    def __init__(self, sim: Any, active: np.ndarray, threads: int, numbers: int) -> None:
        self.sim, self.values, self.shape = sim, sim.values, (sim.lanes.count // threads, numbers)
        self.active, self.first = active, slice(None, None, threads)

    def load(self, e: BufferLoad, indices: list[Any], mask: Mask) -> Any:
        """Return an element for each number of a tile, read by the first thread of its team."""
        lanes, each = self.sim.lanes, self.shape[1]
        block, thread = [np.repeat(x[self.first], each) for x in (lanes.block, lanes.thread)]
        axes = {tag: np.repeat(x[self.first], each) for tag, x in lanes.axes.items()}
        every = RunningThreads(block, thread, lanes.first, axes, lanes.threads)
        places = [np.broadcast_to(i, self.shape).reshape(-1) for i in indices]
        wanted = np.broadcast_to(mask, self.shape) & self.active[:, None]
        found = self.sim._memory(e.buffer).load(places, wanted.reshape(-1), every, self.sim.epoch)
        return found.reshape(self.shape)

    def from_lane(self, value: Any, distance: int, mask: Mask) -> Any:
        """Raise GpuError: numbers of a tile are not exchanged one by one."""
        raise GpuError("the numbers of a tile are not exchanged one by one")

    def change(self, e: Call, mask: Mask) -> Any:
        """Raise GpuError: arithmetic on tiles has no effects."""
        raise GpuError(f"arithmetic on tiles does not change memory, as {e.op.removeprefix('tir.')} does")


def _of_teams(e: Expr, threads: int, sim: Any, mask: Mask) -> Any:
    """Return a scalar for each warp or warp group, as a column; GpuError where it differs between its threads."""
    value = np.broadcast_to(evaluate(e, sim, mask), (sim.lanes.count,)).reshape(-1, threads)
    same = (value == value[:, :1]) | ((value != value) & (value[:, :1] != value[:, :1]))
    if not same.all():
        raise GpuError(f"the threads of a tile have different values of {e}")
    return value[:, :1]


def _registers(e: BufferLoad, sim: Any, mask: Mask) -> Any:
    memory, place = _fragment(sim, e.buffer, e.indices, mask)
    found = memory.array[place].reshape(-1, e.dtype.lanes)
    return bfloat16_from_bits(found) if e.dtype.kind == "bfloat" else found.astype(held_type(e.dtype.element))


def _dot(e: Call, sim: Any, mask: Mask) -> Any:
    c, a, b = [tile_value(x, sim, mask) for x in e.args]
    narrow = np.float32 if c.dtype.kind == "f" else np.int32
    return dot_of_tiles(c.astype(narrow), a, b).astype(c.dtype)


def _load(e: Call, sim: Any, mask: Mask) -> Any:
    threads = WARP_GROUP if e.op in GROUP_LOADS else WARP
    memory, indices, lanes = _in_memory(sim, e, mask, threads)
    active = np.repeat(whole_teams(sim, mask, threads), e.dtype.lanes)
    found = memory.load(indices, True if active.all() else active, lanes, sim.epoch).reshape(-1, e.dtype.lanes)
    if threads == WARP_GROUP:
        lead = [] if memory.lead == "global" else [lanes.block - lanes.first]
        sim.products.reads(memory, tuple([np.broadcast_to(i, active.shape)[active] for i in (*lead, *indices)]))
    if e.dtype.is_storage:  # memory has bytes
        found = from_bits(found, e.dtype)
    if e.op in TRANSPOSED_LOADS:
        found = found.reshape(len(found), tile_rows(e), -1).swapaxes(1, 2).reshape(found.shape)
    return found


def _group_fence(e: Call, sim: Any, mask: Mask) -> Any:
    return _own_sums(e, sim, mask)


def _group_dot(e: Call, sim: Any, mask: Mask) -> Any:
    whole_teams(sim, mask, WARP_GROUP)
    if isinstance(e.args[0], Broadcast):
        c = tile_value(e.args[0], sim, mask)
        if c.any():
            raise GpuError(f"products of warp groups begin with zeros, not with {e.args[0].value}")
    else:
        sums_of(e)
        c = _registers(e.args[0], sim, mask)  # type: ignore[arg-type]
    a, b = [tile_value(x, sim, mask) for x in e.args[1:]]
    return dot_of_group(c, a, b)


def _group_wait(e: Call, sim: Any, mask: Mask) -> Any:
    sim.products.waits(int(evaluate(e.args[1], sim, mask)))
    return _own_sums(e, sim, mask)


def _row_max(e: Call, sim: Any, mask: Mask) -> Any:
    return rows_of(tile_value(e.args[0], sim, mask), np.max)


def _row_sum(e: Call, sim: Any, mask: Mask) -> Any:
    return rows_of(tile_value(e.args[0], sim, mask), np.sum)


def _across(e: Call, sim: Any, mask: Mask) -> Any:
    return across(tile_value(e.args[0], sim, mask), e.dtype.lanes)


def _columns(e: Call, sim: Any, mask: Mask) -> Any:
    return tile_part(tile_value(e.args[0], sim, mask), evaluate(e.args[1], sim, mask))


def _own_sums(e: Call, sim: Any, mask: Mask) -> Any:
    """Return sums as they are, for operations that may come between products on them."""
    sums_of(e)
    whole_teams(sim, mask, WARP_GROUP)
    return _registers(e.args[0], sim, mask)  # type: ignore[arg-type]


_OPERATIONS = {
    **dict.fromkeys((*WARP_LOADS, *GROUP_LOADS), _load), "tir.wmma_dot": _dot, "tir.wgmma_fence": _group_fence,
    "tir.wgmma_dot": _group_dot, "tir.wgmma_wait": _group_wait, "tir.wgmma_row_max": _row_max,
    "tir.wgmma_row_sum": _row_sum, "tir.wgmma_across": _across, "tir.wgmma_columns": _columns,
}  # fmt: skip


def store_fragment(sim: Any, buffer: Buffer, indices: Sequence[Expr], value: Any, mask: Mask) -> None:
    """Write a tile to the registers of each warp or warp group."""
    memory, place = _fragment(sim, buffer, indices, mask)
    value = bfloat16_to_bits(value) if buffer.dtype.kind == "bfloat" else value
    value = value.reshape(-1, *memory.shape[-tile_rank(buffer) :])
    active = whole_teams(sim, mask, threads_of_scope(buffer.scope))
    memory.array[tuple([p[active] for p in place])] = np.broadcast_to(value, (len(active), *value.shape[1:]))[active]


def store_tile(sim: Any, e: Call, mask: Mask) -> None:
    """Write a tile of each warp or warp group to memory that threads share."""
    memory, indices, lanes = _in_memory(sim, e, mask, threads_of_tile(e.args[2].dtype))
    threads, value = threads_of_tile(e.args[2].dtype), tile_value(e.args[2], sim, mask)
    active = np.repeat(whole_teams(sim, mask, threads), e.args[2].dtype.lanes)
    memory.store(value.reshape(-1), indices, True if active.all() else active, lanes, sim.epoch)


def _fragment(sim: Any, buffer: Buffer, indices: Sequence[Expr], mask: Mask) -> tuple[WatchedArray, Any]:
    threads = threads_of_scope(buffer.scope)
    if not threads:
        raise GpuError(f"buffer {buffer.name} of scope {buffer.scope} holds no tiles of warps")
    teams = sim.lanes.count // threads
    lead = [
        np.broadcast_to(evaluate(i, sim, mask), (sim.lanes.count,))[::threads] for i in indices[: -tile_rank(buffer)]
    ]
    return sim._memory(buffer), (np.arange(teams), *lead)


def _in_memory(sim: Any, e: Call, mask: Mask, threads: int) -> tuple[WatchedArray, list[Any], RunningThreads]:
    """Return the elements of a tile in memory. They are its places for each warp or warp group, as accesses of the
    first thread."""
    whole_teams(sim, mask, threads)
    first = e.args[0].args[0]  # type: ignore[attr-defined]
    buffer, count = first.buffer, sim.lanes.count
    spans = tile_spans(e, buffer)
    if spans is None:
        raise GpuError(f"no dimension of {buffer.name} has rows {e.args[1]} elements apart")
    within = _places(spans, len(first.indices), e.op == "tir.wgmma_right")
    size = len(within[0])
    indices = []
    for d, index in enumerate(first.indices):
        start = np.broadcast_to(evaluate(index, sim, mask), (count,))
        if np.any(start.reshape(-1, threads) != start.reshape(-1, threads)[:, :1]):
            name = "warp" if threads == WARP else "warp group"
            raise GpuError(f"the threads of a {name} name different tiles of {buffer.name}")
        indices.append(np.repeat(start[::threads], size) + np.tile(within[d], count // threads))
    every = [np.repeat(x[::threads], size) for x in (sim.lanes.block, sim.lanes.thread)]
    axes = {tag: np.repeat(x[::threads], size) for tag, x in sim.lanes.axes.items()}
    return sim._memory(buffer), indices, RunningThreads(every[0], every[1], sim.lanes.first, axes, sim.lanes.threads)


def _places(spans: Mapping[int, int], rank: int, panels: bool) -> list[np.ndarray]:
    """Returns where the numbers of a tile lie along each dimension, one row of memory after the other. ``panels``: a row goes through all of them."""
    columns, rows, *over = list(spans.items())
    across = over[0][1] if panels else 1
    row, panel, column = np.indices((rows[1], across, columns[1])).reshape(3, -1)
    out = [np.zeros(len(row), np.int64) for _ in range(rank)]
    out[columns[0]], out[rows[0]] = column, row
    if panels:
        out[over[0][0]] = panel
    return out


# Products of warp groups on the simulated GPU: which are on their way, and what may not be touched meanwhile.
#
# A product is computed where it begins. Until ``wgmma_wait`` it counts as not done: using its sums, and writing its operands, are
# errors. So is a product on sums that something else changed since ``wgmma_fence``.

_OWN = ("tir.wgmma_fence", "tir.wgmma_dot", "tir.wgmma_wait")


class GroupProducts:
    """The products that began. ``closed``: how many groups of them there are; ``busy``: the group whose products change the sums of
    a buffer; ``unfenced``: buffers that something else changed; ``operands``: elements that products read, with their group."""

    def __init__(self) -> None:
        self.closed = 0
        self.busy: dict[Buffer, int] = {}
        self.unfenced: set[Buffer] = set()
        self.operands: list[tuple[int, WatchedArray]] = []

    def commit(self) -> None:
        """Close a group."""
        self.closed += 1

    def reads(self, memory: WatchedArray, place: tuple[Any, ...]) -> None:
        """Remember the elements that a product of the next group reads."""
        if memory.reading is None:
            memory.reading = np.zeros(memory.array.shape, np.int64)
        memory.reading[place] = self.closed + 1
        self.operands.append((self.closed + 1, memory))

    def begins(self, buffer: Buffer) -> None:
        """Remember that a product changes the sums of a buffer; GpuError where there is no fence."""
        if buffer in self.unfenced:
            raise GpuError(f"a product begins on {buffer.name}, which changed since the last T.wgmma_fence")
        self.busy[buffer] = self.closed + 1

    def waits(self, groups: int) -> None:
        """End all products but those of the last ``groups`` groups."""
        done = self.closed - groups
        self.busy = {buffer: group for buffer, group in self.busy.items() if group > done}
        for group, memory in self.operands:
            if group <= done and memory.reading is not None:
                memory.reading[memory.reading <= done] = 0
        self.operands = [one for one in self.operands if one[0] > done]

    def uses(self, buffer: Buffer) -> None:
        """Raise RaceError where products still change the sums of a buffer."""
        if buffer in self.busy:
            raise RaceError(f"uses {buffer.name}, which a product still changes; T.wgmma_wait ends products")

    def changed(self, buffer: Buffer, value: Expr) -> None:
        """Note what was written to sums: by a product and its like, or by something else."""
        if not buffer.scope.startswith("wgmma."):
            return
        if not isinstance(value, Call) or value.op not in _OWN:
            self.uses(buffer)
            self.unfenced.add(buffer)
        elif value.op == "tir.wgmma_fence":
            self.unfenced.discard(buffer)
        elif value.op == "tir.wgmma_dot":
            self.begins(buffer)


def sums_of(e: Call) -> Buffer:
    """Returns the buffer of the sums that an operation changes; GpuError where they are no load."""
    if not isinstance(e.args[0], BufferLoad):
        raise GpuError(f"{e.op.removeprefix('tir.')} takes sums from their buffer, not {e.args[0]}")
    return e.args[0].buffer


def count_product(counts: KernelCounts, value: Expr, warps: float) -> None:
    """Count a product of warp groups; nothing for other values."""
    if isinstance(value, Call) and value.op == "tir.wgmma_dot":
        columns = group_columns(value.dtype)
        operand = value.args[1].dtype
        counts.group_product(GROUP_ROWS, columns, group_steps(operand), operand.element.bytes, warps)
