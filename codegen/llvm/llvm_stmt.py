"""Emits statements: loops with their carried values as phi nodes, branches, parallel regions, scratch memory."""

from __future__ import annotations

from typing import Any

from ...tir.arith import loop_values
from ...tir.buffer import Buffer
from ...tir.dtype import bytes_of, element_of, lanes_of
from ...tir.expr import BufferLoad, Expr, IntImm, Var
from ...tir.node import Node
from ...tir.stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
)
from ...tir.walk import pre_order
from ..lower.nontemporal_stores import ALIGNED, NONTEMPORAL_ATTR
from .function_builder import FunctionBuilder
from .index_arithmetic import Linear, index_text, linear, linear_text
from .llvm_expr import EmitError, ExprEmitter, ModuleParts
from .llvm_types import llvm_type, memory_type
from .loads_stores import constant_elements, elements_of, store, strides_of
from .stack_allocation import REGISTER

OUT_OF_MEMORY = -1
"""The return value when there was no scratch memory."""


class StmtEmitter(ExprEmitter):
    """An emitter of statements as basic blocks of the function under construction."""

    def __init__(self, fn: FunctionBuilder, parts: ModuleParts, target: Any, name: str) -> None:
        ExprEmitter.__init__(self, fn, parts, target)
        self.name = name
        self.in_parallel = False
        self.streaming = 0
        """Whether stores are non-temporal: 1 where the emitter proves that they are aligned, 2 where full vectors are
        known to be."""
        self.streamed = False
        self.failure: str | None = None
        """In a parallel region: the address where the number of a failure is left for the caller. None: the function
        returns it."""
        self.scratch: list[str] = []
        """Blocks of the runtime's memory that are in use here, given back when the function ends early."""
        self.leaving: dict[str, str] = {}
        """For each of these blocks, the label where it and the earlier ones are given back."""
        self.reason: str | None = None
        """The address of the function's return value in the meantime."""
        self._effects: dict[int, tuple[Stmt, frozenset[Buffer], frozenset[Var]]] = {}

    def stmt(self, s: Stmt) -> None:
        """Emit one statement."""
        if isinstance(s, SeqStmt):
            for child in s.seq:
                self.stmt(child)
        elif isinstance(s, BufferStore):
            self.buffer_store(s)
        elif isinstance(s, For):
            self.loop(s)
        elif isinstance(s, IfThenElse):
            self.branch(s)
        elif isinstance(s, While):
            self.while_loop(s)
        elif isinstance(s, LetStmt):
            self.let(s)
        elif isinstance(s, Allocate):
            self.allocate(s)
        elif isinstance(s, AttrStmt):
            outer = self.streaming
            if s.attr_key == NONTEMPORAL_ATTR and isinstance(s.value, IntImm):
                self.streaming = s.value.value
            self.stmt(s.body)
            self.streaming = outer
        elif isinstance(s, Evaluate):
            if not isinstance(s.value, IntImm):
                self.value(s.value)
        elif isinstance(s, AssertStmt):
            self.assertion(s)
        else:
            raise EmitError(f"{type(s).__name__} must be lowered before code is emitted")

    def buffer_store(self, s: BufferStore) -> None:
        """Emit a store to a register value or to memory."""
        value = self.value(s.value)
        if s.buffer.scope == REGISTER:
            self.registers[s.buffer] = value
            return
        lanes = max([lanes_of(i.dtype) for i in s.indices], default=1)
        if lanes > 1 and lanes_of(s.value.dtype) == 1:
            value = self.splat(value, s.value.dtype, lanes)
        dtype = s.buffer.dtype if lanes == 1 else f"{s.buffer.dtype}x{lanes}"
        mask = None if s.predicate is None else self.value(s.predicate)
        store(self, s.buffer, s.indices, value, dtype, mask)

    def let(self, s: LetStmt) -> None:
        """Emit a named value."""
        self.define(s.var, s.value)
        self.stmt(s.body)

    # -- effects ---------------------------------------------------------------------------------------------------

    def effects(self, s: Stmt) -> tuple[frozenset[Buffer], frozenset[Var]]:
        """Return the register values and the data pointers that ``s`` may write."""
        known = self._effects.get(id(s))
        if known is not None:
            return known[1], known[2]
        registers: set[Buffer] = set()
        memory: set[Var] = set()
        for child in s.children():
            if isinstance(child, Stmt):
                r, m = self.effects(child)
                registers |= r
                memory |= m
            elif self.parts.calls_out and isinstance(child, Expr):
                memory |= _called(child)
        if isinstance(s, BufferStore):
            if s.buffer.scope == REGISTER:
                registers.add(s.buffer)
            else:
                memory.add(s.buffer.data)
        found = (s, frozenset(registers), frozenset(memory))
        self._effects[id(s)] = found
        return found[1], found[2]

    def touch(self, data: frozenset[Var]) -> None:
        """Forget earlier loads from these pointers."""
        self._clock += 1
        for var in data:
            self.versions[var] = self._clock

    def carried(self, s: Stmt) -> list[Buffer]:
        """Return the live register values that ``s`` changes, in a fixed order."""
        changed = self.effects(s)[0]
        return [b for b in self.registers if b in changed]

    # -- control ---------------------------------------------------------------------------------------------------

    def loop(self, s: For) -> None:
        """Emit a loop that tests at its end. Register values that it changes become phi nodes."""
        if s.kind == "parallel" and not self.in_parallel and self.target.num_cores > 1:
            if not (isinstance(s.extent, IntImm) and s.extent.value <= 1):
                self.parallel(s)
                return
        low = linear(self, s.min)
        count = linear(self, s.extent)
        if not count.terms and count.const <= 0:
            return
        self.analyzer.bind(s.loop_var, loop_values(s))
        high = linear_text(self, low.plus(count))
        self.run_loop(s, linear_text(self, low), high, bool(count.terms))

    def run_loop(self, s: For, low: str, high: str, may_be_empty: bool) -> None:
        """Emit the blocks of a loop over ``[low, high)``."""
        fn = self.fn
        carried = self.carried(s.body)
        before = {b: self.registers[b] for b in carried}
        touched = self.effects(s.body)[1]
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
        phis = {b: fn.phi(llvm_type(b.dtype), "acc") for b in carried}
        self.vars[s.loop_var] = counter.name
        self.indices.add(s.loop_var)
        for b, phi in phis.items():
            self.registers[b] = phi.name
        self.touch(touched)
        self.stmt(s.body)
        latch = fn.block
        following = fn.emit(f"add nsw i64 {counter.name}, 1")
        again = fn.emit(f"icmp ne i64 {following}, {high}")  # the induction variable started below
        fn.branch_if(again, head, done)
        fn.fill(counter, [(low, start), (following, latch)])
        for b, phi in phis.items():
            fn.fill(phi, [(before[b], start), (self.registers[b], latch)])
        fn.pop()
        fn.label(done)
        self.touch(touched)
        if may_be_empty:
            for b in carried:
                merged = fn.phi(llvm_type(b.dtype), "acc")
                fn.fill(merged, [(before[b], start), (self.registers[b], latch)])
                self.registers[b] = merged.name

    def while_loop(self, s: While) -> None:
        """Emit a loop that tests its condition at its head, where the register values that it changes are phi nodes."""
        fn = self.fn
        carried, touched = self.carried(s), self.effects(s)[1]
        before, start = {b: self.registers[b] for b in carried}, fn.block
        head, body, done = fn.new_label("while"), fn.new_label("turn"), fn.new_label("done")
        fn.branch(head)
        fn.push()
        fn.label(head)
        phis = {b: fn.phi(llvm_type(b.dtype), "kept") for b in carried}
        self.registers.update({b: phi.name for b, phi in phis.items()})
        self.touch(touched)
        fn.branch_if(self.value(s.condition), body, done)
        fn.label(body)
        self.stmt(s.body)
        for b, phi in phis.items():
            fn.fill(phi, [(before[b], start), (self.registers[b], fn.block)])
            self.registers[b] = phi.name
        fn.branch(head)
        fn.pop()
        fn.label(done)
        self.touch(touched)

    def branch(self, s: IfThenElse) -> None:
        """Emit an if. Register values that either branch changes merge in phi nodes."""
        fn = self.fn
        cond = self.value(s.condition)
        if cond in ("true", "false"):
            chosen = s.then_case if cond == "true" else s.else_case
            if chosen is not None:
                self.stmt(chosen)
            return
        carried = self.carried(s)
        before = {b: self.registers[b] for b in carried}
        touched = self.effects(s)[1]
        then, other, done = fn.new_label("then"), fn.new_label("else"), fn.new_label("endif")
        fn.branch_if(cond, then, other)
        ends: list[tuple[dict[Buffer, str], str]] = []
        for label, case in ((then, s.then_case), (other, s.else_case)):
            fn.push()
            fn.label(label)
            self.registers.update(before)
            if case is not None:
                self.stmt(case)
            ends.append(({b: self.registers[b] for b in carried}, fn.block))
            fn.branch(done)
            fn.pop()
        fn.label(done)
        self.touch(touched)
        for b in carried:
            phi = fn.phi(llvm_type(b.dtype), "acc")
            fn.fill(phi, [(values[b], block) for values, block in ends])
            self.registers[b] = phi.name

    def assertion(self, s: AssertStmt) -> None:
        """Emit code that leaves the function with the number of the message when the condition fails."""
        self.check(self.value(s.condition), str(self.parts.assertions[id(s)]))
        self.stmt(s.body)

    def check(self, holds: str, code: str) -> None:
        """Emit code that continues when ``holds``, and otherwise gives scratch memory back and ends with ``code``.

        A parallel region leaves the code to its caller, who reads it when all threads are done (the largest, unsigned,
        when several fail).
        """
        fn = self.fn
        fine, failed = fn.new_label("fine"), fn.new_label("failed")
        fn.branch_if(holds, fine, failed)
        fn.label(failed)
        if self.failure is not None:
            fn.do(f"atomicrmw umax ptr {self.failure}, i32 {code} monotonic, align 4")
        elif self.scratch:
            self.reason = self.reason or fn.alloca(1, "i32")
            fn.do(f"store i32 {code}, ptr {self.reason}, align 4")
        else:
            fn.do(f"ret i32 {code}")
            fn.label(fine)
            return
        self.leave()
        fn.label(fine)

    def leave(self) -> None:
        """Emit code that gives scratch memory back and ends the function. The code for each block is emitted once for
        all failures."""
        fn = self.fn
        for pointer in reversed(self.scratch):
            known = self.leaving.get(pointer)
            if known is not None:
                fn.branch(known)
                return
            label = self.leaving[pointer] = fn.new_label("leave")
            fn.branch(label)
            fn.label(label)
            fn.do(f"call void @tw_free(ptr {pointer})")
        if self.failure is not None:
            fn.do("ret void")
        else:
            fn.do(f"ret i32 {fn.emit(f'load i32, ptr {self.reason}, align 4')}")

    # -- memory ----------------------------------------------------------------------------------------------------

    def allocate(self, s: Allocate) -> None:
        """Emit an allocation. Register values start undefined; arrays are on the stack or in the runtime's scratch
        memory."""
        buffer, fn = s.buffer, self.fn
        if buffer.scope == REGISTER:
            self.registers[buffer] = "poison"
            self.stmt(s.body)
            del self.registers[buffer]
            return
        element, step = memory_type(element_of(buffer.dtype)), bytes_of(buffer.dtype)
        size = constant_elements(buffer)
        if buffer in self.parts.on_stack:
            self.bases[buffer.data] = stack = fn.alloca(max(size or 0, 1) * lanes_of(buffer.dtype), element)
            self.own_memory.add(stack)
            self.stmt(s.body)
            return
        if size is None:
            amount = fn.pure(f"mul i64 {linear_text(self, linear(self, elements_of(buffer)))}, {step}")
        else:
            amount = str(size * step)
        self.parts.declarations.setdefault("tw_alloc", "declare noalias ptr @tw_alloc(i64)")
        self.parts.declarations.setdefault("tw_free", "declare void @tw_free(ptr)")
        pointer = fn.emit(f"call noalias align 64 ptr @tw_alloc(i64 {amount})")
        self.check(fn.emit(f"icmp ne ptr {pointer}, null"), str(OUT_OF_MEMORY))
        self.bases[buffer.data] = pointer
        self.own_memory.add(pointer)
        self.scratch.append(pointer)
        self.stmt(s.body)
        self.scratch.pop()
        fn.do(f"call void @tw_free(ptr {pointer})")

    def store_place(self, buffer: Buffer, offset: Linear, dtype: str) -> tuple[int, str]:
        """Return alignment and metadata of a plain store, which is non-temporal where requested and where the address
        is aligned."""
        align, size = self.alignment(buffer, offset, dtype), bytes_of(dtype)
        whole = min(size, self.target.vector_bits // 8)
        if not self.streaming or lanes_of(dtype) == 1 or whole < 16 or size % whole:
            return align, ""
        if self.streaming != ALIGNED and align % whole:
            return align, ""
        self.streamed = True
        self.parts.metadata.setdefault("nontemporal", "!{i32 1}")
        return whole, ", !nontemporal !0"

    def order_nontemporal_stores(self) -> None:
        """Emit the fence that orders non-temporal stores with all others before the function ends."""
        if self.streamed and self.target.arch == "x86_64":
            self.fn.do(self.intrinsic("llvm.x86.sse.sfence", "void", [], []))

    # -- parallel regions ------------------------------------------------------------------------------------------

    def parallel(self, s: For) -> None:
        """Emit a parallel loop. Its body becomes a function that the runtime's pool calls with parts of the range."""
        fn, parts = self.fn, self.parts
        parts.outlined += 1
        name = f"{self.name}_region{parts.outlined}"
        variables, pointers = self.captures(s)
        slots: list[tuple[str, str]] = [("ptr", self.bases[d]) for d in pointers]
        for var in variables:
            slots.append(("i64" if var in self.indices else llvm_type(var.dtype), self.vars[var]))
        low = index_text(self, s.min)
        slots.append(("i64", low))
        failure = fn.alloca(1, "i32") if _can_fail(s.body, self.parts.on_stack) else None
        if failure is not None:
            fn.do(f"store i32 0, ptr {failure}, align 4")
            slots.append(("ptr", failure))
        context = fn.alloca(len(slots), "i64")
        for n, (type_, text) in enumerate(slots):
            place = fn.pure(f"getelementptr i64, ptr {context}, i64 {n}")
            fn.do(f"store {type_} {text}, ptr {place}, align 8")
        parts.declarations.setdefault("tw_parallel_for", "declare void @tw_parallel_for(ptr, ptr, i64, i32)")
        extent = index_text(self, s.extent)
        fn.do(f"call void @tw_parallel_for(ptr @{name}, ptr {context}, i64 {extent}, i32 {self.target.num_cores})")
        parts.functions.append(self.region_entry(name, [t for t, _ in slots]))
        parts.functions.append(self.region_body(name, s, variables, pointers, failure is not None))
        self.touch(self.effects(s.body)[1])
        if failure is not None:
            code = fn.emit(f"load i32, ptr {failure}, align 4")
            self.check(fn.emit(f"icmp eq i32 {code}, 0"), code)

    def captures(self, s: For) -> tuple[list[Var], list[Var]]:
        """Return the outer variables and data pointers that the loop uses, in order of first use."""
        variables: dict[Var, None] = {}
        pointers: dict[Var, None] = {}

        def see(node: Node) -> None:
            for n in pre_order(node):
                if isinstance(n, Var) and n in self.vars:
                    variables.setdefault(n)
                elif isinstance(n, Var) and n in self.bases:
                    pointers.setdefault(n)
                buffer = getattr(n, "buffer", None)
                if isinstance(buffer, Buffer) and buffer.data in self.bases:
                    if buffer.data not in pointers:
                        pointers.setdefault(buffer.data)
                        for e in (*buffer.shape, *strides_of(buffer), buffer.elem_offset):
                            see(e)
                elif isinstance(buffer, Buffer) and isinstance(n, Allocate):
                    for e in buffer.shape:
                        see(e)
                if isinstance(n, BufferLoad) and n.buffer in self.registers:
                    raise EmitError(f"the register value {n.buffer.name} crosses a parallel loop")

        see(s.body)
        return list(variables), list(pointers)

    def region_entry(self, name: str, types: list[str]) -> str:
        """Emit the function that the pool calls, which reads the context."""
        fn = FunctionBuilder(f"define internal void @{name}(ptr %ctx, i64 %begin, i64 %end) nounwind")
        args = []
        for n, type_ in enumerate(types):
            place = fn.emit(f"getelementptr i64, ptr %ctx, i64 {n}")
            args.append(f"{type_} {fn.emit(f'load {type_}, ptr {place}, align 8')}")
        fn.do(f"call void @{name}_body({', '.join([*args, 'i64 %begin', 'i64 %end'])})")
        fn.do("ret void")
        return fn.text()

    def region_body(self, name: str, s: For, variables: list[Var], pointers: list[Var], can_fail: bool) -> str:
        """Emit the loop over a part of the range, with its pointers known not to alias."""
        params = [f"ptr noalias %p{n}" for n in range(len(pointers))]
        for n, var in enumerate(variables):
            params.append(f"{'i64' if var in self.indices else llvm_type(var.dtype)} %x{n}")
        params += ["i64 %low", *(["ptr %failure"] if can_fail else []), "i64 %begin", "i64 %end"]
        fn = FunctionBuilder(
            f"define internal void @{name}_body({', '.join(params)}) noinline nounwind {self.target.llvm_attributes}"
        )
        em = StmtEmitter(fn, self.parts, self.target, self.name)
        em.in_parallel = True
        em.streaming = self.streaming
        em.failure = "%failure" if can_fail else None
        em.analyzer, em.meanings = self.analyzer, self.meanings
        em.bases = {data: f"%p{n}" for n, data in enumerate(pointers)}
        em.own_memory = {f"%p{n}" for n, data in enumerate(pointers) if self.bases[data] in self.own_memory}
        em.vars = {var: f"%x{n}" for n, var in enumerate(variables)}
        em.indices = {v for v in variables if v in self.indices}
        em.analyzer.bind(s.loop_var, loop_values(s))
        first = fn.emit("add i64 %low, %begin")
        last = fn.emit("add i64 %low, %end")
        em.run_loop(s, first, last, True)
        em.order_nontemporal_stores()
        fn.do("ret void")
        return fn.text()


_POINTER_CALLS = ("tir.address_of", "tir.call_extern", "tir.call_llvm_intrin", "tir.tvm_access_ptr")


def _called(e: Expr) -> set[Var]:
    """Returns the data pointers through which calls inside an expression may write."""
    out: set[Var] = set()
    for n in pre_order(e, lambda n: getattr(n, "op", "") not in ("tir.prefetch", "tir.misaligned", "tir.tile_load")):
        if getattr(n, "op", "") in _POINTER_CALLS:
            for inner in pre_order(n):
                if isinstance(inner, BufferLoad):
                    out.add(inner.buffer.data)
                elif isinstance(inner, Var) and inner.dtype == "handle":
                    out.add(inner)
    return out


def _can_fail(body: Stmt, on_stack: frozenset[Buffer]) -> bool:
    """Returns whether a statement holds assertions, or scratch memory that the runtime may refuse."""
    return any(
        isinstance(n, AssertStmt)
        or (isinstance(n, Allocate) and n.buffer.scope != REGISTER and n.buffer not in on_stack)
        for n in pre_order(body, lambda n: not isinstance(n, Expr))
    )


def _clean(name: str) -> str:
    """Returns a variable's name as part of an LLVM name."""
    return "".join(ch if ch.isalnum() else "_" for ch in name) or "i"
