"""Emits atomic additions to global memory: ``red`` of PTX, which returns nothing."""

from __future__ import annotations

from ....tir.expr import Call
from ...llvm.llvm_scope import LlvmScope

_WORDS = {
    "float32": ("f32", "f"), "float64": ("f64", "d"), "float16": ("noftz.f16", "h"), "int32": ("s32", "r"),
    "uint32": ("u32", "r"), "int64": ("u64", "l"),
}  # fmt: skip
"""PTX's word for the addition of a type, and the constraint of its register."""
_HELD = {"float32": "float", "float64": "double", "int32": "i32", "uint32": "i32", "int64": "i64"}


def _add(em: LlvmScope, e: Call) -> str:
    first, value = e.args[0].args[0], e.args[1]  # type: ignore[attr-defined]
    dtype = first.buffer.dtype
    word, register = _WORDS[dtype.element]
    text, held = em.value(value), _HELD.get(dtype.element)
    if held is None:
        text, held = em.fn.pure(f"bitcast half {em.to_memory(text, value.dtype)} to i16"), "i16"
    place = em.fn.pure(f"addrspacecast ptr {em.address(first)} to ptr addrspace(1)")
    em.fn.do(
        f'call void asm sideeffect "red.relaxed.gpu.global.add.{word} [$0], $1;", "l,{register},~{{memory}}"'
        f"(ptr addrspace(1) {place}, {held} {text})"
    )
    em.touch(first.buffer.data)
    return "0"


ATOMIC_CALLS = {"atomic_add": _add}
"""Emitters by the operation's name."""
