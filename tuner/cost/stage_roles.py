"""This module says how a stage of a fused program may be computed, by the strides of its accesses."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from ...tir.expr import Var
from ...tir.stmt import Buffer
from ..program import BlockInfo, Use
from .product_roles import tile_axes
from .vector_choice import loads_fit, packable, vector_axes


@dataclass(frozen=True)
class StageRole:
    """The role of a stage in a tile. It has its ``kind`` (those of :class:`.TileStage`), the axis ``vector`` that
    becomes vectors, the axis ``row`` of a register tile, and the operand that is ``packed`` into panels ahead."""

    block: BlockInfo
    kind: Literal["map", "tile", "lanes", "plain"]
    vector: Var | None = None
    row: Var | None = None
    packed: Use | None = None


def stage_role(block: BlockInfo, lanes: int, inside: Collection[Buffer] = ()) -> StageRole:
    """Returns the role of ``block``. The parameter ``lanes`` is the number of elements of a vector, ``inside`` are the
    buffers that the fused stages write, which cannot be packed ahead."""
    if not block.spatial:
        return StageRole(block, "lanes" if _sums_in_lanes(block, lanes) else "plain")
    if not block.is_reduction:
        wide = [v for v in block.spatial if block.extents[v] > 1]
        return StageRole(block, "map", wide[-1] if wide else block.spatial[-1])
    for vector in vector_axes(block):
        operands = [use for use in packable(block, vector) if use.buffer not in inside]
        if loads_fit(block, vector) or operands:
            packed = None if _contiguous(block, vector) or not operands else operands[0]
            return StageRole(block, "tile", vector, tile_axes(block, vector).rows, packed)
    return StageRole(block, "lanes" if _sums_in_lanes(block, lanes) else "plain")


def _contiguous(block: BlockInfo, vector: Var) -> bool:
    return all(use.stride(vector) == 1 for use in block.loads if vector in use.axes())


def _sums_in_lanes(block: BlockInfo, lanes: int) -> bool:
    """Returns whether the innermost axis of the reduction is long enough for a vector, and its result one buffer."""
    last = block.axes[-1] if block.axes else None
    return last in block.reduce and block.extents[last] >= lanes and len(block.stores) == 1 and _known(block)


def _known(block: BlockInfo) -> bool:
    return block.block.init is not None and math.prod(block.extents[v] for v in block.reduce) > 1
