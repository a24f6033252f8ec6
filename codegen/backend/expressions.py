"""Emits expressions: what each type of node asks of a target, and which integers are computed in 64 bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...tir.dtype import DType
from ...tir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    BinaryOp,
    Broadcast,
    BufferLoad,
    Call,
    Cast,
    CmpOp,
    Div,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Ramp,
    Select,
    Shuffle,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
)  # fmt: skip
from ...tir.index_types import index_like
from .emitter import Emitter


def constant_of(e: Expr) -> int | float | None:
    """Returns the number that a constant has in every lane, or None for other expressions."""
    if isinstance(e, Broadcast):
        e = e.value
    return e.value if isinstance(e, (IntImm, FloatImm)) else None


def arithmetic(em: Emitter, e: BinaryOp) -> str:
    """Returns a sum, difference, product, quotient or remainder."""
    dtype = e.dtype
    if dtype.is_float:
        if type(e) not in (Add, Sub, Mul, Div):
            raise em.error(f"{type(e).__name__} of {dtype}")
        return em.arithmetic(type(e), em.value(e.a), em.value(e.b), dtype)
    if dtype.lanes == 1 and dtype.is_signed and index_like(e) and em.computes_index(e):
        return em.index_value(e)
    if type(e) in (Add, Sub, Mul):
        return em.arithmetic(type(e), em.value(e.a), em.value(e.b), dtype)
    return em.quotient(e, em.value(e.a), em.value(e.b), dtype)


def comparison(em: Emitter, e: CmpOp) -> str:
    """Returns a comparison; index arithmetic is compared in 64 bits."""
    dtype = e.a.dtype
    if dtype.lanes == 1 and dtype.is_int and index_like(e.a) and index_like(e.b):
        return em.comparison(type(e), em.index(e.a), em.index(e.b), DType("int64"))
    return em.comparison(type(e), em.value(e.a), em.value(e.b), dtype)


def _load(em: Emitter, e: BufferLoad) -> str:
    known = em.registers.get(e.buffer)
    return em.load(e) if known is None else known


def _cast(em: Emitter, e: Cast) -> str:
    return em.value(e.value) if e.value.dtype == e.dtype else em.conversion(e.value, e.dtype)


def _select(em: Emitter, e: Select) -> str:
    yes, no = em.value(e.true_value), em.value(e.false_value)
    return em.choice(em.value(e.condition), yes, no, e.dtype, e.condition.dtype)


EXPRESSIONS: dict[type, Callable[[Any, Any], str]] = {
    **dict.fromkeys((Add, Sub, Mul, Div, FloorDiv, FloorMod, TruncDiv, TruncMod), arithmetic),
    **dict.fromkeys((EQ, NE, LT, LE, GT, GE), comparison),
    And: lambda em, e: em.logical(e),
    Broadcast: lambda em, e: em.splat(em.value(e.value), e.value.dtype, e.lanes),
    BufferLoad: _load,
    Call: lambda em, e: em.call(e),
    Cast: _cast,
    FloatImm: lambda em, e: em.floating(e.value, e.dtype),
    IntImm: lambda em, e: em.integer(e.value, e.dtype),
    Let: lambda em, e: em.let(e),
    Max: lambda em, e: em.extreme(e),
    Min: lambda em, e: em.extreme(e),
    Not: lambda em, e: em.negation(em.value(e.a), e.dtype),
    Or: lambda em, e: em.logical(e),
    Ramp: lambda em, e: em.ramp(e),
    Select: _select,
    Shuffle: lambda em, e: em.shuffle(e),
    Var: lambda em, e: em.variable(e),
}
"""The usual emitters by the type of expression."""
