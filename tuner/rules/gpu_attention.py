"""Attention on warp groups of GPUs: its costs and its rule. The schedule is ``online_softmax``, one kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ...codegen.machine.target import BARRIER_CYCLES, WARP, WARP_GROUP
from ...schedule import Schedule
from ...schedule.attention_kernel import AttentionTiles, tiles_of_keys, unfit
from ...schedule.primitives.online_softmax import AttentionStages, attention_in
from ...tir.expr.intrinsics.matrix_operations import GROUP_ROWS, OPERANDS, PANEL
from ..cost.cost_features import Columns, Costs, ceil_div
from ..cost.gpu_model import GpuModel
from ..cost.machine_model import MachineModel
from ..program import BlockInfo, ProgramInfo
from .schedule_rule import Decision, Group, Part, ScheduleRule


class GpuAttentionRule(ScheduleRule):
    """This rule takes the stages of attention of float16 or bfloat16, with masks or without, of enough queries."""

    name = "gpu_attention"
    priority = 4
    gpu = True

    def match(self, program: ProgramInfo, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        if not block.stores or not program.is_output(block) and not program.consumers(block):
            return None
        if block.stores[0].buffer.dtype.element not in OPERANDS or block.is_reduction:
            return None
        found = attention_in(program.func, block.name)
        if isinstance(found, str) or not _choices(found):
            return None
        named = {b.name: b for b in free}
        if not all(name in named for name in found.blocks):
            return None
        blocks = tuple([named[name] for name in found.blocks])
        return Group(max(blocks, key=lambda b: b.flops), blocks)

    def parts(self, program: ProgramInfo, group: Group, machine: MachineModel) -> list[Part]:
        if not isinstance(machine, GpuModel) or not machine.warp_groups:
            return []
        found = attention_in(program.func, group.blocks[-1].name)
        assert isinstance(found, AttentionStages)
        return [OnlineSoftmaxPart(found, group, machine)]


_GROUPS, _KEYS = (1, 2, 3), (64, 128)
_FEWEST_QUERIES = 16
"""With fewer queries most of a tile's 64 rows are empty, and blocks too few to read the keys fast."""


def _choices(found: AttentionStages) -> list[AttentionTiles]:
    """Returns the tiles that fit."""
    if found.shape.queries < _FEWEST_QUERIES:
        return []
    every = [AttentionTiles(groups, keys) for groups in _GROUPS for keys in _KEYS]
    return [tiles for tiles in every if not unfit(found.shape, tiles)]


class OnlineSoftmaxPart(Part):
    """This part computes attention in one kernel. Its decisions are the warp ``groups`` of a block and the ``keys`` of a tile."""

    structure = ("groups", "keys")

    def __init__(self, found: AttentionStages, group: Group, machine: GpuModel) -> None:
        self.shape, self.group, self.machine = found.shape, group, machine
        self.result = found.blocks[-1]
        shape = found.shape
        self.ragged = shape.apart or any(n % PANEL for n in (shape.queries, shape.keys, shape.depth, shape.width))
        self.name = f"online_{self.result}"
        fits = _choices(found)
        self.fits = {(tiles.groups, tiles.keys) for tiles in fits}
        self.decisions = (
            Decision("groups", tuple(sorted({tiles.groups for tiles in fits}))),
            Decision("keys", tuple(sorted({tiles.keys for tiles in fits}))),
        )

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        sch.online_softmax(self.result, groups=row["groups"], keys=row["keys"])

    def mask(self, columns: Columns, rows: int) -> np.ndarray:
        fitting = np.array([(g, k) in self.fits for g, k in zip(columns["groups"], columns["keys"], strict=True)], bool)
        fits = self.machine.fits(WARP_GROUP * columns["groups"], self._shared(columns), self._registers(columns))
        return np.asarray(fitting & fits)

    def costs(self, columns: Columns, rows: int) -> Costs:
        shape, machine = self.shape, self.machine
        groups, keys = columns["groups"], columns["keys"]
        heads = math.prod(shape.lead)
        blocks = heads * ceil_div(shape.queries, GROUP_ROWS * groups)
        tiled = np.array(
            [tiles_of_keys(shape, AttentionTiles(int(g), int(k))) for g, k in zip(groups, keys, strict=True)]
        )
        steps = tiled / ceil_div(shape.queries, GROUP_ROWS * groups)
        seen = shape.pairs / (shape.queries * shape.keys)
        features = shape.depth + shape.width
        flops = 2.0 * heads * shape.queries * shape.keys * features * seen
        scores = keys * GROUP_ROWS / WARP_GROUP
        special = 2.0 * scores  # a power takes as long as two other instructions
        instructions = (
            (10.5 if shape.scored else 4.5) * scores
            + special
            + GROUP_ROWS * shape.width / WARP_GROUP
            + keys * features / 512 / groups
            + 100.0
        )
        warps = 4.0 * groups
        tile = 2.0 * keys * features
        matrix = 2.0 * GROUP_ROWS * groups * keys * features / machine.matrix_flops
        busy = np.maximum(matrix, instructions * warps / 4)
        moved = blocks * (steps * tile + 4.0 * GROUP_ROWS * groups * shape.depth)
        return machine.costs(
            rows, flops=flops, issue_slots=blocks * warps * steps * instructions, matrix_flops=flops,
            special_lanes=blocks * steps * groups * GROUP_ROWS * keys,
            shared_wavefronts=blocks * steps * (tile / 128 + groups * tile / 256), l2_bytes=moved,
            memory_bytes=machine.memory_bytes(self._touched(), moved, blocks), blocks=blocks,
            threads=WARP_GROUP * groups, registers=self._registers(columns), shared_bytes=self._shared(columns),
            chain_cycles=steps * (busy + matrix / groups + 2 * BARRIER_CYCLES) + 3000.0, coalescing=1.0, versions=2.0,
            rows=groups, columns=keys / WARP, steps=steps, reduction=float(shape.keys), row_extent=float(heads * shape.queries),
            column_extent=float(shape.width), variant=6.0,
        )  # fmt: skip

    def _touched(self) -> float:
        shape = self.shape
        rows = shape.queries * (shape.depth + shape.width) + shape.keys * (shape.depth + shape.width)
        return 2.0 * math.prod(shape.lead) * rows

    def _shared(self, columns: Columns) -> np.ndarray:
        shape = self.shape
        depth, width = (-(-n // PANEL) * PANEL for n in (shape.depth, shape.width))
        queries = GROUP_ROWS * columns["groups"]
        whole = (shape.queries % queries == 0) & (width == shape.width) & (not shape.apart)
        operands = 2.0 * (queries * depth + 2 * columns["keys"] * (depth + width))
        return np.asarray(operands + np.where(whole, 0.0, 2.0 * queries * width))

    def _registers(self, columns: Columns) -> np.ndarray:
        shape = self.shape
        scores = columns["keys"] * GROUP_ROWS / WARP_GROUP
        places = 56.0 + 44.0 * (shape.scored or self.ragged)  # conditions of copies and places of masks
        return np.asarray(1.5 * scores + GROUP_ROWS * -(-shape.width // PANEL) * PANEL / WARP_GROUP + places)
