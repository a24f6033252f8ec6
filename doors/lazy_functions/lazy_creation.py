"""This module makes arrays of data and of numbers, and asks NumPy where values decide the shape of a result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..lazy.expression import leaf, number
from ..lazy.lazy_array import Array
from ..lazy.lazy_types import default_dtype, dtype_of
from ..lazy.operands import broadcast, cast, named, operand


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: Any = None) -> Array:
    """Returns an array of data. What its owner may change is copied, unless ``copy`` is False.

    Python numbers become bool, int64 or float32.
    """
    if isinstance(obj, Array):
        return obj if copy is not True and dtype in (None, obj.dtype) else astype(obj, dtype or obj.dtype)
    shared = hasattr(obj, "__array__") or hasattr(obj, "__dlpack__")
    data = np.asarray(obj if hasattr(obj, "__array__") or not shared else np.from_dlpack(obj))
    wanted = dtype_of(dtype or (data.dtype if shared else default_dtype(data)))
    if copy is False and (not shared or data.dtype != wanted):
        raise ValueError(f"data of {data.dtype} becomes an array of {wanted} by a copy only")
    keep = shared and (copy is False or not (copy or data.flags.writeable))
    return Array(leaf(data.astype(wanted, copy=not keep)))


def from_dlpack(x: Any, /, *, device: Any = None, copy: Any = None) -> Array:
    """Returns an array that shares the memory of another library's, unless ``copy`` is True."""
    return asarray(np.from_dlpack(x), copy=copy or False)


def astype(x: Any, dtype: Any, /, *, copy: Any = True, device: Any = None) -> Array:
    """Returns the array converted to a data type."""
    return Array(cast(operand(x), dtype_of(dtype)))


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Array:
    """Returns an array of one number."""
    extents, kind = tuple(np.broadcast_to(0, shape).shape), dtype_of(dtype or default_dtype(fill_value))
    return Array(broadcast(number(fill_value, kind), extents))


def full_like(x: Any, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Array:
    """Returns an array of one number, of the shape of another."""
    return full(x.shape, fill_value, dtype=dtype or x.dtype)


def _filled(name: str, value: int) -> tuple[Callable[..., Array], Callable[..., Array]]:
    def of_shape(shape: Any, *, dtype: Any = None, device: Any = None) -> Array:
        return full(shape, value, dtype=dtype or np.float32)

    def of_array(x: Any, /, *, dtype: Any = None, device: Any = None) -> Array:
        return full_like(x, value, dtype=dtype)

    return named(of_shape, name), named(of_array, f"{name}_like")


(zeros, zeros_like), (ones, ones_like), (empty, empty_like) = (
    _filled("zeros", 0),
    _filled("ones", 1),
    _filled("empty", 0),
)


def _made(f: Callable[..., Any]) -> Callable[..., Array]:
    """Returns a function whose data NumPy's ``f`` makes."""

    def function(*args: Any, dtype: Any = None, device: Any = None, **options: Any) -> Array:
        data = f(*args, **options)
        kind = default_dtype(data.dtype.type(0)) if dtype is None else dtype_of(dtype)
        return Array(leaf(data.astype(kind)))

    return named(function, f.__name__)


def _of_values(f: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that computes the array, and calls NumPy's ``f`` with its values."""

    def function(x: Any, /) -> Any:
        found = f(np.asarray(x))
        if not isinstance(found, tuple):
            return Array(leaf(found))
        arrays = [Array(leaf(a)) for a in found]
        return tuple(arrays) if type(found) is tuple else type(found)(*arrays)

    return named(function, f.__name__)


arange, linspace, eye = _made(np.arange), _made(np.linspace), _made(np.eye)
nonzero, unique_all, unique_counts = _of_values(np.nonzero), _of_values(np.unique_all), _of_values(np.unique_counts)
unique_inverse, unique_values = _of_values(np.unique_inverse), _of_values(np.unique_values)
