"""Emits parallel loops: the body becomes a function that the runtime's pool calls with parts of the range."""

from __future__ import annotations

from ...tir.analysis.simplify import loop_values
from ...tir.expr import Var
from ...tir.stmt import For
from ..backend.captures import asserts, captured, needs_scratch
from .llvm_scope import LlvmScope
from .llvm_types import llvm_type


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
    em = type(outer)(outer.unit, fn)
    em.in_parallel = True
    em.streaming = outer.streaming
    em.failure = "%failure" if can_fail else None
    em.analyzer, em.meanings = outer.analyzer, outer.meanings
    em.bases = {data: f"%p{n}" for n, data in enumerate(pointers)}
    em.own_memory = {f"%p{n}" for n, data in enumerate(pointers) if outer.bases[data] in outer.own_memory}
    em.vars = {var: f"%x{n}" for n, var in enumerate(variables)}
    em.indices = {v for v in variables if v in outer.indices}
    em.analyzer.bind(s.loop_var, loop_values(s))
    first = fn.emit("add i64 %low, %begin")
    last = fn.emit("add i64 %low, %end")
    em.run_loop(s, first, last, True)
    em.order_nontemporal_stores()
    fn.do("ret void")
    return fn.text()
