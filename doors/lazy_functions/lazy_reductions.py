"""This module has reductions, searches and sorts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..lazy.expression import Expression, number, record
from ..lazy.lazy_array import Array
from ..lazy.lazy_types import default_dtype
from ..lazy.operands import axes_of, broadcast, cast, common, named, operand
from .lazy_elements import equal, less, less_equal, logical_not, multiply, square, subtract


def _total(e: Expression, dtype: Any = None) -> Expression:
    """Returns what to add up: in the data type asked for, else floats as they are, and integers in 64 bits."""
    return cast(e, dtype or {"f": e.dtype, "u": "uint64"}.get(e.dtype.kind, "int64"))


def _truth(dtype: str) -> Callable[[Expression], Expression]:
    return lambda e: cast(cast(e, "bool"), dtype)


def _of_kinds(kinds: str, name: str) -> Callable[[Expression], Expression]:
    def check(e: Expression) -> Expression:
        if e.dtype.kind not in kinds:
            raise TypeError(f"{name} takes no {e.dtype}")
        return e

    return check


def _reduction(
    name: str, op: str, prepare: Callable[..., Expression], result: str | None = None, start: float | None = None
) -> Callable[..., Array]:
    """Returns a reduction of what ``prepare`` makes of the array, converted to ``result``. With a value to ``start`` from for
    floats, there have to be elements."""

    def function(x: Any, /, *, axis: Any = None, keepdims: Any = False, **options: Any) -> Array:
        one = prepare(operand(x), **options)
        axes = axes_of(axis, len(one.shape))
        attrs: dict[str, Any] = {}
        if start is not None:
            if 0 in [one.shape[a] for a in axes]:
                raise ValueError(f"{name} of no elements")
            attrs["initial"] = start if one.dtype.kind == "f" else None
        out = record(op, one, axis=axes, keepdims=keepdims, **attrs) if axes else one
        return Array(cast(out, result or one.dtype))

    return named(function, name)


sum, prod, mean = (
    _reduction("sum", "sum", _total),
    _reduction("prod", "prod", _total),
    _reduction("mean", "mean", _of_kinds("f", "mean")),
)
max, min = [_reduction(name, name, _of_kinds("iuf", name), start=s) for name, s in (("max", -np.inf), ("min", np.inf))]
all, any = _reduction("all", "min", _truth("uint8"), "bool"), _reduction("any", "max", _truth("uint8"), "bool")
count_nonzero = _reduction("count_nonzero", "sum", _truth("int64"))


def var(x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: Any = False) -> Array:
    """Returns the sum of squared distances from the mean, divided by the count less ``correction``."""
    apart = square(subtract(x, mean(x, axis=axis, keepdims=True)))
    count = np.prod([x.shape[a] for a in axes_of(axis, x.ndim)], initial=1.0) - correction
    total: Array = sum(apart, axis=axis, keepdims=keepdims) / float(count)
    return total


def std(x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: Any = False) -> Array:
    """Returns the square root of the variance."""
    return Array(record("sqrt", var(x, axis=axis, correction=correction, keepdims=keepdims).expression))


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Array:
    """Returns the sums of products along an axis."""
    product = multiply(x1, x2)
    return sum(product, axis=axis, dtype=product.dtype)


def _place(op: str) -> Callable[..., Array]:
    def function(x: Any, /, *, axis: int | None = None, keepdims: Any = False) -> Array:
        one = operand(x)
        if 0 in one.shape:
            raise ValueError(f"{op} of no elements")
        if not one.shape:
            return Array(number(0, default_dtype(0)))
        along = None if axis is None else axes_of(axis, len(one.shape))[0]
        return Array(record(op, one, axis=along, keepdims=keepdims, dtype="int64"))

    return named(function, op)


def _running(name: str, op: str, start: int) -> Callable[..., Array]:
    def function(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: Any = False) -> Array:
        one = _total(operand(x), dtype)
        if axis is None and len(one.shape) != 1:
            raise ValueError(f"{name} of {len(one.shape)} dimensions needs an axis")
        (along,) = axes_of(axis or 0, len(one.shape))
        out = record(op, one, axis=along)
        first = broadcast(number(start, one.dtype), (*one.shape[:along], 1, *one.shape[along + 1 :]))
        return Array(record("concatenate", first, out, axis=along) if include_initial else out)

    return named(function, name)


def _ordered(name: str, which: int) -> Callable[..., Array]:
    """Returns a function of the elements in order (NaN is larger than all numbers), or of their positions."""

    def function(x: Any, /, *, axis: int = -1, descending: Any = False, stable: Any = True) -> Array:
        (along,) = axes_of(axis, x.ndim)
        attrs = {"k": x.shape[along], "axis": along, "largest": descending, "dtype": "int64"}
        return Array(record("topk", operand(x), which=which, **attrs))

    return named(function, name)


argmax, argmin, sort, argsort = _place("argmax"), _place("argmin"), _ordered("sort", 0), _ordered("argsort", 1)
cumulative_sum, cumulative_prod = _running("cumulative_sum", "cumsum", 0), _running("cumulative_prod", "cumprod", 1)


def searchsorted(x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Array:
    """Returns where the elements of ``x2`` belong in the sorted ``x1``: before equal ones, or (``right``) behind them."""
    line = x1 if sorter is None else x1[sorter]
    return count_nonzero((less if side == "left" else less_equal)(line, x2[..., None]), axis=-1)


def isin(x1: Any, x2: Any, /, *, invert: Any = False) -> Array:
    """Returns whether the elements of ``x1`` are among those of ``x2``, or (``invert``) whether they are not."""
    line = Array(record("reshape", operand(x2), shape=(int(np.prod(x2.shape)),)))
    found = any(equal(x1[..., None], line), axis=-1)
    return logical_not(found) if invert else found


def diff(x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Array:
    """Returns the differences of neighbours along an axis, ``n`` times."""
    parts, (along,) = common(*[p for p in (prepend, x, append) if p is not None]), axes_of(axis, x.ndim)
    out, before = Array(record("concatenate", *parts, axis=along)), (slice(None),) * along
    for _ in range(n):
        out = out[(*before, slice(1, None))] - out[(*before, slice(None, -1))]
    return out
