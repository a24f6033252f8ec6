"""Products with weights of a few bits in groups (:func:`tilewright.te.ops.dense_packed_nbits`): schedule, costs and rule.

A tile of the result has some rows, and some panels of 16 columns. For each part of the sum the tile's dot products are added up
in registers, from codes that are unpacked there: by ``vpdpbusd`` where they are integers, else by multiplication of floats.
Then they are scaled and added to the tile's sums, which are in registers over the whole row::

    for panels, rows:                                # tiles of the result
        panel[...] = 0                               # in registers
        for b in range(parts):
            dot[...] = 0                             # in registers
            for c in range(quads), h in range(8 // bits):
                for p in tile:
                    code = (codes[p, b, c] >> h * bits) & mask    # 64 bytes at once, in registers
                    for i in tile: dot[i, p] += data[i, b, c, h] * code
            for i, p in tile: panel[i, p] += (dot[i, p] - zero * sums[i, b]) * scales[p, b] * factors[i, b]
        for i, p in tile: result[i, p] = panel[i, p] # and what follows the product

Where many rows use the same codes, those of the panels are unpacked to memory before the rows (``ahead``). Integers need
``vpdpbusd``; on processors without it graphs multiply floats instead (``packed_nbits`` of :class:`~tilewright.graph.Services`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...schedule import Schedule
from ...schedule.intrin import VNNI_DOT_16x4_SWAPPED_INTRIN
from ...tir.annotations import NBITS
from ..cost.cost_features import Costs, ceil_div, up_to
from ..cost.machine_model import MachineModel, worth_threads
from ..cost.walker import chain_factor
from ..loop_steps import fuse_all, loops_within, unroll_factor
from ..program import BlockInfo, ProgramInfo
from .schedule_rule import Decision, Group, Part, ScheduleRule

_UNPACKING, _FLOAT_OF_A_CODE, _SCALING = 2.0, 2.5, 4.0
"""Instructions of a vector: a shift and a mask of codes; a product of floats with the conversion of a code; the difference, the
conversion, the factor and the sum that a part's dot products need."""


@dataclass(frozen=True)
class NbitsStages:
    """The stages of a product with weights of a few bits. ``code`` unpacks codes, where several are in a byte; ``last``
    takes the results from their panels."""

    code: BlockInfo | None
    dot: BlockInfo
    panel: BlockInfo
    last: BlockInfo

    @property
    def blocks(self) -> tuple[BlockInfo, ...]:
        """Returns the stages in order."""
        return tuple([b for b in (self.code, self.dot, self.panel, self.last) if b is not None])

    @property
    def whole(self) -> bool:
        """Returns whether the sums over a group are integers."""
        return self.dot.stores[0].buffer.dtype == "int32"

    @property
    def sizes(self) -> tuple[int, int, int, int, int]:
        """Returns the numbers of rows, panels, parts, bytes of a column in a part, and codes in a byte."""
        *lead, panels, parts, _ = [self.dot.extents[v] for v in self.dot.spatial]
        quads, codes, width = [self.dot.extents[v] for v in self.dot.reduce]
        return math.prod(lead), panels, parts, quads * width, codes


def nbits_stages(program: ProgramInfo, dot: BlockInfo) -> NbitsStages | None:
    """Returns the stages around ``dot``, or None when it is no such sum, or when several stages take its results."""
    if dot.block.annotations.get(NBITS) != "dot":
        return None
    codes = [b for b in program.producers(dot) if b.block.annotations.get(NBITS) == "code"]
    panels = program.consumers(dot)
    if len(panels) != 1 or panels[0].block.annotations.get(NBITS) != "panel" or program.is_output(dot):
        return None
    lasts = program.consumers(panels[0])
    if len(lasts) != 1 or program.is_output(panels[0]) or any(len(program.consumers(c)) > 1 for c in codes):
        return None
    last = lasts[0]
    if last.is_reduction or not last.writes_in_order or len(last.spatial) != len(panels[0].spatial) - 1:
        return None
    return NbitsStages(codes[0] if codes else None, dot, panels[0], last)


def multiplies_codes(machine: MachineModel) -> bool:
    """Returns whether the machine multiplies codes by int8 with the instruction for 16 columns and four steps."""
    form = machine.dot("int8", "uint8")
    return form is not None and form.intrinsic == VNNI_DOT_16x4_SWAPPED_INTRIN


class NbitsRule(ScheduleRule):
    """This rule takes the stages that :func:`tilewright.te.ops.dense_packed_nbits` makes, with the stage that takes its result."""

    name = "nbits"
    priority = 4
    gpu = False

    def match(self, program: ProgramInfo, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        stages = nbits_stages(program, block)
        return None if stages is None else Group(block, stages.blocks)

    def parts(self, program: ProgramInfo, group: Group, machine: MachineModel) -> list[Part]:
        stages = nbits_stages(program, group.anchor)
        if stages is None or (stages.whole and not multiplies_codes(machine)):
            return []
        return [NbitsPart(stages, machine)]


class NbitsPart(Part):
    """This part has the decisions ``rows`` and ``panels`` of a tile, ``unroll``, and ``ahead``.

    ``unroll``: how many quads of a part stand in one iteration. ``ahead``: whether the codes of the panels are unpacked to
    memory before the rows."""

    structure = ("rows", "panels")

    def __init__(self, stages: NbitsStages, machine: MachineModel) -> None:
        self.stages, self.machine = stages, machine
        self.name = f"nbits_{stages.dot.name}"
        self.parallel = worth_threads(machine, [stages.dot])
        panels = stages.sizes[1]
        height = stages.last.extents[stages.last.spatial[-2]] if len(stages.last.spatial) > 1 else 1
        steps = stages.dot.extents[stages.dot.reduce[0]]
        self.decisions = (
            Decision("rows", up_to(height, *range(1, 13))),
            Decision("panels", tuple([v for v in (1, 2, 4) if panels % v == 0])),
            Decision("unroll", up_to(steps, 1, 2, 4, 8, 16)),
            Decision("ahead", (0, 1) if stages.code is not None and height > 1 else (0,)),
        )

    def apply(self, sch: Schedule, row: Mapping[str, int]) -> None:
        stages, lanes = self.stages, self._lanes
        dot, panel, last = [sch.get_block(b.name) for b in (stages.dot, stages.panel, stages.last)]
        *lead, column = sch.get_loops(last)
        over, vector, lane = sch.split(column, [None, row["panels"], lanes])
        inside = []
        if lead:
            tiles, within = sch.split(lead.pop(), [None, row["rows"]])
            lead.append(tiles)
            inside.append(within)
        sch.reorder(over, *lead, *inside, vector, lane)
        ahead = bool(row["ahead"])
        if self.parallel and not ahead:
            over, lead = fuse_all(sch, [over, *lead]), []
        if self.parallel:
            sch.parallel(over)
        at = lead[-1] if lead else over
        sch.compute_at(panel, at, preserve_unit_loops=True)
        sch.set_scope(panel, 0, "local")
        *rows, p, columns, b = loops_within(sch, panel, at)
        sch.reorder(b, *rows, p, columns)
        sch.compute_at(dot, b, preserve_unit_loops=True)
        sch.set_scope(dot, 0, "local")
        *rows, p, g, columns, c, h, w = loops_within(sch, dot, b)
        sch.reorder(g, c, h, p, *rows, columns, w)
        if stages.code is not None:
            code = sch.get_block(stages.code.name)
            around = over if ahead else p
            sch.compute_at(code, around, preserve_unit_loops=True)
            *outer, first, second = loops_within(sch, code, around)
            sch.vectorize(sch.fuse(first, second))
            if ahead:
                sch.unroll(outer[-1])
            else:
                sch.set_scope(code, 0, "local")
                for loop in outer:
                    sch.unroll(loop)
        parts = [sch.decompose_reduction(dot, c), sch.decompose_reduction(panel, b), panel]
        for part, place in zip(parts, (b, at, b), strict=True):
            *outer, lane_loop = loops_within(sch, part, place)
            for loop in outer:
                sch.unroll(loop)
            sch.vectorize(lane_loop)
        for loop in (*inside, vector, h, p, *rows):
            sch.unroll(loop)
        unroll_factor(sch, c, row["unroll"])
        sch.vectorize(lane)
        if stages.whole:
            sch.tensorize(columns, VNNI_DOT_16x4_SWAPPED_INTRIN)
        else:
            sch.reorder(w, columns)
            sch.vectorize(columns)

    @property
    def _lanes(self) -> int:
        return self.stages.dot.extents[self.stages.dot.spatial[-1]]

    @property
    def _wide(self) -> int:
        """Returns the vectors that the columns of a panel take."""
        return max(1, self._lanes * 4 // self.machine.vector_bytes)

    def mask(self, columns: Mapping[str, np.ndarray], rows: int) -> np.ndarray:
        return np.asarray(self._registers(columns) <= self.machine.registers)

    def _registers(self, columns: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns the vectors in registers: dot products and sums of a tile, its codes, and a number of the data."""
        return (2 * columns["rows"] * columns["panels"] + columns["panels"] + 1) * self._wide

    def costs(self, columns: Mapping[str, np.ndarray], rows: int) -> Costs:
        machine, stages, wide = self.machine, self.stages, self._wide
        height, panels, parts, bytes_, codes = stages.sizes
        length = bytes_ * codes
        bands = ceil_div(height, columns["rows"])
        tile = columns["rows"] * columns["panels"] * wide
        tiles = bands * panels / columns["panels"]
        ahead = columns["ahead"] > 0
        steps = length / (4 if stages.whole else 1)
        arithmetic = steps * (1.0 if stages.whole else _FLOAT_OF_A_CODE)
        latency = chain_factor(tile, steps * (2.0 * tile + columns["rows"] + columns["panels"] * wide), machine)
        unpacked = panels * parts * length * wide / 4 * (_UNPACKING if codes > 1 else 0.0)  # vectors of 64 codes
        unpacking = unpacked * np.where(ahead, 4.0, bands) / (1.0 if stages.whole else 4.0)
        scaling = _SCALING * tiles * parts * tile
        item = 1 if stages.whole else 4
        weights = panels * parts * (bytes_ * self._lanes + 4.0 * self._lanes)
        data = float(height * parts * length * item)
        panel_bytes = columns["panels"] * parts * length * self._lanes * np.where(ahead, 1.0, 1.0 / codes)
        again = np.where(panel_bytes > machine.l1_bytes / 2, bands, 1.0) * panels / columns["panels"] * panel_bytes
        return Costs(rows).put(
            core_cycles=(tiles * parts * tile * arithmetic * latency + scaling + unpacking) / machine.fma_pipes,
            load_cycles=tiles * parts * steps * (columns["rows"] + columns["panels"] * wide) / machine.loads_per_cycle,
            store_cycles=tiles * tile + np.where(ahead, unpacked / 2, 0.0),
            loop_cycles=tiles * (20.0 + parts * (2.0 + steps / columns["unroll"] / codes)),
            l2_bytes=again + data * tiles / bands,
            l3_bytes=weights + data * (data > machine.l2_bytes) * panels / columns["panels"],
            memory_bytes=weights * float(weights > machine.l3_bytes),
            flops=stages.dot.flops,
            regions=float(self.parallel),
            lanes_used=float(self._lanes), rows=columns["rows"], columns=columns["panels"], accumulators=tile,
            registers=self._registers(columns), loads_per_fma=(columns["rows"] + columns["panels"]) / tile,
            latency_bound=latency, unroll=columns["unroll"], reduction=float(parts * length), packed=1.0,
            inner_trips=float(steps), panel_bytes=panel_bytes, variant=columns["ahead"],
            tasks=np.maximum(1.0, np.where(ahead, panels / columns["panels"], tiles)) if self.parallel else 1.0,
        )  # fmt: skip
