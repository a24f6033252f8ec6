"""Reductions and recurrences over the lanes of one vector: an annotated loop becomes a single statement."""

from __future__ import annotations

from ...tir.arith import Analyzer
from ...tir.expr import (
    GT,
    LT,
    Add,
    And,
    BinaryOp,
    Broadcast,
    BufferLoad,
    Call,
    DType,
    Expr,
    IntImm,
    Let,
    Select,
    Shuffle,
    Var,
    cast,
    conjuncts,
    const,
    is_const_int,
    op,
    same,
    structural_equal,
)
from ...tir.expr.intrinsics import operation_named
from ...tir.expr.reducers import REDUCERS, Reducer
from ...tir.stmt import BufferStore, For, IfThenElse, PrimFunc, Stmt
from ...tir.walk import pre_order, substitute, transform_statements, uses_var
from .lanes import NotVectorizable, any_lane, widen
from .loop_annotations import HORIZONTAL, without
from .vectorize_loops import VectorExpressions, vectorize_expr

_REDUCERS = {row.node: row for row in REDUCERS if row.lanes}
"""The reductions of the lanes of a vector, by the node that combines two values, or that chooses one."""


def lower_horizontal(func: PrimFunc) -> PrimFunc:
    """Turn a loop annotated ``tir.horizontal_reduce`` into one operation on all terms of a sum, product, maximum or
    minimum.

    Before::

        for l in T.serial(16, annotations={"tir.horizontal_reduce": 1}):
            s[0] = s[0] + p[l]

    After::

        s[0] = s[0] + T.vector_reduce_add(p[T.Ramp(0, 1, 16)])

    The annotation allows the terms to be combined in any order. The maximum that ignores NaN,
    ``s[0] = T.Select(p[l] > s[0], p[l], s[0])``, is supported too: every lane is compared with ``s[0]`` first, which
    removes NaN.

    A loop of steps that combine what the one before stored with one more term becomes a prefix sum within a vector, of
    one shuffle for each doubling (W. D. Hillis, G. L. Steele, "Data parallel algorithms", 1986).

    Before::

        for l in T.serial(4, annotations={"tir.horizontal_reduce": 1}):
            s[t + l] = s[t + l - 1] + x[t + l]

    After::

        let a = x[T.Ramp(t, 1, 4)], b = a + [0, a[0], a[1], a[2]], c = b + [0, 0, b[0], b[1]]
        s[T.Ramp(t, 1, 4)] = T.Broadcast(s[t - 1], 4) + c

    A loop of another shape stays as it is.
    """

    def post(n: object) -> Stmt | None:
        if not (isinstance(n, For) and HORIZONTAL in n.annotations):
            return None
        return _reduce(n) or without(n, HORIZONTAL)

    return transform_statements(func, post)


def _reduce(loop: For) -> Stmt | None:
    body = loop.body
    guarded = isinstance(body, IfThenElse) and body.else_case is None
    store, cond = (body.then_case, body.condition) if isinstance(body, IfThenElse) and guarded else (body, None)
    if not isinstance(loop.extent, IntImm) or not isinstance(store, BufferStore):
        return None
    value = store.value
    lanes = 1 << (loop.extent.value - 1).bit_length()  # those beyond the loop's end take no part
    if lanes > 256:
        return None
    around, mask = _parted(cond, loop.loop_var)
    if lanes > loop.extent.value:
        inside = loop.loop_var < loop.min + loop.extent
        mask = inside if mask is None else And(mask, inside)
    own = BufferLoad(store.buffer, store.indices)
    try:
        wide = None if mask is None else vectorize_expr(mask, loop.loop_var, loop.min, lanes)
        if any(uses_var(i, loop.loop_var) for i in store.indices):
            made = _running(loop, store, wide, lanes)
            if made is None or around is None:
                return made
            return IfThenElse(around, made)
        if isinstance(value, Select):
            total = _of_numbers(loop, value, wide, lanes) if same(value.false_value, own) else None
        else:
            total = _of_terms(loop, value, wide, own, lanes)
    except NotVectorizable:
        return None
    if total is None:
        return None
    if wide is not None:
        some = any_lane(wide, Analyzer())
        around = some if around is None else And(around, some)
    reduced = BufferStore(store.buffer, total, store.indices)
    return reduced if around is None else IfThenElse(around, reduced)


def _parted(cond: Expr | None, lane: Var) -> tuple[Expr | None, Expr | None]:
    """Returns the part of a condition that is the same in all lanes, and the part that differs."""
    same: list[Expr] = []
    mask: list[Expr] = []
    for part in [] if cond is None else conjuncts(cond):
        (mask if uses_var(part, lane) else same).append(part)
    return (op.all_(*same) if same else None), (op.all_(*mask) if mask else None)


def _of_terms(loop: For, value: Expr, mask: Expr | None, own: BufferLoad, lanes: int) -> Expr | None:
    """Returns ``s = s + x`` over the lanes of ``mask`` as one operation."""
    reducer = _REDUCERS.get(type(value)) if isinstance(value, BinaryOp) else None
    if not isinstance(value, BinaryOp) or reducer is None or not reducer.lanes or not reducer.either_way:
        return None
    old, term = (value.a, value.b) if same(value.a, own) else (value.b, value.a)
    if not same(old, own):
        return None
    vector = vectorize_expr(term, loop.loop_var, loop.min, lanes, mask)
    if mask is not None:
        identity = const(reducer.starts_from[0].identity(term.dtype), term.dtype.with_lanes(lanes))
        vector = Select(mask, vector, identity)
    combine = operation_named(reducer.lanes)
    if term.dtype == "bool":  # lanes are combined as numbers
        return type(value)(old, cast("bool", combine(cast(DType("uint8").with_lanes(lanes), vector))))
    return type(value)(old, combine(vector))


def _running(loop: For, store: BufferStore, mask: Expr | None, lanes: int) -> Stmt | None:
    """Returns the steps ``s[t] = s[t - 1] + x`` of the loop as a store of one vector."""
    var, analyzer, value = loop.loop_var, Analyzer(), store.value
    begins = value.args if isinstance(value, Call) and value.op == "tir.if_then_else" else None
    if begins is not None:
        value = begins[2]
    reducer = _REDUCERS.get(type(value)) if isinstance(value, BinaryOp) else None
    if not isinstance(value, BinaryOp) or reducer is None or not reducer.either_way or value.dtype == "bool":
        return None
    before = tuple([analyzer.simplify(substitute(i, {var: var - 1})) for i in store.indices])

    def is_before(e: Expr) -> bool:
        return (
            isinstance(e, BufferLoad) and e.buffer is store.buffer and e.predicate is None
            and all(analyzer.can_prove_equal(a, b) for a, b in zip(e.indices, before, strict=True))
        )  # fmt: skip

    term = value.b if is_before(value.a) else value.a if is_before(value.b) else None
    if term is None:
        return None
    at_start = {var: loop.min}
    neutral = const(_start(reducer, value), value.dtype)
    kept: Expr = BufferLoad(store.buffer, tuple([analyzer.simplify(substitute(i, at_start)) for i in before]))
    if begins is not None:
        test, first, _ = begins
        step = _first_step(test, var, analyzer)
        if step is None:
            return None
        alike = [analyzer.simplify(substitute(e, {var: step})) for e in (first, term)]
        if not structural_equal(*alike):
            term = Call("tir.if_then_else", (test, first, term), term.dtype)
        kept = Call("tir.if_then_else", (analyzer.simplify(substitute(test, at_start)), neutral, kept), kept.dtype)
    if any(isinstance(n, BufferLoad) and n.buffer.data is store.buffer.data for n in pre_order(term)):
        return None
    vectors = VectorExpressions(var, loop.min, lanes, analyzer)
    indices = tuple([vectors.expr(i) for i in store.indices])
    none = Broadcast(neutral, lanes)
    sums = widen(vectors.masked(term, mask), lanes)
    if mask is not None:
        sums = Select(mask, sums, none)
    named: list[tuple[Var, Expr]] = []
    for apart in [1 << n for n in range(lanes.bit_length() - 1)]:
        here = Var("sums", sums.dtype)
        named.append((here, sums))
        later = Shuffle((here, none), tuple([lanes if lane < apart else lane - apart for lane in range(lanes)]))
        sums = type(value)(later, here)
    for var, vector in reversed(named):
        sums = Let(var, vector, sums)
    return BufferStore(store.buffer, type(value)(Broadcast(kept, lanes), sums), indices, mask)


def _start(reducer: Reducer, value: Expr) -> float:
    """Returns the number that never changes a result; of a float sum it is -0.0."""
    return -0.0 if reducer.node is Add and value.dtype.is_float else reducer.starts_from[0].identity(value.dtype)


def _first_step(test: Expr, var: Var, analyzer: Analyzer) -> Expr | None:
    """Returns the value of ``var`` in the first step, which the test ``step < 1`` tells apart."""
    if not (isinstance(test, LT) and is_const_int(test.b, 1)):
        return None
    step = analyzer.simplify(var - test.a)
    return None if uses_var(step, var) else step


def _of_numbers(loop: For, value: Select, mask: Expr | None, lanes: int) -> Expr | None:
    """Returns ``s = x > s ? x : s`` (or ``<``) over the lanes of ``mask`` as one operation."""
    test, term, old = value.condition, value.true_value, value.false_value
    reducer = _REDUCERS.get(type(test)) if isinstance(test, (GT, LT)) and term.dtype.is_float else None
    if not isinstance(test, (GT, LT)) or reducer is None or not reducer.lanes:
        return None
    if not (same(test.a, term) and same(test.b, old)):
        return None
    vector = vectorize_expr(term, loop.loop_var, loop.min, lanes, mask)
    start: Expr = Broadcast(old, lanes)
    better: Expr = type(test)(vector, start)
    if mask is not None:
        better = And(mask, better)
    return operation_named(reducer.lanes)(Select(better, vector, start))
