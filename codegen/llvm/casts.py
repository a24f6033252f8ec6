"""Emits conversions between data types."""

from __future__ import annotations

from ...tir.expr import DType, Expr, index_like
from ..machine.target import Target
from .function_builder import FunctionBuilder
from .half_conversions import bfloat_to_float, double_to_odd_float, float_to_bfloat, float_to_half, half_to_float
from .llvm_scope import LlvmScope
from .llvm_types import llvm_type


def emit_cast(em: LlvmScope, e: Expr, to: DType) -> str:
    """Return ``e`` converted to ``to``; index arithmetic is 64 bits wide already."""
    if to.lanes == 1 and to.is_int and to.bits == 64 and e.dtype.is_signed and index_like(e):
        return em.index(e)
    return _converted(em.fn, em.target, em.value(e), e.dtype, to)


def _converted(fn: FunctionBuilder, target: Target, text: str, source: DType, to: DType) -> str:
    """Returns a value converted: integers are truncated or extended by their own sign, floats rounded to nearest even.
    Half floats are converted through float32, which represents every value of float16."""
    if source == to:
        return text
    a, b = source, to
    lanes, single = DType(a).lanes, DType("float32").with_lanes(a.lanes)
    ts, td = llvm_type(source), llvm_type(to)
    if DType(a).kind == "bfloat":
        return _converted(fn, target, bfloat_to_float(fn, text, lanes), single, to)
    if DType(a).kind == "float" and DType(a).bits == 16:
        return _converted(fn, target, half_to_float(fn, target, text, lanes), single, to)
    if DType(b).kind == "bfloat":
        return float_to_bfloat(fn, _converted(fn, target, text, source, single), lanes)
    if DType(b).kind == "float" and DType(b).bits == 16:
        double = DType(a).kind == "float" and DType(a).bits == 64
        wide = double_to_odd_float(fn, text, lanes) if double else _converted(fn, target, text, source, single)
        return float_to_half(fn, target, wide, lanes)
    if to.is_bool:
        zero = "zeroinitializer" if lanes > 1 else "0.0" if source.is_float else "0"
        return fn.pure(f"{'fcmp une' if source.is_float else 'icmp ne'} {ts} {text}, {zero}")
    if source.is_float:
        if to.is_float:
            return fn.pure(f"{'fpext' if DType(b).bits > a.bits else 'fptrunc'} {ts} {text} to {td}")
        return fn.pure(f"{'fptosi' if to.is_signed else 'fptoui'} {ts} {text} to {td}")
    if to.is_float:
        return fn.pure(f"{'sitofp' if source.is_signed else 'uitofp'} {ts} {text} to {td}")
    if DType(a).bits == b.bits and not source.is_bool:
        return text
    if DType(a).bits > b.bits:
        literal = lanes == 1 and not text.startswith("%")  # LLVM truncates surplus bits
        return text if literal else fn.pure(f"trunc {ts} {text} to {td}")
    return fn.pure(f"{'sext' if source.is_signed else 'zext'} {ts} {text} to {td}")
