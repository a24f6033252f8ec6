"""Rewrites statements while it knows what stands around them: loops, conditions, values of variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from ...tir.analysis.simplify import loop_values
from ...tir.arith import Analyzer
from ...tir.expr import Expr, logical_not
from ...tir.stmt import BufferStore, For, IfThenElse, LetStmt, PrimFunc, Stmt

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
        self._unbound: list[For | LetStmt] = []
        self._guards: list[tuple[Expr, ExitStack]] = []
        self._learned = 0

    def function(self, func: PrimFunc) -> PrimFunc:
        """Return ``func`` rewritten."""
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
            self._unbound.append(s)
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
            self._unbound.append(s)

    def _branches(self, s: IfThenElse) -> IfThenElse:
        path, self.path = self.path, [*self.path, s]
        then = self._under(s.condition, s.then_case)
        other = None if s.else_case is None else self._under(logical_not(s.condition), s.else_case)
        self.path = path
        return s if then is s.then_case and other is s.else_case else IfThenElse(s.condition, then, other)

    def _under(self, condition: Expr, s: Stmt) -> Any:
        with ExitStack() as known:
            self._guards.append((condition, known))
            new = self.visit(s)
            self._guards.pop()
            self._learned = min(self._learned, len(self._guards))
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
        """An analyzer that knows the loops around, the values of variables and the conditions that hold.

        It learns them when it is asked for, so that walks which never ask pay nothing.
        """
        analyzer = self._analyzer
        while self._learned < len(self._guards):
            condition, known = self._guards[self._learned]
            if condition.dtype.lanes == 1:
                known.enter_context(analyzer.constraint(condition))
            self._learned += 1
        for s in self._unbound:
            if isinstance(s, For):
                analyzer.bind(s.loop_var, loop_values(s))
            else:
                analyzer.bind(s.var, s.value)
        self._unbound.clear()
        return analyzer
