"""Emits operations that name the target's own instructions: intrinsics of LLVM, dot products, pointers."""

from __future__ import annotations

from ...tir.expr import Call, DType, IntImm, StringImm
from ..backend.expand_dots import expand_dot
from ..machine.target_text import TargetError
from .external_calls import called_with_effects
from .llvm_scope import LlvmScope
from .llvm_types import llvm_type

_OWNERS: dict[str, tuple[str, ...]] = {
    "aarch64": ("aarch64",),
    "amdgcn": ("amdgcn",),
    "arm": ("arm", "thumb"),
    "nvvm": ("nvptx",),
    "riscv": ("riscv",),
    "wasm": ("wasm",),
    "x86": ("x86", "i"),
}
"""The processors of LLVM's intrinsics that begin like this; on another one LLVM ends the process."""


def _llvm_intrinsic(em: LlvmScope, e: Call) -> str:
    """Returns ``call_llvm_intrin(name, …)``, an intrinsic by its full name. An unsigned constant after the name, a
    number of arguments as in older TVM, is left out."""
    name, args = e.args[0], e.args[1:]
    if not isinstance(name, StringImm) or not name.value.startswith("llvm."):
        raise ValueError(f"{e.op} takes the full name of an intrinsic, llvm.…, not {name}")
    owner = _OWNERS.get(name.value.split(".")[1])
    if owner is not None and not em.target.arch.startswith(owner):
        raise TargetError(
            f"{em.unit.name} calls {name.value}, an instruction of another processor than {em.target.triple}"
        )
    if args and isinstance(args[0], IntImm) and args[0].dtype == "uint32":
        args = args[1:]
    if e.op == "tir.call_llvm_pure_intrin":
        return em.fn.pure(em.fn.intrinsic(name.value, em.type(e), [em.type(a) for a in args], em.values(args)))
    return called_with_effects(em, name.value, e.dtype, args)


def _access_ptr(em: LlvmScope, e: Call) -> str:
    kind, data, offset = e.args[:3]
    step = kind.dtype.element.bytes
    return em.fn.pure(f"getelementptr [{step} x i8], ptr {em.value(data)}, i64 {em.index(offset)}")


# -- dot products --------------------------------------------------------------------------------------------------------


def _dot(em: LlvmScope, e: Call) -> str:
    """Returns a dot product by the widest instructions that fit, or by plain arithmetic where there are none."""
    lanes = e.dtype.lanes
    piece = next((p for p in em.target.dot_lanes(e.op) if lanes % p == 0), None)
    if piece is None:
        return em.value(expand_dot(e))
    values = em.values(e.args)
    if piece == lanes:
        return _instruction(em, e.op, lanes, values)
    parts = []
    for first in range(0, lanes, piece):
        cut = []
        for a, text in zip(e.args, values, strict=True):
            width = a.dtype.lanes // lanes
            cut.append(em.fn.shuffled(em.type(a), text, "poison", range(first * width, (first + piece) * width)))
        parts.append(_instruction(em, e.op, piece, cut))
    return _joined(em, parts, e.dtype.element, piece)


def _joined(em: LlvmScope, parts: list[str], dtype: DType, lanes: int) -> str:
    """Returns the concatenation of vectors of ``lanes`` lanes; their number may be odd."""
    total = lanes * len(parts)
    whole, small = llvm_type(dtype.with_lanes(total)), llvm_type(dtype.with_lanes(lanes))
    out = ""
    for n, part in enumerate(parts):
        order = [k - n * lanes if 0 <= k - n * lanes < lanes else -1 for k in range(total)]
        wide = em.fn.shuffled(small, part, "poison", order)
        keep = [k if k < n * lanes else total + k for k in range(total)]
        out = wide if n == 0 else em.fn.shuffled(whole, out, wide, keep)
    return out


def _instruction(em: LlvmScope, op: str, lanes: int, values: list[str]) -> str:
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
    return em.fn.pure(em.fn.intrinsic(name, types[0], types, values))


MACHINE_CALLS = {
    "call_llvm_intrin": _llvm_intrinsic,
    "call_llvm_pure_intrin": _llvm_intrinsic,
    "dot2_bf16": _dot,
    "dot4_u8i8": _dot,
    "tvm_access_ptr": _access_ptr,
}
"""Emitters by the operation's name."""
