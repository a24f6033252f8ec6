"""Element-wise stages, and whatever no other rule took: one parallel loop outside, one vector loop inside.

Where the innermost axis jumps through an input that another axis walks in order (a transpose), the two are tiled, so
that the cache lines touched are used up before they are evicted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...schedule import Schedule
from ...tir.expr import Var
from ..features import Costs
from ..machine import MachineModel
from ..program import BlockInfo, Program
from ..sketch import Decision, Part
from .base import Group, ScheduleRule, register_rule
from .helpers import ceil_div, fuse_all, up_to, worth_threads

__all__ = ["ElementwisePart", "ElementwiseRule", "PlainPart"]


class ElementwiseRule(ScheduleRule):
    """Any block by itself; reductions that come here are parallel over their spatial axes and nothing else."""

    name = "elementwise"
    priority = 90

    def match(self, program: Program, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        return Group(block, (block,))

    def parts(self, program: Program, group: Group, machine: MachineModel) -> list[Part]:
        if group.anchor.is_reduction or not group.anchor.spatial:
            return [PlainPart(group.anchor, machine)]
        return [ElementwisePart(group.anchor, machine)]


def _is_flat(block: BlockInfo) -> bool:
    """Whether every access walks memory exactly as the loops do."""
    shape = [block.extents[v] for v in block.spatial]
    for use in (*block.stores, *block.loads):
        if not use.dims:
            continue
        plain = [dict(d) if d is not None else None for d in use.dims] == [{v: 1} for v in block.spatial]
        if not plain or [getattr(e, "value", None) for e in use.buffer.shape] != shape:
            return False
    return True


def _transposed_axis(block: BlockInfo) -> Var | None:
    """The axis that some input walks in order while the innermost axis jumps through it."""
    inner = block.spatial[-1]
    for use in block.loads:
        if use.affine and (use.stride(inner) or 0) > 1:
            for axis in block.spatial[:-1]:
                if use.stride(axis) == 1 and block.extents[axis] > 1:
                    return axis
    return None


class ElementwisePart(Part):
    """Decisions: ``vectors`` per step; for a transpose also ``tile``, the rows of a tile."""

    structure = ("vectors", "tile")

    def __init__(self, block: BlockInfo, machine: MachineModel) -> None:
        self.block, self.machine = block, machine
        self.lanes = machine.lanes(block.itemsize)
        self.parallel = worth_threads(machine, [block])
        # a fused loop is split evenly only: otherwise the axes could not be told apart any more
        self.flat = _is_flat(block) and (block.spatial_size % self.lanes == 0 or len(block.spatial) == 1)
        self.across = None if self.flat else _transposed_axis(block)
        self.name = ("transpose_" if self.across is not None else "map_") + block.name
        self.inner = block.spatial_size if self.flat else block.extents[block.spatial[-1]]
        vectors = up_to(math.ceil(self.inner / self.lanes), 1, 2, 4, 8)
        if self.flat and len(block.spatial) > 1:
            vectors = tuple(v for v in vectors if self.inner % (v * self.lanes) == 0)
        self.decisions = (Decision("vectors", vectors),)
        if self.across is not None:
            self.decisions += (Decision("tile", up_to(block.extents[self.across], 4, 8, 16, 32, 64)),)

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        block = sch.get_block(self.block.name)
        loops = list(sch.get_loops(block))
        width = row["vectors"] * self.lanes
        if self.flat:
            loops = [fuse_all(sch, loops)]
        outer, lanes = sch.split(loops[-1], [None, min(width, self.inner)])
        order: list[Any] = loops[:-1]
        within: list[Any] = []
        if self.across is not None:
            place = self.block.spatial.index(self.across)
            order[place], inside = sch.split(order[place], [None, row["tile"]])
            within = [inside]
        sch.reorder(*order, outer, *within, lanes)
        if self.parallel:
            many = math.prod(sch.get(loop).extent.value for loop in order) >= 2 * self.machine.cores
            sch.parallel(fuse_all(sch, order if many else [*order, outer]))
        sch.vectorize(lanes)

    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        machine, block = self.machine, self.block
        width = columns["vectors"] * self.lanes
        steps = ceil_div(self.inner, width) * (block.spatial_size / self.inner)
        vectors = steps * columns["vectors"]
        strided = [u for u in block.loads if (u.stride(block.spatial[-1]) or 2) > 1]
        loads = len(block.loads) - len(strided) + len(strided) * self.lanes
        moved = sum(b.num_bytes() or 0 for b in {u.buffer for u in (*block.loads, *block.stores)})
        tile = columns.get("tile", np.ones(rows))
        lines = 1.0 + (15.0 / np.minimum(tile, 16.0) if self.across is not None else 15.0 * bool(strided))
        tasks = float(max(1, block.spatial_size // max(1, self.inner)))
        return Costs(rows).put(
            core_cycles=vectors * block.operations / machine.fma_pipes,
            load_cycles=vectors * loads / machine.loads_per_cycle,
            store_cycles=vectors / machine.stores_per_cycle,
            loop_cycles=steps * 1.5,
            l2_bytes=moved * lines,
            l3_bytes=moved * lines if moved > machine.l2_bytes else 0.0,
            memory_bytes=float(moved if moved > machine.l3_bytes else 0),
            flops=block.flops,
            regions=float(self.parallel),
            lanes_used=float(self.lanes),
            columns=columns["vectors"],
            strided=float(len(strided)),
            tile_a=tile,
            tasks=(tasks if tasks >= 2 * machine.cores else np.maximum(1.0, steps)) if self.parallel else 1.0,
            column_extent=float(self.inner),
        )


class PlainPart(Part):
    """The block as it stands, its spatial loops one parallel loop; nothing to decide."""

    decisions = ()

    def __init__(self, block: BlockInfo, machine: MachineModel) -> None:
        self.block, self.machine = block, machine
        self.parallel = worth_threads(machine, [block])
        self.name = f"plain_{block.name}"

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        if self.parallel and self.block.spatial:
            loops = sch.get_loops(sch.get_block(self.block.name))
            spatial = [loop for loop, axis in zip(loops, self.block.axes, strict=True) if axis in self.block.spatial]
            if list(loops[: len(spatial)]) == spatial:
                sch.parallel(fuse_all(sch, spatial))

    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        cycles = self.block.flops * self.machine.fma_latency
        return Costs(rows).put(
            core_cycles=cycles,
            flops=self.block.flops,
            regions=float(self.parallel),
            tasks=float(max(1, self.block.spatial_size)) if self.parallel else 1.0,
        )


register_rule(ElementwiseRule())
