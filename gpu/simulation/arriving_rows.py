"""Rows that are copied in bulk on the simulated GPU, and the mbarriers at which their bytes arrive.

A copy is done where it begins. Until ``ptx_wait_barrier`` its elements count as on their way, and using them is an error. So is an
mbarrier whose phase does not get the bytes that it expects, or that begins copies before its last phase was awaited.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...tir.expr import BufferLoad, Call, Expr, Var
from ...tir.stmt import AttrStmt, Buffer, BufferStore, For
from ..launch.asynchronous_copies import BULK_WAIT
from ..launch.bulk_copies import EXPECT, INIT, PIECE
from ..launch.launch_form import GpuError
from .lane_values import Mask
from .watched_memory import RaceError, RunningThreads

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


OPERATIONS = (INIT, EXPECT, BULK_WAIT)
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
