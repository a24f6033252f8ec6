"""float16 and bfloat16 are storage formats: values are widened when loaded and rounded when stored."""

from __future__ import annotations

from typing import Any

from ...tir.dtype import bits_of, is_float, lanes_of, with_lanes
from ...tir.expr import Broadcast, BufferLoad, Call, Cast, FloatImm, Let, Shuffle, Var
from ...tir.function import PrimFunc
from ...tir.stmt import BufferStore, LetStmt
from ...tir.walk import pre_order

__all__ = ["widen_half_floats"]


def _is_half(dtype: str) -> bool:
    return is_float(dtype) and bits_of(dtype) == 16


def _wide(dtype: str) -> str:
    return with_lanes("float32", lanes_of(dtype))


def widen_half_floats(func: PrimFunc) -> PrimFunc:
    """Compute in float32 what is stored as float16 or bfloat16.

    Before (``A``, ``B`` are float16)::

        B[i] = A[i] * A[i] + T.float16(1)

    After::

        B[i] = T.Cast("float16", T.Cast("float32", A[i]) * T.Cast("float32", A[i]) + T.float32(1))
    """
    if not any(hasattr(n, "dtype") and _is_half(n.dtype) for n in pre_order(func) if not isinstance(n, (BufferStore,))):
        return func
    env: dict[Var, Var] = {}

    def visit(n: Any) -> Any:
        if isinstance(n, Var):
            if n in env:
                return env[n]
            return Cast(_wide(n.dtype), n) if _is_half(n.dtype) else n
        if isinstance(n, FloatImm):
            return FloatImm(n.value, "float32") if _is_half(n.dtype) else n
        if isinstance(n, (Let, LetStmt)) and _is_half(n.var.dtype):
            var = Var(n.var.name, _wide(n.var.dtype))
            value = visit(n.value)
            env[n.var] = var
            return type(n)(var, value, visit(n.body))
        if isinstance(n, BufferStore):
            n = n.map_children(visit)
            if _is_half(n.buffer.dtype):
                return BufferStore(
                    n.buffer,
                    _round(n.value, with_lanes(n.buffer.dtype, lanes_of(n.value.dtype))),
                    n.indices,
                    n.predicate,
                )
            return n
        half = hasattr(n, "dtype") and _is_half(n.dtype)
        if isinstance(n, BufferLoad):
            n = n.map_children(visit)
            return Cast(_wide(n.dtype), n) if half else n
        if isinstance(n, Cast):
            value = visit(n.value)
            if half:
                return Cast(_wide(n.dtype), _round(value, n.dtype))
            return value if value.dtype == n.dtype else Cast(n.dtype, value)
        if isinstance(n, Call) and n.op == "tir.address_of":
            return Call(n.op, tuple([a.map_children(visit) for a in n.args]), n.dtype)
        if isinstance(n, Call) and n.op in ("tir.dot2_bf16", "tir.tile_dot2_bf16", "tir.tile_store"):
            return Call(n.op, tuple([as_stored(a) if _is_half(a.dtype) else visit(a) for a in n.args]), n.dtype)
        if isinstance(n, Call):
            n = n.map_children(visit)
            if n.op == "tir.reinterpret":
                return n
            if n.op == "tir.tile_load" and half:
                return Cast(_wide(n.dtype), n)
            return Call(n.op, n.args, _wide(n.dtype)) if half else n
        return n.map_children(visit)

    def as_stored(n: Any) -> Any:
        """An operand that is wanted as memory holds it."""
        if isinstance(n, BufferLoad):
            return n.map_children(visit)
        if isinstance(n, (Broadcast, Shuffle)):
            return n.map_children(as_stored)
        return n.map_children(visit) if _as_bits(n) else _round(visit(n), n.dtype)

    return func.with_body(visit(func.body))


def _as_bits(n: Any) -> bool:
    return isinstance(n, Call) and n.op == "tir.reinterpret"


def _round(value: Any, dtype: str) -> Any:
    """``value`` as ``dtype``; a value that was just widened from it is taken back as it was."""
    if isinstance(value, Cast) and value.value.dtype == dtype:
        return value.value
    return Cast(dtype, value)
