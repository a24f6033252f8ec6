"""Copies from global to shared memory that run beside the threads: ``cp.async`` with its groups, under TVM's names.

A statement with the attribute ``async_scope`` only starts its copies. ``T.ptx_commit_group()`` closes a group of the copies that the
thread has started, and ``T.ptx_wait_group(n)`` waits until at most ``n`` groups are not done.
"""

from __future__ import annotations

from collections.abc import Set

from ...tir.expr import BufferLoad, Call, Var, const
from ...tir.stmt import AttrStmt, BufferStore, Evaluate, Stmt
from ...tir.walk import loads_and_stores
from .launch_form import GpuError, is_shared

SCOPE = "async_scope"
COMMIT, WAIT = "tir.ptx_commit_group", "tir.ptx_wait_group"
BULK, BULK_SCOPE, BULK_WAIT = "bulk_copy", "bulk_scope", "tir.ptx_wait_barrier"
"""The words of copies of whole rows (:mod:`.bulk_copies`)."""


def started(s: Stmt, written: Set[Var]) -> Stmt:
    """Returns ``s``, whose copies are only started. ``written``: memory that the kernel writes.

    GpuError when ``s`` does anything else than copying elements of global memory, which no one writes, to shared memory.
    """
    for access in loads_and_stores(s):
        if isinstance(access, BufferStore) and not copies(access, written):
            raise GpuError(f"{access.buffer.name} cannot be filled by asynchronous copies, which move elements of global "
                           "memory to shared memory as they are")  # fmt: skip
    return AttrStmt(None, SCOPE, const(1, "int32"), s)


def copies(s: BufferStore, written: Set[Var]) -> bool:
    """Returns whether a store moves an element of global memory that is only read to shared memory."""
    value = s.value
    if not isinstance(value, BufferLoad) or value.dtype.element != s.buffer.dtype.element:
        return False
    return is_shared(s.buffer.scope) and value.buffer.scope == "global" and value.buffer.data not in written


def commit() -> Stmt:
    """Returns the statement that closes a group of copies."""
    return Evaluate(Call(COMMIT, (), "int32"))


def wait(groups: int) -> Stmt:
    """Returns the statement that waits until at most so many groups are not done."""
    return Evaluate(Call(WAIT, (const(groups, "int32"),), "int32"))
