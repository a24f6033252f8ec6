"""Index arithmetic in 64 bits, as sums of products, so that addresses share common parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...tir.dtype import lanes_of
from ...tir.expr import (
    Add,
    BinaryOp,
    Broadcast,
    Cast,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Ramp,
    Sub,
    Var,
)
from ...tir.index_types import INDEX_TYPES, index_like
from .integer_division import divide

if TYPE_CHECKING:
    from .llvm_expr import ExprEmitter


class Linear:
    """A sum ``const + sum(coefficient * operand)``; operands are names of i64 values."""

    __slots__ = ("const", "terms")

    def __init__(self, const: int = 0, terms: dict[str, int] | None = None) -> None:
        self.const = const
        self.terms = terms if terms is not None else {}

    def plus(self, other: Linear, factor: int = 1) -> Linear:
        """Return ``self + factor * other``."""
        terms = dict(self.terms)
        for name, coefficient in other.terms.items():
            total = terms.get(name, 0) + factor * coefficient
            if total:
                terms[name] = total
            else:
                terms.pop(name, None)
        return Linear(self.const + factor * other.const, terms)

    def times(self, factor: int) -> Linear:
        """Return ``factor * self``."""
        if factor == 0:
            return Linear()
        return Linear(self.const * factor, {n: c * factor for n, c in self.terms.items()})


def linear(em: ExprEmitter, e: Expr) -> Linear:
    """Returns the scalar integer ``e`` as a sum. Parts that are not sums, or that wrap around in their own type, become
    operands."""
    if isinstance(e, IntImm):
        return Linear(e.value)
    if isinstance(e, Broadcast):
        return linear(em, e.value)
    if e.dtype not in INDEX_TYPES:
        return Linear(0, {index_operand(em, e): 1})
    if isinstance(e, Add):
        return linear(em, e.a).plus(linear(em, e.b))
    if isinstance(e, Sub):
        return linear(em, e.a).plus(linear(em, e.b), -1)
    if isinstance(e, Mul):
        a, b = linear(em, e.a), linear(em, e.b)
        if not b.terms:
            return a.times(b.const)
        if not a.terms:
            return b.times(a.const)
        product = em.fn.pure(f"mul nsw i64 {linear_text(em, a)}, {linear_text(em, b)}")
        return Linear(0, {product: 1})
    return Linear(0, {index_operand(em, e): 1})


def linear_text(em: ExprEmitter, lin: Linear) -> str:
    """Returns the i64 value of a sum."""
    out: str | None = None
    for name, coefficient in lin.terms.items():
        term = name if coefficient == 1 else em.fn.pure(f"mul nsw i64 {name}, {coefficient}")
        out = term if out is None else em.fn.pure(f"add nsw i64 {out}, {term}")
    if out is None:
        return str(lin.const)
    return out if lin.const == 0 else em.fn.pure(f"add nsw i64 {out}, {lin.const}")


def index_text(em: ExprEmitter, e: Expr) -> str:
    """Returns the i64 value of a scalar integer expression."""
    return linear_text(em, linear(em, e))


def index_operand(em: ExprEmitter, e: Expr) -> str:
    """Returns the i64 value of an expression that is not a sum."""
    fn = em.fn
    if isinstance(e, Var):
        return em.index_var(e)
    if isinstance(e, (FloorDiv, FloorMod)) and e.dtype in INDEX_TYPES:
        return _floor(em, e)
    if isinstance(e, (Min, Max)) and e.dtype in INDEX_TYPES:
        name = "smin" if isinstance(e, Min) else "smax"
        return fn.pure(
            em.intrinsic(f"llvm.{name}.i64", "i64", ["i64", "i64"], [index_text(em, e.a), index_text(em, e.b)])
        )
    if isinstance(e, Cast) and index_like(e):
        return index_text(em, e.value)
    text = em.value(e)
    type_ = em.type(e)
    if type_ == "i64":
        return text
    extend = "zext" if e.dtype.startswith(("u", "b")) else "sext"
    return fn.pure(f"{extend} {type_} {text} to i64")


def _floor(em: ExprEmitter, e: BinaryOp) -> str:
    fn = em.fn
    a = index_text(em, e.a)
    positive = em.is_nonnegative(e.a)
    if isinstance(e.b, IntImm) and e.b.value > 0:
        c = e.b.value
        if c & (c - 1) == 0:  # an arithmetic shift and a mask round down for negative numbers too
            if isinstance(e, FloorDiv):
                return fn.pure(f"ashr i64 {a}, {c.bit_length() - 1}")
            return fn.pure(f"and i64 {a}, {c - 1}")
        if positive:
            return fn.pure(f"{'udiv' if isinstance(e, FloorDiv) else 'urem'} i64 {a}, {c}")
    return divide(em, e, a, index_text(em, e.b), "int64")


def ramp_of(em: ExprEmitter, e: Expr) -> tuple[Linear, Linear] | None:
    """Returns base and stride of a vector index with evenly spaced lanes, or None for other indices."""
    if isinstance(e, Ramp):
        return linear(em, e.base), linear(em, e.stride)
    if isinstance(e, Broadcast) or lanes_of(e.dtype) == 1:
        return linear(em, e), Linear()
    return None
