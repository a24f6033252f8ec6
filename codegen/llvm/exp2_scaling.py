"""Emits ``times_exp2`` and ``round_rest`` by the AVX-512 instructions vscalef and vreduce, or by ldexp and arithmetic.

The expansions of exp and similar functions use these operations only where the target has the instructions.
"""

from __future__ import annotations

from ...tir.expr import Call, DType
from .function_builder import FunctionBuilder
from .legalize_vectors import by_registers
from .llvm_scope import LlvmScope
from .llvm_types import llvm_type, splat_constant, suffix


def _times_exp2(em: LlvmScope, e: Call) -> str:
    """Returns ``x * 2**floor(n)``."""
    if not em.target.has("avx512f"):
        return _by_library(em.fn, e.dtype, *em.values(e.args))
    return _by_registers(em, e, "scalef", ["zeroinitializer"])


def _round_rest(em: LlvmScope, e: Call) -> str:
    """Returns ``x - round(x)``, which is 0 for infinities."""
    if em.target.has("avx512dq"):
        return _by_registers(em, e, "reduce", ["8", "zeroinitializer"])  # to nearest even, without exceptions
    fn, type_, dot = em.fn, em.type(e), suffix(e.dtype)
    x = em.value(e.args[0])
    rest = fn.pure(f"fsub {type_} {x}, {fn.called(f'llvm.roundeven.{dot}', type_, x)}")
    size = fn.called(f"llvm.fabs.{dot}", type_, x)
    endless = fn.pure(f"fcmp oeq {type_} {size}, {splat_constant('0x7FF0000000000000', e.dtype)}")
    return fn.chosen(_bools(e.dtype), endless, type_, splat_constant("0x0", e.dtype), rest)


def _bools(dtype: DType) -> str:
    return llvm_type(DType("bool").with_lanes(dtype.lanes))


def _by_library(fn: FunctionBuilder, dtype: DType, x: str, n: str) -> str:
    """Calls the C library lane by lane; a NaN in either operand gives NaN."""
    lanes, type_, dot = dtype.lanes, llvm_type(dtype), suffix(dtype)
    whole_dtype = DType("int32").with_lanes(lanes)
    down = fn.called(f"llvm.floor.{dot}", type_, n)
    saturating = f"llvm.fptosi.sat.{suffix(whole_dtype)}.{dot}"
    whole = fn.pure(fn.intrinsic(saturating, llvm_type(whole_dtype), [type_], [down]))
    scalar = llvm_type(dtype.element)
    name = "ldexpf" if dtype.bits == 32 else "ldexp"
    out = fn.each_lane(name, scalar, [scalar, "i32"], lanes, [x, whole])
    return fn.chosen(_bools(dtype), fn.pure(f"fcmp uno {type_} {n}, {n}"), type_, n, out)


def _by_registers(em: LlvmScope, e: Call, word: str, controls: list[str]) -> str:
    """Applies an AVX-512 instruction to one register of lanes at a time. ``controls``: its further operands."""
    bits, scalar = e.dtype.bits, e.dtype.element
    widths = [512 // bits, *([256 // bits, 128 // bits] if em.target.has("avx512vl") else [])]

    def instruction(lanes: int, values: list[str]) -> str:
        type_ = llvm_type(scalar.with_lanes(lanes))
        name = f"llvm.x86.avx512.mask.{word}.{'ps' if bits == 32 else 'pd'}.{lanes * bits}"
        args = [*values, *controls, "-1"]
        types = ["i32" if a.isdigit() else type_ for a in args[:-1]] + [f"i{max(lanes, 8)}"]
        if lanes * bits == 512:
            types, args = [*types, "i32"], [*args, "4"]  # rounding mode of the control register
        return em.fn.pure(em.fn.intrinsic(name, type_, types, args))

    return by_registers(em.fn, em.values(e.args), (scalar, scalar), e.dtype.lanes, widths, instruction)


EXP2_CALLS = {"round_rest": _round_rest, "times_exp2": _times_exp2}
"""Emitters by the operation's name."""
