"""Emits loops with their carried values as phi nodes, branches, and memory on the stack."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...tir.analysis.simplify import loop_values
from ...tir.expr import IntImm
from ...tir.stmt import AttrStmt, Buffer, For, IfThenElse, Stmt
from ..lowered import NONTEMPORAL_ATTR
from .function_builder import Phi
from .linear_sums import sum_text
from .llvm_types import llvm_type, memory_type

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
