"""This module has the operations on the bits of integers and bools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..base.dtype import DType
from ..nodes.arithmetic import match_types
from ..nodes.constants import as_exprs, convert
from ..nodes.expr import And, BinaryOp, Expr, Not, Or
from .numpy_values import leading_zeros, on_integers, ones, same_bits, shifted_right
from .operation_row import Operation, Spelling, bits, integers


def _as_many_bits(args: Sequence[Expr], dtype: str | None) -> str:
    """Return the stated type, which has as many bits as the argument; a handle becomes any type of 64 bits."""
    (have,) = [a.dtype for a in args]
    if not dtype or DType(dtype).bits * DType(dtype).lanes != have.bits * have.lanes:
        raise TypeError(f"{have} has not as many bits as {dtype or 'the result'}")
    return dtype


def _of_two(name: str, meaning: str, f: Callable[[Any, Any], Any], of_bools: type[BinaryOp] | None = None) -> Operation:
    def prepare(args: Sequence[Any]) -> Sequence[Expr] | Expr:
        a, b = match_types(*args)
        return of_bools(a, b) if of_bools is not None and a.dtype.is_bool else (a, b)

    rule = bits if of_bools is None else integers
    return Operation(name, ("a", "b"), meaning, rule, prepare, on_integers(lambda _, a, b: f(a, b)))


def _shift(name: str, meaning: str, f: Callable[[int, int, int], int]) -> Operation:
    return Operation(name, ("a", "n"), meaning, integers, lambda args: match_types(*args), on_integers(f))


bitwise_and = _of_two("bitwise_and", "the bits that are set in both", lambda a, b: a & b, And)
bitwise_or = _of_two("bitwise_or", "the bits that are set in either", lambda a, b: a | b, Or)
bitwise_xor = _of_two("bitwise_xor", "the bits that are set in one of the two", lambda a, b: a ^ b)
shift_left = _shift(
    "shift_left", "a shifted left by n bits; 0 when n is negative or at least the number of bits",
    lambda bits, a, n: a << n if 0 <= n < bits else 0,
)  # fmt: skip
shift_right = _shift(
    "shift_right", "a shifted right by n bits; 0, or -1 for negative a, when n is negative or too large", shifted_right
)


def _inverted(args: Sequence[Any]) -> Sequence[Expr] | Expr:
    e = convert(args[0])
    return Not(e) if e.dtype.is_bool else (e,)


bitwise_not = Operation(
    "bitwise_not", ("x",), "x with all bits inverted", integers, _inverted, on_integers(lambda _, a: ~a), flops=0
)
popcount = Operation("popcount", ("x",), "the number of one bits", integers, as_exprs, on_integers(ones))
clz = Operation("clz", ("x",), "the number of leading zero bits", integers, as_exprs, on_integers(leading_zeros))
reinterpret = Operation(
    "reinterpret", ("x",), "the bits of x as another type of the same width; the type comes first", _as_many_bits,
    as_exprs, same_bits, spelling=Spelling.TYPED, flops=0,
)  # fmt: skip
