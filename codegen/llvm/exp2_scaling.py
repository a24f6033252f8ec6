"""Emits ``times_exp2`` and ``round_rest`` by the AVX-512 instructions vscalef and vreduce, or by ldexp and arithmetic.

The expansions of exp and similar functions use these operations only where the target has the instructions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...tir.dtype import bits_of, element_of, lanes_of, with_lanes
from ...tir.expr import Call
from .legalize_vectors import by_registers
from .llvm_types import llvm_type, splat_constant, suffix

if TYPE_CHECKING:
    from .llvm_expr import ExprEmitter


def emit_times_exp2(em: ExprEmitter, e: Call) -> str:
    """Returns ``x * 2**floor(n)``."""
    if not em.target.has("avx512f"):
        return _by_library(em, e.dtype, *[em.value(a) for a in e.args])
    return _by_registers(em, e, _scaled)


def emit_round_rest(em: ExprEmitter, e: Call) -> str:
    """Returns ``x - round(x)``, which is 0 for infinities."""
    if em.target.has("avx512dq"):
        return _by_registers(em, e, _reduced)
    (x,) = map(em.value, e.args)
    type_, dot = em.type(e), suffix(e.dtype)
    whole = em.fn.pure(em.intrinsic(f"llvm.roundeven.{dot}", type_, [type_], [x]))
    rest = em.fn.pure(f"fsub {type_} {x}, {whole}")
    size = em.fn.pure(em.intrinsic(f"llvm.fabs.{dot}", type_, [type_], [x]))
    endless = em.fn.pure(f"fcmp oeq {type_} {size}, {splat_constant('0x7FF0000000000000', e.dtype)}")
    zero = splat_constant("0x0", e.dtype)
    return em.fn.pure(
        f"select {llvm_type(with_lanes('bool', lanes_of(e.dtype)))} {endless}, {type_} {zero}, {type_} {rest}"
    )


def _by_registers(em: ExprEmitter, e: Call, instruction: Callable[[ExprEmitter, str, int, list[str]], str]) -> str:
    """Does the same as :func:`by_registers`, with the register widths of the target."""
    bits, scalar = bits_of(e.dtype), element_of(e.dtype)
    widths = [512 // bits, *([256 // bits, 128 // bits] if em.target.has("avx512vl") else [])]
    values = [em.value(a) for a in e.args]
    return by_registers(
        em, values, (scalar, scalar), lanes_of(e.dtype), widths, lambda em, n, parts: instruction(em, scalar, n, parts)
    )


def _by_library(em: ExprEmitter, dtype: str, x: str, n: str) -> str:
    """Calls the C library lane by lane; a NaN in either operand gives NaN."""
    lanes, scalar = lanes_of(dtype), llvm_type(element_of(dtype))
    name, type_, ints = (
        ("ldexpf" if bits_of(dtype) == 32 else "ldexp"),
        llvm_type(dtype),
        llvm_type(with_lanes("int32", lanes)),
    )
    dot = suffix(dtype)
    down = em.fn.pure(em.intrinsic(f"llvm.floor.{dot}", type_, [type_], [n]))
    whole = em.fn.pure(
        em.intrinsic(f"llvm.fptosi.sat.{suffix(with_lanes('int32', lanes))}.{dot}", ints, [type_], [down])
    )
    if lanes == 1:
        out = em.fn.pure(em.intrinsic(name, scalar, [scalar, "i32"], [x, whole]))
    else:
        out = "poison"
        for k in range(lanes):
            a = em.fn.pure(f"extractelement {type_} {x}, i64 {k}")
            b = em.fn.pure(f"extractelement {ints} {whole}, i64 {k}")
            one = em.fn.pure(em.intrinsic(name, scalar, [scalar, "i32"], [a, b]))
            out = em.fn.pure(f"insertelement {type_} {out}, {scalar} {one}, i64 {k}")
    bools = llvm_type(with_lanes("bool", lanes))
    lost = em.fn.pure(f"fcmp uno {type_} {n}, {n}")
    return em.fn.pure(f"select {bools} {lost}, {type_} {n}, {type_} {out}")


def _scaled(em: ExprEmitter, scalar: str, lanes: int, values: list[str]) -> str:
    type_, bits = llvm_type(with_lanes(scalar, lanes)), bits_of(scalar)
    name = f"llvm.x86.avx512.mask.scalef.{'ps' if bits == 32 else 'pd'}.{lanes * bits}"
    mask = f"i{max(lanes, 8)}"
    types, args = [type_, type_, type_, mask], [*values, "zeroinitializer", "-1"]
    if lanes * bits == 512:
        types, args = [*types, "i32"], [*args, "4"]  # rounding mode of the control register
    return em.fn.pure(em.intrinsic(name, type_, types, args))


def _reduced(em: ExprEmitter, scalar: str, lanes: int, values: list[str]) -> str:
    type_, bits = llvm_type(with_lanes(scalar, lanes)), bits_of(scalar)
    name = f"llvm.x86.avx512.mask.reduce.{'ps' if bits == 32 else 'pd'}.{lanes * bits}"
    mask = f"i{max(lanes, 8)}"
    types, args = (
        [type_, "i32", type_, mask],
        [*values, "8", "zeroinitializer", "-1"],
    )  # to nearest even, without exceptions
    if lanes * bits == 512:
        types, args = [*types, "i32"], [*args, "4"]
    return em.fn.pure(em.intrinsic(name, type_, types, args))
