"""Reductions whose results are few neighbours, such as sums of images per channel: whole vectors across reduced axes and channels.

In ``sum over a, b of x[a, b, c]`` for 3 channels c, tiles would have vectors of 3 elements. But x lies in memory as one run of
elements, each 16 steps of b are 3 vectors, and each lane belongs to the same channel in all of them. So there are partial results
for some steps of b side by side with the channels, and the partial results are added up at the end:

    for a, b0: for l in 48 (3 vectors): partial[l] += x[a, 16 b0 + l // 3, l % 3]
    for b1 in 16: for c in 3: y[c] += partial[3 b1 + c]

:class:`.MultiLevelTilingRule` offers it beside its tiles.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...schedule import Schedule
from ...tir.expr import Call, Var
from ...tir.walk import pre_order
from ..cost.cost_features import Costs, ceil_div, up_to
from ..cost.loop_nest import swept_bytes
from ..cost.machine_model import MachineModel, worth_threads
from ..cost.walker import Walk, WalkedLoop, most
from ..loop_steps import by_lanes, extent_of, fuse_all, loops_of_axis, loops_within, unroll_factor
from ..program import BlockInfo, Use
from .schedule_rule import Decision, Part


def reduce_short_results(
    sch: Schedule, block: Any, rank: int, joined: int, steps: int, lanes: int, *, unroll: int = 1, shared: bool = False
) -> None:  # fmt: skip
    """Let partial results of some steps, side by side with the results of the last axis, fill vectors.

    There are ``steps`` of them, for all of the last of ``rank`` spatial axes, in vectors of ``lanes`` elements. The innermost ``joined`` loops of the reduction become one first, of which so many steps are taken at a time.
    """
    block = sch.get_block(block) if isinstance(block, str) else block
    loops = list(sch.get_loops(block))
    size = extent_of(sch, loops[rank - 1])
    partial = by_lanes(sch, block, fuse_all(sch, loops[rank:][-joined:]), steps, rank - 1)
    around = None
    if rank > 1:
        outer = list(sch.get_loops(block)[: rank - 1])
        around = fuse_all(sch, outer) if shared else outer[-1]
        if shared:
            sch.parallel(around)
        sch.compute_at(partial, around, preserve_unit_loops=True)
    inside = loops_within(sch, partial, around)
    (step,), (near,) = [loops_of_axis(sch, partial, inside, axis) for axis in (0, rank)]
    reduced = [loop for loop in inside if loop is not step and loop is not near]
    sch.reorder(*reduced, step, near)
    vectors, lane = sch.split(sch.fuse(step, near), [None, lanes])
    init = sch.decompose_reduction(partial, reduced[0])
    unroll_factor(sch, reduced[-1], unroll)
    within = loops_within(sch, init, around)
    for vector, last in ((vectors, lane), (within[-2], within[-1])):
        sch.unroll(vector)
        sch.vectorize(last)
    sch.set_scope(partial, 0, "local")
    sch.transform_layout(partial, ("write", 0), lambda *index: [*index[:-2], index[-2] * size + index[-1]])
    ends = loops_within(sch, block, around)
    near, step = ends[-2:]
    sch.reorder(step, near)
    sch.decompose_reduction(block, step)


@dataclass(frozen=True, eq=False)
class ShortResults:
    """A reduction of which ``moving``, the input that moves with the steps, lies in line along them and few results.

    ``joined``: how many of the innermost axes of the reduction are one run of memory together with the last spatial axis.
    """

    block: BlockInfo
    moving: Use
    joined: int

    @property
    def near(self) -> Var:
        """The axis of the results."""
        return self.block.spatial[-1]

    @property
    def run(self) -> int:
        """The steps that lie in line."""
        return math.prod(self.block.extents[v] for v in self.block.reduce[-self.joined :])

    def period(self, lanes: int) -> int:
        """Returns how many steps are whole vectors."""
        return lanes // math.gcd(self.block.extents[self.near], lanes)


def short_results(block: BlockInfo, lanes: int) -> ShortResults | None:
    """Returns how a reduction to few neighbouring results lies in memory, or None for other blocks.

    Other inputs are the same in all steps, or along the run.
    """
    near = block.spatial[-1] if block.spatial else None
    if near is None or not block.reduce or block.axes != (*block.spatial, *block.reduce) or block.is_joined:
        return None
    size = block.extents[near]
    if not 1 < size < 2 * lanes or size % lanes == 0 or block.stores[0].stride(near) != 1:
        return None
    if any(isinstance(n, Call) and n.op == "tir.if_then_else" for n in pre_order(block.block.body)):
        return None
    last = block.reduce[-1]
    moving = [use for use in block.loads if use.step(last) != 0]
    if len(moving) != 1 or not moving[0].affine or moving[0].stride(near) != 1:
        return None
    joined, step = 0, size
    for axis in reversed(block.reduce):
        still = all(use.step(axis) == 0 for use in block.loads if use is not moving[0])
        if moving[0].stride(axis) != step or not still:
            break
        joined, step = joined + 1, step * block.extents[axis]
    others = [use for use in block.loads if use is not moving[0] and use.step(near) != 0]
    if not joined or any(not use.affine or use.stride(near) != 1 for use in others):
        return None
    found = ShortResults(block, moving[0], joined)
    return found if found.run >= 2 * found.period(lanes) else None


_MOST_VECTORS = 8
"""The vectors of partial results."""


class ShortResultsPart(Part):
    """This part fills vectors with steps and results. Its decisions are ``steps`` of the run at a time, whole vectors, and
    ``unroll`` of the loop over the run."""

    structure = ("steps",)

    def __init__(self, case: ShortResults, epilogue: BlockInfo | None, machine: MachineModel) -> None:
        self.case, self.epilogue, self.machine, block = case, epilogue, machine, case.block
        self.lanes = machine.lanes(block.itemsize)
        self.size = block.extents[case.near]
        self.parallel = worth_threads(machine, [block]) and len(block.spatial) > 1
        self.name = f"short_{block.name}"
        period = case.period(self.lanes)
        counts = [n for n in (1, 2, 4, 8) if n == 1 or n * period * self.size <= _MOST_VECTORS * self.lanes]
        self.decisions = (
            Decision("steps", tuple(n * period for n in counts if n * period <= case.run)),
            Decision("unroll", up_to(max(1, case.run // period), 1, 2, 4)),
        )

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        case, rank = self.case, len(self.case.block.spatial)
        reduce_short_results(
            sch,
            case.block.name,
            rank,
            case.joined,
            row["steps"],
            self.lanes,
            unroll=row["unroll"],
            shared=self.parallel,
        )
        if self.epilogue is not None:
            sch.vectorize(sch.get_loops(self.epilogue.name)[-1])

    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        case, machine, block = self.case, self.machine, self.case.block
        taken, ones, last = columns["steps"] * self.size, np.ones(rows), block.reduce[-1]
        loops = [WalkedLoop(last, taken, written_out=True), WalkedLoop(last, ceil_div(case.run, columns["steps"]))]
        loops += [WalkedLoop(v, ones * block.extents[v]) for v in reversed(block.reduce[: -case.joined])]
        loops += [WalkedLoop(v, ones * block.extents[v]) for v in reversed(block.spatial[:-1])]
        walk = Walk(
            block, machine, loops, rows, vector=last, lanes=self.lanes, packed=case.moving, unroll=columns["unroll"],
            elsewhere=[use for use in block.loads if use is not case.moving],
        )  # fmt: skip
        counts, tiles = walk.counts(), block.spatial_size / self.size
        counts["loop_cycles"] = counts["loop_cycles"] + tiles * (taken + _ENDS)
        moved = float(block.array_bytes)
        return Costs(rows).put(
            **counts,
            **most([swept_bytes(moved, machine, beyond=block.bytes_from_beyond), walk.traffic()]),
            flops=block.flops,
            regions=float(self.parallel),
            lanes_used=float(self.lanes),
            columns=taken / self.lanes,
            unroll=columns["unroll"],
            reduction=float(block.reduce_size),
            column_extent=float(self.size),
            tasks=float(max(1, tiles)) if self.parallel else 1.0,
            epilogue=float(self.epilogue is not None),
        )


_ENDS = 20.0
"""The cycles until the first of the partial results of a row is added to the results."""
