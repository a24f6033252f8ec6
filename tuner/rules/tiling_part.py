"""This recipe schedules a reduction with register tiles, packed operands, blocks of tiles, and a fused epilogue.

It follows Goto and van de Geijn ("Anatomy of high-performance matrix multiplication", TOMS 2008) for any affine
reduction: rows times vector columns of accumulators stay in registers for the whole reduction; an operand that depends
on the vector axis is packed into panels; tiles are computed in blocks. Tiles need not divide the extents.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...schedule import Schedule
from ...tir.dtype import bytes_of
from ...tir.expr import Var
from ..cost.cost_features import Costs
from ..cost.machine_model import MachineModel, worth_threads
from ..cost.tiling_costs import TilingCosts
from ..program import BlockInfo, Use
from ..recipes.loop_steps import fuse_all, loops_of_axis, loops_within, unroll_factor
from ..sketch_part import Decision, Part, up_to


@dataclass(frozen=True)
class TileAxes:
    """The roles of the block's axes."""

    vector: Var
    rows: Var | None
    rows2: Var | None
    others: tuple[Var, ...]
    reduce: tuple[Var, ...]


def tile_axes(block: BlockInfo, vector: Var) -> TileAxes:
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

    return TileAxes(vector, rows, rows2, others, tuple(sorted(block.reduce, key=step)))


class TilingPart(Part):
    """A recipe is given by the vector axis and the operand (if any) that is packed into panels.

    Decisions: ``rows`` and ``rows2`` (accumulator rows), ``vectors`` (accumulator columns, in vectors), ``block`` (row
    tiles computed before the next panel), ``outer`` (1: panels outermost), ``unroll`` of the reduction, and for a
    packed operand ``slice``: 0 to pack all of it first, else how many panels are packed at a time, to be used by all
    rows while they are in the cache. Where an operand is larger than half of the second-level cache, also ``ahead``:
    while a tile passes over a slice the next tile's rows are fetched; with panels outermost, while a panel is used the
    next panel.
    """

    structure = ("rows", "rows2", "vectors")

    def __init__(
        self, block: BlockInfo, epilogue: BlockInfo | None, vector: Var, packed: Use | None, machine: MachineModel
    ) -> None:
        self.block, self.epilogue, self.packed, self.machine = block, epilogue, packed, machine
        self.axes = tile_axes(block, vector)
        self.parallel = worth_threads(machine, [block])
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
            if packed is not None and self.axes.rows is not None and self.axes.rows2 is None and not self._others():
                decisions.append(Decision("slice", up_to(columns, 0, 1, 2, 4, 8)))
        if any(size > machine.l2_bytes / 2 for size in self._fetchable([d.name for d in decisions]).values()):
            decisions.append(Decision("ahead", (0, 1)))
        unroll = up_to(extents[self.axes.reduce[-1]], 1, 2, 4, 8)
        if len(self.axes.reduce) > 1 and unroll[-1] < block.reduce_size <= 25:  # a window: all of it
            unroll += (block.reduce_size,)
        decisions.append(Decision("unroll", unroll))
        self.decisions = tuple(decisions)

    def _fetchable(self, decisions: Collection[str]) -> dict[str, int]:
        """Returns the bytes of what may be fetched ahead: in slices, of the operands whose rows pass by; else of the
        packed one."""
        out = {}
        if "slice" in decisions:
            out["slice"] = sum(self.bytes_of(use) for use in self.passing)
        if "outer" in decisions and self.packed is not None and not self.parallel:
            out["outer"] = self.bytes_of(self.packed)
        return out

    @property
    def passing(self) -> list[Use]:
        """Returns the loads that do not depend on the vector axis."""
        return [use for use in self.block.loads if self.axes.vector not in use.axes()]

    def bytes_of(self, use: Use) -> int:
        """Bytes of the elements that a load goes through."""
        return bytes_of(use.buffer.dtype) * math.prod(self.block.extents[v] for v in use.axes())

    # -- the schedule ----------------------------------------------------------------------------------------------

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        axes, extents = self.axes, self.block.extents
        block = sch.get_block(self.block.name)
        width = min(row["vectors"] * self.lanes, extents[axes.vector])
        slices = row.get("slice", 0)
        copy = self._pack(sch, block, width, whole=not slices) if self.packed is not None else None
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
        tail = [tiles] if tiles is not None else []
        reduce = [loop[v] for v in axes.reduce]
        if slices:
            part, panel = sch.split(panel, [None, slices])
            nest, tail = [*outer, part], [*tail, panel]
        else:
            nest = [panel, *outer, *blocks] if row.get("outer") else [*outer, *blocks, panel]
        sch.reorder(*nest, *tail, *reduce, *inner, lanes)
        if row.get("ahead") and slices:
            sch.annotate(tiles, "pragma_prefetch_next", [use.buffer.name for use in self.passing])
        elif row.get("ahead"):
            sch.annotate(panel, "pragma_prefetch_next", [sch.get(copy).writes[0].buffer.name])
        if slices:
            at = panel
            self._pack_slice(sch, copy, self._share(sch, nest), width)
        else:
            at = self._parallel(sch, nest, tail)
        sch.reverse_compute_at(result, at)
        init = sch.decompose_reduction(block, reduce[0])
        for loop_of in reduce if row["unroll"] > extents[axes.reduce[-1]] else reduce[-1:]:
            unroll_factor(sch, loop_of, row["unroll"])
        for within in inner:
            sch.unroll(within)
        sch.vectorize(lanes)
        self._finish(sch, init, at)
        self._finish(sch, result, at)

    def _parallel(self, sch: Schedule, order: list[Any], tail: list[Any]) -> Any:
        """Make the outer loops one parallel loop when there are cores for it; returns the innermost outer loop."""
        if self.parallel:
            trips = math.prod(sch.get(loop).extent.value for loop in order)
            if trips < 2 * self.machine.cores and tail:
                order, tail = order + tail, []
            order = [self._share(sch, order)]
        return tail[-1] if tail else order[-1]

    def _share(self, sch: Schedule, order: list[Any]) -> Any:
        """Returns one loop in place of several, shared by the threads where that is worth it."""
        if not self.parallel:
            return order[-1]
        fused = fuse_all(sch, order)
        sch.parallel(fused)
        return fused

    def _others(self) -> bool:
        """Returns whether there are axes besides the tile's and the reduction's."""
        return any(self.block.extents[v] > 1 for v in self.axes.others)

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

    def _pack(self, sch: Schedule, block: Any, width: int, whole: bool) -> Any:
        """Copy the packed operand into panels ``[other axes, panel, reduction axes, column]``; ``whole``: all of it, before
        anything else."""
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

        copy = sch.cache_read(block, use.buffer.name, "global", consumer_blocks=[block])
        sch.transform_layout(copy, ("write", 0), panels, leave_padding=True)
        if not whole:
            return copy
        loops = sch.get_loops(copy)
        over, lanes = sch.split(loops[vector], [None, width])
        sch.reorder(*(loops[d] for d in others), over, *(loops[d] for d in inner), lanes)
        sch.vectorize(lanes)
        if self.parallel:
            sch.parallel(fuse_all(sch, [*(loops[d] for d in others), over]))
        return copy

    def _pack_slice(self, sch: Schedule, copy: Any, at: Any, width: int) -> None:
        """Make the copy part of the loop over slices; its rows are read in their order and cut into panels."""
        assert self.packed is not None
        vector = self.packed.dim_of(self.axes.vector)
        assert vector is not None
        sch.compute_at(copy, at, preserve_unit_loops=True)
        loops = sch.get_loops(copy)[-len(self.packed.dims) :]
        over, lanes = sch.split(loops[vector], [None, width])
        if vector != len(loops) - 1:
            sch.reorder(over, *(loop for loop in loops if loop is not loops[vector]), lanes)
        sch.vectorize(lanes)

    # -- its costs -------------------------------------------------------------------------------------------------

    def mask(self, columns: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        return TilingCosts(self, columns, rows).mask()

    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        return TilingCosts(self, columns, rows).costs()
