"""Emits operations that name the target's own instructions: intrinsics of LLVM, dot products, pointers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...tir.dtype import bytes_of, element_of, lanes_of, with_lanes
from ...tir.expr import BufferLoad, Call, Expr, IntImm, StringImm, Var
from ...tir.walk import pre_order
from ..lower.expand_dots import expand_dot
from .index_arithmetic import index_text
from .llvm_types import llvm_type, vector_constant

if TYPE_CHECKING:
    from .llvm_expr import ExprEmitter


def may_write(em: ExprEmitter, args: tuple[Expr, ...]) -> None:
    """Mark memory whose address is among ``args`` as written by the call."""
    for a in args:
        for n in pre_order(a):
            if isinstance(n, BufferLoad):
                em.written(n.buffer)
            elif isinstance(n, Var) and n in em.bases:
                em.wrote(n)


def _llvm_intrinsic(em: ExprEmitter, e: Call) -> str:
    """Returns ``call_llvm_intrin(name, …)``, an intrinsic by its full name. An unsigned constant after the name, a
    number of arguments as in older TVM, is left out."""
    name, args = e.args[0], e.args[1:]
    if not isinstance(name, StringImm) or not name.value.startswith("llvm."):
        raise ValueError(f"{e.op} takes the full name of an intrinsic, llvm.…, not {name}")
    if args and isinstance(args[0], IntImm) and args[0].dtype == "uint32":
        args = args[1:]
    text = em.intrinsic(name.value, em.type(e), [em.type(a) for a in args], [em.value(a) for a in args])
    if e.op == "tir.call_llvm_pure_intrin":
        return em.fn.pure(text)
    may_write(em, args)
    if e.dtype == "void":
        em.fn.do(text)
        return ""
    return em.fn.emit(text)


def _access_ptr(em: ExprEmitter, e: Call) -> str:
    kind, data, offset = e.args[:3]
    step = bytes_of(element_of(kind.dtype))
    return em.fn.pure(f"getelementptr [{step} x i8], ptr {em.value(data)}, i64 {index_text(em, offset)}")


# -- dot products --------------------------------------------------------------------------------------------------------


def dot_widths(target: Any, op: str) -> list[int]:
    """Returns the numbers of lanes for which the target has an instruction, the largest first."""
    if target.arch == "aarch64":
        return [4] if op == "tir.dot4_u8i8" and target.has("i8mm") else []
    if op == "tir.dot4_u8i8":
        wide, narrow = target.has_vnni, target.has_avx_vnni or (target.has_vnni and target.has("avx512vl"))
    else:
        wide, narrow = target.has_bf16, target.has_bf16 and target.has("avx512vl")
    out = [16] if wide and target.vector_bits >= 512 else []
    return [*out, *([8, 4] if narrow else [])]


def _dot(em: ExprEmitter, e: Call) -> str:
    """Returns a dot product by the widest instructions that fit, or by plain arithmetic where there are none."""
    lanes = lanes_of(e.dtype)
    piece = next((p for p in dot_widths(em.target, e.op) if lanes % p == 0), None)
    if piece is None:
        return em.value(expand_dot(e))
    values = [em.value(a) for a in e.args]
    if piece == lanes:
        return _instruction(em, e.op, lanes, values)
    parts = []
    for first in range(0, lanes, piece):
        cut = []
        for a, text in zip(e.args, values, strict=True):
            width = lanes_of(a.dtype) // lanes
            where = vector_constant(list(range(first * width, (first + piece) * width)), "i32")
            cut.append(
                em.fn.pure(f"shufflevector {em.type(a)} {text}, {em.type(a)} poison, <{piece * width} x i32> {where}")
            )
        parts.append(_instruction(em, e.op, piece, cut))
    return _joined(em, parts, element_of(e.dtype), piece)


def _joined(em: ExprEmitter, parts: list[str], dtype: str, lanes: int) -> str:
    """Returns the concatenation of vectors of ``lanes`` lanes; their number may be odd."""
    whole = llvm_type(with_lanes(dtype, lanes * len(parts)))
    small = llvm_type(with_lanes(dtype, lanes))
    total = lanes * len(parts)
    out = "poison"
    for n, part in enumerate(parts):
        spread = ["poison" if not 0 <= k - n * lanes < lanes else str(k - n * lanes) for k in range(total)]
        mask = f"<{', '.join(f'i32 {k}' for k in spread)}>"
        wide = em.fn.pure(f"shufflevector {small} {part}, {small} poison, <{total} x i32> {mask}")
        keep = [k if k < n * lanes else total + k for k in range(total)]
        order = vector_constant(keep, "i32")
        out = wide if n == 0 else em.fn.pure(
            f"shufflevector {whole} {out}, {whole} {wide}, <{total} x i32> {order}"
        )  # fmt: skip
    return out


def _instruction(em: ExprEmitter, op: str, lanes: int, values: list[str]) -> str:
    if op == "tir.dot2_bf16":
        bits, pairs = f"<{2 * lanes} x i16>", f"<{2 * lanes} x bfloat>"
        types = [f"<{lanes} x float>", pairs, pairs]
        values = [values[0], *[em.fn.pure(f"bitcast {bits} {v} to {pairs}") for v in values[1:]]]
        name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}"
    elif em.target.arch == "aarch64":
        types = ["<4 x i32>", "<16 x i8>", "<16 x i8>"]
        name = "llvm.aarch64.neon.usdot.v4i32.v16i8"
    else:
        words = f"<{lanes} x i32>"
        types = [words] * 3
        values = [values[0], *[em.fn.pure(f"bitcast <{4 * lanes} x i8> {v} to {words}") for v in values[1:]]]
        name = f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"
    return em.fn.pure(em.intrinsic(name, types[0], types, values))


MACHINE_CALLS = {
    "call_llvm_intrin": _llvm_intrinsic,
    "call_llvm_pure_intrin": _llvm_intrinsic,
    "dot2_bf16": _dot,
    "dot4_u8i8": _dot,
    "tvm_access_ptr": _access_ptr,
}
"""Emitters by the operation's name."""
