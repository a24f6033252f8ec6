"""Integer division of scalars and of vectors, emitted so that no operand makes the processor fault.

The nodes (:class:`.FloorDiv`) define the results that the machine leaves open: a quotient and a remainder by zero are
0, and the smallest number divided by -1 is itself. Divisors that can be neither 0 nor -1 need no extra instructions.
Other divisors are replaced by 1 before the instruction, and the quotient is selected afterwards.
"""

from __future__ import annotations

from ...tir.expr import BinaryOp, Div, DType, FloorDiv, FloorMod, TruncDiv
from .function_builder import FunctionBuilder
from .llvm_types import llvm_type, splat_constant, zero


def divide(
    fn: FunctionBuilder, e: BinaryOp, a: str, b: str, dtype: DType, divisor: tuple[int | None, int | None]
) -> str:
    """Returns the quotient or the remainder that ``e`` describes, of two values of type ``dtype``. ``divisor`` is the
    divisor when it is a constant, and the least value that it can have."""
    quotient, (constant, least) = isinstance(e, (Div, TruncDiv, FloorDiv)), divisor
    if constant == 0 or (constant == -1 and dtype.is_signed):
        if constant == 0 or not quotient:
            return zero(dtype)
        return fn.pure(f"sub {llvm_type(dtype)} {zero(dtype)}, {a}")
    if constant is not None or (least is not None and least > 0):
        return _plain(fn, e, a, b, dtype)
    type_, bools = llvm_type(dtype), llvm_type(DType("bool").with_lanes(dtype.lanes))
    one = splat_constant("1", dtype)
    if dtype.lanes > 1:  # lanes that were never stored to hold an arbitrary number
        b = fn.pure(f"freeze {type_} {b}")
    if dtype.is_signed and (least is None or least < 0):
        next_ = fn.pure(f"add {type_} {b}, {one}")
        special = fn.pure(f"icmp ult {type_} {next_}, {splat_constant('2', dtype)}")  # b is -1 or 0
    else:
        special = fn.pure(f"icmp eq {type_} {b}, {zero(dtype)}")
    result = _plain(fn, e, a, fn.chosen(bools, special, type_, one, b), dtype)
    if not quotient:  # the remainder by 1 is 0, as it is by 0 and by -1
        return result
    return fn.chosen(bools, special, type_, fn.pure(f"mul {type_} {a}, {b}"), result)  # 0, or -a


def _plain(fn: FunctionBuilder, e: BinaryOp, a: str, b: str, dtype: DType) -> str:
    """Returns the division when no divisor is 0, and none is -1 where the smallest number may be divided."""
    type_ = llvm_type(dtype)
    if isinstance(e, (FloorDiv, FloorMod)) and dtype.is_signed:
        return _floored(fn, isinstance(e, FloorDiv), a, b, dtype)
    word = "div" if isinstance(e, (Div, TruncDiv, FloorDiv)) else "rem"
    return fn.pure(f"{'s' if dtype.is_signed else 'u'}{word} {type_} {a}, {b}")


def _floored(fn: FunctionBuilder, quotient: bool, a: str, b: str, dtype: DType) -> str:
    """Returns signed division rounded towards minus infinity, or its remainder."""
    type_, bool_type = llvm_type(dtype), llvm_type(DType("bool").with_lanes(dtype.lanes))
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
    return fn.chosen(bool_type, adjust, type_, added, rem)
