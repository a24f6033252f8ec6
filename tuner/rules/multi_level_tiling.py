"""This rule schedules reductions with a vectorized spatial axis: matrix products, convolutions, pooling.

The recipe is :mod:`..recipes.tiled_product`; :mod:`..cost.tiling_costs` says what it costs. A product of one row may go
row after row instead, by :func:`~tilewright.tuner.recipes.outer_sums`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from ...schedule import Schedule
from ...tir.expr import Var
from ..cost.axis_roles import TiledBlock, loads_fit, packable, tile_axes, vector_axes
from ..cost.cost_features import Costs, up_to
from ..cost.machine_model import MachineModel, worth_threads
from ..cost.tiling_costs import TilingCosts, outer_costs, rows_apart
from ..program import BlockInfo, ProgramInfo, Use
from ..recipes.loop_steps import Panels
from ..recipes.tiled_product import TileNest, outer_sums, tiled_product
from .schedule_rule import Decision, Group, Part, ScheduleRule, register_rule

_LONG = 16
"""The operations of an element from which on an epilogue counts as long."""


class MultiLevelTilingRule(ScheduleRule):
    """This rule takes a reduction of affine accesses, with the element-wise stage that consumes its result."""

    name = "multi_level_tiling"
    priority = 10

    def match(self, program: ProgramInfo, block: BlockInfo, free: Sequence[BlockInfo]) -> Group | None:
        if not block.is_reduction or not block.spatial or not block.writes_in_order or len(block.stores) != 1:
            return None
        if block.block.init is None or not all(use.affine for use in block.loads):
            return None
        if not vector_axes(block):
            return None
        epilogue = _epilogue(program, block, free)
        return Group(block, (block,) if epilogue is None else (block, epilogue))

    def parts(self, program: ProgramInfo, group: Group, machine: MachineModel) -> list[Part]:
        epilogue = group.blocks[1] if len(group.blocks) > 1 else None
        parts: list[Part] = []
        for vector in vector_axes(group.anchor):
            parts.extend(
                TilingPart(group.anchor, epilogue, vector, operand, machine)
                for operand in (None, *packable(group.anchor, vector))
                if operand is not None or loads_fit(group.anchor, vector)
            )
            if epilogue is None and rows_apart(group.anchor, vector):
                parts.append(OuterSumsPart(group.anchor, vector, machine))
        return parts


def _epilogue(program: ProgramInfo, block: BlockInfo, free: Sequence[BlockInfo]) -> BlockInfo | None:
    """Returns the element-wise stage that alone reads the result, element by element."""
    consumers = program.consumers(block)
    if len(consumers) != 1 or program.is_output(block):
        return None
    consumer = consumers[0]
    if consumer.is_reduction or consumer not in free or not consumer.fills_in_order:
        return None
    written = block.stores[0].buffer
    for use in consumer.loads:
        if use.buffer is written and not use.is_at(consumer.spatial):
            return None
        writer = program.writer.get(use.buffer, block)
        if writer is not block and not program.comes_before(writer, block):  # another operand does not exist yet
            return None
    return consumer


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
        if len(self.case.axes.reduce) > 1 and unroll[-1] < block.reduce_size <= 25 and not long:
            unroll += (block.reduce_size,)
        return unroll

    def _fetchable(self, decisions: Collection[str]) -> dict[str, int]:
        """Returns the bytes of what may be fetched ahead. In slices, they are those of the operands whose rows pass by;
        else those of the packed one."""
        case, out = self.case, {}
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


register_rule(MultiLevelTilingRule())
