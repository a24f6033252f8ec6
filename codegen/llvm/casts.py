"""Emits conversions between data types."""

from __future__ import annotations

from ...tir.expr import DType, Expr, index_like, max_value, min_value
from ..backend.value_ranges import whole_in_range
from .llvm_scope import LlvmScope
from .llvm_types import float_constant, llvm_type, splat_constant, suffix


def emit_cast(em: LlvmScope, e: Expr, to: DType) -> str:
    """Return ``e`` converted to ``to``; index arithmetic is 64 bits wide already."""
    if to.lanes == 1 and to.is_int and to.bits == 64 and e.dtype.is_signed and index_like(e):
        return em.index(e)
    text = em.value(e)
    in_range = e.dtype.is_float and to.is_int and whole_in_range(em, e, to)
    return em.converted(text, e.dtype, to, in_range)


def converted(em: LlvmScope, text: str, source: DType, to: DType, in_range: bool = False) -> str:
    """Returns a value converted: integers are truncated or extended by their own sign, floats rounded to nearest even.

    ``in_range``: the value, truncated, is one of ``to``, or NaN.
    """
    if source == to:
        return text
    if any(one.is_float and one.bits == 16 for one in (source, to)):
        return em.half_conversion(text, source, to, in_range)
    fn, ts, td = em.fn, llvm_type(source), llvm_type(to)
    if to.is_bool:
        zero = "zeroinitializer" if to.lanes > 1 else "0.0" if source.is_float else "0"
        return fn.pure(f"{'fcmp une' if source.is_float else 'icmp ne'} {ts} {text}, {zero}")
    if source.is_float:
        if to.is_float:
            return fn.pure(f"{'fpext' if to.bits > source.bits else 'fptrunc'} {ts} {text} to {td}")
        by_machine = em.target.arch.startswith(_SATURATING)
        return (_saturating if by_machine else _within_ends)(em, text, source, to, in_range)
    if to.is_float:
        return fn.pure(f"{'sitofp' if source.is_signed else 'uitofp'} {ts} {text} to {td}")
    if source.bits == to.bits and not source.is_bool:
        return text
    if source.bits > to.bits:
        literal = to.lanes == 1 and not text.startswith("%")  # LLVM truncates surplus bits
        return text if literal else fn.pure(f"trunc {ts} {text} to {td}")
    return fn.pure(f"{'sext' if source.is_signed else 'zext'} {ts} {text} to {td}")


_SATURATING = ("aarch64", "arm", "riscv", "wasm")
"""Architectures whose conversions give the nearer end of the range."""


def _within_ends(em: LlvmScope, text: str, source: DType, to: DType, in_range: bool) -> str:
    """Returns a float as an integer where the conversion says nothing of what lies beyond its range.

    NaN and what lies below are replaced before it; so is what lies above, unless the largest integer is no float.
    """
    fn, ts, t1 = em.fn, llvm_type(source), llvm_type(DType("bool").with_lanes(to.lanes))
    low, high = int(min_value(to)), int(max_value(to))

    def number(value: float) -> str:
        return splat_constant(float_constant(value, source.element), source)

    def test(word: str, x: str, y: str) -> str:
        return fn.pure(f"fcmp {word} {ts} {x}, {y}")

    x = text
    if to.is_signed:
        x = fn.chosen(t1, test("ord", x, x), ts, x, number(0.0))
        x = x if in_range else fn.chosen(t1, test("ogt", x, number(float(low))), ts, x, number(float(low)))
    else:
        x = fn.chosen(t1, test("ogt", x, number(0.0)), ts, x, number(0.0))
    exact = to.bits < (24 if source.bits == 32 else 53)
    if not in_range and exact:
        x = fn.chosen(t1, test("olt", x, number(float(high))), ts, x, number(float(high)))
    out = fn.pure(f"{'fptosi' if to.is_signed else 'fptoui'} {ts} {x} to {llvm_type(to)}")
    if in_range or exact:
        return out
    beyond = test("oge", x, number(float(high + 1)))
    return fn.chosen(t1, beyond, llvm_type(to), splat_constant(str(high), to), out)


def _saturating(em: LlvmScope, text: str, source: DType, to: DType, in_range: bool) -> str:
    """Returns a float as an integer by the machine's conversion to 32 or 64 bits, which saturates.

    The ends of narrower types are taken after it.
    """
    fn = em.fn
    wide = to if to.bits >= 32 else DType("int32").with_lanes(to.lanes)
    tw, name = llvm_type(wide), f"llvm.fpto{'si' if wide.is_signed else 'ui'}.sat.{suffix(wide)}.{suffix(source)}"
    out = fn.pure(fn.intrinsic(name, tw, [llvm_type(source)], [text]))
    if wide == to:
        return out
    for word, end in () if in_range else (("smax", min_value(to)), ("smin", max_value(to))):
        out = fn.pure(fn.intrinsic(f"llvm.{word}.{suffix(wide)}", tw, [tw, tw], [out, splat_constant(str(end), wide)]))
    return fn.pure(f"trunc {tw} {out} to {llvm_type(to)}")
