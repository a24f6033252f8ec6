"""Emits statements: loops with carried values, branches, stack and scratch memory, assertions, and loops that run in
parallel."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...tir.analysis.simplify import loop_values
from ...tir.expr import IntImm, Var, product
from ...tir.stmt import AssertStmt, AttrStmt, Buffer, For, IfThenElse, SeqStmt, Stmt, While
from ..backend.analyses import asserts, captured, needs_scratch
from ..backend.emitter import elements_of
from ..lowered import (
    MISALIGNED,
    MOST_BYTES,
    NONTEMPORAL_ATTR,
    NULL_ARRAY,
    OUT_OF_MEMORY,
    WRONG_SIZE,
    Param,
    counted_extents,
    natural_alignment,
)
from .function_builder import FunctionBuilder, Phi, llvm_type, memory_type, sum_text
from .llvm_scope import LlvmScope

if TYPE_CHECKING:
    from .llvm_scope import LlvmScope


def attribute(em: LlvmScope, s: AttrStmt) -> None:
    """Emit a statement with an attribute: stores in it may be non-temporal."""
    outer = em.streaming
    if s.attr_key == NONTEMPORAL_ATTR and isinstance(s.value, IntImm):
        em.streaming = s.value.value
    em.stmt(s.body)
    em.streaming = outer


def serial_loop(em: LlvmScope, s: For) -> None:
    """Emit a loop that tests at its end. Register values that it changes become phi nodes."""
    low, count = em.linear(s.min), em.linear(s.extent)
    if not count.terms and count.const <= 0:
        return
    em.analyzer.bind(s.loop_var, loop_values(s))
    high = sum_text(low.plus(count), em.fn)
    run_loop(em, s, sum_text(low, em.fn), high, bool(count.terms))


def run_loop(em: LlvmScope, s: For, low: str, high: str, may_be_empty: bool) -> None:
    """Emit the blocks of a loop over ``[low, high)``."""
    fn = em.fn
    before = carried_values(em, s.body)
    touched = em.unit.effects.of(s.body)[1]
    head, done = fn.new_label("loop"), fn.new_label("done")
    if may_be_empty:
        some = fn.pure(f"icmp slt i64 {low}, {high}")
        start = fn.block
        fn.branch_if(some, head, done)
    else:
        start = fn.block
        fn.branch(head)
    fn.push()
    fn.label(head)
    counter = fn.phi("i64", _clean(s.loop_var.name))
    phis = value_phis(em, before, "acc")
    em.vars[s.loop_var] = counter.name
    em.indices.add(s.loop_var)
    em.places[s.loop_var] = fn.place()
    em.touch(*touched)
    em.stmt(s.body)
    latch = fn.block
    following = fn.emit(f"add nsw i64 {counter.name}, 1")
    again = fn.emit(f"icmp ne i64 {following}, {high}")  # the induction variable started below
    fn.branch_if(again, head, done)
    fn.fill(counter, [(low, start), (following, latch)])
    for b, phi in phis.items():
        fn.fill(phi, [(before[b], start), (em.registers[b], latch)])
    fn.pop()
    fn.label(done)
    em.touch(*touched)
    if may_be_empty:
        _merge(em, [(before, start), ({b: em.registers[b] for b in before}, latch)])


def branch(em: LlvmScope, s: IfThenElse) -> None:
    """Emit an if. Register values that either branch changes merge in phi nodes."""
    fn = em.fn
    cond = em.value(s.condition)
    if cond in ("true", "false"):
        chosen = s.then_case if cond == "true" else s.else_case
        if chosen is not None:
            em.stmt(chosen)
        return
    before, touched = carried_values(em, s), em.unit.effects.of(s)[1]
    then, other, done = fn.new_label("then"), fn.new_label("else"), fn.new_label("endif")
    fn.branch_if(cond, then, other)
    ends: list[tuple[dict[Buffer, str], str]] = []
    for label, case in ((then, s.then_case), (other, s.else_case)):
        fn.push()
        fn.label(label)
        em.registers.update(before)
        if case is not None:
            em.stmt(case)
        ends.append(({b: em.registers[b] for b in before}, fn.block))
        fn.branch(done)
        fn.pop()
    fn.label(done)
    em.touch(*touched)
    _merge(em, ends)


# -- register values in loops and branches ---------------------------------------------------------------------------------


def carried_values(em: LlvmScope, s: Stmt) -> dict[Buffer, str]:
    """Returns the live register values that ``s`` changes, in a fixed order, with their values before it."""
    changed = em.unit.effects.of(s)[0]
    return {b: value for b, value in em.registers.items() if b in changed}


def value_phis(em: LlvmScope, before: dict[Buffer, str], hint: str) -> dict[Buffer, Phi]:
    """Returns a phi node for each register value, which is its value from here on."""
    phis = {b: em.fn.phi(llvm_type(b.dtype), hint) for b in before}
    em.registers.update({b: phi.name for b, phi in phis.items()})
    return phis


def _merge(em: LlvmScope, ends: list[tuple[dict[Buffer, str], str]]) -> None:
    """Give each register value the one that it has at the end of the block from which control comes."""
    for b in ends[0][0]:
        phi = em.fn.phi(llvm_type(b.dtype), "acc")
        em.fn.fill(phi, [(values[b], block) for values, block in ends])
        em.registers[b] = phi.name


def stack_memory(em: LlvmScope, buffer: Buffer, elements: int) -> str:
    """Returns the address of memory on the stack."""
    stack = em.fn.alloca(elements, memory_type(buffer.dtype.element))
    em.own_memory.add(stack)
    return stack


def _clean(name: str) -> str:
    """Returns a variable's name as part of an LLVM name."""
    return "".join(ch if ch.isalnum() else "_" for ch in name) or "i"


# Emits long sequences of loop nests, each as a function of its own.

_MANY_NESTS = 48
"""From so many loop nests on each is a function: LLVM's time for machine code grows faster than the size of a function."""


def sequence(em: LlvmScope, s: SeqStmt) -> None:
    """Emit statements one after the other."""
    many = sum(isinstance(child, For) for child in s.seq) >= _MANY_NESTS
    for child in s.seq:
        if many and isinstance(child, For) and child.kind == "serial" and not em.registers:
            _nest_apart(em, child)
        else:
            em.stmt(child)


def _nest_apart(em: LlvmScope, s: For) -> None:
    """Emit the call of a function that has a loop nest, and the function."""
    fn, unit = em.fn, em.unit
    unit.outlined += 1
    name = f"{unit.name}_nest{unit.outlined}"
    variables, pointers = captured(em, s)
    can_fail = asserts(s) or needs_scratch(s, unit.on_stack)
    params = [f"ptr noalias %p{n}" for n in range(len(pointers))]
    params += [f"{_kept_type(em, var)} %x{n}" for n, var in enumerate(variables)]
    type_ = "i32" if can_fail else "void"
    header = f"define internal {type_} @{name}({', '.join(params)}) noinline nounwind {em.target.llvm_attributes}"
    inner = _inside(em, unit.builder(header, name, fn), variables, pointers)
    inner.in_parallel = em.in_parallel
    inner.stmt(s)
    inner.order_nontemporal_stores()
    inner.fn.do("ret i32 0" if can_fail else "ret void")
    unit.functions.append(inner.fn.text())
    given = [f"ptr {em.bases[data]}" for data in pointers]
    given += [f"{_kept_type(em, var)} {em.vars[var]}" for var in variables]
    call = f"call {type_} @{name}({', '.join(given)})"
    if can_fail:
        code = fn.emit(call)
        em.check(fn.emit(f"icmp eq i32 {code}, 0"), code)
    else:
        fn.do(call)
    em.touch(*unit.effects.of(s)[1])


def _inside(outer: LlvmScope, fn: FunctionBuilder, variables: Sequence[Var], pointers: Sequence[Var]) -> LlvmScope:
    """Returns the emitter of a function that ``outer`` gives pointers (``%p0``, ``%p1``, …) and values (``%x0``, …)."""
    em = type(outer)(outer.unit, fn)
    em.streaming = outer.streaming
    em.analyzer, em.meanings = outer.analyzer, outer.meanings
    em.bases = {data: f"%p{n}" for n, data in enumerate(pointers)}
    em.own_memory = {f"%p{n}" for n, data in enumerate(pointers) if outer.bases[data] in outer.own_memory}
    em.vars = {var: f"%x{n}" for n, var in enumerate(variables)}
    em.indices = {v for v in variables if v in outer.indices}
    return em


# Emits loops that test a condition.


def while_loop(em: LlvmScope, s: While) -> None:
    """Emit a loop that tests its condition at its head, where the register values that it changes are phi nodes."""
    fn, touched = em.fn, em.unit.effects.of(s)[1]
    before, start = carried_values(em, s), fn.block
    head, body, done = fn.new_label("while"), fn.new_label("turn"), fn.new_label("done")
    fn.branch(head)
    fn.push()
    fn.label(head)
    phis = value_phis(em, before, "kept")
    em.touch(*touched)
    fn.branch_if(em.value(s.condition), body, done)
    fn.label(body)
    em.stmt(s.body)
    for b, phi in phis.items():
        fn.fill(phi, [(before[b], start), (em.registers[b], fn.block)])
        em.registers[b] = phi.name
    fn.branch(head)
    fn.pop()
    fn.label(done)
    em.touch(*touched)


# Emits parallel loops: the body becomes a function that the runtime's pool calls with parts of the range.


def parallel_loop(em: LlvmScope, s: For) -> None:
    """Emit a parallel loop. What its body uses from outside is passed through a structure on the stack."""
    fn, unit = em.fn, em.unit
    unit.outlined += 1
    name = f"{unit.name}_region{unit.outlined}"
    variables, pointers = captured(em, s.body)
    slots: list[tuple[str, str]] = [("ptr", em.bases[d]) for d in pointers]
    slots += [(_kept_type(em, var), em.vars[var]) for var in variables]
    slots.append(("i64", em.index(s.min)))
    failure = fn.alloca(1, "i32") if asserts(s.body) or needs_scratch(s.body, unit.on_stack) else None
    if failure is not None:
        fn.do(f"store i32 0, ptr {failure}, align 4")
        slots.append(("ptr", failure))
    context = fn.alloca(len(slots), "i64")
    for n, (type_, text) in enumerate(slots):
        place = fn.pure(f"getelementptr i64, ptr {context}, i64 {n}")
        fn.do(f"store {type_} {text}, ptr {place}, align 8")
    fn.declarations.setdefault("tw_parallel_for", "declare void @tw_parallel_for(ptr, ptr, i64, i32)")
    extent = em.index(s.extent)
    fn.do(f"call void @tw_parallel_for(ptr @{name}, ptr {context}, i64 {extent}, i32 {em.target.num_cores})")
    unit.functions.append(_region_entry(em, name, [t for t, _ in slots]))
    unit.functions.append(_region_body(em, name, s, variables, pointers, failure is not None))
    em.touch(*unit.effects.of(s.body)[1])
    if failure is not None:
        code = fn.emit(f"load i32, ptr {failure}, align 4")
        em.check(fn.emit(f"icmp eq i32 {code}, 0"), code)


def _kept_type(em: LlvmScope, var: Var) -> str:
    return "i64" if var in em.indices else llvm_type(var.dtype)


def _region_entry(em: LlvmScope, name: str, types: list[str]) -> str:
    """Returns the function that the pool calls, which reads the structure."""
    header = f"define internal void @{name}(ptr %ctx, i64 %begin, i64 %end) nounwind"
    fn = em.unit.builder(header, name, em.fn)
    args = []
    for n, type_ in enumerate(types):
        place = fn.emit(f"getelementptr i64, ptr %ctx, i64 {n}")
        args.append(f"{type_} {fn.emit(f'load {type_}, ptr {place}, align 8')}")
    fn.do(f"call void @{name}_body({', '.join([*args, 'i64 %begin', 'i64 %end'])})")
    fn.do("ret void")
    return fn.text()


def _region_body(outer: LlvmScope, name: str, s: For, variables: list[Var], pointers: list[Var], can_fail: bool) -> str:
    """Returns the loop over a part of the range, with its pointers known not to alias."""
    params = [f"ptr noalias %p{n}" for n in range(len(pointers))]
    params += [f"{_kept_type(outer, var)} %x{n}" for n, var in enumerate(variables)]
    params += ["i64 %low", *(["ptr %failure"] if can_fail else []), "i64 %begin", "i64 %end"]
    attributes = outer.target.llvm_attributes
    header = f"define internal void @{name}_body({', '.join(params)}) noinline nounwind {attributes}"
    fn = outer.unit.builder(header, f"{name}_body", outer.fn)
    em = _inside(outer, fn, variables, pointers)
    em.in_parallel = True
    em.failure = "%failure" if can_fail else None
    em.analyzer.bind(s.loop_var, loop_values(s))
    first = fn.emit("add i64 %low, %begin")
    last = fn.emit("add i64 %low, %end")
    em.run_loop(s, first, last, True)
    em.order_nontemporal_stores()
    fn.do("ret void")
    return fn.text()


# Emits assertions and scratch memory: what may end a function early, and gives the memory back then.


def assertion(em: LlvmScope, holds: str, s: AssertStmt, number: int) -> None:
    """Emit code that leaves the function with the number of the message when the condition fails."""
    em.check(holds, str(number))


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
    """Emit code that ends the function for sizes that cannot be. They also look for arrays that have elements but are
    NULL, or are not aligned to them."""
    fn = em.fn

    def every(tests: Sequence[str], code: int) -> None:
        fine = ""
        for test in tests:
            fine = fn.emit(f"and i1 {fine}, {test}") if fine else test
        if fine:
            check(em, fine, str(code))

    counted = counted_extents(params)
    every([fn.emit(f"icmp ult i64 {em.index(e)}, {most + 1}") for e, most in counted.alone], WRONG_SIZE)
    whole = []
    for extents, per in counted.together:
        total = f"0x{struct.pack('>d', float(per)).hex().upper()}"
        for e in extents:
            total = fn.emit(f"fmul double {total}, {fn.emit(f'sitofp i64 {em.index(e)} to double')}")
        whole.append(fn.emit(f"fcmp ole double {total}, {float(MOST_BYTES):e}"))
    every(whole, WRONG_SIZE)
    given: list[str] = []
    aligned: list[str] = []
    for n, p in enumerate(params):
        if p.buffer is None:
            continue
        elements = product(p.buffer.shape)
        if isinstance(elements, IntImm) and elements.value == 0:
            continue
        empty = "" if isinstance(elements, IntImm) else fn.emit(f"icmp eq i64 {em.index(elements)}, 0")
        tests = [(given, fn.emit(f"icmp ne ptr %a{n}, null"))]
        step = natural_alignment(p)
        if step > 1:
            low = fn.emit(f"and i64 {fn.emit(f'ptrtoint ptr %a{n} to i64')}, {step - 1}")
            tests.append((aligned, fn.emit(f"icmp eq i64 {low}, 0")))
        for kept, test in tests:
            kept.append(fn.emit(f"or i1 {test}, {empty}") if empty else test)
    every(given, NULL_ARRAY)
    every(aligned, MISALIGNED)
