"""Converters of operators on single elements."""

from __future__ import annotations

import math
from functools import reduce

import numpy as np

from ...graph.graph import Value
from ...tir.expr import DType, to_numpy
from .call import CONVERTERS, Call, converter
from .types import dtype_of

UNARY = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh", "Atan": "atan",
    "Atanh": "atanh", "BitwiseNot": "bitwise_not", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Erf": "erf", "Exp": "exp",
    "Floor": "floor", "HardSwish": "hardswish", "Identity": "identity", "IsNaN": "is_nan", "Log": "log",
    "Mish": "mish", "Neg": "negative", "Not": "logical_not", "Relu": "relu", "Round": "round", "Sigmoid": "sigmoid", "Sign": "sign",
    "Sin": "sin", "Sinh": "sinh", "Softplus": "softplus", "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh",
}  # fmt: skip

BINARY = {
    "Add": "add", "And": "logical_and", "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor",
    "Equal": "equal", "Greater": "greater", "GreaterOrEqual": "greater_equal", "Less": "less",
    "LessOrEqual": "less_equal", "Mul": "multiply", "Or": "logical_or", "Sub": "subtract", "Xor": "logical_xor",
}  # fmt: skip

for _name, _op in UNARY.items():
    CONVERTERS["", _name] = lambda c, op=_op: c.op(op, c.input(0))
for _name, _op in BINARY.items():
    CONVERTERS["", _name] = lambda c, op=_op: c.op(op, *_aligned(c))


def _aligned(c: Call) -> tuple[Value, Value]:
    """Returns both operands; before version 7 the second one is aligned at ``axis``."""
    a, b = c.input(0), c.input(1)
    if c.opset < 7 and c.attr("broadcast") and c.attr("axis") is not None and b.ndim:
        behind = a.ndim - c.attr("axis") % a.ndim - b.ndim
        b = c.op("reshape", b, shape=(*b.shape, *[1] * behind))
    return a, b


@converter("Div")
def div(c: Call) -> Value:
    a, b = _aligned(c)
    return c.op("divide" if DType(a.dtype).is_float else "truncate_divide", a, b)


@converter("Mod")
def mod(c: Call) -> Value:
    return c.op("remainder" if c.attr("fmod", 0) else "floor_mod", c.input(0), c.input(1))


@converter("BitShift")
def bit_shift(c: Call) -> Value:
    return c.op("left_shift" if c.attr("direction") == "LEFT" else "right_shift", c.input(0), c.input(1))


@converter("Pow")
def power(c: Call) -> Value:
    a, b = _aligned(c)
    exponent = c.builder.constants.get(b)
    if (
        exponent is not None
        and exponent.size == 1
        and float(exponent.reshape(-1)[0]) in (2.0, 0.5)
        and DType(a.dtype).is_float
    ):
        return c.op("square" if float(exponent.reshape(-1)[0]) == 2.0 else "sqrt", a)
    wide = a.dtype if DType(a.dtype).is_float and a.dtype != "float16" else "float64"
    return c.cast(c.op("power", c.cast(a, wide), c.cast(b, wide)), a.dtype)


@converter("Max", "Min", "Sum", "Mean")
def variadic(c: Call) -> Value:
    op = {"Max": "maximum", "Min": "minimum"}.get(c.op_type, "add")
    total = reduce(lambda a, b: c.op(op, a, b), [v for v in c.inputs if v is not None])
    if c.op_type != "Mean":
        return total if len(c.inputs) > 1 else c.op("identity", total)
    return c.op("divide", total, c.like(len(c.inputs), total))


@converter("Cast", "CastLike")
def cast(c: Call) -> Value:
    to = dtype_of(c.attr("to"), c.label) if c.op_type == "Cast" else c.input(1).dtype
    x = c.input(0)
    if c.op_type == "CastLike" and c.input(1) in c.small:
        raise c.error(f"a conversion to {c.small[c.input(1)]} is not supported; QuantizeLinear makes such numbers")
    data = c.builder.constants.get(x)
    if data is not None and c.op_type == "CastLike" and x not in c.shapes:
        with np.errstate(all="ignore"):
            return (
                c.constant(data.astype(to_numpy(to)), to)
                if "bfloat16" not in (to, x.dtype)
                else c.op("cast", x, dtype=to)
            )
    if x.dtype == to:
        return c.op("identity", x)
    if to == "bool":
        return c.op("not_equal", x, c.like(0, x))
    return c.op("cast", x, dtype=to)


@converter("BitCast")
def bit_cast(c: Call) -> Value:
    x, to = c.input(0), dtype_of(c.attr("to"), c.label)
    if DType(x.dtype).bytes != DType(to).bytes:
        raise c.error(f"{x.dtype} and {to} differ in their number of bits")
    if "bool" in (x.dtype, to):
        plain = c.cast(x, "uint8") if x.dtype == "bool" else x
        return c.op("not_equal", plain, c.like(0, plain)) if to == "bool" else c.op("reinterpret", plain, dtype=to)
    return c.op("reinterpret", x, dtype=to)


@converter("OptionalGetElement")
def optional_element(c: Call) -> Value:
    return c.op("identity", c.input(0))


@converter("Clip")
def clip(c: Call) -> Value:
    x = c.input(0)
    for n, (name, op) in enumerate((("min", "maximum"), ("max", "minimum")), 1):
        limit = c.like(c.attr(name), x) if c.attr(name) is not None else c.optional(n)
        if limit is not None:
            x = c.op(op, x, limit)
    return x if x is not c.input(0) else c.op("identity", x)


@converter("Where")
def where(c: Call) -> Value:
    condition, a, b = [c.input(n) for n in range(3)]
    shape = c.broadcast(condition, a, b)
    return c.op("where", *[v if v.shape == shape else c.op("broadcast_to", v, shape=shape) for v in (condition, a, b)])


@converter("Reciprocal")
def reciprocal(c: Call) -> Value:
    return c.op("divide", c.like(1, c.input(0)), c.input(0))


@converter("LeakyRelu")
def leaky_relu(c: Call) -> Value:
    return c.op("leaky_relu", c.input(0), alpha=float(c.attr("alpha", 0.01)))


@converter("Elu")
def elu(c: Call) -> Value:
    return c.op("elu", c.input(0), alpha=float(c.attr("alpha", 1.0)))


@converter("Celu")
def celu(c: Call) -> Value:
    x, alpha = c.input(0), float(c.attr("alpha", 1.0))
    negative = c.op(
        "multiply", c.op("expm1", c.op("divide", c.op("minimum", x, c.like(0, x)), c.like(alpha, x))), c.like(alpha, x)
    )
    return c.op("add", c.op("maximum", x, c.like(0, x)), negative)


@converter("Selu")
def selu(c: Call) -> Value:
    x = c.input(0)
    alpha, gamma = float(c.attr("alpha", 1.67326319217681884765625)), float(c.attr("gamma", 1.05070102214813232421875))
    return c.op("multiply", c.op("elu", x, alpha=alpha), c.like(gamma, x))


@converter("ThresholdedRelu")
def thresholded_relu(c: Call) -> Value:
    x = c.input(0)
    zero = c.op("multiply", x, c.like(0, x))
    return c.op("where", c.op("greater", x, c.like(float(c.attr("alpha", 1.0)), x)), x, zero)


@converter("HardSigmoid")
def hard_sigmoid(c: Call) -> Value:
    x = c.input(0)
    line = c.op(
        "add", c.op("multiply", x, c.like(float(c.attr("alpha", 0.2)), x)), c.like(float(c.attr("beta", 0.5)), x)
    )
    return c.op("clip", line, low=0.0, high=1.0)


@converter("Softsign")
def softsign(c: Call) -> Value:
    x = c.input(0)
    return c.op("divide", x, c.op("add", c.op("abs", x), c.like(1, x)))


@converter("Swish")
def swish(c: Call) -> Value:
    x = c.input(0)
    return c.op("multiply", x, c.op("sigmoid", c.op("multiply", x, c.like(float(c.attr("alpha", 1.0)), x))))


@converter("Shrink")
def shrink(c: Call) -> Value:
    x, bias, edge = c.input(0), float(c.attr("bias", 0.0)), float(c.attr("lambd", 0.5))
    low = c.op(
        "where", c.op("less", x, c.like(-edge, x)), c.op("add", x, c.like(bias, x)), c.op("multiply", x, c.like(0, x))
    )
    return c.op("where", c.op("greater", x, c.like(edge, x)), c.op("subtract", x, c.like(bias, x)), low)


@converter("Gelu")
def gelu(c: Call) -> Value:
    return c.op("gelu", c.input(0), approximate=c.attr("approximate", "none"))


@converter("PRelu")
def prelu(c: Call) -> Value:
    x, slope = c.input(0), c.input(1)
    if c.opset < 7 and slope.ndim == 1 and x.ndim > 1:  # a number for each channel
        slope = c.op("reshape", slope, shape=(*slope.shape, *[1] * (x.ndim - 2)))
    negative = c.op("minimum", x, c.like(0, x))
    return c.op("add", c.op("maximum", x, c.like(0, x)), c.op("multiply", negative, slope))


@converter("IsInf")
def is_inf(c: Call) -> Value:
    x = c.input(0)
    positive, negative = c.attr("detect_positive", 1), c.attr("detect_negative", 1)
    if positive and negative:
        return c.op("is_inf", x)
    sign = c.op("greater" if positive else "less", x, c.like(0, x))
    return (
        c.op("logical_and", c.op("is_inf", x), sign) if positive or negative else c.op("less", x, c.like(-math.inf, x))
    )


@converter("Dropout")
def dropout(c: Call) -> tuple[Value, ...]:
    training = c.optional(2) is not None and bool(np.any(c.known(2)))
    if training and (c.optional(1) is None or float(np.ravel(c.known(1))[0]) != 0):
        raise c.error("dropout in training mode draws random numbers, which is not supported")
    out = c.op("identity", c.input(0))
    if c.outputs < 2:
        return (out,)
    return out, c.op("equal", c.input(0), c.input(0)) if c.input(0).dtype != "bool" else c.op("identity", c.input(0))
