"""Emits atomic additions to global memory: ``red`` of PTX, which returns nothing."""

from __future__ import annotations

import re

from ....tir.expr import Call
from ...backend.emitter import EmitError
from ...llvm.llvm_scope import LlvmScope
from ...llvm.llvm_types import memory_type

_WORDS = {
    "float32": ("f32", "f"), "float64": ("f64", "d"), "float16": ("noftz.f16", "h"), "bfloat16": ("noftz.bf16", "h"),
    "int32": ("s32", "r"), "uint32": ("u32", "r"), "int64": ("u64", "l"),
}  # fmt: skip
"""PTX's word for the addition of a type, and the constraint of its register."""
_HELD = {"float32": "float", "float64": "double", "int32": "i32", "uint32": "i32", "int64": "i64"}
_BFLOAT16 = 90
"""The number of the first architecture that adds bfloat16 atomically."""


def _added(em: LlvmScope, e: Call, word: str, register: str, operand: str) -> str:
    first = e.args[0].args[0]  # type: ignore[attr-defined]
    if first.buffer.dtype.element == "bfloat16" and int(re.sub(r"\D", "", em.target.mcpu) or 0) < _BFLOAT16:
        raise EmitError(
            f"{e.op.removeprefix('tir.')} of bfloat16 needs -arch=sm_{_BFLOAT16} or newer; the target has {em.target.mcpu}"
        )
    place = em.fn.pure(f"addrspacecast ptr {em.address(first)} to ptr addrspace(1)")
    em.fn.do(
        f'call void asm sideeffect "red.relaxed.gpu.global.add.{word} [$0], $1;", "l,{register},~{{memory}}"'
        f"(ptr addrspace(1) {place}, {operand})"
    )
    em.touch(first.buffer.data)
    return "0"


def _add(em: LlvmScope, e: Call) -> str:
    dtype = e.args[1].dtype.element
    word, register = _WORDS[dtype]
    text, held = em.value(e.args[1]), _HELD.get(dtype)
    if held is None:
        text, held = em.fn.pure(f"bitcast {memory_type(e.args[1].dtype)} {text} to i16"), "i16"
    return _added(em, e, word, register, f"{held} {text}")


def _add_pair(em: LlvmScope, e: Call) -> str:
    dtype = e.args[1].dtype.element
    kind = memory_type(e.args[1].dtype)
    both = em.fn.joined(f"<2 x {kind}>", kind, [em.value(value) for value in e.args[1:]])
    return _added(em, e, _WORDS[dtype][0] + "x2", "r", f"i32 {em.fn.pure(f'bitcast <2 x {kind}> {both} to i32')}")


ATOMIC_CALLS = {"atomic_add": _add, "atomic_add_pair": _add_pair}
"""Emitters by the operation's name."""
