"""This module has functions of expressions: floating-point functions, divisions of indices, operations on bits,
limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..tir import op as tir_op
from ..tir.expr import Expr, ExprLike, convert
from ..tir.op import (
    floordiv,
    floormod,
    max_value_of,
    min_value_of,
)


def _unary(name: str, meaning: str) -> Callable[[Any], Expr]:
    def function(x: Any) -> Expr:
        return tir_op.unary(name, x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{meaning}; an integer is converted to float32 first."
    return function


exp = _unary("exp", "e to the power x")
exp2 = _unary("exp2", "2 to the power x")
exp10 = _unary("exp10", "10 to the power x")
expm1 = _unary("expm1", "e to the power x, less 1, exact near 0")
log = _unary("log", "The natural logarithm")
log2 = _unary("log2", "The logarithm to base 2")
log10 = _unary("log10", "The logarithm to base 10")
log1p = _unary("log1p", "The natural logarithm of 1 + x, exact near 0")
sqrt = _unary("sqrt", "The square root")
rsqrt = _unary("rsqrt", "One over the square root")
sin = _unary("sin", "The sine")
cos = _unary("cos", "The cosine")
tan = _unary("tan", "The tangent")
asin = _unary("asin", "The arc sine")
acos = _unary("acos", "The arc cosine")
atan = _unary("atan", "The arc tangent")
sinh = _unary("sinh", "The hyperbolic sine")
cosh = _unary("cosh", "The hyperbolic cosine")
tanh = _unary("tanh", "The hyperbolic tangent")
asinh = _unary("asinh", "The inverse hyperbolic sine")
acosh = _unary("acosh", "The inverse hyperbolic cosine")
atanh = _unary("atanh", "The inverse hyperbolic tangent")
sigmoid = _unary("sigmoid", "1 / (1 + exp(-x))")
erf = _unary("erf", "The error function")
fabs = _unary("fabs", "The absolute value of a float")


def _rounding(name: str, meaning: str) -> Callable[[Any], Expr]:
    def function(x: Any) -> Expr:
        return tir_op.unary(name, x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{meaning}; an integer is left as it is."
    return function


floor = _rounding("floor", "The largest whole number not above x")
ceil = _rounding("ceil", "The smallest whole number not below x")
trunc = _rounding("trunc", "x without its fraction")
nearbyint = _rounding("nearbyint", "The nearest whole number, halves to even")


def max_value(dtype: str) -> Expr:
    """Returns the largest finite value of ``dtype``."""
    return max_value_of(dtype)


def min_value(dtype: str) -> Expr:
    """Returns the smallest finite value of ``dtype``."""
    return min_value_of(dtype)


def div(a: ExprLike, b: ExprLike) -> Expr:
    """``a / b``; for integers rounded towards zero."""
    out: Expr = convert(a) / b
    return out


def indexdiv(a: ExprLike, b: ExprLike) -> Expr:
    """``a // b`` of indices."""
    return floordiv(a, b)


def indexmod(a: ExprLike, b: ExprLike) -> Expr:
    """``a % b`` of indices."""
    return floormod(a, b)


def bitwise_and(a: Any, b: Any) -> Expr:
    """Returns the bits set in both."""
    out: Expr = convert(a) & b
    return out


def bitwise_or(a: Any, b: Any) -> Expr:
    """Returns the bits set in either."""
    out: Expr = convert(a) | b
    return out


def bitwise_xor(a: Any, b: Any) -> Expr:
    """Returns the bits set in one of the two."""
    out: Expr = convert(a) ^ b
    return out


def shift_left(a: Any, b: Any) -> Expr:
    """Returns the bits moved up by ``b``."""
    out: Expr = convert(a) << b
    return out


def shift_right(a: Any, b: Any) -> Expr:
    """Returns the bits moved down by ``b``."""
    out: Expr = convert(a) >> b
    return out
