"""Reductions in register tiles: matrix products, convolutions, pooling. Their schedule, its costs, and the rule.

:func:`tiled_product` follows Goto and van de Geijn ("Anatomy of high-performance matrix multiplication", TOMS 2008) for any
affine reduction with a vectorized spatial axis: a tile of accumulators stays in registers for the whole reduction; at most
one operand, which depends on the vector axis, is packed into panels; tiles are computed in blocks. Tiles need not divide the
extents.

A product of one row may sum whole rows instead (:func:`outer_sums`), a candidate beside tiles where its rows are far apart and
nothing is fused: some rows at a time are added to all results, so that memory is read as it lies.

    for k0: for j0: for k1 (unrolled): for j1 (a vector): y[j] += x[k] * B[k, j]

Each result is summed in the order of k, as in the program.

The rule is asked for processors, after the rules of special instructions (``dot_products``, ``nbits_products``,
``cached_attention``, which have a smaller priority), about the blocks that these leave. ``fused_stages`` offers variants in which
products are computed together with other stages, and GPUs have ``gpu_products`` and ``gpu_matrix_units``. What :meth:`MultiLevelTilingRule.match`
refuses goes to later rules, such as those of ``sweeps``. ``tuner/space/search_space.py: _group`` asks them.

How a schedule is found, from the end of this file to its beginning:

1. :class:`MultiLevelTilingRule` ``match`` takes a block, and the element-wise stage behind it. ``parts`` offers a
   :class:`TilingPart` for each axis that may become vectors, with and without an operand that is packed into panels, and an
   :class:`OuterSumsPart` for products of one row.
2. A part names its decisions, such as the rows and the vectors of a tile, and the numbers from which each is chosen. A
   candidate is one number for each decision: a row of the table whose columns are the decisions. ``mask`` keeps those whose
   tiles fit the registers, whose written-out code is not too long, whose slices are whole, and one of several that make the
   same schedule.
3. ``costs`` predicts all rows at once, over the columns of decisions: :class:`TilingCosts` and :func:`outer_costs` describe the
   loops, and the walker (``tuner/cost/walker.py``) counts in them instructions, registers, waiting and traffic between caches.
   Packing, fetching ahead and transposed results are counted here. The machine (``tuner/cost/machine_model.py``) has the sizes,
   throughputs and latencies, and makes seconds of the counts. Of arithmetic, loads and stores the slowest counts, with 0.3 of
   the smaller of arithmetic and loads, loops and spills added; of that and the traffic with each cache and memory (with the
   third level at least the waiting at jumps), the slowest counts and a quarter of the others. These are figures of one core:
   they are multiplied by the busiest core's share of the parallel loop's tasks. Packing, which the cores share, and the start
   of threads are added.
4. ``apply`` schedules the chosen row: it writes the loops down as a :class:`TileNest`, which :func:`tiled_product` makes by
   the steps of ``tuner/loop_steps.py``, such as packing. ScheduleError where the program does not allow it; the next row is tried
   then, by the predicted seconds (``tuner/space/search_space.py``).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ...schedule import BlockRV, Schedule
from ...tir.expr import Var
from ...tir.stmt import Buffer
from ..cost.axis_roles import (
    TiledBlock,
    loads_fit,
    moving_loads,
    packable,
    reuses,
    tile_axes,
    vector_axes,
)
from ..cost.cost_features import Costs, ceil_div, up_to
from ..cost.loop_nest import swept_bytes
from ..cost.machine_model import MachineModel, crowding, one_by_one, worth_threads
from ..cost.walker import WINDOW, WRITTEN, Walk, WalkedLoop
from ..loop_steps import Panels, accumulate, arrange, extent_of, finish_tile, fuse_all, pack, pack_within, unroll_factor
from ..program import BlockInfo, ProgramInfo, Use, copies
from .schedule_rule import Decision, Group, Part, ScheduleRule
from .short_results import ShortResultsPart, short_results


@dataclass(frozen=True)
class TileNest:
    """The loops of a tiled reduction, by name.

    ``axes`` names the loops of the block from the outermost one; ``sizes`` has the parts into which :func:`.arrange`
    splits some of them, so that ``j`` becomes ``j0``, ``j1``, …  Then, from the outside: ``outer``, the loops over tiles;
    ``reduce``, the loops of the reduction; ``tile``, the loops of a tile, of which the last one becomes vectors.
    ``shared``: how many of the outer loops become one loop that the threads share. Where that has fewer iterations than
    ``tasks``, the other outer loops join it.
    """

    axes: str
    sizes: Mapping[str, Sequence[int | None]]
    outer: str
    reduce: str
    tile: str
    shared: int = 0
    tasks: int = 0
    lanes: int = 0
    """Elements of a vector of the result; 0 for as many as the last loop of the tile has."""
    unroll: Mapping[str, int] = field(default_factory=dict)
    """By how much loops of the reduction are unrolled."""

    @property
    def vector(self) -> int:
        """Returns the number of the spatial axis that becomes vectors."""
        parts = {f"{axis}{n}": axis for axis, sizes in self.sizes.items() for n in range(len(sizes))}
        last, reduced = self.tile.split()[-1], self.reduce.split()
        spatial = [axis for axis in self.axes.split() if axis not in reduced]
        return spatial.index(parts.get(last, last))


def tiled_product(
    sch: Schedule, block: Any, nest: TileNest, *, packed: Panels | None = None, within: str = "",
    epilogue: Sequence[str] = (),
) -> tuple[dict[str, Any], Any]:  # fmt: skip
    """Schedule ``block``; return its loops by name, and the copy of the packed operand (None without one).

    A product whose tiles have 4 rows and 2 vectors, with a packed operand and an epilogue, becomes::

        for k, j: P[j0, k, j1] = B[k, j]                            # the panels of ``packed``
        for i0, j0 (the loops of ``outer``; some of them parallel):
            for i1 (written out): for j1 (vectors): acc[i1, j1] = 0
            for k (the loops of ``reduce``; unrolled by ``unroll``):
                for i1 (written out): for j1 (vectors): acc[i1, j1] += A[i, k] * P[j0, k, j1]
            for i1 (written out): for j1 (vectors): C[i, j] = relu(acc[i1, j1] + bias[j])    # ``epilogue``

    The loops of ``tile`` are i1 and j1; ``acc`` stays in registers.

    ``packed``: the operand that is copied into panels, before everything else or, with ``within``, in that loop.
    ``epilogue``: the stages that read the result element by element; all but the last one are inlined into the last one,
    which is computed tile by tile while the sums are in registers.
    """
    block = sch.get_block(block) if isinstance(block, str) else block
    vector = nest.vector
    copy = pack(sch, block, packed, whole=not within) if packed is not None else None
    result = _result(sch, block, vector, epilogue)
    loops = arrange(sch, block, nest.axes, nest.sizes, f"{nest.outer} {nest.reduce} {nest.tile}")
    outer, reduce, tile = ([loops[name] for name in part.split()] for part in (nest.outer, nest.reduce, nest.tile))
    if nest.shared:
        count = nest.shared
        if math.prod(extent_of(sch, loop) for loop in outer[:count]) < nest.tasks:
            count = len(outer)
        outer[:count] = [fuse_all(sch, outer[:count])]
        sch.parallel(outer[0])
        loops.update(dict.fromkeys(nest.outer.split()[:count], outer[0]))
    if packed is not None and within:
        pack_within(sch, copy, packed, loops[within])
    sch.reverse_compute_at(result, outer[-1])
    init = sch.decompose_reduction(block, reduce[0])
    for name, factor in nest.unroll.items():
        unroll_factor(sch, loops[name], factor)
    for loop in tile[:-1]:
        sch.unroll(loop)
    sch.vectorize(tile[-1])
    for part in (init, result):
        finish_tile(sch, part, outer[-1], vector, nest.lanes)
    return loops, copy


def _result(sch: Schedule, block: Any, vector: int, epilogue: Sequence[str]) -> Any:
    """Returns the block that takes a tile of sums to memory; the accumulators of a vector are made neighbours."""
    result = accumulate(sch, block, vector)
    if not epilogue:
        return result
    stages: list[BlockRV | str] = [result, *epilogue[:-1]]
    for stage in stages:
        sch.compute_inline(stage)
    return sch.get_block(epilogue[-1])


def outer_sums(sch: Schedule, block: Any, vector: int, width: int, steps: int, *, share: int = 0) -> None:
    """Schedule ``block``, a reduction over one loop whose results lie along its loop number ``vector``.

    ``width``: elements of a vector. ``steps``: rows that are added at a time. ``share``: the elements of one thread's part
    of the results; 0 for one thread.
    """
    loops = list(sch.get_loops(block))
    results, reduction = loops[vector], loops[-1]
    others = [loop for loop in loops if loop is not results and loop is not reduction]
    parts = []
    if 0 < share < extent_of(sch, results):
        part, results = sch.split(results, [None, share])
        parts.append(part)
    blocks, vectors = sch.split(results, [None, min(width, extent_of(sch, results))])
    far, near = sch.split(reduction, [None, min(steps, extent_of(sch, reduction))])
    sch.reorder(*others, *parts, far, blocks, near, vectors)
    if parts:
        sch.parallel(parts[0])
    init = sch.decompose_reduction(block, far)
    sch.unroll(near)
    sch.vectorize(vectors)
    sch.vectorize(sch.get_loops(init)[-1])


_TRANSPOSED = 0.35
"""Cycles per element of a tile that is transposed in registers: shuffles, and stores of vectors."""


class TilingCosts:
    """The costs of ``rows`` candidates of the block ``case`` on ``machine``, whose decisions are ``columns``.

    The walker counts what the loops of a tile do; here are packing, fetching ahead, and results that do not lie along the
    vectors.
    """

    def __init__(self, case: TiledBlock, machine: MachineModel, columns: Mapping[str, np.ndarray], rows: int) -> None:
        self.case, self.machine, self.columns, self.rows = case, machine, columns, rows
        self.block, self.axes, self.lanes, self.extents = case.block, case.axes, case.lanes, case.block.extents
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

    @cached_property
    def walk(self) -> Walk:
        """The loops of a tile, of the reduction, and over tiles, innermost first.

        The loop over blocks of row tiles has a fraction of trips where the last block is not full, so that no tile counts
        twice.
        """
        axes, extents, ones = self.axes, self.extents, np.ones(self.rows)
        inside = self._block_trips[1]
        loops = [WalkedLoop(axes.vector, self.tile[axes.vector], written_out=True)]
        loops += [WalkedLoop(v, self.tile[v], written_out=True) for v in (axes.rows, axes.rows2) if v is not None]
        loops += [WalkedLoop(v, ones * extents[v]) for v in reversed(axes.reduce)]
        slices = np.maximum(self.slice, 1.0)
        panels = self.trips[axes.vector] / slices
        loops.append(WalkedLoop(axes.vector, slices))
        if axes.rows is not None:
            loops.append(WalkedLoop(axes.rows, ones * inside))
        loops.append(WalkedLoop(axes.vector, np.where(self.outer > 0, 1.0, panels)))
        if axes.rows is not None:
            loops.append(WalkedLoop(axes.rows, self.trips[axes.rows] / inside))
        loops += [WalkedLoop(v, self.trips[v]) for v in (axes.rows2, *reversed(axes.others)) if v is not None]
        loops.append(WalkedLoop(axes.vector, np.where(self.outer > 0, panels, 1.0)))
        return Walk(
            self.block, self.machine, loops, self.rows, vector=axes.vector, lanes=self.lanes, packed=self.case.packed,
            unroll=self.columns["unroll"], masked=self.case.conditional,
        )  # fmt: skip

    def mask(self, blocks: Sequence[int]) -> np.ndarray:
        """Returns which candidates are sensible. ``blocks``: all values of ``block``.

        Their tiles fit the registers, their code is not too long, and their slices are whole. Of several candidates that make
        the same schedule there is one.
        """
        keep = self.walk.registers <= self.machine.registers
        keep &= (self.columns["unroll"] <= _STEPS) | (self.walk.sums * self.block.reduce_size <= WRITTEN)
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
    def _block_trips(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the trips of the loop over blocks of row tiles, and of the loop over the tiles of one. Both are whole: a
        last block that is not full is one block."""
        ones = np.ones(self.rows)
        if self.axes.rows is None:
            return ones, ones
        count = self.trips[self.axes.rows]
        inside = np.minimum(self.columns["block"], count)
        return ceil_div(count, inside), inside

    @cached_property
    def tasks(self) -> np.ndarray:
        """Returns the iterations of the parallel loop."""
        if not self.case.parallel:
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
        rows that share a set of the cache evict each other.

        An element that is read takes 1 cycle, one that is stored 1.5, and more where its line was evicted
        (:func:`one_by_one`). Of tiles that are transposed in registers the elements take ``_TRANSPOSED`` cycles, and a
        line that was evicted 24 times the cycles above (1 or 1.5), which the elements of its run share.
        """
        axes, itemsize = self.axes, self.block.itemsize
        last = self.case.epilogue or self.block
        vector = last.spatial[self.block.spatial.index(axes.vector)]
        own = self.block.stores[0].buffer
        cost, run = np.zeros(self.rows), self._contiguous_rows()
        for use, cycles in (*((u, 1.5) for u in last.stores), *((u, 1.0) for u in last.loads if u.buffer is not own)):
            stride = use.stride(vector)
            if last is self.block and cycles == 1.0 or stride in (0, 1):
                continue
            far = 4096 if stride is None else abs(stride) * itemsize
            lines, far, together = self._lines_between(use, last, far)
            crowd = crowding(lines, far, self.machine)
            alone = one_by_one(lines, far, self.machine, cycles / together) + cycles * (1.0 - 1.0 / together)
            cost = cost + np.where(run > 0, _TRANSPOSED + 24.0 * cycles * crowd / np.maximum(run, 1), alone)
        return cost

    def _lines_between(self, use: Use, last: BlockInfo, far: int) -> tuple[np.ndarray, int, float]:
        """Returns how many lines of a buffer are stored to between elements of one line.

        Also the bytes between them, and how many elements of a line stand together in a tile. ``last`` is the block that
        stores a tile, and ``far`` the bytes between neighbours of a vector.
        """
        lines, itemsize, together = np.ones(self.rows), self.block.itemsize, 1.0
        for loop in self.walk.loops:
            if loop.axis not in self.block.spatial or not np.any(loop.trips > 1):
                continue
            stride = use.stride(last.spatial[self.block.spatial.index(loop.axis)])
            apart = 4096 if stride is None else abs(stride) * itemsize
            if apart >= self.machine.line_bytes:
                lines, far = lines * loop.trips, math.gcd(far, apart)
            elif loop.written_out and stride in (1, -1):
                together = max(together, float(np.min(loop.trips)))
            elif apart:
                break
        return lines, far, together

    def _cycles_of_a_store(self) -> np.ndarray:
        """Returns the cycles of storing a vector. Where the body has conditions, the last tile of a row is not taken apart
        from the others, so that all store under a mask."""
        vector = self.axes.vector
        masked = (self.extents[vector] % self.tile[vector] != 0) & (self.trips[vector] > 1) & self.case.conditional
        return np.where(masked, self.machine.masked_store_cycles, 1.0)

    def _contiguous_rows(self) -> np.ndarray:
        """Returns how many rows lie side by side in memory where tiles are transposed in registers on their way there.
        Code generation does it for tiles of four rows and more that no other stage reads. Else 0."""
        store = self.block.stores[0]
        along = [v for v in (self.axes.rows, self.axes.rows2) if v is not None and store.stride(v) == 1]
        if self.case.epilogue is not None or not along:
            return np.zeros(self.rows)
        rows = self.tile[along[0]]
        return np.where(rows >= 4, rows, 0.0)

    @cached_property
    def _fetched(self) -> np.ndarray:
        """Returns the bytes fetched ahead from beyond the second-level cache, or 0 where the order has no place for
        it."""
        case, half = self.case, self.machine.l2_bytes / 2
        passing = float(sum(case.bytes_of(use) for use in case.passing))
        slices = ceil_div(self.trips[self.axes.vector], np.maximum(self.slice, 1.0))
        more = self.trips[self.axes.rows] > 1 if self.axes.rows is not None else False
        out = np.where((self.slice > 0) & more & (passing > half), passing * slices, 0.0)
        if case.packed is None or case.parallel:
            return np.asarray(out)
        packed = float(case.bytes_of(case.packed))
        return np.asarray(np.where((self.slice == 0) & (self.outer > 0) & (packed > half), packed, out))

    def _pack_bytes(self) -> np.ndarray:
        """Returns the bytes moved to pack the operand; a copy that transposes in registers counts one and a half times.
        What is packed in slices that the second-level cache holds is read from beyond it, but not written there. What
        is packed ahead as a whole costs nothing."""
        use = self.case.packed
        if use is None:
            return np.zeros(self.rows)
        size = self.block.elements_of(use) * self.block.itemsize
        slices = np.maximum(self.trips[self.axes.vector] / np.maximum(self.slice, 1.0), 1.0)
        near = (self.slice > 0) & (size / slices < 0.5 * self.machine.l2_bytes)
        moved = np.where(near, 1.0, 2.0) * size * (1.0 if use.stride(self.axes.vector) == 1 else 1.5)
        if use.stride(self.axes.vector) == 1:  # each step of the reduction is a jump to a row of the panel
            panel = [self.tile[self.axes.vector] * np.maximum(self.slice, 1.0)]
            waiting = self.walk.jumps(use, np.full(self.rows, size / 64), panel) * self.machine.l3_bytes_per_cycle
            moved = moved + np.maximum(0.0, waiting - size)
        return np.where((self.slice == 0) & (use.buffer in self.block.packed_ahead), 0.0, moved)

    def _short_runs(self) -> np.ndarray:
        """Returns the cycles in which rows that are read once, from beyond the second-level cache, are begun again and again.

        Prefetchers have to follow as many rows as there are steps; each time a tile takes a few vectors of a row.
        """
        block, vector, machine = self.block, self.axes.vector, self.machine
        moving = [use for use in moving_loads(block, vector) if not reuses(block, use)]
        if self.case.packed is not None or len(moving) != 1 or block.array_bytes <= machine.l2_bytes:
            return np.zeros(self.rows)
        step = min([abs(moving[0].stride(v) or 0) for v in block.reduce], default=0) * block.itemsize
        if moving[0].stride(vector) != 1 or step < _FAR:
            return np.zeros(self.rows)
        runs = float(moving[0].buffer.num_bytes() or 0) / (self.columns["vectors"] * machine.vector_bytes)
        return np.asarray(_RUN * runs)

    def costs(self) -> Costs:
        """Returns the cycles of the parts of a core, the bytes that move between caches, and properties of the tile.

        The properties are for the learned model alone.

        The walker's ``store_cycles`` are replaced: sums are stored once, at the end of a tile. Elements that are stored or
        read one by one (:meth:`_per_element`) count in ``store_cycles`` and once more in ``loop_cycles``, as nothing overlaps
        with them there. The epilogue's arithmetic is in ``loop_cycles``; its loads count only where they are not contiguous.

        Of the bytes that are fetched ahead 0.7 arrive in time, and a fetch takes 0.75 of a cycle for each line.

        ``regions`` are the parallel loops, each with a start of the threads: that over tiles, and that of the packing, which
        counts in slices and ahead as well, though it has none there.
        ``variant`` numbers the order of the loops: 0, 1 with panels outermost, and twice the panels of a slice. ``tile_a`` is
        the decision ``block``, ``tile_b`` is ``rows2``, and ``tile_c`` is ``ahead``.
        """
        machine, walk, block, axes, columns = self.machine, self.walk, self.block, self.axes, self.columns
        counts, moved, tiles, sums = walk.counts(), walk.traffic(), walk.tiles, walk.sums
        epilogue = 0.0 if self.case.epilogue is None else float(self.case.epilogue.operations)
        scatter = self._per_element() * self.lanes
        counts["store_cycles"] = tiles * sums * np.maximum(self._cycles_of_a_store(), scatter)
        counts["loop_cycles"] += tiles * sums * (scatter + epilogue / machine.fma_pipes)
        counts["loop_cycles"] += 0.75 * self.ahead * self._fetched / machine.line_bytes
        moved["l3_bytes"] = moved["l3_bytes"] - 0.7 * self.ahead * np.minimum(walk.held, self._fetched)
        packed = float(self.case.packed is not None)
        strided = any(u.stride(axes.vector) != 1 for u in walk.apart if axes.vector in u.axes())
        return (
            Costs(self.rows)
            .put(**counts, **moved, **walk.properties(), extra_cycles=self._short_runs())
            .put(
                pack_bytes=self._pack_bytes(),
                regions=(1.0 + packed) * self.case.parallel,
                waste=np.prod([self.trips[v] * self.tile[v] / self.extents[v] for v in block.spatial], axis=0),
                tail=self.trips[axes.vector] * self.tile[axes.vector] - self.extents[axes.vector],
                panel_bytes=columns["vectors"] * machine.vector_bytes * block.reduce_size,
                packed=packed,
                strided=float(strided),
                tasks=self.tasks,
                tasks_per_core=self.tasks / machine.cores,
                imbalance=ceil_div(self.tasks, machine.cores) * machine.cores / self.tasks,
                variant=self.outer + 2.0 * self.slice,
                tile_a=columns.get("block", np.zeros(self.rows)),
                tile_b=columns.get("rows2", np.zeros(self.rows)),
                tile_c=self.ahead,
                row_extent=float(self.extents[axes.rows] if axes.rows is not None else 1),
                column_extent=float(self.extents[axes.vector]),
                epilogue=float(self.case.epilogue is not None),
            )
        )


_RUN = 4.8
"""The cycles that the beginning of a run of vectors takes: sums of the columns of 8×64×512 take 39, 29, 18 and 15 µs with runs of 1,
2, 4 and 6 vectors."""

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
    size, depth, lanes = block.extents[vector], block.extents[step], machine.lanes(block.itemsize)
    width, steps = np.minimum(columns["vectors"] * lanes, size), np.minimum(columns["steps"], depth)
    passes = ceil_div(depth, steps)
    loops = [
        WalkedLoop(vector, width, written_out=True), WalkedLoop(step, steps, written_out=True),
        WalkedLoop(vector, ceil_div(size, width)), WalkedLoop(step, passes),
    ]  # fmt: skip
    walk = Walk(block, machine, loops, rows, vector=vector, lanes=lanes)
    stride = abs(moving.stride(step) or 0) * moving.buffer.dtype.bytes
    swept = swept_bytes(float(moving.buffer.num_bytes() or 0), machine, streams=steps, stride=stride)
    results = float(size * block.itemsize)
    swept["l2_bytes"] = swept["l2_bytes"] + passes * 2.0 * results * (results > machine.l1_bytes / 2)
    return Costs(rows).put(
        **walk.counts(),
        **swept,
        flops=block.flops,
        regions=float(parallel),
        lanes_used=float(lanes),
        columns=columns["vectors"],
        unroll=steps,
        reduction=float(depth),
        column_extent=float(size),
        tasks=float(machine.cores) if parallel else 1.0,
    )


def _is_turned_copy(block: BlockInfo, copy: BlockInfo) -> bool:
    """Returns whether ``copy`` brings the results of ``block`` into another order, which on its own goes through registers."""
    if not copies(copy) or len(copy.loads) != 1 or len(copy.stores) != 1:
        return False
    near = [v for v in copy.spatial if copy.loads[0].stride(v) == 1 and copy.extents[v] > 1]
    return bool(near) and copy.stores[0].stride(near[0]) not in (0, 1) and copy.extents[near[0]] >= _TURNED


_TURNED = 8
"""Neighbours from which on results are stored by a copy of their own: a tile of fewer is stored one by one as well as read."""

_LONG = 16
"""An epilogue of more operations for each element counts as long."""

_STEPS = 8
"""The steps of a reduction that are written out for a tile of any size."""


class MultiLevelTilingRule(ScheduleRule):
    """This rule takes a reduction of affine accesses, with the element-wise stage that consumes its result."""

    name = "multi_level_tiling"
    priority = 10

    def match(self, program: ProgramInfo, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        if not block.is_reduction or not block.spatial or not block.writes_in_order or len(block.stores) != 1:
            return None
        known = block.with_chosen_as_own
        if block.block.init is None or not all(use.affine for use in known.loads):
            return None
        if not vector_axes(known):
            return None
        epilogue = program.epilogue_of(block, free)
        if epilogue is not None and _is_turned_copy(block, epilogue):
            epilogue = None
        return Group(block, (block,) if epilogue is None else (block, epilogue))

    def parts(self, program: ProgramInfo, group: Group, machine: MachineModel) -> list[Part]:
        anchor = group.anchor.with_chosen_as_own
        epilogue = group.blocks[1] if len(group.blocks) > 1 else None
        parts: list[Part] = []
        for vector in vector_axes(anchor):
            parts.extend(
                TilingPart(anchor, epilogue, vector, operand, machine)
                for operand in (None, *packable(anchor, vector))
                if operand is not None or loads_fit(anchor, vector)
            )
            if epilogue is None and rows_apart(anchor, vector):
                parts.append(OuterSumsPart(anchor, vector, machine))
        short = short_results(anchor, machine.lanes(anchor.itemsize))
        if short is not None:
            parts.append(ShortResultsPart(short, epilogue, machine))
        return parts


class TilingPart(Part):
    """This part is given by the vector axis and the operand (if any) that is packed into panels.

    The loops, from the outside in, of a block with the vector axis j, the rows i, further rows h (``rows2``), other axes o
    and the reduction k::

        outer = 0                             outer = 1                             slice > 0

        pack all of the operand               pack all of the operand
        for o: for h0: for i0: for j0:        for j0: for o: for h0: for i0:        for j0:
                                                                                        pack ``slice`` panels
            for i1:                               for i1:                               for i0: for j1:
                for k:                                for k:                                for k:
                    for h1: for i2: for j1:               for h1: for i2: for j1:               for i1: for j2:
                        acc += ...                            acc += ...                            acc += ...
                epilogue of the tile                  epilogue of the tile                  epilogue of the tile

    h1 has ``rows2`` trips and i2 ``rows``, both written out; j1 are ``vectors`` vectors: a panel. i1 has ``block`` trips; where
    all row tiles fit one block there is no loop i0, and the loops of the rows are called i0 and i1. Of k the innermost axis is
    unrolled by ``unroll``, or all of it. With ``slice`` there is one block, j1 goes through the panels of a slice, and there
    are neither h nor o. Where the work is worth threads, they share the loops of the first line; where these have fewer than
    twice as many iterations as the machine has cores, the loop i1 as well, but not with ``slice``.

    Decisions: ``rows`` and ``rows2`` (accumulator rows), ``vectors`` (accumulator columns, in vectors), ``block`` (row
    tiles computed before the next panel), ``outer`` (1: panels outermost), ``unroll`` of the reduction, and for a
    packed operand ``slice``: 0 to pack all of it first, else how many panels are packed at a time, to be used by all
    rows while they are in the cache. Where the passing operands together (``slice``), or the packed one on one thread
    (``outer``), are larger than half of the second-level cache (``_fetchable``), also ``ahead``:
    while a tile passes over a slice the next tile's rows are fetched; with panels outermost, while a panel is used the
    next panel.
    """

    structure = ("rows", "rows2", "vectors")

    def __init__(
        self, block: BlockInfo, epilogue: BlockInfo | None, vector: Var, packed: Use | None, machine: MachineModel
    ) -> None:
        self.block, self.machine, axes = block, machine, tile_axes(block, vector)
        lanes = machine.lanes(block.itemsize)
        self.case = TiledBlock(block, axes, epilogue, packed, lanes, worth_threads(machine, [block]))
        place = block.spatial.index(vector)
        self.name = f"tile_{block.name}_v{place}" + ("_packed" if packed is not None else "")
        extents = block.extents
        columns = math.ceil(extents[vector] / lanes)
        decisions = [Decision("vectors", up_to(columns, 1, 2, 3, 4, 5, 6))]
        if axes.rows is not None:
            extent = extents[axes.rows]
            decisions.append(Decision("rows", up_to(extent, *range(1, 17))))
            decisions.append(Decision("block", up_to(extent, 4, 8, 16, 32, 64, 1 << 20)))
        if axes.rows2 is not None:
            decisions.append(Decision("rows2", up_to(extents[axes.rows2], 1, 2, 3, 4)))
        if columns > 1:
            decisions.append(Decision("outer", (0, 1)))
            if (
                packed is not None
                and axes.rows is not None
                and axes.rows2 is None
                and not any(extents[v] > 1 for v in axes.others)
            ):
                decisions.append(Decision("slice", up_to(columns, 0, 1, 2, 4, 8)))
        if any(size > machine.l2_bytes / 2 for size in self._fetchable([d.name for d in decisions]).values()):
            decisions.append(Decision("ahead", (0, 1)))
        decisions.append(Decision("unroll", self._unrollings()))
        self.decisions = tuple(decisions)

    def _unrollings(self) -> tuple[int, ...]:
        """Returns how many steps of the reduction may be unrolled; of a small window all.

        In front of an epilogue of many operations a loop has to be left: the compiler would mix its code with that of the
        sums, and keep no sum in a register.
        """
        block, epilogue, extent = self.block, self.case.epilogue, self.block.extents[self.case.axes.reduce[-1]]
        long = epilogue is not None and epilogue.operations > _LONG
        if long and extent == block.reduce_size:
            return up_to(max(extent // 2, 1), 1, 2, 4, 8)
        unroll = up_to(extent, 1, 2, 4, 8)
        window = sum([block.extents[v] > 1 for v in self.case.axes.reduce]) > 1
        if window and unroll[-1] < block.reduce_size <= WINDOW and not long:
            unroll += (block.reduce_size,)
        return unroll

    def _fetchable(self, decisions: Collection[str]) -> dict[str, float]:
        """Returns the bytes of what may be fetched ahead. In slices, they are those of the operands whose rows pass by;
        else those of the packed one."""
        case, out = self.case, dict[str, float]()
        if "slice" in decisions:
            out["slice"] = sum(case.bytes_of(use) for use in case.passing)
        if "outer" in decisions and case.packed is not None and not case.parallel:
            out["outer"] = case.bytes_of(case.packed)
        return out

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        axes, extents = self.case.axes, self.block.extents
        names = {axis: f"x{n}_" for n, axis in enumerate(self.block.axes)}
        width = min(row["vectors"] * self.case.lanes, extents[axes.vector])
        vector, slices = names[axes.vector], row.get("slice", 0)
        sizes: dict[str, list[int | None]] = {}
        outer, tile, tail = [names[v] for v in axes.others], [f"{vector}{1 + (slices > 0)}"], []
        if axes.rows2 is not None:
            rows2 = names[axes.rows2]
            sizes[rows2] = [None, min(row["rows2"], extents[axes.rows2])]
            outer.append(f"{rows2}0")
            tile.insert(0, f"{rows2}1")
        sizes[vector] = [None, slices, width] if slices else [None, width]
        if axes.rows is not None:
            rows, blocked = names[axes.rows], row["block"] < math.ceil(extents[axes.rows] / row["rows"])
            sizes[rows] = [None, row["block"], row["rows"]] if blocked else [None, row["rows"]]
            outer += [f"{rows}0"] * blocked
            tail.append(f"{rows}{int(blocked)}")
            tile.insert(-1, f"{rows}{1 + blocked}")
        if slices:
            outer, tail = [*outer, f"{vector}0"], [*tail, f"{vector}1"]
        else:
            outer = [f"{vector}0", *outer] if row.get("outer") else [*outer, f"{vector}0"]
        reduce = [names[v] for v in axes.reduce]
        unrolled = reduce if row["unroll"] > extents[axes.reduce[-1]] else reduce[-1:]
        nest = TileNest(
            " ".join(names.values()), sizes, " ".join([*outer, *tail]), " ".join(reduce), " ".join(tile),
            shared=len(outer) if self.case.parallel else 0, tasks=0 if slices else 2 * self.machine.cores,
            unroll=dict.fromkeys(unrolled, row["unroll"]),
        )  # fmt: skip
        epilogue = [] if self.case.epilogue is None else [self.case.epilogue.name]
        within = f"{vector}0" if slices else ""
        panels = self._panels(width)
        loops, copy = tiled_product(sch, self.block.name, nest, packed=panels, within=within, epilogue=epilogue)
        if row.get("ahead") and slices:
            sch.annotate(loops[tail[0]], "pragma_prefetch_next", [use.buffer.name for use in self.case.passing])
        elif row.get("ahead"):
            sch.annotate(loops[f"{vector}0"], "pragma_prefetch_next", [sch.get(copy).writes[0].buffer.name])

    def _panels(self, width: int) -> Panels | None:
        """Returns the layout of the packed operand: ``[other axes, panel, reduction axes, column]``."""
        use, axes = self.case.packed, self.case.axes
        if use is None:
            return None
        dims = {axis: d for d, dim in enumerate(use.dims) for axis in dim or {}}
        inner = [dims[v] for v in axes.reduce if v in dims]
        others = [d for d in range(len(use.dims)) if d != dims[axes.vector] and d not in inner]
        return Panels(use.buffer.name, dims[axes.vector], width, inner, others, shared=self.case.parallel)

    def mask(self, columns: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        blocks = next((d.candidates for d in self.decisions if d.name == "block"), ())
        return TilingCosts(self.case, self.machine, columns, rows).mask(blocks)

    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        return TilingCosts(self.case, self.machine, columns, rows).costs()

    def likeness(self) -> Hashable:
        case = self.case
        numbers: dict[Buffer, int] = {}
        packed = [use is case.packed for use in self.block.loads]
        epilogue = None if case.epilogue is None else case.epilogue.likeness(numbers)
        vector = self.block.axes.index(case.axes.vector)
        own = self.block.likeness(numbers)
        return own, epilogue, vector, tuple(packed), case.lanes, case.parallel, case.conditional


class OuterSumsPart(Part):
    """The decisions of this part are ``vectors`` per iteration and ``steps``, the rows that are added at a time."""

    structure = ("steps",)

    def __init__(self, block: BlockInfo, vector: Var, machine: MachineModel) -> None:
        self.block, self.vector, self.machine = block, vector, machine
        self.name = f"outer_{block.name}"
        self.lanes = machine.lanes(block.itemsize)
        self.parallel = worth_threads(machine, [block])
        (step,) = block.reduce
        self.decisions = (
            Decision("vectors", up_to(math.ceil(block.extents[vector] / self.lanes), 1, 2, 4)),
            Decision("steps", up_to(block.extents[step], 2, 4, 8)),
        )

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        width = row["vectors"] * self.lanes
        share = math.ceil(self.block.extents[self.vector] / width / self.machine.cores) * width
        place = self.block.axes.index(self.vector)
        block = sch.get_block(self.block.name)
        outer_sums(sch, block, place, width, row["steps"], share=share if self.parallel else 0)

    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        return outer_costs(self.block, self.vector, self.machine, columns, rows, parallel=self.parallel)
