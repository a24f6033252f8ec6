"""This module copies statements with new variables, blocks and buffers, so that the copy may stand beside the original."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

from .buffer import Buffer
from .expr import Expr, FloatImm, IntImm, Var
from .stmt import Block, Stmt
from .walk import vars_in


def fresh_copy(
    stmt: Stmt,
    values: Mapping[Var, Expr] | None = None,
    rename: Callable[[str], str] | None = None,
    outside: Container[Var] | None = None,
) -> Any:
    """Return ``stmt`` with a new variable or buffer of the same name for each one that it defines.

    ``values`` are substituted, and blocks are named by ``rename``. With ``outside``, the variables known around
    ``stmt``, match_buffers define the other variables of their types, which are new in the copy, too.

    >>> from tilewright.tir import Var, For, Evaluate, IntImm
    >>> i = Var("i")
    >>> loop = For(i, IntImm(0), IntImm(4), "serial", Evaluate(i))
    >>> copy = fresh_copy(loop)
    >>> copy.loop_var is i, copy.body.value is copy.loop_var
    (False, True)
    """
    env: dict[Var, Expr] = dict(values or {})
    buffers: dict[Buffer, Buffer] = {}

    def bind(var: Var) -> Var:
        new = env[var] = Var(var.name, var.dtype)
        return new

    def declare(buffer: Buffer) -> Buffer:
        new = buffer.map_children(visit)
        if new is buffer:
            new = buffer.with_()
        buffers[buffer], env[buffer.data] = new, new.data
        return new

    def use(buffer: Buffer) -> Buffer:
        if buffer not in buffers:  # this may be another view of memory that is new
            data = env.get(buffer.data)
            buffers[buffer] = buffer.with_(data=data) if isinstance(data, Var) else buffer
        return buffers[buffer]

    def visit(n: Any) -> Any:
        kind = type(n)
        if kind is Var:
            return env.get(n, n)
        if kind is IntImm or kind is FloatImm:
            return n
        if kind is Block:
            if rename is not None:
                n = n.with_(name_hint=rename(n.name_hint))
            if outside is not None:
                for var in _symbols(n):
                    if var not in env and var not in outside:
                        bind(var)
        return n.map_parts(visit, bind, use, declare)

    return visit(stmt)


def _symbols(block: Block) -> set[Var]:
    """Return the variables in the types of the buffers that a block matches."""
    return {v for m in block.match_buffers for e in m.buffer.children() for v in vars_in(e)}
