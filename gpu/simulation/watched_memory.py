"""Memory of the simulated GPU: global, shared by a block, and of one thread, each access checked.

Rows are copied in bulk, and their bytes arrive at mbarriers.

An access outside of a buffer, a read of shared or local memory that nothing wrote, and two threads that use one element
between two barriers, one of them to write another value, are errors that name the buffer, the element and the threads.

A copy is done where it begins. Until ``ptx_wait_barrier`` its elements count as on their way, and using them is an error. So is an
mbarrier whose phase does not get the bytes that it expects, or that begins copies before its last phase was awaited.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...tir.expr import BufferLoad, Call, Expr, Var, to_numpy
from ...tir.expr.dtype import bfloat16_from_bits, bfloat16_to_bits
from ...tir.expr.intrinsics.operation_row import Operation
from ...tir.stmt import AttrStmt, Buffer, BufferStore, For
from ..launch.barriers import BULK_WAIT
from ..launch.bulk_copies import EXPECT, INIT, PIECE
from ..launch.launch_form import GpuError
from .lane_values import Mask, Value, held_type

NOBODY, SEVERAL = -1, -2


class RaceError(GpuError):
    """Raised when the result of a kernel would depend on the order of its threads."""


@dataclass(eq=False)
class RunningThreads:
    """The threads that run together, with their numbers. ``block`` and ``thread`` are the numbers of each lane,
    ``first`` the number of the first block, ``names`` what a message calls the lane's axes."""

    block: np.ndarray
    thread: np.ndarray
    first: int
    axes: dict[str, np.ndarray]
    threads: int = 1
    """The threads of a block."""

    @property
    def count(self) -> int:
        """The number of lanes."""
        return len(self.block)

    def name(self, lane: int) -> str:
        """Return the block and the thread of a lane, for a message."""
        return ", ".join([f"{tag} {values[lane]}" for tag, values in self.axes.items()]) or "the only thread"


@dataclass(frozen=True, eq=False)
class _Use:
    """Accesses of one statement: where, by which of the lanes, since which barrier."""

    place: tuple[Any, ...]
    chosen: np.ndarray
    lanes: RunningThreads
    epoch: int

    @property
    def who(self) -> np.ndarray:
        """The number of each thread in the whole grid."""
        return _ids(self.lanes)[self.chosen]


class WatchedArray:
    """The memory of one buffer.

    ``lead`` says which copy a lane uses: its block's (of shared memory), its own, or none (of global memory). ``array``
    has the dimension of the copies first where there are several.
    """

    def __init__(
        self, buffer: Buffer, shape: tuple[int, ...], array: np.ndarray | None, lead: str, copies: int
    ) -> None:
        self.buffer, self.shape, self.lead = buffer, shape, lead
        full = shape if lead == "global" else (copies, *shape)
        self.array = np.zeros(full, to_numpy(buffer.dtype)) if array is None else array
        self.ready = None if array is not None else np.zeros(full, bool)
        if not shape:
            self.shape, self.array = (1,), self.array.reshape(*full, 1)
            self.ready = None if self.ready is None else self.ready.reshape(*full, 1)
        self.watch = False
        self.added: np.ndarray | None = None
        """The block whose threads change each element atomically in this kernel, or nobody, or several."""
        self.added_epoch = np.empty(0, np.int64)
        self.writer = self.epoch = self.reader = self.reader_epoch = np.empty(0, np.int64)
        self.arriving: np.ndarray | None = None
        """The group of the copy that fills each element, among those of the lane in ``starter``; 0 where none does."""
        self.starter = self.writer
        self.reading: np.ndarray | None = None
        """The group of the product of warp groups that still reads each element; 0 where none does."""

    def start_watching(self, on: bool = True) -> None:
        """Forget who used the elements: a kernel begins; ``on``: it writes them."""
        self.watch, self.added = on, None
        if on:
            self.writer = np.full(self.array.shape, NOBODY, np.int64)
            self.reader = np.full(self.array.shape, NOBODY, np.int64)
            self.epoch = np.zeros(self.array.shape, np.int64)
            self.reader_epoch = np.zeros(self.array.shape, np.int64)

    # -- accesses ------------------------------------------------------------------------------------------------------

    def load(self, indices: list[Value], mask: Mask, lanes: RunningThreads, epoch: int) -> Value:
        """Return the elements at ``indices`` in the lanes of ``mask``."""
        place, active = self._place(indices, mask, lanes, "reads")
        chosen = np.arange(lanes.count) if active is None else active
        if self.watch or self.ready is not None or self.lead != "global":
            place = tuple([np.broadcast_to(p, chosen.shape) for p in place])
        found = self._read(_Use(place, chosen, lanes, epoch))
        if active is None:
            return found
        out = np.zeros(lanes.count, found.dtype)
        out[active] = found
        return out

    def _read(self, use: _Use) -> Value:
        place, chosen = use.place, use.chosen
        if self.ready is not None and not np.all(self.ready[place]):
            bad = int(np.argmin(self.ready[place]))
            where = use.lanes.name(int(chosen[bad]))
            raise GpuError(f"reads {self._text(place, bad)}, which nothing has written, in {where}")
        self._check_copies(use, "reads")
        if self.watch:
            self._check(use, self.writer, self.epoch, "reads", "wrote")
            earlier, when = self.reader[place], self.reader_epoch[place]
            other = (earlier != NOBODY) & (earlier != use.who) & (when == use.epoch)
            self.reader[place] = np.where(other, SEVERAL, use.who)
            again = self.reader[place] != use.who
            self.reader[tuple([p[again] for p in place])] = SEVERAL
            self.reader_epoch[place] = use.epoch
        found = self.array[place]
        if self.buffer.dtype.kind == "bfloat":
            return bfloat16_from_bits(found)
        return found if self.buffer.dtype.is_bool else np.asarray(found).astype(held_type(self.buffer.dtype))[()]

    def store(
        self,
        value: Value,
        indices: list[Value],
        mask: Mask,
        lanes: RunningThreads,
        epoch: int,
        group: np.ndarray | None = None,
    ) -> None:
        """Write the elements at ``indices`` in the lanes of ``mask``; ``group``: by copies of these groups, one per lane."""
        place, active = self._place(indices, mask, lanes, "writes")
        chosen = np.arange(lanes.count) if active is None else active
        values = np.broadcast_to(np.asarray(value), (lanes.count,))[chosen]
        values = bfloat16_to_bits(values) if self.buffer.dtype.kind == "bfloat" else values.astype(self.array.dtype)
        place = tuple([np.broadcast_to(p, chosen.shape) for p in place])
        use = _Use(place, chosen, lanes, epoch)
        self._check_copies(use, "writes")
        if self.watch:
            same = _equal(self.array[place], values)
            if self.ready is not None:
                same &= self.ready[place]
            self._check(use, self.writer, self.epoch, "writes", "wrote", ~same)
            self._check(use, self.reader, self.reader_epoch, "writes", "read", ~same)
        self.array[place] = values
        if self.ready is not None:
            self.ready[place] = True
        if self.watch:
            self.writer[place] = use.who
            self.epoch[place] = epoch
            several = self.writer[place] != use.who
            clash = several & ~_equal(self.array[place], values)
            if clash.any():
                bad = int(np.argmax(clash))
                raise RaceError(f"two threads write different values to {self._text(place, bad)}, one of them is "
                                f"{lanes.name(int(chosen[bad]))}")  # fmt: skip
            self.writer[tuple([p[several] for p in place])] = SEVERAL
        if group is not None:
            if self.arriving is None:
                self.arriving, self.starter = np.zeros((2, *self.array.shape), np.int64)
            self.arriving[place], self.starter[place] = group[chosen], chosen

    def add(self, value: Value, indices: list[Value], mask: Mask, lanes: RunningThreads, epoch: int) -> None:
        """Add to the elements at ``indices`` in the lanes of ``mask``, one lane after the other."""
        chosen, place = self._changed(indices, mask, lanes, epoch, "adds to")
        values = np.broadcast_to(np.asarray(value), (lanes.count,))[chosen]
        if self.buffer.dtype.kind != "bfloat":
            np.add.at(self.array, place, values.astype(self.array.dtype))
            return
        for lane, value in enumerate(values):  # each sum is rounded
            at = tuple([p[lane] for p in place])
            self.array[at] = bfloat16_to_bits(bfloat16_from_bits(self.array[at]) + np.float32(value))

    def change(
        self, row: Operation, values: list[Value], indices: list[Value], mask: Mask, lanes: RunningThreads, epoch: int
    ) -> Value:
        """Change the elements at ``indices`` in the lanes of ``mask``, one lane after the other; returns what they were."""
        chosen, place = self._changed(indices, mask, lanes, epoch, "changes")
        assert row.evaluate is not None
        run = row.evaluate(self.buffer.dtype, [])
        spread = [np.broadcast_to(np.asarray(v), (lanes.count,))[chosen] for v in values]
        out = np.zeros(lanes.count, held_type(self.buffer.dtype))
        for n, lane in enumerate(chosen):
            at = tuple([slice(p[n], p[n] + 1) for p in place])
            out[lane] = run(self.array[at].reshape(-1), *[v[n] for v in spread])
        return out

    def _changed(
        self, indices: list[Value], mask: Mask, lanes: RunningThreads, epoch: int, what: str
    ) -> tuple[np.ndarray, tuple[Any, ...]]:
        """Return the lanes and the places of an atomic change. Elements that a thread uses otherwise need a barrier in between,
        and no thread of another block may use them so."""
        place, active = self._place(indices, mask, lanes, what)
        chosen = np.arange(lanes.count) if active is None else active
        place = tuple([np.broadcast_to(p, chosen.shape) for p in place])
        if self.watch:
            if self.added is None:
                self.added = np.full(self.array.shape, NOBODY, np.int64)
                self.added_epoch = np.zeros(self.array.shape, np.int64)
            use = _Use(place, chosen, lanes, epoch)
            plain = self._meets(use, self.writer, self.epoch) | self._meets(use, self.reader, self.reader_epoch)
            if plain.any():
                bad = int(np.argmax(plain))
                raise RaceError(f"{what} atomically {self._text(place, bad)}, which a thread uses otherwise in this kernel, in "
                                f"{lanes.name(int(chosen[bad]))}")  # fmt: skip
            mine = lanes.block[chosen]
            known = self.added[place]
            self.added[place] = np.where((known == NOBODY) | (known == mine), mine, SEVERAL)
            self.added[tuple([p[self.added[place] != mine] for p in place])] = SEVERAL
            self.added_epoch[place] = epoch
        return chosen, place

    def arrive(self, done: np.ndarray, epoch: int) -> None:
        """End the copies of each lane up to a group. The elements count as written now."""
        if self.arriving is not None:
            ended = (self.arriving > 0) & (self.arriving <= done[self.starter])
            self.arriving[ended] = 0
            if self.watch:
                self.epoch[ended] = epoch

    def arrive_rows(self, groups: np.ndarray, blocks: np.ndarray) -> None:
        """End the copies in bulk of a group of each block. All of its threads waited for them."""
        if self.arriving is not None and self.lead == "block":
            lead = [-1] + [1] * (self.arriving.ndim - 1)
            awaited = np.zeros(self.arriving.shape[0], np.int64)
            awaited[blocks] = groups
            ended = self.arriving == awaited.reshape(lead)
            ended &= self.arriving > 0
            self.arriving[ended] = 0
            self.writer[ended] = NOBODY

    # -- checks --------------------------------------------------------------------------------------------------------

    def _place(self, indices: list[Value], mask: Mask, lanes: RunningThreads, what: str) -> tuple[tuple[Any, ...], Any]:
        active = None if mask is True or (isinstance(mask, np.ndarray) and mask.all()) else np.flatnonzero(mask)
        found = []
        indices = indices or [np.int64(0)]
        for index, extent in zip(indices, self.shape, strict=True):
            i = np.asarray(index)
            if i.ndim and active is not None:
                i = i[active]
            outside = (i < 0) | (i >= extent)
            if outside.any():
                bad = int(np.argmax(outside)) if i.ndim else 0
                lane = bad if active is None else int(active[bad])
                where = ", ".join(str(np.asarray(x)[lane] if np.ndim(x) else x) for x in indices)
                raise GpuError(
                    f"{what} {self.buffer.name}[{where}], outside its shape {self.shape}, in {lanes.name(lane)}"
                )
            found.append(i)
        if self.lead != "global":
            own = lanes.block - lanes.first if self.lead == "block" else np.arange(lanes.count)
            found.insert(0, own if active is None else own[active])
        return tuple(found), active

    def _added(self, use: _Use) -> np.ndarray | None:
        """Return where other blocks, or threads since the last barrier, change elements atomically."""
        if self.added is None:
            return None
        who = self.added[use.place]
        return (who != NOBODY) & ((who != use.lanes.block[use.chosen]) | (self.added_epoch[use.place] == use.epoch))

    def _check_copies(self, use: _Use, what: str) -> None:
        added = self._added(use)
        if added is not None and added.any():
            bad = int(np.argmax(added))
            where = use.lanes.name(int(use.chosen[bad]))
            raise RaceError(
                f"{what} {self._text(use.place, bad)}, to which threads add atomically in this kernel, in {where}"
            )
        if what == "writes" and self.reading is not None and self.reading[use.place].any():
            bad = int(np.argmax(self.reading[use.place] > 0))
            where = use.lanes.name(int(use.chosen[bad]))
            raise RaceError(f"writes {self._text(use.place, bad)}, which a product still reads, in {where}")
        if self.arriving is not None and self.arriving[use.place].any():
            bad = int(np.argmax(self.arriving[use.place] > 0))
            where = use.lanes.name(int(use.chosen[bad]))
            raise RaceError(f"{what} {self._text(use.place, bad)}, which an asynchronous copy still fills, in {where}")

    def _check(
        self, use: _Use, who: np.ndarray, when: np.ndarray, what: str, did: str, but: Any = True
    ) -> None:  # fmt: skip
        """Raise an error where another thread accessed the same element without a barrier in between. That is one of
        the same block since its last barrier, or one of another block in this kernel."""
        lanes, threads, other = use.lanes, use.lanes.threads, who[use.place]
        clash = self._meets(use, who, when) & but
        if np.any(clash):
            bad = int(np.argmax(clash))
            known = (
                f"thread {other[bad] % threads} of block {other[bad] // threads}"
                if other[bad] >= 0
                else "other threads"
            )
            raise RaceError(
                f"{what} {self._text(use.place, bad)} in {lanes.name(int(use.chosen[bad]))}, which {known} {did} without a "
                "barrier in between"
            )

    def _meets(self, use: _Use, who: np.ndarray, when: np.ndarray) -> np.ndarray:
        """Return where another thread accessed the same element without a barrier in between."""
        other, me, threads = who[use.place], use.who, use.lanes.threads
        foreign = (other >= 0) & (other // threads != me // threads)
        return (other != NOBODY) & (other != me) & ((when[use.place] == use.epoch) | foreign)

    def _text(self, place: tuple[Any, ...], lane: int) -> str:
        inner = place if self.lead == "global" else place[1:]
        return f"{self.buffer.name}[{', '.join(str(np.asarray(p)[lane] if np.ndim(p) else p) for p in inner)}]"


def _ids(lanes: RunningThreads) -> np.ndarray:
    return lanes.block * lanes.threads + lanes.thread


def _equal(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    same = a == b
    return same | ((a != a) & (b != b))


_ROWS = 1 << 40
"""Groups of elements with larger numbers arrive at mbarriers, those with smaller ones are groups of ``cp.async``."""
_MOST = 1 << 10
"""More mbarriers than a buffer has."""


class Arriving:
    """The mbarriers of the blocks that run together, by their memory."""

    def __init__(self) -> None:
        self.known: dict[Var, _Phases] = {}

    def run(self, e: Call, sim: Any, mask: Mask) -> None:
        """Run an operation on an mbarrier."""
        phases, block, slot, active = self._place(e.args[0], sim, mask)
        if e.op == INIT:
            phases.made[block, slot] = sim.epoch
            return
        phases.check(block, slot, sim.epoch)
        number = np.broadcast_to(sim.value(e.args[1], mask), (sim.lanes.count,))[active]
        if e.op == EXPECT:
            phases.expect(block, slot, number)
            return
        if len(active) % sim.lanes.threads or np.any(np.bincount(block)[np.unique(block)] != sim.lanes.threads):
            raise GpuError(f"not all threads of a block wait at {phases.name}")
        phases.wait(block, slot, number)
        for memory in sim.memory.values():
            memory.arrive_rows(phases.base + slot[:: sim.lanes.threads], block[:: sim.lanes.threads])

    def copy(self, s: AttrStmt, sim: Any, mask: Mask) -> None:
        """Copy one row by each thread of ``mask``."""
        phases, block, slot, active = self._place(s.value, sim, mask)
        phases.check(block, slot, sim.epoch)
        loop = s.body
        assert isinstance(loop, For) and isinstance(loop.body, BufferStore) and isinstance(loop.body.value, BufferLoad)
        to, of, low, count = loop.body, loop.body.value, int(sim.value(loop.min)), int(sim.value(loop.extent))
        size = to.buffer.dtype.bytes
        if count * size % PIECE:
            raise GpuError(f"a row of {to.buffer.name} has {count * size} bytes, which is no multiple of {PIECE}")
        phases.copied(block, slot, count * size)
        outer = sim.lanes, sim.values, sim.counting
        sim.lanes, sim.values = _one_lane_for_each(sim, active, count)
        sim.values[loop.loop_var] = np.tile(low + np.arange(count), len(active))
        for access in (to, of):
            at = _offset(access.buffer, access.indices, sim).reshape(-1, count)
            if np.any(at[:, 0] * size % PIECE):
                bad = at[at[:, 0] * size % PIECE != 0, 0][0]
                raise GpuError(
                    f"a row of {access.buffer.name} begins at element {bad}, which is at no multiple of {PIECE} bytes"
                )
            if np.any(at != at[:, :1] + np.arange(count)):
                raise GpuError(f"the elements of a row of {access.buffer.name} do not lie side by side")
        sim.counting, sim.rows = None, np.repeat(phases.base + slot, count)
        sim.stmt(to, True)
        (sim.lanes, sim.values, sim.counting), sim.rows = outer, None
        if sim.counting is not None:
            sim.counting.rows(of.buffer, at[:, 0], count)

    def end(self) -> None:
        """Check that no copy is on its way when the threads end."""
        for phases in self.known.values():
            if np.any((phases.awaited != phases.done) | (phases.missing != 0)):
                raise GpuError(f"a kernel ends while copies are on their way to {phases.name}")

    def _place(self, address: Expr, sim: Any, mask: Mask) -> tuple[_Phases, np.ndarray, np.ndarray, np.ndarray]:
        """Return the mbarriers of an address, and the block, the number and the lane of each active thread."""
        load = address.args[0] if isinstance(address, Call) and address.args else None
        if not isinstance(load, BufferLoad):
            raise GpuError(f"{address} is no address of an mbarrier")
        memory = sim._memory(load.buffer)
        if load.buffer.data not in self.known:
            shape = memory.array.shape
            self.known[load.buffer.data] = _Phases(load.buffer.name, shape, _ROWS + len(self.known) * _MOST)
        active = np.arange(sim.lanes.count) if mask is True else np.flatnonzero(mask)
        slot = np.broadcast_to(sim.value(load.indices[0], mask), (sim.lanes.count,))[active]
        if np.any((slot < 0) | (slot >= memory.shape[0])):
            raise GpuError(f"uses {load.buffer.name}[{slot[0]}], outside its shape {memory.shape}")
        return self.known[load.buffer.data], (sim.lanes.block - sim.lanes.first)[active], slot, active


class _Phases:
    """The states of the mbarriers of a buffer, by block and number. ``done``: how many phases have all of their bytes; ``awaited``: the
    last one that the threads waited for; ``missing``: the bytes that are expected and not copied; ``expecting``: whether some are."""

    def __init__(self, name: str, shape: tuple[int, ...], base: int) -> None:
        self.name, self.base = name, base
        self.made = np.zeros(shape, np.int64)
        self.done, self.awaited, self.missing = np.zeros((3, *shape), np.int64)
        self.expecting = np.zeros(shape, bool)

    def check(self, block: np.ndarray, slot: np.ndarray, epoch: int) -> None:
        """Raise GpuError for an mbarrier that is not ready for all threads."""
        if np.any(self.made[block, slot] == 0):
            raise GpuError(f"{self.name} is used before ptx_init_barrier_thread_count")
        if np.any(self.made[block, slot] == epoch):
            raise RaceError(f"{self.name} is made ready and used without a barrier in between")

    def expect(self, block: np.ndarray, slot: np.ndarray, number: np.ndarray) -> None:
        """Begin a phase with so many bytes."""
        if len(np.unique(block)) != len(block):
            raise GpuError(f"several threads of a block say how many bytes {self.name} expects")
        if np.any(self.expecting[block, slot]):
            raise GpuError(
                f"{self.name} expects bytes again in a phase that still misses {self.missing[block, slot][0]}"
            )
        self._begin(block, slot)
        self.expecting[block, slot] = True
        self.missing[block, slot] += number
        self._finish()

    def copied(self, block: np.ndarray, slot: np.ndarray, number: int) -> None:
        """Count the bytes of a row of each thread."""
        fresh = ~self.expecting[block, slot]
        self._begin(block[fresh], slot[fresh])
        np.subtract.at(self.missing, (block, slot), number)
        if np.any(self.expecting & (self.missing < 0)):
            raise GpuError(f"{-self.missing.min()} bytes more arrive at {self.name} than it expects")
        self._finish()

    def _begin(self, block: np.ndarray, slot: np.ndarray) -> None:
        late = self.awaited[block, slot] != self.done[block, slot]
        if np.any(late):
            raise RaceError(f"copies to {self.name}[{slot[np.argmax(late)]}] begin before its phase {self.done[block, slot][late][0] - 1} "
                            "was awaited")  # fmt: skip

    def _finish(self) -> None:
        whole = self.expecting & (self.missing == 0)
        self.done[whole] += 1
        self.expecting[whole] = False

    def wait(self, block: np.ndarray, slot: np.ndarray, parity: np.ndarray) -> None:
        """End the wait for the phase that has this parity."""
        done = self.done[block, slot]
        never = done % 2 == parity
        if np.any(never):
            bad = int(np.argmax(never))
            state = (f"which still misses {self.missing[block, slot][bad]} bytes" if self.expecting[block, slot][bad]
                     else f"and {done[bad]} phases are done")  # fmt: skip
            raise GpuError(f"waits for a phase of parity {parity[bad]} at {self.name}[{slot[bad]}], {state}: it would wait forever, or not "
                           "at all")  # fmt: skip
        self.awaited[block, slot] = done


BARRIER_OPERATIONS = (INIT, EXPECT, BULK_WAIT)
"""The operations on mbarriers."""


def _one_lane_for_each(sim: Any, active: np.ndarray, count: int) -> tuple[RunningThreads, dict[Var, Any]]:
    """Returns the lanes and the values of variables with ``count`` lanes in place of each active one."""
    lanes = sim.lanes

    def more(x: Any) -> Any:
        return np.repeat(x[active], count) if np.ndim(x) and len(x) == lanes.count else x

    axes = {tag: more(x) for tag, x in lanes.axes.items()}
    made = RunningThreads(more(lanes.block), more(lanes.thread), lanes.first, axes, lanes.threads)
    return made, {var: more(value) for var, value in sim.values.items()}


def _offset(buffer: Buffer, indices: tuple[Expr, ...], sim: Any) -> np.ndarray:
    """Returns the element at which each lane is, in memory."""
    out: Any = np.int64(0)
    for index, stride in zip(indices, buffer.element_strides(), strict=True):
        out = out + sim.value(index) * sim.value(stride)
    return np.broadcast_to(out, (sim.lanes.count,))
