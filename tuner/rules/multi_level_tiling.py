"""This rule schedules reductions with a vectorized spatial axis: matrix products, convolutions, pooling.

The recipe is in :mod:`.tiling_part`, what it costs in :mod:`.tiling_costs`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...tir.expr import Var
from ..cost.machine_model import MachineModel
from ..program import BlockInfo, Program, Use
from ..sketch_part import Part
from .schedule_rule import Group, ScheduleRule, register_rule
from .tiling_part import TilingPart


class MultiLevelTilingRule(ScheduleRule):
    """This rule takes a reduction of affine accesses, with the element-wise stage that consumes its result."""

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
    """Returns the spatial axes worth a vector: contiguous in the result, or contiguous after packing and not in the
    result's innermost place; best first. None when every load would have to gather and cannot be packed."""
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
    """Returns whether a reduction axis is contiguous in memory for at least the length of a vector."""
    return any(use.stride(axis) == 1 and block.extents[axis] >= 16 for use in block.loads for axis in block.reduce)


def _reuses(block: BlockInfo, use: Use) -> bool:
    """Returns whether the same element is read for several outputs."""
    return any(block.extents[v] > 1 for v in block.spatial if v not in use.axes())


def _packable(block: BlockInfo, vector: Var) -> list[Use]:
    """Returns the one load that depends on ``vector``, when each of its indices is a single axis."""
    moving = [use for use in block.loads if vector in use.axes()]
    if len(moving) != 1 or not _reuses(block, moving[0]):
        return []
    use = moving[0]
    plain = all(dim is not None and len(dim) == 1 and set(dim.values()) == {1} for dim in use.dims)
    same = sum(1 for other in block.loads if other.buffer is use.buffer) == 1
    return [use] if plain and same and len(use.axes()) == len(use.dims) else []


def _loads_fit(block: BlockInfo, vector: Var) -> bool:
    """Returns whether vectors can be loaded without packing."""
    moving = [use for use in block.loads if vector in use.axes()]
    return all(use.stride(vector) == 1 for use in moving) or not _packable(block, vector)


def _epilogue(program: Program, block: BlockInfo, free: Sequence[BlockInfo]) -> BlockInfo | None:
    """Returns the element-wise stage that alone reads the result, element by element."""
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


register_rule(MultiLevelTilingRule())
