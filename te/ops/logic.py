"""This module has functions of the elements of two tensors, and logic: tests, shifts, divisions, functions of two floats.

Shapes broadcast as in NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...tir.expr import And, Expr, Not, Or, cast, const, max_, promote, select, truncdiv, truncmod
from ...tir.expr.intrinsics import float_operations as operations
from ...tir.expr.intrinsics.float_operations import abs_, fmod, isfinite, isinf, isnan
from ...tir.expr.intrinsics.integer_operations import reinterpret as as_bits
from ..compute import compute
from ..tensor import Tensor
from .blocks.broadcast import broadcasting
from .blocks.operator_arguments import ELEMWISE, check_tensor


def _truth(e: Expr) -> Expr:
    return e if e.dtype.is_bool else e != const(0, e.dtype)


def _truncated(divide: Callable[[Expr, Expr], Any]) -> Callable[[Expr, Expr], Any]:
    def f(a: Expr, b: Expr) -> Any:
        if not (a.dtype.is_int and b.dtype.is_int):
            raise TypeError(f"integers are needed, not {a.dtype} and {b.dtype}")
        return divide(a, b)

    return f


def _bitwise(f: Callable[[Expr, Expr], Any]) -> Callable[[Expr, Expr], Any]:
    def checked(a: Expr, b: Expr) -> Any:
        if a.dtype.is_float or b.dtype.is_float:
            raise TypeError(f"integers are needed, not {a.dtype} and {b.dtype}")
        return f(a, b)

    return checked


def _remainder(a: Expr, b: Expr) -> Any:
    if a.dtype.is_float:
        return (
            fmod(a, b)
            if a.dtype in ("float32", "float64")
            else cast(a.dtype, fmod(*[cast("float32", e) for e in (a, b)]))
        )
    return truncmod(a, b)


logical_and = broadcasting("logical_and", lambda a, b: And(_truth(a), _truth(b)), "Whether both are true (not zero)")
logical_or = broadcasting("logical_or", lambda a, b: Or(_truth(a), _truth(b)), "Whether one of both is true (not zero)")
logical_xor = broadcasting("logical_xor", lambda a, b: _differ(_truth(a), _truth(b)), "Whether exactly one is true")
bitwise_and = broadcasting("bitwise_and", _bitwise(lambda a, b: a & b), "The bits that both have")
bitwise_or = broadcasting("bitwise_or", _bitwise(lambda a, b: a | b), "The bits that one of both has")
bitwise_xor = broadcasting(
    "bitwise_xor", _bitwise(lambda a, b: _differ(a, b) if a.dtype.is_bool else a ^ b), "The bits that exactly one has"
)
left_shift = broadcasting("left_shift", _bitwise(lambda a, b: a << b), "a shifted by b bits to the left")
right_shift = broadcasting("right_shift", _bitwise(lambda a, b: a >> b), "a shifted by b bits to the right")
truncate_divide = broadcasting("truncate_divide", _truncated(truncdiv), "a / b of integers, rounded towards zero")
remainder = broadcasting(
    "remainder", _remainder, "What is left of a after dividing by b, with the sign of a, as C's fmod"
)


def _differ(a: Expr, b: Expr) -> Expr:
    return Or(And(a, Not(b)), And(Not(a), b))


def _test(op: str, f: Callable[[Expr], Expr], meaning: str) -> Callable[..., Tensor]:
    def function(x: Tensor, name: str = f"T_{op}") -> Tensor:
        check_tensor(op, x)
        out: Tensor = compute(x.shape, lambda *i: f(x(*i)), name=name, tag=ELEMWISE)
        return out

    function.__name__ = function.__qualname__ = op
    function.__doc__ = f"Returns {meaning[0].lower()}{meaning[1:]}, element by element."
    return function


def _of_float(f: Callable[[Expr], Expr], of_integers: bool = False) -> Callable[[Expr], Expr]:
    """Returns ``f`` of floats, and a constant of integers."""

    def test(e: Expr) -> Expr:
        if not e.dtype.is_float:
            return const(of_integers, "bool")
        return f(e if e.dtype in ("float32", "float64") else cast("float32", e))

    return test


logical_not = _test("logical_not", lambda e: Not(_truth(e)), "Whether the element is false (zero)")
bitwise_not = _test("bitwise_not", lambda e: ~e, "The element with each bit inverted")
is_nan = _test("is_nan", _of_float(isnan), "Whether the element is not a number")
is_inf = _test("is_inf", _of_float(isinf), "Whether the element is infinite")
is_finite = _test("is_finite", _of_float(isfinite, True), "Whether the element is neither infinite nor NaN")


def _of_floats(f: Callable[[Expr, Expr], Expr], exact: bool = False) -> Callable[[Expr, Expr], Any]:
    """Returns ``f`` of floats; narrow ones are computed in float32 unless ``exact``, and integers are an error."""

    def checked(a: Expr, b: Expr) -> Any:
        if not (a.dtype.is_float and b.dtype.is_float):
            raise TypeError(f"floats are needed, not {a.dtype} and {b.dtype}")
        dtype = promote(a.dtype, b.dtype)
        wide = dtype if dtype.bits >= 32 or exact else "float32"
        return cast(dtype, f(cast(wide, a), cast(wide, b)))

    return checked


def _log_of_sum(a: Expr, b: Expr) -> Expr:
    apart = operations.log1p(operations.exp(-abs_(a - b)))
    return max_(a, b) + select(a.equal(b), const(math.log(2), a.dtype), apart)  # a - b of equal infinities is NaN


def _next_after(a: Expr, b: Expr) -> Expr:
    """Returns the float next to ``a``, whose bits are one more or one less. Next to zero is the smallest float with b's
    sign."""
    kind = f"int{a.dtype.bits}"
    bits, one = as_bits(kind, a), const(1, kind)
    farther = (a < b).equal(bits > const(0, kind))
    sign = const(-(2 ** (a.dtype.bits - 1)), kind)
    least = select(b > const(0, b.dtype), one, sign + one)
    moved = select(a.equal(const(0, a.dtype)), least, bits + select(farther, one, const(-1, kind)))
    return select(Or(isnan(a), isnan(b)), a + b, select(a.equal(b), b, as_bits(a.dtype, moved)))


atan2 = broadcasting("atan2", _of_floats(operations.atan2), "The angle of the point (b, a)")
copysign = broadcasting("copysign", _of_floats(operations.copysign), "a with the sign of b")
hypot = broadcasting("hypot", _of_floats(operations.hypot), "The length of (a, b), without overflow")
logaddexp = broadcasting("logaddexp", _of_floats(_log_of_sum), "The logarithm of exp(a) + exp(b), without overflow")
nextafter = broadcasting("nextafter", _of_floats(_next_after, exact=True), "The float after a on the way to b")
