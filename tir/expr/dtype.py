"""This module defines data types: ``float32``, ``int8``, ``bool``, ``handle``, ``float32x16``.

A data type is a text that knows its parts; only this module parses it. The names are ``float``, ``bfloat``,
``int`` and ``uint`` with a number of bits, ``bool``, ``handle`` and ``void``; ``x16`` after them means 16 lanes.

Storage types only keep numbers: int4, uint4, int2, uint2, float8_e4m3fn and float8_e5m2. Their values are loaded, stored,
chosen and converted; arithmetic is on what they are converted to (:mod:`..storage_types`).

Overflow of integers: index arithmetic never overflows. Sums, differences, products, quotients, minima and comparisons
of type int32 and int64 over variables (of loops, axes, sizes, parameters) and constants have their mathematical values,
and a program in which such a value would not fit its type is undefined. Every other integer wraps around in two's
complement: all other types, and int32 and int64 that come from memory or a call. A cast to an integer type keeps the
low bits, of an index too: it is the identity only where the value fits. The simplifier, its bounds and its proofs hold
under these rules.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

_PATTERN = re.compile(r"(bool|handle|void|bfloat16|float8_e4m3fn|float8_e5m2|float|int|uint)(\d*)(?:x(\d+))?")
_WIDTHS = {"float": (16, 32, 64), "int": (1, 2, 4, 8, 16, 32, 64), "uint": (1, 2, 4, 8, 16, 32, 64)}
_FLOAT8 = {"float8_e4m3fn": (3, 7), "float8_e5m2": (2, 15)}
"""The bits of the mantissa and the bias of the exponent of the floats of 8 bits."""
_KNOWN: dict[str, DType] = {}


class DType(str):
    """Represents a data type. There is one object for each text, which compares and prints as that text.

    ``kind`` is float, bfloat, float8_e4m3fn, float8_e5m2, int, uint, bool, handle or void; ``bits`` are those of one
    lane; ``element`` is the scalar type of one lane; ``bytes`` are those that one element takes in memory, all lanes
    together, where a bool takes one byte. ``is_int`` is false for bool, ``is_float`` true for bfloat16 and float8.
    ``is_storage``: values of the type are only kept, not computed on; ``per_byte`` of them share a byte of an argument.

    >>> DType("float32x16").lanes, DType("float32x16").element, DType("int8").with_lanes(4)
    (16, 'float32', 'int8x4')
    """

    __slots__ = (
        "bits", "bytes", "element", "is_bool", "is_float", "is_int", "is_signed", "is_storage", "kind", "lanes", "per_byte",
        "wide",
    )  # fmt: skip

    kind: str
    bits: int
    lanes: int
    bytes: int
    element: DType
    is_float: bool
    is_int: bool
    is_signed: bool
    is_bool: bool
    is_storage: bool
    per_byte: int
    wide: _Wide
    """The types with all numbers of lanes, by these numbers."""

    def __new__(cls, text: str) -> DType:
        known = _KNOWN.get(text)
        return known if known is not None else _parsed(text)

    def __reduce__(self) -> Any:
        return DType, (str(self),)

    def with_lanes(self, lanes: int) -> DType:
        """Return the type with another number of lanes."""
        return self.wide[lanes]


class _Wide(dict[int, DType]):
    """The types with the same element, which are made when they are asked for."""

    def __missing__(self, lanes: int) -> DType:
        made = self[lanes] = DType(f"{self[1]}x{lanes}")
        return made


def _parsed(text: str) -> DType:
    """Return a data type that is used for the first time; ValueError when ``text`` is none."""
    match = _PATTERN.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"{text!r} is not a data type; write e.g. 'float32', 'int8', 'float32x16'")
    kind, width, lanes = match[1], match[2], int(match[3] or 1)
    if lanes < 1:
        raise ValueError(f"{text!r} has no lanes")
    if kind in _WIDTHS:
        bits = int(width or 32)
        if bits not in _WIDTHS[kind]:
            raise ValueError(f"{text!r}: {kind} has the widths {_WIDTHS[kind]}")
    elif width:
        raise ValueError(f"{text!r} is not a data type")
    else:
        bits = 8 if kind in _FLOAT8 else {"bfloat16": 16, "bool": 1, "handle": 64, "void": 0}[kind]
        kind = "bfloat" if kind == "bfloat16" else kind
    made: Any = str.__new__(DType, text)
    made.kind, made.bits, made.lanes = kind, bits, lanes
    made.bytes = (1 if kind == "bool" else (bits + 7) // 8) * lanes
    made.is_float, made.is_bool = kind in ("float", "bfloat") or kind in _FLOAT8, kind == "bool"
    made.is_int, made.is_signed = kind in ("int", "uint"), kind == "int"
    made.per_byte = 8 // bits if made.is_int and bits in (2, 4) else 1
    made.is_storage = made.per_byte > 1 or kind in _FLOAT8
    made.element = made if lanes == 1 else DType(text.partition("x")[0])
    made.wide = _Wide({1: made}) if lanes == 1 else made.element.wide
    _KNOWN[text] = made
    return made


INDEX = DType("int32")
"""The default data type of loop variables and shapes."""

BOOL = DType("bool")
INT64 = DType("int64")


def accessed_type(dtype: DType, indices: Iterable[Any]) -> DType:
    """Return the type of an access to a buffer of ``dtype``. Its lanes are the most lanes of an index times those of an
    element."""
    lanes = 1
    for index in indices:
        if index.dtype.lanes > lanes:
            lanes = index.dtype.lanes
    return dtype if lanes == 1 else dtype.wide[lanes * dtype.lanes]


@cache
def min_value(dtype: str) -> int | float:
    """Return the smallest finite value; a maximum starts from :func:`max_identity`."""
    t = DType(dtype)
    if t.kind == "float":
        return float(np.finfo(f"float{t.bits}").min)
    if t.is_float:
        return -max_value(dtype)
    return -(1 << (t.bits - 1)) if t.is_signed else 0


@cache
def max_value(dtype: str) -> int | float:
    """Return the largest finite value."""
    t = DType(dtype)
    if t.kind == "float":
        return float(np.finfo(f"float{t.bits}").max)
    if t.is_float:
        return {"bfloat": 3.3895313892515355e38, "float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}[t.kind]
    return (1 << (t.bits - t.is_signed)) - 1 if t.is_int else 1


@cache
def max_identity(dtype: str) -> int | float:
    """Return the identity of the maximum: minus infinity for floats, for other types the smallest value."""
    return -math.inf if DType(dtype).is_float else min_value(dtype)


@cache
def min_identity(dtype: str) -> int | float:
    """Return the identity of the minimum: plus infinity for floats, for other types the largest value."""
    return math.inf if DType(dtype).is_float else max_value(dtype)


def to_numpy(dtype: str) -> np.dtype:
    """Return the NumPy dtype that stores one lane.

    bfloat16 is stored as its bits in ``uint16``, float8 in ``uint8``, and an integer of fewer bits in 8.
    """
    t = DType(dtype)
    if t.is_storage:
        return np.dtype("int8" if t.is_signed else "uint8")
    if t.kind == "bfloat":
        return np.dtype("uint16")
    if t.is_bool:
        return np.dtype("bool")
    if t.kind in ("handle", "void"):
        raise ValueError(f"{dtype} has no NumPy counterpart")
    return np.dtype(f"{t.kind}{t.bits}")


def array_bytes(shape: Iterable[int], dtype: str) -> int:
    """Return the bytes that an array without gaps takes in memory."""
    t = DType(dtype)
    if t.per_byte > 1:
        *rows, last = (*shape,) or (1,)
        return math.prod(rows) * -(-last // t.per_byte) * t.lanes
    return math.prod(shape) * t.bytes


def bytes_each(dtype: str) -> float:
    """Return the bytes that one element takes in an argument, 0.5 for int4."""
    t = DType(dtype)
    return t.bytes if t.per_byte == 1 else t.bytes / t.per_byte


_RANK = {"bool": 0, "uint": 1, "int": 2, "float8_e5m2": 3, "float8_e4m3fn": 3, "bfloat": 4, "float": 5}


def promote(first: str, second: str) -> DType:
    """Return the common type of a binary operation: floats win over integers, wider over narrower, signed over
    unsigned."""
    a, b = DType(first), DType(second)
    if a is b:
        return a
    if a.lanes != b.lanes and 1 not in (a.lanes, b.lanes):
        raise ValueError(f"cannot combine {a} with {b}: {a.lanes} lanes against {b.lanes}")
    if a.kind not in _RANK or b.kind not in _RANK or (a.kind in _FLOAT8 and b.kind in _FLOAT8):
        raise ValueError(f"cannot combine {a} with {b}")
    high, low = (a, b) if (_RANK[a.kind], a.bits) >= (_RANK[b.kind], b.bits) else (b, a)
    if high.kind != low.kind and not high.is_float and low.bits > high.bits:
        high = DType(f"int{low.bits}")  # int8 with uint32 gives the wider width, signed
    return high.with_lanes(max(a.lanes, b.lanes))


def float_bits(value: float, dtype: str) -> int:
    """Return the bits of the nearest number of a floating-point type, ties to even.

    For bfloat16 and float8 the value is rounded to float32 first, as in the interpreter.
    """
    t = DType(dtype)
    kind, bits = t.kind, t.bits
    if bits == 64:
        return int(struct.unpack("<Q", struct.pack("<d", value))[0])
    with np.errstate(over="ignore"):
        if kind == "bfloat":
            return int(bfloat16_to_bits(np.float32(value)))
        if bits == 8:
            return int(float8_to_bits(np.float32(value), kind))
        if bits == 16:
            return int(np.float16(value).view(np.uint16))
        return int(np.float32(value).view(np.uint32))


def round_float(value: float, dtype: str) -> float:
    """Return the number of a floating-point type that is nearest to ``value``, which a constant of that type has."""
    t = DType(dtype)
    kind, bits = t.kind, t.bits
    if bits == 64:
        return value
    with np.errstate(over="ignore"):
        if kind == "bfloat":
            return float(round_bfloat16(np.float32(value)))
        if bits == 8:
            return float(float8_from_bits(float8_to_bits(np.float32(value), kind), kind))
        return float(np.float16(value) if bits == 16 else np.float32(value))


def round_bfloat16(x: Any) -> Any:
    """Round float32, a scalar or an array, to the nearest bfloat16, ties to even."""
    return bfloat16_from_bits(bfloat16_to_bits(x))


def bfloat16_to_bits(x: Any) -> Any:
    """Return the bits of the bfloat16 that is nearest to a float32; NaN stays NaN."""
    a = np.asarray(x, dtype=np.float32)
    bits = a.view(np.uint32)
    rounded = ((bits.astype(np.uint64) + 0x7FFF + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint64(16)).astype(
        np.uint16
    )
    return np.where(np.isnan(a), (bits >> np.uint32(16)).astype(np.uint16) | np.uint16(0x40), rounded)[()]


def bfloat16_from_bits(bits: Any) -> Any:
    """Return the float32 of the bits of a bfloat16."""
    return (np.asarray(bits, dtype=np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)[()]


def float8_bias(kind: str) -> tuple[int, int]:
    """Return the bits of the mantissa of a float8, and the bias of its exponent."""
    return _FLOAT8[kind]


def float8_from_bits(bits: Any, dtype: str) -> Any:
    """Return the float32 of the bits of a float8."""
    return _float8_values(DType(dtype).kind)[np.asarray(bits, np.uint8)]


@cache
def _float8_values(kind: str) -> np.ndarray[Any, Any]:
    """Return the numbers of all 256 bytes. e4m3fn has no infinity; its NaN is the byte 0x7f, with either sign."""
    mantissa, bias = _FLOAT8[kind]
    byte = np.arange(128)
    exponent, digits = byte >> mantissa, (byte & ((1 << mantissa) - 1)) / (1 << mantissa)
    values = np.where(exponent > 0, 1 + digits, 2 * digits) * np.exp2(exponent - float(bias))
    if kind == "float8_e4m3fn":
        values[0x7F] = np.nan
    else:
        values[0x7C:] = [np.inf, np.nan, np.nan, np.nan]
    return np.concatenate([values, -values]).astype(np.float32)


def float8_to_bits(x: Any, dtype: str) -> Any:
    """Return the bits of the float8 that is nearest to a float32, ties to even; NaN stays NaN.

    What rounds to more than the largest number becomes NaN in e4m3fn, and infinity in e5m2.
    """
    kind = DType(dtype).kind
    mantissa, bias = _FLOAT8[kind]
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.int64)
    size, shift = bits & 0x7FFFFFFF, 23 - mantissa
    even = (size + (1 << (shift - 1)) - 1 + (size >> shift & 1)) >> shift
    normal = even - ((127 - bias) << mantissa)
    magic = np.float32(2.0 ** (24 - bias - mantissa))  # the distance of its neighbours is that of the smallest numbers
    with np.errstate(invalid="ignore"):
        small = (size.astype(np.uint32).view(np.float32) + magic).view(np.int32) - int(magic.view(np.int32))
    out = np.where(size < (128 - bias) << 23, small, normal)
    if kind == "float8_e4m3fn":
        out = np.minimum(out, 0x7F)
    else:
        out = np.where(size > 0x7F800000, 0x7E, np.minimum(out, 0x7C))
    return (out | bits >> 24 & 0x80).astype(np.uint8)[()]


def kept_as_bits(dtype: str) -> bool:
    """Return whether NumPy arrays hold the bits of a type: bfloat16 and float8."""
    t = DType(dtype)
    return t.is_float and t.kind != "float"


def to_bits(numbers: Any, dtype: str) -> Any:
    """Return the bits of the nearest bfloat16 or float8."""
    x = np.asarray(numbers, np.float32)
    return bfloat16_to_bits(x) if DType(dtype).kind == "bfloat" else float8_to_bits(x, dtype)


def from_bits(bits: Any, dtype: str) -> Any:
    """Return the float32 of the bits of a bfloat16 or float8."""
    return bfloat16_from_bits(bits) if DType(dtype).kind == "bfloat" else float8_from_bits(bits, dtype)


def pack(values: Any, dtype: str) -> np.ndarray[Any, Any]:
    """Return the bytes of integers of 2 or 4 bits.

    Several share a byte along the last axis, the first one in the lowest bits. Each row begins with a byte; the bits that are
    left over are 0. Integers are cut to their low bits.

    >>> pack(np.array([1, -1, 7]), "int4").tolist()
    [241, 7]
    """
    t = DType(dtype)
    a = np.asarray(values)
    if a.dtype.kind not in "iub":  # integers of few bits of ml_dtypes
        a = a.astype(np.int8 if t.is_signed else np.uint8)
    a = np.atleast_1d(a).astype(np.uint8) & np.uint8((1 << t.bits) - 1)
    short = -a.shape[-1] % t.per_byte
    if short:
        a = np.concatenate([a, np.zeros((*a.shape[:-1], short), np.uint8)], axis=-1)
    a = a.reshape(*a.shape[:-1], a.shape[-1] // t.per_byte, t.per_byte)
    return np.bitwise_or.reduce(a << np.arange(0, 8, t.bits, dtype=np.uint8), axis=-1).reshape(
        np.shape(values) and a.shape[:-1]
    )


def unpack(data: Any, dtype: str, count: int | None = None) -> np.ndarray[Any, Any]:
    """Return the integers in the bytes that :func:`pack` makes, as int8 or uint8; ``count`` of them in each row.

    >>> unpack(np.array([241, 7], np.uint8), "int4", 3).tolist()
    [1, -1, 7]
    """
    t = DType(dtype)
    a = np.asarray(data, np.uint8)
    scalar = a.ndim == 0
    wide = np.atleast_1d(a)[..., None] >> np.arange(0, 8, t.bits, dtype=np.uint8) & np.uint8((1 << t.bits) - 1)
    wide = wide.reshape(*wide.shape[:-2], wide.shape[-2] * t.per_byte)[..., :count]
    if t.is_signed:
        half = np.int8(1 << (t.bits - 1))
        wide = ((wide.astype(np.int8) ^ half) - half).astype(np.int8)
    return wide[0] if scalar else wide
