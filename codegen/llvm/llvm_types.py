"""The LLVM names of data types and constants."""

from __future__ import annotations

from functools import cache

from ...tir.expr import DType
from ...tir.expr.dtype import float_bits, round_float


@cache
def llvm_type(dtype: str) -> str:
    """Returns the type of a value: ``float``, ``<16 x float>``, ``i1`` for bool, ``i16`` for bfloat16."""
    known = DType(dtype)
    kind, bits, lanes = known.kind, known.bits, known.lanes
    if kind == "float":
        base = {16: "half", 32: "float", 64: "double"}[bits]
    elif kind == "bfloat":
        base = "i16"
    elif kind == "handle":
        base = "ptr"
    elif kind == "void":
        base = "void"
    else:
        base = f"i{bits}"
    return base if lanes == 1 else f"<{lanes} x {base}>"


@cache
def memory_type(dtype: str) -> str:
    """Returns the type of an element in memory: the same as :func:`llvm_type`, but a bool takes a byte."""
    known = DType(dtype)
    kind, lanes = known.kind, known.lanes
    if kind != "bool":
        return llvm_type(dtype)
    return "i8" if lanes == 1 else f"<{lanes} x i8>"


@cache
def suffix(dtype: str) -> str:
    """Returns the type's part of an overloaded intrinsic's name: ``f32``, ``v16f32``, ``i64``."""
    known = DType(dtype)
    kind, bits, lanes = known.kind, known.bits, known.lanes
    base = f"f{bits}" if kind == "float" else f"i{max(bits, 1)}"
    return base if lanes == 1 else f"v{lanes}{base}"


def stored_suffix(dtype: DType) -> str:
    """Returns :func:`suffix` of a type in memory, where a bool takes a byte."""
    return suffix(DType("uint8").with_lanes(dtype.lanes) if dtype.is_bool else dtype)


def align_of(dtype: DType) -> int:
    """Returns the alignment of one element in bytes, which is all that a caller's array guarantees."""
    return dtype.element.bytes


def float_constant(value: float, dtype: DType) -> str:
    """Returns an exact floating-point literal: the hexadecimal bits in LLVM's form; for bfloat16, the bits as an
    integer."""
    kind, bits = dtype.kind, dtype.bits
    if kind == "bfloat":
        return str(float_bits(value, dtype))
    if bits == 16:
        return f"0xH{float_bits(value, dtype):04X}"
    return f"0x{float_bits(round_float(value, dtype), 'float64'):016X}"


def splat_constant(text: str, dtype: DType) -> str:
    """Returns ``text``, a scalar literal, in every lane of ``dtype``."""
    lanes = dtype.lanes
    if lanes == 1:
        return text
    return f"splat ({llvm_type(dtype.element)} {text})"


def vector_constant(values: list[int], base: str) -> str:
    """Returns a vector literal of integers of the LLVM type ``base``."""
    return f"<{', '.join(f'{base} {v}' for v in values)}>"


def zero(dtype: DType) -> str:
    """Returns the zero of a type."""
    if dtype.lanes > 1:
        return "zeroinitializer"
    return "0.0" if dtype.is_float and llvm_type(dtype) != "i16" else "0"
