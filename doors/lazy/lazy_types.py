"""This module has the data types of lazy arrays, how they promote, and what the standard asks about them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

DType = np.dtype[Any]

NAMES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64".split()
"""The names of the data types."""

_COMBINES = {"bool": "b", "int64": "iuf", "float32": "f"}
"""The kinds of arrays that a Python number combines with, by its default data type."""


def is_number(x: Any) -> bool:
    """Returns whether ``x`` is a Python number, which has no data type of its own."""
    return isinstance(x, (bool, int, float)) and not isinstance(x, np.generic)


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


def result_type(*arrays_and_dtypes: Any) -> DType:
    """Returns the data type that an operation on all of these has."""
    found = functools.reduce(
        promoted, [dtype_of(getattr(a, "dtype", a)) for a in arrays_and_dtypes if not is_number(a)]
    )
    for a in arrays_and_dtypes:
        if is_number(a):
            require_number(a, found)
    return found


def can_cast(from_: Any, to: Any, /) -> bool:
    """Returns whether promotion may convert the one into the other."""
    try:
        return promoted(dtype_of(getattr(from_, "dtype", from_)), dtype_of(to)) == to
    except TypeError:
        return False


class Info(type(np.__array_namespace_info__())):  # type: ignore[misc]
    """``Info`` says what the standard leaves open; what is not here is as in NumPy."""

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """Returns the data types of Python's numbers, and of indices."""
        return {n: np.dtype(d) for n, d in (("real floating", "float32"), ("integral", "int64"), ("indexing", "int64"))}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        """Returns data types by name, those of a kind where it is given."""
        return {name: np.dtype(name) for name in NAMES if kind is None or np.isdtype(np.dtype(name), kind)}
