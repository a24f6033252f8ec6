"""Finds what a statement uses from outside, and whether it can fail."""

from __future__ import annotations

from ...tir.expr import BufferLoad, Var
from ...tir.expr.base.node import Node
from ...tir.stmt import Allocate, AssertStmt, Buffer, Stmt
from ...tir.walk import distinct, statements
from ..lowered import REGISTER_SCOPE
from .emitter import EmitError, Emitter


def captured(em: Emitter, body: Stmt) -> tuple[list[Var], list[Var]]:
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
