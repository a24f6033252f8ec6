"""Widens float16 and bfloat16, which are storage formats: values are computed in float32 and rounded after each
operation.

A sum, difference, product, quotient or square root of two float16 or bfloat16 values that is computed in float32 and
then rounded is the nearest one, as if it had been computed in the narrow type: float32 has more than twice as many
digits, and two more (S. Figueroa, "When is double rounding innocuous?", 1995). Compiled code therefore gives the same
results as the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...tir.expr import (
    Broadcast,
    BufferLoad,
    Call,
    Cast,
    DType,
    Expr,
    FloatImm,
    Let,
    Max,
    Min,
    Mul,
    Select,
    Shuffle,
    Var,
)
from ...tir.expr.dtype import round_float
from ...tir.expr.intrinsics import OPERATIONS
from ...tir.expr.intrinsics.matrix_operations import GROUP_LOADS, WARP_LOADS
from ...tir.expr.intrinsics.warp_fragments import FRAGMENT_OPERATIONS
from ...tir.stmt import BufferStore, LetStmt, PrimFunc
from ...tir.walk import pre_order

_EXACT = frozenset(op for op, row in OPERATIONS.items() if row.exact)
"""Operations whose result is representable when the operands are."""
_AS_STORED = (
    "tir.dot2_bf16", "tir.tile_dot2_bf16", "tir.tile_store", "tir.reinterpret", "tir.wmma_dot", "tir.wgmma_dot", "tir.wgmma_columns", "tir.wgmma_store", "tir.atomic_add",
    "tir.atomic_add_pair", *FRAGMENT_OPERATIONS,
)  # fmt: skip
"""Operations that take their half-width operands as memory holds them."""

_LOADS = ("tir.tile_load", *WARP_LOADS, *GROUP_LOADS)
"""Operations that load half-width numbers as memory holds them."""


def _is_half(dtype: DType) -> bool:
    return dtype.is_float and dtype.bits == 16


def _wide(dtype: DType) -> str:
    return DType("float32").with_lanes(dtype.lanes)


def widen_half_floats(func: PrimFunc) -> PrimFunc:
    """Compute in float32 what is stored as float16 or bfloat16.

    Before (``A``, ``B`` are float16)::

        B[i] = A[i] * A[i] + T.float16(1)

    After::

        B[i] = T.Cast("float16", T.Cast("float32", T.Cast("float16", T.Cast("float32", A[i]) * T.Cast("float32", A[i])))
                                 + T.float32(1))

    The result of an operation is rounded before the next one sees it. An operation that only chooses among values (a
    store, minima and maxima, ``T.Select``) does not count as the next one: rounding keeps the order of numbers, so it
    may follow the choice.
    """
    if not any(hasattr(n, "dtype") and _is_half(n.dtype) for n in pre_order(func) if not isinstance(n, BufferStore)):
        return func
    return func.with_body(_Widening().visit(func.body))


class _Widening:
    """The rewriting of one function. ``visit`` gives a float32 value that may have more digits than its type in the
    program holds; ``value`` gives it rounded."""

    def __init__(self) -> None:
        self.env: dict[Var, Var] = {}

    def visit(self, n: Any) -> Any:
        """Return ``n`` in float32 where its type is float16 or bfloat16, not yet rounded; other nodes with their
        children widened."""
        rule = _RULES.get(type(n))
        if rule is not None:
            return rule(self, n)
        if isinstance(n, Expr) and not isinstance(n, _CHOICES):
            return n.map_children(self.value)
        return n.map_children(self.visit)

    def value(self, n: Any) -> Any:
        """Return :meth:`visit`, rounded to the type that ``n`` has in the program."""
        wide = self.visit(n)
        if not isinstance(n, Expr) or not _is_half(n.dtype) or _needs_no_rounding(wide, n.dtype):
            return wide
        return Cast(wide.dtype, Cast(n.dtype, wide))

    def stored(self, n: Expr) -> Expr:
        """Return a value of the program as memory holds it, in its own type."""
        if not _is_half(n.dtype):
            return self.visit(n)
        if isinstance(n, (Broadcast, Shuffle)):
            return n.map_children(self.stored)  # type: ignore[return-value]
        return _rounded(self.visit(n), n.dtype)

    def variable(self, n: Var) -> Expr:
        if n in self.env:
            return self.env[n]
        return Cast(_wide(n.dtype), n) if _is_half(n.dtype) else n

    def constant(self, n: FloatImm) -> Expr:
        return FloatImm(round_float(n.value, n.dtype), "float32") if _is_half(n.dtype) else n

    def let(self, n: Let | LetStmt) -> Any:
        if not _is_half(n.var.dtype):
            return n.map_children(self.visit)
        var, value = Var(n.var.name, _wide(n.var.dtype)), self.value(n.value)
        self.env[n.var] = var
        return type(n)(var, value, self.visit(n.body))

    def store(self, n: BufferStore) -> BufferStore:
        moved = n.map_children(self.visit)
        if not _is_half(n.buffer.dtype):
            return moved  # type: ignore[return-value]
        dtype = n.buffer.dtype.with_lanes(n.value.dtype.lanes)
        return BufferStore(n.buffer, _rounded(moved.value, dtype), moved.indices, moved.predicate)  # type: ignore[attr-defined]

    def load(self, n: BufferLoad) -> Expr:
        moved = n.map_children(self.visit)
        return Cast(_wide(n.dtype), moved) if _is_half(n.dtype) else moved  # type: ignore[arg-type, return-value]

    def cast(self, n: Cast) -> Expr:
        value = self.value(n.value)
        if _is_half(n.dtype):
            return Cast(_wide(n.dtype), _rounded(value, n.dtype))
        return value if value.dtype == n.dtype else Cast(n.dtype, value)

    def call(self, n: Call) -> Expr:
        half = _is_half(n.dtype)
        if n.op == "tir.address_of":
            return Call(n.op, tuple([a.map_children(self.visit) for a in n.args]), n.dtype)
        if n.op in _AS_STORED:
            made = Call(n.op, tuple([self.stored(a) for a in n.args]), n.dtype)
            return Cast(_wide(n.dtype), made) if half else made
        if n.op == "tir.if_then_else":
            return Call(n.op, tuple([self.visit(a) for a in n.args]), _wide(n.dtype) if half else n.dtype)
        args = tuple([self.value(a) for a in n.args])
        if n.op in _LOADS and half:
            return Cast(_wide(n.dtype), Call(n.op, args, n.dtype))
        if n.op == "tir.fma" and n.dtype.kind == "float" and half:  # float32 would round twice
            double = DType("float64").with_lanes(n.dtype.lanes)
            return Cast(_wide(n.dtype), Cast(n.dtype, Call(n.op, tuple([Cast(double, a) for a in args]), double)))
        return Call(n.op, args, _wide(n.dtype) if half else n.dtype)


_CHOICES = (Min, Max, Select, Broadcast, Shuffle)
_RULES: dict[type, Callable[[_Widening, Any], Any]] = {
    Var: _Widening.variable,
    FloatImm: _Widening.constant,
    Let: _Widening.let,
    LetStmt: _Widening.let,
    BufferStore: _Widening.store,
    BufferLoad: _Widening.load,
    Cast: _Widening.cast,
    Call: _Widening.call,
}


def _rounded(wide: Expr, dtype: DType) -> Expr:
    """Returns a float32 value as ``dtype``; a value that was only just widened from it is returned as it was."""
    if isinstance(wide, Cast) and wide.value.dtype == dtype:
        return wide.value
    return Cast(dtype, wide)


def _needs_no_rounding(wide: Any, dtype: DType) -> bool:
    """Returns whether the widened form of a value of type ``dtype`` was rounded before, or chosen among rounded
    values."""
    if isinstance(wide, Cast):
        return wide.value.dtype.element == dtype.element
    rule = _CHOSEN_AMONG.get(type(wide))
    values = None if rule is None else rule(wide)
    return values is not None and all(_needs_no_rounding(value, dtype) for value in values)


def _of_call(wide: Call) -> Sequence[Expr] | None:
    if wide.op == "tir.if_then_else":
        return wide.args[1:]
    return () if wide.op in _EXACT else None


_CHOSEN_AMONG: dict[type, Callable[[Any], Sequence[Expr] | None]] = {
    Broadcast: lambda e: (e.value,),
    Call: _of_call,
    FloatImm: lambda e: (),
    Let: lambda e: (e.body,),
    Max: lambda e: (e.a, e.b),
    Min: lambda e: (e.a, e.b),
    Mul: lambda e: (e.a,) if isinstance(e.b, FloatImm) and e.b.value == -1.0 else None,
    Select: lambda e: (e.true_value, e.false_value),
    Shuffle: lambda e: e.vectors,
    Var: lambda e: (),
}
"""The values of which an expression is one, perhaps with another sign; none for those that are rounded as they are."""
