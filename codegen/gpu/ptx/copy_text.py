"""Emits asynchronous copies from global to shared memory, and what closes and awaits their groups."""

from __future__ import annotations

from ....tir.expr import BufferLoad, Call, DType, Expr, IntImm
from ....tir.stmt import Buffer, BufferStore
from ...backend.emitter import EmitError
from ...llvm.llvm_scope import LlvmScope
from ..launch.asynchronous_copies import COMMIT, WAIT

_BYTES = (4, 8, 16)
"""What one instruction copies."""


def start_copy(em: LlvmScope, s: BufferStore) -> bool:
    """Emit the start of a copy, where one instruction does it; return whether it does."""
    value = s.value
    if s.predicate is not None or not isinstance(value, BufferLoad) or value.predicate is not None:
        return False
    lanes = max([i.dtype.lanes for i in s.indices], default=1)
    dtype = s.buffer.dtype.with_lanes(lanes)
    if dtype.bytes not in _BYTES or value.dtype.lanes != lanes:
        return False
    places = [_place(em, b, indices, dtype) for b, indices in ((s.buffer, s.indices), (value.buffer, value.indices))]
    if not all(places):
        return False
    kind = "cg" if dtype.bytes == 16 else "ca"  # the wide ones bypass the first-level cache
    spaces = ["ptr addrspace(3)", "ptr addrspace(1)"]
    pointers = [em.fn.pure(f"addrspacecast ptr {p} to {space}") for p, space in zip(places, spaces, strict=True)]
    name = f"llvm.nvvm.cp.async.{kind}.shared.global.{dtype.bytes}"
    em.fn.do(em.fn.intrinsic(name, "void", spaces, pointers))
    em.touch(s.buffer.data)
    return True


def _place(em: LlvmScope, buffer: Buffer, indices: tuple[Expr, ...], dtype: DType) -> str | None:
    """Returns the address of elements that lie side by side at a multiple of their size."""
    where = em.lane_offsets(buffer, indices)
    if dtype.lanes > 1 and where.distance != 1:
        return None
    offset = em.total(where.start).times(where.unit)
    return em.pointer(buffer, offset) if em.alignment(buffer, offset, dtype) >= dtype.bytes else None


def _commit(em: LlvmScope, e: Call) -> str:
    em.fn.do(em.fn.intrinsic("llvm.nvvm.cp.async.commit.group", "void", [], []))
    return "0"


def _wait(em: LlvmScope, e: Call) -> str:
    (groups,) = e.args
    if not isinstance(groups, IntImm):
        raise EmitError("the number of groups that may go on is no constant")
    em.fn.do(em.fn.intrinsic("llvm.nvvm.cp.async.wait.group", "void", ["i32"], [str(groups.value)]))
    em.touch(*em.bases)
    return "0"


COPY_CALLS = {COMMIT.removeprefix("tir."): _commit, WAIT.removeprefix("tir."): _wait}
"""The emitters of calls that belong to asynchronous copies."""
