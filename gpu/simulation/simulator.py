"""Runs a function with kernels in launch form on the CPU: all threads of several blocks in step, everything checked.

Between two barriers threads may run in any order. Here they run in step, and an error is raised when another order could
give another result; so the result is that of a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from ...codegen.lowered import written_data
from ...codegen.machine.target import WARP
from ...tir.expr import BufferLoad, Call, Expr, Ramp, Var
from ...tir.expr.intrinsics import OPERATIONS
from ...tir.expr.intrinsics.control_and_memory import CHANGES
from ...tir.expr.intrinsics.matrix_operations import SIDE
from ...tir.expr.intrinsics.warp_fragments import FRAGMENT_OPERATIONS, exchanged_rows, ldmatrix_t, mma, warps_products
from ...tir.stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    Buffer,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    While,
    statements_in,
)
from ...tir.walk import pre_order
from ..launch.barriers import BULK_SCOPE, is_barrier
from ..launch.launch_form import (
    BLOCK_TAGS,
    THREAD_TAGS,
    GpuError,
    held_of,
    inside_threads,
    is_private,
    is_shared,
    tag_of,
    threads_of_scope,
    threads_of_tile,
)
from ..launch.software_pipeline import ASYNC_SCOPE, COMMIT_COPIES, WAIT_FOR_COPIES
from .kernel_counts import KernelCounts, offsets_of, tile_operands, warps_of
from .lane_values import Mask, Value, both, evaluate, nobody
from .tile_values import GroupProducts, count_product, store_fragment, store_tile, tile_value, whole_teams
from .watched_memory import BARRIER_OPERATIONS, Arriving, RunningThreads, WatchedArray

LANES = 1 << 12
"""About so many threads run together."""
LOCKS = "tir.atomic_compare_exchange"
CHANGED = frozenset(row.op for row in CHANGES)


def simulate(
    func: PrimFunc, arrays: Mapping[Buffer, np.ndarray], scalars: Mapping[Var, Any],
    counts: list[KernelCounts] | None = None,
) -> None:  # fmt: skip
    """Run ``func``, whose kernels are in launch form, on the arrays of its parameters; outputs are written in place.

    ``scalars`` holds the values of scalar parameters and of sizes. GpuError for an access outside of a buffer, a read of
    memory that nothing wrote, a barrier that not all threads of a block reach; RaceError, which is one, for races.
    ``counts`` receives what each kernel that was launched did.
    """
    _Simulator(func, arrays, scalars, counts).run()


def orders_blocks(kernel: Stmt) -> bool:
    """Return whether blocks may order what they do to memory by atomic changes.

    They do where one takes a lock, or reads what a change returned. The blocks of such a kernel run one after another: a lock is free when one asks for it, and what blocks do to the same
    elements is no race.
    """
    kept = set()
    for n in pre_order(kernel):
        if isinstance(n, Call) and n.op == LOCKS:
            return True
        if isinstance(n, BufferStore) and isinstance(n.value, Call) and n.value.op in CHANGED:
            kept.add(n.buffer.data)
    return any(isinstance(n, BufferLoad) and n.buffer.data in kept for n in pre_order(kernel))


class _Simulator:
    """The state of a run: values of variables, memory by the buffers' pointers, and the threads that run together."""

    def __init__(
        self, func: PrimFunc, arrays: Mapping[Buffer, np.ndarray], scalars: Mapping[Var, Any],
        counts: list[KernelCounts] | None = None,
    ) -> None:  # fmt: skip
        self.func = func
        self.counts = counts
        self.counting: KernelCounts | None = None
        self.share = 1.0
        self.values: dict[Var, Value] = dict(scalars)
        self.memory: dict[Var, WatchedArray] = {}
        one = np.zeros(1, np.int64)
        self.lanes = self.host = RunningThreads(one, one, 0, {})
        self.epoch = 1
        self.copying = False
        self.groups = one
        self.products = GroupProducts()
        self.arriving = Arriving()
        self.rows: np.ndarray | None = None
        for buffer, array in arrays.items():
            view = array if array.dtype.isbuiltin == 1 else array.view(f"u{array.itemsize}")  # bfloat16, float8
            self.memory[buffer.data] = WatchedArray(buffer, array.shape, view, "global", 1)

    def run(self) -> None:
        """Run the function."""
        with np.errstate(all="ignore"):
            try:
                self.stmt(self.func.body, True)
            except GpuError as error:
                raise type(error)(f"{self.func.name}: {error}") from None

    # -- what expressions ask for ------------------------------------------------------------------------------------

    def load(self, e: BufferLoad, indices: list[Value], mask: Mask) -> Value:
        """Return elements of a buffer."""
        memory = self._memory(e.buffer)
        found = memory.load(indices, mask, self.lanes, self.epoch)
        if self.counting is not None:
            self._count(memory, indices, mask)
        return found

    def _count(self, memory: WatchedArray, indices: Sequence[Value], mask: Mask) -> None:
        """Count an access of the lanes of ``mask``."""
        if self.counting is not None and indices:
            lanes = self.lanes
            offsets, warps = offsets_of(memory.shape, indices, lanes.count), warps_of(lanes)
            if mask is not True:
                offsets, warps = offsets[mask], warps[mask]
            self.counting.access(memory.buffer, memory.lead, offsets, warps, self.share)

    def _warps(self, mask: Mask) -> float:
        return len(np.unique(warps_of(self.lanes)[mask])) if mask is not True else -(-self.lanes.count // WARP)

    def from_lane(self, value: Value, distance: int, mask: Mask) -> Value:
        """Return the values of the lanes of each warp whose numbers differ in one bit."""
        lanes = self.lanes
        if not (mask is True or mask.all()):
            raise GpuError("not all threads of a warp take part in an exchange of values")
        partner = lanes.thread ^ distance
        there = np.arange(lanes.count) + (partner - lanes.thread)
        if distance >= WARP or partner.max() > lanes.thread.max():
            raise GpuError(f"an exchange of values over {distance} lanes leaves the warp")
        return np.broadcast_to(value, (lanes.count,))[there]

    def change(self, e: Call, mask: Mask) -> Value:
        """Change elements atomically, and return what they were."""
        place = e.args[0].args[0]  # type: ignore[attr-defined]
        memory = self._memory(place.buffer)
        places = [self.value(i, mask) for i in place.indices]
        values = [self.value(a, mask) for a in e.args[1:]]
        found = memory.change(OPERATIONS[e.op], values, places, mask, self.lanes, self.epoch)
        if self.counting is not None:
            self._count(memory, places, mask)
        return found

    def _memory(self, buffer: Buffer) -> WatchedArray:
        found = self.memory.get(buffer.data)
        if found is None:
            raise GpuError(f"buffer {buffer.name} has no memory here")
        return found

    def value(self, e: Expr, mask: Mask = True) -> Value:
        """Return the value of an expression."""
        return evaluate(e, self, mask)

    # -- statements ----------------------------------------------------------------------------------------------------

    def stmt(self, s: Stmt, mask: Mask) -> None:
        """Run ``s`` in the lanes of ``mask``."""
        if not nobody(mask):
            _STATEMENTS[type(s)](self, s, mask)

    def _for(self, s: For, mask: Mask) -> None:
        if tag_of(s) and self.lanes is self.host:
            self._launch(s)
            return
        low, extent = self.value(s.min, mask), self.value(s.extent, mask)
        most = int(np.max(np.where(mask, extent, 0)))
        varies = np.ndim(extent) > 0 and bool(np.any(np.asarray(extent) != most))
        outer, self.share = self.share, self.share / (most if s.kind == "vectorized" and most else 1)
        for k in range(most):
            self.values[s.loop_var] = low + np.int64(k)
            self.stmt(s.body, both(mask, k < extent) if varies else mask)
        self.share = outer

    def _store(self, s: BufferStore, mask: Mask) -> None:
        if threads_of_tile(s.value.dtype):
            store_fragment(self, s.buffer, s.indices, tile_value(s.value, self, mask), mask)
            self.products.changed(s.buffer, s.value)
            if self.counting is not None:
                count_product(self.counting, s.value, self._warps(mask))
            operands = tile_operands(s.value) if self.counting is not None else []
            for n, load in enumerate(operands):
                assert self.counting is not None
                self.counting.tiles(SIDE * SIDE, load.dtype.with_lanes(1).bytes, self._warps(mask), n > 0)
            return
        if isinstance(s.value, Call) and s.value.op in FRAGMENT_OPERATIONS:
            self._store_fragment(s, s.value, mask)
            return
        value = self.value(s.value, mask)
        group = self.groups + 1 if self.copying else self.rows
        places = [self.value(i, mask) for i in s.indices]
        self._memory(s.buffer).store(value, places, mask, self.lanes, self.epoch, group)
        if self.counting is not None:
            self.counting.compute(s.value, self._warps(mask))
            self._count(self._memory(s.buffer), places, mask)

    def _store_fragment(self, s: BufferStore, e: Call, mask: Mask) -> None:
        """Store the fragments that an operation gives all threads of some warps."""
        whole_teams(self, mask, WARP)
        parts = [self._vectors(a, mask) for a in e.args]
        made = warps_products(*parts) if e.op == mma.op else exchanged_rows(parts[0], e.op == ldmatrix_t.op)
        memory = self._memory(s.buffer)
        for n, places in enumerate(self._lanes(s.indices, e.dtype.lanes, mask)):
            memory.store(made[:, n], places, mask, self.lanes, self.epoch)
        if self.counting is not None and e.op == mma.op:
            rows, columns, steps = 16, 8, 2 * e.args[1].dtype.lanes
            self.counting.fragment_product(2.0 * rows * columns * steps, self._warps(mask))

    def _lanes(self, indices: Sequence[Expr], count: int, mask: Mask) -> list[list[Value]]:
        """Return the places of the lanes of a vector access."""
        found = [self.value(i.base if isinstance(i, Ramp) else i, mask) for i in indices]
        steps = [self.value(i.stride, mask) if isinstance(i, Ramp) else None for i in indices]
        return [
            [p if step is None else p + step * n for p, step in zip(found, steps, strict=True)] for n in range(count)
        ]

    def _vectors(self, e: Expr, mask: Mask) -> np.ndarray:
        """Return the vector that each thread reads from a buffer, as a row."""
        if not isinstance(e, BufferLoad):
            raise GpuError(f"a fragment comes from a buffer, not {e}")
        memory, lanes = self._memory(e.buffer), self.lanes
        share, self.share = self.share, self.share / e.dtype.lanes
        out = []
        for places in self._lanes(e.indices, e.dtype.lanes, mask):
            out.append(np.broadcast_to(memory.load(places, mask, lanes, self.epoch), (lanes.count,)))
            self._count(memory, places, mask)
        self.share = share
        return np.stack(out, 1)

    def _add(self, e: Call, mask: Mask) -> None:
        """Add to elements atomically."""
        place = e.args[0].args[0]  # type: ignore[attr-defined]
        memory, value = self._memory(place.buffer), self.value(e.args[1], mask)
        places = [self.value(i, mask) for i in place.indices]
        memory.add(value, places, mask, self.lanes, self.epoch)
        if self.counting is not None:
            self.counting.compute(e.args[1], self._warps(mask))
            self._count(memory, places, mask)

    def _attribute(self, s: AttrStmt, mask: Mask) -> None:
        if s.attr_key == BULK_SCOPE:
            self.arriving.copy(s, self, mask)
            return
        outer, self.copying = self.copying, self.copying or s.attr_key == ASYNC_SCOPE
        self.stmt(s.body, mask)
        self.copying = outer

    def _seq(self, s: SeqStmt, mask: Mask) -> None:
        for child in s.seq:
            self.stmt(child, mask)

    def _if(self, s: IfThenElse, mask: Mask) -> None:
        condition = self.value(s.condition, mask)
        self.stmt(s.then_case, both(mask, condition))
        if s.else_case is not None:
            self.stmt(s.else_case, both(mask, np.logical_not(condition)))

    def _while(self, s: While, mask: Mask) -> None:
        while not nobody(mask := both(mask, self.value(s.condition, mask))):
            self.stmt(s.body, mask)

    def _let(self, s: LetStmt, mask: Mask) -> None:
        self.values[s.var] = self.value(s.value, mask)
        self.stmt(s.body, mask)

    def _assert(self, s: AssertStmt, mask: Mask) -> None:
        if not np.all(np.where(mask, self.value(s.condition, mask), True)):
            raise GpuError(s.message)
        self.stmt(s.body, mask)

    def _allocate(self, s: Allocate, mask: Mask) -> None:
        b = s.buffer
        shape = tuple([int(self.value(e)) for e in b.shape])
        if is_shared(b.scope):
            blocks = int(self.lanes.block.max()) - self.lanes.first + 1
            made = WatchedArray(b, shape, None, "block", blocks)
            made.start_watching()
            if self.counting is not None and self.counting.sampling:
                self.counting.shared_bytes += prod(shape) * b.dtype.bytes
        elif threads_of_scope(b.scope):
            if self.counting is not None and self.counting.sampling:
                self.counting.own_elements += held_of(b, prod(shape))
            made = WatchedArray(b, shape, None, "tile", max(1, self.lanes.count // threads_of_scope(b.scope)))
        elif is_private(b.scope):
            if self.counting is not None and self.counting.sampling:
                self.counting.own_elements += prod(shape)
            made = WatchedArray(b, shape, None, "own", self.lanes.count)
        else:
            made = WatchedArray(b, shape, None, "global", 1)
        self.memory[b.data] = made
        self.stmt(s.body, mask)

    def _evaluate(self, s: Evaluate, mask: Mask) -> None:
        if isinstance(s.value, Call) and s.value.op in ("tir.wmma_store", "tir.wgmma_store"):
            store_tile(self, s.value, mask)
            return
        if isinstance(s.value, Call) and s.value.op == "tir.wgmma_commit":
            self.products.commit()
            return
        if isinstance(s.value, Call) and s.value.op == "tir.atomic_add":
            self._add(s.value, mask)
            return
        if isinstance(s.value, Call) and s.value.op in BARRIER_OPERATIONS:
            self.arriving.run(s.value, self, mask)
            return
        if isinstance(s.value, Call) and s.value.op == COMMIT_COPIES:
            self.groups = self.groups + np.asarray(mask, np.int64)
            return
        if isinstance(s.value, Call) and s.value.op == WAIT_FOR_COPIES:
            done = np.where(mask, self.groups - self.value(s.value.args[0]), 0)
            for memory in self.memory.values():
                memory.arrive(done, self.epoch)
            return
        if not is_barrier(s):
            self.value(s.value, mask)
            return
        if mask is not True:
            blocks = self.lanes.block - self.lanes.first
            arrived = np.bincount(blocks, weights=np.broadcast_to(mask, blocks.shape))
            if np.any((arrived > 0) & (arrived < np.bincount(blocks))):
                raise GpuError("not all threads of a block reach a barrier")
        self.epoch += 1
        if self.counting is not None:
            self.counting.barrier(self._warps(mask))

    # -- kernels -------------------------------------------------------------------------------------------------------

    def _launch(self, kernel: For) -> None:
        loops, _ = inside_threads(kernel)
        extents = {tag: int(self.value(loop.extent)) for tag, loop in loops.items()}
        blocks = {tag: extents[tag] for tag in BLOCK_TAGS if tag in extents}
        threads = {tag: extents[tag] for tag in THREAD_TAGS if tag in extents}
        body: Stmt = kernel
        for loop in (loops[tag] for tag in (*blocks, *threads)):
            body = _without(body, loop)
        stored = written_data(PrimFunc((), kernel, {}))
        for data, memory in self.memory.items():
            memory.start_watching(data in stored)
        total, each = prod(blocks.values()), prod(threads.values())
        locks = orders_blocks(kernel)
        step = 1 if locks else max(1, LANES // each)
        if self.counts is not None:
            self.counting = KernelCounts(total, each, min(step, total))
            self.counts.append(self.counting)
        for first in range(0, total, step):
            if locks and first:
                for memory in self.memory.values():
                    memory.start_watching(memory.watch)
            self._blocks(body, loops, (blocks, threads), (first, min(total, first + step)))
            if self.counting is not None:
                self.counting.sampling = False  # other blocks do about the same
        self.counting = None
        self.lanes = self.host

    def _blocks(
        self, body: Stmt, loops: Mapping[str, For], axes: tuple[dict[str, int], dict[str, int]], span: tuple[int, int]
    ) -> None:
        """Run some blocks together."""
        blocks, threads = axes
        each = prod(threads.values())
        number = np.arange(span[0] * each, span[1] * each, dtype=np.int64)
        block, thread = number // each, number % each
        names = {**_digits(block, blocks), **_digits(thread, threads)}
        self.lanes = RunningThreads(block, thread, span[0], names, each)
        for tag, loop in loops.items():
            self.values[loop.loop_var] = self.value(loop.min) + names[tag]
        self.epoch += 1
        self.groups = np.zeros(self.lanes.count, np.int64)
        self.products, self.arriving = GroupProducts(), Arriving()
        for memory in self.memory.values():
            memory.arriving = None
        self.stmt(body, True)
        self.arriving.end()


def _digits(number: np.ndarray, extents: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Returns a number along each axis; the last one runs fastest."""
    out = {}
    for tag in reversed(list(extents)):
        out[tag] = number % extents[tag]
        number = number // extents[tag]
    return {tag: out[tag] for tag in extents}


def _without(s: Stmt, loop: For) -> Stmt:
    """Returns ``s`` with the body of ``loop`` in its place."""
    if s is loop:
        return loop.body
    return s.map_children(lambda c: _without(c, loop) if isinstance(c, Stmt) and _has(c, loop) else c)


def _has(s: Stmt, loop: For) -> bool:
    return s is loop or any(_has(c, loop) for c in statements_in(s))


_S = _Simulator
_STATEMENTS: dict[type, Callable[[Any, Any, Mask], None]] = {
    Allocate: _S._allocate,
    AssertStmt: _S._assert,
    AttrStmt: _S._attribute,
    BufferStore: _S._store,
    Evaluate: _S._evaluate,
    For: _S._for,
    IfThenElse: _S._if,
    LetStmt: _S._let,
    SeqStmt: _S._seq,
    While: _S._while,
}
