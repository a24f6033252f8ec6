"""Types that kernels do not have: other kinds of float8, float4, powers of two, integers of 2 and 4 bits.

The graph holds such a float as its code, uint8, and an integer as int8 or uint8. A code becomes a number by a table of all codes; a
number becomes the code of the nearest one, ties to the even code, by counting the bounds between neighbours that it reaches.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import numpy as np

from ...graph.graph import Value
from .call import SMALL_DTYPES, OnnxCall, bits_of, holding


@cache
def numbers_of(coded: str) -> Any:
    """Returns the numbers of all codes of a type in order, as float32; those that are none are NaN.

    >>> numbers_of("float4_e2m1fn")[:8].tolist()
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    """
    types = importlib.import_module("ml_dtypes")  # the package onnx needs it
    return np.arange(1 << bits_of(coded)).astype(np.uint8).view(getattr(types, coded)).astype(np.float32)


def decoded(c: OnnxCall, x: Value, coded: str) -> Value:
    """Returns the numbers that codes stand for, in float32."""
    table = c.constant(numbers_of(coded), "float32")
    return c.op("take", table, c.cast(x, "int32"), axis=0)


def converted(c: OnnxCall, x: Value, to: str) -> Value:
    """Returns numbers as a type in :data:`~.call.SMALL_DTYPES` or :data:`~.call.CODED_DTYPES`."""
    if to in SMALL_DTYPES.values():
        out = _low_bits(c, x, to)
    elif to == "float8_e8m0fnu":
        out = _power_of_two(c, c.cast(x, "float32"))
    else:
        out = _encoded(c, x if x.dtype in ("float32", "float64") else c.cast(x, "float32"), to)
    c.small[out] = to
    return out


def _low_bits(c: OnnxCall, x: Value, to: str) -> Value:
    """Returns whole numbers modulo the range of a small type, as its numbers."""
    number, bits = c.cast(x, "int32"), bits_of(to)
    if to.startswith("u"):
        return c.cast(c.op("bitwise_and", number, c.constant(np.int32((1 << bits) - 1), "int32")), holding(to))
    places = c.constant(np.int32(32 - bits), "int32")
    return c.cast(c.op("right_shift", c.op("left_shift", number, places), places), holding(to))


def _encoded(c: OnnxCall, x: Value, to: str) -> Value:
    """Returns the codes of the nearest numbers. What is beyond the largest is that, or NaN where the attribute ``saturate``
    is 0 and the type has a NaN, whose code is that of a sign alone."""
    half, has_zero = 1 << (bits_of(to) - 1), to == "float4_e2m1fn"  # whether there is a negative zero
    levels = numbers_of(to)[:half].astype(np.float64)
    step = levels[-1] - levels[-2]
    middles = np.append(levels[:-1] + levels[1:], 2 * levels[-1] + step) / 2
    plain = np.dtype(x.dtype).type
    to_even = np.arange(1, half + 1) % 2 == 0
    reached = np.where(to_even, middles.astype(plain), np.nextafter(middles.astype(plain), plain(np.inf)))
    wide = c.op("expand_dims", c.op("abs", x), axis=x.ndim)
    above = c.op("greater_equal", wide, c.constant(reached, x.dtype))
    place = c.op("sum", c.op("cast", above, dtype="int32"), axis=(x.ndim,))

    def number(n: int) -> Value:
        return c.constant(np.int32(n), "int32")

    sign = c.op("multiply", c.cast(c.op("signbit", x), "int32"), number(half))
    code = c.op("add", c.op("minimum", place, number(half - 1)), sign)
    if not has_zero:
        code = c.op("where", c.op("equal", place, number(0)), number(0), code)
    none = c.op("is_nan", x)
    if not c.attr("saturate", 1) and not has_zero:
        none = c.op("logical_or", none, c.op("equal", place, number(half)))
    return c.cast(c.op("where", none, number(half), code), "uint8")


def _power_of_two(c: OnnxCall, x: Value) -> Value:
    """Returns the exponents of numbers, with the sign left out, rounded as the attribute ``round_mode`` says."""
    bits = c.op("reinterpret", x, dtype="int32")

    def number(n: int) -> Value:
        return c.constant(np.int32(n), "int32")

    exponent = c.op("bitwise_and", c.op("right_shift", bits, number(23)), number(0xFF))
    rest = c.op("bitwise_and", bits, number(0x7FFFFF))
    mode = c.attr("round_mode", "up")
    if mode == "up":
        up = c.op("greater", rest, number(0))
    elif mode == "nearest":  # a tie goes up, but from the least number
        middle = c.op("where", c.op("greater", exponent, number(0)), number(0x3FFFFF), number(0x400000))
        up = c.op("greater", rest, middle)
    elif mode == "down":
        up = c.op("less", rest, number(0))
    else:
        raise c.error(f"round_mode={mode!r} is not known; up, down or nearest")
    largest = number(0xFE if c.attr("saturate", 1) else 0xFF)
    rounded = c.op("minimum", c.op("add", exponent, c.cast(up, "int32")), largest)
    return c.cast(c.op("where", c.op("equal", exponent, number(0xFF)), number(0xFF), rounded), "uint8")
