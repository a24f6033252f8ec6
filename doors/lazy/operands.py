"""This module makes expressions of what functions are given: arrays, Python numbers, and arrays of NumPy."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from .expression import Expression, leaf, number, record
from .lazy_types import DType, default_dtype, dtype_of, is_number, promoted, require_number


def is_operand(x: Any) -> bool:
    """Returns whether functions take ``x``: a lazy array, a Python number, or what NumPy has."""
    return hasattr(x, "expression") or is_number(x) or isinstance(x, (np.ndarray, np.generic))


def operand(x: Any, like: DType | None = None) -> Expression:
    """Returns ``x`` as an expression; a Python number gets the data type ``like``, or its own default."""
    if hasattr(x, "expression"):
        return x.expression
    if not is_number(x):
        if not is_operand(x):
            raise TypeError(f"{type(x).__name__} is no array; asarray makes one")
        return leaf(np.array(x, dtype_of(x.dtype)))
    if like is not None:
        require_number(x, like)
    return number(x, like or default_dtype(x))


def common(*given: Any) -> list[Expression]:
    """Returns the operands converted to their common data type; Python numbers follow the arrays."""
    arrays = [operand(x) for x in given if not is_number(x)]
    dtype = functools.reduce(promoted, [e.dtype for e in arrays]) if arrays else None
    rest = iter(arrays)
    found = [operand(x, dtype) if is_number(x) else next(rest) for x in given]
    return [cast(e, dtype or found[0].dtype) for e in found]


def cast(e: Expression, dtype: Any) -> Expression:
    """Returns an expression converted; itself when it has the data type."""
    return e if e.dtype == dtype else record("cast", e, dtype=np.dtype(dtype).name)


def broadcast(e: Expression, shape: tuple[int, ...]) -> Expression:
    """Returns an expression of that shape; itself when it has it."""
    return e if e.shape == shape else record("broadcast_to", e, shape=shape)


def named(function: Any, name: str) -> Any:
    """Returns a function that was made of a row, under its name in the standard."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Returns {name}, as the standard has it."
    return function


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """Returns axes counted from 0 (None: all of them); IndexError outside, ValueError for one given twice."""
    every = range(ndim) if axis is None else axis if isinstance(axis, (tuple, list)) else (axis,)
    if any(not -ndim <= a < ndim for a in every):
        raise IndexError(f"the axis {axis} of {ndim} dimensions")
    if len({a % ndim for a in every}) < len(every):
        raise ValueError(f"an axis stands twice in {axis}")
    return tuple([int(a) % ndim for a in every])
