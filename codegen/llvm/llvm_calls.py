"""Emits calls that need no instruction of their own: choices, hints, and values read as another type."""

from __future__ import annotations

from collections.abc import Callable

from ...tir.expr import BufferLoad, Call
from ...tir.walk import pre_order
from .llvm_scope import LlvmScope


def _reinterpret(em: LlvmScope, e: Call) -> str:
    (arg,) = e.args
    if em.type(arg) == em.type(e):
        return em.value(arg)
    return em.fn.pure(f"bitcast {em.type(arg)} {em.value(arg)} to {em.type(e)}")


def if_then_else(em: LlvmScope, e: Call) -> str:
    """Returns the chosen value. Only the chosen branch is evaluated, unless neither reads memory."""
    cond, yes, no = e.args
    fn = em.fn
    if not any(isinstance(n, (BufferLoad, Call)) for side in (yes, no) for n in pre_order(side)):
        texts = em.values((yes, no))
        return em.choice(em.value(cond), texts[0], texts[1], e.dtype, cond.dtype)
    then, other, done = fn.new_label("then"), fn.new_label("else"), fn.new_label("chosen")
    fn.branch_if(em.value(cond), then, other)
    results = []
    for label, side in ((then, yes), (other, no)):
        fn.push()
        fn.label(label)
        results.append((em.value(side), fn.block))
        fn.branch(done)
        fn.pop()
    fn.label(done)
    phi = fn.phi(em.type(e))
    fn.fill(phi, results)
    return phi.name


PLAIN_CALLS: dict[str, Callable[[LlvmScope, Call], str]] = {
    "if_then_else": if_then_else,
    "likely": lambda em, e: em.value(e.args[0]),
    "reinterpret": _reinterpret,
}
"""Emitters by the operation's name."""
