"""Reductions over the lanes of one vector: a loop marked for it becomes a single horizontal operation."""

from __future__ import annotations

from ...tir.dtype import is_float, max_value, min_value, with_lanes
from ...tir.equal import structural_equal
from ...tir.expr import (
    GT,
    LT,
    Add,
    And,
    BinaryOp,
    Broadcast,
    BufferLoad,
    Call,
    Expr,
    IntImm,
    Max,
    Min,
    Mul,
    Select,
    const,
)
from ...tir.function import PrimFunc
from ...tir.stmt import BufferStore, For, IfThenElse, Stmt
from ...tir.walk import transform, uses_var
from .vectorize import NotVectorizable, vectorize_expr

__all__ = ["lower_horizontal"]

ANNOTATION = "tir.horizontal_reduce"

_REDUCERS: dict[type[BinaryOp], str] = {
    Add: "tir.vector_reduce_add",
    Mul: "tir.vector_reduce_mul",
    Max: "tir.vector_reduce_max",
    Min: "tir.vector_reduce_min",
}


def lower_horizontal(func: PrimFunc) -> PrimFunc:
    """A loop annotated ``tir.horizontal_reduce`` over the terms of a sum (product, maximum, minimum) at once.

    Before::

        for l in T.serial(16, annotations={"tir.horizontal_reduce": 1}):
            s[0] = s[0] + p[l]

    After::

        s[0] = s[0] + T.vector_reduce_add(p[T.Ramp(0, 1, 16)])

    The annotation allows the terms to be combined in any order. The largest of those terms that are numbers,
    ``s[0] = T.Select(p[l] > s[0], p[l], s[0])``, is one of these, too: compared with ``s[0]`` in every lane first, which
    leaves no NaN. A loop of another shape stays as it is.
    """

    def post(n: object) -> Stmt | None:
        if not (isinstance(n, For) and ANNOTATION in n.annotations):
            return None
        rest = {k: v for k, v in n.annotations.items() if k != ANNOTATION}
        return _reduce(n) or n.with_(annotations=rest)

    return transform(func, post=post)  # type: ignore[no-any-return]


def _reduce(loop: For) -> Stmt | None:
    body = loop.body
    guarded = isinstance(body, IfThenElse) and body.else_case is None
    store, cond = (body.then_case, body.condition) if isinstance(body, IfThenElse) and guarded else (body, None)
    if not isinstance(loop.extent, IntImm) or not isinstance(store, BufferStore):
        return None
    value = store.value
    if any(uses_var(i, loop.loop_var) for i in store.indices):
        return None

    def is_self(e: Expr) -> bool:
        return (
            isinstance(e, BufferLoad)
            and e.buffer is store.buffer
            and all(structural_equal(a, b) for a, b in zip(e.indices, store.indices, strict=True))
        )

    lanes = loop.extent.value
    if lanes & (lanes - 1) or lanes > 256:
        return None
    if isinstance(value, Select):
        return _reduce_numbers(loop, store, value, cond) if is_self(value.false_value) else None
    if type(value) not in _REDUCERS:
        return None
    assert isinstance(value, BinaryOp)
    old, term = (value.a, value.b) if is_self(value.a) else (value.b, value.a)
    if not is_self(old):
        return None
    try:
        vector = vectorize_expr(term, loop.loop_var, loop.min, lanes)
        if cond is not None:
            mask = vectorize_expr(cond, loop.loop_var, loop.min, lanes)
            identity = const(_identity(type(value), term.dtype), with_lanes(term.dtype, lanes))
            vector = Select(mask, vector, identity)
    except NotVectorizable:
        return None
    total = Call(_REDUCERS[type(value)], (vector,), term.dtype)
    return BufferStore(store.buffer, type(value)(old, total), store.indices)


def _reduce_numbers(loop: For, store: BufferStore, value: Select, cond: Expr | None) -> Stmt | None:
    """``s = x > s ? x : s`` (or ``<``) over the lanes."""
    test, term, old = value.condition, value.true_value, value.false_value
    if not isinstance(test, (GT, LT)) or not is_float(term.dtype):
        return None
    if not (structural_equal(test.a, term) and structural_equal(test.b, old)):
        return None
    lanes = int(loop.extent)  # type: ignore[call-overload]
    try:
        vector = vectorize_expr(term, loop.loop_var, loop.min, lanes)
        start: Expr = Broadcast(old, lanes)
        better: Expr = type(test)(vector, start)
        if cond is not None:
            better = And(vectorize_expr(cond, loop.loop_var, loop.min, lanes), better)
    except NotVectorizable:
        return None
    op = "tir.vector_reduce_fmax" if isinstance(test, GT) else "tir.vector_reduce_fmin"
    return BufferStore(store.buffer, Call(op, (Select(better, vector, start),), term.dtype), store.indices)


def _identity(kind: type[BinaryOp], dtype: str) -> int | float:
    if kind is Add:
        return 0
    if kind is Mul:
        return 1
    if is_float(dtype):
        return float("-inf") if kind is Max else float("inf")
    return min_value(dtype) if kind is Max else max_value(dtype)
