"""This module has the operations on floats: mathematical functions, rounding, tests, fused and scaled products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..base.dtype import DType
from ..nodes.arithmetic import match_types
from ..nodes.constants import as_exprs, cast, const, convert
from ..nodes.expr import Call, Expr, FloatImm, Select
from .numpy_values import erf as erf_of
from .numpy_values import fused, in_float64, on_integers, table_lookup, truth
from .numpy_values import sigmoid as sigmoid_of
from .numpy_values import times_exp2 as times_exp2_of
from .operation_row import Lanes, Operation, Spelling, floats, numbers


def _test_of_float(args: Sequence[Expr], dtype: str | None) -> str:
    """Return bool, with the lanes of one float."""
    return DType("bool").with_lanes(DType(floats(args, dtype)).lanes)


def _table_element(args: Sequence[Expr], dtype: str | None) -> str:
    """Return the type of the constants after an int32, with its lanes.

    There are 2, 4, 8 … constants, all float32 or all float64. ValueError for another number of them.
    """
    number, *table = args
    count, kind = len(table), table[0].dtype if table else ""
    if count < 2 or count & (count - 1):
        raise ValueError(f"a table has 2, 4, 8 … values, not {count}")
    if kind not in ("float32", "float64") or any(not isinstance(v, FloatImm) or v.dtype != kind for v in table):
        raise TypeError("the values are constants, all float32 or all float64, like T.float32(0.5)")
    if number.dtype.element != "int32":
        raise TypeError(f"the number is an int32, not {number.dtype}; cast it")
    return DType(kind).with_lanes(number.dtype.lanes)


def _as_float(args: Sequence[Any]) -> Sequence[Expr]:
    """Return one argument as a float; an integer is converted to float32."""
    e = convert(args[0])
    return (e if e.dtype.is_float else cast("float32", e),)


def _as_floats(args: Sequence[Any]) -> Sequence[Expr]:
    """Return two arguments in one float type; integers are converted to float32."""
    a, b = match_types(*args)
    return (a, b) if a.dtype.is_float else (cast("float32", a), cast("float32", b))


def _as_whole(args: Sequence[Any]) -> Sequence[Expr] | Expr:
    """Return a float as it is; the result for an integer is the integer."""
    e = convert(args[0])
    return e if e.dtype.is_int else _as_float(args)


def _function(name: str, meaning: str, evaluate: Callable[[Any], Any], instructions: int = 1) -> Operation:
    """Return a function of one float that C's library has as well."""
    return Operation(
        name, ("x",), f"{meaning}; an integer is converted to float32 first", floats, _as_float,
        in_float64(evaluate), instructions=instructions, c_name=name,
    )  # fmt: skip


def _function_of_two(
    name: str, parameters: str, meaning: str, evaluate: Callable[[Any, Any], Any], instructions: int = 1
) -> Operation:
    """Return a function of two floats that C's library has as well."""
    return Operation(
        name, tuple(parameters.split()), f"{meaning}; integers are converted to float32 first", floats, _as_floats,
        in_float64(evaluate), instructions=instructions, c_name=name,
    )  # fmt: skip


def _rounding(name: str, meaning: str, evaluate: Callable[[Any], Any], c_name: str) -> Operation:
    return Operation(
        name,
        ("x",),
        f"{meaning}; an integer is left as it is",
        floats,
        _as_whole,
        in_float64(evaluate),
        c_name=c_name,
        exact=True,
    )


def _test(name: str, meaning: str, evaluate: Callable[[Any], Any]) -> Operation:
    def prepare(args: Sequence[Any]) -> Sequence[Expr] | Expr:
        e = convert(args[0])
        return (e,) if e.dtype.is_float else const(name == "isfinite", DType("bool").with_lanes(e.dtype.lanes))

    return Operation(name, ("x",), meaning, _test_of_float, prepare, truth(evaluate))


exp = _function("exp", "e to the power x", np.exp, 20)
exp2 = _function("exp2", "2 to the power x", np.exp2, 20)
exp10 = _function("exp10", "10 to the power x", lambda x: np.power(10.0, x), 24)
expm1 = _function("expm1", "e to the power x, less 1, exact near 0", np.expm1, 32)
log = _function("log", "the natural logarithm", np.log, 24)
log2 = _function("log2", "the logarithm to base 2", np.log2, 24)
log10 = _function("log10", "the logarithm to base 10", np.log10, 26)
log1p = _function("log1p", "the natural logarithm of 1 + x, exact near 0", np.log1p, 32)
sqrt = _function("sqrt", "the square root", np.sqrt, 12)
sin = _function("sin", "the sine", np.sin, 36)
cos = _function("cos", "the cosine", np.cos, 36)
tan = _function("tan", "the tangent", np.tan, 48)
asin = _function("asin", "the arc sine", np.arcsin, 36)
acos = _function("acos", "the arc cosine", np.arccos, 36)
atan = _function("atan", "the arc tangent", np.arctan, 32)
sinh = _function("sinh", "the hyperbolic sine", np.sinh, 40)
cosh = _function("cosh", "the hyperbolic cosine", np.cosh, 40)
tanh = _function("tanh", "the hyperbolic tangent", np.tanh, 34)
asinh = _function("asinh", "the inverse hyperbolic sine", np.arcsinh)
acosh = _function("acosh", "the inverse hyperbolic cosine", np.arccosh)
atanh = _function("atanh", "the inverse hyperbolic tangent", np.arctanh)
erf = _function("erf", "the error function", erf_of, 36)
rsqrt = Operation(
    "rsqrt", ("x",), "1 / sqrt(x); an integer is converted to float32 first", floats, _as_float,
    in_float64(lambda x: 1.0 / np.sqrt(x)), instructions=12,
)  # fmt: skip
sigmoid = Operation(
    "sigmoid", ("x",), "1 / (1 + exp(-x)); an integer is converted to float32 first", floats, _as_float,
    in_float64(sigmoid_of), instructions=42,
)  # fmt: skip
pow_ = _function_of_two("pow", "x y", "x to the power y", np.power, 60)
fmod = _function_of_two("fmod", "x y", "the remainder of x / y, with the sign of x", np.fmod)
copysign = replace(_function_of_two("copysign", "x y", "x with the sign of y", np.copysign), exact=True)
atan2 = _function_of_two("atan2", "y x", "the angle of the point (x, y)", np.arctan2, 40)
hypot = _function_of_two("hypot", "x y", "the length of (x, y)", np.hypot)
floor = _rounding("floor", "the largest whole number not above x", np.floor, "floor")
ceil = _rounding("ceil", "the smallest whole number not below x", np.ceil, "ceil")
trunc = _rounding("trunc", "x without its fraction", np.trunc, "trunc")
round_ = _rounding("round", "the nearest whole number, halves to even", np.rint, "rint")
nearbyint = _rounding("nearbyint", "the nearest whole number, halves to even", np.rint, "rint")
isnan = _test("isnan", "whether x is NaN", np.isnan)
isinf = _test("isinf", "whether x is plus or minus infinity", np.isinf)
isfinite = _test("isfinite", "whether x is neither infinite nor NaN", np.isfinite)
round_rest = Operation(
    "round_rest", ("x",), "x - round(x), which lies between -1/2 and 1/2; 0 for infinities", floats, _as_float,
    in_float64(lambda x: np.where(np.isinf(x), 0.0, x - np.rint(x))),
)  # fmt: skip
times_exp2 = Operation(
    "times_exp2", ("x", "n"), "x * 2**floor(n), rounded once, for finite n", floats, _as_floats,
    in_float64(times_exp2_of),
)  # fmt: skip
lookup = Operation(
    "lookup", ("number", "*values"),
    "values[number % len(values)]; the values are 2, 4, 8 … constants, all float32 or all float64, and the number is an "
    "int32 with as many lanes as the result",
    _table_element, evaluate=table_lookup, lanes=Lanes.FIRST, exact=True,
)  # fmt: skip


def _as_product_and_sum(args: Sequence[Any]) -> Sequence[Expr]:
    x, y = match_types(args[0], args[1])
    x, z = match_types(x, args[2])
    return x, cast(x.dtype, y), z


fma = Operation(
    "fma", ("a", "b", "c"), "a * b + c, rounded once", floats, _as_product_and_sum, fused, flops=2, c_name="fma"
)


def abs_(x: Any) -> Expr:
    """Return the absolute value, for any numeric type."""
    e = convert(x)
    if e.dtype.is_float:
        return Call("tir.fabs", (e,), e.dtype)
    zero = const(0, e.dtype)
    return Select(e >= zero, e, zero - e)


def _as_magnitude(args: Sequence[Any]) -> Sequence[Expr] | Expr:
    e = convert(args[0])
    return abs_(e) if e.dtype.is_int else _as_float(args)


fabs = Operation(
    "fabs", ("x",), "the absolute value of a float; an integer's is an integer", floats, _as_magnitude,
    in_float64(np.abs), c_name="fabs", exact=True,
)  # fmt: skip


def _absolute(dtype: DType, types: Sequence[DType]) -> Callable[..., Any]:
    return on_integers(lambda _, x: abs(x))(dtype, types) if dtype.is_int else np.abs


magnitude = Operation(
    "abs",
    ("x",),
    "the absolute value of a number, as TVM names it",
    numbers,
    as_exprs,
    _absolute,
    spelling=Spelling.CALL,
)
