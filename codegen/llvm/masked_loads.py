"""Emits masked loads of consecutive lanes.

LLVM 22.1 splits a masked load that takes four registers or more in halves, again and again. Where a part of the mask is
known to be false, a register of that part is then loaded without a mask on AVX and AVX2, behind the end of the array,
or LLVM ends with a failed assertion ("Getting value from an unknown LocationSize"). A load per register avoids both.
"""

from __future__ import annotations

from ...tir.arith.normal_form.linear import Linear
from ...tir.expr import DType
from ...tir.stmt import Buffer
from ..machine.target import Target
from .legalize_vectors import appended, cut
from .llvm_scope import LlvmScope
from .llvm_types import memory_type, stored_suffix


def masked_load(em: LlvmScope, buffer: Buffer, offset: Linear, dtype: DType, mask: str) -> str:
    """Returns ``dtype.lanes`` elements from ``offset`` on, as they lie in memory, and 0 where the mask is false."""
    stored = DType("uint8").with_lanes(dtype.lanes) if dtype.is_bool else dtype
    whole, done = "", 0
    for count in _parts(em.target, stored):
        active = cut(em.fn, mask, DType("bool"), dtype.lanes, done, count)
        part = _load(em, buffer, offset.plus(Linear(done)), dtype.element.with_lanes(count), active)
        whole = appended(em.fn, whole, part, stored.element, done, count) if done else part
        done += count
    return whole


def _parts(target: Target, stored: DType) -> list[int]:
    """Returns how many lanes each load takes: a register's at most; none takes a single lane, the first takes one more
    instead."""
    lanes, register = stored.lanes, target.vector_lanes(stored)
    if lanes <= register or register < 2 or target.has("avx512f") or not target.has("avx"):
        return [lanes]
    first = register + 1 if lanes % register == 1 else register
    rest, last = divmod(lanes - first, register)
    return [first] + [register] * rest + [last] * (last > 0)


def _load(em: LlvmScope, buffer: Buffer, offset: Linear, dtype: DType, mask: str) -> str:
    lanes, memory = dtype.lanes, memory_type(dtype)
    pointer, align = em.pointer(buffer, offset), em.alignment(buffer, offset, dtype)
    text = em.fn.intrinsic(
        f"llvm.masked.load.{stored_suffix(dtype)}.p0", memory, ["ptr", "i32", f"<{lanes} x i1>", memory],
        [pointer, str(align), mask, "zeroinitializer"],
    )  # fmt: skip
    return em.cached_load(buffer, text)
