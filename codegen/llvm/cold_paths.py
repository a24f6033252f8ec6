"""Emits choices with a likely condition: the usual value inline, the other one by a call of a cold function."""

from __future__ import annotations

from collections.abc import Callable

from ...tir.expr import BufferLoad, Call, Expr, Var
from ...tir.walk import free_vars, pre_order
from ..math.trig import large_argument_path
from .function_builder import FunctionBuilder
from .llvm_scope import LlvmScope
from .llvm_types import llvm_type


def _is_likely(e: Call) -> bool:
    """Returns whether an ``if_then_else`` has a likely condition and no branch that reads memory."""
    cond, *sides = e.args
    usual = isinstance(cond, Call) and cond.op == "tir.likely"
    return usual and not any(isinstance(n, BufferLoad) for side in sides for n in pre_order(side))


def _emit_likely(em: LlvmScope, e: Call) -> str:
    """Returns ``yes`` in the lanes where the condition holds. ``no`` is computed only when it does not hold in all of
    them."""
    cond, yes, no = e.args
    fn, type_, bools = em.fn, llvm_type(e.dtype), llvm_type(cond.dtype)
    usual, test = em.value(yes), em.value(cond)
    every, lanes = test, cond.dtype.lanes
    if lanes > 1:
        every = fn.pure(fn.intrinsic(f"llvm.vector.reduce.and.v{lanes}i1", "i1", [bools], [test]))
    every = fn.pure(fn.intrinsic("llvm.expect.i1", "i1", ["i1", "i1"], [every, "true"]))
    far = _call_outlined(em, no)
    start, rare, done = fn.block, fn.new_label("rare"), fn.new_label("chosen")
    fn.branch_if(every, done, rare)
    fn.push()
    fn.label(rare)
    other = fn.emit(far)
    mixed = fn.emit(f"select {bools} {test}, {type_} {usual}, {type_} {other}") if lanes > 1 else other
    fn.branch(done)
    fn.pop()
    fn.label(done)
    phi = fn.phi(type_)
    fn.fill(phi, [(usual, start), (mixed, rare)])
    return phi.name


def _call_outlined(em: LlvmScope, e: Expr) -> str:
    """Returns the call of a function that computes ``e``. Expressions with the same text share one function.

    Where the target has fused operations, a sine, cosine or tangent becomes the computation for large arguments, which
    replaces the call of the library.
    """
    if isinstance(e, Call) and em.target.has_fma:
        far = large_argument_path(e)
        e = e if far is None else far
    free = free_vars(e)
    captured: list[Var] = []
    for n in pre_order(e):
        if isinstance(n, Var) and n in free and n not in captured:
            captured.append(n)
    passed = ", ".join(f"{llvm_type(v.dtype)} {em.variable(v)}" for v in captured)
    params = ", ".join(f"{llvm_type(v.dtype)} %p{k}" for k, v in enumerate(captured))
    type_ = llvm_type(e.dtype)
    inner = FunctionBuilder(f"({params}) noinline cold nounwind {em.target.llvm_attributes}", em.unit.declarations)
    outer = em.fn, em.vars, em.indices
    em.fn, em.vars, em.indices = inner, {v: f"%p{k}" for k, v in enumerate(captured)}, set()
    try:
        inner.do(f"ret {type_} {em.value(e)}")
    finally:
        em.fn, em.vars, em.indices = outer
    return f"call {type_} @{em.unit.outline(type_, 'rare', inner.text())}({passed})"


def likely_choices(usual: Callable[[LlvmScope, Call], str]) -> dict[str, Callable[[LlvmScope, Call], str]]:
    """Returns the row of choices for a table of calls; ``usual`` emits those without a likely condition."""
    return {"if_then_else": lambda em, e: _emit_likely(em, e) if _is_likely(e) else usual(em, e)}
