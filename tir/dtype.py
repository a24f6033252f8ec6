"""This module defines data types, which are strings: ``float32``, ``int8``, ``bool``, ``handle``, ``float32x16``.

A data type is a plain string everywhere in the IR; only this module parses it. The names are ``float``, ``bfloat``,
``int`` and ``uint`` with a number of bits, ``bool``, ``handle`` and ``void``; ``x16`` after them means 16 lanes.

Overflow of integers: index arithmetic never overflows. Sums, differences, products, quotients, minima and comparisons
of type int32 and int64 over variables (of loops, axes, sizes, parameters) and constants have their mathematical values,
and a program in which such a value would not fit its type is undefined. Every other integer wraps around in two's
complement: all other types, and int32 and int64 that come from memory or a call. A cast to an integer type keeps the
low bits, of an index too: it is the identity only where the value fits. The simplifier, its bounds and its proofs hold
under these rules.
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

import numpy as np

INDEX = "int32"
"""The default data type of loop variables and shapes."""

_PATTERN = re.compile(r"(bool|handle|void|bfloat16|float|int|uint)(\d*)(?:x(\d+))?")
_WIDTHS = {"float": (16, 32, 64), "int": (1, 4, 8, 16, 32, 64), "uint": (1, 4, 8, 16, 32, 64)}


class DType(NamedTuple):
    """Represents the parts of a data type: ``kind`` (float, bfloat, int, uint, bool, handle, void), ``bits``,
    ``lanes``."""

    kind: str
    bits: int
    lanes: int


@cache
def parse_dtype(dtype: str) -> DType:
    """Return the parts of ``dtype``; ValueError when it is not a data type."""
    match = _PATTERN.fullmatch(dtype) if isinstance(dtype, str) else None
    if match is None:
        raise ValueError(f"{dtype!r} is not a data type; write e.g. 'float32', 'int8', 'float32x16'")
    kind, width, lanes = match[1], match[2], int(match[3] or 1)
    if lanes < 1:
        raise ValueError(f"{dtype!r} has no lanes")
    if kind == "bfloat16":
        if width:
            raise ValueError(f"{dtype!r} is not a data type")
        return DType("bfloat", 16, lanes)
    if kind in ("bool", "handle", "void"):
        if width:
            raise ValueError(f"{dtype!r} is not a data type")
        return DType(kind, {"bool": 1, "handle": 64, "void": 0}[kind], lanes)
    bits = int(width or 32)
    if bits not in _WIDTHS[kind]:
        raise ValueError(f"{dtype!r}: {kind} has the widths {_WIDTHS[kind]}")
    return DType(kind, bits, lanes)


@cache
def lanes_of(dtype: str) -> int:
    """Return the number of lanes: 16 for ``float32x16``, 1 for a scalar."""
    return parse_dtype(dtype).lanes


@cache
def bits_of(dtype: str) -> int:
    """Return the bits of one lane."""
    return parse_dtype(dtype).bits


@cache
def bytes_of(dtype: str) -> int:
    """Return the bytes that one element takes in memory, all lanes together; a bool takes one byte."""
    kind, bits, lanes = parse_dtype(dtype)
    return (1 if kind == "bool" else (bits + 7) // 8) * lanes


@cache
def with_lanes(dtype: str, lanes: int) -> str:
    """Return ``dtype`` with another number of lanes."""
    base = dtype.split("x")[0]
    return base if lanes == 1 else f"{base}x{lanes}"


@cache
def element_of(dtype: str) -> str:
    """Return the scalar type of one lane."""
    return with_lanes(dtype, 1)


@cache
def is_float(dtype: str) -> bool:
    """Return whether the lanes are floating point, bfloat16 included."""
    return parse_dtype(dtype).kind in ("float", "bfloat")


@cache
def is_int(dtype: str) -> bool:
    """Return whether the lanes are integers, signed or unsigned; false for bool."""
    return parse_dtype(dtype).kind in ("int", "uint")


@cache
def is_signed(dtype: str) -> bool:
    """Return whether the lanes are signed integers."""
    return parse_dtype(dtype).kind == "int"


@cache
def is_unsigned(dtype: str) -> bool:
    """Return whether the lanes are unsigned integers."""
    return parse_dtype(dtype).kind == "uint"


@cache
def is_bool(dtype: str) -> bool:
    """Return whether the lanes are truth values."""
    return parse_dtype(dtype).kind == "bool"


@cache
def min_value(dtype: str) -> int | float:
    """Return the smallest value; minus infinity for floats, where maximum reductions start (TVM: the lowest finite
    value)."""
    kind, bits, _ = parse_dtype(dtype)
    if kind == "float":
        return float(np.finfo(f"float{bits}").min)
    if kind == "bfloat":
        return -3.3895313892515355e38
    if kind == "int":
        return -(1 << (bits - 1))
    return 0


@cache
def max_value(dtype: str) -> int | float:
    """Return the largest finite value."""
    kind, bits, _ = parse_dtype(dtype)
    if kind == "float":
        return float(np.finfo(f"float{bits}").max)
    if kind == "bfloat":
        return 3.3895313892515355e38
    if kind == "int":
        return (1 << (bits - 1)) - 1
    if kind == "uint":
        return (1 << bits) - 1
    return 1


def to_numpy(dtype: str) -> np.dtype:
    """Return the NumPy dtype that stores one lane; bfloat16 is stored as its bits in ``uint16``."""
    kind, bits, _ = parse_dtype(dtype)
    if kind == "bfloat":
        return np.dtype("uint16")
    if kind == "bool":
        return np.dtype("bool")
    if kind in ("handle", "void"):
        raise ValueError(f"{dtype} has no NumPy counterpart")
    return np.dtype(f"{kind}{bits}")


def promote(a: str, b: str) -> str:
    """Return the common type of a binary operation: floats win over integers, wider over narrower, signed over
    unsigned."""
    if a == b:
        return a
    da, db = parse_dtype(a), parse_dtype(b)
    if da.lanes != db.lanes and 1 not in (da.lanes, db.lanes):
        raise ValueError(f"cannot combine {a} with {b}: {da.lanes} lanes against {db.lanes}")
    lanes = max(da.lanes, db.lanes)
    rank = {"bool": 0, "uint": 1, "int": 2, "bfloat": 3, "float": 4}
    if da.kind not in rank or db.kind not in rank:
        raise ValueError(f"cannot combine {a} with {b}")
    high, low = (a, b) if (rank[da.kind], da.bits) >= (rank[db.kind], db.bits) else (b, a)
    if parse_dtype(high).kind == parse_dtype(low).kind or is_float(high):
        return with_lanes(high, lanes)
    if parse_dtype(low).bits > parse_dtype(high).bits:  # int8 with uint32 gives the wider width, signed
        return with_lanes(f"int{parse_dtype(low).bits}", lanes)
    return with_lanes(high, lanes)
