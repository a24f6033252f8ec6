"""Says which threads hold a tile together, in registers: a warp, or the four warps of a warp group."""

from __future__ import annotations

from ....tir.expr import DType
from ....tir.expr.intrinsics.group_matrix_operations import group_columns
from ....tir.expr.intrinsics.warp_matrix_operations import is_warp_tile
from ...machine.gpu_figures import WARP, WARP_GROUP

SWIZZLED = "shared.swizzled"
"""The scope of shared memory in rows of 128 bytes whose pieces of 16 bytes are exchanged."""
SWIZZLED_ALIGNMENT = 1024
"""Where such a buffer begins, in bytes: the exchanges repeat after eight rows."""


def threads_of_tile(dtype: DType) -> int:
    """Returns how many threads hold a value of ``dtype`` together, or 0 where each has its own."""
    return WARP if is_warp_tile(dtype) else WARP_GROUP if group_columns(dtype) else 0


def threads_of_scope(scope: str) -> int:
    """Returns how many threads hold the tiles of a buffer of this scope together, or 0 for other buffers."""
    return WARP if scope.startswith("wmma.") else WARP_GROUP if scope.startswith("wgmma.") else 0
