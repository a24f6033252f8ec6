"""Emits calls that may write memory, the addresses that they take, and prefetches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...tir.expr import BufferLoad, Call, Expr, IntImm, StringImm, Var
from ...tir.walk import pre_order
from .llvm_types import llvm_type

if TYPE_CHECKING:
    from .llvm_scope import LlvmScope


def may_write(em: LlvmScope, args: Sequence[Expr]) -> None:
    """Mark memory whose address is among ``args`` as written by a call."""
    for a in args:
        for n in pre_order(a):
            if isinstance(n, BufferLoad):
                em.touch(n.buffer.data)
            elif isinstance(n, Var) and n in em.bases:
                em.touch(n)


def called_with_effects(em: LlvmScope, name: str, dtype: str, args: Sequence[Expr]) -> str:
    """Return the result of a function that may write through the pointers among ``args``."""
    text = em.fn.intrinsic(name, llvm_type(dtype), [em.type(a) for a in args], em.values(args))
    may_write(em, args)
    if dtype == "void":
        em.fn.do(text)
        return ""
    return em.fn.emit(text)


def _call_extern(em: LlvmScope, e: Call) -> str:
    """Returns ``call_extern(name, args…)``, the call of a C function. An argument may be a buffer's pointer or the
    address of a load."""
    name = e.args[0]
    assert isinstance(name, StringImm)
    return called_with_effects(em, name.value, e.dtype, e.args[1:])


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


EXTERNAL_CALLS: dict[str, Callable[[LlvmScope, Call], str]] = {
    "address_of": _address_of,
    "call_extern": _call_extern,
    "call_pure_extern": _call_extern,
    "prefetch": _prefetch,
}
"""Emitters by the operation's name."""
