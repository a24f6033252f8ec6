"""Emits calls: intrinsics, choices, and functions of the C library that no pass has expanded."""

from __future__ import annotations

from collections.abc import Callable

from ...tir.expr import BufferLoad, Call, IntImm, StringImm
from ...tir.walk import pre_order
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


def _reinterpret(em: LlvmScope, e: Call) -> str:
    (arg,) = e.args
    if em.type(arg) == em.type(e):
        return em.value(arg)
    return em.fn.pure(f"bitcast {em.type(arg)} {em.value(arg)} to {em.type(e)}")


def _rsqrt(em: LlvmScope, e: Call) -> str:
    root = _intrinsic("sqrt")(em, e)
    return em.fn.pure(f"fdiv {em.type(e)} {splat_constant(_ONE, e.dtype)}, {root}")


def _sigmoid(em: LlvmScope, e: Call) -> str:
    type_, one = em.type(e), splat_constant(_ONE, e.dtype)
    power = em.call(Call("tir.exp", (e.args[0] * -1.0,), e.dtype))
    return em.fn.pure(f"fdiv {type_} {one}, {em.fn.pure(f'fadd {type_} {one}, {power}')}")


def if_then_else(em: LlvmScope, e: Call) -> str:
    """Returns the chosen value. Only the chosen branch is evaluated, unless neither reads memory."""
    cond, yes, no = e.args
    fn = em.fn
    if not any(isinstance(n, (BufferLoad, Call)) for side in (yes, no) for n in pre_order(side)):
        texts = em.values((yes, no))
        return em.choice(em.value(cond), texts[0], texts[1], e.dtype, cond.dtype)
    then, other, done = fn.new_label("then"), fn.new_label("else"), fn.new_label("chosen")
    fn.branch_if(em.value(cond), then, other)
    results = []
    for label, side in ((then, yes), (other, no)):
        fn.push()
        fn.label(label)
        results.append((em.value(side), fn.block))
        fn.branch(done)
        fn.pop()
    fn.label(done)
    phi = fn.phi(em.type(e))
    fn.fill(phi, results)
    return phi.name


def _call_extern(em: LlvmScope, e: Call) -> str:
    """Returns ``call_extern(name, args…)``, the call of a C function. An argument may be a buffer's pointer or the
    address of a load."""
    name = e.args[0]
    assert isinstance(name, StringImm)
    return em.called_with_effects(name.value, e.dtype, e.args[1:])


def _address_of(em: LlvmScope, e: Call) -> str:
    (where,) = e.args
    assert isinstance(where, BufferLoad)
    return em.address(where)


def _prefetch(em: LlvmScope, e: Call) -> str:
    where = em.value(e.args[0])
    numbers = [str(a.value) for a in e.args[1:3] if isinstance(a, IntImm)]
    rw, locality = numbers if len(numbers) == 2 else ("0", "3")
    types = ["ptr", "i32", "i32", "i32"]
    em.fn.do(em.fn.intrinsic("llvm.prefetch.p0", "void", types, [where, rw, locality, "1"]))
    return ""


PLAIN_CALLS: dict[str, Callable[[LlvmScope, Call], str]] = {
    **{name: _intrinsic(word) for name, word in _INTRINSICS.items()},
    "address_of": _address_of,
    "call_extern": _call_extern,
    "call_pure_extern": _call_extern,
    "if_then_else": if_then_else,
    "likely": lambda em, e: em.value(e.args[0]),
    "prefetch": _prefetch,
    "reinterpret": _reinterpret,
    "rsqrt": _rsqrt,
    "sigmoid": _sigmoid,
}
"""Emitters by the operation's name."""
