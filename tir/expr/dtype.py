"""This module defines data types: ``float32``, ``int8``, ``bool``, ``handle``, ``float32x16``.

A data type is a text that knows its parts; only this module parses it. The names are ``float``, ``bfloat``,
``int`` and ``uint`` with a number of bits, ``bool``, ``handle`` and ``void``; ``x16`` after them means 16 lanes.

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

_PATTERN = re.compile(r"(bool|handle|void|bfloat16|float|int|uint)(\d*)(?:x(\d+))?")
_WIDTHS = {"float": (16, 32, 64), "int": (1, 4, 8, 16, 32, 64), "uint": (1, 4, 8, 16, 32, 64)}
_KNOWN: dict[str, DType] = {}


class DType(str):
    """Represents a data type. There is one object for each text, which compares and prints as that text.

    ``kind`` is float, bfloat, int, uint, bool, handle or void; ``bits`` are those of one lane; ``element`` is the
    scalar type of one lane; ``bytes`` are those that one element takes in memory, all lanes together, where a bool
    takes one byte. ``is_int`` is false for bool, ``is_float`` true for bfloat16.

    >>> DType("float32x16").lanes, DType("float32x16").element, DType("int8").with_lanes(4)
    (16, 'float32', 'int8x4')
    """

    __slots__ = ("bits", "bytes", "element", "is_bool", "is_float", "is_int", "is_signed", "kind", "lanes", "wide")

    kind: str
    bits: int
    lanes: int
    bytes: int
    element: DType
    is_float: bool
    is_int: bool
    is_signed: bool
    is_bool: bool
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
        bits = {"bfloat16": 16, "bool": 1, "handle": 64, "void": 0}[kind]
        kind = "bfloat" if kind == "bfloat16" else kind
    made: Any = str.__new__(DType, text)
    made.kind, made.bits, made.lanes = kind, bits, lanes
    made.bytes = (1 if kind == "bool" else (bits + 7) // 8) * lanes
    made.is_float, made.is_bool = kind in ("float", "bfloat"), kind == "bool"
    made.is_int, made.is_signed = kind in ("int", "uint"), kind == "int"
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
    if t.kind == "bfloat":
        return -3.3895313892515355e38
    return -(1 << (t.bits - 1)) if t.is_signed else 0


@cache
def max_value(dtype: str) -> int | float:
    """Return the largest finite value."""
    t = DType(dtype)
    if t.kind == "float":
        return float(np.finfo(f"float{t.bits}").max)
    if t.kind == "bfloat":
        return 3.3895313892515355e38
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
    """Return the NumPy dtype that stores one lane; bfloat16 is stored as its bits in ``uint16``."""
    t = DType(dtype)
    if t.kind == "bfloat":
        return np.dtype("uint16")
    if t.is_bool:
        return np.dtype("bool")
    if t.kind in ("handle", "void"):
        raise ValueError(f"{dtype} has no NumPy counterpart")
    return np.dtype(f"{t.kind}{t.bits}")


def array_bytes(shape: Iterable[int], dtype: str) -> int:
    """Return the bytes that an array without gaps takes in memory."""
    return math.prod(shape) * DType(dtype).bytes


_RANK = {"bool": 0, "uint": 1, "int": 2, "bfloat": 3, "float": 4}


def promote(first: str, second: str) -> DType:
    """Return the common type of a binary operation: floats win over integers, wider over narrower, signed over
    unsigned."""
    a, b = DType(first), DType(second)
    if a is b:
        return a
    if a.lanes != b.lanes and 1 not in (a.lanes, b.lanes):
        raise ValueError(f"cannot combine {a} with {b}: {a.lanes} lanes against {b.lanes}")
    if a.kind not in _RANK or b.kind not in _RANK:
        raise ValueError(f"cannot combine {a} with {b}")
    high, low = (a, b) if (_RANK[a.kind], a.bits) >= (_RANK[b.kind], b.bits) else (b, a)
    if high.kind != low.kind and not high.is_float and low.bits > high.bits:
        high = DType(f"int{low.bits}")  # int8 with uint32 gives the wider width, signed
    return high.with_lanes(max(a.lanes, b.lanes))


def float_bits(value: float, dtype: str) -> int:
    """Return the bits of the nearest number of a floating-point type, ties to even.

    For bfloat16 the value is rounded to float32 first, as in the interpreter.
    """
    t = DType(dtype)
    kind, bits = t.kind, t.bits
    if bits == 64:
        return int(struct.unpack("<Q", struct.pack("<d", value))[0])
    with np.errstate(over="ignore"):
        if kind == "bfloat":
            return int(bfloat16_to_bits(np.float32(value)))
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
