"""This module says what operations mean on NumPy values, and how the interpreter holds, compares and converts these.

Integers are Python ints (vectors: arrays of their type), floats are NumPy scalars of their type, so that every
operation rounds to it; bfloat16 values are float32 numbers that bfloat16 holds exactly. The functions that take an
operation's types and return what it computes are what :mod:`.operation_row` calls evaluators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ..dtype import DType, bfloat16_from_bits, bfloat16_to_bits, max_value, min_value, round_bfloat16, to_numpy
from .operation_row import Evaluator


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


def always(f: Callable[..., Any]) -> Evaluator:
    """Return the evaluator that is ``f`` for all types."""
    return lambda dtype, types: f


def in_float64(f: Callable[..., Any]) -> Evaluator:
    """Return the evaluator that computes ``f`` in float64 and rounds the result to its type."""

    def evaluator(dtype: DType, types: Sequence[DType]) -> Callable[..., Any]:
        out = value_dtype(dtype)
        narrow = round_bfloat16 if dtype.kind == "bfloat" else (lambda v: v)

        def run(*args: Any) -> Any:
            value = f(*[np.float64(a) if not isinstance(a, np.ndarray) else a.astype(np.float64) for a in args])
            return narrow(np.asarray(value).astype(out)[()])

        return run

    return evaluator


def on_integers(f: Callable[..., int]) -> Evaluator:
    """Return the evaluator of ``f(bits, value, …)``, a function of Python ints; its result wraps to the type."""

    def evaluator(dtype: DType, types: Sequence[DType]) -> Callable[..., Any]:
        kind, bits, lanes = dtype.kind, dtype.bits, dtype.lanes
        if kind == "bool":
            return lambda *args: f(bits, *args)
        wrap = wrapper(dtype)
        if lanes == 1:
            return lambda *args: wrap(f(bits, *args))
        out = to_numpy(dtype)
        return lambda *args: np.array([wrap(f(bits, *map(int, lane))) for lane in zip(*args, strict=True)], dtype=out)

    return evaluator


def on_lanes(reduce: Callable[..., Any]) -> Evaluator:
    """Return the evaluator of a NumPy reduction over the lanes, or over each of equal parts of them."""

    def evaluator(dtype: DType, types: Sequence[DType]) -> Callable[..., Any]:
        kind, lanes = dtype.kind, dtype.lanes
        if lanes > 1:
            return lambda v: reduce(v.reshape(lanes, -1), axis=1).astype(v.dtype)
        if kind == "float":
            return lambda v: reduce(v)
        return lambda v: v.dtype.type(reduce(v)).item()

    return evaluator


def truth(test: Callable[[Any], Any]) -> Evaluator:
    """Return the evaluator of a test that gives Python bools for scalars."""
    return lambda dtype, types: test if DType(dtype).lanes > 1 else lambda x: bool(test(x))


def table_lookup(dtype: DType, types: Sequence[DType]) -> Callable[..., Any]:
    """Return the evaluator of ``lookup``."""
    values = value_dtype(dtype)
    return lambda number, *table: np.array(table, values)[number % len(table)]


def fused(dtype: DType, types: Sequence[DType]) -> Callable[..., Any]:
    """Return the evaluator of ``fma``."""
    return fma if dtype.kind == "float" else lambda a, b, c: round_bfloat16(fma(a, b, c))


def same_bits(dtype: DType, types: Sequence[DType]) -> Callable[[Any], Any]:
    """Return the evaluator of ``reinterpret``."""
    (source,) = types
    to, given = dtype, source

    def run(v: Any) -> Any:
        bits = bfloat16_to_bits(v) if DType(given).kind == "bfloat" else np.asarray(v, dtype=to_numpy(source))
        new = np.atleast_1d(bits).view(to_numpy(dtype))
        if DType(to).kind == "bfloat":
            new = bfloat16_from_bits(new)
        return new if DType(to).lanes > 1 else new[0].item() if DType(to).kind in ("int", "uint", "bool") else new[0]

    return run


def fma(a: Any, b: Any, c: Any) -> Any:
    """Return a * b + c rounded once: float32 and float16 through float64 rounded to odd, float64 through fractions."""
    kind = np.asarray(a).dtype.type
    if kind is np.float64:
        if isinstance(a, np.ndarray):
            return _fma_vector(a, b, c)
        if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
            return a * b + c
        exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
        if exact == 0:
            return np.float64(a * b + c)
        try:
            return np.float64(exact.numerator / exact.denominator)
        except OverflowError:
            return np.float64(math.inf if exact > 0 else -math.inf)
    p, z = np.float64(a) * np.float64(b), np.float64(c)
    s = p + z
    t = s - p
    error = (p - (s - t)) + (z - t)
    even = (np.asarray(s).view(np.int64) & 1) == 0
    nudged = np.nextafter(s, np.where(error > 0, np.inf, -np.inf))
    return np.where((error != 0) & even & np.isfinite(s), nudged, s)[()].astype(kind)


def _fma_vector(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Compute float64 lanes by error-free sums and products (Dekker, Knuth), lanes near a tie or a limit one by one."""

    def halves(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        big = x * 134217729.0
        high = big - (big - x)
        return high, x - high

    p = a * b
    (ah, al), (bh, bl) = halves(a), halves(b)
    e = ((ah * bh - p) + ah * bl + al * bh) + al * bl
    s = p + c
    t = s - p
    w = ((p - (s - t)) + (c - t)) + e
    out = s + w
    half = np.spacing(np.abs(out)) / 2
    sizes = np.stack([np.abs(a), np.abs(b), np.abs(p), np.abs(c), np.abs(out)])
    safe = np.all(((sizes > 1e-140) & (sizes < 1e140)) | (sizes == 0), axis=0) & (sizes[4] > 0)
    near_tie = np.abs(np.abs(w - (out - s)) - half) <= half * 1e-12
    for lane in np.flatnonzero(~safe | near_tie):
        out[lane] = fma(a[lane], b[lane], c[lane])
    return out


def integer_dot(c: Any, a: Any, b: Any) -> Any:
    """Return c[i] + sum of a[w*i+k] * b[w*i+k] over k < w in int32, wrapping; w numbers belong to each lane of c."""
    products = np.asarray(a, np.int64) * np.asarray(b, np.int64)
    total = (np.asarray(c, np.int64) + products.reshape(np.size(c), -1).sum(axis=1)).astype(np.int32)
    return total if isinstance(c, np.ndarray) else total[0].item()


def dot2_bf16(c: Any, a: Any, b: Any) -> Any:
    """Return c[i] + a[2i+1] * b[2i+1] + a[2i] * b[2i], rounded to float32 after each sum."""
    products = np.asarray(a, np.float32) * np.asarray(b, np.float32)
    total = (c + products[1::2]) + products[0::2]
    return total if isinstance(c, np.ndarray) else total[0]


def erf(x: Any) -> Any:
    """Return the error function."""
    if isinstance(x, np.ndarray):
        return np.array([math.erf(v) for v in x.reshape(-1)]).reshape(x.shape)
    return math.erf(x)


def sigmoid(x: Any) -> Any:
    """Return 1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + np.exp(-x))


def times_exp2(x: Any, n: Any) -> Any:
    """Return x * 2**floor(n); NaN where n is NaN."""
    power = np.clip(np.nan_to_num(np.floor(n)), -9999, 9999).astype(int)
    return np.where(np.isnan(n), n, np.ldexp(x, power))


def shifted_right(bits: int, a: int, n: int) -> int:
    """Return a shifted right; by all bits when n is negative or too large."""
    return a >> (n if 0 <= n < bits else bits)


def leading_zeros(bits: int, a: int) -> int:
    """Return the number of zero bits above the highest one."""
    return bits - (a & ((1 << bits) - 1)).bit_length()


def ones(bits: int, a: int) -> int:
    """Return the number of one bits."""
    return (a & ((1 << bits) - 1)).bit_count()
