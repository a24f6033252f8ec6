"""The exchange of a value between lanes of a warp, as a call of LLVM's intrinsic."""

from __future__ import annotations

from ....tir.expr import Call, Expr, StringImm, const

_ALL = -1
_CLAMP = 31


def shuffled(value: Expr, distance: int) -> Expr:
    """Returns the value of the lane whose number differs in the bit ``distance``; all lanes of the warp take part."""
    name = f"llvm.nvvm.shfl.sync.bfly.{'f32' if value.dtype.is_float else 'i32'}"
    args = (StringImm(name), const(_ALL, "int32"), value, const(distance, "int32"), const(_CLAMP, "int32"))
    return Call("tir.call_llvm_pure_intrin", args, value.dtype)


def distance_of(e: Call) -> tuple[Expr, Expr] | None:
    """Returns the value and the distance of a call that :func:`shuffled` made, or None for other calls."""
    name = e.args[0] if e.args else None
    if isinstance(name, StringImm) and name.value.startswith("llvm.nvvm.shfl.sync.bfly."):
        return e.args[2], e.args[3]
    return None
