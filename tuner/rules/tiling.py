"""Reductions with a vectorized spatial axis: register tiles, packed operands, blocks of tiles, fused epilogues.

The recipe is the one of Goto and van de Geijn ("Anatomy of high-performance matrix multiplication", TOMS 2008) for any
affine reduction: rows times vector columns of accumulators stay in registers for the whole reduction; an operand that
the vector axis walks is packed into panels; tiles are gone through in blocks. Tiles need not divide the extents.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...schedule import Schedule
from ...tir.expr import Var
from ..features import Costs
from ..machine import MachineModel
from ..nest import Access, Loop, Nest
from ..program import BlockInfo, Program, Use
from ..sketch import Decision, Part
from .base import Group, ScheduleRule, register_rule
from .helpers import ceil_div, fuse_all, loops_of_axis, loops_within, unroll_factor, up_to

__all__ = ["MultiLevelTilingRule", "TilingPart"]


class MultiLevelTilingRule(ScheduleRule):
    """A reduction of affine accesses, with the element-wise stage that consumes its result."""

    name = "multi_level_tiling"
    priority = 10

    def match(self, program: Program, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        if not block.is_reduction or not block.spatial or not block.writes_in_order or len(block.stores) != 1:
            return None
        if block.block.init is None or not all(use.affine for use in block.loads):
            return None
        if not vector_axes(block):
            return None
        epilogue = _epilogue(program, block, free)
        return Group(block, (block,) if epilogue is None else (block, epilogue))

    def parts(self, program: Program, group: Group, machine: MachineModel) -> list[Part]:
        epilogue = group.blocks[1] if len(group.blocks) > 1 else None
        parts: list[Part] = []
        for vector in vector_axes(group.anchor):
            parts.extend(
                TilingPart(group.anchor, epilogue, vector, operand, machine)
                for operand in (None, *_packable(group.anchor, vector))
                if operand is not None or _loads_fit(group.anchor, vector)
            )
        return parts


def vector_axes(block: BlockInfo) -> list[Var]:
    """The spatial axes worth a vector: contiguous in the result, or contiguous after packing and not in the result's
    innermost place; best first. None when every load would have to gather and cannot be packed."""
    out = []
    for axis in reversed(block.spatial):
        if block.extents[axis] < 2:
            continue
        moving = [use for use in block.loads if axis in use.axes()]
        contiguous = [use for use in moving if use.stride(axis) == 1]
        packable = [use for use in moving if use.dim_of(axis) is not None]
        last = axis is block.spatial[-1]
        if (
            last
            and moving
            and (
                len(contiguous) == len(moving)
                or (len(moving) == 1 and _packable(block, axis))
                or not _reads_rows(block)
            )
        ):
            out.append(axis)
        elif not last and len(moving) == 1 and packable and _reuses(block, moving[0]):
            out.append(axis)
    return out[:2]


def _reads_rows(block: BlockInfo) -> bool:
    """Whether a reduction axis walks memory in order for at least a vector's length."""
    return any(use.stride(axis) == 1 and block.extents[axis] >= 16 for use in block.loads for axis in block.reduce)


def _reuses(block: BlockInfo, use: Use) -> bool:
    """Whether the same element is read for several outputs."""
    return any(block.extents[v] > 1 for v in block.spatial if v not in use.axes())


def _packable(block: BlockInfo, vector: Var) -> list[Use]:
    """The one load that moves along ``vector`` and each of whose dimensions is an axis by itself."""
    moving = [use for use in block.loads if vector in use.axes()]
    if len(moving) != 1 or not _reuses(block, moving[0]):
        return []
    use = moving[0]
    plain = all(dim is not None and len(dim) == 1 and set(dim.values()) == {1} for dim in use.dims)
    same = sum(1 for other in block.loads if other.buffer is use.buffer) == 1
    return [use] if plain and same and len(use.axes()) == len(use.dims) else []


def _loads_fit(block: BlockInfo, vector: Var) -> bool:
    """Whether vectors can be loaded without packing."""
    moving = [use for use in block.loads if vector in use.axes()]
    return all(use.stride(vector) == 1 for use in moving) or not _packable(block, vector)


def _epilogue(program: Program, block: BlockInfo, free: Sequence[BlockInfo]) -> BlockInfo | None:
    """The element-wise stage that alone reads the result, element by element."""
    consumers = program.consumers(block)
    if len(consumers) != 1 or program.is_output(block):
        return None
    consumer = consumers[0]
    if consumer.is_reduction or consumer not in free or not consumer.writes_in_order:
        return None
    written = block.stores[0].buffer
    for use in consumer.loads:
        if use.buffer is written and [dict(d or {}) for d in use.dims] != [{v: 1} for v in consumer.spatial]:
            return None
    return consumer


@dataclass(frozen=True)
class _Axes:
    """The roles of the block's axes."""

    vector: Var
    rows: Var | None
    rows2: Var | None
    others: tuple[Var, ...]
    reduce: tuple[Var, ...]


def _roles(block: BlockInfo, vector: Var) -> _Axes:
    moving = [use for use in block.loads if vector in use.axes()]
    candidates = [v for v in reversed(block.spatial) if v is not vector and block.extents[v] > 1]
    # rows that do not move the vector operand reuse its loads; without any, rows only hide the latency
    shared = [v for v in candidates if not any(v in use.axes() for use in moving)]
    ordered = shared + [v for v in candidates if v not in shared]
    rows = ordered[0] if ordered else None
    rows2 = shared[1] if len(shared) > 1 and rows is not None and block.extents[rows] < 16 else None
    others = tuple(v for v in block.spatial if v is not vector and v is not rows and v is not rows2)
    broadcast = [use for use in block.loads if vector not in use.axes()] or list(block.loads)

    def step(axis: Var) -> int:
        return -max((abs(use.stride(axis) or 0) for use in broadcast), default=0)

    return _Axes(vector, rows, rows2, others, tuple(sorted(block.reduce, key=step)))


class TilingPart(Part):
    """One recipe: which axis is the vector, and which operand (if any) is packed into panels.

    Decisions: ``rows`` and ``rows2`` (accumulator rows), ``vectors`` (accumulator columns, in vectors), ``block``
    (row tiles gone through before the next panel), ``outer`` (1: panels outermost), ``unroll`` of the reduction.
    """

    structure = ("rows", "rows2", "vectors")

    def __init__(
        self, block: BlockInfo, epilogue: BlockInfo | None, vector: Var, packed: Use | None, machine: MachineModel
    ) -> None:
        self.block, self.epilogue, self.packed, self.machine = block, epilogue, packed, machine
        self.axes = _roles(block, vector)
        self.lanes = machine.lanes(block.itemsize)
        place = block.spatial.index(vector)
        self.name = f"tile_{block.name}_v{place}" + ("_packed" if packed is not None else "")
        extents = block.extents
        columns = math.ceil(extents[vector] / self.lanes)
        decisions = [Decision("vectors", up_to(columns, 1, 2, 3, 4, 5, 6))]
        if self.axes.rows is not None:
            extent = extents[self.axes.rows]
            decisions.append(Decision("rows", up_to(extent, *range(1, 17))))
            decisions.append(Decision("block", up_to(extent, 4, 8, 16, 32, 64, 1 << 20)))
        if self.axes.rows2 is not None:
            decisions.append(Decision("rows2", up_to(extents[self.axes.rows2], 1, 2, 3, 4)))
        if columns > 1:
            decisions.append(Decision("outer", (0, 1)))
        decisions.append(Decision("unroll", up_to(extents[self.axes.reduce[-1]], 1, 2, 4, 8)))
        self.decisions = tuple(decisions)

    # -- the schedule ----------------------------------------------------------------------------------------------

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        axes, extents = self.axes, self.block.extents
        block = sch.get_block(self.block.name)
        width = min(row["vectors"] * self.lanes, extents[axes.vector])
        if self.packed is not None:
            self._pack(sch, block, width)
        result = sch.cache_write(block, 0, "local")
        place = self.block.spatial.index(axes.vector)
        rank = len(self.block.spatial)
        if place != rank - 1:  # vectors of accumulators lie next to each other
            order = [d for d in range(rank) if d != place] + [place]
            sch.transform_layout(block, ("write", 0), lambda *index: [index[d] for d in order])
        if self.epilogue is not None:
            sch.compute_inline(result)
            result = sch.get_block(self.epilogue.name)
        loop = dict(zip(self.block.axes, sch.get_loops(block), strict=True))
        outer: list[Any] = [loop[v] for v in axes.others]
        inner: list[Any] = []
        tiles: Any = None
        blocks: list[Any] = []
        if axes.rows2 is not None:
            over, within = sch.split(loop[axes.rows2], [None, min(row["rows2"], extents[axes.rows2])])
            outer.append(over)
            inner.append(within)
        panel, lanes = sch.split(loop[axes.vector], [None, width])
        if axes.rows is not None:
            rows = row["rows"]
            count = math.ceil(extents[axes.rows] / rows)
            if row["block"] < count:
                big, tiles, within = sch.split(loop[axes.rows], [None, row["block"], rows])
                blocks = [big]
            else:
                tiles, within = sch.split(loop[axes.rows], [None, rows])
            inner.append(within)
        nest = [panel, *outer, *blocks] if row.get("outer") else [*outer, *blocks, panel]
        tail = [tiles] if tiles is not None else []
        reduce = [loop[v] for v in axes.reduce]
        sch.reorder(*nest, *tail, *reduce, *inner, lanes)
        at = self._parallel(sch, nest, tail)
        sch.reverse_compute_at(result, at)
        init = sch.decompose_reduction(block, reduce[0])
        unroll_factor(sch, reduce[-1], row["unroll"])
        for within in inner:
            sch.unroll(within)
        sch.vectorize(lanes)
        self._finish(sch, init, at)
        self._finish(sch, result, at)

    def _parallel(self, sch: Schedule, order: list[Any], tail: list[Any]) -> Any:
        """Make the outer loops one parallel loop when there are cores for it; returns the innermost outer loop."""
        if self.machine.cores > 1:
            trips = math.prod(sch.get(loop).extent.value for loop in order)
            if trips < 2 * self.machine.cores and tail:
                order, tail = order + tail, []
            fused = fuse_all(sch, order)
            sch.parallel(fused)
            order = [fused]
        return tail[-1] if tail else order[-1]

    def _finish(self, sch: Schedule, block: Any, at: Any) -> None:
        """Unroll the rows of the first or last stage of a tile and make its columns vectors."""
        loops = loops_within(sch, block, at)
        vector = loops_of_axis(sch, block, loops, self.block.spatial.index(self.axes.vector))
        rest = [loop for loop in loops if loop not in vector]
        if vector and loops[-1] is not vector[-1]:
            sch.reorder(*rest, *vector)
        for loop in rest:
            sch.unroll(loop)
        if vector:
            sch.vectorize(vector[-1])

    def _pack(self, sch: Schedule, block: Any, width: int) -> None:
        """Copy the packed operand into panels ``[other axes, panel, reduction axes, column]`` first."""
        assert self.packed is not None
        use, axes = self.packed, self.axes
        vector = use.dim_of(axes.vector)
        assert vector is not None
        others = [d for d in range(len(use.dims)) if d != vector and not set(use.dims[d] or {}) & set(axes.reduce)]
        inner = sorted(
            (d for d in range(len(use.dims)) if d != vector and d not in others),
            key=lambda d: axes.reduce.index(next(iter(use.dims[d] or {}))),
        )

        def panels(*index: Any) -> list[Any]:
            column = index[vector]
            return [*(index[d] for d in others), column // width, *(index[d] for d in inner), column % width]

        copy = sch.cache_read(block, use.buffer.name, "global")
        sch.transform_layout(copy, ("write", 0), panels)
        loops = sch.get_loops(copy)
        over, lanes = sch.split(loops[vector], [None, width])
        sch.reorder(*(loops[d] for d in others), over, *(loops[d] for d in inner), lanes)
        sch.vectorize(lanes)
        if self.machine.cores > 1:
            sch.parallel(fuse_all(sch, [*(loops[d] for d in others), over]))

    # -- its costs -------------------------------------------------------------------------------------------------

    def mask(self, columns: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        """Tiles that fit the registers; of rows that come to the same schedule, one."""
        extents = self.block.extents
        tile = self._tile(columns, rows)
        trips = {axis: ceil_div(extents[axis], tile[axis]) for axis in self.block.spatial}
        keep = self._registers(columns, rows)[1] <= self.machine.registers
        if self.axes.rows is not None:
            count = trips[self.axes.rows]
            first = np.full(rows, float(max(self._candidates("block"))))
            for value in sorted(self._candidates("block"), reverse=True):
                first = np.where(value >= count, value, first)
            keep &= (columns["block"] < count) | (columns["block"] == first)
        if "outer" in columns:
            big, _ = self._block_trips(columns, trips)
            around = big * math.prod(extents[v] for v in self.axes.others)
            around = around * (trips[self.axes.rows2] if self.axes.rows2 is not None else 1.0)
            keep &= (columns["outer"] == 0) | ((trips[self.axes.vector] > 1) & (around > 1))
        return keep

    def _candidates(self, name: str) -> tuple[int, ...]:
        return next(d.candidates for d in self.decisions if d.name == name)

    def _tile(self, columns: Mapping[str, np.ndarray], rows: int) -> dict[Var, np.ndarray]:
        """Elements per axis of the register tile."""
        ones = np.ones(rows)
        tile = {axis: ones for axis in self.block.axes}
        tile[self.axes.vector] = columns["vectors"] * self.lanes
        if self.axes.rows is not None:
            tile[self.axes.rows] = columns["rows"]
        if self.axes.rows2 is not None:
            tile[self.axes.rows2] = columns["rows2"]
        return tile

    def _loads(self, columns: Mapping[str, np.ndarray], rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Vector loads and broadcasts per reduction step of a tile."""
        tile = self._tile(columns, rows)
        vectors, broadcasts = np.zeros(rows), np.zeros(rows)
        for use in self.block.loads:
            axes = use.axes()
            copies = np.prod([np.ones(rows), *(tile[v] for v in axes if v is not self.axes.vector)], axis=0)
            if self.axes.vector not in axes:
                broadcasts = broadcasts + copies
                continue
            strided = use is not self.packed and use.stride(self.axes.vector) != 1
            vectors = vectors + copies * columns["vectors"] * (self.lanes if strided else 1)
        return vectors, broadcasts

    def _registers(self, columns: Mapping[str, np.ndarray], rows: int) -> tuple[np.ndarray, np.ndarray]:
        tile = self._tile(columns, rows)
        accumulators = np.prod([tile[v] for v in self.block.spatial], axis=0) / self.lanes
        vectors, broadcasts = self._loads(columns, rows)
        return accumulators, accumulators + np.minimum(vectors, columns["vectors"]) + np.minimum(broadcasts, 1)

    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        machine, extents, axes = self.machine, self.block.extents, self.axes
        tile = self._tile(columns, rows)
        trips = {axis: ceil_div(extents[axis], tile[axis]) for axis in self.block.spatial}
        tiles = np.prod(list(trips.values()), axis=0)
        waste = np.prod([trips[v] * tile[v] / extents[v] for v in self.block.spatial], axis=0)
        steps = tiles * self.block.reduce_size
        accumulators, registers = self._registers(columns, rows)
        vectors, broadcasts = self._loads(columns, rows)
        operations = max(1.0, self.block.operations / 2)
        latency = np.maximum(1.0, machine.fma_latency * machine.fma_pipes / accumulators)
        step_core = accumulators * operations / machine.fma_pipes * latency
        issue = (accumulators * operations + vectors + broadcasts + 3.0 / columns["unroll"]) / machine.issue_width
        step_load = np.maximum((vectors + broadcasts) / machine.loads_per_cycle, issue)
        spill = 2.0 * np.maximum(registers - machine.registers, 0)
        nest = self._nest(columns, rows, tile, trips)
        unpacked = [u for u in self.block.loads if u is not self.packed and axes.vector in u.axes()]
        conflict = self._conflict(unpacked)
        tasks = self._tasks(columns, rows, trips)
        pack_bytes = 0.0
        if self.packed is not None:
            size = math.prod(extents[v] for v in self.packed.axes()) * self.block.itemsize
            pack_bytes = 2.0 * size * (1.0 if self.packed.stride(axes.vector) == 1 else 4.0)
        epilogue = 0.0 if self.epilogue is None else float(self.epilogue.operations)
        scatter = 1.0 if axes.vector is self.block.spatial[-1] else 2.0 * self.lanes
        rows_tile = accumulators / columns["vectors"]
        return Costs(rows).put(
            core_cycles=steps * step_core,
            load_cycles=steps * step_load,
            store_cycles=tiles * accumulators * scatter,
            loop_cycles=tiles * (20.0 + accumulators * (1.0 + scatter + epilogue / machine.fma_pipes))
            + steps * 0.3 / columns["unroll"],
            spill_cycles=steps * spill,
            l2_bytes=nest.traffic(machine.l1_bytes) * (1.0 + conflict),
            l3_bytes=nest.traffic(machine.l2_bytes),
            memory_bytes=nest.traffic(machine.l3_bytes),
            pack_bytes=pack_bytes,
            extra_cycles=0.0,
            flops=self.block.flops,
            regions=1.0 + (self.packed is not None),
            lanes_used=float(self.lanes),
            rows=rows_tile,
            columns=columns["vectors"],
            accumulators=accumulators,
            registers=registers,
            loads_per_fma=(vectors + broadcasts) / accumulators,
            latency_bound=latency,
            waste=waste,
            tail=trips[axes.vector] * tile[axes.vector] - extents[axes.vector],
            unroll=columns["unroll"],
            body_size=columns["unroll"] * (accumulators + vectors + broadcasts),
            inner_trips=float(extents[axes.reduce[-1]]),
            reduction=float(self.block.reduce_size),
            panel_bytes=columns["vectors"] * machine.vector_bytes * self.block.reduce_size,
            l1_gap=nest.reuse_gap(machine.l1_bytes),
            l2_gap=nest.reuse_gap(machine.l2_bytes),
            conflict=conflict,
            packed=float(self.packed is not None),
            strided=float(any(u.stride(axes.vector) != 1 for u in unpacked)),
            tasks=tasks,
            tasks_per_core=tasks / machine.cores,
            imbalance=ceil_div(tasks, machine.cores) * machine.cores / tasks,
            variant=columns.get("outer", np.zeros(rows)),
            tile_a=columns.get("block", np.zeros(rows)),
            tile_b=columns.get("rows2", np.zeros(rows)),
            row_extent=float(extents[axes.rows] if axes.rows is not None else 1),
            column_extent=float(extents[axes.vector]),
            epilogue=float(self.epilogue is not None),
        )

    def _block_trips(self, columns: Mapping[str, np.ndarray], trips: Mapping[Var, np.ndarray]) -> tuple[Any, Any]:
        """Trips of the loop over blocks of row tiles, and of the loop over the tiles of one."""
        if self.axes.rows is None:
            return 1.0, 1.0
        count = trips[self.axes.rows]
        inside = np.minimum(columns["block"], count)
        return ceil_div(count, inside), inside

    def _tasks(self, columns: Mapping[str, np.ndarray], rows: int, trips: Mapping[Var, np.ndarray]) -> np.ndarray:
        big, inside = self._block_trips(columns, trips)
        outer = [trips[v] for v in self.block.spatial if v is not self.axes.rows]
        tasks = np.prod([np.ones(rows), *outer], axis=0) * big
        return np.where(tasks < 2 * self.machine.cores, tasks * inside, tasks)

    def _nest(
        self,
        columns: Mapping[str, np.ndarray],
        rows: int,
        tile: Mapping[Var, np.ndarray],
        trips: Mapping[Var, np.ndarray],
    ) -> Nest:
        axes, extents = self.axes, self.block.extents
        names = {axis: f"a{n}" for n, axis in enumerate(self.block.axes)}
        ones = np.ones(rows)
        big, inside = self._block_trips(columns, trips)
        loops = [Loop(names[axes.vector], tile[axes.vector])]
        loops += [Loop(names[v], tile[v]) for v in (axes.rows, axes.rows2) if v is not None]
        for axis in reversed(axes.reduce):  # in two steps: a cache line holds some steps of the innermost one
            line = min(extents[axis], max(1, 64 // self.block.itemsize))
            loops += [Loop(names[axis], ones * line), Loop(names[axis], ones * ceil_div(extents[axis], line))]
        if axes.rows is not None:
            loops.append(Loop(names[axes.rows], ones * inside))
        outer = columns.get("outer", np.zeros(rows))
        panels = trips[axes.vector]
        loops.append(Loop(names[axes.vector], np.where(outer > 0, 1.0, panels)))
        if axes.rows is not None:
            loops.append(Loop(names[axes.rows], ones * big))
        loops += [Loop(names[v], trips[v]) for v in (axes.rows2, *reversed(axes.others)) if v is not None]
        loops.append(Loop(names[axes.vector], np.where(outer > 0, panels, 1.0)))
        accesses = [
            Access(
                tuple({names[v]: c for v, c in (dim or {}).items()} for dim in use.dims),
                self.block.itemsize,
                contiguous=use is self.packed,
            )
            for use in self.block.loads
        ]
        store = self.block.stores[0]
        dims = tuple({names[v]: c for v, c in (dim or {}).items()} for dim in store.dims)
        accesses.append(Access(dims, self.block.itemsize, write=True))
        return Nest(loops, accesses, {names[v]: e for v, e in extents.items()}, rows)

    def _conflict(self, unpacked: Sequence[Use]) -> float:
        """How much of the first-level cache's associativity an unpacked operand's stride loses, 0 to 1."""
        worst = 0.0
        for use in unpacked:
            strides = [abs(use.stride(v) or 0) * self.block.itemsize for v in self.axes.reduce]
            stride = min((s for s in strides if s), default=0)
            if stride >= 1024:
                shared = math.gcd(stride, 4096) / 4096
                worst = max(worst, shared)
        return worst


register_rule(MultiLevelTilingRule())
