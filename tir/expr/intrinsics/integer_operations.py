"""This module has the operations on the bits of integers and bools, and rounded fixed-point products.

The products are TVM's ``q_multiply_shift`` and ``q_multiply_shift_per_axis``. The interpreter and lowering replace a call by the
steps of :func:`fixed_point_steps`, so the meaning is defined once: in int64, ``x`` is shifted left, multiplied by ``y``, half of
the last kept bit is added, and the sum is shifted right (a half is rounded up). The result is cut to 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..base.dtype import DType
from ..nodes.arithmetic import make_binary, match_types
from ..nodes.constants import as_exprs, cast, const, convert
from ..nodes.expr import NE, And, BinaryOp, Broadcast, Call, Expr, Max, Not, Or, Select
from .numpy_values import leading_zeros, on_integers, ones, same_bits, shifted_right
from .operation_row import Operation, Spelling, bits, integers, is_int_or_bool, types_text


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


def _fixed_point_product(args: Sequence[Expr], dtype: str | None) -> str:
    """Return int32 with the most lanes of an argument; two int32 are multiplied, the others are shifts."""
    lanes = max([a.dtype.lanes for a in args])
    if any(a.dtype.lanes not in (1, lanes) for a in args):
        raise TypeError(f"the lanes of {types_text(args)} differ")
    for a in args[:2]:
        if a.dtype.element != "int32":
            raise TypeError(f"multiplies int32 numbers, not {a.dtype}")
    for a in args[2:]:
        if not is_int_or_bool(a.dtype):
            raise TypeError(f"shifts by integers, not {a.dtype}")
    return DType("int32").with_lanes(lanes)


q_multiply_shift = Operation(
    "q_multiply_shift", ("x", "y", "q", "s"),
    "x * y * 2**(s - q) as int32, rounded to nearest, halves up: the product of two int32 with q > 0 fractional bits, "
    "shifted left by s (right when that is negative)",
    _fixed_point_product,
)  # fmt: skip
q_multiply_shift_per_axis = Operation(
    "q_multiply_shift_per_axis", ("x", "y", "ls", "rs", "q", "is_lshift_required", "is_rshift_required"),
    "x * 2**ls * y * 2**(-q - rs) as int32, rounded to nearest, halves up; with is_lshift_required 0, ls is ignored, "
    "and is_rshift_required 0 promises that rs is 0",
    _fixed_point_product,
)  # fmt: skip
FIXED_POINT = {q_multiply_shift.op, q_multiply_shift_per_axis.op}
"""The calls that :func:`fixed_point_steps` expands."""


def fixed_point_steps(call: Call) -> Expr:
    """Return the value of a call of :data:`FIXED_POINT` in additions, products and shifts of int64."""
    lanes = call.dtype.lanes
    wide = DType("int64").with_lanes(lanes)

    def widened(e: Expr) -> Expr:
        return cast(wide, e if e.dtype.lanes == lanes else Broadcast(e, lanes))

    zero, one = const(0, wide), const(1, wide)
    if call.op == q_multiply_shift.op:
        x, y, q, s = [widened(e) for e in call.args]
        left, right = make_binary(Max, s, zero), q + make_binary(Max, zero - s, zero)
    else:
        x, y, ls, rs, q, needed, _ = [widened(e) for e in call.args]
        left, right = Select(NE(needed, zero), ls, zero), q + rs
    product = (x << left) * y
    return cast(call.dtype, (product + (one << (right - one))) >> right)
