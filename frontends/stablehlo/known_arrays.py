"""This module computes what is known while the graph is made: counters of loops, and sizes, also symbolic ones.

Arrays of symbolic sizes hold expressions, on which NumPy's arithmetic works as on numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...tir.expr import DType, Expr, to_numpy

LARGEST_KNOWN = 64
"""Results of more elements are left to the graph."""


@dataclass(frozen=True, eq=False)
class KnownArray:
    """An array whose elements are known: numbers, or expressions of symbolic sizes."""

    data: np.ndarray[Any, Any]
    dtype: str

    @property
    def shape(self) -> tuple[int, ...]:
        """Returns the shape."""
        return self.data.shape

    @property
    def is_symbolic(self) -> bool:
        """Returns whether an element depends on a symbolic size."""
        return self.data.dtype == object

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.data.shape)} {self.data.tolist()}"


def known(data: Any, dtype: str) -> KnownArray:
    """Returns an array of elements that are known; numbers get the data type."""
    array = np.asarray(data)
    if array.dtype != object:
        return KnownArray(array.astype(to_numpy(dtype)), dtype)
    if not any(isinstance(e, Expr) for e in array.flat):
        return KnownArray(array.astype(to_numpy(dtype)), dtype)
    return KnownArray(array, dtype)


def _divided(a: Any, b: Any) -> Any:
    if a.dtype == object or b.dtype == object:
        return a // b
    if a.dtype.kind == "f":
        return a / b
    return np.where(b == 0, -1, np.sign(a) * np.sign(b) * (np.abs(a) // np.maximum(np.abs(b), 1)))


def _left(a: Any, b: Any) -> Any:
    return a % b if a.dtype == object or b.dtype == object else np.fmod(a, np.where(b == 0, 1, b))


_NUMBERS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": _divided,
    "remainder": _left,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "negate": lambda a: -a,
    "abs": np.abs,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "shift_left": np.left_shift,
    "select": lambda p, a, b: np.where(p, a, b),
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
}

_ORDER = {"EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal, "GT": np.greater, "GE": np.greater_equal}  # fmt: skip

_ON_EXPRESSIONS = ("add", "subtract", "multiply", "divide", "remainder")


def computed(
    name: str, given: Sequence[KnownArray], attributes: dict[str, Any], dtype: str, shape: Any
) -> KnownArray | None:
    """Returns the result of an operation on known arrays; None where it is left to the graph."""
    if any(DType(k.dtype) == "bfloat16" for k in given) or dtype == "bfloat16":
        return None
    data = [k.data for k in given]
    symbolic = any(k.is_symbolic for k in given)
    if any(d is None for d in shape) or np.prod(shape, initial=1) > LARGEST_KNOWN:
        return None
    with np.errstate(all="ignore"):
        if name in _MOVES:
            return known(_MOVES[name](data, attributes, shape), dtype)
        if name == "compare":
            test = _ORDER[attributes["direction"]]
            return None if symbolic else known(test(*data), dtype)
        if name in _NUMBERS and (not symbolic or name in _ON_EXPRESSIONS):
            if DType(dtype).is_bool and name in ("add", "multiply"):
                return known(np.logical_or(*data) if name == "add" else np.logical_and(*data), dtype)
            return known(_NUMBERS[name](*data), dtype)
    return None


def _sliced(data: Any, attributes: dict[str, Any], shape: Any) -> Any:
    spans = zip(attributes["start_indices"], attributes["limit_indices"], attributes["strides"], strict=True)
    return data[0][tuple(slice(a, b, s) for a, b, s in spans)]


def _spread(data: Any, attributes: dict[str, Any], shape: Any) -> Any:
    wide = [1] * len(shape)
    for d, extent in zip(attributes["broadcast_dimensions"], data[0].shape, strict=True):
        wide[d] = extent
    return np.broadcast_to(data[0].reshape(wide), shape)


_MOVES: dict[str, Callable[[Any, dict[str, Any], Any], Any]] = {
    "reshape": lambda data, attributes, shape: data[0].reshape(shape),
    "convert": lambda data, attributes, shape: data[0],
    "concatenate": lambda data, attributes, shape: np.concatenate(data, attributes["dimension"]),
    "slice": _sliced,
    "broadcast_in_dim": _spread,
    "iota": lambda data, attributes, shape: np.broadcast_to(
        np.arange(shape[attributes["iota_dimension"]]).reshape(
            [-1 if d == attributes["iota_dimension"] else 1 for d in range(len(shape))]
        ),
        shape,
    ),
}
