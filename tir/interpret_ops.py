"""This module evaluates the operations of the IR on NumPy scalars and vectors, for :mod:`.interpret`.

Integers are Python ints (vectors: arrays of their type), floats are NumPy scalars of their type, so that every
operation rounds to it; bfloat16 values are float32 numbers that bfloat16 holds exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from .dtype import parse_dtype, to_numpy
from .rounding import bfloat16_from_bits, bfloat16_to_bits, round_bfloat16


def value_dtype(dtype: str) -> np.dtype:
    """Return the NumPy type in which values of one lane are computed."""
    return np.dtype("float32") if parse_dtype(dtype).kind == "bfloat" else to_numpy(dtype)


def scalar_type(dtype: str) -> Callable[[Any], Any]:
    """Return a function that makes a scalar of ``dtype`` from a Python number."""
    kind = parse_dtype(dtype).kind
    if kind == "bfloat":
        return lambda v: round_bfloat16(np.float32(v))
    if kind == "float":
        return value_dtype(dtype).type
    return bool if kind == "bool" else int


def wrapper(dtype: str) -> Callable[[int], int]:
    """Return a function that wraps a Python int to the range of an integer type, like the machine."""
    kind, bits, _ = parse_dtype(dtype)
    mask = (1 << bits) - 1
    if kind != "int":
        return lambda v: v & mask
    half = 1 << (bits - 1)
    return lambda v: v if -half <= v < half else ((v + half) & mask) - half


def divider(kind: str, dtype: str) -> Callable[[Any, Any], Any]:
    """Return one of ``floordiv floormod truncdiv truncmod`` for the integer type ``dtype``.

    A quotient and a remainder by zero are 0, and the smallest number divided by -1 is itself.
    """
    if parse_dtype(dtype).lanes > 1:
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


def caster(dtype: str, source: str, vector: bool) -> Callable[[Any], Any]:
    """Return the conversion from ``source`` to ``dtype``."""
    to, given = parse_dtype(dtype), parse_dtype(source)
    out = value_dtype(dtype)
    if to.kind == "bfloat":
        return lambda v: round_bfloat16(np.asarray(v, dtype=np.float32) if vector else np.float32(v))
    if vector:
        if to.kind in ("int", "uint") and given.kind in ("float", "bfloat"):
            return lambda v: np.where(np.isfinite(v), np.trunc(v), 0.0).astype(np.int64).astype(out)
        return lambda v: v.astype(out)
    if to.kind == "float":
        return out.type if given.kind != "int" or given.bits < 64 else lambda v: out.type(np.int64(v))
    if to.kind == "bool":
        return lambda v: bool(v != 0)
    if given.kind in ("float", "bfloat"):
        wrap, lowest = wrapper(dtype), -(1 << (to.bits - 1)) if to.kind == "int" else 0
        return lambda v: wrap(int(v)) if math.isfinite(v) else lowest
    return lambda v, wrap=wrapper(dtype): wrap(int(v))  # type: ignore[misc]


def reinterpreter(dtype: str, source: str) -> Callable[[Any], Any]:
    """Return the function that reinterprets bits of ``source`` as ``dtype``."""
    to, given = parse_dtype(dtype), parse_dtype(source)

    def run(v: Any) -> Any:
        bits = bfloat16_to_bits(v) if given.kind == "bfloat" else np.asarray(v, dtype=to_numpy(source))
        new = np.atleast_1d(bits).view(to_numpy(dtype))
        if to.kind == "bfloat":
            new = bfloat16_from_bits(new)
        return new if to.lanes > 1 else new[0].item() if to.kind in ("int", "uint", "bool") else new[0]

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


def dot4_u8i8(c: Any, a: Any, b: Any) -> Any:
    """Return c[i] + sum of a[4i+k] * b[4i+k] in int32, wrapping."""
    products = np.asarray(a, np.int64) * np.asarray(b, np.int64)
    total = (np.asarray(c, np.int64) + products.reshape(-1, 4).sum(axis=1)).astype(np.int32)
    return total if isinstance(c, np.ndarray) else total[0].item()


def dot2_bf16(c: Any, a: Any, b: Any) -> Any:
    """Return c[i] + a[2i+1] * b[2i+1] + a[2i] * b[2i], rounded to float32 after each sum."""
    products = np.asarray(a, np.float32) * np.asarray(b, np.float32)
    total = (c + products[1::2]) + products[0::2]
    return total if isinstance(c, np.ndarray) else total[0]


def _erf(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return np.array([math.erf(v) for v in x.reshape(-1)]).reshape(x.shape)
    return math.erf(x)


def _sigmoid(x: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-x))


_UNARY: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "exp10": lambda x: np.power(10.0, x),
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "sigmoid": _sigmoid,
    "erf": _erf,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "nearbyint": np.rint,
    "round_rest": lambda x: np.where(np.isinf(x), 0.0, x - np.rint(x)),
    "trunc": np.trunc,
    "fabs": np.abs,
}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "pow": np.power,
    "fmod": np.fmod,
    "hypot": np.hypot,
    "atan2": np.arctan2,
    "copysign": np.copysign,
    "times_exp2": lambda x, n: np.where(
        np.isnan(n), n, np.ldexp(x, np.clip(np.nan_to_num(np.floor(n)), -9999, 9999).astype(int))
    ),
}
_DOTS: dict[str, Callable[..., Any]] = {"dot4_u8i8": dot4_u8i8, "dot2_bf16": dot2_bf16}
_TESTS: dict[str, Callable[[Any], Any]] = {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite}
_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "vector_reduce_add": np.add.reduce,
    "vector_reduce_mul": np.multiply.reduce,
    "vector_reduce_max": np.maximum.reduce,
    "vector_reduce_min": np.minimum.reduce,
    "vector_reduce_fmax": np.fmax.reduce,
    "vector_reduce_fmin": np.fmin.reduce,
}


def _through_float64(f: Callable[..., Any], dtype: str) -> Callable[..., Any]:
    """Return ``f`` computed in float64, with the result rounded to ``dtype``."""
    out = value_dtype(dtype)
    narrow = round_bfloat16 if parse_dtype(dtype).kind == "bfloat" else (lambda v: v)

    def run(*args: Any) -> Any:
        value = f(*[np.float64(a) if not isinstance(a, np.ndarray) else a.astype(np.float64) for a in args])
        return narrow(np.asarray(value).astype(out)[()])

    return run


def _integer(op: str, dtype: str) -> Callable[..., Any]:
    kind, bits, lanes = parse_dtype(dtype)
    mask, wrap = (1 << bits) - 1, wrapper(dtype)
    scalar: dict[str, Callable[..., Any]] = {
        "bitwise_and": lambda a, b: a & b,
        "bitwise_or": lambda a, b: a | b,
        "bitwise_xor": lambda a, b: a ^ b,
        "bitwise_not": lambda a: wrap(~a),
        "shift_left": lambda a, b: wrap(a << b) if 0 <= b < bits else 0,
        "shift_right": lambda a, b: a >> (b if 0 <= b < bits else bits),
        "popcount": lambda a: bin(a & mask).count("1"),
        "clz": lambda a: bits - (a & mask).bit_length(),
        "abs": lambda a: wrap(abs(a)),
    }
    if lanes == 1:
        return scalar[op]
    out = to_numpy(dtype)
    return lambda *args: np.array([scalar[op](*map(int, lane)) for lane in zip(*args, strict=True)], dtype=out)


def CALLS(op: str, dtype: str, sources: tuple[str, ...]) -> Callable[..., Any] | None:
    """Return the evaluator of ``tir.<op>`` for these types of result and arguments; None when there is none."""
    name = op.removeprefix("tir.")
    lanes = parse_dtype(dtype).lanes
    if name in _UNARY and parse_dtype(dtype).kind in ("float", "bfloat"):
        return _through_float64(_UNARY[name], dtype)
    if name in _BINARY:
        return _through_float64(_BINARY[name], dtype)
    if name in _TESTS:
        test = _TESTS[name]
        return test if lanes > 1 else lambda x: bool(test(x))
    if name == "lookup":
        values = value_dtype(dtype)
        return lambda number, *table: np.array(table, values)[number % len(table)]
    if name == "fma":
        return fma if parse_dtype(dtype).kind == "float" else lambda a, b, c: round_bfloat16(fma(a, b, c))
    if name in _DOTS:
        return _DOTS[name]
    if name in _REDUCTIONS:
        reduce = _REDUCTIONS[name]
        if lanes > 1:
            return lambda v: reduce(v.reshape(lanes, -1), axis=1).astype(v.dtype)
        if parse_dtype(dtype).kind == "float":
            return lambda v: reduce(v)
        return lambda v: v.dtype.type(reduce(v)).item()
    if name in ("vectorlow", "vectorhigh"):
        return (lambda v: v[: len(v) // 2]) if name == "vectorlow" else (lambda v: v[len(v) // 2 :])
    if name == "reinterpret":
        return reinterpreter(dtype, sources[0])
    if name in (
        "abs popcount clz bitwise_and bitwise_or bitwise_xor bitwise_not shift_left shift_right"
    ).split() and parse_dtype(dtype).kind in ("int", "uint"):
        return _integer(name, dtype)
    if name in ("bitwise_and", "bitwise_or", "bitwise_xor") and parse_dtype(dtype).kind == "bool":
        return {"bitwise_and": np.logical_and, "bitwise_or": np.logical_or, "bitwise_xor": np.logical_xor}[name]
    if name == "abs":
        return np.abs
    return None
