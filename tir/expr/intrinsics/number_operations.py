"""This module has the operations on numbers, and those in which the lanes of a vector meet.

Floats have mathematical functions, rounding, tests, fused and scaled products; integers and bools have operations on
bits and rounded fixed-point products; vectors have reductions, halves and dot products.

The rounded products are TVM's ``q_multiply_shift`` and ``q_multiply_shift_per_axis``. The interpreter and lowering replace a call by the
steps of :func:`fixed_point_steps`, so the meaning is defined once: in int64, ``x`` is shifted left, multiplied by ``y``, half of
the last kept bit is added, and the sum is shifted right (a half is rounded up). The result is cut to 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..dtype import DType
from ..nodes import NE, And, BinaryOp, Broadcast, Call, Expr, FloatImm, Max, Not, Or, Select
from ..op import as_exprs, cast, const, convert, make_binary, match_types
from .numpy_values import (
    always,
    fused,
    in_float64,
    integer_dot,
    leading_zeros,
    on_integers,
    on_lanes,
    ones,
    same_bits,
    shifted_right,
    table_lookup,
    truth,
)
from .numpy_values import dot2_bf16 as sum_of_two
from .numpy_values import erf as erf_of
from .numpy_values import sigmoid as sigmoid_of
from .numpy_values import times_exp2 as times_exp2_of
from .operation_row import (
    Lanes,
    Operation,
    Spelling,
    TypeRule,
    bits,
    floats,
    integers,
    is_int_or_bool,
    numbers,
    types_text,
)


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
exp2_approx = _function(
    "exp2_approx",
    "2 to the power x, by the instruction of GPUs: within 2**-22 of it, relative, and 0 for subnormal results",
    np.exp2,
)
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
        return Call("tir.fabs", (e,), fabs.result_type((e,)))
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


def _combined_lanes(fits: Callable[[DType], bool], what: str) -> TypeRule:
    """Return the rule of a reduction of lanes; r lanes of a stated result combine each of r equal parts."""

    def rule(args: Sequence[Expr], dtype: str | None) -> str:
        (have,) = [a.dtype for a in args]
        if not fits(have):
            raise TypeError(f"takes a vector of {what}, not {have}")
        whole = have.element
        if dtype and DType(dtype).element == whole and have.lanes % DType(dtype).lanes == 0:
            return dtype
        return whole

    return rule


def _half_the_lanes(args: Sequence[Expr], dtype: str | None) -> str:
    """Return the type of one vector with half as many lanes."""
    (have,) = [a.dtype for a in args]
    if have.lanes % 2:
        raise TypeError(f"takes a vector of an even number of lanes, not {have}")
    return have.with_lanes(have.lanes // 2)


def _dot_product(width: int, *kinds: str) -> TypeRule:
    """Return the rule of a dot product of ``width`` numbers per lane: the sum, and two vectors of ``kinds``."""

    def rule(args: Sequence[Expr], dtype: str | None) -> str:
        lanes = args[0].dtype.lanes
        wanted = [DType(kinds[0]).with_lanes(lanes), *[DType(k).with_lanes(width * lanes) for k in kinds[1:]]]
        if [a.dtype for a in args] != wanted:
            raise TypeError(f"takes {', '.join(wanted)}, not {types_text(args)}")
        return wanted[0]

    return rule


def _reduction(name: str, what: str, reduce: Any, only_floats: bool = False) -> Operation:
    meaning = f"the {what} of the lanes of one vector, in no stated order; r lanes of the result combine r equal parts"
    rule = _combined_lanes(lambda t: t.is_float, "floats") if only_floats else _combined_lanes(_is_number, "numbers")
    return Operation(f"vector_reduce_{name}", ("vector",), meaning, rule, evaluate=on_lanes(reduce), lanes=Lanes.NEVER)


def _is_number(dtype: DType) -> bool:
    return dtype.is_int or dtype.is_float


vector_reduce_add = _reduction("add", "sum", np.add.reduce)
vector_reduce_mul = _reduction("mul", "product", np.multiply.reduce)
vector_reduce_max = _reduction("max", "maximum", np.maximum.reduce)
vector_reduce_min = _reduction("min", "minimum", np.minimum.reduce)
vector_reduce_fmax = _reduction("fmax", "largest number that is not NaN", np.fmax.reduce, True)
vector_reduce_fmin = _reduction("fmin", "smallest number that is not NaN", np.fmin.reduce, True)
vectorlow = Operation(
    "vectorlow", ("vector",), "the first half of a vector's lanes", _half_the_lanes,
    evaluate=always(lambda v: v[: len(v) // 2]), lanes=Lanes.NEVER,
)  # fmt: skip
vectorhigh = Operation(
    "vectorhigh", ("vector",), "the second half of a vector's lanes", _half_the_lanes,
    evaluate=always(lambda v: v[len(v) // 2 :]), lanes=Lanes.NEVER,
)  # fmt: skip
dot4_u8i8 = Operation(
    "dot4_u8i8", ("c", "a", "b"),
    "c[i] + sum(a[4*i + k] * b[4*i + k] for k in range(4)), uint8 by int8 into int32, the instructions vpdpbusd and "
    "usdot; the products are exact, the sum wraps",
    _dot_product(4, "int32", "uint8", "int8"), evaluate=always(integer_dot),
)  # fmt: skip
dot4_i8i8 = Operation(
    "dot4_i8i8", ("c", "a", "b"),
    "c[i] + sum(a[4*i + k] * b[4*i + k] for k in range(4)), int8 by int8 into int32, the instructions sdot and vpdpbssd; "
    "the products are exact, the sum wraps",
    _dot_product(4, "int32", "int8", "int8"), evaluate=always(integer_dot),
)  # fmt: skip
dot4_u8u8 = Operation(
    "dot4_u8u8", ("c", "a", "b"),
    "c[i] + sum(a[4*i + k] * b[4*i + k] for k in range(4)), uint8 by uint8 into int32, the instructions udot and "
    "vpdpbuud; the products are exact, the sum wraps",
    _dot_product(4, "int32", "uint8", "uint8"), evaluate=always(integer_dot),
)  # fmt: skip
dot2_i16 = Operation(
    "dot2_i16", ("c", "a", "b"),
    "c[i] + a[2*i] * b[2*i] + a[2*i+1] * b[2*i+1], int16 into int32, the instruction vpmaddwd and a sum, or vpdpwssd; "
    "the products are exact, the sum wraps",
    _dot_product(2, "int32", "int16", "int16"), evaluate=always(integer_dot),
)  # fmt: skip
dot2_bf16 = Operation(
    "dot2_bf16", ("c", "a", "b"),
    "c[i] + a[2*i] * b[2*i] + a[2*i+1] * b[2*i+1], bfloat16 into float32, the instructions vdpbf16ps and bfdot; the "
    "products are exact in float32, the sums are rounded to nearest even in an order that the machine chooses (the "
    "interpreter adds the odd product first, as in Intel's manual), to odd by bfdot, and subnormal numbers may count as "
    "zero",
    _dot_product(2, "float32", "bfloat16", "bfloat16"), evaluate=always(sum_of_two),
)  # fmt: skip
DOT_PRODUCTS = tuple([row.name for row in (dot2_bf16, dot2_i16, dot4_i8i8, dot4_u8i8, dot4_u8u8)])
"""The names of the dot products, which every back end has as instructions or writes out as sums."""
