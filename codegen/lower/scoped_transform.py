"""Rewrites statements while it knows what stands around them: loops, conditions, values of variables."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from contextlib import ExitStack
from typing import Any

from ...tir.analysis.simplify import bind_sizes, loop_values
from ...tir.arith import Analyzer
from ...tir.expr import Expr, logical_not
from ...tir.expr.node import IRNode
from ...tir.stmt import BufferStore, For, IfThenElse, LetStmt, PrimFunc, Stmt
from ...tir.walk import transform_around

Rule = Callable[[Any, "ScopedTransform"], Stmt | None]


class ScopedTransform:
    """A ``ScopedTransform`` rewrites a function by rules for types of statements; expressions are left alone.

    A rule is called with a statement and this object. It returns the new statement, or None to leave it as it is.
    ``before``: called before the statements inside are rewritten, which its result is not; a rule that wants that calls
    :meth:`below`. ``after``: called with the statement whose insides are rewritten. A walk that changes nothing returns
    the same object.

    ``path`` holds the statements around the one at hand, outermost first.
    """

    def __init__(self, before: Mapping[type, Rule] | None = None, after: Mapping[type, Rule] | None = None) -> None:
        self.before = before or {}
        self.after = after or {}
        self.path: list[Stmt] = []
        self._analyzer = Analyzer()
        self._guards: list[tuple[Expr, ExitStack]] = []
        self._unknown: list[For | LetStmt | tuple[Expr, ExitStack]] = []  # from the outside to the inside

    def function(self, func: PrimFunc) -> PrimFunc:
        """Return ``func`` rewritten."""
        bind_sizes(self._analyzer, func)
        return func.with_body(self.visit(func.body))

    def visit(self, s: Any) -> Any:
        """Return the statement ``s`` rewritten; an expression stays as it is."""
        if type(s) in self.before:
            new = self.before[type(s)](s, self)
            if new is not None:
                return new
        elif isinstance(s, Expr):
            return s
        new = self.below(s)
        if type(new) not in self.after:
            return new
        changed = self.after[type(new)](new, self)
        return new if changed is None else changed

    def below(self, s: Any) -> Any:
        """Return ``s`` with the statements inside it rewritten, in the scope that it opens."""
        kind = type(s)
        if kind is BufferStore:
            return s
        if kind is IfThenElse:
            return self._branches(s)
        path, self.path = self.path, [*self.path, s]
        if kind is For:
            self._unknown.append(s)
            body = self.visit(s.body)
            new = s if body is s.body else s.with_(body=body)
        else:
            self.know(s)
            new = s.map_children(self.visit)
        self.path = path
        return new

    def know(self, s: Stmt) -> None:
        """Let the analyzer know the values of the variable of ``s``, where ``s`` is a loop or a let."""
        if isinstance(s, (For, LetStmt)):
            self._unknown.append(s)

    def _branches(self, s: IfThenElse) -> IfThenElse:
        path, self.path = self.path, [*self.path, s]
        then = self._under(s.condition, s.then_case)
        other = None if s.else_case is None else self._under(logical_not(s.condition), s.else_case)
        self.path = path
        return s if then is s.then_case and other is s.else_case else IfThenElse(s.condition, then, other)

    def _under(self, condition: Expr, s: Stmt) -> Any:
        with ExitStack() as known:
            guard = (condition, known)
            self._guards.append(guard)
            self._unknown.append(guard)
            new = self.visit(s)
            self._guards.pop()
            self._unknown = [u for u in self._unknown if u is not guard]
        return new

    @property
    def loops(self) -> list[For]:
        """The loops around the statement at hand, outermost first."""
        return [s for s in self.path if isinstance(s, For)]

    @property
    def guards(self) -> list[Expr]:
        """The conditions that hold at the statement at hand."""
        return [condition for condition, _ in self._guards]

    @property
    def analyzer(self) -> Analyzer:
        """An analyzer that knows the function's sizes, the loops around, the values of variables and the conditions that hold.

        It learns them when it is asked for, so that walks which never ask pay nothing. It learns them from the outside to
        the inside: under a condition, the range of a loop around the condition would be too narrow elsewhere.
        """
        analyzer = self._analyzer
        for s in self._unknown:
            if isinstance(s, For):
                analyzer.bind(s.loop_var, loop_values(s))
            elif isinstance(s, LetStmt):
                analyzer.bind(s.var, s.value)
            elif s[0].dtype.lanes == 1:
                s[1].enter_context(analyzer.constraint(s[0]))
        self._unknown.clear()
        return analyzer


def rewrite_values(
    func: PrimFunc, around: Container[IRNode], post: Callable[[IRNode, ScopedTransform], IRNode | None]
) -> PrimFunc:
    """Returns the function with the nodes ``around`` rewritten by ``post`` in what it stores and binds.

    ``around``: those of :func:`~...tir.walk.nodes_around`, which are visited alone.
    """

    def rewrite(s: Stmt, scope: ScopedTransform) -> Stmt:
        def at(n: IRNode) -> IRNode | None:
            return post(n, scope)

        if isinstance(s, LetStmt):
            value = transform_around(s.value, around, at)
            return s if value is s.value else LetStmt(s.var, value, s.body)
        made: Stmt = transform_around(s, around, at)
        return made

    return ScopedTransform(after={BufferStore: rewrite, LetStmt: rewrite}).function(func)
