"""This module defines the words that make expressions; they are functions inside and outside TIR functions.

The names of node classes (``T.Add``, ``T.Select``, ``T.Cast`` …) build exactly that node; functions in lower case fold
constants and match the operands' types like the operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import expr as E
from .. import fixed_point, op, tile_ops
from ..dtype import element_of, lanes_of, with_lanes
from .type_words import TypeWord


def _raw(cls: type[E.BinaryOp]) -> Callable[[Any, Any], E.Expr]:
    def build(a: Any, b: Any) -> E.Expr:
        return cls(*E.match_types(a, b))

    build.__name__, build.__doc__ = cls.__name__, f"The node {cls.__name__}(a, b); nothing is folded."
    return build


def _unary(name: str) -> Callable[[Any], E.Expr]:
    def build(x: Any) -> E.Expr:
        return op.unary(name, x)

    build.__name__, build.__doc__ = name, f"tir.{name}"
    return build


def Not(a: Any) -> E.Expr:
    """Return the node Not(a)."""
    return E.Not(E.convert(a))


def Select(condition: Any, true_value: Any, false_value: Any) -> E.Expr:
    """Return ``true_value`` where ``condition`` holds, else ``false_value``; both are evaluated."""
    return op.select(condition, true_value, false_value)


def Cast(dtype: str, value: Any) -> E.Expr:
    """Return the node Cast(dtype, value); :func:`cast` returns a value that has the type already as it is."""
    return E.Cast(dtype, E.convert(value))


def cast(value: Any, dtype: str) -> E.Expr:
    """Return ``value`` converted to ``dtype``."""
    return E.cast(dtype, E.convert(value))


def Ramp(base: Any, stride: Any, lanes: Any) -> E.Expr:
    """Return the vector base, base + stride, …"""
    b = E.convert(base)
    return E.Ramp(b, E.convert(stride, b.dtype), int(lanes))


def Broadcast(value: Any, lanes: Any) -> E.Expr:
    """Return a vector with one scalar in every lane."""
    return E.Broadcast(E.convert(value), int(lanes))


def Shuffle(vectors: Any, indices: Any) -> E.Expr:
    """Return lanes picked from the concatenation of vectors."""
    return E.Shuffle(E.as_exprs(vectors), tuple(int(i) for i in indices))


def call(name: str, *args: Any, dtype: str) -> E.Expr:
    """Return a call of any operation, as in ``T.call("tir.exp", x, dtype="float32")``."""
    return E.Call(name, E.as_exprs(args), dtype)


def _call_as(name: str) -> Callable[..., E.Expr]:
    def build(*args: Any, dtype: str | None = None) -> E.Expr:
        if dtype is None:
            first = args[0].dtype if args and isinstance(args[0], TypeWord) else args[0] if args else None
            if not isinstance(first, str):
                raise TypeError(f"T.{name} takes the result's type first, or dtype=")
            dtype, args = first, args[1:]
        return E.Call(f"tir.{name}", E.as_exprs(args), dtype or "void")

    build.__name__, build.__doc__ = name, f"tir.{name}: the type of the result, then the arguments."
    return build


_BY_NAME = {
    *op.UNARY_FLOAT_OPS, "atan2", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "clz", "copysign", "fma", "fmod",
    "hypot", "if_then_else", "isfinite", "isinf", "isnan", "likely", "popcount", "pow", "q_multiply_shift",
    "q_multiply_shift_per_axis", "shift_left", "shift_right",
}  # fmt: skip


def call_intrin(*args: Any, dtype: str | None = None) -> E.Expr:
    """Return a call of an operation by its name, as in ``T.call_intrin("float32", "tir.exp", x)``."""
    call = _call_as("call_intrin")(*args, dtype=dtype)
    assert isinstance(call, E.Call)
    name = call.args[0].value if call.args and isinstance(call.args[0], E.StringImm) else ""
    if name.startswith("tir.") and name.removeprefix("tir.") in _BY_NAME:
        return E.Call(name, call.args[1:], call.dtype)
    return call


def ret(value: Any) -> E.Expr:
    """Return from the function with a value."""
    e = E.convert(value)
    return E.Call("tir.ret", (e,), e.dtype)


def address_of(load: Any) -> E.Expr:
    """Return the address of an element."""
    return E.Call("tir.address_of", (E.convert(load),), "handle")


def tvm_access_ptr(ptype: Any, data: Any, offset: Any, extent: Any, rw_mask: Any, dtype: str = "handle") -> E.Expr:
    """Return the address of element ``offset`` of the memory at ``data``; ``rw_mask`` is 1 when it is read, 2 when
    written, 3 for both."""
    return E.Call("tir.tvm_access_ptr", E.as_exprs((ptype, data, offset, extent, rw_mask)), dtype)


def _opaque(name: str, result: str = "handle") -> Callable[..., E.Expr]:
    def build(*args: Any, dtype: str = result) -> E.Expr:
        return E.Call(f"tir.{name}", E.as_exprs(args), dtype or "void")

    build.__name__, build.__doc__ = name, f"tir.{name}, of which only its arguments are known here."
    return build


def type_annotation(dtype: str) -> E.Expr:
    """Return a data type as an argument of :func:`tvm_access_ptr`."""
    return E.Call("tir.type_annotation", (), dtype)


def llvm_lookup_intrinsic_id(name: str) -> str:
    """Return the name itself, because intrinsics of LLVM are called by name here."""
    return name


def assume(condition: Any) -> E.Expr:
    """Declare that a condition always holds."""
    e = E.convert(condition)
    return E.Call("tir.assume", (e,), e.dtype)


def undef(dtype: str = "float32") -> E.Expr:
    """Return an unspecified value."""
    return E.Call("tir.undef", (), dtype)


def prefetch(address: Any, *args: Any) -> E.Expr:
    """Prefetch memory that is needed later."""
    return E.Call("tir.prefetch", E.as_exprs((address, *args)), "int32")


def _lane_reduction(name: str) -> Callable[[Any], E.Expr]:
    def build(x: Any) -> E.Expr:
        e = E.convert(x)
        return E.Call(f"tir.{name}", (e,), element_of(e.dtype))

    build.__name__, build.__doc__ = name, "The lanes of one vector combined, in no stated order."
    return build


def _half(name: str) -> Callable[[Any], E.Expr]:
    def build(x: Any) -> E.Expr:
        e = E.convert(x)
        return E.Call(f"tir.{name}", (e,), with_lanes(e.dtype, lanes_of(e.dtype) // 2))

    build.__name__, build.__doc__ = name, "One half of a vector's lanes."
    return build


def _bits(name: str) -> Callable[[Any, Any], E.Expr]:
    def build(a: Any, b: Any) -> E.Expr:
        x, y = E.match_types(a, b)
        return E.Call(f"tir.{name}", (x, y), x.dtype)

    build.__name__, build.__doc__ = name, f"tir.{name} of two integers."
    return build


def _infinity(dtype: str = "float32") -> E.Expr:
    return op.infinity(dtype)


_NODES = (
    E.Add, E.Sub, E.Mul, E.Div, E.TruncDiv, E.TruncMod, E.FloorDiv, E.FloorMod, E.Min, E.Max,
    E.EQ, E.NE, E.LT, E.LE, E.GT, E.GE, E.And, E.Or,
)  # fmt: skip

TYPED = {"call", "cast", "Cast", "type_annotation", "undef", "infinity", "max_value", "min_value", "tile_load"}
"""Functions with a ``dtype`` parameter; for others TVM's ``dtype=`` only repeats the type of the result."""

FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{cls.__name__: _raw(cls) for cls in _NODES},
    **{name: _unary(name) for name in op.UNARY_FLOAT_OPS},
    **{f.__name__: f for f in (Not, Select, Cast, cast, Ramp, Broadcast, Shuffle, call, ret, address_of, assume, undef, prefetch,
        llvm_lookup_intrinsic_id, tvm_access_ptr, type_annotation, op.dot2_bf16, op.dot4_u8i8,
        fixed_point.q_multiply_shift, fixed_point.q_multiply_shift_per_axis, tile_ops.tile_dot2_bf16, tile_ops.tile_dot4, tile_ops.tile_load, tile_ops.tile_store)},
    **{
        name: _call_as(name)
        for name in (
            "call_extern", "call_pure_extern", "call_llvm_intrin", "call_llvm_pure_intrin", "reinterpret",
        )
    },
    "call_intrin": call_intrin,
    **{name: _opaque(name) for name in op.OPAQUE_CALLS},
    **{name: _opaque(name, "int32") for name in op.OPAQUE_INTS},
    **{f"vector_reduce_{x}": _lane_reduction(f"vector_reduce_{x}") for x in ("add", "fmax", "fmin", "max", "min", "mul")},
    **{name: _half(name) for name in ("vectorlow", "vectorhigh")},
    **{name: _bits(name) for name in ("bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right")},
    "abs": op.abs_, "all": op.all_, "any": op.any_, "atan2": op.atan2, "bitwise_not": op.bitwise_not,
    "broadcast": Broadcast, "ceildiv": op.ceildiv, "clz": op.clz, "copysign": op.copysign, "floordiv": op.floordiv,
    "floormod": op.floormod, "fma": op.fma, "fmod": op.fmod, "hypot": op.hypot, "if_then_else": op.if_then_else,
    "infinity": _infinity, "isfinite": op.isfinite, "isinf": op.isinf, "isnan": op.isnan, "likely": op.likely,
    "lookup": op.lookup,
    "max": op.max_, "max_value": op.max_value_of, "min": op.min_, "min_value": op.min_value_of,
    "popcount": op.popcount, "pow": op.pow_, "power": op.pow_, "ramp": Ramp, "round_rest": op.round_rest, "select": Select,
    "times_exp2": op.times_exp2,
    "truncdiv": op.truncdiv, "truncmod": op.truncmod,
}  # fmt: skip
"""The functions, by the name after ``T.``."""
