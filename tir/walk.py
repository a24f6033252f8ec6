"""This module has all walks over programs under one name: visits, rewrites, searches, and copies with new variables.

Those of nodes of all kinds are in :mod:`.expr.traversal`, those that look for statements in :mod:`.stmt`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

from .expr import Expr, FloatImm, IntImm, Var
from .expr.node import Mapper
from .expr.traversal import (
    LEAVES,
    all_nodes,
    distinct,
    free_vars,
    nodes_around,
    nodes_by_type,
    post_order,
    pre_order,
    reads_memory,
    replace_node,
    substitute,
    transform,
    transform_around,
    transform_statements,
    uses_var,
    vars_in,
)
from .stmt import Block, Buffer, PrimFunc, Stmt, blocks_of, loads_and_stores, memory_in, replace_buffers, statements

__all__ = [
    "LEAVES", "all_nodes", "blocks_of", "distinct", "free_vars", "loads_and_stores", "memory_in", "nodes_around", "nodes_by_type", "post_order",
    "pre_order", "reads_memory", "replace_buffers", "replace_node", "statements", "substitute", "transform", "transform_around", "transform_statements",
    "uses_var", "vars_in",
]  # fmt: skip


def fresh_copy(
    stmt: Stmt | PrimFunc | Expr,
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
    return _Copier(values or {}, rename, outside).visit(stmt)


class _Copier(Mapper):
    def __init__(
        self, values: Mapping[Var, Expr], rename: Callable[[str], str] | None, outside: Container[Var] | None
    ) -> None:
        self.vars: dict[Var, Expr] = dict(values)
        self.buffers: dict[Buffer, Buffer] = {}
        self.rename, self.outside = rename, outside

    def visit(self, n: Any) -> Any:
        kind = type(n)
        if kind is Var:
            return self.vars.get(n, n)
        if kind is IntImm or kind is FloatImm:
            return n
        if kind is Block and self.rename is not None:
            n = n.with_(name_hint=self.rename(n.name_hint))
        return n.map_parts(self)

    def bind(self, var: Var) -> Var:
        new = self.vars[var] = Var(var.name, var.dtype)
        return new

    def use(self, buffer: Buffer) -> Buffer:
        if buffer not in self.buffers:  # this may be another view of memory that is new
            data = self.vars.get(buffer.data)
            self.buffers[buffer] = buffer.with_(data=data) if isinstance(data, Var) else buffer
        return self.buffers[buffer]

    def declare(self, buffer: Buffer) -> Buffer:
        new = buffer.map_children(self.visit)
        if new is buffer:
            new = buffer.with_()
        self.buffers[buffer], self.vars[buffer.data] = new, new.data
        return new

    def match(self, buffer: Buffer) -> Buffer:
        if self.outside is not None:
            for var in {v for e in buffer.children() for v in vars_in(e)}:
                if var not in self.vars and var not in self.outside:
                    self.bind(var)
        return self.declare(buffer)
