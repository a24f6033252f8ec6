"""This rule takes element-wise stages and all other blocks left over: one parallel loop outside, one vector loop
inside.

Where the innermost axis strides through an input in which another axis is contiguous (a transpose), the two are tiled,
so that all of a cache line is used before it is evicted. The tile may be copied to scratch memory first: rows of the
input that are a large power of two apart share few sets of the cache, while rows of the scratch memory do not. A plain
copy needs no scratch memory: code generation takes it through registers, a square at a time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ...codegen.backend.lane_offsets import NEAR
from ...schedule import Schedule
from ...tir.expr import LT, BufferLoad, Call, IntImm, Var
from ...tir.stmt import BufferStore
from ...tir.walk import pre_order
from ..cost.axis_roles import lane_loads
from ..cost.cost_features import Costs, ceil_div, up_to
from ..cost.machine_model import MachineModel, worth_threads
from ..program import BlockInfo, ProgramInfo, Use
from ..recipes.loop_steps import fuse_all
from ..recipes.sweeps import ElementSweep, sweep_elements
from .schedule_rule import Decision, Group, Part, ScheduleRule, register_rule

_WRITTEN_OUT = 128
"""The number of vectors in a row up to which its steps are written out."""


class ElementwiseRule(ScheduleRule):
    """This rule takes any block by itself. Reductions are only made parallel over their spatial axes."""

    name = "elementwise"
    priority = 90

    def match(self, program: ProgramInfo, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        return Group(block, (block,))

    def parts(self, program: ProgramInfo, group: Group, machine: MachineModel) -> list[Part]:
        if group.anchor.is_reduction or not group.anchor.spatial:
            return [PlainPart(group.anchor, machine)]
        return [ElementwisePart(group.anchor, machine)]


def _is_flat(block: BlockInfo) -> bool:
    """Returns whether every access is contiguous in the order of the loops."""
    for use in (*block.stores, *block.loads):
        if not use.dims:
            continue
        if not use.fills(block.spatial, block.extents):
            return False
    return True


def _transposed(block: BlockInfo) -> tuple[Var, Use] | None:
    """Returns an input through which the innermost axis strides, and the axis that is contiguous in it."""
    inner = block.spatial[-1]
    for use in block.loads:
        if use.affine and (use.stride(inner) or 0) > NEAR:
            for axis in block.spatial[:-1]:
                if use.stride(axis) == 1 and block.extents[axis] > 1:
                    return axis, use
    return None


def _whole_between(block: BlockInfo) -> int:
    """Returns the greatest number that divides all places at which a condition on the innermost axis alone changes.
    Such places are those between the parts of a concatenation. It is 0 where there is no condition, or another one."""
    out, inner = 0, block.spatial[-1]
    for node in pre_order(block.block.body):
        if isinstance(node, Call) and node.op == "tir.if_then_else":
            e = node.args[0]
            if not isinstance(e, LT) or e.a is not inner or not isinstance(e.b, IntImm):
                return 0
            out = math.gcd(out, int(e.b.value))
    return out


class ElementwisePart(Part):
    """This part makes one parallel loop outside and one vector loop inside. Its decision is ``vectors`` per iteration;
    for a transpose also ``tile``, the rows of a tile, and ``staged``, whether it is copied to scratch memory first.

    A row of parts, each of whole vectors, is written out (``apart``), so that no condition is left.
    """

    structure = ("vectors", "tile", "staged")

    def __init__(self, block: BlockInfo, machine: MachineModel) -> None:
        self.block, self.machine = block, machine
        self.lanes = machine.lanes(block.itemsize)
        self.parallel = worth_threads(machine, [block])
        # a fused loop is only split evenly: otherwise the axes could not be recovered from it
        self.flat = _is_flat(block) and (block.spatial_size % self.lanes == 0 or len(block.spatial) == 1)
        found = None if self.flat else _transposed(block)
        self.across: Var | None = None if found is None else found[0]
        self.jumping: Use | None = None if found is None else found[1]
        self.name = ("transpose_" if self.across is not None else "map_") + block.name
        self.copies = isinstance(block.block.body, BufferStore) and isinstance(block.block.body.value, BufferLoad)
        self.conditional = any(isinstance(n, Call) and n.op == "tir.if_then_else" for n in pre_order(block.block.body))
        self.inner = block.spatial_size if self.flat else block.extents[block.spatial[-1]]
        vectors = up_to(math.ceil(self.inner / self.lanes), 1, 2, 4, 8)
        if self.flat and len(block.spatial) > 1:
            vectors = tuple(v for v in vectors if self.inner % (v * self.lanes) == 0)
        between = _whole_between(block)
        whole = tuple(v for v in vectors if between % (v * self.lanes) == 0)
        self.apart = self.conditional and bool(whole) and between > 0 and self.across is None
        self.apart = self.apart and self.inner <= _WRITTEN_OUT * self.lanes and self.inner % self.lanes == 0
        self.decisions = (Decision("vectors", whole if self.apart else vectors),)
        if self.across is not None:
            self.decisions += (Decision("tile", up_to(block.extents[self.across], 4, 8, 16, 32, 64)),)
            if self._may_stage():
                self.decisions += (Decision("staged", (0, 1)),)

    def _may_stage(self) -> bool:
        """Returns whether the input is read once, each dimension by an axis of its own."""
        assert self.jumping is not None
        alone = sum(1 for use in self.block.loads if use.buffer is self.jumping.buffer) == 1
        return alone and all(len(dim or {}) == 1 for dim in self.jumping.dims)

    def mask(self, columns: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        if "staged" not in columns:
            return np.ones(rows, dtype=bool)
        scratch = columns["tile"] * columns["vectors"] * self.machine.vector_bytes
        return np.asarray((columns["staged"] == 0) | (scratch <= self.machine.l1_bytes / 2))

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        staged = self.jumping.buffer.name if row.get("staged") and self.jumping is not None else ""
        sweep = ElementSweep(
            min(row["vectors"] * self.lanes, self.inner), fused=self.flat, staged=staged, tile=row.get("tile", 1),
            across=None if self.across is None else self.block.spatial.index(self.across),
            shared=self.parallel, tasks=2 * self.machine.cores, unrolled=self.apart,
        )  # fmt: skip
        sweep_elements(sch, self.block.name, sweep)

    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        machine, block = self.machine, self.block
        width = columns["vectors"] * self.lanes
        steps = ceil_div(self.inner, width) * (block.spatial_size / self.inner)
        vectors = steps * columns["vectors"]
        inner = block.spatial[-1]
        strided = [u for u in block.loads if (s := u.stride(inner)) is None or s > NEAR]
        near = sum(lane_loads(u, inner, self.lanes) for u in block.loads if u not in strided)
        moved = sum(b.num_bytes() or 0 for b in {u.buffer for u in (*block.loads, *block.stores)})
        tile = columns.get("tile", np.ones(rows))
        staged = columns.get("staged", np.zeros(rows))
        lines = np.maximum(1.0, 16.0 / tile) if self.across is not None else 1.0 + 15.0 * bool(strided)
        gathered, waiting = np.zeros(rows), np.zeros(rows)
        for use in strided:
            crowd = np.minimum(1.0, width / machine.l1_ways)
            share = math.gcd(abs(use.stride(inner) or 4096) * block.itemsize, 4096) / 4096 * crowd
            if self.copies:  # squares go through registers, and no line is needed twice
                gathered = gathered + np.where(staged > 0, 0.45, 0.3)
            else:
                gathered = gathered + np.where(staged > 0, 0.7, 0.5 + 2.5 * share)
            run = np.ceil(tile * block.itemsize / machine.line_bytes)
            wait = np.maximum(0.0, machine.jump_cycles - run * machine.line_bytes / machine.l3_bytes_per_cycle)
            waiting = waiting + float(moved > machine.l2_bytes) * wait * block.spatial_size / tile
        # a row of several steps ends with a branch that is predicted wrongly, one of a single step does not
        each = np.where(
            steps > block.spatial_size / self.inner, 27.0 if self.conditional and not self.apart else 12.0, 4.0
        )
        turns = block.spatial_size / self.inner * each
        tasks = float(max(1, block.spatial_size // max(1, self.inner)))
        return Costs(rows).put(
            core_cycles=vectors * block.operations / machine.fma_pipes,
            load_cycles=vectors * near / machine.loads_per_cycle + vectors * self.lanes * gathered,
            store_cycles=vectors / machine.stores_per_cycle,
            loop_cycles=steps * 1.5 + turns,
            spill_cycles=steps * 10.0 * np.maximum(columns["vectors"] - 4, 0) * (block.operations > 16),
            jump_cycles=waiting,
            l2_bytes=moved * lines,
            l3_bytes=moved * lines if moved > machine.l2_bytes else 0.0,
            memory_bytes=float(moved if moved > machine.l3_bytes else 0),
            flops=block.flops,
            regions=float(self.parallel),
            lanes_used=float(self.lanes),
            columns=columns["vectors"],
            strided=float(len(strided)),
            tile_a=tile,
            packed=staged,
            tasks=(tasks if tasks >= 2 * machine.cores else np.maximum(1.0, steps)) if self.parallel else 1.0,
            column_extent=float(self.inner),
        )


class PlainPart(Part):
    """This part fuses the spatial loops into one parallel loop; it has no decisions."""

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
