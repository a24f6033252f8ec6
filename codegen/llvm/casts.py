"""Emits conversions between data types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...tir.dtype import bits_of, is_bool, is_float, is_signed, lanes_of, parse_dtype, with_lanes
from ...tir.expr import Expr
from ...tir.index_types import index_like
from .half_conversions import bfloat_to_float, double_to_odd_float, float_to_bfloat, float_to_half, half_to_float
from .index_arithmetic import index_text
from .llvm_types import llvm_type

if TYPE_CHECKING:
    from .llvm_expr import ExprEmitter


def emit_cast(em: ExprEmitter, e: Expr, to: str) -> str:
    """Return ``e`` converted to ``to``: integers are truncated or extended by their own sign, floats rounded to nearest
    even."""
    fn, source = em.fn, e.dtype
    if source == to:
        return em.value(e)
    a, b = parse_dtype(source), parse_dtype(to)
    ts, td = llvm_type(source), llvm_type(to)
    if a.kind == "bfloat":
        return _from_float32(em, bfloat_to_float(em, em.value(e), a.lanes), to)
    if a.kind == "float" and a.bits == 16:
        return _from_float32(em, half_to_float(em, em.value(e), a.lanes), to)
    if b.kind == "bfloat":
        wide = emit_cast(em, e, with_lanes("float32", a.lanes))
        return float_to_bfloat(em, wide, a.lanes)
    if is_bool(to):
        text = em.value(e)
        if is_float(source):
            return fn.pure(f"fcmp une {ts} {text}, {'0.0' if a.lanes == 1 else 'zeroinitializer'}")
        return fn.pure(f"icmp ne {ts} {text}, {'0' if a.lanes == 1 else 'zeroinitializer'}")
    if is_float(source):
        text = em.value(e)
        if is_float(to):
            if b.bits == 16:
                return float_to_half(em, text if a.bits == 32 else double_to_odd_float(em, text, a.lanes), a.lanes)
            return (
                text
                if a.bits == b.bits
                else fn.pure(f"{'fpext' if b.bits > a.bits else 'fptrunc'} {ts} {text} to {td}")
            )
        return fn.pure(f"{'fptosi' if is_signed(to) else 'fptoui'} {ts} {text} to {td}")
    if is_float(to):
        how = "sitofp" if is_signed(source) else "uitofp"
        if b.bits == 16:  # through float32, which represents every value of float16
            single = with_lanes("float32", b.lanes)
            wide = fn.pure(f"{how} {ts} {em.value(e)} to {llvm_type(single)}")
            return float_to_half(em, wide, b.lanes)
        return fn.pure(f"{how} {ts} {em.value(e)} to {td}")
    if a.lanes == 1 and b.bits == 64 and is_signed(source) and index_like(e):
        return index_text(em, e)
    text = em.value(e)
    if a.bits == b.bits and not is_bool(source):
        return text
    if a.bits > b.bits:
        literal = a.lanes == 1 and not text.startswith("%")  # LLVM truncates surplus bits
        return text if literal else fn.pure(f"trunc {ts} {text} to {td}")
    return fn.pure(f"{'sext' if is_signed(source) else 'zext'} {ts} {text} to {td}")


def _from_float32(em: ExprEmitter, text: str, to: str) -> str:
    lanes = lanes_of(to)
    single = llvm_type(with_lanes("float32", lanes))
    td = llvm_type(to)
    if parse_dtype(to).kind == "bfloat":
        return float_to_bfloat(em, text, lanes)
    if is_bool(to):
        return em.fn.pure(f"fcmp une {single} {text}, {'0.0' if lanes == 1 else 'zeroinitializer'}")
    if is_float(to):
        if bits_of(to) == 32:
            return text
        return float_to_half(em, text, lanes) if bits_of(to) == 16 else em.fn.pure(f"fpext {single} {text} to {td}")
    return em.fn.pure(f"{'fptosi' if is_signed(to) else 'fptoui'} {single} {text} to {td}")
