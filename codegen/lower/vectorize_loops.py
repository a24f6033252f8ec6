"""Turns vector loops into vector expressions: the loop variable becomes a ramp of lanes.

Conditions on the lanes become predicates (masks) of loads and stores. Loops inside a vector loop stay loops over
vector statements. A loop whose body has no vector form becomes serial.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ...tir.arith import Analyzer, loop_values
from ...tir.buffer import Buffer
from ...tir.dtype import lanes_of, with_lanes
from ...tir.expr import (
    Add,
    And,
    BinaryOp,
    Broadcast,
    BufferLoad,
    Call,
    Cast,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Mul,
    Not,
    Or,
    Ramp,
    Select,
    Shuffle,
    StringImm,
    Sub,
    Var,
    const,
)
from ...tir.function import PrimFunc
from ...tir.node import Node
from ...tir.stmt import (
    Allocate,
    AssertStmt,
    AttrStmt,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    seq,
)
from ...tir.walk import pre_order, substitute, uses_var, vars_in
from .active_lanes import any_lane, certainly_in_bounds
from .fold_masks import all_lanes, first_and_last_lane


class NotVectorizable(Exception):
    """Raised for a statement without a vector form; its loop stays serial."""


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

    analyzer = Analyzer()

    def visit(n: Node) -> Node:
        if isinstance(n, Expr):
            return n
        if isinstance(n, For):
            analyzer.bind(n.loop_var, loop_values(n))
        if isinstance(n, IfThenElse) and lanes_of(n.condition.dtype) == 1:
            with analyzer.constraint(n.condition):
                then = visit(n.then_case)
            other = None if n.else_case is None else visit(n.else_case)
            same = then is n.then_case and other is n.else_case
            return n if same else IfThenElse(n.condition, then, other)  # type: ignore[arg-type]
        new = n.map_children(visit)
        if isinstance(new, For) and new.kind == "vectorized":
            if isinstance(new.extent, IntImm):
                with suppress(NotVectorizable):
                    return _Vectorizer(new.loop_var, new.min, new.extent.value, analyzer).stmt(new.body, None)
            return new.with_(kind="serial")
        return new

    return func.with_body(visit(func.body))  # type: ignore[arg-type]


def vectorize_expr(e: Expr, var: Var, start: Expr, lanes: int, mask: Expr | None = None) -> Expr:
    """Returns ``e`` for all ``lanes`` values of ``var`` from ``start`` on, as a vector. Only the lanes of ``mask`` are
    read."""
    return widen(_Vectorizer(var, start, lanes, Analyzer()).masked(e, mask), lanes)


def widen(e: Expr, lanes: int) -> Expr:
    """Returns a scalar repeated in every lane, and a vector of ``lanes`` as it is."""
    have = lanes_of(e.dtype)
    if have == lanes:
        return e
    if have == 1:
        return Broadcast(e, lanes)
    raise NotVectorizable(f"{have} lanes where {lanes} are needed")


_ELEMENTWISE_NOT = {"tir.address_of", "tir.prefetch", "tir.tvm_access_ptr", "tir.misaligned"}
_ONCE_PER_LANE = {"tir.call_extern", "tir.call_llvm_intrin", "tir.ret", "tir.tile_store"}
"""Calls with effects, which happen for each lane in order."""
_SCALAR_ONLY = {"tir.call_pure_extern", "tir.call_llvm_pure_intrin"}
"""Calls of external scalar functions."""


class _Vectorizer:
    """The widening of one loop's body."""

    def __init__(self, var: Var, start: Expr, lanes: int, analyzer: Analyzer) -> None:
        self.lanes = lanes
        self.env: dict[Var, Expr] = {var: Ramp(start, const(1, start.dtype), lanes)}
        self.buffers: dict[Buffer, Buffer] = {}
        self.lane_of: dict[Buffer, Expr] = {}
        self.analyzer = analyzer
        self.predicate: Expr | None = None

    # -- statements ---------------------------------------------------------------------------------------------

    def stmt(self, s: Stmt, mask: Expr | None) -> Stmt:
        """Return the vector form of ``s``. ``mask`` marks the active lanes (None: all)."""
        if isinstance(s, SeqStmt):
            return seq(*[self.stmt(c, mask) for c in s.seq])
        if isinstance(s, BufferStore):
            return self.store(s, mask)
        if isinstance(s, For):
            low, extent = self.scalar(s.min), self.scalar(s.extent)
            self.analyzer.bind(s.loop_var, loop_values(s.with_(min=low, extent=extent)))
            return s.with_(min=low, extent=extent, body=self.stmt(s.body, mask))
        if isinstance(s, IfThenElse):
            cond = self.masked(s.condition, mask)
            if lanes_of(cond.dtype) == 1:
                other = None if s.else_case is None else self.stmt(s.else_case, mask)
                with self.analyzer.constraint(cond):
                    return IfThenElse(cond, self.stmt(s.then_case, mask), other)
            if s.else_case is None and isinstance(
                s.condition, And
            ):  # a condition that is the same in all lanes stays a branch
                return self.stmt(IfThenElse(s.condition.a, IfThenElse(s.condition.b, s.then_case)), mask)
            known = all_lanes(cond, self.analyzer)
            if known is True:
                return self.stmt(s.then_case, mask)
            if known is False:
                return seq() if s.else_case is None else self.stmt(s.else_case, mask)
            then = self.stmt(s.then_case, _both(mask, cond))
            if s.else_case is None:
                return then
            return seq(then, self.stmt(s.else_case, _both(mask, Not(cond))))
        if isinstance(s, LetStmt):
            if lanes_of(s.value.dtype) > 1:
                raise NotVectorizable("a vector inside a vector loop")
            value = self.masked(s.value, mask)
            if lanes_of(value.dtype) == 1:
                return LetStmt(s.var, value, self.stmt(s.body, mask))
            var = Var(s.var.name, value.dtype)
            self.env[s.var] = var
            return LetStmt(var, value, self.stmt(s.body, mask))
        if isinstance(s, Allocate):
            shape = (*s.buffer.shape, const(self.lanes))
            new = self.buffers[s.buffer] = s.buffer.with_(shape=shape, strides=())
            self.lane_of[s.buffer] = Ramp(const(0), const(1), self.lanes)
            return Allocate(new, self.stmt(s.body, mask), s.annotations)
        if isinstance(s, AttrStmt):
            return AttrStmt(s.node, s.attr_key, self.scalar(s.value), self.stmt(s.body, mask))
        if isinstance(s, Evaluate):
            if isinstance(s.value, Call) and s.value.op == "tir.prefetch":  # the call has the same result in all lanes
                if mask is None and not any(uses_var(s.value, v) for v in self.env):
                    return s
            raise NotVectorizable("an effect per lane")
        if isinstance(s, AssertStmt):
            raise NotVectorizable("an assertion per lane")
        raise NotVectorizable(type(s).__name__)

    def store(self, s: BufferStore, mask: Expr | None) -> Stmt:
        if any(lanes_of(e.dtype) > 1 for e in (s.value, *s.indices)):
            raise NotVectorizable("a vector loop inside a vector loop")
        indices = [self.masked(i, mask) for i in s.indices]
        value = self.masked(s.value, mask)
        predicate = _both(mask, None if s.predicate is None else self.masked(s.predicate, mask))
        buffer = self.buffers.get(s.buffer, s.buffer)
        if buffer is not s.buffer:
            indices.append(self.lane_of[s.buffer])
        if all(lanes_of(i.dtype) == 1 for i in indices):
            again = any(isinstance(n, BufferLoad) and n.buffer.data is buffer.data for n in pre_order(value))
            if lanes_of(value.dtype) == 1 and predicate is None and not again:
                return BufferStore(buffer, value, tuple(indices))  # all lanes store the same value
            raise NotVectorizable("all lanes store to one place")
        return BufferStore(buffer, widen(value, self.lanes), tuple(indices), predicate)

    # -- expressions --------------------------------------------------------------------------------------------

    def scalar(self, e: Expr) -> Expr:
        """Return ``e``, which must be the same in every lane."""
        new = self.expr(e)
        if lanes_of(new.dtype) != 1:
            raise NotVectorizable("a loop whose bounds differ by lane")
        return new

    def masked(self, e: Expr, mask: Expr | None) -> Expr:
        """Return ``e`` with its loads reading only the lanes of ``mask``."""
        outer, self.predicate = self.predicate, mask
        try:
            return self.expr(e)
        finally:
            self.predicate = outer

    def expr(self, e: Any) -> Expr:
        """Return the vector form of ``e``, or a scalar when it is the same in every lane."""
        if isinstance(e, Var):
            return self.env.get(e, e)
        if isinstance(e, BufferLoad):
            return self.load(e)
        if isinstance(e, (And, Or)) and not self.readable_in_all_lanes(e.b):
            return self.connective(e)
        if isinstance(e, BinaryOp):
            return self.binary(e)
        if isinstance(e, Call):
            return self.call(e)
        if isinstance(e, Let):
            value = self.expr(e.value)
            if lanes_of(value.dtype) == 1:
                return Let(e.var, value, self.expr(e.body))
            var = Var(e.var.name, value.dtype)
            self.env[e.var] = var
            return Let(var, value, self.expr(e.body))
        if isinstance(e, Cast):
            value = self.expr(e.value)
            return e if value is e.value else Cast(with_lanes(e.dtype, lanes_of(value.dtype)), value)
        if isinstance(e, (Ramp, Broadcast)) and any(uses_var(e, v) for v in self.env):
            raise NotVectorizable("a vector inside a vector loop")
        parts = [self.expr(c) for c in e.children()]
        if all(new is old for new, old in zip(parts, e.children(), strict=True)):
            return e  # type: ignore[no-any-return]
        if any(lanes_of(p.dtype) > 1 for p in parts):
            parts = [widen(p, self.lanes) for p in parts]
        it = iter(parts)
        return e.map_children(lambda _: next(it))  # type: ignore[no-any-return]

    def load(self, e: BufferLoad) -> Expr:
        indices = [self.expr(i) for i in e.indices]
        own = None if e.predicate is None else self.expr(e.predicate)
        buffer = self.buffers.get(e.buffer, e.buffer)
        if buffer is not e.buffer:
            indices.append(self.lane_of[e.buffer])
        if all(lanes_of(i.dtype) == 1 for i in indices):
            same = all(n is o for n, o in zip(indices, e.indices, strict=True))
            return self.once(e if same else BufferLoad(buffer, tuple(indices), own))
        if lanes_of(e.dtype) > 1:
            raise NotVectorizable("a vector load inside a vector loop")
        predicate = _both(None if self.predicate is None else widen(self.predicate, self.lanes), own)
        return BufferLoad(buffer, tuple(indices), predicate)

    def once(self, e: BufferLoad) -> Expr:
        """Return a load from one address for all lanes. It happens only when some lane needs it, unless it is certainly
        in bounds."""
        if self.predicate is None or certainly_in_bounds(e.indices, e.buffer.shape, self.analyzer):
            return e
        some = any_lane(self.predicate, self.analyzer)
        if self.analyzer.can_prove(some):
            return e
        return Call("tir.if_then_else", (some, e, const(0, e.dtype)), e.dtype)

    def binary(self, e: BinaryOp) -> Expr:
        a, b = self.expr(e.a), self.expr(e.b)
        if a is e.a and b is e.b:
            return e
        if lanes_of(a.dtype) == 1 and lanes_of(b.dtype) == 1:
            return type(e)(a, b)
        affine = self.ramp(type(e), a, b)
        if affine is not None:
            return affine
        return type(e)(widen(a, self.lanes), widen(b, self.lanes))

    def connective(self, e: And | Or) -> Expr:
        """Return a conjunction or disjunction whose second operand is read in the lanes where the first one does not
        decide."""
        a = self.expr(e.a)
        b = self.masked(e.b, _both(self.predicate, a if isinstance(e, And) else Not(a)))
        if lanes_of(a.dtype) == lanes_of(b.dtype) == 1:
            return type(e)(a, b)
        return type(e)(widen(a, self.lanes), widen(b, self.lanes))

    def readable_in_all_lanes(self, e: Expr) -> bool:
        """Return whether ``e`` may be computed in every lane: it reads certainly inside its buffers and calls no
        external function."""
        for n in pre_order(e):
            if isinstance(n, Call) and n.op in _SCALAR_ONLY | _ONCE_PER_LANE:
                return False
            if isinstance(n, BufferLoad):
                if n.buffer in self.buffers or n.predicate is not None:
                    return False
                if not self.in_bounds_in_all_lanes([self.expr(i) for i in n.indices], n.buffer.shape):
                    return False
        return True

    def in_bounds_in_all_lanes(self, indices: Sequence[Expr], shape: Sequence[Expr]) -> bool:
        """Return whether the first and the last lane of each index certainly lie inside the buffer, and with them all
        lanes."""
        ends = [first_and_last_lane(i) for i in indices]
        if any(end is None for end in ends):
            return False
        lanes = [tuple([end[side] for end in ends if end is not None]) for side in (0, 1)]
        return all(certainly_in_bounds(lane, tuple(shape), self.analyzer) for lane in lanes)

    def ramp(self, kind: type[BinaryOp], a: Expr, b: Expr) -> Expr | None:
        """Return arithmetic on ramps that gives a ramp, or one value for all lanes."""
        simplify = self.analyzer.simplify
        if kind in (Add, Sub):
            if isinstance(a, Ramp) and isinstance(b, Ramp):
                stride = simplify(kind(a.stride, b.stride))
                base = simplify(kind(a.base, b.base))
                return base if isinstance(stride, IntImm) and stride.value == 0 else Ramp(base, stride, a.lanes)
            if isinstance(a, Ramp) and lanes_of(b.dtype) == 1:
                return Ramp(simplify(kind(a.base, b)), a.stride, a.lanes)
            if isinstance(b, Ramp) and lanes_of(a.dtype) == 1:
                stride = b.stride if kind is Add else simplify(0 - b.stride)
                return Ramp(simplify(kind(a, b.base)), stride, b.lanes)
        if kind is Mul:
            r, s = (a, b) if isinstance(a, Ramp) else (b, a)
            if isinstance(r, Ramp) and lanes_of(s.dtype) == 1:
                return Ramp(simplify(r.base * s), simplify(r.stride * s), r.lanes)
        if kind in (FloorDiv, FloorMod) and isinstance(a, Ramp) and isinstance(b, IntImm) and b.value > 0:
            if not (isinstance(a.stride, IntImm) and a.stride.value >= 0):
                return None
            inside = simplify(a.base % b)
            reach = (a.lanes - 1) * a.stride.value
            if self.analyzer.can_prove(inside + reach < b):
                if kind is FloorDiv:
                    return simplify(a.base // b)
                return Ramp(inside, a.stride, a.lanes)
            if a.stride.value % b.value == 0:
                if kind is FloorMod:
                    return inside
                return Ramp(simplify(a.base // b), const(a.stride.value // b.value, a.base.dtype), a.lanes)
        return None

    def call(self, e: Call) -> Expr:
        if e.op in ("tir.if_then_else",):
            cond = self.expr(e.args[0])
            if lanes_of(cond.dtype) > 1 and not _is_likely_choice(e):
                if isinstance(e.args[0], And):  # a condition that is the same in all lanes stays scalar
                    inner = Call(e.op, (e.args[0].b, e.args[1], e.args[2]), e.dtype)
                    return self.call(Call(e.op, (e.args[0].a, inner, e.args[2]), e.dtype))
                then = self.masked(e.args[1], _both(self.predicate, cond))
                other = self.masked(e.args[2], _both(self.predicate, Not(cond)))
                return Select(cond, widen(then, self.lanes), widen(other, self.lanes))
        if e.op.startswith("tir.vector_reduce_") and lanes_of(e.dtype) == 1:
            rows = self.reduce_all_rows(e)
            if rows is not None:
                return rows
        if e.op in _ONCE_PER_LANE:
            raise NotVectorizable(e.op)
        args = [self.expr(a) for a in e.args]
        if all(new is old for new, old in zip(args, e.args, strict=True)):
            return e
        if all(lanes_of(a.dtype) == 1 for a in args):
            return Call(e.op, tuple(args), e.dtype)
        if e.op in _ELEMENTWISE_NOT or lanes_of(e.dtype) > 1 or e.op.startswith("tir.vector_"):
            raise NotVectorizable(e.op)
        wide = [a if isinstance(a, StringImm) else widen(a, self.lanes) for a in args]
        if e.op in _SCALAR_ONLY:
            return self.by_lanes(e, wide)
        if e.op == "tir.lookup":  # all lanes share the table
            wide[1:] = args[1:]
        if e.op == "tir.if_then_else" and lanes_of(args[0].dtype) == 1:
            wide[0] = args[0]
        return Call(e.op, tuple(wide), with_lanes(e.dtype, self.lanes))

    def by_lanes(self, e: Call, args: list[Expr]) -> Expr:
        """Return a call for each active lane, and 0 in the others."""
        names = [Var("argument", a.dtype) for a in args]
        out: list[Expr] = []
        for lane in range(self.lanes):
            one: Expr = Call(
                e.op,
                tuple(
                    [
                        a if isinstance(a, StringImm) else Shuffle((v,), (lane,))
                        for a, v in zip(args, names, strict=True)
                    ]
                ),
                e.dtype,
            )
            if self.predicate is not None:
                active = Shuffle((widen(self.predicate, self.lanes),), (lane,))
                one = Call("tir.if_then_else", (active, one, const(0, e.dtype)), e.dtype)
            out.append(one)
        result: Expr = Shuffle(tuple(out), tuple(range(self.lanes)))
        for v, a in zip(names, args, strict=True):
            if not isinstance(a, StringImm):
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
        side = Shuffle(tuple(each), tuple(range(self.lanes * lanes_of(vector.dtype))))
        return Call(e.op, (side,), with_lanes(e.dtype, self.lanes))


def _is_likely_choice(e: Call) -> bool:
    """Returns whether an ``if_then_else`` stays one: its condition is likely, and neither branch reads memory."""
    usual = isinstance(e.args[0], Call) and e.args[0].op == "tir.likely"
    return usual and not any(isinstance(n, BufferLoad) for side in e.args[1:] for n in pre_order(side))


def _both(a: Expr | None, b: Expr | None) -> Expr | None:
    if a is None:
        return b
    if b is None:
        return a
    lanes = max(lanes_of(a.dtype), lanes_of(b.dtype))
    return And(widen(a, lanes), widen(b, lanes)) if lanes > 1 else And(a, b)
