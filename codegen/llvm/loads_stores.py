"""Emits loads and stores: vectors, masks, gathers, and lanes picked out of whole vectors."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...tir.arith.normal_form.forms import Linear
from ...tir.expr import GE, GT, LE, LT, Broadcast, BufferLoad, DType, Expr, IntImm, Ramp, conjuncts
from ...tir.stmt import Buffer
from ..lane_offsets import NEAR, LaneOffsets, constant_lane_offsets, flat_lanes, known_mask
from ..lowered import ALIGNED
from ..machine.target import Target
from .function_builder import align_of, llvm_type, memory_type, stored_suffix, sum_text, vector_constant
from .llvm_calls import by_registers
from .llvm_expr import mask_of_lanes
from .llvm_scope import LlvmScope

if TYPE_CHECKING:
    from .llvm_scope import LlvmScope


def load(em: LlvmScope, e: BufferLoad) -> str:
    """Returns what a load reads. The same load without a store in between is emitted once."""
    key = (e, em.version(e.buffer.data))  # unrolled copies share their expressions
    known = em.fn.recall(key)
    return known if known is not None else em.fn.remember(key, _loaded(em, e))


def _loaded(em: LlvmScope, e: BufferLoad) -> str:
    buffer, dtype = e.buffer, e.dtype
    lanes, where = dtype.lanes, em.lane_offsets(buffer, e.indices)
    offset = _first(em, where)
    if lanes == 1:
        return _scalar_load(em, buffer, offset)
    stride, memory = em.total(where.apart), memory_type(dtype)
    spread = _irregular(em, where, stride, lanes)
    even = not where.irregular and not stride.terms
    if even and stride.const == 0:
        one = _scalar_load(em, buffer, offset) if e.predicate is None else _load_if_active(em, e, offset)
        return em.splat(one, dtype.element, lanes)
    mask = None if e.predicate is None else em.value(e.predicate)
    if even and stride.const in (1, -1):
        backwards = stride.const == -1
        if backwards:
            offset = offset.plus(Linear(1 - lanes))
            mask = None if mask is None else _reversed(em, mask, DType("bool").with_lanes(lanes))
        if mask is None:
            pointer, align = em.pointer(buffer, offset), em.alignment(buffer, offset, dtype)
            stored = em.cached_load(buffer, f"load {memory}, ptr {pointer}, align {align}")
        else:
            stored = _masked_load(em, buffer, offset, dtype, mask)
        value = em.from_memory(stored, dtype)
        return _reversed(em, value, dtype) if backwards else value
    picked = em.picked(e, offset, stride.const) if even else None
    if picked is not None:
        return em.from_memory(picked, dtype)
    close = _from_a_span(em, e)
    if close is not None:
        return em.from_memory(close, dtype)
    few = _few_places(e, where)
    if few is not None and spread is not None:
        firsts, order = few
        spread = em.fn.shuffled(f"<{lanes} x i64>", spread, "poison", firsts)
        pointers = _pointers(em, buffer, offset, stride, spread, len(firsts))
        part = dtype.element.with_lanes(len(firsts))
        found = _gathered(em, buffer, part, pointers, vector_constant([1] * len(firsts), "i1"))
        return em.from_memory(em.fn.shuffled(memory_type(part), found, "zeroinitializer", order), dtype)
    if spread is not None and _is_small_table(em, buffer, lanes):
        number = em.fn.pure(f"add <{lanes} x i64> {spread}, {em.splat(sum_text(offset, em.fn), 'int64', lanes)}")
        found = _from_registers(em, buffer, number, lanes)
        kept = found if mask is None else em.fn.pure(f"select <{lanes} x i1> {mask}, {memory} {found}, {memory} zeroinitializer")  # fmt: skip
        return em.from_memory(kept, dtype)
    pointers = _pointers(em, buffer, offset, stride, spread, lanes)
    return em.from_memory(_gathered(em, buffer, dtype, pointers, mask or vector_constant([1] * lanes, "i1")), dtype)


def _gathered(em: LlvmScope, buffer: Buffer, dtype: DType, pointers: str, mask: str) -> str:
    lanes, memory = dtype.lanes, memory_type(dtype)
    text = em.fn.intrinsic(
        f"llvm.masked.gather.{stored_suffix(dtype)}.v{lanes}p0", memory,
        [f"<{lanes} x ptr>", "i32", f"<{lanes} x i1>", memory],
        [pointers, str(align_of(dtype)), mask, "zeroinitializer"],
    )  # fmt: skip
    return em.cached_load(buffer, text)


def _is_small_table(em: LlvmScope, buffer: Buffer, lanes: int) -> bool:
    """Returns whether lanes of a buffer are looked up in the registers, of 64 bytes, that hold all of it."""
    count = _extent(buffer)
    return em.target.has("avx512vbmi") and lanes >= 16 and buffer.dtype.bytes == 1 and count in (64, 128, 256)


def _extent(buffer: Buffer) -> int:
    """Returns the number of elements of a buffer, or 0 where it is unknown or they lie apart."""
    if buffer.strides or not all(isinstance(d, IntImm) for d in buffer.shape):
        return 0
    return math.prod([d.value for d in buffer.shape if isinstance(d, IntImm)])


def _from_registers(em: LlvmScope, buffer: Buffer, number: str, lanes: int) -> str:
    """Returns bytes of a table by their numbers. The instructions vpermb and vpermi2b take these modulo 64 and 128."""
    fn, wide, count = em.fn, "<64 x i8>", _extent(buffer)
    byte = buffer.dtype.element.with_lanes(64)
    table = [
        em.cached_load(buffer, f"load {wide}, ptr {em.pointer(buffer, Linear(at))}, align {em.alignment(buffer, Linear(at), byte)}")
        for at in range(0, count, 64)
    ]  # fmt: skip

    def instruction(_: int, parts: list[str]) -> str:
        if count == 64:
            return fn.pure(fn.intrinsic("llvm.x86.avx512.permvar.qi.512", wide, [wide] * 2, [table[0], *parts]))
        name, pairs = "llvm.x86.avx512.vpermi2var.qi.512", zip(table[::2], table[1::2], strict=True)
        low, *high = [fn.pure(fn.intrinsic(name, wide, [wide] * 3, [a, *parts, b])) for a, b in pairs]
        if not high:
            return low
        above = fn.pure(f"icmp slt {wide} {parts[0]}, zeroinitializer")
        return fn.pure(f"select <64 x i1> {above}, {wide} {high[0]}, {wide} {low}")

    low = fn.pure(f"trunc <{lanes} x i64> {number} to <{lanes} x i8>")
    return by_registers(fn, [low], ("int8", "int8"), lanes, [64], instruction)


def _few_places(e: BufferLoad, where: LaneOffsets) -> tuple[list[int], list[int]] | None:
    """Returns a lane for each place that several lanes read, and for each lane the number of its place.

    An example is ``A[i, T.Ramp(0, 1, 16) // 4, j]``. Lanes that read nothing have a larger number. None where most lanes have
    a place of their own.
    """
    lanes, found = e.dtype.lanes, [constant_lane_offsets(index) for index, _ in where.irregular]
    active = [True] * lanes if e.predicate is None else known_mask(e.predicate)
    if active is None or where.apart or None in found:
        return None
    places = [*zip(*[offsets for _, offsets in filter(None, found)], strict=True)]
    firsts = {place: n for n, place in reversed([*enumerate(places)]) if active[n]}
    count = 1 << max(len(firsts) - 1, 1).bit_length()  # a power of two
    if not firsts or 2 * count > lanes:
        return None
    numbers = {place: n for n, place in enumerate(firsts)}
    kept = [*firsts.values()]
    order = [numbers[place] if is_read else count for place, is_read in zip(places, active, strict=True)]
    return kept + [kept[-1]] * (count - len(kept)), order


def store(
    em: LlvmScope, buffer: Buffer, indices: tuple[Expr, ...], value: str, dtype: DType, predicate: Expr | None
) -> None:
    """Write ``value`` of type ``dtype``; the predicate marks the lanes to write."""
    lanes, memory = dtype.lanes, memory_type(dtype)
    where = em.lane_offsets(buffer, indices)
    active = None if predicate is None or em.target.has_masks else _leading(predicate)
    if active and where.distance == 1:
        value = em.fn.resized(memory_type(dtype.element), em.to_memory(value, dtype), lanes, active)
        pointer, memory = em.pointer(buffer, _first(em, where)), memory_type(dtype.element.with_lanes(active))
        align = em.alignment(buffer, _first(em, where), dtype)
        em.fn.do(f"store {memory} {value}, ptr {pointer}, align {align}")
        em.touch(buffer.data)
        return
    mask = None if predicate is None else em.value(predicate)
    offset, stride = _first(em, where), em.total(where.apart)
    spread = _irregular(em, where, stride, lanes)
    value = em.to_memory(value, dtype)
    if lanes == 1 or (not where.irregular and not stride.terms and stride.const == 1):
        pointer = em.pointer(buffer, offset)
        if mask is None:
            align, hint = _store_place(em, buffer, offset, dtype)
            em.fn.do(f"store {memory} {value}, ptr {pointer}, align {align}{hint}")
        else:
            types = [memory, "ptr", "i32", f"<{lanes} x i1>"]
            args = [value, pointer, str(em.alignment(buffer, offset, dtype)), mask]
            em.fn.do(em.fn.intrinsic(f"llvm.masked.store.{stored_suffix(dtype)}.p0", "void", types, args))
    else:
        pointers = _pointers(em, buffer, offset, stride, spread, lanes)
        types = [memory, f"<{lanes} x ptr>", "i32", f"<{lanes} x i1>"]
        args = [value, pointers, str(align_of(dtype)), mask or vector_constant([1] * lanes, "i1")]
        em.fn.do(em.fn.intrinsic(f"llvm.masked.scatter.{stored_suffix(dtype)}.v{lanes}p0", "void", types, args))
    em.touch(buffer.data)


def _store_place(em: LlvmScope, buffer: Buffer, offset: Linear, dtype: DType) -> tuple[int, str]:
    """Returns alignment and metadata of a plain store, which is non-temporal where requested and where the address is
    aligned."""
    align, size = em.alignment(buffer, offset, dtype), dtype.bytes
    whole = min(size, em.target.vector_bits // 8)
    if not em.streaming or dtype.lanes == 1 or whole < 16 or size % whole:
        return align, ""
    if em.streaming != ALIGNED and align % whole:
        return align, ""
    em.streamed = True
    return whole, f", !nontemporal {em.unit.node('!{i32 1}')}"


def address(em: LlvmScope, e: BufferLoad) -> str:
    """Returns the address of the first lane."""
    return em.pointer(e.buffer, _first(em, em.lane_offsets(e.buffer, e.indices)))


def contiguous_address(em: LlvmScope, e: BufferLoad) -> str | None:
    """Returns the address of the first lane, or None unless the lanes are contiguous in memory and all are read."""
    contiguous = em.lane_offsets(e.buffer, e.indices).distance == 1
    return address(em, e) if contiguous and e.predicate is None else None


def _first(em: LlvmScope, where: LaneOffsets) -> Linear:
    """Returns the offset of the first lane in elements."""
    return em.total(where.start).times(where.unit)


def _reversed(em: LlvmScope, text: str, dtype: DType) -> str:
    return em.fn.shuffled(llvm_type(dtype), text, "poison", range(dtype.lanes - 1, -1, -1))


def _scalar_load(em: LlvmScope, buffer: Buffer, offset: Linear) -> str:
    dtype = buffer.dtype
    align = em.alignment(buffer, offset, dtype)
    text = f"load {memory_type(dtype)}, ptr {em.pointer(buffer, offset)}, align {align}"
    return em.from_memory(em.cached_load(buffer, text), dtype)


def _masked_load(em: LlvmScope, buffer: Buffer, offset: Linear, dtype: DType, mask: str) -> str:
    """Returns ``dtype.lanes`` elements from ``offset`` on, as they lie in memory, and 0 where the mask is false.

    LLVM 22.1 splits a masked load that takes four registers or more in halves, again and again. Where a part of the
    mask is known to be false, a register of that part is then loaded without a mask on AVX and AVX2, behind the end of
    the array, or LLVM ends with a failed assertion ("Getting value from an unknown LocationSize"). A load per register
    avoids both.
    """
    whole, done = "", 0
    for count in _parts(em.target, dtype):
        active = em.fn.cut("i1", mask, dtype.lanes, done, count)
        part = active_lanes(em, buffer, offset.plus(Linear(done)), dtype.element.with_lanes(count), active)
        whole = em.fn.appended(memory_type(dtype.element), whole, part, done, count) if done else part
        done += count
    return whole


def _parts(target: Target, dtype: DType) -> list[int]:
    """Returns how many lanes each load takes: at most those of a register. No load takes a single lane; the first one
    takes one more instead."""
    lanes, register = dtype.lanes, target.vector_lanes(dtype)
    if lanes <= register or register < 2 or target.has("avx512f") or not target.has("avx"):
        return [lanes]
    first = register + 1 if lanes % register == 1 else register
    rest, last = divmod(lanes - first, register)
    return [first] + [register] * rest + [last] * (last > 0)


def active_lanes(em: LlvmScope, buffer: Buffer, offset: Linear, dtype: DType, mask: str) -> str:
    """Returns a masked load of at most a register."""
    lanes, memory = dtype.lanes, memory_type(dtype)
    pointer, align = em.pointer(buffer, offset), em.alignment(buffer, offset, dtype)
    text = em.fn.intrinsic(
        f"llvm.masked.load.{stored_suffix(dtype)}.p0", memory, ["ptr", "i32", f"<{lanes} x i1>", memory],
        [pointer, str(align), mask, "zeroinitializer"],
    )  # fmt: skip
    return em.cached_load(buffer, text)


def _load_if_active(em: LlvmScope, e: BufferLoad, offset: Linear) -> str:
    """Returns one element for all lanes, which is read when some lane of the mask is active, else 0."""
    assert e.predicate is not None
    lanes, scalar = e.dtype.lanes, e.dtype.element
    mask, one = f"<{lanes} x i1>", f"<1 x {memory_type(e.buffer.dtype)}>"
    some = em.fn.pure(em.fn.intrinsic(f"llvm.vector.reduce.or.v{lanes}i1", "i1", [mask], [em.value(e.predicate)]))
    single = em.fn.joined("<1 x i1>", "i1", [some])
    text = em.fn.intrinsic(
        f"llvm.masked.load.v1{stored_suffix(scalar)}.p0", one, ["ptr", "i32", "<1 x i1>", one],
        [em.pointer(e.buffer, offset), str(align_of(e.dtype)), single, "zeroinitializer"],
    )  # fmt: skip
    return em.from_memory(em.fn.lane(one, em.cached_load(e.buffer, text), 0), scalar)


def _pointers(em: LlvmScope, buffer: Buffer, offset: Linear, stride: Linear, spread: str | None, lanes: int) -> str:
    """Returns the addresses of lanes that are not contiguous; ``spread``: their offsets where they are irregular."""
    pointer = em.pointer(buffer, offset)
    type_, steps = f"<{lanes} x i64>", spread
    if steps is None and not stride.terms and abs(stride.const) * lanes < 1 << 30:
        steps, type_ = vector_constant([stride.const * n for n in range(lanes)], "i32"), f"<{lanes} x i32>"
    elif steps is None:
        steps = _steps(em, stride, lanes)
    return em.fn.pure(f"getelementptr {memory_type(buffer.dtype.element)}, ptr {pointer}, {type_} {steps}")


def _irregular(em: LlvmScope, where: LaneOffsets, stride: Linear, lanes: int) -> str | None:
    """Returns the offsets of the lanes from the first one as a vector, or None where they are evenly spaced."""
    total: str | None = None
    wide = f"<{lanes} x i64>"
    for index, step in where.irregular:
        term = em.vector_index(index, lanes)
        if not (isinstance(step, IntImm) and step.value == 1):
            term = em.fn.pure(f"mul {wide} {term}, {em.splat(em.index(step), 'int64', lanes)}")
        total = term if total is None else em.fn.pure(f"add {wide} {total}, {term}")
    if total is not None and (stride.terms or stride.const):
        return em.fn.pure(f"add {wide} {total}, {_steps(em, stride, lanes)}")
    return total


def _steps(em: LlvmScope, stride: Linear, lanes: int) -> str:
    if not stride.terms:
        return vector_constant([stride.const * n for n in range(lanes)], "i64")
    step = em.splat(sum_text(stride, em.fn), "int64", lanes)
    return em.fn.pure(f"mul <{lanes} x i64> {step}, {vector_constant(list(range(lanes)), 'i64')}")


# Emits loads of lanes that are a small distance apart: whole vectors, out of which the lanes are picked.


def picked(em: LlvmScope, e: BufferLoad, offset: Linear, distance: int) -> str | None:
    """Returns the lanes that a load reads ``distance`` elements apart, in the type of memory. None stands for a
    gather."""
    active = e.dtype.lanes if e.predicate is None else _leading(e.predicate)
    if not _is_near(em, abs(distance), e.dtype):
        return None
    if active is None:
        return _picked_active(em, e, offset, distance) if distance > 0 else None
    if distance < 0:
        if active < e.dtype.lanes:
            return None
        start = offset.plus(Linear(distance * (active - 1)))
        forwards = _picked_lanes(em, e.buffer, start, e.dtype, -distance, active)
        return em.fn.shuffled(memory_type(e.dtype), forwards, "poison", range(active - 1, -1, -1))
    return _picked_lanes(em, e.buffer, offset, e.dtype, distance, active)


def _from_a_span(em: LlvmScope, e: BufferLoad) -> str | None:
    """Returns lanes at known distances from the first one, picked out of the one vector that covers them.

    An example is ``A[i + T.Ramp(0, 1, 16) // 4]``. None where they are not known, or lie farther apart than two registers
    are long.
    """
    buffer, dtype = e.buffer, e.dtype
    if buffer.dtype.lanes > 1 or dtype.is_bool:
        return None
    flat = flat_lanes(e.indices, em.unit.strides(buffer))
    active = [True] * dtype.lanes if e.predicate is None else known_mask(e.predicate)
    if flat is None or len(flat[1]) != dtype.lanes:
        return None
    if active is None:
        return _from_a_masked_span(em, e, *flat)
    if not any(active):
        return None
    places, offsets = flat
    read = [n for n, is_read in zip(offsets, active, strict=True) if is_read]
    first, span = min(read), max(read) - min(read) + 1
    if not 1 < span <= 2 * em.target.vector_lanes(dtype):
        return None
    start = em.total(((buffer.elem_offset, IntImm(1)), *places)).plus(Linear(first))
    whole = dtype.element.with_lanes(span)
    pointer, align = em.pointer(buffer, start), em.alignment(buffer, start, whole)
    loaded = em.cached_load(buffer, f"load {memory_type(whole)}, ptr {pointer}, align {align}")
    lanes = [n - first if is_read else span for n, is_read in zip(offsets, active, strict=True)]
    return em.fn.shuffled(memory_type(whole), loaded, "zeroinitializer", lanes)


def _from_a_masked_span(
    em: LlvmScope, e: BufferLoad, places: Sequence[tuple[Expr, Expr]], offsets: Sequence[int]
) -> str | None:
    """Returns the same for a mask that is known when it runs, as at the end of a row.

    Elements between active lanes are read. None where lanes do not follow one another in memory, and on machines without masked loads.
    """
    dtype, buffer = e.dtype, e.buffer
    assert e.predicate is not None
    first, span = offsets[0], offsets[-1] - offsets[0] + 1
    if [*offsets] != sorted(offsets) or not 1 < span <= 2 * em.target.vector_lanes(dtype):
        return None
    if not _has_masked_loads(em.target, dtype):
        return None
    count = 1 << (span - 1).bit_length()
    before = [bisect_right(offsets, first + n) - 1 for n in range(count)]
    after = [bisect_left(offsets, first + n) for n in range(count)]
    inside = _between_active_lanes(em, e, [int(n < span) for n in range(count)], before, after)
    if inside is None:
        return None
    start = em.total(((buffer.elem_offset, IntImm(1)), *places)).plus(Linear(first))
    whole, memory = dtype.element.with_lanes(count), memory_type(dtype)
    loaded = _masked_load(em, buffer, start, whole, inside)
    found = em.fn.shuffled(memory_type(whole), loaded, "poison", [n - first for n in offsets])
    return em.fn.pure(
        f"select <{dtype.lanes} x i1> {em.value(e.predicate)}, {memory} {found}, {memory} zeroinitializer"
    )


def _is_near(em: LlvmScope, distance: int, dtype: DType) -> bool:
    """Returns whether lanes are picked out of whole vectors. They must be a small distance apart, and fill registers or
    a power of two of a register's lanes."""
    lanes, register = dtype.lanes, em.target.vector_lanes(dtype)
    return 2 <= distance <= NEAR and min(lanes, register) >= 4 and (lanes % register == 0 or register % lanes == 0)


def _leading(mask: Expr) -> int | None:
    """Returns how many lanes hold when these are the first ones, as at the end of a row, else None."""
    lanes = known_mask(mask)
    return None if lanes is None or lanes != sorted(lanes, reverse=True) else sum(lanes)


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


def _picked_active(em: LlvmScope, e: BufferLoad, offset: Linear, distance: int) -> str | None:
    """Returns the active lanes, and 0 in the others, where the active ones are neighbours, as between two ends.

    That is how the last tile of a symbolic size ends, and what padding leaves of a window. Masked loads read nothing before
    the first and beyond the last active lane. None stands for other masks, and machines without such loads.
    """
    dtype = e.dtype
    lanes = min(dtype.lanes, em.target.vector_lanes(dtype))
    if not _has_masked_loads(em.target, dtype):
        return None
    part, one, whole = dtype.element.with_lanes(lanes), memory_type(dtype.element), ""
    for done in range(0, dtype.lanes, lanes):
        found = ""
        for start in range(0, distance * lanes, lanes):
            at = [done * distance + start + n for n in range(lanes)]
            known = [int(p <= distance * (dtype.lanes - 1)) for p in at]
            inside = _between_active_lanes(em, e, known, [p // distance for p in at], [-(-p // distance) for p in at])
            if inside is None:
                return None
            vector = active_lanes(em, e.buffer, offset.plus(Linear(done * distance + start)), part, inside)
            places = [distance * n - start for n in range(lanes)]
            order = [lanes + p if 0 <= p < lanes else n if p < 0 else -1 for n, p in enumerate(places)]
            found = em.fn.shuffled(memory_type(part), found or "zeroinitializer", vector, order)
        whole = em.fn.appended(one, whole, found, done, lanes) if done else found
    return whole


def _between_active_lanes(
    em: LlvmScope, e: BufferLoad, known: Sequence[int], before: Sequence[int], after: Sequence[int]
) -> str | None:
    """Returns which elements lie between the first and the last active lane.

    ``known``: 0 for elements behind the last lane; ``before`` and ``after`` are the lanes at each element, or those
    beside it. None where the active lanes may have others between them.
    """
    type_ = f"<{len(known)} x i1>"
    mask = vector_constant([*known], "i1")
    for test in conjuncts(e.predicate):  # type: ignore[arg-type]
        if isinstance(test, Broadcast):
            held: str | None = em.splat(em.value(test.value), "bool", len(known))
        elif isinstance(test, (LT, LE, GT, GE)) and isinstance(test.a, Ramp) and isinstance(test.a.stride, IntImm):
            # an end lies before the next lane where lower lanes hold, else behind the lane before
            lower = isinstance(test, (LT, LE)) == (test.a.stride.value >= 0)
            held = mask_of_lanes(em, test, after if lower else before)
        else:
            return None
        if held is None:
            return None
        mask = em.fn.pure(f"and {type_} {mask}, {held}")
    return mask


def _has_masked_loads(target: Target, dtype: DType) -> bool:
    """Returns whether the machine has an instruction that loads some lanes of a vector of this type."""
    return target.has("avx512bw") or (target.has("avx2") and dtype.element.bytes >= 4)


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
