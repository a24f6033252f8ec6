"""Finds what statements use from outside, what they may write, and which calls leave the program."""

from __future__ import annotations

from typing import Any

from ...tir.expr import BufferLoad, Call, Expr, Var
from ...tir.expr.intrinsics import Effect, effect_of
from ...tir.expr.node import Node
from ...tir.stmt import Allocate, AssertStmt, Buffer, BufferStore, Stmt, statements_in
from ...tir.walk import distinct, pre_order, statements
from ..lowered import REGISTER_SCOPE
from .emitter import EmitError, Emitter


class Effects:
    """What statements may write, found once for each of them."""

    def __init__(self, calls_out: bool) -> None:
        self.calls_out = calls_out
        """Whether the function holds calls that may write through a pointer."""
        self._known: dict[int, tuple[Stmt, frozenset[Buffer], frozenset[Var]]] = {}

    def of(self, s: Stmt) -> tuple[frozenset[Buffer], frozenset[Var]]:
        """Return the register values and the data pointers that ``s`` may write."""
        known = self._known.get(id(s))
        if known is not None:
            return known[1], known[2]
        registers: set[Buffer] = set()
        memory: set[Var] = set()
        for child in statements_in(s):
            if type(child) is BufferStore and not self.calls_out:
                _add_target(child, registers, memory)
            else:
                r, m = self.of(child)
                registers |= r
                memory |= m
        if self.calls_out:
            for part in s.children():
                if isinstance(part, Expr):
                    memory |= _written_by_calls(part)
        if isinstance(s, BufferStore):
            _add_target(s, registers, memory)
        found = (s, frozenset(registers), frozenset(memory))
        self._known[id(s)] = found
        return found[1], found[2]


def _add_target(s: BufferStore, registers: set[Buffer], memory: set[Var]) -> None:
    if s.buffer.scope == REGISTER_SCOPE:
        registers.add(s.buffer)
    else:
        memory.add(s.buffer.data)


def _written_by_calls(e: Expr) -> set[Var]:
    """Returns the data pointers through which calls inside an expression may write."""
    out: set[Var] = set()
    for n in pre_order(e, lambda n: not (isinstance(n, Call) and effect_of(n) is Effect.READS)):
        if isinstance(n, Call) and effect_of(n) in (Effect.ADDRESS, Effect.WRITES):
            for inner in pre_order(n):
                if isinstance(inner, BufferLoad):
                    out.add(inner.buffer.data)
                elif isinstance(inner, Var) and inner.dtype == "handle":
                    out.add(inner)
    return out


def is_external_call(e: Node) -> bool:
    """Returns whether a node calls a function from outside the program."""
    return isinstance(e, Call) and e.op.startswith(("tir.call_extern", "tir.call_pure_extern"))


# Finds what a statement uses from outside, and whether it can fail.


def captured(em: Emitter[Any], body: Stmt) -> tuple[list[Var], list[Var]]:
    """Returns the variables and the data pointers in scope that a statement uses, in order of first use.

    The sizes and strides of a buffer that it accesses are used as well. Register values cannot be captured.
    """
    found: dict[Var, None] = {}
    data: dict[Var, None] = {}

    def see(node: Node) -> None:
        for n in distinct(node):  # unrolled copies share their expressions
            if isinstance(n, Var) and n in em.vars:
                found.setdefault(n)
            elif isinstance(n, Var) and n in em.bases:
                data.setdefault(n)
            for buffer in n.used_buffers():
                if buffer.data in em.bases and buffer.data not in data:
                    data.setdefault(buffer.data)
                    for e in (*buffer.shape, *buffer.element_strides(), buffer.elem_offset):
                        see(e)
            for buffer in n.declared_buffers():
                for e in buffer.shape:
                    see(e)
            if isinstance(n, BufferLoad) and n.buffer in em.registers:
                raise EmitError(f"the register value {n.buffer.name} crosses a parallel loop")

    see(body)
    return list(found), list(data)


def asserts(body: Stmt) -> bool:
    """Returns whether a statement holds assertions."""
    return any(isinstance(n, AssertStmt) for n in statements(body))


def needs_scratch(body: Stmt, on_stack: frozenset[Buffer]) -> bool:
    """Returns whether a statement allocates memory of the runtime, which may refuse it."""
    return any(
        isinstance(n, Allocate) and n.buffer.scope != REGISTER_SCOPE and n.buffer not in on_stack
        for n in statements(body)
    )
