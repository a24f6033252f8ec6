"""This module has the array: its operators record functions of the namespace, and any use of its values computes them."""

from __future__ import annotations

import operator
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from .compiled_expressions import compute
from .expression import DEEPEST, Expression
from .lazy_types import DType
from .operands import is_operand
from .parts import part, with_part


def namespace() -> Any:
    """Returns the module with the functions."""
    return sys.modules[(__package__ or "") + "_door"]


_NAMES = {
    "absolute": "abs", "invert": "bitwise_invert", "left_shift": "bitwise_left_shift", "power": "pow",
    "right_shift": "bitwise_right_shift",
}  # fmt: skip
"""The functions of NumPy that operators stand for, where the standard has other names."""


def _of_value(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns the method that computes the array and converts its only element."""
    return lambda self: f(np.asarray(self))


class Array(NDArrayOperatorsMixin):
    """A lazy array has a data type and a shape; its values are computed when they are first used.

    ``float(x)``, ``print(x)``, ``numpy.asarray(x)`` and ``__dlpack__`` are such uses. Arrays are values: an assignment to
    elements makes a new value for this array, and others that were made of it stay as they are.
    """

    __slots__ = ("__weakref__", "expression")

    def __init__(self, expression: Expression) -> None:
        self.expression = expression
        if expression.holder is None or expression.holder() is None:
            expression.holder = weakref.ref(self)
        if expression.depth > DEEPEST:
            compute(expression)

    @property
    def dtype(self) -> DType:
        """Returns the data type."""
        return self.expression.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Returns the shape."""
        return self.expression.shape

    @property
    def ndim(self) -> int:
        """Returns the number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Returns the number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def device(self) -> str:
        """Returns the device, ``cpu``."""
        return "cpu"

    @property
    def T(self) -> Array:
        """Returns the transposed matrix."""
        if self.ndim != 2:
            raise ValueError(f"T of {self.ndim} dimensions; permute_dims takes an order of them")
        return self.mT

    @property
    def mT(self) -> Array:
        """Returns the array with its last two dimensions exchanged."""
        return namespace().matrix_transpose(self)

    def to_device(self, device: str, /, *, stream: Any = None) -> Array:
        """Returns the array itself; there is one device."""
        if device != "cpu":
            raise ValueError(f"there is no device {device!r}; there is 'cpu'")
        return self

    # values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if copy or (dtype is not None and dtype != self.dtype):
            return np.array(np.asarray(self), dtype)
        compute(self.expression)
        view = self.expression.data.view()
        view.flags.writeable = False
        return view

    def __dlpack__(self, *, max_version: Any = None, copy: bool | None = None, **more: Any) -> Any:
        if copy or max_version is None or max_version[0] < 1:  # older consumers would take it for one to write to
            return np.array(self).__dlpack__(**more)
        return self.__array__().__dlpack__(max_version=max_version, **more)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
            raise ValueError(f"version {api_version!r} of the standard is not supported")
        return namespace()

    def __repr__(self) -> str:
        return "Array" + repr(np.asarray(self))[len("array") :]

    def __len__(self) -> int:
        return len(np.broadcast_to(0, self.shape))

    def __iter__(self) -> Iterator[Array]:
        return (self[n] for n in range(len(self)))

    __bool__: Callable[[Any], bool] = _of_value(bool)
    __int__: Callable[[Any], int] = _of_value(int)
    __float__: Callable[[Any], float] = _of_value(float)
    __complex__: Callable[[Any], complex] = _of_value(complex)
    __index__: Callable[[Any], int] = _of_value(operator.index)

    # parts

    def __getitem__(self, key: Any) -> Array:
        return Array(part(self.expression, key))

    def __setitem__(self, key: Any, value: Any) -> None:
        old, self.expression = self.expression, with_part(self.expression, key, value)
        old.holder, self.expression.holder = None, old.holder

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **more: Any) -> Any:
        """Returns what an operator gives, which NumPy's mixin hands over as a function of NumPy; so come those functions
        themselves. ``a += b`` gives its name ``a`` a new array, and no other ``out`` is written."""
        function = getattr(namespace(), _NAMES.get(ufunc.__name__, ufunc.__name__), None)
        kept = out is None or (len(out) == 1 and isinstance(out[0], Array) and out[0] is inputs[0])
        if method != "__call__" or more or not kept or function is None or not all(map(is_operand, inputs)):
            return NotImplemented
        return function(*inputs)
