"""Emits loads and stores: addresses, vectors, masks, gathers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ...tir.buffer import Buffer
from ...tir.dtype import element_of, is_bool, lanes_of, with_lanes
from ...tir.expr import BufferLoad, Expr, IntImm
from ..lower.lanes import flat_lanes
from .index_arithmetic import Linear, linear, linear_text, ramp_of
from .llvm_types import align_of, memory_type, suffix, vector_constant

if TYPE_CHECKING:
    from .llvm_expr import ExprEmitter


def load(em: ExprEmitter, e: BufferLoad) -> str:
    """Returns the value of ``e``. The same load without a store in between is emitted once."""
    buffer, dtype = e.buffer, e.dtype
    lanes = lanes_of(dtype)
    offset, stride, vector = _place(em, buffer, e.indices, lanes)
    if vector is None and stride is not None and not stride.terms and stride.const == 0 and lanes > 1:
        one = _scalar_load(em, buffer, offset) if e.predicate is None else _load_if_active(em, e, offset)
        return em.splat(one, element_of(dtype), lanes)
    if lanes == 1:
        return _scalar_load(em, buffer, offset)
    mask = None if e.predicate is None else em.value(e.predicate)
    memory = memory_type(dtype)
    if vector is None and stride is not None and not stride.terms and stride.const in (1, -1):
        backwards = stride.const == -1
        if backwards:
            offset = offset.plus(Linear(1 - lanes))
            mask = None if mask is None else em.reverse(mask, with_lanes("bool", lanes))
        pointer = _pointer(em, buffer, offset)
        if mask is None:
            text = f"load {memory}, ptr {pointer}, align {em.alignment(buffer, offset, dtype)}"
        else:
            text = em.intrinsic(
                f"llvm.masked.load.{suffix(_stored(dtype))}.p0", memory, ["ptr", "i32", f"<{lanes} x i1>", memory],
                [pointer, str(em.alignment(buffer, offset, dtype)), mask, "zeroinitializer"],
            )  # fmt: skip
        value = em.cached_load(buffer, text)
        value = em.from_memory(value, dtype)
        return em.reverse(value, dtype) if backwards else value
    pointers = _pointers(em, buffer, offset, stride, vector, lanes)
    all_true = mask if mask is not None else vector_constant([1] * lanes, "i1")
    text = em.intrinsic(
        f"llvm.masked.gather.{suffix(_stored(dtype))}.v{lanes}p0", memory,
        [f"<{lanes} x ptr>", "i32", f"<{lanes} x i1>", memory],
        [pointers, str(align_of(dtype)), all_true, "zeroinitializer"],
    )  # fmt: skip
    return em.from_memory(em.cached_load(buffer, text), dtype)


def store(em: ExprEmitter, buffer: Buffer, indices: tuple[Expr, ...], value: str, dtype: str, mask: str | None) -> None:
    """Write ``value`` of type ``dtype``; ``mask`` marks the lanes to write."""
    fn = em.fn
    lanes = lanes_of(dtype)
    offset, stride, vector = _place(em, buffer, indices, lanes)
    memory = memory_type(dtype)
    value = em.to_memory(value, dtype)
    if lanes == 1 or (stride is not None and not stride.terms and stride.const == 1 and vector is None):
        pointer = _pointer(em, buffer, offset)
        if mask is None:
            align, hint = em.store_place(buffer, offset, dtype)
            fn.do(f"store {memory} {value}, ptr {pointer}, align {align}{hint}")
        else:
            fn.do(
                em.intrinsic(
                    f"llvm.masked.store.{suffix(_stored(dtype))}.p0",
                    "void",
                    [memory, "ptr", "i32", f"<{lanes} x i1>"],
                    [value, pointer, str(em.alignment(buffer, offset, dtype)), mask],
                )  # fmt: skip
            )
    else:
        pointers = _pointers(em, buffer, offset, stride, vector, lanes)
        all_true = mask if mask is not None else vector_constant([1] * lanes, "i1")
        fn.do(
            em.intrinsic(
                f"llvm.masked.scatter.{suffix(_stored(dtype))}.v{lanes}p0",
                "void",
                [memory, f"<{lanes} x ptr>", "i32", f"<{lanes} x i1>"],
                [value, pointers, str(align_of(dtype)), all_true],
            )  # fmt: skip
        )
    em.written(buffer)


def address(em: ExprEmitter, e: BufferLoad) -> str:
    """Returns the address of the first lane."""
    offset, _, _ = _place(em, e.buffer, e.indices, lanes_of(e.dtype))
    return _pointer(em, e.buffer, offset)


def contiguous_address(em: ExprEmitter, e: BufferLoad) -> str | None:
    """Returns the address of the first lane, or None unless the lanes are contiguous in memory and all are read."""
    offset, stride, vector = _place(em, e.buffer, e.indices, lanes_of(e.dtype))
    if e.predicate is not None or vector is not None or stride is None or stride.terms or stride.const != 1:
        return None
    return _pointer(em, e.buffer, offset)


def _stored(dtype: str) -> str:
    return with_lanes("uint8", lanes_of(dtype)) if is_bool(dtype) else dtype


def _scalar_load(em: ExprEmitter, buffer: Buffer, offset: Linear) -> str:
    pointer = _pointer(em, buffer, offset)
    dtype = buffer.dtype
    text = f"load {memory_type(dtype)}, ptr {pointer}, align {align_of(dtype)}"
    return em.from_memory(em.cached_load(buffer, text), dtype)


def _load_if_active(em: ExprEmitter, e: BufferLoad, offset: Linear) -> str:
    """Returns one element for all lanes, which is read when some lane of the mask is active, else 0."""
    assert e.predicate is not None
    lanes, one, scalar = lanes_of(e.dtype), memory_type(e.buffer.dtype), element_of(e.dtype)
    mask = f"<{lanes} x i1>"
    some = em.fn.pure(em.intrinsic(f"llvm.vector.reduce.or.v{lanes}i1", "i1", [mask], [em.value(e.predicate)]))
    single = em.fn.pure(f"insertelement <1 x i1> poison, i1 {some}, i64 0")
    text = em.intrinsic(
        f"llvm.masked.load.v1{suffix(_stored(scalar))}.p0", f"<1 x {one}>", ["ptr", "i32", "<1 x i1>", f"<1 x {one}>"],
        [_pointer(em, e.buffer, offset), str(align_of(e.dtype)), single, "zeroinitializer"],
    )  # fmt: skip
    return em.from_memory(em.fn.pure(f"extractelement <1 x {one}> {em.cached_load(e.buffer, text)}, i64 0"), scalar)


def strides_of(buffer: Buffer) -> tuple[Expr, ...]:
    """Returns the buffer's strides in elements, row-major when it has none of its own."""
    return buffer.element_strides()


def elements_of(buffer: Buffer) -> Expr:
    """Returns the number of elements from the buffer's first to its last, including gaps between rows."""
    total: Expr = IntImm(1, "int64")
    if not buffer.strides:
        for extent in buffer.shape:
            total = total * extent
        return total
    for extent, stride in zip(buffer.shape, buffer.strides, strict=True):
        total = total + (extent - 1) * stride
    return total


def constant_elements(buffer: Buffer) -> int | None:
    """Returns :func:`elements_of` when shape and strides are constants, else None."""
    shape = [e.value for e in buffer.shape if isinstance(e, IntImm)]
    strides = [e.value for e in buffer.strides if isinstance(e, IntImm)]
    if len(shape) < len(buffer.shape) or len(strides) < len(buffer.strides):
        return None
    if not strides or 0 in shape:
        return math.prod(shape)
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def _place(
    em: ExprEmitter, buffer: Buffer, indices: tuple[Expr, ...], lanes: int
) -> tuple[Linear, Linear | None, str | None]:
    """Returns the offset of the first lane, the stride between lanes, and a vector of offsets instead for irregular
    lanes."""
    wide_elements = lanes_of(buffer.dtype)
    if wide_elements > 1:  # each element is a vector, its lanes side by side
        offset = linear(em, buffer.elem_offset)
        for index, step in zip(indices, strides_of(buffer), strict=True):
            if lanes_of(index.dtype) > 1:
                raise ValueError(f"a vector index into {buffer.name}, whose elements are vectors ({buffer.dtype})")
            offset = offset.plus(_scaled(em, linear(em, index), step))
        return offset.times(wide_elements), Linear(1), None
    offset, stride = linear(em, buffer.elem_offset), Linear()
    irregular: list[tuple[Expr, Expr]] = []
    for index, step in zip(indices, strides_of(buffer), strict=True):
        ramp = ramp_of(em, index)
        if ramp is None:
            irregular.append((index, step))
            continue
        offset = offset.plus(_scaled(em, ramp[0], step))
        stride = stride.plus(_scaled(em, ramp[1], step))
    if not irregular:
        return offset, stride, None
    flat = flat_lanes(indices, strides_of(buffer))
    if flat is not None:
        start, apart = flat[1][0], flat[1][1] - flat[1][0]
        if all(n == start + k * apart for k, n in enumerate(flat[1])):
            offset = linear(em, buffer.elem_offset).plus(Linear(start))
            for scalar, by in flat[0]:
                offset = offset.plus(_scaled(em, linear(em, scalar), by))
            return offset, Linear(apart), None
    total: str | None = None
    wide = f"<{lanes} x i64>"
    for index, step in irregular:
        term = em.vector_index(index, lanes)
        if not (isinstance(step, IntImm) and step.value == 1):
            factor = em.splat(linear_text(em, linear(em, step)), "int64", lanes)
            term = em.fn.pure(f"mul {wide} {term}, {factor}")
        total = term if total is None else em.fn.pure(f"add {wide} {total}, {term}")
    if stride.terms or stride.const:
        assert total is not None
        total = em.fn.pure(f"add {wide} {total}, {_steps(em, stride, lanes)}")
    return offset, None, total


def _scaled(em: ExprEmitter, lin: Linear, step: Expr) -> Linear:
    if isinstance(step, IntImm):
        return lin.times(step.value)
    factor = linear(em, step)
    if not lin.terms:
        return factor.times(lin.const)
    product = em.fn.pure(f"mul nsw i64 {linear_text(em, lin)}, {linear_text(em, factor)}")
    return Linear(0, {product: 1})


def _pointer(em: ExprEmitter, buffer: Buffer, offset: Linear) -> str:
    """Returns the address of an element. The variable part comes first, then the constant part, which addressing modes
    absorb."""
    fn = em.fn
    element = memory_type(element_of(buffer.dtype))
    pointer = em.base(buffer)
    if offset.terms:
        varying = linear_text(em, Linear(0, offset.terms))
        pointer = fn.pure(f"getelementptr {element}, ptr {pointer}, i64 {varying}")
    if offset.const:
        pointer = fn.pure(f"getelementptr {element}, ptr {pointer}, i64 {offset.const}")
    return pointer


def _steps(em: ExprEmitter, stride: Linear, lanes: int) -> str:
    if not stride.terms:
        return vector_constant([stride.const * n for n in range(lanes)], "i64")
    step = em.splat(linear_text(em, stride), "int64", lanes)
    return em.fn.pure(f"mul <{lanes} x i64> {step}, {vector_constant(list(range(lanes)), 'i64')}")


def _pointers(
    em: ExprEmitter, buffer: Buffer, offset: Linear, stride: Linear | None, vector: str | None, lanes: int
) -> str:
    fn = em.fn
    element = memory_type(element_of(buffer.dtype))
    pointer = _pointer(em, buffer, offset)
    if vector is None:
        assert stride is not None
        if not stride.terms and abs(stride.const) * lanes < 1 << 30:
            steps, type_ = vector_constant([stride.const * n for n in range(lanes)], "i32"), f"<{lanes} x i32>"
        else:
            steps, type_ = _steps(em, stride, lanes), f"<{lanes} x i64>"
    else:
        steps, type_ = vector, f"<{lanes} x i64>"
    return fn.pure(f"getelementptr {element}, ptr {pointer}, {type_} {steps}")
