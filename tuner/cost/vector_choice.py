"""This module chooses the axes of a block that become vectors, by the strides of its accesses."""

from __future__ import annotations

from ...codegen.backend.lane_offsets import NEAR
from ...tir.expr import Var
from ..program import BlockInfo, Use


def vector_axes(block: BlockInfo) -> list[Var]:
    """Returns the spatial axes worth a vector, best first. They are contiguous in the result, or contiguous after
    packing and not in the result's innermost place. None of them when every load would have to gather and cannot be
    packed."""
    out = []
    for axis in reversed(block.spatial):
        if block.extents[axis] < 2:
            continue
        moving = [use for use in block.loads if axis in use.axes()]
        contiguous = [use for use in moving if use.stride(axis) == 1]
        alone = [use for use in moving if use.dim_of(axis) is not None]
        last = axis is block.spatial[-1]
        if (
            last
            and moving
            and (
                len(contiguous) == len(moving)
                or (len(moving_loads(block, axis)) == 1 and packable(block, axis))
                or not _reads_rows(block)
            )
        ):
            out.append(axis)
        elif not last and len(moving) == 1 and alone and _reuses(block, moving[0]):
            out.append(axis)
    return out[:2]


def lane_loads(use: Use, vector: Var, lanes: int) -> float:
    """Returns how many instructions it takes to load ``lanes`` elements along the axis ``vector``. Lanes a few elements
    apart are picked out of whole vectors, and farther ones are loaded one by one."""
    stride = use.stride(vector)
    if stride in (0, 1):
        return 1.0
    if stride == -1:
        return 2.0
    return float(2 * stride - 1) if stride is not None and 1 < stride <= NEAR else float(lanes)


def _reads_rows(block: BlockInfo) -> bool:
    """Returns whether a reduction axis is contiguous in memory for at least the length of a vector."""
    return any(use.stride(axis) == 1 and block.extents[axis] >= 16 for use in block.loads for axis in block.reduce)


def _reuses(block: BlockInfo, use: Use) -> bool:
    """Returns whether the same element is read for several outputs."""
    return any(block.extents[v] > 1 for v in block.spatial if v not in use.axes())


def moving_loads(block: BlockInfo, vector: Var) -> list[Use]:
    """Returns the loads that depend on ``vector`` and move with the reduction. Others, such as scales of columns, are
    loaded once for a tile."""
    return [use for use in block.loads if vector in use.axes() and not use.axes().isdisjoint(block.reduce)]


def kept_load(block: BlockInfo, vector: Var, use: Use) -> bool:
    """Returns whether the load is a vector that stays the same during the reduction."""
    return vector in use.axes() and use.affine and use.axes().isdisjoint(block.reduce)


def packable(block: BlockInfo, vector: Var) -> list[Use]:
    """Returns the one load that depends on ``vector`` and moves, when each of its indices is a single axis."""
    moving = moving_loads(block, vector)
    if len(moving) != 1 or not (_reuses(block, moving[0]) or moving[0].buffer in block.packed_ahead):
        return []
    use = moving[0]
    return [use] if use.plain and sum(1 for other in block.loads if other.buffer is use.buffer) == 1 else []


def loads_fit(block: BlockInfo, vector: Var) -> bool:
    """Returns whether vectors can be loaded without packing."""
    moving = [use for use in block.loads if vector in use.axes()]
    return all(use.stride(vector) == 1 for use in moving) or not packable(block, vector)
