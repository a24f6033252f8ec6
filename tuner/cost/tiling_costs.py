"""This module computes the costs of products in register tiles, and of those that add row after row.

They are closed formulas over columns of decisions, for all candidates at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from ...tir.expr import Var
from ..program import BlockInfo, Use
from .axis_roles import TiledBlock, kept_load, lane_loads, moving_loads
from .cost_features import Costs, ceil_div
from .loop_nest import Nest, NestAccess, NestLoop, shape_of
from .machine_model import MachineModel, crowding

_TRANSPOSED = 0.35
"""Cycles per element of a tile that is transposed in registers: shuffles, and stores of vectors."""

_SCALARS = 10.0
"""The registers in which scalars wait to be broadcast."""

_AHEAD = 224.0
"""The instructions that a processor begins ahead of one that waits: half of what fits its reorder buffer."""


class TilingCosts:
    """The costs of ``rows`` candidates of ``part`` on ``machine`` whose decisions are ``columns``."""

    def __init__(self, part: TiledBlock, machine: MachineModel, columns: Mapping[str, np.ndarray], rows: int) -> None:
        self.part, self.machine, self.columns, self.rows = part, machine, columns, rows
        self.block, self.axes, self.lanes, self.extents = part.block, part.axes, part.lanes, part.block.extents
        ones = np.ones(rows)
        self.tile: dict[Var, np.ndarray] = {axis: ones for axis in self.block.axes}
        self.tile[self.axes.vector] = columns["vectors"] * self.lanes
        if self.axes.rows is not None:
            self.tile[self.axes.rows] = columns["rows"]
        if self.axes.rows2 is not None:
            self.tile[self.axes.rows2] = columns["rows2"]
        self.trips = {axis: ceil_div(self.extents[axis], self.tile[axis]) for axis in self.block.spatial}
        self.outer = columns.get("outer", np.zeros(rows))
        self.slice = columns.get("slice", np.zeros(rows))
        self.ahead = columns.get("ahead", np.zeros(rows))

    def mask(self, blocks: Sequence[int]) -> np.ndarray:
        """Returns the tiles that fit the registers; of rows that make the same schedule, one. ``blocks``: all values of
        ``block``."""
        keep = self.registers <= self.machine.registers
        if self.axes.rows is not None:
            count = self.trips[self.axes.rows]
            first = np.full(self.rows, float(max(blocks)))
            for value in sorted(blocks, reverse=True):
                first = np.where(value >= count, value, first)
            keep &= (self.columns["block"] < count) | (self.columns["block"] == first)
        around = self._block_trips[0] * math.prod(self.extents[v] for v in self.axes.others)
        around = around * (self.trips[self.axes.rows2] if self.axes.rows2 is not None else 1.0)
        keep &= (self.outer == 0) | ((self.trips[self.axes.vector] > 1) & (around > 1))
        if "slice" in self.columns:  # it is an order of its own, and its slices are whole
            panels = self.trips[self.axes.vector]
            fits = (panels % np.maximum(self.slice, 1) == 0) & (panels > self.slice)
            fits &= (self.slice == 1) | (self.extents[self.axes.vector] % self.tile[self.axes.vector] == 0)
            keep &= (self.slice == 0) | (fits & (self.outer == 0) & (self.columns["block"] == first))
        if "ahead" in self.columns:
            keep &= (self.ahead == 0) | (self._fetched > 0)
        return np.asarray(keep)

    @cached_property
    def accumulators(self) -> np.ndarray:
        """The number of vector registers that hold the tile."""
        return np.asarray(np.prod([self.tile[v] for v in self.block.spatial], axis=0) / self.lanes)

    @cached_property
    def loads(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the vector loads and broadcasts per reduction step of a tile."""
        vectors, broadcasts = np.zeros(self.rows), np.zeros(self.rows)
        for use in self.block.loads:
            axes = use.axes()
            copies = np.prod([np.ones(self.rows), *(self.tile[v] for v in axes if v is not self.axes.vector)], axis=0)
            if self.axes.vector not in axes:
                broadcasts = broadcasts + copies
                continue
            if kept_load(self.block, self.axes.vector, use):
                continue
            each = 1.0 if use is self.part.packed else lane_loads(use, self.axes.vector, self.lanes)
            each *= 2.0 if self.part.conditional else 1.0
            vectors = vectors + copies * self.columns["vectors"] * each * self._kept_in_window(use)[0]
        return vectors, broadcasts

    def _kept_in_window(self, use: Use) -> tuple[np.ndarray, np.ndarray]:
        """Returns the share of a window's loads that remain, and the vectors that are kept. All steps of the window are
        written out and the tile's rows slide over what they read: what one step has loaded is one of the next
        step's."""
        axes, share, kept = self.axes, np.ones(self.rows), self.columns["vectors"] * np.ones(self.rows)
        sliding = False
        for dim in use.dims:
            steps = {v: c for v, c in (dim or {}).items() if v in axes.reduce and c}
            rows = {v: c for v, c in (dim or {}).items() if v in (axes.rows, axes.rows2) and c}
            reads = math.prod(self.extents[v] for v in steps) * np.prod(
                [np.ones(self.rows), *(self.tile[v] for v in rows)], axis=0
            )
            if steps and rows:
                sliding = True
                span = 1.0 + sum(abs(c) * (self.extents[v] - 1) for v, c in steps.items())
                span = np.minimum(reads, span + sum(abs(c) * (self.tile[v] - 1) for v, c in rows.items()))
                share, reads = share * span / reads, span
            kept = kept * reads
        whole = (self.columns["unroll"] >= self.block.reduce_size) & sliding
        return np.where(whole, share, 1.0), np.where(whole, kept, 0.0)

    @cached_property
    def registers(self) -> np.ndarray:
        """Returns the vector registers in use: accumulators, one row of vectors, a broadcast, and what is kept."""
        vectors, broadcasts = self.loads
        kept = sum(kept_load(self.block, self.axes.vector, use) for use in self.block.loads) * self.columns["vectors"]
        return self.accumulators + kept + np.minimum(vectors, self.columns["vectors"]) + np.minimum(broadcasts, 1)

    @cached_property
    def _live(self) -> np.ndarray:
        """Registers in use in an unrolled body. Where the tile's rows slide over what the reduction reads (a window), a
        value broadcast in one step is one of the next step's, and the compiler keeps it: as many more as there are rows."""
        axes, last = self.axes, self.axes.reduce[-1]
        rows = [v for v in (axes.rows, axes.rows2) if v is not None]
        kept = np.zeros(self.rows)
        for use in self.block.loads:
            if axes.vector in use.axes():
                continue
            sliding = [v for dim in use.dims if dim and dim.get(last) for v in rows if dim.get(v)]
            if sliding:
                kept = kept + np.prod([self.tile[v] for v in sliding], axis=0)
        return self.registers + np.where(self.columns["unroll"] > 1, kept, 0.0)

    @cached_property
    def _block_trips(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the trips of the loop over blocks of row tiles, and of the loop over the tiles of one."""
        ones = np.ones(self.rows)
        if self.axes.rows is None:
            return ones, ones
        count = self.trips[self.axes.rows]
        inside = np.minimum(self.columns["block"], count)
        return ceil_div(count, inside), inside

    @cached_property
    def tasks(self) -> np.ndarray:
        """Returns the iterations of the parallel loop."""
        if not self.part.parallel:
            return np.ones(self.rows)
        big, inside = self._block_trips
        outer = [self.trips[v] for v in self.block.spatial if v is not self.axes.rows]
        tasks = np.prod([np.ones(self.rows), *outer], axis=0) * big
        if "slice" in self.columns:
            sliced = self.trips[self.axes.vector] / np.maximum(self.slice, 1.0)
            return np.where(self.slice > 0, sliced, np.where(tasks < 2 * self.machine.cores, tasks * inside, tasks))
        return np.where(tasks < 2 * self.machine.cores, tasks * inside, tasks)

    def _per_element(self) -> np.ndarray:
        """Returns the cycles per element of the tile where the result or the epilogue's operands are not contiguous.
        Their contiguous axis is then another one than the vector axis: elements are stored and read one by one, and
        rows that share a set of the cache evict each other."""
        axes, itemsize = self.axes, self.block.itemsize
        last = self.part.epilogue or self.block
        vector = last.spatial[self.block.spatial.index(axes.vector)]
        own = self.block.stores[0].buffer
        cost, run = np.zeros(self.rows), self._contiguous_rows()
        for use, cycles in (*((u, 1.5) for u in last.stores), *((u, 1.0) for u in last.loads if u.buffer is not own)):
            stride = use.stride(vector)
            if last is self.block and cycles == 1.0 or stride in (0, 1):
                continue
            crowd = crowding(self.tile[axes.vector], 4096 if stride is None else abs(stride) * itemsize, self.machine)
            cost = cost + np.where(
                run > 0, _TRANSPOSED + 24.0 * cycles * crowd / np.maximum(run, 1), cycles * (1.0 + 3.0 * crowd)
            )
        return cost

    def _contiguous_rows(self) -> np.ndarray:
        """Returns how many rows lie side by side in memory where tiles are transposed in registers on their way there.
        Code generation does it for tiles of four rows and more that no other stage reads. Else 0."""
        store = self.block.stores[0]
        along = [v for v in (self.axes.rows, self.axes.rows2) if v is not None and store.stride(v) == 1]
        if self.part.epilogue is not None or not along:
            return np.zeros(self.rows)
        rows = self.tile[along[0]]
        return np.where(rows >= 4, rows, 0.0)

    def _beyond(self, nest: Nest, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the bytes that come from beyond the second-level cache, and the cycles of waiting for lines there.
        Lines at a large power-of-two stride share few of its sets, and the reduction jumps to lines."""
        evicted, waiting, spatial = np.zeros(self.rows), np.zeros(self.rows), set(self.block.spatial)
        for number, use in enumerate(self.block.loads):
            if use is self.part.packed:
                continue
            moved = nest.traffic(self.machine.l2_bytes, only=number)
            share, lines = self._crowded(use)
            again = share * np.maximum(
                0.0, steps * lines * 64 - moved
            )  # a line that is read once is not evicted before
            evicted = evicted + again
            spans = [self.tile[v] for v in use.axes() if v in spatial and use.stride(v) == 1]
            waiting = waiting + self._jumps(use, (moved + again) / 64, spans) * self._together(use)
        return evicted, waiting

    def _jumps(self, use: Use, lines: np.ndarray, spans: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the cycles of waiting for ``lines`` that the reduction reaches by steps of a page or so. Each step
        goes to a run too short for the prefetchers: as many elements as ``spans`` make."""
        strides = [abs(use.stride(v) or 0) * self.block.itemsize for v in self.axes.reduce]
        step = min((s for s in strides if s), default=0)
        far = min(1.0, max(0.0, (step - 1024) / 3072))
        run = np.ceil(np.prod([np.ones(self.rows), *spans], axis=0) * self.block.itemsize / 64)
        return np.asarray(far * self.machine.jump_cycles * lines / run)

    def _together(self, use: Use) -> np.ndarray:
        """Returns how long steps that are written out wait, as a share of the time that four steps take. Their lines
        arrive together, but those of the steps at hand and of the next ones, fetched ahead, may share a set."""
        unroll = self.columns["unroll"]
        step = abs(use.stride(self.axes.reduce[-1]) or 0) * self.block.itemsize
        shared = crowding(2.0 * unroll, step, self.machine) if step >= 1024 else 0.0
        return np.asarray((0.75 + 0.75 / unroll) * (1.0 + 2.0 * shared))

    def _nest(self) -> Nest:
        axes, extents, part = self.axes, self.extents, self.part
        names = {axis: f"a{n}" for n, axis in enumerate(self.block.axes)}
        ones = np.ones(self.rows)
        big, inside = self._block_trips
        loops = [NestLoop(names[axes.vector], self.tile[axes.vector])]
        loops += [NestLoop(names[v], self.tile[v]) for v in (axes.rows, axes.rows2) if v is not None]
        for axis in reversed(axes.reduce):  # in two steps: a cache line holds some steps of the innermost one
            line = min(extents[axis], max(1, 64 // self.block.itemsize))
            loops += [NestLoop(names[axis], ones * line), NestLoop(names[axis], ones * ceil_div(extents[axis], line))]
        panels = self.trips[axes.vector]
        loops.append(NestLoop(names[axes.vector], np.maximum(self.slice, 1.0)))
        panels = panels / np.maximum(self.slice, 1.0)
        if axes.rows is not None:
            loops.append(NestLoop(names[axes.rows], ones * inside))
        loops.append(NestLoop(names[axes.vector], np.where(self.outer > 0, 1.0, panels)))
        if axes.rows is not None:
            loops.append(NestLoop(names[axes.rows], ones * big))
        loops += [NestLoop(names[v], self.trips[v]) for v in (axes.rows2, *reversed(axes.others)) if v is not None]
        loops.append(NestLoop(names[axes.vector], np.where(self.outer > 0, panels, 1.0)))

        def dims(use: Use) -> tuple[dict[str, int], ...]:
            return tuple({names[v]: c for v, c in (dim or {}).items()} for dim in use.dims)

        itemsize = self.block.itemsize
        accesses = [
            NestAccess(dims(use), itemsize, contiguous=use is part.packed, shape=shape_of(use.buffer))
            for use in self.block.loads
        ]
        store = self.block.stores[0]
        accesses.append(NestAccess(dims(store), itemsize, write=True, shape=shape_of(store.buffer)))
        return Nest(loops, accesses, {names[v]: e for v, e in extents.items()}, self.rows)

    def _conflict(self) -> np.ndarray:
        """Returns how much of the first-level cache's associativity the operands' strides lose, 0 to 1. Addresses that
        are a multiple of 4 KiB apart share their set."""
        itemsize = self.block.itemsize
        worst = np.zeros(self.rows)
        for use in self.block.loads:
            if use is self.part.packed or self.axes.vector not in use.axes():
                continue
            stride = min((s for v in self.axes.reduce if (s := abs(use.stride(v) or 0) * itemsize)), default=0)
            if stride >= 1024:
                worst = np.maximum(worst, math.gcd(stride, 4096) / 4096)
        return worst

    def _crowded_rows(self, steps: np.ndarray) -> np.ndarray:
        """Returns the bytes that come from the second-level cache again in each step of the reduction. The rows of a
        tile are then more lines than the ways of the sets that they share."""
        total = np.zeros(self.rows)
        if self.axes.rows is None:
            return total
        rows = self.tile[self.axes.rows]
        for use in self.block.loads:
            stride = abs(use.stride(self.axes.rows) or 0) * self.block.itemsize
            if use is self.part.packed or self.axes.vector in use.axes() or stride < 1024:
                continue
            total = total + steps * rows * 64 * crowding(rows, stride, self.machine)
        return np.asarray(total)

    def _crowded(self, use: Use) -> tuple[np.ndarray, np.ndarray]:
        """Returns the share of a load's lines that are evicted from the second-level cache, and the lines of a step.
        Evicted are those that are read again later: a stride of S leaves room for size / S lines, however large the
        cache."""
        itemsize, size = self.block.itemsize, self.machine.l2_bytes
        strides = {v: abs(use.stride(v) or 0) * itemsize for v in self.axes.reduce}
        far = [v for v, stride in strides.items() if stride >= 1024]
        spatial = set(self.block.spatial)
        near = np.prod([np.ones(self.rows), *(self.tile[v] for v in use.axes() if v in spatial)], axis=0)
        lines = np.ceil(near * itemsize / 64)
        if not far:
            return np.zeros(self.rows), lines
        spread = math.gcd(*(strides[v] for v in far), size)
        crowd = np.log2(lines * math.prod(self.extents[v] for v in far) * max(64, spread) / size)
        return 1.0 / (1.0 + np.exp2(np.clip(2.0 - 4.0 * crowd, -60, 60))), lines

    @cached_property
    def _fetched(self) -> np.ndarray:
        """Returns the bytes fetched ahead from beyond the second-level cache, or 0 where the order has no place for
        it."""
        part, half = self.part, self.machine.l2_bytes / 2
        passing = float(sum(part.bytes_of(use) for use in part.passing))
        slices = ceil_div(self.trips[self.axes.vector], np.maximum(self.slice, 1.0))
        more = self.trips[self.axes.rows] > 1 if self.axes.rows is not None else False
        out = np.where((self.slice > 0) & more & (passing > half), passing * slices, 0.0)
        if part.packed is None or part.parallel:
            return np.asarray(out)
        packed = float(part.bytes_of(part.packed))
        return np.asarray(np.where((self.slice == 0) & (self.outer > 0) & (packed > half), packed, out))

    def _pack_bytes(self) -> np.ndarray:
        """Returns the bytes moved to pack the operand; a copy that transposes in registers counts one and a half times.
        What is packed in slices that the second-level cache holds is read from beyond it, but not written there. What
        is packed ahead as a whole costs nothing."""
        use = self.part.packed
        if use is None:
            return np.zeros(self.rows)
        size = math.prod(self.extents[v] for v in use.axes()) * self.block.itemsize
        slices = np.maximum(self.trips[self.axes.vector] / np.maximum(self.slice, 1.0), 1.0)
        near = (self.slice > 0) & (size / slices < 0.5 * self.machine.l2_bytes)
        moved = np.where(near, 1.0, 2.0) * size * (1.0 if use.stride(self.axes.vector) == 1 else 1.5)
        if use.stride(self.axes.vector) == 1:  # each step of the reduction is a jump to a row of the panel
            panel = [self.tile[self.axes.vector] * np.maximum(self.slice, 1.0)]
            waiting = self._jumps(use, np.full(self.rows, size / 64), panel) * self.machine.l3_bytes_per_cycle
            moved = moved + np.maximum(0.0, waiting - size)
        return np.where((self.slice == 0) & (use.buffer in self.block.packed_ahead), 0.0, moved)

    def _tiles_at_once(self) -> np.ndarray:
        """Returns how many tiles are in hand at a time. The processor begins the next one while the sums of a short
        reduction wait for each other."""
        vectors, broadcasts = self.loads
        length = self.block.reduce_size * (self.accumulators + vectors + broadcasts) + 20.0
        return np.asarray(1.0 + _AHEAD / length)

    def _stored_again(self) -> np.ndarray:
        """Returns the vectors of a window that are kept for later steps and for which there are no registers."""
        kept = sum([self._kept_in_window(use)[1] for use in self.block.loads if self.axes.vector in use.axes()])
        return np.where(kept > 0, np.maximum(0.0, kept + self.accumulators + 1 - self.machine.registers), 0.0)

    def _waiting(self) -> np.ndarray:
        """Returns the values per reduction step that are loaded before registers are free for them. That happens on
        machines whose code runs the loads of a body first. Scalars that are broadcast wait in registers of their
        own."""
        if not self.machine.loads_first:
            return np.zeros(self.rows)
        unroll, (vectors, broadcasts) = self.columns["unroll"], self.loads
        sums = np.where(unroll >= self.block.reduce_size, 0.0, self.accumulators)
        crowded = np.maximum(unroll * vectors + sums + 1 - self.machine.registers, 0.0)
        return np.asarray((crowded + np.maximum(unroll * broadcasts - _SCALARS, 0.0)) / unroll)

    def costs(self) -> Costs:
        """Returns all of it."""
        machine, columns = self.machine, self.columns
        accumulators, (vectors, broadcasts) = self.accumulators, self.loads
        tiles = np.prod(list(self.trips.values()), axis=0)
        steps = tiles * self.block.reduce_size
        operations = max(1.0, self.block.operations / 2)
        latency = np.maximum(1.0, machine.fma_latency * machine.fma_pipes / accumulators / self._tiles_at_once())
        step_core = accumulators * operations / machine.fma_pipes * latency
        issue = (accumulators * operations + vectors + broadcasts + 3.0 / columns["unroll"]) / machine.issue_width
        step_load = np.maximum((vectors + broadcasts) / machine.loads_per_cycle, issue)
        nest = self._nest()
        conflict = self._conflict()
        epilogue = 0.0 if self.part.epilogue is None else float(self.part.epilogue.operations)
        scatter = self._per_element() * self.lanes
        packed = float(self.part.packed is not None)
        far = nest.traffic(machine.l2_bytes)
        early = self.ahead * np.minimum(far, self._fetched)
        evicted, waiting = self._beyond(nest, steps)
        costs = Costs(self.rows).put(
            core_cycles=steps * step_core,
            load_cycles=steps * step_load,
            store_cycles=tiles * accumulators * np.maximum(1.0, scatter),
            loop_cycles=tiles * (20.0 + accumulators * (1.0 + scatter + epilogue / machine.fma_pipes))
            + steps * 0.3 / columns["unroll"]
            + 0.75 * self.ahead * self._fetched / machine.line_bytes,
            spill_cycles=steps * 2.0 * (np.maximum(self._live - machine.registers, 0) + self._waiting())
            + tiles * 2.0 * self._stored_again(),
            jump_cycles=waiting,
            l2_bytes=nest.traffic(machine.l1_bytes) * (1.0 + conflict) + self._crowded_rows(steps),
            l3_bytes=far - 0.7 * early + evicted,
            memory_bytes=nest.traffic(machine.l3_bytes),
            pack_bytes=self._pack_bytes(),
            flops=self.block.flops,
            regions=(1.0 + packed) * self.part.parallel,
            latency_bound=latency,
            l1_gap=nest.reuse_gap(machine.l1_bytes),
            l2_gap=nest.reuse_gap(machine.l2_bytes),
            conflict=conflict,
        )
        return self._with_properties(costs)

    def _with_properties(self, costs: Costs) -> Costs:
        """Add the properties of the tile and its nest to ``costs``."""
        machine, axes, columns, block = self.machine, self.axes, self.columns, self.block
        accumulators, (vectors, broadcasts) = self.accumulators, self.loads
        strided = any(
            u is not self.part.packed and axes.vector in u.axes() and u.stride(axes.vector) != 1 for u in block.loads
        )
        return costs.put(
            lanes_used=float(self.lanes),
            rows=accumulators / columns["vectors"],
            columns=columns["vectors"],
            accumulators=accumulators,
            registers=self._live,
            loads_per_fma=(vectors + broadcasts) / accumulators,
            waste=np.prod([self.trips[v] * self.tile[v] / self.extents[v] for v in block.spatial], axis=0),
            tail=self.trips[axes.vector] * self.tile[axes.vector] - self.extents[axes.vector],
            unroll=columns["unroll"],
            body_size=columns["unroll"] * (accumulators + vectors + broadcasts),
            inner_trips=float(self.extents[axes.reduce[-1]]),
            reduction=float(block.reduce_size),
            panel_bytes=columns["vectors"] * machine.vector_bytes * block.reduce_size,
            packed=float(self.part.packed is not None),
            strided=float(strided),
            tasks=self.tasks,
            tasks_per_core=self.tasks / machine.cores,
            imbalance=ceil_div(self.tasks, machine.cores) * machine.cores / self.tasks,
            variant=self.outer + 2.0 * self.slice,
            tile_c=self.ahead,
            tile_a=columns.get("block", np.zeros(self.rows)),
            tile_b=columns.get("rows2", np.zeros(self.rows)),
            row_extent=float(self.extents[axes.rows] if axes.rows is not None else 1),
            column_extent=float(self.extents[axes.vector]),
            epilogue=float(self.part.epilogue is not None),
        )


_FAR = 1024
"""The bytes between rows from which on reading them one after the other pays."""


def rows_apart(block: BlockInfo, vector: Var) -> bool:
    """Returns whether the block is a product of one row whose matrix has its rows far apart in memory. Such a product
    is ``y[j] = sum of x[k] * B[k, j]`` with j the axis ``vector``; a tile of results jumps from one row of B to the
    next."""
    wide = [v for v in block.spatial if block.extents[v] > 1]
    if wide != [vector] or len(block.reduce) != 1 or block.axes[-1] not in block.reduce or block.keeps_order:
        return False
    (step,) = block.reduce
    moving = moving_loads(block, vector)
    if len(moving) != 1 or moving[0].buffer in block.packed_ahead or block.stores[0].stride(vector) != 1:
        return False
    stride = moving[0].stride(step)
    return moving[0].stride(vector) == 1 and stride is not None and abs(stride) * moving[0].buffer.dtype.bytes >= _FAR


def outer_costs(
    block: BlockInfo, vector: Var, machine: MachineModel, columns: Mapping[str, np.ndarray], rows: int, *, parallel: bool
) -> Costs:  # fmt: skip
    """Returns the costs of ``rows`` candidates with the decisions ``vectors`` and ``steps``."""
    (moving,) = moving_loads(block, vector)
    (step,) = block.reduce
    steps, size, depth, lanes = (
        columns["steps"],
        block.extents[vector],
        block.extents[step],
        machine.lanes(block.itemsize),
    )
    vectors = ceil_div(size, columns["vectors"] * lanes) * columns["vectors"]
    passes = ceil_div(depth, steps)
    results = size * block.itemsize
    moved = float(moving.buffer.num_bytes() or 0)
    stride = abs(moving.stride(step) or 0) * moving.buffer.dtype.bytes
    streams = (0.6 + 0.4 / steps) * (1.0 + crowding(steps, stride, machine))  # several rows, whose lines may collide
    trips = vectors / columns["vectors"] * passes
    return Costs(rows).put(
        core_cycles=vectors * depth * max(1.0, block.operations / 2) / machine.fma_pipes,
        load_cycles=(vectors * (depth + passes) + depth * trips / passes) / machine.loads_per_cycle,
        store_cycles=vectors * passes / machine.stores_per_cycle,
        loop_cycles=trips * 2.0 + passes * 5.0,
        l2_bytes=streams * moved + passes * 2.0 * results * (results > machine.l1_bytes / 2),
        l3_bytes=streams * moved * (moved > machine.l2_bytes),
        memory_bytes=streams * moved * (moved > machine.l3_bytes),
        flops=block.flops,
        regions=float(parallel),
        lanes_used=float(lanes),
        columns=columns["vectors"],
        unroll=steps,
        reduction=float(depth),
        column_extent=float(size),
        tasks=float(machine.cores) if parallel else 1.0,
    )
