"""Unrolls loops: each iteration becomes statements of its own, without the branches and masks that its values decide."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

from ...tir.arith import Analyzer
from ...tir.expr import Broadcast, BufferLoad, Call, Expr, FloatImm, IntImm, Let, Ramp, Shuffle, Var, const
from ...tir.expr.base.node import Node
from ...tir.stmt import Allocate, Buffer, BufferStore, For, IfThenElse, LetStmt, PrimFunc, Stmt, seq
from ...tir.walk import loads_and_stores, substitute
from .masks import all_lanes

MAX_STATEMENTS = 8192
"""Loops that would grow a function beyond this many stores stay loops."""
Env = dict[Var | Buffer, Any]
"""The values of unrolled variables, and what replaces the variables and buffers that each copy has for itself; None for
those that are as they were."""


def unroll_loops(func: PrimFunc) -> PrimFunc:
    """Write out every loop marked ``unrolled`` whose extent is constant, and fold masks whose lanes are known.

    Before::

        for i in T.unroll(2):
            C.vstore([T.Ramp(i * 8, 1, 8)], x, predicate=T.Ramp(i * 8, 1, 8) < T.Broadcast(13, 8))

    After::

        C[0:8] = x
        C.vstore([T.Ramp(8, 1, 8)], x, predicate=T.Ramp(8, 1, 8) < T.Broadcast(13, 8))

    A store whose mask holds in no lane is removed; such a load gives 0.
    """
    varying = dict.fromkeys(_varying(func.body, False))
    return func.with_body(_Unroller(varying).visit(func.body, varying, 1))


def _varying(s: Node, unrolled: bool) -> Iterator[Var | Buffer]:
    """Returns the variables and buffers that differ between the copies that unrolling makes."""
    if isinstance(s, For):
        unrolled = unrolled or s.kind == "unrolled"
        if unrolled:
            yield s.loop_var
    elif isinstance(s, LetStmt) and unrolled:
        yield s.var
    elif isinstance(s, Allocate) and unrolled:
        yield s.buffer.data
        yield from {a.buffer for a in loads_and_stores(s.body) if a.buffer.data is s.buffer.data}
    for child in s.children():
        if not isinstance(child, Expr):
            yield from _varying(child, unrolled)


class _Uses(NamedTuple):
    """The names in an expression that differ by copy, what gets their values from an environment (None without names),
    whether the expression binds variables, whether it has masks to fold, and whether it reads memory."""

    names: tuple[Var | Buffer, ...]
    values: Callable[[Env], Any] | None
    binds: bool
    folds: bool
    reads: bool


class _Unroller:
    """A walk that knows the values of the unrolled variables.

    The copies of a loop's body share its expressions. The result for an expression is therefore remembered by the
    values of the variables in it: an index that does not depend on the innermost unrolled loop is rewritten once for
    all its iterations. An expression that binds variables (``Let``) is made anew for each copy, because a variable is
    bound once in a function.
    """

    def __init__(self, varying: Env) -> None:
        self.varying = varying
        self.analyzer = Analyzer()
        self.used: dict[Expr, _Uses] = {}
        self.done: dict[tuple[Expr, Any], Any] = {}
        self.constants: dict[tuple[int, str], Expr] = {}
        self.masks: dict[Expr, bool | None] = {}
        self.stores: dict[Stmt, int] = {}
        self.copies = 1

    # -- statements --------------------------------------------------------------------------------------------------

    def visit(self, n: Any, env: Env, copies: int) -> Any:
        """Return the statement ``n`` with the values of ``env``; it stands ``copies`` times in the result."""
        self.copies = copies
        if type(n) in _STATEMENTS:
            return _STATEMENTS[type(n)](self, n, env, copies)
        return self.expr(env, n) if isinstance(n, Expr) else n.map_children(lambda c: self.visit(c, env, copies))

    def loop(self, n: For, env: Env, copies: int) -> Stmt:
        low, extent = self.expr(env, n.min), self.expr(env, n.extent)
        if n.kind == "unrolled" and isinstance(extent, IntImm) and isinstance(low, IntImm):
            count, dtype = extent.value, n.loop_var.dtype
            if count == 1 or copies * count * max(1, self.count_stores(n.body)) <= MAX_STATEMENTS:
                values = [self.constant(low.value + t, dtype) for t in range(count)]
                return seq(*[self.visit(n.body, {**env, n.loop_var: value}, copies * count) for value in values])
        kind = "serial" if n.kind == "unrolled" else n.kind
        var, inner = self.own(n.loop_var, env, copies)
        body = self.visit(n.body, inner, copies)
        if kind == n.kind and var is n.loop_var and low is n.min and extent is n.extent and body is n.body:
            return n
        return For(var, low, extent, kind, body, n.thread_binding, n.annotations)

    def count_stores(self, s: Stmt) -> int:
        """Return the number of stores of ``s`` after unrolling."""
        if s not in self.stores:
            unrolled = isinstance(s, For) and s.kind == "unrolled" and isinstance(s.extent, IntImm)
            times = s.extent.value if unrolled else 1  # type: ignore[attr-defined]
            inside = sum([self.count_stores(c) for c in s.children() if isinstance(c, Stmt)])
            self.stores[s] = 1 if isinstance(s, BufferStore) else times * inside
        return self.stores[s]

    def let(self, n: LetStmt, env: Env, copies: int) -> Stmt:
        var, inner = self.own(n.var, env, copies)
        value, body = self.expr(env, n.value), self.visit(n.body, inner, copies)
        return n if var is n.var and value is n.value and body is n.body else LetStmt(var, value, body)

    def own(self, var: Var, env: Env, copies: int) -> tuple[Var, Env]:
        """Return the variable of a copy in place of ``var``, and the values inside."""
        if copies == 1:
            return var, env
        new = Var(var.name, var.dtype)
        return new, {**env, var: new}

    def branch(self, n: IfThenElse, env: Env, copies: int) -> Stmt:
        cond = self.expr(env, n.condition)
        if isinstance(cond, IntImm):
            case = n.then_case if cond.value else n.else_case
            return seq() if case is None else self.visit(case, env, copies)
        other = None if n.else_case is None else self.visit(n.else_case, env, copies)
        then = self.visit(n.then_case, env, copies)
        same = cond is n.condition and then is n.then_case and other is n.else_case
        return n if same else IfThenElse(cond, then, other)

    def store(self, n: BufferStore, env: Env, copies: int) -> Stmt:
        predicate = None if n.predicate is None else self.expr(env, n.predicate)
        if predicate is not None:
            held = self.held(predicate)
            if held is False:
                return seq()
            predicate = None if held else predicate
        indices, value = self.all(env, n.indices), self.expr(env, n.value)
        buffer = env.get(n.buffer) or n.buffer
        if value is n.value and predicate is n.predicate and buffer is n.buffer and indices is n.indices:
            return n
        return BufferStore(buffer, value, indices, predicate)

    def allocate(self, n: Allocate, env: Env, copies: int) -> Stmt:
        """Return an allocation of its own for each copy."""
        if copies == 1:
            body = self.visit(n.body, env, copies)
            return n if body is n.body else Allocate(n.buffer, body, n.annotations)
        new = n.buffer.map_children(lambda e: self.expr(env, e))
        new = new if new is not n.buffer else n.buffer.with_()
        views = {a.buffer for a in loads_and_stores(n.body) if a.buffer.data is n.buffer.data} - {n.buffer}
        own: Env = {n.buffer.data: new.data, n.buffer: new, **{view: view.with_(data=new.data) for view in views}}
        return Allocate(new, self.visit(n.body, {**env, **own}, copies), n.annotations)

    # -- expressions -------------------------------------------------------------------------------------------------

    def constant(self, value: int, dtype: str) -> Expr:
        """Return the one constant of this value, by which results are remembered."""
        key = (value, dtype)
        if key not in self.constants:
            self.constants[key] = const(value, dtype)
        return self.constants[key]

    def held(self, mask: Expr) -> bool | None:
        """Return whether a mask holds in all lanes (True) or in none (False)."""
        if mask not in self.masks:
            self.masks[mask] = all_lanes(mask, self.analyzer)
        return self.masks[mask]

    def uses(self, e: Any) -> _Uses:
        """Return what the result for ``e`` depends on."""
        if e in self.used:
            return self.used[e]
        kind = type(e)
        names: dict[Var | Buffer, None] = {}
        binds, folds, reads = kind is Let, False, kind is BufferLoad
        if kind is Let:
            self.varying[e.var] = None
        elif kind is BufferLoad:
            if e.buffer in self.varying:
                names[e.buffer] = None
            folds = e.predicate is not None
        elif kind is Call:
            folds = e.op == "tir.if_then_else"
        for child in e.children():
            if type(child) is Var:
                if child in self.varying:
                    names[child] = None
            elif type(child) not in _CONSTANT:
                below = self.uses(child)
                names.update(dict.fromkeys(below.names))
                binds, folds, reads = binds or below.binds, folds or below.folds, reads or below.reads
        if kind is Let:
            names.pop(e.var, None)
        values = itemgetter(*names) if names else None
        self.used[e] = _Uses(tuple(names), values, binds, folds, reads)
        return self.used[e]

    def expr(self, env: Env, e: Any) -> Any:
        """Return ``e`` with the values substituted, integers simplified and masks folded."""
        kind = type(e)
        if kind in _CONSTANT:
            return e
        if kind is Var:
            value = env[e] if e in env else None
            return e if value is None else value
        uses = self.used[e] if e in self.used else self.uses(e)
        if uses.binds and self.copies > 1:
            return self.rewrite(e, env, uses, True)
        if uses.values is None and not uses.folds:
            return e
        key = (e, None if uses.values is None else uses.values(env))
        found = self.done.get(key)
        if found is None:
            live = any([env[name] is not None for name in uses.names])
            found = self.done[key] = self.rewrite(e, env, uses, live) if live or uses.folds else e
        return found

    def all(self, env: Env, exprs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Return :meth:`expr` of each; the same tuple where nothing changes."""
        out = exprs
        for n, e in enumerate(exprs):
            new = self.expr(env, e)
            if new is not e:
                out = (*out[:n], new, *out[n + 1 :])
        return out

    def rewrite(self, x: Any, env: Env, uses: _Uses, live: bool) -> Any:
        """Return :meth:`expr` when it may change something. ``live``: a name in ``x`` has a value."""
        kind = type(x)
        if kind is BufferLoad:
            return self.load(x, env)
        if kind is Let:
            var = Var(x.var.name, x.var.dtype) if self.copies > 1 else x.var
            value, body = self.expr(env, x.value), self.expr({**env, x.var: var}, x.body)
            return x if var is x.var and value is x.value and body is x.body else Let(var, value, body)
        if live and kind not in _VECTORS and not uses.reads and not uses.binds and x.dtype in _SIMPLIFIED:
            values = {v: env[v] for v in uses.names if isinstance(v, Var) and env[v] is not None}
            return self.analyzer.simplify(substitute(x, values))
        if kind is Call:
            args = self.all(env, x.args)
            new = x if args is x.args else Call(x.op, args, x.dtype)
        else:
            new = x.map_children(partial(self.expr, env))
        if kind is Call and x.op == "tir.if_then_else" and isinstance(new.args[0], IntImm):
            return new.args[1] if new.args[0].value else new.args[2]
        return self.analyzer.simplify(new) if live and new.dtype == "bool" else new

    def load(self, x: BufferLoad, env: Env) -> Expr:
        predicate = None if x.predicate is None else self.expr(env, x.predicate)
        if predicate is not None:
            held = self.held(predicate)
            if held is False:
                return const(0, x.dtype)
            predicate = None if held else predicate
        indices, buffer = self.all(env, x.indices), env.get(x.buffer) or x.buffer
        if predicate is x.predicate and buffer is x.buffer and indices is x.indices:
            return x
        return BufferLoad(buffer, indices, predicate)


_STATEMENTS: dict[type, Callable[[_Unroller, Any, Env, int], Stmt]] = {
    Allocate: _Unroller.allocate,
    BufferStore: _Unroller.store,
    For: _Unroller.loop,
    IfThenElse: _Unroller.branch,
    LetStmt: _Unroller.let,
}
_CONSTANT = frozenset((IntImm, FloatImm))
_SIMPLIFIED = ("bool", "int32", "int64")
_VECTORS = frozenset((Broadcast, Ramp, Shuffle))
