"""Attention over a cache (:func:`tilewright.te.ops.attention_cached`): its schedule, its costs and its rule.

All stages are computed for some rows of a group of heads that share keys and values::

    for g (groups; parallel), i0, h0 (blocks of queries and heads):
        for j0 (panels of positions):
            K' = the keys of a panel, transposed                 # ``ahead``: all of them, before everything else
            acc[h, i, j] = 0                                     # in registers: heads × queries × vectors of positions
            for k: acc[h, i, j] += Q[h, i, k] * K'[k, j]
            scores[h, i, j] = acc[h, i, j]                       # of all positions, in the first or second-level cache
        softmax of the scores, row by row
        for e0 (vectors of the result):
            acc[h, i, e] = 0
            for m: acc[h, i, e] += weights[h, i, m] * V[m, e]
            result[h, i, e] = acc[h, i, e]

So the cache is read once for each block of queries, and the scores of a block are all that is stored. Where there is one
block, as when one word is decoded, the keys of a panel are used where they were transposed, in the first-level cache; those of
the next panel are fetched meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...schedule import Schedule
from ...tir.annotations import CACHED
from ...tir.stmt import Buffer
from ..cost.cost_features import Costs, ceil_div, up_to
from ..cost.machine_model import MachineModel, worth_threads
from ..cost.walker import chain_factor
from ..loop_steps import Panels, loops_within, pack, unroll_factor
from ..program import BlockInfo, ProgramInfo
from .schedule_rule import Decision, Group, Part, ScheduleRule
from .sweeps import RowSweep, sweep_rows


class CachedAttentionRule(ScheduleRule):
    """This rule takes the stages of :func:`tilewright.te.ops.attention_cached` from the scores to the sums of values."""

    name = "cached_attention"
    priority = 4
    gpu = False

    def match(self, program: ProgramInfo, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        if block.block.annotations.get(CACHED) != "scores" or program.is_output(block) or not _keys(block):
            return None
        members, ends = [block], []
        for one in members:  # grows
            for reader in program.consumers(one):
                if reader.block.annotations.get(CACHED) == "result":
                    ends.append(reader)
                elif reader not in members:
                    members.append(reader)
        stages = program.ordered(members)
        if len(set(ends)) != 1 or any(b not in free or program.is_output(b) for b in stages) or ends[0] not in free:
            return None
        return Group(block, (*stages, ends[0]))

    def parts(self, program: ProgramInfo, group: Group, machine: MachineModel) -> list[Part]:
        return [CachedAttentionPart(group.blocks, machine)]


def _keys(scores: BlockInfo) -> list[Buffer]:
    """Returns the operand of the scores that depends on the positions; none where there is one position."""
    return [use.buffer for use in scores.loads if scores.spatial[-1] in use.axes()]


class CachedAttentionPart(Part):
    """This part has the decisions ``heads``, ``queries``, ``vectors``, ``columns`` and ``ahead``.

    A tile of scores has ``heads`` × ``queries`` × ``vectors`` of positions, one of the result ``columns`` vectors in their
    place. ``ahead``: whether all keys are transposed before everything else.
    """

    structure = ("heads", "queries", "vectors")

    def __init__(self, blocks: Sequence[BlockInfo], machine: MachineModel) -> None:
        self.scores, *self.softmax, self.result = blocks
        (self.keys,), self.machine = _keys(self.scores), machine
        self.name = f"cached_attention_{self.result.name}"
        self.parallel = worth_threads(machine, [self.scores, self.result])
        _, heads, queries, width = [self.result.extents[v] for v in self.result.spatial]
        self.lanes = machine.lanes(4)
        self.decisions = (
            Decision("heads", tuple([n for n in range(1, 9) if heads % n == 0])),
            Decision("queries", up_to(queries, 1, 2, 4, 8)),
            Decision("vectors", (1, 2, 4)),
            Decision("columns", up_to(-(-width // self.lanes), 1, 2, 4)),
            Decision("ahead", (0, 1) if queries > 1 else (0,)),
        )

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        lanes, panel = self.lanes, row["vectors"] * self.lanes
        scores, result = sch.get_block(self.scores.name), sch.get_block(self.result.name)
        tile = sch.cache_write(scores, 0, "local")
        panels = Panels(self.keys.name, 1, panel, (2,), (0,), shared=self.parallel)
        keys = pack(sch, scores, panels, whole=bool(row["ahead"]))
        sums = sch.cache_write(result, 0, "local")
        g, h, i, e, m = sch.get_loops(result)
        h0, h1 = sch.split(h, [None, row["heads"]])
        i0, i1 = sch.split(i, [None, row["queries"]])
        e0, e1 = sch.split(e, [None, row["columns"] * lanes])
        sch.reorder(g, i0, h0, e0, m, h1, i1, e1)
        if self.parallel:
            sch.parallel(g)
        sch.reverse_compute_at(sums, e0, preserve_unit_loops=True)
        self._finish_sums(sch, result, sums, (h1, i1, e1), m, e0)
        softmax = RowSweep(lanes, rank=3, accumulators=4, vectors=4)
        sweep_rows(sch, [b.name for b in self.softmax], softmax, at=h0)
        for stage in (tile, scores):
            sch.compute_at(stage, h0, preserve_unit_loops=True)
        h, i, j, k = loops_within(sch, scores, h0)[1:]
        j0, j1 = sch.split(j, [None, panel])
        sch.reorder(j0, k, h, i, j1)
        sch.reverse_compute_at(tile, j0, preserve_unit_loops=True)
        if not row["ahead"]:
            sch.compute_at(keys, j0, preserve_unit_loops=True)
            *_, position, step = sch.get_loops(keys)
            sch.reorder(step, position)
            sch.vectorize(position)
            sch.annotate(j0, "pragma_prefetch_next", [self.keys.name])
        self._finish_sums(sch, scores, tile, (h, i, j1), k, j0)

    def _finish_sums(self, sch: Schedule, block: Any, store: Any, inside: Sequence[Any], over: Any, at: Any) -> None:
        """Make vectors of a tile of sums over the loop ``over``. ``store`` takes them to memory."""
        init = sch.decompose_reduction(block, over)
        unroll_factor(sch, over, 4)
        for loop in inside[:-1]:
            sch.unroll(loop)
        sch.vectorize(inside[-1])
        for part in (init, store):
            *outer, last = loops_within(sch, part, at)
            for loop in outer:
                sch.unroll(loop)
            sch.vectorize(last)

    def mask(self, columns: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        return np.asarray(self._registers(columns) <= self.machine.registers)

    def _registers(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns the vectors in registers: a tile's sums, a row of its vectors, and a number of a query."""
        tile, wide = columns["heads"] * columns["queries"], np.maximum(columns["vectors"], columns["columns"])
        return np.asarray((tile + 1) * wide + 1)

    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        machine, lanes = self.machine, self.lanes
        groups, heads, queries, width = [self.result.extents[v] for v in self.result.spatial]
        positions, depth = self.result.extents[self.result.reduce[0]], self.scores.extents[self.scores.reduce[0]]
        tile = columns["heads"] * columns["queries"]
        blocks = ceil_div(queries, columns["queries"]) * heads / columns["heads"]
        panels, parts = ceil_div(positions, columns["vectors"] * lanes), ceil_div(width, columns["columns"] * lanes)
        steps = [groups * blocks * panels * depth, groups * blocks * parts * positions]
        wide = [columns["vectors"], columns["columns"]]
        lengths = [depth * (tile * wide[0] + tile + wide[0]), positions * (tile * wide[1] + tile + wide[1])]
        chains = [chain_factor(tile * w, length, machine) for w, length in zip(wide, lengths, strict=True)]
        transposed = float(groups * positions * depth) * np.where(columns["ahead"] > 0, 1.0, blocks)
        softmax = float(groups * heads * queries * positions) / lanes
        read = float(groups * positions) * (depth + width) * self.keys.dtype.bytes
        return Costs(rows).put(
            core_cycles=sum(s * tile * w * c for s, w, c in zip(steps, wide, chains, strict=True)) / machine.fma_pipes
            + transposed * _TRANSPOSED + softmax * _SOFTMAX,
            load_cycles=sum(s * (tile + w) for s, w in zip(steps, wide, strict=True)) / machine.loads_per_cycle,
            store_cycles=transposed / lanes + 3.0 * softmax,
            loop_cycles=20.0 * groups * blocks * (panels + parts),
            l2_bytes=read * blocks + 8.0 * softmax * lanes,
            l3_bytes=read * np.where(read / groups > machine.l2_bytes, blocks, 1.0),
            memory_bytes=read * float(read > machine.l3_bytes),
            flops=self.scores.flops + self.result.flops,
            regions=float(self.parallel), tasks=float(groups) if self.parallel else 1.0,
            lanes_used=float(lanes), rows=tile, columns=columns["vectors"], accumulators=tile * columns["vectors"],
            registers=self._registers(columns), reduction=float(depth), packed=1.0, variant=columns["ahead"],
        )  # fmt: skip


_TRANSPOSED = 0.35
"""Cycles per element that is transposed in registers."""

_SOFTMAX = 14.0
"""Cycles of a vector of scores in the softmax, most of them for powers of e."""
