"""Writes a C source file for lowered functions: statements and functions."""

from __future__ import annotations

from collections.abc import Sequence

from ...tir.deep_recursion import with_room
from ...tir.dtype import bytes_of, element_of, is_bool, lanes_of
from ...tir.expr import Broadcast, BufferLoad, Call, Expr, IntImm
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
from ..backend.storage import constant_elements, elements_of, stack_buffers
from ..lower.promote_registers import REGISTER_SCOPE as REGISTER
from ..lowered import LoweredFunc
from .c_expr import CExprs, element
from .c_header import c_names, c_prototype
from .inline_functions import CEmitError, Helpers, scalar_type

_HEAD = """/* Made by Tilewright. Needs GCC 12 or Clang 14 and, for parallel loops, -fopenmp (they run serially without).
   Compile with -O3 and -march=…; link with -lm. float16 and bfloat16 are uint16_t bits. Multiply-adds of vectors are
   left to the compiler to fuse, which GCC and Clang do unless -ffp-contract=off forbids it. */
#define _GNU_SOURCE
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wpsabi"
#endif
"""


@with_room
def emit_c(functions: Sequence[LoweredFunc]) -> str:
    """Return the source of ``functions``, each with the C signature that its header declares.

    Raises :class:`CEmitError` for constructs without a form in C: vectors whose number of lanes is not a power of two.
    """
    helpers = Helpers()
    bodies = []
    for func in functions:
        writer = _Writer(helpers, func)
        bodies.append(f"{c_prototype(func, restrict=True)} {{\n{writer.text()}  return 0;\n}}\n")
    return "\n".join([_HEAD, helpers.text(), "", *bodies])


class _Writer:
    """A writer of one function's body."""

    def __init__(self, helpers: Helpers, func: LoweredFunc) -> None:
        self.func = func
        self.helpers = helpers
        self.exprs = CExprs(helpers)
        self.on_stack = stack_buffers(func.func.body)
        self.lines: list[str] = []
        self.depth = 1
        self.asserts = 0
        self.in_parallel = False
        self.regions = 0
        self.scratch: list[str] = []
        """The heap memory in use here, which is freed when the function ends early."""
        self.outside = 0
        """The number of these blocks that were allocated outside the parallel loop."""
        names = c_names(func.params)
        self.exprs.taken.update(names)
        for p, name in zip(func.params, names, strict=True):
            self.exprs.names[p.buffer.data if p.buffer is not None else p.var] = name
            if p.kind == "size":
                self.exprs.indices.add(p.var)

    def text(self) -> str:
        """Return the statements."""
        self.stmt(self.func.func.body)
        return "".join(f"{line}\n" for line in self.lines)

    def put(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def block(self, head: str, body: Stmt) -> None:
        self.put(f"{head} {{")
        self.depth += 1
        self.stmt(body)
        self.depth -= 1
        self.put("}")

    def stmt(self, s: Stmt) -> None:
        """Write one statement."""
        value = self.exprs.value
        if isinstance(s, SeqStmt):
            for child in s.seq:
                self.stmt(child)
        elif isinstance(s, BufferStore):
            self.store(s)
        elif isinstance(s, For):
            self.loop(s)
        elif isinstance(s, IfThenElse):
            self.block(f"if ({value(s.condition)})", s.then_case)
            if s.else_case is not None:
                self.block("else", s.else_case)
        elif isinstance(s, While):
            self.block(f"while ({value(s.condition)})", s.body)
        elif isinstance(s, LetStmt):
            text = value(s.value)
            kind = self.exprs.let_type(s.var, s.value)
            self.put(f"const {kind} {self.exprs.name(s.var, s.var.name)} = {text};")
            self.stmt(s.body)
        elif isinstance(s, Allocate):
            self.allocate(s)
        elif isinstance(s, AttrStmt):
            self.stmt(s.body)
        elif isinstance(s, Evaluate):
            if not isinstance(s.value, IntImm):
                self.put(f"{value(s.value)};")
        elif isinstance(s, AssertStmt):
            self.assertion(s)
        else:
            raise CEmitError(f"{type(s).__name__} must be lowered before C is written")

    def assertion(self, s: AssertStmt) -> None:
        """Leave the function with the number of the message. A parallel loop ends its iteration and keeps the largest
        number."""
        self.asserts += 1
        self.put(f"if (!{self.exprs.value(s.condition)}) {{ /* {s.message.replace('*/', '* /')} */")
        self.depth += 1
        first = self.outside if self.in_parallel else 0
        for pointer in reversed(self.scratch[first:]):
            self.put(f"free({pointer});")
        if self.in_parallel:
            failed = f"tw_failed{self.regions}"
            self.put("#pragma omp critical (tw_failed)")
            self.put(f"if ({failed} < {self.asserts}) {failed} = {self.asserts};")
            self.put(f"goto tw_next{self.regions};")
        else:
            self.put(f"return {self.asserts};")
        self.depth -= 1
        self.put("}")
        self.stmt(s.body)

    def loop(self, s: For) -> None:
        """Write a loop, counted in 64 bits. Bounds that are read from memory are read once, in front of the loop."""
        name = self.exprs.name(s.loop_var, s.loop_var.name)
        self.exprs.indices.add(s.loop_var)
        low, extent = self.exprs.index(s.min), self.exprs.index(s.extent)
        if any(isinstance(n, (BufferLoad, Call)) for e in (s.min, s.extent) for n in pre_order(e)):
            low, extent = self.fixed(f"{name}_min", low), self.fixed(f"{name}_extent", extent)
        start = isinstance(s.min, IntImm) and s.min.value == 0
        head = f"for (int64_t {name} = {low}; {name} < {extent if start else f'{low} + {extent}'}; ++{name})"
        if s.kind == "parallel" and not self.in_parallel and self.func.target.num_cores > 1:
            self.parallel(head, s)
        else:
            self.block(head, s.body)

    def fixed(self, hint: str, text: str) -> str:
        """Write the declaration of an integer and return its name; a number is returned as it is."""
        if text.isdecimal():
            return text
        name = self.exprs.name(object(), hint)
        self.put(f"const int64_t {name} = {text};")
        return name

    def parallel(self, head: str, s: For) -> None:
        """Write a loop whose iterations OpenMP distributes."""
        can_fail = any(isinstance(n, AssertStmt) for n in pre_order(s.body, lambda n: not isinstance(n, Expr)))
        self.in_parallel, self.outside = True, len(self.scratch)
        self.regions += 1
        if can_fail:
            self.put(f"int32_t tw_failed{self.regions} = 0;")
        self.put(f"#pragma omp parallel for schedule(static) num_threads({self.func.target.num_cores})")
        self.block(head, s.body)
        self.in_parallel = False
        if can_fail:
            self.lines.insert(len(self.lines) - 1, f"{'  ' * self.depth}tw_next{self.regions}:;")
            frees = "".join(f"free({pointer}); " for pointer in reversed(self.scratch))
            self.put(f"if (tw_failed{self.regions}) {{ {frees}return tw_failed{self.regions}; }}")

    def store(self, s: BufferStore) -> None:
        """Write a store to a register value or to memory."""
        text = self.exprs.value(s.value)
        if s.buffer in self.exprs.names:
            self.put(f"{self.exprs.names[s.buffer]} = {text};")
            return
        lanes = max([lanes_of(i.dtype) for i in s.indices], default=1)
        dtype = s.buffer.dtype if lanes == 1 else f"{s.buffer.dtype}x{lanes}"
        if lanes > 1 and lanes_of(s.value.dtype) == 1:
            text = self.exprs.value(Broadcast(s.value, lanes))
        pointer, at = self.exprs.place(s.buffer, s.indices, lanes)
        if lanes == 1:
            self.put(f"{element(pointer)} = {text};")
            return
        kind = self.helpers.vector(dtype)
        if is_bool(dtype):
            kind = self.helpers.vector_named(f"u8x{lanes}")
            text = f"({kind})(-{text})"
        if s.predicate is None and at is None:
            self.put(f"*({kind}_u *){pointer} = {text};")
            return
        mask = "" if s.predicate is None else f", {self.exprs.value(s.predicate)}"
        what = ("mask" if mask else "") + ("store" if at is None else "scatter")
        where = "" if at is None else f", {at}"
        self.put(f"{self.helpers.memory(what, dtype)}({pointer}{where}, {text}{mask});")

    def allocate(self, s: Allocate) -> None:
        """Write an allocation. Register values are initialized variables, since a masked store chooses between old and
        new lanes. Arrays are on the stack or the heap."""
        buffer = s.buffer
        if buffer.scope == REGISTER:
            self.put(f"{self.helpers.vector(buffer.dtype)} {self.exprs.name(buffer, buffer.name)} = {{0}};")
            self.stmt(s.body)
            return
        base = scalar_type(element_of(buffer.dtype))
        size = constant_elements(buffer)
        per = bytes_of(element_of(buffer.dtype))
        if buffer in self.on_stack:
            assert size is not None
            count = max(size, 1) * lanes_of(buffer.dtype)
            name = self.exprs.name(buffer.data, buffer.name)
            self.put(f"{base} {name}[{count}] __attribute__((aligned(64)));")
            self.stmt(s.body)
            return
        amount = self.exprs.index(elements_of(buffer)) if size is None else str(size)
        scratch = self.helpers.plain("scratch")
        name = self.exprs.name(buffer.data, buffer.name)
        self.put(f"{base} *restrict {name} = {scratch}({amount} * {per * lanes_of(buffer.dtype)});")
        self.scratch.append(name)
        self.stmt(s.body)
        self.scratch.pop()
        self.put(f"free({name});")
