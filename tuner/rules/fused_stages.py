"""Several stages tile by tile of the last one: stencils, reductions that share an input, products in a row.

:func:`fused_tiles` is the schedule. The loops of the last stage are tiled; in each tile all other stages compute what it needs of
them. Stages may be element-wise, or reductions: with a register tile of sums, or with partial sums in the lanes of a vector.
What stages need beyond a tile (the border of a stencil) is computed again in the next tile, or kept for it in circular buffers.
Tiles need not divide the extents.

The costs follow from the accesses and from :func:`needed_region`, the part of each stage that one tile of the last stage needs, in
closed form; :func:`stage_role` says how a stage may be computed, by the strides of its accesses.

:class:`FusedStagesRule` takes any stages with affine accesses, each of which writes one buffer at its spatial axes. From the last
stage it grows upwards: a producer joins when only members read it, and when a tile of the last stage needs a small part of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np

from ...schedule import Schedule
from ...tir.expr import Var
from ...tir.stmt import Buffer
from ..cost.axis_roles import loads_fit, packable, tile_axes, vector_axes
from ..cost.cost_features import Costs, ceil_div, up_to
from ..cost.loop_nest import blended, fitting, shape_of
from ..cost.machine_model import MachineModel, crowding, one_by_one, overlapped, worth_threads
from ..cost.walker import WINDOW, WRITTEN, Walk, WalkedLoop, added
from ..loop_steps import (
    Panels,
    accumulate,
    by_lanes,
    extent_of,
    finish_tile,
    fuse_all,
    loops_of_axis,
    loops_within,
    pack,
    unroll_factor,
)
from ..program import BlockInfo, ProgramInfo, Use, copies, pads
from .schedule_rule import Decision, Group, Part, ScheduleRule

Kind = Literal["map", "tile", "lanes", "plain"]


@dataclass(frozen=True)
class TileStage:
    """How one stage is computed within a tile.

    ``kind``: ``map`` (element-wise, in vectors), ``tile`` (sums of a register tile), ``lanes`` (partial sums in the lanes
    of vectors), ``plain`` (one element after the other). ``vector`` is the number of the axis that becomes vectors, of
    ``width`` elements each time; ``row`` that of the rows of a register tile, ``rows`` at a time. ``unroll``: steps of the
    reduction per iteration. ``packed``: an operand that is copied into panels before everything else. ``end``: a result of
    the stages, of the same extents as the last one. ``written``: its loops in the tile are written out. ``rolls``: what the next tile needs again is
    kept in a circular buffer, whose rows begin at multiples of so many elements; that takes one loop over tiles, which no
    threads share. 0: it is computed again.
    """

    name: str
    kind: Kind
    vector: int = 0
    width: int = 1
    row: int | None = None
    rows: int = 1
    unroll: int = 1
    packed: Panels | None = None
    end: bool = False
    rolls: int = 0
    written: bool = False


@dataclass
class _Made:
    """A stage that is being scheduled: its block, and the block that finishes its sums. That one takes them to memory,
    or adds partial sums up."""

    stage: TileStage
    block: Any
    result: Any = None

    @property
    def blocks(self) -> list[Any]:
        """Returns its blocks in program order; the last one writes what it computes."""
        return [self.block] if self.result is None else [self.block, self.result]


def fused_tiles(sch: Schedule, stages: Sequence[TileStage], tiles: Mapping[int, int], *, shared: bool = False) -> Any:
    """Schedule ``stages``, in program order; returns the loop over tiles, None when there is one tile only.

    ``tiles``: for axes of the last stage, by number, the extent of a tile. ``shared``: the threads share the tiles.
    """
    made = [_prepared(sch, stage) for stage in stages]
    at = _tile_loop(sch, made[-1].blocks[-1], tiles)
    if at is not None:
        at = _move_in(sch, made, tiles, at)
        if shared:
            sch.parallel(at)
    for m in made:
        if m.stage.rolls and at is not None:
            sch.rolling_buffer(m.block, 0)
            rank = len(sch.get(m.block).writes[0].buffer.shape)
            if rank > 1:
                sch.storage_align(m.block, 0, rank - 2, m.stage.rolls, 0)
    for m in made:
        _FINISH[m.stage.kind](sch, m, at)
    return at


def _prepared(sch: Schedule, stage: TileStage) -> _Made:
    block = sch.get_block(stage.name)
    if stage.packed is not None:
        pack(sch, block, stage.packed)
    if stage.kind == "tile":
        return _Made(stage, block, accumulate(sch, block, stage.vector))
    if stage.kind == "lanes":
        spatial = sum(1 for iv in sch.get(block).iter_vars if iv.kind == "spatial")
        return _Made(stage, by_lanes(sch, block, sch.get_loops(block)[-1], stage.width, spatial), block)
    return _Made(stage, block)


def _move_in(sch: Schedule, made: Sequence[_Made], tiles: Mapping[int, int], at: Any) -> Any:
    """Compute all stages in ``at``, the loop over tiles of the last one; returns the loop.

    Producers go last, so that the loop of a further result directly follows it when that one's turn comes.
    """
    for m in reversed(made):
        ends = m.stage.end or m is made[-1]
        if m.stage.end:
            at = sch.merge(_tile_loop(sch, m.blocks[-1], tiles), at)
        for block in reversed(m.blocks[:-1] if ends else m.blocks):
            sch.compute_at(block, at)
    return at


def _tile_loop(sch: Schedule, block: Any, tiles: Mapping[int, int]) -> Any:
    """Split the loops of ``block``, and return the one loop over tiles."""
    outer, inner = [], []
    for number, loop in enumerate(sch.get_loops(block)):
        tile = tiles.get(number, 0)
        if 0 < tile < extent_of(sch, loop):
            over, loop = sch.split(loop, [None, tile])
            outer.append(over)
        inner.append(loop)
    if not outer:
        return None
    sch.reorder(*outer, *inner)
    return fuse_all(sch, outer)


def _loops(sch: Schedule, block: Any, at: Any) -> list[Any]:
    return list(sch.get_loops(block)) if at is None else loops_within(sch, block, at)


def _reduction_loops(sch: Schedule, block: Any, loops: Sequence[Any]) -> list[Any]:
    axes = [n for n, iv in enumerate(sch.get(block).iter_vars) if iv.kind == "reduce"]
    used = [loop for n in axes for loop in loops_of_axis(sch, block, loops, n)]
    return [loop for loop in loops if loop in used]


def _vectorize_map(sch: Schedule, made: _Made, at: Any) -> None:
    loops = _loops(sch, made.block, at)
    along = loops_of_axis(sch, made.block, loops, made.stage.vector)
    if not along:
        return
    loop = along[-1]
    if loop is not loops[-1]:
        sch.reorder(*[other for other in loops if other is not loop], loop)
    if extent_of(sch, loop) > made.stage.width:
        loop = sch.split(loop, [None, made.stage.width])[1]
    if made.stage.written:
        for other in _loops(sch, made.block, at)[:-1]:
            sch.unroll(other)
    sch.vectorize(loop)


def _register_tile(sch: Schedule, made: _Made, at: Any) -> None:
    """Put the reduction between the loops over register tiles and those within one."""
    block, stage = made.block, made.stage
    loops = _loops(sch, block, at)
    reduction = _reduction_loops(sch, block, loops)
    inside, over = [], []
    for axis, size in ((stage.row, stage.rows), (stage.vector, stage.width)):
        along = [] if axis is None else [x for x in loops_of_axis(sch, block, loops, axis) if x not in reduction]
        if along:
            tiles, inner = sch.split(along[-1], [None, min(size, extent_of(sch, along[-1]))])
            over.append((along[-1], tiles))
            inside.append(inner)
    tiled = [loop for loop, _ in over]
    others = [loop for loop in loops if loop not in tiled and loop not in reduction]
    outer = [*others, *[loop for _, loop in over]]
    sch.reorder(*outer, *reduction, *inside)
    around = outer[-1] if outer else at
    if outer:
        sch.reverse_compute_at(made.result, around)
    init = sch.decompose_reduction(block, reduction[0]) if reduction else None
    if reduction:
        whole = math.prod(extent_of(sch, loop) for loop in reduction) <= stage.unroll
        for loop in reduction if whole else reduction[-1:]:
            unroll_factor(sch, loop, stage.unroll)
    for loop in inside[:-1]:
        sch.unroll(loop)
    if inside:
        sch.vectorize(inside[-1])
    if around is not None:
        for part in (init, made.result):
            if part is not None:
                finish_tile(sch, part, around, stage.vector)


def _lanes(sch: Schedule, made: _Made, at: Any) -> None:
    """Sum up in the lanes of a vector, then the lanes, for each element."""
    block, finish, stage = made.block, made.result, made.stage
    across = _reduction_loops(sch, finish, _loops(sch, finish, at))
    elements = [loop for loop in _loops(sch, finish, at) if loop not in across]
    if elements:
        sch.reorder(*elements, *across)
        sch.compute_at(block, elements[-1])
        at = elements[-1]
    loops = _loops(sch, block, at)
    (lanes,) = loops_of_axis(sch, block, loops, 0)
    reduction = [loop for loop in loops if loop is not lanes]
    sch.set_scope(block, 0, "local")
    if reduction:
        sch.reorder(*reduction, lanes)
        init = sch.decompose_reduction(block, reduction[0])
        unroll_factor(sch, reduction[-1], stage.unroll)
        sch.vectorize(sch.get_loops(init)[-1])
    sch.vectorize(lanes)
    if across:
        sch.annotate(across[-1], "tir.horizontal_reduce", 1)


def _plain(sch: Schedule, made: _Made, at: Any) -> None:
    """Leave the loops of a stage as they are."""


_FINISH = {"map": _vectorize_map, "tile": _register_tile, "lanes": _lanes, "plain": _plain}


_FOLLOWED, _RESTART = 16.0, 0.5
"""The rows that prefetchers lose where tiles end within them, and how much longer memory then takes (blur of 2048² to 2112²:
0.3 to 0.8)."""

_SCATTERED = 3.0
"""The cycles of an element of a tile that is stored by itself: taken out of its vector, and stored."""

_CIRCULAR = 0.2
"""How much longer stages in circular buffers take than their causes explain: 0.0 for jacobi_2d, 0.5 for harris."""


@dataclass(frozen=True)
class FusedStages:
    """The stages that are computed together, in program order, with their roles and regions. ``tiled`` are the axes of
    the last one that are cut into tiles, outermost first. ``parallel``: threads share the tiles. ``siblings``: other
    results, of the extents of the last one, which share its tiles."""

    roles: tuple[StageRole, ...]
    regions: Mapping[BlockInfo, Region]
    tiled: tuple[Var, ...]
    lanes: int
    parallel: bool
    siblings: tuple[BlockInfo, ...] = ()

    @property
    def root(self) -> BlockInfo:
        """Returns the last stage."""
        return self.roles[-1].block

    @cached_property
    def ends(self) -> tuple[BlockInfo, ...]:
        """Returns the stages whose results stay."""
        return (*self.siblings, self.root)

    @cached_property
    def rolling(self) -> tuple[BlockInfo, ...]:
        """Returns the stages whose rows circular buffers can keep from tile to tile, in program order. A tile needs
        rows of them that the tile before has computed along the outermost tiled axis; the result is empty where they
        cannot all be kept."""
        if self.parallel or self.siblings or not self.tiled:
            return ()
        axis, found = self.tiled[0], []
        for role in self.roles[:-1]:
            spans = [s for s in self.regions[role.block].values() if axis in s.factors]
            if any(s.hi > s.lo for s in spans):
                if (
                    role.kind != "map"
                    or len(spans) != 1
                    or set(spans[0].factors) != {axis}
                    or spans[0].factors[axis] < 1
                ):
                    return ()
                found.append(role.block)
        return tuple(found)

    @cached_property
    def alike(self) -> tuple[int, ...]:
        """Returns for each stage the number of the first one that is like it. Stages that are alike cost the same in each
        tile, so they share their decisions, and their costs are computed once."""
        first: dict[object, int] = {}
        return tuple([first.setdefault(self._likeness(role), n) for n, role in enumerate(self.roles)])

    def _likeness(self, role: StageRole) -> object:
        """Returns a key of all that the costs of a stage depend on, with its axes by number."""
        block, region = role.block, self.regions[role.block]
        at: dict[Var | None, int] = {v: n for n, v in enumerate(block.axes)}
        spans = [(block.extents[v], region[v].key) for v in block.axes]

        def access(use: Use) -> object:
            shape = tuple([getattr(extent, "value", extent) for extent in use.buffer.shape])
            dims = [None if d is None else frozenset([(at.get(v, v), k) for v, k in d.items()]) for d in use.dims]
            return use is role.packed, use.buffer.dtype, shape, tuple(dims)

        uses = [access(use) for use in (*block.loads, *block.stores)]
        kept = block in self.ends, block in self.rolling
        axes = at.get(role.vector), at.get(role.row), len(block.spatial), len(block.loads)
        return role.kind, axes, kept, block.operations, tuple(spans), tuple(uses)

    @cached_property
    def inside(self) -> tuple[Buffer, ...]:
        """Returns the buffers that only these stages use."""
        ends = set(self.ends)
        return tuple([role.block.stores[0].buffer for role in self.roles if role.block not in ends])

    @cached_property
    def outside(self) -> tuple[Buffer, ...]:
        """Returns the buffers that they read from outside."""
        read = [use.buffer for role in self.roles for use in role.block.loads]
        made = {role.block.stores[0].buffer for role in self.roles}
        return tuple([b for b in dict.fromkeys(read) if b not in made])

    @cached_property
    def between(self) -> Mapping[BlockInfo, list[Use]]:
        """Returns the loads of each stage that read what the stages make."""
        made = {role.block.stores[0].buffer for role in self.roles}
        return {r.block: [use for use in r.block.loads if use.buffer in made] for r in self.roles}

    @cached_property
    def in_line(self) -> bool:
        """Returns whether all stages are element-wise, and read each other's vectors as they were computed."""
        return all(role.kind == "map" and self._reads_in_line(role) for role in self.roles)

    def _reads_in_line(self, role: StageRole) -> bool:
        last = role.block.spatial[-1]
        reads = [(use.dims[-1], use.offsets[-1], use.dims[:-1]) for use in self.between[role.block]]
        return role.vector is last and all(
            dim == {last: 1} and offset == 0 and all(d is not None and last not in d for d in others)
            for dim, offset, others in reads
        )


class FusedCosts:
    """The costs of ``rows`` candidates whose decisions are ``columns``. These are ``tile<n>`` of each tiled axis,
    ``vectors`` of element-wise stages, and for the reduction of stage ``n``, and those like it, ``vectors<n>``, ``rows<n>``.
    """

    def __init__(
        self, stages: FusedStages, machine: MachineModel, columns: Mapping[str, np.ndarray], rows: int
    ) -> None:
        self.stages, self.machine, self.columns, self.rows = stages, machine, columns, rows
        root, ones = stages.root, np.ones(rows)
        self.tile: dict[Var, np.ndarray] = {v: ones * root.extents[v] for v in root.spatial}
        for n, axis in enumerate(stages.tiled):
            self.tile[axis] = np.minimum(columns[f"tile{n}"], root.extents[axis])
        self.trips = [ceil_div(root.extents[v], self.tile[v]) for v in stages.tiled]
        self.tiles = np.prod([ones, *self.trips], axis=0)
        self.rolled = columns.get("rolled", np.zeros(rows)) > 0

    def _of_each(self, cost: Callable[[int, StageRole], Any]) -> list[tuple[StageRole, Any]]:
        """Returns the stages with their ``cost``, which is asked once for those that are alike."""
        roles, alike = self.stages.roles, self.stages.alike
        made = {n: cost(n, roles[n]) for n in dict.fromkeys(alike)}
        return [(role, made[n]) for role, n in zip(roles, alike, strict=True)]

    def sizes(self, block: BlockInfo) -> dict[Var, np.ndarray]:
        """Returns how many values each axis of ``block`` takes in a tile."""
        region = self.stages.regions[block]
        return {v: region[v].size(self.tile, self.rows) for v in block.axes}

    def computed(self, block: BlockInfo) -> dict[Var, np.ndarray]:
        """Returns how many values of each axis of ``block`` a tile computes. They are those of :meth:`sizes`, less what
        a circular buffer has from the tile before."""
        sizes = self.sizes(block)
        if block not in self.stages.rolling or not self.rolled.any():
            return sizes
        axis, region = self.stages.tiled[0], self.stages.regions[block]
        for v in block.axes:
            if axis in region[v].factors:
                new = region[v].factors[axis] * self.tile[axis]
                new = np.minimum(sizes[v], new + np.maximum(0.0, sizes[v] - new) / self.trips[0])
                sizes[v] = np.where(self.rolled, new, sizes[v])
        return sizes

    @cached_property
    def scratch(self) -> np.ndarray:
        """Returns the bytes of the intermediate results of a tile."""
        return self._results(self.sizes)

    def _results(self, sizes: Callable[[BlockInfo], Mapping[Var, np.ndarray]]) -> np.ndarray:
        """Returns the bytes of intermediate results whose axes take as many values as ``sizes`` says."""

        def bytes_of(_: int, role: StageRole) -> np.ndarray | float:
            if role.block in self.stages.ends:
                return 0.0
            size = sizes(role.block)
            return np.asarray(role.block.itemsize * np.prod([size[v] for v in role.block.spatial], axis=0))

        return np.asarray(sum([each for _, each in self._of_each(bytes_of)], np.zeros(self.rows)))

    def mask(self) -> np.ndarray:
        """Register tiles that fit the registers and divide what they are tiles of, unless that is the whole axis."""
        keep = ~self.rolled
        if self.rolled.any():  # one loop over tiles
            alone = np.prod([np.ones(self.rows), *self.trips[1:]], axis=0) == 1
            keep = keep | (alone & (self.trips[0] > 1))
        for n in dict.fromkeys(self.stages.alike):
            role = self.stages.roles[n]
            if role.kind != "tile":
                continue
            vectors, rows = self.columns[f"vectors{n}"], self.columns[f"rows{n}"]
            keep &= vectors * rows + vectors + 2 <= self.machine.registers
            sizes = self.sizes(role.block)
            for axis, step in ((role.vector, vectors * self.stages.lanes), (role.row, rows)):
                if axis is not None:
                    size = sizes[axis]
                    keep &= (size == role.block.extents[axis]) | (size % np.minimum(step, size) == 0)
        return keep

    def costs(self) -> Costs:
        """Returns all of it."""
        machine = self.machine
        each = {n: walk.counts() for n, walk in self.walks.items()}
        if self.in_registers.any():
            for n, counts in each.items():
                short = self._walk(n, self.stages.roles[n], in_registers=True).counts()
                short["loop_cycles"] = np.zeros(self.rows)
                each[n] = {name: np.where(self.in_registers, short[name], column) for name, column in counts.items()}
        for n, counts in each.items():
            counts["store_cycles"] = counts["store_cycles"] + self._scattered(n)
        counts = added([each[n] for n in self.stages.alike])
        near, far, memory = (self._traffic(size) for size in (machine.l1_bytes, machine.l2_bytes, machine.l3_bytes))
        packed = sum(
            role.block.itemsize * math.prod(role.block.extents[v] for v in role.packed.axes())
            for role in self.stages.roles if role.packed is not None
        )  # fmt: skip
        root = self.stages.root
        counts["loop_cycles"] = counts["loop_cycles"] + np.where(self.in_registers, 2.0, 20.0)
        costs = Costs(self.rows).put(
            **{name: cycles * self.tiles for name, cycles in counts.items()},
            l2_bytes=near * (1.0 + self._crowded),
            l3_bytes=far,
            memory_bytes=memory * self._broken_rows,
            pack_bytes=2.0 * packed,
            flops=sum(role.block.flops for role in self.stages.roles),
            regions=float(self.stages.parallel) + float(packed > 0),
            lanes_used=float(self.stages.lanes),
            columns=self.columns.get("vectors", np.ones(self.rows)),
            waste=self._repeated,
            tile_a=self.tile[self.stages.tiled[0]],
            tile_b=self.tile[self.stages.tiled[-1]],
            panel_bytes=self.scratch,
            tasks=self.tiles if self.stages.parallel else 1.0,
            tasks_per_core=self.tiles / machine.cores,
            row_extent=float(root.spatial_size),
            column_extent=float(root.extents[root.spatial[-1]]),
            epilogue=float(len(self.stages.roles)),
        )
        return costs.put(extra_cycles=self.rolled * _CIRCULAR * overlapped(machine.cycles_by_cause(costs)))

    @cached_property
    def _broken_rows(self) -> np.ndarray:
        """Returns how many times longer memory takes because tiles end within rows.

        Prefetchers follow some rows from one tile to the next, as many as half of :data:`_FOLLOWED`, but not twice as many.
        """
        root, tiled = self.stages.root, self.stages.tiled
        last = root.spatial[-1]
        rows = np.prod([np.ones(self.rows), *[self.tile[axis] for axis in tiled if axis is not last]], axis=0)
        lost = np.clip(np.log2(2.0 * rows / _FOLLOWED), 0.0, 1.0)
        return np.where(self.tile[last] < root.extents[last], 1.0 + _RESTART * lost, 1.0)

    @cached_property
    def _crowded(self) -> np.ndarray:
        """Returns how likely the rows under a tile evict each other from the first-level cache, 0 to 1."""
        stages, lines, step = self.stages, np.zeros(self.rows), 4096
        read = spans_read(stages.regions)
        spans = [(b, read[b]) for b in stages.outside]
        spans += [(b.stores[0].buffer, tuple([stages.regions[b][v] for v in b.spatial])) for b in stages.ends]
        for buffer, found in spans:
            shape = shape_of(buffer)
            if found and len(shape) > 1:
                lines = lines + np.prod([span.size(self.tile, self.rows) for span in found[:-1]], axis=0)
                step = math.gcd(step, int(shape[-1]) * buffer.dtype.bytes)
        return crowding(lines, step, self.machine) if lines.any() else lines

    @cached_property
    def _repeated(self) -> np.ndarray:
        """Returns how many times the work of all stages is done because tiles overlap."""

        def work(_: int, role: StageRole) -> np.ndarray:
            instances = np.prod([*self.computed(role.block).values(), np.ones(self.rows)], axis=0)
            return np.asarray(instances * role.block.operations)

        done = sum([each for _, each in self._of_each(work)], np.zeros(self.rows))
        return done * self.tiles / max(1.0, sum(role.block.flops for role in self.stages.roles))

    @cached_property
    def in_registers(self) -> np.ndarray:
        """Returns where all values of a tile stay in registers. They are few whole vectors, which its stages, written out,
        read as they were computed."""
        stages, root = self.stages, self.stages.root
        if not stages.in_line or stages.rolling or not stages.tiled:
            return np.zeros(self.rows, bool)
        last, vectors, whole = root.spatial[-1], np.zeros(self.rows), np.ones(self.rows, bool)
        for axis in stages.tiled:
            whole &= root.extents[axis] % self.tile[axis] == 0
        for role in stages.roles:
            sizes = self.sizes(role.block)
            vectors = vectors + np.prod([sizes[v] for v in role.block.spatial], axis=0) / stages.lanes
            whole &= sizes[role.block.spatial[-1]] == self.tile[last]
        width = np.minimum(self.columns["vectors"] * stages.lanes, self.tile[last])
        return (
            whole & (self.tile[last] % width == 0) & (width % stages.lanes == 0) & (vectors <= self.machine.registers)
        )

    def _scattered(self, n: int) -> np.ndarray:
        """Returns the cycles of storing results one by one, where they do not lie along the vectors."""
        role = self.stages.roles[n]
        stride = 0 if role.vector is None else role.block.stores[0].stride(role.vector) or 0
        if role.kind != "tile" or role.vector is None or stride in (0, 1):
            return np.zeros(self.rows)
        sizes, lanes, far = (
            self.computed(role.block),
            self.walks[n].body[role.vector],
            abs(stride) * role.block.itemsize,
        )
        results = np.prod([sizes[v] for v in role.block.spatial], axis=0)
        return np.asarray(results * one_by_one(lanes, far, self.machine, _SCATTERED))

    # -- one stage in one tile -------------------------------------------------------------------------------------

    @cached_property
    def walks(self) -> dict[int, Walk]:
        """The loops of a stage in one tile, by the number of the first stage that is like it."""
        return {n: self._walk(n, self.stages.roles[n]) for n in dict.fromkeys(self.stages.alike)}

    def _is_tile(self, n: int) -> bool:
        return self.stages.roles[n].kind == "tile"

    def _walk(self, n: int, role: StageRole, *, in_registers: bool = False) -> Walk:
        """Returns the loops of a stage in one tile.

        They are a vector, the rows of a register tile, the reduction, and what is left. ``in_registers``: they are written out.
        """
        block, sizes, lanes = role.block, self.computed(role.block), self.stages.lanes
        vector, loops, body = role.vector, [], dict[Var, np.ndarray]()
        if role.kind == "map" and vector is not None:
            body[vector] = self.columns["vectors"] * lanes
        elif role.kind == "tile" and vector is not None:
            body[vector] = self.columns[f"vectors{n}"] * lanes
            if role.row is not None:
                body[role.row] = self.columns[f"rows{n}"]
        elif role.kind == "lanes":
            vector = block.reduce[-1]
            body[vector] = self.columns[f"vectors{n}"] * lanes
        if in_registers:
            loops = [WalkedLoop(axis, sizes[axis], written_out=True) for axis in reversed(block.spatial)]
            free, kept = self.stages.between[block], block in self.stages.ends
            return Walk(block, self.machine, loops, self.rows, vector=vector, lanes=lanes, elsewhere=free, stores=kept)
        for axis, size in body.items():
            loops.append(WalkedLoop(axis, np.minimum(size, sizes[axis]), written_out=True))
        for axis in (*reversed(block.reduce), *body, *reversed(block.spatial)):
            if axis in body and all(loop.written_out or loop.axis is not axis for loop in loops):
                loops.append(WalkedLoop(axis, ceil_div(sizes[axis], np.minimum(body[axis], sizes[axis]))))
            elif axis not in body:
                loops.append(WalkedLoop(axis, sizes[axis]))
        unroll: np.ndarray | float = 1.0
        if role.kind == "tile":
            tall = 1.0 if role.row is None else self.columns[f"rows{n}"]
            unroll = unrolled_steps(block, self.columns[f"vectors{n}"] * tall)
        return Walk(
            block, self.machine, loops, self.rows, vector=vector, lanes=lanes, packed=role.packed, unroll=unroll
        )

    # -- memory ----------------------------------------------------------------------------------------------------

    def _traffic(self, cache: float) -> np.ndarray:
        """Returns the bytes that cross into a cache. They are what the tiles read and write of outside buffers, at
        least what the reductions in a tile read again and again, and the intermediate results as far as those of a tile
        do not fit."""
        levels, sizes = self._outer
        outer = blended(levels, fitting(sizes[1:], cache))
        moved = {n: self.walks[n].nest.traffic(cache) * self.tiles for n in self.walks if self._is_tile(n)}
        within = sum([moved[n] for n in self.stages.alike if n in moved], np.zeros(self.rows))
        spilled = 1.0 / (1.0 + np.exp2(np.clip(-6.0 * np.log2(np.maximum(self.scratch, 1.0) / (0.6 * cache)), -60, 60)))
        return np.asarray(np.maximum(outer, within) + spilled * 3.0 * self._written * self.tiles)

    @cached_property
    def _written(self) -> np.ndarray:
        """Returns the bytes of intermediate results that a tile computes. They are also about those that it reads, and
        with circular buffers less than :attr:`scratch`."""
        return self._results(self.computed)

    @cached_property
    def _outer(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Returns the bytes that the tiles move, and the working sets, for each number of inner loops over tiles. The
        data of these loops stay in a cache."""
        stages, root = self.stages, self.stages.root
        read = spans_read(stages.regions)
        touched = [(b, read[b] or tuple([TileSpan({}, 0, e - 1, e) for e in shape_of(b)]), 1.0) for b in stages.outside]
        touched += [(b.stores[0].buffer, tuple([stages.regions[b][v] for v in b.spatial]), 1.0) for b in stages.ends]
        loops = list(zip(stages.tiled, self.trips, strict=True))[::-1]
        cover, levels, sizes = dict(self.tile), [], []
        for depth in range(len(loops) + 1):
            moved, held = np.zeros(self.rows), np.zeros(self.rows)
            for buffer, spans, times in touched:
                lines = self._lines(buffer, spans, cover)
                held = held + lines
                again = np.prod([np.ones(self.rows), *(trips for _, trips in loops[depth:])], axis=0)
                for axis, trips in loops[depth:]:
                    if any(axis in span.factors for span in spans):
                        break
                    again = again / trips
                moved = moved + times * lines * again
            levels.append(moved)
            sizes.append(held + self.scratch)
            if depth < len(loops):
                axis, trips = loops[depth]
                cover = {**cover, axis: np.minimum(cover[axis] * trips, root.extents[axis])}
        if self.rolled.any():  # what neighbouring tiles share is still there: each row is read once
            levels = [np.where(self.rolled, np.minimum(level, levels[-1]), level) for level in levels]
        return [*levels, np.zeros(self.rows)], [*sizes, sizes[-1]]

    def _lines(self, buffer: Buffer, spans: Sequence[TileSpan], cover: Mapping[Var, np.ndarray]) -> np.ndarray:
        """Returns the bytes of the cache lines under a part of ``buffer``."""
        sizes = [span.size(cover, self.rows) for span in spans] or [np.ones(self.rows)]
        around = np.prod([np.ones(self.rows), *sizes[:-1]], axis=0)
        return np.asarray(around * 64.0 * ceil_div(sizes[-1] * buffer.dtype.bytes, 64))


@dataclass(frozen=True)
class TileSpan:
    """The values that an index takes for one tile. They are the sum of ``factors`` times the axes of the last stage,
    plus ``lo`` to ``hi``; of ``extent`` values at most."""

    factors: Mapping[Var, int]
    lo: int
    hi: int
    extent: int

    @property
    def key(self) -> tuple[object, ...]:
        """Returns what equal spans have in common, as a key."""
        return frozenset(self.factors.items()), self.lo, self.hi, self.extent

    def size(self, tile: Mapping[Var, np.ndarray], rows: int) -> np.ndarray:
        """Returns how many values there are when each axis of the last stage covers ``tile`` values."""
        total = np.full(rows, 1.0 + self.hi - self.lo)
        for axis, factor in self.factors.items():
            total = total + abs(factor) * (tile[axis] - 1)
        return np.minimum(total, float(self.extent))

    def union(self, other: TileSpan) -> TileSpan:
        """Returns the span that holds both. Those that move at different speeds are far apart in most tiles: all values."""
        if self.factors != other.factors:
            return TileSpan({}, 0, self.extent - 1, self.extent)
        return TileSpan(self.factors, min(self.lo, other.lo), max(self.hi, other.hi), self.extent)


Region = Mapping[Var, TileSpan]
"""The spans of the axes of a block."""


def whole_region(block: BlockInfo) -> Region:
    """Returns the region of the last stage: its spatial axes are the tile's, a reduction goes through all values."""
    region = {v: TileSpan({v: 1}, 0, 0, block.extents[v]) for v in block.spatial}
    return {**region, **_reduced_axes(block)}


def same_region(block: BlockInfo, root: BlockInfo) -> Region:
    """Returns the region of a result that has the extents of the last stage, ``root``: the same tile."""
    pairs = zip(block.spatial, root.spatial, strict=True)
    return {**{v: TileSpan({axis: 1}, 0, 0, block.extents[v]) for v, axis in pairs}, **_reduced_axes(block)}


def _reduced_axes(block: BlockInfo) -> dict[Var, TileSpan]:
    """Returns the spans of the axes that a block reduces: all values."""
    return {v: TileSpan({}, 0, block.extents[v] - 1, block.extents[v]) for v in block.reduce}


def _read_spans(use: Use, region: Region) -> tuple[TileSpan, ...] | None:
    """Returns the span of each dimension that a block of this region reads; None when an index is not affine."""
    spans = []
    for dim, offset, extent in zip(use.dims, use.offsets, use.buffer.shape, strict=True):
        size = getattr(extent, "value", None)
        if dim is None or size is None:
            return None
        factors: dict[Var, int] = {}
        lo = hi = offset
        for axis, factor in dim.items():
            span = region[axis]
            ends = sorted((factor * span.lo, factor * span.hi))
            lo, hi = lo + ends[0], hi + ends[1]
            for root, inner in span.factors.items():
                factors[root] = factors.get(root, 0) + factor * inner
        spans.append(TileSpan({v: f for v, f in factors.items() if f}, lo, hi, size))
    return tuple(spans)


def spans_read(
    regions: Mapping[BlockInfo, Region], buffer: Buffer | None = None
) -> dict[Buffer, tuple[TileSpan, ...] | None]:
    """Returns the spans of what the blocks of ``regions`` read, by buffer, or only those of ``buffer``. None stands for an
    index that is not affine."""
    out: dict[Buffer, tuple[TileSpan, ...] | None] = {}
    for block, region in regions.items():
        for use in block.loads:
            if buffer is None or use.buffer is buffer:
                found, before = _read_spans(use, region), out.get(use.buffer, ())
                if found is None or before is None:
                    out[use.buffer] = None
                else:
                    out[use.buffer] = tuple([a.union(b) for a, b in zip(before or found, found, strict=True)])
    return out


def needed_region(block: BlockInfo, readers: Mapping[BlockInfo, Region]) -> Region | None:
    """Returns the region of ``block`` that its readers need, or None when an index is not affine. The block writes one
    buffer at its spatial axes."""
    buffer = block.stores[0].buffer
    spans = spans_read(readers, buffer).get(buffer)
    return None if spans is None else {**dict(zip(block.spatial, spans, strict=True)), **_reduced_axes(block)}


@dataclass(frozen=True)
class StageRole:
    """The role of a stage in a tile. It has its ``kind`` (those of :class:`TileStage`), the axis ``vector`` that
    becomes vectors, the axis ``row`` of a register tile, and the operand that is ``packed`` into panels ahead."""

    block: BlockInfo
    kind: Literal["map", "tile", "lanes", "plain"]
    vector: Var | None = None
    row: Var | None = None
    packed: Use | None = None


def stage_role(block: BlockInfo, lanes: int, inside: Collection[Buffer] = ()) -> StageRole:
    """Returns the role of ``block``. The parameter ``lanes`` is the number of elements of a vector, ``inside`` are the
    buffers that the fused stages write, which cannot be packed ahead."""
    if not block.spatial:
        return StageRole(block, "lanes" if _sums_in_lanes(block, lanes) else "plain")
    if not block.is_reduction:
        wide = [v for v in block.spatial if block.extents[v] > 1]
        return StageRole(block, "map", wide[-1] if wide else block.spatial[-1])
    for vector in vector_axes(block):
        operands = [use for use in packable(block, vector) if use.buffer not in inside]
        if loads_fit(block, vector) or operands:
            packed = None if _contiguous(block, vector) or not operands else operands[0]
            return StageRole(block, "tile", vector, tile_axes(block, vector).rows, packed)
    return StageRole(block, "lanes" if _sums_in_lanes(block, lanes) else "plain")


def _contiguous(block: BlockInfo, vector: Var) -> bool:
    return all(use.stride(vector) == 1 for use in block.loads if vector in use.axes())


def _sums_in_lanes(block: BlockInfo, lanes: int) -> bool:
    """Returns whether the innermost axis of the reduction is long enough for a vector, and its result one buffer."""
    last = block.axes[-1] if block.axes else None
    return last in block.reduce and block.extents[last] >= lanes and len(block.stores) == 1 and _known(block)


def _known(block: BlockInfo) -> bool:
    return block.block.init is not None and math.prod(block.extents[v] for v in block.reduce) > 1


def unrolled_steps(block: BlockInfo, sums: np.ndarray | float) -> np.ndarray:
    """Returns by how many steps a reduction is unrolled. They are all of a small window, where so many ``sums`` are in hand;
    else one."""
    steps = block.reduce_size
    return np.where((steps <= WINDOW) & (sums * np.float64(steps * block.operations) <= WRITTEN), steps, 1)


_TILED = 3
"""The number of axes that are cut into tiles: the innermost ones of those that all stages share."""


class FusedStagesRule(ScheduleRule):
    """This rule takes two stages or more, the last of which anchors them. Its option ``depth`` is how many follow each
    other; with ``siblings``, results of the same extents that read the same are computed in the same tiles."""

    priority = 80
    fuses = True

    def __init__(self, name: str, depth: int, *, siblings: bool = False) -> None:
        self.name, self.depth, self.siblings = name, depth, siblings

    def match(self, program: ProgramInfo, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        return _groups(program, free, self.depth, self.siblings).get(block)

    def shares_parts(self) -> object:
        return FusedStagesRule.parts

    def parts(self, program: ProgramInfo, group: Group, machine: MachineModel) -> list[Part]:
        return [FusedPart(program, group, machine)]


@lru_cache(maxsize=8)
def _known_groups(
    program: ProgramInfo, depth: int, siblings: bool
) -> list[tuple[set[BlockInfo], dict[BlockInfo, Group]]]:
    """Returns where :func:`_groups` keeps the free blocks that it was asked about last, with their groups."""
    return []


def _groups(
    program: ProgramInfo, free: Sequence[BlockInfo], depth: int, siblings: bool
) -> dict[BlockInfo, Group]:  # fmt: skip
    """Returns the groups of two stages or more that compute something, by their last stage.

    The last stages of the program choose first. When a whole group is no longer free, the choices of the others are the
    same, so that their groups are not made again.
    """
    known, now = _known_groups(program, depth, siblings), set(free)
    if known:
        before, groups = known.pop()
        taken = before - now
        gone = [root for root in taken if root in groups]
        if now <= before and sum(len(groups[root].blocks) for root in gone) == len(taken):
            groups = {root: group for root, group in groups.items() if root not in taken} if gone else groups
            known.append((now, groups))
            return groups
    left, groups = set(now), {}
    for root in reversed(program.blocks):
        if root in left and _is_stage(root) and root.spatial:
            members = fused_regions(program, root, left, depth, siblings_of(program, root, left) if siblings else ())
            left -= set(members)
            if sum(1 for b in members if not (copies(b) or b.operations < 2 and pads(b))) > 1:
                groups[root] = Group(root, tuple(program.ordered(members)))
    known.append((now, groups))
    return groups


def _is_stage(block: BlockInfo) -> bool:
    """Returns whether the block writes one buffer at its spatial axes, and reduces from a start value if it does."""
    return (
        block.fills_in_order
        and len(block.stores) == 1
        and block.axes == (*block.spatial, *block.reduce)
        and not block.keeps_order
        and (block.block.init is not None or not block.is_reduction)
    )


def siblings_of(program: ProgramInfo, root: BlockInfo, free: Collection[BlockInfo]) -> list[BlockInfo]:
    """Returns the results of the program before ``root`` that can share its tiles.

    They have its extents, are made of a buffer that it is made of, and are read by no stage, or by those alone, each
    element by that at its own place.
    """
    if not program.is_output(root) or root.spatial_size == 1:  # one element has no tiles
        return []
    shape, read, found = [root.extents[v] for v in root.spatial], program.sources(root), {root: None}
    for b in reversed(program.results):
        if (
            b in free and program.comes_before(b, root) and [b.extents[v] for v in b.spatial] == shape
            and read & program.sources(b) and _is_stage(b)
            and all(c in found and _reads_in_place(c, b) for c in program.consumers(b))
        ):  # fmt: skip
            found[b] = None
    return [*found][:0:-1]


def _reads_in_place(reader: BlockInfo, block: BlockInfo) -> bool:
    """Returns whether a stage reads of ``block``, which has its extents, the element at its own place."""
    places = [({v: 1}, 0) for v in reader.spatial]
    uses = [use for use in reader.loads if use.buffer is block.stores[0].buffer]
    return all([*zip(use.dims, use.offsets, strict=True)] == places for use in uses)


def fused_regions(
    program: ProgramInfo, root: BlockInfo, free: Collection[BlockInfo], depth: int, siblings: Sequence[BlockInfo] = ()
) -> dict[BlockInfo, Region]:  # fmt: skip
    """Returns ``root`` and the producers that are computed in its tiles, with the regions that a tile needs. With
    ``siblings``, whose tiles are the same, their producers are included as well."""
    regions: dict[BlockInfo, Region] = {root: whole_region(root)}
    regions.update({block: same_region(block, root) for block in siblings})
    level = dict.fromkeys(regions, 1)
    shared = shared_axes(root, regions)
    for block in program.upwards(root, regions):
        consumers = program.consumers(block)
        if block not in free or not set(consumers) <= set(regions):
            continue
        level[block] = 1 + max(level[c] for c in consumers)
        if level[block] > depth or not _is_stage(block) or not block.writes_in_order or program.is_output(block):
            continue
        region = needed_region(block, {c: regions[c] for c in consumers})
        if region is not None:
            left = _axes_of(region, shared)
            if _small(block, region, root, left):
                regions[block], shared = region, left
    return regions


_SMALL = 1 << 18
"""The bytes of a stage that the smallest tile may need."""


def _small(block: BlockInfo, region: Region, root: BlockInfo, shared: Sequence[Var]) -> bool:
    """Returns whether the smallest tile of ``root``, the last stage, needs a small part of the block's results. The place of
    every stage depends on the axes ``shared``."""
    if not shared:
        return False
    tile = {v: np.ones(1) * (1 if v in shared else root.extents[v]) for v in root.spatial}
    count = math.prod(float(region[v].size(tile, 1)[0]) for v in block.spatial)
    return count * block.itemsize <= _SMALL and count < block.spatial_size


def shared_axes(root: BlockInfo, regions: Mapping[BlockInfo, Region]) -> list[Var]:
    """Returns the axes of the last stage that the place of every stage depends on, outermost first."""
    axes = [v for v in root.spatial if root.extents[v] > 1]
    for region in regions.values():
        axes = _axes_of(region, axes)
    return axes


def _axes_of(region: Region, axes: Sequence[Var]) -> list[Var]:
    """Returns those of ``axes`` that the place of a region depends on."""
    used = {v for span in region.values() for v in span.factors}
    return [v for v in axes if v in used]


class FusedPart(Part):
    """This part has the decisions of fused stages. They are ``tile0``, …: the tiles of the last stage's axes, outermost
    first; ``vectors`` per iteration of element-wise stages; for the reduction of stage n, and those like it, ``vectors<n>``
    and ``rows<n>`` of its register tile; ``rolled`` (1: rows that the next tile needs again are kept in circular buffers), for chains
    of stencils."""

    def __init__(self, program: ProgramInfo, group: Group, machine: MachineModel) -> None:
        self.group, self.machine = group, machine
        root = group.anchor
        siblings = siblings_of(program, root, group.blocks)
        regions = fused_regions(program, root, group.blocks, len(group.blocks), siblings)
        lanes = machine.lanes(max(b.itemsize for b in group.blocks))
        inside = [b.stores[0].buffer for b in group.blocks]
        roles = tuple([stage_role(b, lanes, inside) for b in group.blocks])
        shared = shared_axes(root, regions)[-_TILED:]
        threads = worth_threads(machine, group.blocks)
        self.stages = FusedStages(roles, regions, tuple(shared), lanes, threads, tuple(siblings))
        self.name = f"fused_{root.name}"
        self.decisions = tuple([*self._tiles(), *self._steps()])
        self.structure = tuple([d.name for d in self.decisions if d.name.startswith(("tile", "rolled"))])

    def _tiles(self) -> list[Decision]:
        root, lanes, out = self.group.anchor, self.stages.lanes, []
        for n, axis in enumerate(self.stages.tiled):
            extent = root.extents[axis]
            if axis is root.spatial[-1]:
                sizes = up_to(extent, lanes, 4 * lanes, 8 * lanes, 16 * lanes, 32 * lanes, 64 * lanes, 1 << 30)
            else:
                sizes = up_to(extent, 1, 2, 4, 8, 16, 32, 64, 128, 256)
            out.append(Decision(f"tile{n}", sizes))
        return out

    def _steps(self) -> list[Decision]:
        out = []
        if any(role.kind == "map" for role in self.stages.roles):
            out.append(Decision("vectors", (1, 2, 4)))
        for n in dict.fromkeys(self.stages.alike):
            role, lanes = self.stages.roles[n], self.stages.lanes
            block = role.block
            if role.kind == "lanes":
                out.append(Decision(f"vectors{n}", up_to(-(-block.extents[block.axes[-1]] // lanes), 1, 2, 4)))
            if role.kind == "tile" and role.vector is not None:
                out.append(Decision(f"vectors{n}", up_to(-(-block.extents[role.vector] // lanes), 1, 2, 4)))
                extent = 1 if role.row is None else block.extents[role.row]
                out.append(Decision(f"rows{n}", up_to(extent, 1, 2, 4, 6, 8, 12)))
        if self.stages.rolling:
            out.append(Decision("rolled", (0, 1)))
        return out

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        root = self.group.anchor
        ends = self.stages.siblings
        rolling = self.stages.rolling if row.get("rolled") else ()
        written = bool(
            FusedCosts(self.stages, self.machine, {k: np.array([v]) for k, v in row.items()}, 1).in_registers[0]
        )
        stages = [
            replace(
                self._stage(n, r, row),
                end=r.block in ends,
                rolls=self.stages.lanes * (r.block in rolling),
                written=written,
            )
            for n, r in zip(self.stages.alike, self.stages.roles, strict=True)
        ]
        tiles = {root.spatial.index(axis): row[f"tile{n}"] for n, axis in enumerate(self.stages.tiled)}
        fused_tiles(sch, stages, tiles, shared=self.stages.parallel)

    def _stage(self, n: int, role: StageRole, row: Mapping[str, int]) -> TileStage:
        block, lanes = role.block, self.stages.lanes
        if role.kind == "plain":
            return TileStage(block.name, "plain")
        if role.kind == "lanes":
            width = min(row[f"vectors{n}"] * lanes, block.extents[block.axes[-1]])
            return TileStage(block.name, "lanes", width=width)
        assert role.vector is not None
        vector = block.axes.index(role.vector)
        if role.kind == "map":
            return TileStage(block.name, "map", vector, row["vectors"] * lanes)
        width = min(row[f"vectors{n}"] * lanes, block.extents[role.vector])
        place = None if role.row is None else block.axes.index(role.row)
        panels = self._panels(role, width)
        unroll = int(unrolled_steps(block, row[f"vectors{n}"] * (1 if place is None else row[f"rows{n}"])))
        return TileStage(block.name, "tile", vector, width, place, row[f"rows{n}"], unroll, packed=panels)

    def _panels(self, role: StageRole, width: int) -> Panels | None:
        use, block = role.packed, role.block
        if use is None or role.vector is None:
            return None
        dims = {axis: d for d, dim in enumerate(use.dims) for axis in dim or {}}
        inner = [dims[v] for v in block.reduce if v in dims]
        others = [d for d in range(len(use.dims)) if d != dims[role.vector] and d not in inner]
        return Panels(use.buffer.name, dims[role.vector], width, inner, others, shared=self.stages.parallel)

    def mask(self, columns: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        return FusedCosts(self.stages, self.machine, columns, rows).mask()

    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        return FusedCosts(self.stages, self.machine, columns, rows).costs()
