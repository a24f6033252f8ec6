"""This module rounds numbers to the floating-point types, including bfloat16, which NumPy does not have."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from .dtype import DType


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
