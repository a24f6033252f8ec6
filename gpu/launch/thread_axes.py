"""The axes of a GPU, blocks, threads and virtual threads, and which threads hold a tile together."""

from __future__ import annotations

from collections.abc import Iterable

from ...codegen.machine.gpu_figures import WARP, WARP_GROUP
from ...tir.expr import DType, IntImm
from ...tir.expr.intrinsics.group_matrix_operations import group_columns
from ...tir.expr.intrinsics.warp_matrix_operations import is_warp_tile
from ...tir.stmt import For, Stmt
from ...tir.walk import statements

BLOCK_TAGS = ("blockIdx.z", "blockIdx.y", "blockIdx.x")
THREAD_TAGS = ("threadIdx.z", "threadIdx.y", "threadIdx.x")
"""Outermost first: threads with neighbouring numbers differ in ``threadIdx.x``."""


class GpuError(ValueError):
    """Raised for a program whose thread axes have no meaning on a GPU. The message names the loop or the buffer."""


def tag_of(s: object) -> str:
    """Returns the axis of blocks or threads that a loop is bound to, or an empty text."""
    tag = s.thread_binding if isinstance(s, For) and s.kind == "thread_binding" else None
    return tag if tag in BLOCK_TAGS or tag in THREAD_TAGS else ""


def is_virtual(s: object) -> bool:
    """Returns whether a loop is bound to virtual threads."""
    return isinstance(s, For) and s.kind == "thread_binding" and str(s.thread_binding).startswith("vthread")


def thread_extents(stmts: Iterable[Stmt]) -> dict[str, int]:
    """Returns the number of threads along each axis of ``threadIdx`` below some statements: of several loops the most.

    GpuError when a number is not a constant.
    """
    out: dict[str, int] = {}
    for top in stmts:
        for s in statements(top):
            tag = tag_of(s)
            if tag not in THREAD_TAGS:
                continue
            assert isinstance(s, For)
            if not isinstance(s.extent, IntImm):
                raise GpuError(f"the loop {s.loop_var.name} on {tag} has {s.extent} threads, which is not a constant")
            out[tag] = max(out.get(tag, 1), s.extent.value)
    return {tag: out[tag] for tag in THREAD_TAGS if tag in out}


def is_shared(scope: str) -> bool:
    """Returns whether the threads of a block share one copy of the memory of this scope."""
    return scope.split(".")[0] in ("shared", "warp")


def is_private(scope: str) -> bool:
    """Returns whether each thread has a copy of the memory of this scope."""
    return not is_shared(scope) and scope.split(".")[0] != "global"


# Says which threads hold a tile together, in registers: a warp, or the four warps of a warp group.

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
