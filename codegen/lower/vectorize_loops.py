"""Turns vector loops into vector statements: the loop variable becomes a ramp of lanes.

Conditions on the lanes become predicates (masks) of loads and stores. Loops inside a vector loop stay loops over
vector statements. A loop whose body has no vector form becomes serial.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ...tir.analysis.simplify import loop_values
from ...tir.expr import And, BufferLoad, Call, Expr, IntImm, Not, Ramp, const
from ...tir.stmt import (
    Allocate,
    AttrStmt,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    seq,
)
from ...tir.walk import pre_order, uses_var
from .lanes import NotVectorizable, all_lanes, both_masks, widen
from .scoped_transform import ScopedTransform
from .vector_expressions import Named, VectorExpressions, name_reads


def vectorize_loops(func: PrimFunc) -> PrimFunc:
    """Replace loops marked ``vectorized`` (of constant extent) by vector statements.

    Before::

        for v in T.vectorized(8):
            if j * 8 + v < 30:
                C[j * 8 + v] = A[j * 8 + v] + s[0]

    After::

        C.vstore([T.Ramp(j * 8, 1, 8)], A.vload([...], predicate=m) + T.Broadcast(s[0], 8), predicate=m)
        # where m = T.Ramp(j * 8, 1, 8) < T.Broadcast(30, 8)

    A loop around vector statements, or with an effect in each iteration (calls of functions that may write), runs
    serially. This includes the outer one of two vector loops. External scalar functions are called lane by lane.
    """
    return ScopedTransform(after={For: _vectorized}).function(func)


def _vectorized(loop: For, scope: ScopedTransform) -> Stmt | None:
    if loop.kind != "vectorized":
        return None
    if isinstance(loop.extent, IntImm):
        with suppress(NotVectorizable):
            values = VectorExpressions(loop.loop_var, loop.min, loop.extent.value, scope.analyzer)
            return _VectorStatements(values).stmt(loop.body, None)
    return loop.with_(kind="serial")


class _VectorStatements:
    """The vector forms of the statements inside one loop. ``mask`` marks the active lanes (None: all)."""

    def __init__(self, values: VectorExpressions) -> None:
        self.values = values
        self.analyzer = values.analyzer

    def stmt(self, s: Stmt, mask: Expr | None) -> Stmt:
        """Return the vector form of ``s``."""
        rule = _RULES.get(type(s))
        if rule is None:
            raise NotVectorizable(type(s).__name__)
        return rule(self, s, mask)

    def sequence(self, s: SeqStmt, mask: Expr | None) -> Stmt:
        return seq(*[self.stmt(c, mask) for c in s.seq])

    def loop(self, s: For, mask: Expr | None) -> Stmt:
        loop = s.with_(min=self.values.scalar(s.min), extent=self.values.scalar(s.extent))
        self.analyzer.bind(loop.loop_var, loop_values(loop))
        return loop.with_(body=self.stmt(s.body, mask))

    def branch(self, s: IfThenElse, mask: Expr | None) -> Stmt:
        cond = self.values.masked(s.condition, mask)
        if cond.dtype.lanes == 1:
            other = None if s.else_case is None else self.stmt(s.else_case, mask)
            with self.analyzer.constraint(cond):
                return IfThenElse(cond, self.stmt(s.then_case, mask), other)
        if s.else_case is None and isinstance(s.condition, And):  # what is the same in all lanes stays a branch
            return self.stmt(IfThenElse(s.condition.a, IfThenElse(s.condition.b, s.then_case)), mask)
        named: list[Named] = []
        cond = name_reads(cond, named)
        known = all_lanes(cond, self.analyzer)
        then = seq() if known is False else self.stmt(s.then_case, mask if known else both_masks(mask, cond))
        if s.else_case is not None and known is not True:
            then = seq(then, self.stmt(s.else_case, mask if known is False else both_masks(mask, Not(cond))))
        for var, value in reversed(named):
            then = LetStmt(var, value, then)
        return then

    def let(self, s: LetStmt, mask: Expr | None) -> Stmt:
        if s.value.dtype.lanes > 1:
            raise NotVectorizable("a vector inside a vector loop")
        value = self.values.masked(s.value, mask)
        return LetStmt(self.values.renamed(s.var, value), value, self.stmt(s.body, mask))

    def allocate(self, s: Allocate, mask: Expr | None) -> Stmt:
        lanes = self.values.lanes
        new = s.buffer.with_(shape=(*s.buffer.shape, const(lanes)), strides=())
        self.values.buffers[s.buffer] = new
        self.values.lane_of[s.buffer] = Ramp(const(0), const(1), lanes)
        return Allocate(new, self.stmt(s.body, mask), s.annotations)

    def attribute(self, s: AttrStmt, mask: Expr | None) -> Stmt:
        return AttrStmt(s.node, s.attr_key, self.values.scalar(s.value), self.stmt(s.body, mask))

    def evaluate(self, s: Evaluate, mask: Expr | None) -> Stmt:
        if isinstance(s.value, Call) and s.value.op == "tir.prefetch":  # the call has the same result in all lanes
            if mask is None and not any(uses_var(s.value, v) for v in self.values.env):
                return s
        raise NotVectorizable("an effect per lane")

    def store(self, s: BufferStore, mask: Expr | None) -> Stmt:
        if any(e.dtype.lanes > 1 for e in (s.value, *s.indices)):
            raise NotVectorizable("a vector loop inside a vector loop")
        values = self.values
        buffer, indices = values.place(s.buffer, [values.masked(i, mask) for i in s.indices])
        value = values.masked(s.value, mask)
        predicate = both_masks(mask, None if s.predicate is None else values.masked(s.predicate, mask))
        if all(i.dtype.lanes == 1 for i in indices):
            again = any(isinstance(n, BufferLoad) and n.buffer.data is buffer.data for n in pre_order(value))
            if value.dtype.lanes == 1 and predicate is None and not again:
                return BufferStore(buffer, value, indices)  # all lanes store the same value
            raise NotVectorizable("all lanes store to one place")
        return BufferStore(buffer, widen(value, values.lanes), indices, predicate)


_RULES: dict[type, Callable[[_VectorStatements, Any, Expr | None], Stmt]] = {
    Allocate: _VectorStatements.allocate,
    AttrStmt: _VectorStatements.attribute,
    BufferStore: _VectorStatements.store,
    Evaluate: _VectorStatements.evaluate,
    For: _VectorStatements.loop,
    IfThenElse: _VectorStatements.branch,
    LetStmt: _VectorStatements.let,
    SeqStmt: _VectorStatements.sequence,
}
