"""Element-wise operators as several front ends make them: arithmetic of truth values, powers of integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
