"""Integer division of scalars and of vectors, emitted so that no operand makes the processor fault.

The nodes (:class:`.FloorDiv`) define the results that the machine leaves open: a quotient and a remainder by zero are
0, and the smallest number divided by -1 is itself. Divisors that can be neither 0 nor -1 need no extra instructions.
Other divisors are replaced by 1 before the instruction, and the quotient is selected afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...tir.dtype import is_signed, lanes_of, with_lanes
from ...tir.expr import BinaryOp, Broadcast, BufferLoad, Div, Expr, FloorDiv, FloorMod, IntImm, TruncDiv
from ...tir.walk import pre_order
from .llvm_types import llvm_type, splat_constant, zero
from .value_ranges import range_of

if TYPE_CHECKING:
    from .llvm_expr import ExprEmitter


def divide(em: ExprEmitter, e: BinaryOp, a: str, b: str, dtype: str) -> str:
    """Returns the quotient or the remainder that ``e`` describes, of two values of type ``dtype``."""
    quotient = isinstance(e, (Div, TruncDiv, FloorDiv))
    constant, least = _constant(e.b), range_of(em, e.b)[0]
    if constant == 0 or (constant == -1 and is_signed(dtype)):
        if constant == 0 or not quotient:
            return zero(dtype)
        return em.fn.pure(f"sub {llvm_type(dtype)} {zero(dtype)}, {a}")
    if constant is not None or (least is not None and least > 0 and not _has_undefined_lanes(em, e.b)):
        return _plain(em, e, a, b, dtype)
    fn, type_, bools = em.fn, llvm_type(dtype), llvm_type(with_lanes("bool", lanes_of(dtype)))
    one = splat_constant("1", dtype)
    if lanes_of(dtype) > 1:  # lanes that were never stored to hold an arbitrary number
        b = fn.pure(f"freeze {type_} {b}")
    if is_signed(dtype) and (least is None or least < 0):
        next_ = fn.pure(f"add {type_} {b}, {one}")
        special = fn.pure(f"icmp ult {type_} {next_}, {splat_constant('2', dtype)}")  # b is -1 or 0
    else:
        special = fn.pure(f"icmp eq {type_} {b}, {zero(dtype)}")
    safe = fn.pure(f"select {bools} {special}, {type_} {one}, {type_} {b}")
    result = _plain(em, e, a, safe, dtype)
    if not quotient:  # the remainder by 1 is 0, as it is by 0 and by -1
        return result
    product = fn.pure(f"mul {type_} {a}, {b}")  # 0, or -a
    return fn.pure(f"select {bools} {special}, {type_} {product}, {type_} {result}")


def _constant(e: Expr) -> int | None:
    if isinstance(e, Broadcast):
        e = e.value
    return e.value if isinstance(e, IntImm) else None


def _has_undefined_lanes(em: ExprEmitter, e: Expr) -> bool:
    """Returns whether lanes that were never stored to may be read: those of register values outside of a mask."""
    return lanes_of(e.dtype) > 1 and any(isinstance(n, BufferLoad) and n.buffer in em.registers for n in pre_order(e))


def _plain(em: ExprEmitter, e: BinaryOp, a: str, b: str, dtype: str) -> str:
    """Returns the division when no divisor is 0, and none is -1 where the smallest number may be divided."""
    fn, type_ = em.fn, llvm_type(dtype)
    if isinstance(e, (FloorDiv, FloorMod)) and is_signed(dtype):
        return _floored(em, isinstance(e, FloorDiv), a, b, dtype)
    word = "div" if isinstance(e, (Div, TruncDiv, FloorDiv)) else "rem"
    return fn.pure(f"{'s' if is_signed(dtype) else 'u'}{word} {type_} {a}, {b}")


def _floored(em: ExprEmitter, quotient: bool, a: str, b: str, dtype: str) -> str:
    """Returns signed division rounded towards minus infinity, or its remainder."""
    fn, type_, bool_type = em.fn, llvm_type(dtype), llvm_type(with_lanes("bool", lanes_of(dtype)))
    rem = fn.pure(f"srem {type_} {a}, {b}")
    nonzero = fn.pure(f"icmp ne {type_} {rem}, {zero(dtype)}")
    signs = fn.pure(f"xor {type_} {rem}, {b}")
    differ = fn.pure(f"icmp slt {type_} {signs}, {zero(dtype)}")
    adjust = fn.pure(f"and {bool_type} {nonzero}, {differ}")
    if quotient:
        div = fn.pure(f"sdiv {type_} {a}, {b}")
        step = fn.pure(f"sext {bool_type} {adjust} to {type_}")
        return fn.pure(f"add {type_} {div}, {step}")
    added = fn.pure(f"add {type_} {rem}, {b}")
    return fn.pure(f"select {bool_type} {adjust}, {type_} {added}, {type_} {rem}")
