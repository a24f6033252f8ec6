"""Turns vector loops into vector statements: the loop variable becomes a ramp of lanes.

Conditions on the lanes become predicates (masks) of loads and stores. Loops inside a vector loop stay loops over
vector statements. A loop whose body has no vector form becomes serial.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from ...tir.analysis.simplify import loop_values
from ...tir.arith import Analyzer
from ...tir.expr import (
    And,
    BinaryOp,
    Broadcast,
    BufferLoad,
    Call,
    Cast,
    Expr,
    IntImm,
    Let,
    Not,
    Or,
    Ramp,
    Select,
    Shuffle,
    StringImm,
    Var,
    const,
    reads_memory,
    same,
)
from ...tir.expr.intrinsics import Lanes, lanes_of_call
from ...tir.stmt import (
    Allocate,
    AttrStmt,
    Buffer,
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
from ...tir.walk import fresh_copy, pre_order, substitute, transform, uses_var, vars_in
from .lanes import NotVectorizable, all_inside, all_lanes, any_lane, both_masks, ramp_arithmetic, widen
from .scoped_transform import ScopedTransform

Named = tuple[Var, Expr]
"""A variable and its value."""

_FEW_LOADS = 4
"""A condition inside an expression with at most so many loads is repeated in the masks of what it decides."""


def vectorize_expr(e: Expr, var: Var, start: Expr, lanes: int, mask: Expr | None = None) -> Expr:
    """Returns ``e`` for all ``lanes`` values of ``var`` from ``start`` on, as a vector. Only the lanes of ``mask`` are
    read."""
    return widen(VectorExpressions(var, start, lanes, Analyzer()).masked(e, mask), lanes)


class VectorExpressions:
    """The vector forms of expressions inside one loop.

    ``env`` holds the vectors of the variables that differ by lane, ``buffers`` and ``lane_of`` the buffers with one
    element per lane, and the index of the lane in each.
    """

    def __init__(self, var: Var, start: Expr, lanes: int, analyzer: Analyzer) -> None:
        self.lanes = lanes
        self.env: dict[Var, Expr] = {var: Ramp(start, const(1, start.dtype), lanes)}
        self.buffers: dict[Buffer, Buffer] = {}
        self.lane_of: dict[Buffer, Expr] = {}
        self.analyzer = analyzer
        self.predicate: Expr | None = None
        self.read: list[tuple[BufferLoad, Expr | None]] = []  # what the conditions around have read, in which lanes

    def scalar(self, e: Expr) -> Expr:
        """Return ``e``, which must be the same in every lane."""
        new = self.expr(e)
        if new.dtype.lanes != 1:
            raise NotVectorizable("a loop whose bounds differ by lane")
        return new

    def masked(self, e: Expr, mask: Expr | None) -> Expr:
        """Return ``e`` with its loads reading only the lanes of ``mask``."""
        outer, self.predicate = self.predicate, mask
        try:
            return self.expr(e)
        finally:
            self.predicate = outer

    def mask(self) -> Expr:
        """Return the predicate for one more use; the values that it names get variables of their own."""
        assert self.predicate is not None
        return _again(self.predicate)

    def expr(self, e: Any) -> Expr:
        """Return the vector form of ``e``, or a scalar when it is the same in every lane."""
        rule = _RULES.get(type(e))
        if rule is not None:
            return rule(self, e)
        return self.binary(e) if isinstance(e, BinaryOp) else self.elementwise(e)

    def elementwise(self, e: Expr) -> Expr:
        """Return an operation on each lane of its operands."""
        parts = [self.expr(c) for c in e.children()]
        if all(new is old for new, old in zip(parts, e.children(), strict=True)):
            return e
        if any(p.dtype.lanes > 1 for p in parts):
            parts = [widen(p, self.lanes) for p in parts]
        it = iter(parts)
        return e.map_children(lambda _: next(it))

    def variable(self, e: Var) -> Expr:
        return self.env.get(e, e)

    def let(self, e: Let) -> Expr:
        value = self.expr(e.value)
        return Let(self.renamed(e.var, value), value, self.expr(e.body))

    def renamed(self, var: Var, value: Expr) -> Var:
        """Return the variable that holds ``value``, a new one in place of ``var`` when the value is a vector."""
        if value.dtype.lanes == 1:
            return var
        vector = Var(var.name, value.dtype)
        self.env[var] = vector
        return vector

    def cast(self, e: Cast) -> Expr:
        value = self.expr(e.value)
        return e if value is e.value else Cast(e.dtype.with_lanes(value.dtype.lanes), value)

    def vector(self, e: Ramp | Broadcast) -> Expr:
        if any(uses_var(e, v) for v in self.env):
            raise NotVectorizable("a vector inside a vector loop")
        return self.elementwise(e)

    # -- loads -------------------------------------------------------------------------------------------------------

    def place(self, buffer: Buffer, indices: Sequence[Expr]) -> tuple[Buffer, tuple[Expr, ...]]:
        """Return the buffer with one element per lane that replaces ``buffer``, if any, and the indices for it."""
        new = self.buffers.get(buffer)
        return (buffer, tuple(indices)) if new is None else (new, (*indices, self.lane_of[buffer]))

    def load(self, e: BufferLoad) -> Expr:
        own = None if e.predicate is None else self.expr(e.predicate)
        buffer, indices = self.place(e.buffer, [self.expr(i) for i in e.indices])
        if all(i.dtype.lanes == 1 for i in indices):
            unchanged = all(n is o for n, o in zip(indices, e.indices, strict=True))
            return self.once(e if unchanged else BufferLoad(buffer, indices, own))
        if e.dtype.lanes > 1:
            raise NotVectorizable("a vector load inside a vector loop")
        lanes = next((mask for known, mask in self.read if same(known, e)), self.predicate)
        mask = None if lanes is None else widen(_again(lanes), self.lanes)
        return BufferLoad(buffer, indices, both_masks(mask, own))

    def once(self, e: BufferLoad) -> Expr:
        """Return a load from one address for all lanes. It happens only when some lane needs it, unless it is certainly
        in bounds."""
        if self.predicate is None or all_inside(e.indices, e.buffer.shape, self.analyzer):
            return e
        some = any_lane(self.mask(), self.analyzer)
        if self.analyzer.can_prove(some):
            return e
        return Call("tir.if_then_else", (some, e, const(0, e.dtype)), e.dtype)

    def readable_in_all_lanes(self, e: Expr) -> bool:
        """Return whether ``e`` may be computed in every lane: it reads certainly inside its buffers and calls no
        external function."""
        for n in pre_order(e):
            if isinstance(n, Call) and lanes_of_call(n) in (Lanes.ONE_BY_ONE, Lanes.IN_ORDER):
                return False
            if isinstance(n, BufferLoad):
                if n.buffer in self.buffers or n.predicate is not None or any(map(reads_memory, n.indices)):
                    return False
                if not all_inside([self.expr(i) for i in n.indices], n.buffer.shape, self.analyzer):
                    return False
        return True

    # -- operations --------------------------------------------------------------------------------------------------

    def binary(self, e: BinaryOp) -> Expr:
        a, b = self.expr(e.a), self.expr(e.b)
        if a is e.a and b is e.b:
            return e
        affine = None if a.dtype.lanes == b.dtype.lanes == 1 else ramp_arithmetic(type(e), a, b, self.analyzer)
        return self.joined(type(e), a, b) if affine is None else affine

    def joined(self, kind: type[BinaryOp], a: Expr, b: Expr) -> Expr:
        if a.dtype.lanes == b.dtype.lanes == 1:
            return kind(a, b)
        return kind(widen(a, self.lanes), widen(b, self.lanes))

    def connective(self, e: And | Or) -> Expr:
        """Return a conjunction or disjunction whose second operand is read in the lanes where the first one does not
        decide."""
        if self.readable_in_all_lanes(e.b):
            return self.binary(e)
        named: list[Named] = []
        a = name_reads(self.expr(e.a), named, _FEW_LOADS)
        b = self.masked(e.b, both_masks(self.predicate, a if isinstance(e, And) else Not(a)))
        return with_names(named, self.joined(type(e), a, b))

    def call(self, e: Call) -> Expr:
        chosen = self.choice(e) if e.op == "tir.if_then_else" else None
        if chosen is None and e.op.startswith("tir.vector_reduce_") and e.dtype.lanes == 1:
            chosen = self.reduce_all_rows(e)
        if chosen is not None:
            return chosen
        form = lanes_of_call(e)
        if form is Lanes.IN_ORDER:
            raise NotVectorizable(e.op)
        args = [self.expr(a) for a in e.args]
        if all(new is old for new, old in zip(args, e.args, strict=True)):
            return e
        if all(a.dtype.lanes == 1 for a in args):
            return Call(e.op, tuple(args), e.dtype)
        if form is Lanes.NEVER or e.dtype.lanes > 1:
            raise NotVectorizable(e.op)
        wide = [a if isinstance(a, StringImm) else widen(a, self.lanes) for a in args]
        if form is Lanes.ONE_BY_ONE:
            return self.by_lanes(e, wide)
        if form is Lanes.FIRST:
            wide[1:] = args[1:]
        if e.op == "tir.if_then_else" and args[0].dtype.lanes == 1:
            wide[0] = args[0]
        return Call(e.op, tuple(wide), e.dtype.with_lanes(self.lanes))

    def choice(self, e: Call) -> Expr | None:
        """Return the choice in each lane of what a condition selects, or None where an ``if_then_else`` stays one."""
        condition, chosen, rest = e.args
        if _is_likely_choice(e) or not self.may_differ(condition):
            return None
        if isinstance(condition, And) and not any(isinstance(n, Call) and n.op == e.op for n in pre_order(rest)):
            again = fresh_copy(rest)  # names of its own
            inner = Call(e.op, (condition.b, chosen, again), e.dtype)  # what is the same in all lanes stays scalar
            return self.call(Call(e.op, (condition.a, inner, rest), e.dtype))
        named: list[Named] = []
        cond = name_reads(self.expr(condition), named, _FEW_LOADS)
        if cond.dtype.lanes == 1:
            return None
        before = len(self.read)
        self.read += [(n, self.predicate) for n in pre_order(condition, _reads_always) if isinstance(n, BufferLoad)]
        then = self.masked(chosen, both_masks(self.predicate, cond))
        other = self.masked(rest, both_masks(self.predicate, Not(cond)))
        del self.read[before:]
        return with_names(named, Select(cond, widen(then, self.lanes), widen(other, self.lanes)))

    def may_differ(self, e: Expr) -> bool:
        """Return whether ``e`` names something that differs by lane."""
        return any(
            n in self.env if isinstance(n, Var) else isinstance(n, BufferLoad) and n.buffer in self.buffers
            for n in pre_order(e)
        )

    def by_lanes(self, e: Call, args: list[Expr]) -> Expr:
        """Return a call for each active lane, and 0 in the others."""
        names = [a if isinstance(a, StringImm) else Var("argument", a.dtype) for a in args]
        out: list[Expr] = []
        for lane in range(self.lanes):
            parts = tuple([v if isinstance(v, StringImm) else Shuffle((v,), (lane,)) for v in names])
            one: Expr = Call(e.op, parts, e.dtype)
            if self.predicate is not None:
                active = Shuffle((widen(self.mask(), self.lanes),), (lane,))
                one = Call("tir.if_then_else", (active, one, const(0, e.dtype)), e.dtype)
            out.append(one)
        result: Expr = Shuffle(tuple(out), tuple(range(self.lanes)))
        for v, a in zip(names, args, strict=True):
            if isinstance(v, Var):
                result = Let(v, a, result)
        return result

    def reduce_all_rows(self, e: Call) -> Expr | None:
        """Return a horizontal reduction in a loop over rows as one reduction of all rows, their vectors side by
        side."""
        (vector,) = e.args
        var, lanes = next(iter(self.env.items()))
        if not uses_var(vector, var):
            return None
        used = vars_in(vector)
        kept = any(isinstance(n, BufferLoad) and n.buffer in self.buffers for n in pre_order(vector))
        if self.predicate is not None or kept or used & (self.env.keys() - {var}) or not isinstance(lanes, Ramp):
            raise NotVectorizable(e.op)
        each = [substitute(vector, {var: self.analyzer.simplify(lanes.base + n)}) for n in range(self.lanes)]
        side = Shuffle(tuple(each), tuple(range(self.lanes * vector.dtype.lanes)))
        return Call(e.op, (side,), e.dtype.with_lanes(self.lanes))


_RULES: dict[type, Callable[[VectorExpressions, Any], Expr]] = {
    And: VectorExpressions.connective,
    Broadcast: VectorExpressions.vector,
    BufferLoad: VectorExpressions.load,
    Call: VectorExpressions.call,
    Cast: VectorExpressions.cast,
    Let: VectorExpressions.let,
    Or: VectorExpressions.connective,
    Ramp: VectorExpressions.vector,
    Var: VectorExpressions.variable,
}


def _reads_always(e: Any) -> bool:
    """Returns whether all that an expression consists of is read where the expression is."""
    return not isinstance(e, (And, Or, Let)) and not (isinstance(e, Call) and e.op == "tir.if_then_else")


def name_reads(condition: Expr, named: list[Named], unnamed_loads: int = 0) -> Expr:
    """Returns a condition whose parts that read memory are variables, and adds these with their values to ``named``.

    Several masks may then use it: what it reads is read once, before anything under these masks is written. Comparisons
    of indices stay, for masks are decided from their ends; so do parts of at most ``unnamed_loads`` loads.
    """
    if isinstance(condition, Let):
        named.append((condition.var, condition.value))
        return name_reads(condition.body, named, unnamed_loads)
    parts = [n for n in pre_order(condition) if isinstance(n, (BufferLoad, Let))]
    if len(parts) <= unnamed_loads and not any(isinstance(n, Let) for n in parts):
        return condition
    if isinstance(condition, And):
        return And(*[name_reads(part, named, unnamed_loads) for part in (condition.a, condition.b)])
    named.append((Var("holds", condition.dtype), condition))
    return named[-1][0]


def with_names(named: Sequence[Named], value: Expr) -> Expr:
    """Returns ``value`` where the variables of ``named`` have their values."""
    for var, held in reversed(named):
        value = Let(var, held, value)
    return value


def _again(mask: Expr) -> Expr:
    """Returns a mask for one more use: the values that it names get variables of their own."""
    return transform(mask, post=_renewed)


def _renewed(e: Any) -> Any:
    """Returns a named value with another variable; None for anything else."""
    if not isinstance(e, Let):
        return None
    var = Var(e.var.name, e.var.dtype)
    return Let(var, e.value, substitute(e.body, {e.var: var}))


def _is_likely_choice(e: Call) -> bool:
    """Returns whether an ``if_then_else`` stays one: its condition is likely, and neither branch reads memory."""
    usual = isinstance(e.args[0], Call) and e.args[0].op == "tir.likely"
    return usual and not any(isinstance(n, BufferLoad) for side in e.args[1:] for n in pre_order(side))


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
        rule = _STMT_RULES.get(type(s))
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


_STMT_RULES: dict[type, Callable[[_VectorStatements, Any, Expr | None], Stmt]] = {
    Allocate: _VectorStatements.allocate,
    AttrStmt: _VectorStatements.attribute,
    BufferStore: _VectorStatements.store,
    Evaluate: _VectorStatements.evaluate,
    For: _VectorStatements.loop,
    IfThenElse: _VectorStatements.branch,
    LetStmt: _VectorStatements.let,
    SeqStmt: _VectorStatements.sequence,
}
