"""This module copies statements with new variables, blocks and buffers, for primitives that repeat code."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

from ..tir.buffer import Buffer
from ..tir.expr import Expr, IterVar, Let, Var
from ..tir.stmt import Allocate, Block, For, LetStmt, Stmt
from ..tir.walk import replace_buffers, vars_in


def fresh_copy(
    stmt: Stmt, values: Mapping[Var, Expr], rename: Callable[[str], str], outside: Container[Var] = ()
) -> Any:
    """Return ``stmt`` with a new variable or buffer of the same name for each one that it defines.

    ``values`` are substituted, and blocks are named by ``rename``. Of the variables in the types of match_buffers those
    in ``outside`` are known already; the match_buffer defines the others.
    """
    env: dict[Var, Expr] = dict(values)
    buffers: dict[Buffer, Buffer] = {}

    def renew(var: Var) -> Var:
        new = env[var] = Var(var.name, var.dtype)
        return new

    def visit(n: Any) -> Any:
        if isinstance(n, Var):
            return env.get(n, n)
        if isinstance(n, For):
            low, extent = visit(n.min), visit(n.extent)
            return For(renew(n.loop_var), low, extent, n.kind, visit(n.body), n.thread_binding, n.annotations)
        if isinstance(n, (LetStmt, Let)):
            value = visit(n.value)
            return type(n)(renew(n.var), value, visit(n.body))
        if isinstance(n, Allocate):
            buffers[n.buffer] = _own(n.buffer, visit)
        elif isinstance(n, Block):
            axes = [(iv, iv.dom.map_children(visit)) for iv in n.iter_vars]
            n = n.with_(
                iter_vars=tuple([IterVar(dom, renew(iv.var), iv.kind, iv.thread_tag) for iv, dom in axes]),
                name_hint=rename(n.name_hint),
            )
            for m in n.match_buffers:
                for e in (*m.buffer.shape, *m.buffer.strides, m.buffer.elem_offset):
                    for v in vars_in(e):
                        if v not in env and v not in outside:
                            renew(v)
            for buffer in (*n.alloc_buffers, *[m.buffer for m in n.match_buffers]):
                buffers[buffer] = _own(buffer, visit)
        return n.map_children(visit)

    return replace_buffers(visit(stmt), buffers)


def _own(buffer: Buffer, visit: Callable[[Any], Any]) -> Buffer:
    new = buffer.map_children(visit)
    return buffer.with_() if new is buffer else new
