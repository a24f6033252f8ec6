"""Emits operations on the bits of values: logic, shifts, leading zeros, kinds of floats, the alignment of an
address."""

from __future__ import annotations

from collections.abc import Callable

from ...tir.expr import Call, DType, IntImm
from ..backend.value_ranges import range_of
from .llvm_scope import LlvmScope
from .llvm_types import llvm_type, splat_constant, suffix, zero

_BITWISE = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}


def _bitwise(word: str) -> Callable[[LlvmScope, Call], str]:
    return lambda em, e: em.fn.pure(f"{word} {em.type(e)} {em.value(e.args[0])}, {em.value(e.args[1])}")


def _shift(em: LlvmScope, e: Call) -> str:
    """Returns a shifted value. The processor reads only a few bits of the distance, so a distance that may be too large
    is checked first."""
    fn, type_, bits = em.fn, em.type(e), e.dtype.bits
    left = e.op == "tir.shift_left"
    how = "shl" if left else "ashr" if e.dtype.is_signed else "lshr"
    value, by = em.values(e.args)
    low, high = range_of(em, e.args[1])
    if low is not None and high is not None and 0 <= low and high < bits:
        return fn.pure(f"{how} {type_} {value}, {by}")
    if how == "ashr":
        near = fn.called(f"llvm.umin.{suffix(e.dtype)}", type_, by, splat_constant(str(bits - 1), e.dtype))
        return fn.pure(f"ashr {type_} {value}, {near}")
    fits = fn.pure(f"icmp ult {type_} {by}, {splat_constant(str(bits), e.dtype)}")
    return fn.chosen(
        llvm_type(DType("bool").with_lanes(e.dtype.lanes)),
        fits,
        type_,
        fn.pure(f"{how} {type_} {value}, {by}"),
        zero(e.dtype),
    )


def _bitwise_not(em: LlvmScope, e: Call) -> str:
    return em.fn.pure(f"xor {em.type(e)} {em.value(e.args[0])}, {splat_constant('-1', e.dtype)}")


def _clz(em: LlvmScope, e: Call) -> str:
    type_, name = em.type(e), f"llvm.ctlz.{suffix(e.dtype)}"
    return em.fn.pure(em.fn.intrinsic(name, type_, [type_, "i1"], [em.value(e.args[0]), "false"]))


def _classify(em: LlvmScope, e: Call) -> str:
    (x,) = e.args
    type_, text = em.type(x), em.value(x)
    if e.op == "tir.isnan":
        return em.fn.pure(f"fcmp uno {type_} {text}, {text}")
    size = em.fn.called(f"llvm.fabs.{suffix(x.dtype)}", type_, text)
    infinity = "0x7FF0000000000000" if x.dtype.bits != 16 else "0xH7C00"
    how = "oeq" if e.op == "tir.isinf" else "olt"
    return em.fn.pure(f"fcmp {how} {type_} {size}, {splat_constant(infinity, x.dtype)}")


def _misaligned(em: LlvmScope, e: Call) -> str:
    where = em.fn.pure(f"ptrtoint ptr {em.value(e.args[0])} to i64")
    (_, size) = e.args
    assert isinstance(size, IntImm)
    low = em.fn.pure(f"and i64 {where}, {size.value - 1}")
    return low if em.type(e) == "i64" else em.fn.pure(f"trunc i64 {low} to {em.type(e)}")


BIT_CALLS: dict[str, Callable[[LlvmScope, Call], str]] = {
    **{name: _bitwise(word) for name, word in _BITWISE.items()},
    **dict.fromkeys(("isnan", "isinf", "isfinite"), _classify),
    **dict.fromkeys(("shift_left", "shift_right"), _shift),
    "bitwise_not": _bitwise_not,
    "clz": _clz,
    "misaligned": _misaligned,
}
"""Emitters by the operation's name."""
