"""Emits assertions and scratch memory: what may end a function early, and gives the memory back then."""

from __future__ import annotations

from collections.abc import Sequence

from ...tir.expr import IntImm, product
from ...tir.stmt import AssertStmt, Buffer
from ..backend.storage import elements_of
from ..lowered import NULL_ARRAY, OUT_OF_MEMORY, Param
from .llvm_scope import LlvmScope


def assertion(em: LlvmScope, holds: str, s: AssertStmt, number: int) -> None:
    """Emit code that leaves the function with the number of the message when the condition fails."""
    check(em, holds, str(number))


def check(em: LlvmScope, holds: str, code: str) -> None:
    """Emit code that continues when ``holds``, and otherwise gives scratch memory back and ends with ``code``.

    A parallel region leaves the code to its caller, who reads it when all threads are done (the largest, unsigned,
    when several fail).
    """
    fn = em.fn
    fine, failed = fn.new_label("fine"), fn.new_label("failed")
    fn.branch_if(holds, fine, failed)
    fn.label(failed)
    if em.failure is not None:
        fn.do(f"atomicrmw umax ptr {em.failure}, i32 {code} monotonic, align 4")
    elif em.scratch:
        em.reason = em.reason or fn.alloca(1, "i32")
        fn.do(f"store i32 {code}, ptr {em.reason}, align 4")
    else:
        fn.do(f"ret i32 {code}")
        fn.label(fine)
        return
    _leave(em)
    fn.label(fine)


def _leave(em: LlvmScope) -> None:
    """Emit code that gives scratch memory back and ends the function. The code for each block is emitted once for all
    failures."""
    fn = em.fn
    for pointer in reversed(em.scratch):
        known = em.leaving.get(pointer)
        if known is not None:
            fn.branch(known)
            return
        label = em.leaving[pointer] = fn.new_label("leave")
        fn.branch(label)
        fn.label(label)
        free(em, pointer)
    if em.failure is not None:
        fn.do("ret void")
    else:
        fn.do(f"ret i32 {fn.emit(f'load i32, ptr {em.reason}, align 4')}")


def scratch_memory(em: LlvmScope, buffer: Buffer, elements: int | None) -> str:
    """Returns the address of the runtime's memory; the function fails when there is none."""
    fn, step = em.fn, buffer.dtype.bytes
    if elements is None:
        amount = fn.pure(f"mul i64 {em.index(elements_of(buffer))}, {step}")
    else:
        amount = str(elements * step)
    fn.declarations.setdefault("tw_alloc", "declare noalias ptr @tw_alloc(i64)")
    fn.declarations.setdefault("tw_free", "declare void @tw_free(ptr)")
    pointer = fn.emit(f"call noalias align 64 ptr @tw_alloc(i64 {amount})")
    check(em, fn.emit(f"icmp ne ptr {pointer}, null"), str(OUT_OF_MEMORY))
    em.own_memory.add(pointer)
    return pointer


def free(em: LlvmScope, pointer: str) -> None:
    """Give the runtime's memory back."""
    em.fn.do(f"call void @tw_free(ptr {pointer})")


def check_arrays(em: LlvmScope, params: Sequence[Param]) -> None:
    """Emit code that ends the function when an array that has elements is NULL."""
    fn = em.fn
    fine: str | None = None
    for n, p in enumerate(params):
        if p.buffer is None:
            continue
        elements = product(p.buffer.shape)
        if isinstance(elements, IntImm) and elements.value == 0:
            continue
        given = fn.emit(f"icmp ne ptr %a{n}, null")
        if not isinstance(elements, IntImm):
            given = fn.emit(f"or i1 {given}, {fn.emit(f'icmp eq i64 {em.index(elements)}, 0')}")
        fine = given if fine is None else fn.emit(f"and i1 {fine}, {given}")
    if fine is not None:
        check(em, fine, str(NULL_ARRAY))
