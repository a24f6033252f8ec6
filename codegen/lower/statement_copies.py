"""Copies of statements with new variables and buffers, for passes that repeat code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...tir.buffer import Buffer
from ...tir.expr import BufferLoad, Expr, Let, Var
from ...tir.stmt import Allocate, BufferStore, For, LetStmt, Stmt


def fresh_copy(stmt: Stmt, values: Mapping[Var, Expr] | None = None) -> Any:
    """Return ``stmt`` with new variables and buffers for those that it defines, and with ``values`` substituted.

    >>> from tilewright.tir import Var, For, Evaluate, IntImm
    >>> i = Var("i")
    >>> loop = For(i, IntImm(0), IntImm(4), "serial", Evaluate(i))
    >>> copy = fresh_copy(loop)
    >>> copy.loop_var is i, copy.body.value is copy.loop_var
    (False, True)
    """
    env: dict[Var, Expr] = dict(values or {})
    buffers: dict[Buffer, Buffer] = {}

    def visit(n: Any) -> Any:
        if isinstance(n, Var):
            return env.get(n, n)
        if isinstance(n, For):
            var = Var(n.loop_var.name, n.loop_var.dtype)
            low, extent = visit(n.min), visit(n.extent)
            env[n.loop_var] = var
            return For(var, low, extent, n.kind, visit(n.body), n.thread_binding, n.annotations)
        if isinstance(n, (LetStmt, Let)):
            var = Var(n.var.name, n.var.dtype)
            value = visit(n.value)
            env[n.var] = var
            return type(n)(var, value, visit(n.body))
        if isinstance(n, Allocate):
            new = buffers[n.buffer] = n.buffer.map_children(visit)
            if new is n.buffer:
                new = buffers[n.buffer] = n.buffer.with_()
            env[n.buffer.data] = new.data
            return Allocate(new, visit(n.body), n.annotations)
        n = n.map_children(visit)
        if isinstance(n, (BufferLoad, BufferStore)):
            buffer = new_buffer(n.buffer)
            if isinstance(n, BufferLoad):
                return n if buffer is n.buffer else BufferLoad(buffer, n.indices, n.predicate)
            return n if buffer is n.buffer else BufferStore(buffer, n.value, n.indices, n.predicate)
        return n

    def new_buffer(buffer: Buffer) -> Buffer:
        if buffer not in buffers:  # this is another view of memory that has been replaced, too
            data = env.get(buffer.data)
            buffers[buffer] = buffer.with_(data=data) if isinstance(data, Var) else buffer
        return buffers[buffer]

    return visit(stmt)
