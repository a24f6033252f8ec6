"""Emits ``lookup``, by instructions that permute the lanes of a register or from a constant array.

The instructions of AVX2, AVX-512 and NEON serve sixteen float32. Other tables, and other targets, read a constant
array, lane by lane.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable

from ...tir.expr import Call, DType, FloatImm
from .legalize_vectors import by_registers
from .llvm_scope import LlvmScope
from .llvm_types import float_constant, llvm_type, splat_constant, vector_constant


def emit_lookup(em: LlvmScope, e: Call) -> str:
    """Returns ``values[number % len(values)]``."""
    number, *values = e.args
    scalar, lanes, has = e.dtype.element, e.dtype.lanes, em.target.has
    table = [v.value for v in values if isinstance(v, FloatImm)]
    assert len(table) == len(values), "tir.op.lookup takes constants"
    pick: Callable[[LlvmScope, list[float], int, str], str] | None = None
    if lanes > 1 and scalar == "float32" and len(table) == 16:
        if has("avx512f"):
            widths, pick = [16, 8] if has("avx512vl") else [16], _avx512
        elif has("avx2"):
            widths, pick = [8], _avx2
        elif em.target.arch == "aarch64" and has("neon"):
            widths, pick = [4], _neon
    if pick is None:
        return _from_memory(em, e, table)
    instruction = pick
    return by_registers(
        em.fn, [em.value(number)], ("int32", scalar), lanes, widths,
        lambda n, parts: instruction(em, table, n, parts[0]),
    )  # fmt: skip


def _vector(table: list[float]) -> str:
    texts = [f"float {float_constant(v, DType('float32'))}" for v in table]
    return f"<{', '.join(texts)}>"


def _avx512(em: LlvmScope, table: list[float], lanes: int, number: str) -> str:
    """Looks up by vpermps, or by vpermi2ps from two registers. Both take the number modulo 16."""
    if lanes == 16:
        types = ["<16 x float>", "<16 x i32>"]
        return em.fn.pure(em.fn.intrinsic("llvm.x86.avx512.permvar.sf.512", types[0], types, [_vector(table), number]))
    types = ["<8 x float>", "<8 x i32>", "<8 x float>"]
    args = [_vector(table[:8]), number, _vector(table[8:])]
    return em.fn.pure(em.fn.intrinsic("llvm.x86.avx512.vpermi2var.ps.256", types[0], types, args))


def _avx2(em: LlvmScope, table: list[float], lanes: int, number: str) -> str:
    """Looks up by vpermd in the first half of the bits and in the differences of the second half.

    vpermd takes the number modulo 8.

    This is cheaper than a choice between two halves, which takes processors three steps.
    """
    bits = struct.unpack("16I", struct.pack("16f", *table))
    halves = [list(bits[:8]), [a ^ b for a, b in zip(bits[:8], bits[8:], strict=True)]]
    type_ = "<8 x i32>"
    low, other = (
        em.fn.pure(
            em.fn.intrinsic("llvm.x86.avx2.permd", type_, [type_, type_], [vector_constant(half, "i32"), number])
        )
        for half in halves
    )
    fourth = em.fn.pure(f"shl <8 x i32> {number}, splat (i32 28)")
    mask = em.fn.pure(f"ashr <8 x i32> {fourth}, splat (i32 31)")
    turned = em.fn.pure(f"and <8 x i32> {other}, {mask}")
    found = em.fn.pure(f"xor <8 x i32> {low}, {turned}")
    return em.fn.pure(f"bitcast <8 x i32> {found} to <8 x float>")


def _neon(em: LlvmScope, table: list[float], lanes: int, number: str) -> str:
    """Looks up by tbl, which picks bytes from four registers; the bytes of number k begin at 4k."""
    below = em.fn.pure(f"and <4 x i32> {number}, splat (i32 15)")
    spread = em.fn.pure(f"mul <4 x i32> {below}, splat (i32 {0x04040404})")
    picks = em.fn.pure(f"add <4 x i32> {spread}, splat (i32 {0x03020100})")
    text = em.fn.pure(f"bitcast <4 x i32> {picks} to <16 x i8>")
    registers = [em.fn.pure(f"bitcast <4 x float> {_vector(table[k : k + 4])} to <16 x i8>") for k in range(0, 16, 4)]
    types = ["<16 x i8>"] * 5
    found = em.fn.pure(em.fn.intrinsic("llvm.aarch64.neon.tbl4.v16i8", types[0], types, [*registers, text]))
    return em.fn.pure(f"bitcast <16 x i8> {found} to <4 x float>")


def _from_memory(em: LlvmScope, e: Call, table: list[float]) -> str:
    scalar, ints = llvm_type(e.dtype.element), DType("int32").with_lanes(e.dtype.lanes)
    kind = f"[{len(table)} x {scalar}]"
    texts = [float_constant(v, e.dtype.element) for v in table]
    body = f"{kind} [{', '.join([f'{scalar} {v}' for v in texts])}]"
    name = f"tw_table_{hashlib.sha256(body.encode()).hexdigest()[:12]}"
    em.unit.declarations.setdefault(name, f"@{name} = private unnamed_addr constant {body}, align 64")
    masked = em.fn.pure(f"and {llvm_type(ints)} {em.value(e.args[0])}, {splat_constant(str(len(table) - 1), ints)}")

    def one(number: str) -> str:
        where = em.fn.pure(f"getelementptr inbounds {kind}, ptr @{name}, i32 0, i32 {number}")
        return em.fn.pure(f"load {scalar}, ptr {where}")

    if e.dtype.lanes == 1:
        return one(masked)
    out = "poison"
    for k in range(e.dtype.lanes):
        picked = one(em.fn.pure(f"extractelement {llvm_type(ints)} {masked}, i64 {k}"))
        out = em.fn.pure(f"insertelement {em.type(e)} {out}, {scalar} {picked}, i64 {k}")
    return out
