"""Emits loads of lanes that are a small distance apart: whole vectors, out of which the lanes are picked."""

from __future__ import annotations

from ...tir.arith.normal_form.linear import Linear
from ...tir.expr import LT, Broadcast, BufferLoad, DType, Expr, IntImm, Ramp
from ...tir.stmt import Buffer
from ..backend.lane_offsets import NEAR
from .llvm_scope import LlvmScope
from .llvm_types import memory_type, vector_constant
from .loads_stores import active_lanes


def picked(em: LlvmScope, e: BufferLoad, offset: Linear, distance: int) -> str | None:
    """Returns the lanes that a load reads ``distance`` elements apart, in the type of memory. None stands for a
    gather."""
    active = e.dtype.lanes if e.predicate is None else _leading(e.predicate)
    if active is None or not _is_near(em, distance, e.dtype):
        return None
    return _picked_lanes(em, e.buffer, offset, e.dtype, distance, active)


def _is_near(em: LlvmScope, distance: int, dtype: DType) -> bool:
    """Returns whether lanes are picked out of whole vectors. They must be a small distance apart, and fill registers or
    a power of two of a register's lanes."""
    lanes, register = dtype.lanes, em.target.vector_lanes(dtype)
    return 2 <= distance <= NEAR and min(lanes, register) >= 4 and (lanes % register == 0 or register % lanes == 0)


def _leading(mask: Expr) -> int | None:
    """Returns how many lanes hold when these are the first ones, as at the end of a row, else None."""
    if not (isinstance(mask, LT) and isinstance(mask.a, Ramp) and isinstance(mask.b, Broadcast)):
        return None
    first, step, end = mask.a.base, mask.a.stride, mask.b.value
    if not (isinstance(first, IntImm) and isinstance(end, IntImm) and isinstance(step, IntImm) and step.value == 1):
        return None
    return max(0, min(end.value - first.value, mask.a.lanes))


def _picked_lanes(em: LlvmScope, buffer: Buffer, offset: Linear, dtype: DType, distance: int, active: int) -> str:
    """Returns lanes that are ``distance`` elements apart, picked out of vectors that cover them, in the type of memory.
    All but the first ``active`` ones are 0."""
    count, one = min(dtype.lanes, em.target.vector_lanes(dtype)), memory_type(dtype.element)
    part_type, whole = dtype.element.with_lanes(count), ""
    for done in range(0, dtype.lanes, count):
        at, left = offset.plus(Linear(done * distance)), min(active - done, count)
        if left <= 0:
            part = "zeroinitializer"
        elif left == count:
            part = _picked_register(em, buffer, at, part_type, distance)
        else:
            part = _picked_first(em, buffer, at, part_type, distance, left)
        whole = em.fn.appended(one, whole, part, done, count) if done else part
    return whole


def _picked_first(em: LlvmScope, buffer: Buffer, offset: Linear, dtype: DType, distance: int, active: int) -> str:
    """Returns the first ``active`` lanes of one register, and 0 in the others; masked loads read nothing beyond them."""
    lanes, memory, end = dtype.lanes, memory_type(dtype), distance * (active - 1) + 1
    found = ""
    for start in range(0, end, lanes):
        inside = vector_constant([int(start + n < end) for n in range(lanes)], "i1")
        vector = active_lanes(em, buffer, offset.plus(Linear(start)), dtype, inside)
        places = [(n, distance * n - start) for n in range(active)]
        order = [lanes + p if 0 <= p < lanes else n if p < 0 else -1 for n, p in places] + [-1] * (lanes - active)
        found = em.fn.shuffled(memory, found or "zeroinitializer", vector, order)
    held = vector_constant([int(n < active) for n in range(lanes)], "i1")
    return em.fn.pure(f"select <{lanes} x i1> {held}, {memory} {found}, {memory} zeroinitializer")


def _picked_register(em: LlvmScope, buffer: Buffer, offset: Linear, dtype: DType, distance: int) -> str:
    """Returns the lanes of one register. The last vector ends with the last lane: nothing beyond that is read."""
    lanes, memory = dtype.lanes, memory_type(dtype)
    places = [distance * n for n in range(lanes)]
    found = ""
    for k in range(distance):
        start = min(k * lanes, places[-1] + 1 - lanes)
        at = offset.plus(Linear(start))
        vector = em.cached_load(
            buffer, f"load {memory}, ptr {em.pointer(buffer, at)}, align {em.alignment(buffer, at, dtype)}"
        )
        if not found:
            found = vector
            continue
        order = [-1] * lanes
        for n, place in enumerate(places):
            if place // lanes < k:  # an earlier vector had it; the first one is as it was loaded
                order[n] = n if k > 1 else place
            elif place // lanes == k:
                order[n] = lanes + place - start
        found = em.fn.shuffled(memory, found, vector, order)
    return found
