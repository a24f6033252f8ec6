"""Emits conversions between data types."""

from __future__ import annotations

from ...tir.expr import DType, Expr, index_like
from .llvm_scope import LlvmScope
from .llvm_types import llvm_type


def emit_cast(em: LlvmScope, e: Expr, to: DType) -> str:
    """Return ``e`` converted to ``to``; index arithmetic is 64 bits wide already."""
    if to.lanes == 1 and to.is_int and to.bits == 64 and e.dtype.is_signed and index_like(e):
        return em.index(e)
    return em.converted(em.value(e), e.dtype, to)


def converted(em: LlvmScope, text: str, source: DType, to: DType) -> str:
    """Returns a value converted: integers are truncated or extended by their own sign, floats rounded to nearest even."""
    if source == to:
        return text
    if any(one.is_float and one.bits == 16 for one in (source, to)):
        return em.half_conversion(text, source, to)
    fn, ts, td = em.fn, llvm_type(source), llvm_type(to)
    if to.is_bool:
        zero = "zeroinitializer" if to.lanes > 1 else "0.0" if source.is_float else "0"
        return fn.pure(f"{'fcmp une' if source.is_float else 'icmp ne'} {ts} {text}, {zero}")
    if source.is_float:
        if to.is_float:
            return fn.pure(f"{'fpext' if to.bits > source.bits else 'fptrunc'} {ts} {text} to {td}")
        return fn.pure(f"{'fptosi' if to.is_signed else 'fptoui'} {ts} {text} to {td}")
    if to.is_float:
        return fn.pure(f"{'sitofp' if source.is_signed else 'uitofp'} {ts} {text} to {td}")
    if source.bits == to.bits and not source.is_bool:
        return text
    if source.bits > to.bits:
        literal = to.lanes == 1 and not text.startswith("%")  # LLVM truncates surplus bits
        return text if literal else fn.pure(f"trunc {ts} {text} to {td}")
    return fn.pure(f"{'sext' if source.is_signed else 'zext'} {ts} {text} to {td}")
