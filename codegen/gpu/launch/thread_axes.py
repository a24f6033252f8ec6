"""The axes of a GPU: blocks, threads of a block, and virtual threads, which one thread runs in turn."""

from __future__ import annotations

from collections.abc import Iterable

from ....tir.expr import IntImm
from ....tir.stmt import For, Stmt
from ....tir.walk import statements

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
