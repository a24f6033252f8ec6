"""Reductions over the lanes of one vector: an annotated loop becomes a single horizontal operation."""

from __future__ import annotations

from ...tir.arith import Analyzer
from ...tir.expr import (
    GT,
    LT,
    And,
    BinaryOp,
    Broadcast,
    BufferLoad,
    DType,
    Expr,
    IntImm,
    Select,
    Var,
    cast,
    conjuncts,
    const,
    op,
    same,
)
from ...tir.expr.intrinsics import operation_named
from ...tir.expr.reducers import REDUCERS
from ...tir.stmt import BufferStore, For, IfThenElse, PrimFunc, Stmt
from ...tir.walk import transform_statements, uses_var
from .lanes import NotVectorizable, any_lane
from .loop_annotations import HORIZONTAL, without
from .vectorize_loops import vectorize_expr

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
    removes NaN. A loop of another shape stays as it is.
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
    if any(uses_var(i, loop.loop_var) for i in store.indices):
        return None

    own = BufferLoad(store.buffer, store.indices)
    lanes = 1 << (loop.extent.value - 1).bit_length()  # those beyond the loop's end take no part
    if lanes > 256:
        return None
    around, mask = _parted(cond, loop.loop_var)
    if lanes > loop.extent.value:
        inside = loop.loop_var < loop.min + loop.extent
        mask = inside if mask is None else And(mask, inside)
    try:
        wide = None if mask is None else vectorize_expr(mask, loop.loop_var, loop.min, lanes)
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
