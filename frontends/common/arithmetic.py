"""Arithmetic as several front ends make it: of truth values and integers, products of matrices, reductions, normalizations.

``axes`` are counted from the front.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ...graph.graph import Value
from ...tir.expr import DType, max_identity, min_identity
from .graph_call import GraphCall

OF_TRUTHS = {
    "add": "logical_or", "subtract": "logical_xor", "multiply": "logical_and", "maximum": "logical_or", "minimum": "logical_and"
}  # fmt: skip
"""The operators that arithmetic is for truth values."""


def power_of_integers(op: Callable[..., Any], x: Any, exponent: Any, one: Any, bits: int) -> Any:
    """Returns ``x`` to the power ``exponent``, which is not negative; it wraps where it overflows.

    ``op`` adds operators, ``one`` is 1 in the data type of both, which has ``bits`` bits.
    """
    out = one
    for n in range(bits):
        factor = op("multiply", op("bitwise_and", exponent, one), op("subtract", x, one))
        out = op("multiply", out, op("add", factor, one))
        if n < bits - 1:
            exponent, x = op("right_shift", exponent, one), op("multiply", x, x)
    return out


def product(c: GraphCall, a: Value, b: Value, out_dtype: str | None = None) -> Value:
    """Returns the product of matrices, and of vectors as NumPy treats them; that of integers wraps in their type.

    Matrices that one matrix follows are one matrix of all their rows.
    """
    attrs = {} if out_dtype is None else {"out_dtype": out_dtype}
    if not DType(a.dtype).is_float and out_dtype is None:
        attrs = {"out_dtype": a.dtype}
    left, right = a, b
    if a.ndim == 1:
        left = c.op("expand_dims", a, axis=0)
    if b.ndim == 1:
        right = c.op("expand_dims", b, axis=1)
    if left.ndim > 2 and right.ndim == 2 and left.is_static:  # one product of all rows
        rows = math.prod(left.shape[:-1])
        flat = c.op("matmul", c.op("reshape", left, shape=(rows, left.shape[-1])), right, **attrs)
        out = c.op("reshape", flat, shape=(*left.shape[:-1], right.shape[-1]))
    else:
        out = c.op("matmul", left, right, **attrs)
    if a.ndim == 1:
        out = c.op("squeeze", out, axis=out.ndim - 2)
    return c.op("squeeze", out, axis=out.ndim - 1) if b.ndim == 1 else out


def scaled_sum(c: GraphCall, x: Value, other: Value | None, alpha: Any, beta: Any) -> Value:
    """Returns ``alpha * x + beta * other``; where ``beta`` is 0, nothing of ``other`` is read."""
    if alpha != 1:
        x = c.op("multiply", x, c.constant(alpha, x.dtype))
    if other is None or beta == 0:
        return x
    return c.op("add", x, other if beta == 1 else c.op("multiply", other, c.constant(beta, other.dtype)))


def reduced(c: GraphCall, row: str, x: Value, axes: Sequence[int], keepdims: bool = False) -> Value:
    """Returns the reduction ``row`` (``sum``, ``prod``, ``max``, ``min`` or ``mean``) in the data type of ``x``.

    The greatest and the sum of bools are whether one is true, the least and the product whether all are. Over no elements it is what the reduction
    begins with, and NaN for a mean.
    """
    if x.ndim == 0 or not axes:
        return c.op("identity", x)
    if x.dtype == "bool":
        row = {"sum": "max", "prod": "min"}.get(row, row)  # a sum of as many as 256 would wrap around
        return c.cast(reduced(c, row, c.op("cast", x, dtype="uint8"), axes, keepdims), "bool")
    if x.is_static and 0 in x.shape:
        number = {"sum": 0, "prod": 1, "max": max_identity(x.dtype), "min": min_identity(x.dtype), "mean": math.nan}[
            row
        ]
        shape = tuple([1 if d in axes else e for d, e in enumerate(x.shape) if keepdims or d not in axes])
        start = c.constant(number, x.dtype)
        return c.op("broadcast_to", start, shape=shape) if shape else c.op("identity", start)
    return c.cast(c.op(row, x, axis=tuple(axes), keepdims=keepdims), x.dtype)


def log_sum_exp(c: GraphCall, x: Value, axes: Sequence[int], keepdims: bool = False) -> Value:
    """Returns the logarithm of the sum of exponentials; what is subtracted before keeps these finite."""
    if x.ndim == 0 or not axes or (x.is_static and 0 in x.shape):
        return (
            c.op("log", reduced(c, "sum", c.op("exp", x), axes, keepdims)) if axes and x.ndim else c.op("identity", x)
        )
    if x.dtype in ("float16", "bfloat16"):  # the logarithm and the largest element may cancel
        return c.cast(log_sum_exp(c, c.cast(x, "float32"), axes, keepdims), x.dtype)
    highest = c.op("max", x, axis=tuple(axes), keepdims=True)
    highest = c.op("where", c.op("is_inf", highest), c.constant(0, x.dtype), highest)  # inf - inf is NaN
    total = c.op("sum", c.op("exp", c.op("subtract", x, highest)), axis=tuple(axes), keepdims=True)
    out = c.op("add", c.op("log", total), highest)
    return out if keepdims else c.op("squeeze", out, axis=tuple(axes))


def moments(c: GraphCall, x: Value, axes: Sequence[int]) -> tuple[Value, Value, Value]:
    """Returns the mean, the differences from it, and the mean of their squares; reduced axes have one element."""
    mean = c.op("mean", x, axis=tuple(axes), keepdims=True)
    apart = c.op("subtract", x, mean)
    return mean, apart, c.op("mean", c.op("square", apart), axis=tuple(axes), keepdims=True)


def inverse_deviation(c: GraphCall, variance: Value, epsilon: float) -> Value:
    """Returns ``1 / sqrt(variance + epsilon)``."""
    return c.op("rsqrt", c.op("add", variance, c.constant(float(epsilon), variance.dtype)))


def per_channel(c: GraphCall, x: Value, scale: Value | None, shift: Value | None, axis: int = 1) -> Value:
    """Returns ``x * scale + shift`` in the data type of ``x``; both have a number for each index along ``axis``."""
    shape = tuple([e if d == axis else 1 for d, e in enumerate(x.shape)])
    if scale is not None:
        x = c.op("multiply", x, c.cast(c.op("reshape", scale, shape=shape), x.dtype))
    return x if shift is None else c.op("add", x, c.cast(c.op("reshape", shift, shape=shape), x.dtype))


def batch_normalized(
    c: GraphCall, x: Value, scale: Value | None, shift: Value | None, epsilon: float, axis: int = 1
) -> tuple[Value, Value, Value, Value]:
    """Returns ``x`` normalized by its own mean and variance along all axes but one, these two, and the inverse deviation.

    The last three are vectors along ``axis``.
    """
    mean, apart, variance = moments(c, x, [d for d in range(x.ndim) if d != axis])
    root = inverse_deviation(c, variance, epsilon)
    out = per_channel(c, c.op("multiply", apart, root), scale, shift, axis)
    flat = [c.op("reshape", v, shape=(x.shape[axis],)) for v in (mean, variance, root)]
    return out, flat[0], flat[1], flat[2]
