"""Emits mathematical functions: intrinsics, and functions of the C library that no pass has expanded."""

from __future__ import annotations

from collections.abc import Callable

from ...tir.expr import Call
from .llvm_scope import LlvmScope
from .llvm_types import llvm_type, splat_constant, suffix

_INTRINSICS = {
    "fma": "fma", "sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "roundeven",
    "nearbyint": "roundeven", "fabs": "fabs", "copysign": "copysign", "popcount": "ctpop",
}  # fmt: skip
_ONE = "0x3FF0000000000000"


def _intrinsic(name: str) -> Callable[[LlvmScope, Call], str]:
    """Returns the emitter of a call as an intrinsic of LLVM on operands of one type."""
    return lambda em, e: em.fn.called(f"llvm.{name}.{suffix(e.dtype)}", em.type(e), *em.values(e.args))


def library_call(em: LlvmScope, symbol: str, e: Call) -> str:
    """Returns the results of a function of the C library, lane by lane."""
    scalar = llvm_type(e.dtype.element)
    return em.fn.each_lane(symbol, scalar, [scalar] * len(e.args), e.dtype.lanes, em.values(e.args))


def _rsqrt(em: LlvmScope, e: Call) -> str:
    root = _intrinsic("sqrt")(em, e)
    return em.fn.pure(f"fdiv {em.type(e)} {splat_constant(_ONE, e.dtype)}, {root}")


def _sigmoid(em: LlvmScope, e: Call) -> str:
    type_, one = em.type(e), splat_constant(_ONE, e.dtype)
    power = em.call(Call("tir.exp", (e.args[0] * -1.0,), e.dtype))
    return em.fn.pure(f"fdiv {type_} {one}, {em.fn.pure(f'fadd {type_} {one}, {power}')}")


MATH_CALLS: dict[str, Callable[[LlvmScope, Call], str]] = {
    **{name: _intrinsic(word) for name, word in _INTRINSICS.items()},
    "rsqrt": _rsqrt,
    "sigmoid": _sigmoid,
}
"""Emitters by the operation's name."""
