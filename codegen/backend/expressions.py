"""Emits expressions: what each type of node asks of a target, and which integers are computed in 64 bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...tir.expr import Call, Cast, DType, Expr, Let, Shuffle, Var, index_like
from ...tir.expr.nodes import expr as E
from .emitter import Emitter


def constant_of(e: E.Expr) -> int | float | None:
    """Returns the number that a constant has in every lane, or None for other expressions."""
    if isinstance(e, E.Broadcast):
        e = e.value
    return e.value if isinstance(e, (E.IntImm, E.FloatImm)) else None


def arithmetic(em: Emitter, e: E.BinaryOp) -> str:
    """Returns a sum, difference, product, quotient or remainder."""
    dtype = e.dtype
    if dtype.is_float:
        if type(e) not in (E.Add, E.Sub, E.Mul, E.Div):
            raise em.error(f"{type(e).__name__} of {dtype}")
        return em.arithmetic(type(e), em.value(e.a), em.value(e.b), dtype)
    if dtype.lanes == 1 and dtype.is_signed and index_like(e) and em.computes_index(e):
        return em.index_value(e)
    if type(e) in (E.Add, E.Sub, E.Mul):
        return em.arithmetic(type(e), em.value(e.a), em.value(e.b), dtype)
    return em.quotient(e, em.value(e.a), em.value(e.b), dtype)


def comparison(em: Emitter, e: E.CmpOp) -> str:
    """Returns a comparison; index arithmetic is compared in 64 bits."""
    dtype = e.a.dtype
    if dtype.lanes == 1 and dtype.is_int and index_like(e.a) and index_like(e.b):
        return em.comparison(type(e), em.index(e.a), em.index(e.b), DType("int64"))
    return em.comparison(type(e), em.value(e.a), em.value(e.b), dtype)


def _load(em: Emitter, e: E.BufferLoad) -> str:
    return em.registers[e.buffer] if e.buffer in em.registers else em.load(e)


def _cast(em: Emitter, e: E.Cast) -> str:
    return em.value(e.value) if e.value.dtype == e.dtype else em.conversion(e.value, e.dtype)


def _select(em: Emitter, e: E.Select) -> str:
    yes, no = em.value(e.true_value), em.value(e.false_value)
    return em.choice(em.value(e.condition), yes, no, e.dtype, e.condition.dtype)


EXPRESSIONS: dict[type, Callable[[Any, Any], str]] = {
    **dict.fromkeys((E.Add, E.Sub, E.Mul, E.Div, E.FloorDiv, E.FloorMod, E.TruncDiv, E.TruncMod), arithmetic),
    **dict.fromkeys((E.EQ, E.NE, E.LT, E.LE, E.GT, E.GE), comparison),
    E.And: lambda em, e: em.logical(e),
    E.Broadcast: lambda em, e: em.splat(em.value(e.value), e.value.dtype, e.lanes),
    E.BufferLoad: _load,
    E.Call: lambda em, e: em.call(e),
    E.Cast: _cast,
    E.FloatImm: lambda em, e: em.floating(e.value, e.dtype),
    E.IntImm: lambda em, e: em.integer(e.value, e.dtype),
    E.Let: lambda em, e: em.let(e),
    E.Max: lambda em, e: em.extreme(e),
    E.Min: lambda em, e: em.extreme(e),
    E.Not: lambda em, e: em.negation(em.value(e.a), e.dtype),
    E.Or: lambda em, e: em.logical(e),
    E.Ramp: lambda em, e: em.ramp(e),
    E.Select: _select,
    E.Shuffle: lambda em, e: em.shuffle(e),
    E.Var: lambda em, e: em.variable(e),
}
"""The usual emitters by the type of expression."""


# Expands dot products into plain arithmetic on parts of the vectors, for machines without an instruction for them.


def expand_dot(e: Call) -> Expr:
    """Return ``dot4_u8i8`` or ``dot2_bf16`` (see :mod:`tilewright.tir.expr.intrinsics`) as casts, products and sums.

    Before::

        T.dot2_bf16(c, a, b)

    After, with ``a`` and ``b`` named::

        c + T.Cast("float32x8", odd(a)) * T.Cast("float32x8", odd(b)) + T.Cast(…, even(a)) * T.Cast(…, even(b))
    """
    c, a, b = e.args
    lanes = e.dtype.lanes
    width = a.dtype.lanes // lanes
    left, right = Var("a", a.dtype), Var("b", b.dtype)
    total = c
    for n in reversed(range(width)):
        x, y = (Cast(e.dtype, part(v, range(n, width * lanes, width))) for v in (left, right))
        total = total + x * y
    return Let(left, a, Let(right, b, total))


def part(vector: Expr, which: range) -> Expr:
    """Returns some lanes of a vector, as a scalar when it is a single lane."""
    if len(which) == vector.dtype.lanes and which.step == 1:
        return vector
    picked = Shuffle((vector,), tuple(which))
    assert picked.dtype == vector.dtype.with_lanes(len(which))
    return picked
