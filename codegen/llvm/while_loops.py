"""Emits loops that test a condition."""

from __future__ import annotations

from ...tir.stmt import While
from .llvm_scope import LlvmScope
from .llvm_stmt import carried_values, value_phis


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
