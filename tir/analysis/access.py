"""This module collects the loads and stores below a statement, with the loops around and the conditions on each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..arith import conjuncts
from ..buffer import Buffer
from ..expr import BufferLoad, Call, Expr, IntImm, Let, Not, Var
from ..stmt import Block, BlockRealize, BufferStore, For, IfThenElse, LetStmt, Stmt, While
from ..walk import pre_order, substitute


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """An ``Access`` is one load or store, with the loops around it and the conditions under which it happens.

    In its ``indices`` the axes of blocks are replaced by their values. ``loops`` are those between the statement that
    was asked about and the access, outermost first. Below a ``while`` (``in_while``) one of the conditions is a
    variable of which nothing is known.
    """

    node: BufferLoad | BufferStore
    indices: tuple[Expr, ...]
    loops: tuple[For, ...]
    guards: tuple[Expr, ...]
    in_init: bool = False
    in_while: bool = False

    @property
    def buffer(self) -> Buffer:
        """Return the buffer accessed."""
        return self.node.buffer

    @property
    def is_store(self) -> bool:
        """Return whether it is a store."""
        return isinstance(self.node, BufferStore)


def accesses(stmt: Stmt, buffer: Buffer | None = None) -> list[Access]:
    """Return every load and store below ``stmt`` (of ``buffer`` alone, when given), in program order.

    Those that say where a match_buffer lies are among them.

    Loads and stores through a block's match_buffers appear under the matched buffer's name. Accesses through pointers
    do not appear: see :func:`opaque_buffers`.
    """
    out: list[Access] = []
    _Collector(out, buffer).walk(stmt, {}, (), (), False)
    return out


class _Collector:
    def __init__(self, out: list[Access], buffer: Buffer | None) -> None:
        self.out = out
        self.buffer = buffer
        self.in_while = False

    def walk(self, n: Any, env: dict[Var, Expr], loops: tuple[For, ...], guards: tuple[Expr, ...], init: bool) -> None:
        if isinstance(n, (Var, IntImm)):
            return
        if isinstance(n, For):
            self.walk(n.min, env, loops, guards, init)
            self.walk(n.extent, env, loops, guards, init)
            if env:  # bounds may use axes, which have been replaced by values
                n = n.with_(min=substitute(n.min, env), extent=substitute(n.extent, env))
            self.walk(n.body, env, (*loops, n), guards, init)
        elif isinstance(n, BlockRealize):
            for value in n.iter_values:
                self.walk(value, env, loops, guards, init)
            inner = dict(env)
            for iv, value in zip(n.block.iter_vars, n.iter_values, strict=True):
                inner[iv.var] = substitute(value, env)
            self.walk(n.predicate, env, loops, guards, init)
            under = (*guards, *conjuncts(substitute(n.predicate, env)))
            for e in [e for m in n.block.match_buffers for r in m.source.region for e in (r.min, r.extent)]:
                self.walk(e, inner, loops, under, init)
            if n.block.init is not None:
                self.walk(n.block.init, inner, loops, under, True)
            self.walk(n.block.body, inner, loops, under, init)
        elif isinstance(n, IfThenElse):
            self.walk(n.condition, env, loops, guards, init)
            condition = substitute(n.condition, env)
            self.walk(n.then_case, env, loops, (*guards, *conjuncts(condition)), init)
            if n.else_case is not None:
                self.walk(n.else_case, env, loops, (*guards, Not(condition)), init)
        elif isinstance(n, While):
            outer, self.in_while = self.in_while, True
            self.walk(n.condition, env, loops, guards, init)
            self.walk(n.body, env, loops, (*guards, Var("runs", "bool")), init)
            self.in_while = outer
        elif isinstance(n, Call) and n.op == "tir.if_then_else":
            self.walk(n.args[0], env, loops, guards, init)
            condition = substitute(n.args[0], env)
            self.walk(n.args[1], env, loops, (*guards, *conjuncts(condition)), init)
            self.walk(n.args[2], env, loops, (*guards, Not(condition)), init)
        elif isinstance(n, (LetStmt, Let)):
            self.walk(n.value, env, loops, guards, init)
            self.walk(n.body, {**env, n.var: substitute(n.value, env)}, loops, guards, init)
        else:
            if isinstance(n, (BufferLoad, BufferStore)) and (self.buffer is None or n.buffer is self.buffer):
                indices = tuple([substitute(i, env) for i in n.indices]) if env else n.indices
                under = guards if n.predicate is None else (*guards, substitute(n.predicate, env))
                self.out.append(Access(n, indices, loops, under, init, self.in_while))
            for child in n.children():
                self.walk(child, env, loops, guards, init)


@lru_cache(maxsize=256)
def opaque_buffers(stmt: Stmt) -> frozenset[Var]:
    """Return the pointers (``Buffer.data``) used below ``stmt`` other than by plain loads and stores.

    Such uses are calls, address_of and match_buffers. :func:`accesses` does not see what happens through them.
    """
    found: set[Var] = set()
    for n in pre_order(stmt):
        if isinstance(n, Var) and n.dtype == "handle":
            found.add(n)
        elif isinstance(n, Block):
            for m in n.match_buffers:
                found.update((m.source.buffer.data, m.buffer.data))
        elif isinstance(n, Call) and n.op == "tir.address_of":
            found.update(a.buffer.data for a in n.args if isinstance(a, BufferLoad))
    return frozenset(found)
