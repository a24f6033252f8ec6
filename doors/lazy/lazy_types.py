"""This module has the data types of lazy arrays, how they promote, and what the standard asks about them."""

from __future__ import annotations

from typing import Any

import numpy as np

DType = np.dtype[Any]

NAMES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64".split()
"""The names of the data types."""

_COMBINES = {"bool": "b", "int64": "iuf", "float32": "f"}
"""The kinds of arrays that a Python number combines with, by its default data type."""


def dtype_of(given: Any) -> DType:
    """Returns a data type that arrays may have; TypeError for others."""
    found = np.dtype(given)
    if found.name not in NAMES:
        raise TypeError(f"arrays of {found} are not supported; there are {', '.join(NAMES)}")
    return found


def default_dtype(value: Any) -> DType:
    """Returns the data type of Python numbers, or of what NumPy makes of them: bool, int64 or float32."""
    kind = np.asarray(value).dtype.kind
    return np.dtype({"b": "bool", "i": "int64", "f": "float32"}.get(kind) or dtype_of(np.asarray(value).dtype))


def promoted(a: DType, b: DType) -> DType:
    """Returns the data type of an operation on both; TypeError where the standard gives none (floats with integers)."""
    mixed = a.kind != b.kind and not (a.kind in "iu" and b.kind in "iu")
    found = None if mixed else np.promote_types(a, b)
    if found is None or found.kind not in (a.kind, b.kind):
        raise TypeError(f"{a} and {b} do not promote to a common data type; convert one with astype")
    return found


def require_number(value: Any, dtype: DType) -> None:
    """Raise TypeError for a Python number that does not combine with ``dtype``, OverflowError where it does not fit."""
    if dtype.kind not in _COMBINES[default_dtype(value).name]:
        raise TypeError(f"the Python number {value!r} does not combine with {dtype}; convert one with astype")
    if dtype.kind in "iu" and not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
        raise OverflowError(f"{value} does not fit {dtype}")
