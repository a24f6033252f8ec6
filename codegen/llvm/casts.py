"""Emits conversions between data types."""

from __future__ import annotations

from ...tir.dtype import is_bool, is_float, is_int, is_signed, lanes_of, parse_dtype, with_lanes
from ...tir.expr import Expr
from ...tir.index_types import index_like
from ..machine.target import Target
from .function_builder import FunctionBuilder
from .half_conversions import bfloat_to_float, double_to_odd_float, float_to_bfloat, float_to_half, half_to_float
from .llvm_scope import LlvmScope
from .llvm_types import llvm_type


def emit_cast(em: LlvmScope, e: Expr, to: str) -> str:
    """Return ``e`` converted to ``to``; index arithmetic is 64 bits wide already."""
    if lanes_of(to) == 1 and is_int(to) and parse_dtype(to).bits == 64 and is_signed(e.dtype) and index_like(e):
        return em.index(e)
    return _converted(em.fn, em.target, em.value(e), e.dtype, to)


def _converted(fn: FunctionBuilder, target: Target, text: str, source: str, to: str) -> str:
    """Returns a value converted: integers are truncated or extended by their own sign, floats rounded to nearest even.
    Half floats are converted through float32, which represents every value of float16."""
    if source == to:
        return text
    a, b = parse_dtype(source), parse_dtype(to)
    lanes, single = a.lanes, with_lanes("float32", a.lanes)
    ts, td = llvm_type(source), llvm_type(to)
    if a.kind == "bfloat":
        return _converted(fn, target, bfloat_to_float(fn, text, lanes), single, to)
    if a.kind == "float" and a.bits == 16:
        return _converted(fn, target, half_to_float(fn, target, text, lanes), single, to)
    if b.kind == "bfloat":
        return float_to_bfloat(fn, _converted(fn, target, text, source, single), lanes)
    if b.kind == "float" and b.bits == 16:
        double = a.kind == "float" and a.bits == 64
        wide = double_to_odd_float(fn, text, lanes) if double else _converted(fn, target, text, source, single)
        return float_to_half(fn, target, wide, lanes)
    if is_bool(to):
        zero = "zeroinitializer" if lanes > 1 else "0.0" if is_float(source) else "0"
        return fn.pure(f"{'fcmp une' if is_float(source) else 'icmp ne'} {ts} {text}, {zero}")
    if is_float(source):
        if is_float(to):
            return fn.pure(f"{'fpext' if b.bits > a.bits else 'fptrunc'} {ts} {text} to {td}")
        return fn.pure(f"{'fptosi' if is_signed(to) else 'fptoui'} {ts} {text} to {td}")
    if is_float(to):
        return fn.pure(f"{'sitofp' if is_signed(source) else 'uitofp'} {ts} {text} to {td}")
    if a.bits == b.bits and not is_bool(source):
        return text
    if a.bits > b.bits:
        literal = lanes == 1 and not text.startswith("%")  # LLVM truncates surplus bits
        return text if literal else fn.pure(f"trunc {ts} {text} to {td}")
    return fn.pure(f"{'sext' if is_signed(source) else 'zext'} {ts} {text} to {td}")
