"""This module has functions that give arrays other shapes and orders; NumPy says which, on arrays without elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..lazy.expression import record
from ..lazy.lazy_array import Array
from ..lazy.operands import axes_of, broadcast, common, named, operand
from ..lazy.parts import moved, positions


def _reshaped(f: Callable[..., Any]) -> Callable[..., Array]:
    """Returns a function that keeps the elements in their order, in the shape that NumPy's ``f`` gives them."""

    def function(x: Any, /, *args: Any, copy: Any = None, **options: Any) -> Array:
        one = operand(x)
        shape = f(np.broadcast_to(0, one.shape), *args, **options).shape
        return Array(record("reshape", one, shape=shape) if shape != one.shape else one)

    return named(function, f.__name__)


def _permuted(f: Callable[..., Any], name: str) -> Callable[..., Array]:
    """Returns a function that gives dimensions another order, that of NumPy's ``f``."""

    def function(x: Any, /, *args: Any, **options: Any) -> Array:
        one = operand(x)
        order = f(np.empty(tuple(range(len(one.shape)))), *args, **options).shape
        return Array(record("transpose", one, axes=order) if order else one)

    return named(function, name)


def _gathered(f: Callable[..., Any]) -> Callable[..., Array]:
    """Returns a function that takes elements from the places to which NumPy's ``f`` moves their positions."""

    def function(x: Any, /, *args: Any, **options: Any) -> Array:
        one = operand(x)
        known = [np.asarray(a) if isinstance(a, Array) else a for a in args]
        return Array(moved(one, f(positions(one.shape), *known, **options)))

    return named(function, f.__name__)


reshape, squeeze, expand_dims = _reshaped(np.reshape), _reshaped(np.squeeze), _reshaped(np.expand_dims)
permute_dims, moveaxis = _permuted(np.transpose, "permute_dims"), _permuted(np.moveaxis, "moveaxis")
matrix_transpose = _permuted(lambda a: np.swapaxes(a, -1, -2), "matrix_transpose")
flip, roll, repeat, tile = [_gathered(f) for f in (np.flip, np.roll, np.repeat, np.tile)]
tril, triu = [
    named(lambda x, /, *, k=0, up=up: Array(record("triangle", operand(x), upper=up, k=k)), name)
    for name, up in (("tril", False), ("triu", True))
]


def broadcast_to(x: Any, /, shape: tuple[int, ...]) -> Array:
    """Returns the array repeated along new dimensions and along those of extent 1."""
    return Array(broadcast(operand(x), tuple(shape)))


def broadcast_arrays(*arrays: Any) -> tuple[Array, ...]:
    """Returns the arrays, each of their common shape."""
    return tuple([broadcast_to(a, np.broadcast_shapes(*[a.shape for a in arrays])) for a in arrays])


def concat(arrays: Sequence[Any], /, *, axis: int | None = 0) -> Array:
    """Returns the arrays one after the other along an axis; flat where it is None."""
    parts = common(*[reshape(a, (-1,)) if axis is None else a for a in arrays])
    return Array(record("concatenate", *parts, axis=axes_of(axis or 0, len(parts[0].shape))[0]))


def stack(arrays: Sequence[Any], /, *, axis: int = 0) -> Array:
    """Returns the arrays, all of one shape, along a new dimension."""
    parts = common(*arrays)
    return Array(record("stack", *parts, axis=axes_of(axis, len(parts[0].shape) + 1)[0]))


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Array, ...]:
    """Returns the parts of the array along an axis, without that axis."""
    return tuple(moveaxis(x, axis, 0))


def take(x: Any, indices: Any, /, *, axis: int | None = None) -> Array:
    """Returns the elements at ``indices`` along an axis; negative ones count from the end."""
    (along,) = axes_of(0 if axis is None and x.ndim == 1 else axis, x.ndim)
    return Array(record("take", operand(x), operand(indices), axis=along, mode="wrap"))


def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Array:
    """Returns for each element of ``indices`` the one of ``x`` at that place along an axis."""
    return Array(record("gather_elements", operand(x), operand(indices), axis=axes_of(axis, x.ndim)[0]))


def meshgrid(*arrays: Any, indexing: str = "xy") -> list[Array]:
    """Returns the coordinates of a grid, whose first two dimensions are exchanged for ``xy``."""
    places = np.meshgrid(*[np.arange(a.size) for a in arrays], indexing=indexing)  # type: ignore[call-overload]
    return [Array(moved(operand(a), p)) for a, p in zip(arrays, places, strict=True)]
