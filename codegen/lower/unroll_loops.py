"""Unrolls loops: each iteration of an unrolled loop becomes statements of its own."""

from __future__ import annotations

from typing import Any

from ...tir.arith import Analyzer
from ...tir.buffer import Buffer
from ...tir.expr import BufferLoad, Expr, IntImm, Let, Ramp, Var, const
from ...tir.function import PrimFunc
from ...tir.node import Node
from ...tir.stmt import Allocate, BufferStore, For, IfThenElse, LetStmt, Stmt, seq
from ...tir.walk import loads_and_stores, pre_order

MAX_STATEMENTS = 8192
"""Loops that would grow a function beyond this many stores stay loops."""


def unroll_loops(func: PrimFunc) -> PrimFunc:
    """Write out every loop marked ``unrolled`` whose extent is constant.

    Before::

        for i in T.unroll(2):
            A[i * 8] = 0.0

    After::

        A[0] = 0.0
        A[8] = 0.0
    """
    if not any(isinstance(n, For) and n.kind == "unrolled" for n in pre_order(func, _statements)):
        return func
    return func.with_body(_Unroller().visit(func.body, {}, 1))


def _statements(n: Node) -> bool:
    return not isinstance(n, Expr)


def _stores(stmt: Stmt) -> int:
    """Returns the number of stores after unrolling."""
    if isinstance(stmt, BufferStore):
        return 1
    times = (
        stmt.extent.value
        if isinstance(stmt, For) and stmt.kind == "unrolled" and isinstance(stmt.extent, IntImm)
        else 1
    )
    return times * sum(_stores(c) for c in stmt.children() if isinstance(c, Stmt))


class _Unroller:
    """A walk that knows the values of the unrolled variables.

    The copies of a loop's body share its expressions. The result for an expression is therefore remembered by the
    values of the variables in it: an index that does not depend on the innermost unrolled loop is rewritten once for
    all its iterations. An expression that binds variables (``Let``) is made anew for each copy, because a variable is
    bound once in a function.
    """

    def __init__(self) -> None:
        self.analyzer = Analyzer()
        self.buffers: dict[Buffer, Buffer] = {}
        self.used: dict[int, tuple[Expr, frozenset[Var], frozenset[Buffer], bool]] = {}
        self.done: dict[tuple[Any, ...], Any] = {}
        self.copies = 1

    def visit(self, n: Any, env: dict[Var, Expr], copies: int) -> Any:
        self.copies = copies
        if isinstance(n, Expr):
            return self.expr(n, env)
        if isinstance(n, For):
            low, extent = self.expr(n.min, env), self.expr(n.extent, env)
            if n.kind == "unrolled" and isinstance(extent, IntImm) and isinstance(low, IntImm):
                trip_count = extent.value
                if trip_count == 1 or copies * trip_count * max(1, _stores(n.body)) <= MAX_STATEMENTS:
                    parts = [
                        self.visit(
                            n.body, {**env, n.loop_var: const(low.value + t, n.loop_var.dtype)}, copies * trip_count
                        )
                        for t in range(trip_count)
                    ]
                    return seq(*parts)
            var = Var(n.loop_var.name, n.loop_var.dtype) if copies > 1 else n.loop_var
            kind = "serial" if n.kind == "unrolled" else n.kind
            inner = env if var is n.loop_var else {**env, n.loop_var: var}
            return For(var, low, extent, kind, self.visit(n.body, inner, copies), n.thread_binding, n.annotations)
        if isinstance(n, LetStmt):
            var = Var(n.var.name, n.var.dtype) if copies > 1 else n.var
            inner = env if var is n.var else {**env, n.var: var}
            return LetStmt(var, self.expr(n.value, env), self.visit(n.body, inner, copies))
        if isinstance(n, Allocate) and copies > 1:
            return self.allocate(n, env, copies)
        if isinstance(n, IfThenElse):
            cond = self.expr(n.condition, env)
            if isinstance(cond, IntImm):
                if cond.value:
                    return self.visit(n.then_case, env, copies)
                return seq() if n.else_case is None else self.visit(n.else_case, env, copies)
            other = None if n.else_case is None else self.visit(n.else_case, env, copies)
            return IfThenElse(cond, self.visit(n.then_case, env, copies), other)
        if isinstance(n, BufferStore):
            indices = tuple([self.expr(i, env) for i in n.indices])
            predicate = None if n.predicate is None else self.expr(n.predicate, env)
            return BufferStore(self.buffers.get(n.buffer, n.buffer), self.expr(n.value, env), indices, predicate)
        return n.map_children(lambda c: self.visit(c, env, copies))

    def allocate(self, n: Allocate, env: dict[Var, Expr], copies: int) -> Allocate:
        """Return an allocation of its own for each copy."""
        new = n.buffer.map_children(lambda e: self.expr(e, env))
        new = new if new is not n.buffer else n.buffer.with_()
        outer = self.buffers
        views = {a.buffer for a in loads_and_stores(n.body) if a.buffer.data is n.buffer.data} - {n.buffer}
        self.buffers = {**outer, n.buffer: new, **{view: view.with_(data=new.data) for view in views}}
        result = Allocate(new, self.visit(n.body, {**env, n.buffer.data: new.data}, copies), n.annotations)
        self.buffers = outer
        return result

    def uses(self, e: Any) -> tuple[frozenset[Var], frozenset[Buffer], bool]:
        """Return the variables and the buffers in ``e``, and whether it binds variables."""
        known = self.used.get(id(e))
        if known is None:
            variables: frozenset[Var] = frozenset((e,)) if isinstance(e, Var) else frozenset()
            buffers: frozenset[Buffer] = frozenset((e.buffer,)) if isinstance(e, BufferLoad) else frozenset()
            binds = isinstance(e, Let)
            for child in e.children():
                if not isinstance(child, IntImm):
                    below = self.uses(child)
                    variables |= below[0]
                    buffers |= below[1]
                    binds = binds or below[2]
            known = self.used[id(e)] = (e, variables, buffers, binds)
        return known[1:]

    def expr(self, e: Any, env: dict[Var, Expr]) -> Any:
        """Return ``e`` with the values substituted and integers simplified."""
        if isinstance(e, IntImm):
            return e
        variables, buffers, binds = self.uses(e)
        if binds and self.copies > 1:
            return self.rewrite(e, env)
        key: list[Any] = [id(e)]
        for v in variables:
            value = env.get(v)
            if value is not None:
                key += (id(v), value.value if isinstance(value, IntImm) else id(value))
        for b in buffers:
            if b in self.buffers:
                key += (id(b), id(self.buffers[b]))
        if len(key) == 1:
            return e
        found = self.done.get(tuple(key))
        if found is None:
            found = self.done[tuple(key)] = self.rewrite(e, env)
        return found

    def rewrite(self, x: Any, env: dict[Var, Expr]) -> Any:
        """Return :meth:`expr` when it changes something."""
        if isinstance(x, Var):
            return env.get(x, x)
        if isinstance(x, BufferLoad):
            indices = tuple([self.expr(i, env) for i in x.indices])
            predicate = None if x.predicate is None else self.expr(x.predicate, env)
            return BufferLoad(self.buffers.get(x.buffer, x.buffer), indices, predicate)
        if isinstance(x, Let):
            var = Var(x.var.name, x.var.dtype)
            return Let(var, self.expr(x.value, env), self.rewrite(x.body, {**env, x.var: var}))
        if isinstance(x, Ramp):
            return Ramp(self.expr(x.base, env), self.expr(x.stride, env), x.lanes)
        if x.dtype in _SIMPLIFIED and not any(isinstance(n, (BufferLoad, Let)) for n in pre_order(x)):
            return self.analyzer.simplify(_replace(x, env))
        new = x.map_children(lambda c: self.expr(c, env))
        return self.analyzer.simplify(new) if new.dtype == "bool" else new


_SIMPLIFIED = ("bool", "int32", "int64")


def _replace(e: Any, env: dict[Var, Expr]) -> Any:
    if isinstance(e, Var):
        return env.get(e, e)
    if isinstance(e, IntImm):
        return e
    return e.map_children(lambda c: _replace(c, env))
