"""This module says how the interpreter holds values in Python and NumPy, and divides, compares and converts them.

Integers are Python ints (vectors: arrays of their type), floats are NumPy scalars of their type, so that every
operation rounds to it; bfloat16 values are float32 numbers that bfloat16 holds exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..base.dtype import DType, max_value, min_value, to_numpy
from ..base.rounding import round_bfloat16


def value_dtype(dtype: DType) -> np.dtype:
    """Return the NumPy type in which values of one lane are computed."""
    return np.dtype("float32") if dtype.kind == "bfloat" else to_numpy(dtype)


def scalar_type(dtype: DType) -> Callable[[Any], Any]:
    """Return a function that makes a scalar of ``dtype`` from a Python number."""
    kind = dtype.kind
    if kind == "bfloat":
        return lambda v: round_bfloat16(np.float32(v))
    if kind == "float":
        return value_dtype(dtype).type
    return bool if kind == "bool" else int


def wrapper(dtype: DType) -> Callable[[int], int]:
    """Return a function that wraps a Python int to the range of an integer type, like the machine."""
    kind, bits = dtype.kind, dtype.bits
    mask = (1 << bits) - 1
    if kind != "int":
        return lambda v: v & mask
    half = 1 << (bits - 1)
    return lambda v: v if -half <= v < half else ((v + half) & mask) - half


def divider(kind: str, dtype: DType) -> Callable[[Any, Any], Any]:
    """Return one of ``floordiv floormod truncdiv truncmod`` for the integer type ``dtype``.

    A quotient and a remainder by zero are 0, and the smallest number divided by -1 is itself.
    """
    if dtype.lanes > 1:
        return _VECTOR_DIVISIONS[kind]
    divide = _DIVISIONS[kind]
    if not kind.endswith("div"):
        return divide
    wrap = wrapper(dtype)
    return lambda a, b: wrap(divide(a, b))


def _truncdiv(a: int, b: int) -> int:
    q = abs(a) // abs(b) if b else 0
    return q if (a < 0) == (b < 0) else -q


def _truncdiv_vector(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    q = a // b
    return q + ((a % b != 0) & ((a < 0) != (b < 0))).astype(a.dtype)


_DIVISIONS: dict[str, Callable[[Any, Any], Any]] = {
    "floordiv": lambda a, b: a // b if b else 0,
    "floormod": lambda a, b: a % b if b else 0,
    "truncdiv": _truncdiv,
    "truncmod": lambda a, b: a - _truncdiv(a, b) * b if b else 0,
}
_VECTOR_DIVISIONS: dict[str, Callable[[Any, Any], Any]] = {
    "floordiv": np.floor_divide,  # division by zero gives 0, as in NumPy
    "floormod": np.mod,
    "truncdiv": _truncdiv_vector,
    "truncmod": np.fmod,
}


def fmax(a: Any, b: Any) -> Any:
    """Return the larger float; NaN if either is NaN."""
    return a if a >= b or a != a else b


def fmin(a: Any, b: Any) -> Any:
    """Return the smaller float; NaN if either is NaN."""
    return a if a <= b or a != a else b


def saturated(values: Any, dtype: DType) -> Any:
    """Return floats converted to an integer type, in 64 bits. Beyond its range that is the nearer end, for NaN 0."""
    low, high = int(min_value(dtype)), int(max_value(dtype))
    whole, kind = np.trunc(np.asarray(values, np.float64)), np.int64 if dtype.is_signed else np.uint64
    above, below = whole >= float(high + 1), whole < float(low)
    inside = np.where(above | below | np.isnan(whole), 0.0, whole).astype(kind)
    return np.where(above, kind(high), np.where(below, kind(low), inside))[()]


def caster(dtype: DType, source: str, vector: bool) -> Callable[[Any], Any]:
    """Return the conversion from ``source`` to ``dtype``."""
    to, given = dtype, source
    out = value_dtype(dtype)
    if DType(to).kind == "bfloat":
        return lambda v: round_bfloat16(np.asarray(v, dtype=np.float32) if vector else np.float32(v))
    if to.is_int and DType(given).is_float:
        return (lambda v: saturated(v, to).astype(out)) if vector else lambda v: int(saturated(v, to))
    if vector:
        return lambda v: v.astype(out)
    if DType(to).kind == "float":
        return out.type if DType(given).kind != "int" or DType(given).bits < 64 else lambda v: out.type(np.int64(v))
    if DType(to).kind == "bool":
        return lambda v: bool(v != 0)
    return lambda v, wrap=wrapper(dtype): wrap(int(v))  # type: ignore[misc]
