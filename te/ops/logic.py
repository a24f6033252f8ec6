"""This module has logical and bitwise operators, shifts, tests of floats, and divisions that round towards zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...tir.expr import And, Expr, Not, Or, cast, const, truncdiv, truncmod
from ...tir.expr.intrinsics.float_operations import fmod, isfinite, isinf, isnan
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
