"""This module takes arrays of other libraries quickly, without a copy, and gives results back in their library.

What it cannot take (tensors with gradients, on other devices, conjugated and sparse ones) it leaves to :mod:`.array_views`,
which says what is wrong.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...tir.expr import IntImm, to_numpy
from ..lowered import Param
from .arguments import apart, completed
from .native_glue import UNUSUAL

if TYPE_CHECKING:
    from .module import Function

_TAKERS: dict[type, Callable[[Any], Any]] = {np.ndarray: lambda array: array}
"""For each class that was seen, the function that returns an object of it as an array of NumPy."""

_UNFIT = (AttributeError, BufferError, RuntimeError, TypeError, ValueError)
"""What libraries raise for an array that has no such form."""


def as_numpy(values: Sequence[Any]) -> list[Any] | None:
    """Returns arrays in NumPy's form, sharing their memory; None where one has no such form. Other values stay as they
    are."""
    try:
        return [(_TAKERS.get(type(v)) or _taker(type(v)))(v) for v in values]
    except _UNFIT:
        return None


def _taker(kind: type) -> Callable[[Any], Any]:
    library = kind.__module__.partition(".")[0]
    take: Callable[[Any], Any] = _same
    if library == "torch" and hasattr(kind, "numpy"):
        take = kind.numpy
    elif library in ("jax", "jaxlib"):
        take = _of_jax
    elif hasattr(kind, "__dlpack__"):
        take = _unknown
    _TAKERS[kind] = take
    return take


def _same(value: Any) -> Any:
    return value


def _of_jax(array: Any) -> Any:
    return np.asarray(array) if array.device.platform == "cpu" else _unknown(array)


def _unknown(value: Any) -> Any:
    raise TypeError(f"{type(value).__name__} takes the careful path")


def static_shape(p: Param) -> tuple[int, ...] | None:
    """Returns the shape of a row-major buffer whose extents are numbers; None for other parameters."""
    if p.buffer is None or p.buffer.strides or not all(isinstance(e, IntImm) for e in p.buffer.shape):
        return None
    return tuple([int(e) for e in p.buffer.shape])  # type: ignore[call-overload]


class TensorCalls:
    """Checks tensors of PyTorch against parameters of known shapes, and returns their addresses. A tensor takes a
    fraction of a microsecond, where NumPy's view of it takes some."""

    def __init__(self, params: Sequence[Param]) -> None:
        self.shapes = [static_shape(p) for p in params]
        self.params = list(params)
        self.usable = None not in self.shapes
        self.kind: Any = None
        self.wanted: list[tuple[Any, Any, int, int, bool]] = []

    def addresses(self, args: Sequence[Any]) -> list[int] | None:
        """Returns the addresses of tensors that fit and do not overlap; None where something else is given."""
        if type(args[0]) is not self.kind and not self._ready(type(args[0])):
            return None
        kind, strided = self.kind, self.strided
        out = []
        for t, (shape, dtype, size, _, _) in zip(args, self.wanted, strict=True):
            if type(t) is not kind or t.dtype is not dtype or tuple(t.shape) != shape or t.layout is not strided:
                return None
            if t.requires_grad or not t.is_cpu or not t.is_contiguous() or t.is_neg():
                return None
            address = t.data_ptr()
            if address % size:
                return None
            out.append(address)
        spans = [(at, at + length, writes) for at, (_, _, _, length, writes) in zip(out, self.wanted, strict=True)]
        if not apart(spans):
            return None
        return out

    def _ready(self, kind: type) -> bool:
        torch = sys.modules.get("torch")
        if not self.usable or torch is None or kind is not torch.Tensor:
            return False
        sizes = [(math.prod(shape or ()), p.dtype.bytes) for shape, p in zip(self.shapes, self.params, strict=True)]
        self.wanted = [
            (shape, getattr(torch, str(p.dtype), None), size, count * size, p.writes)
            for shape, p, (count, size) in zip(self.shapes, self.params, sizes, strict=True)
        ]
        self.kind, self.strided = kind, torch.strided
        return True


def new_arrays(params: Sequence[Param], given: Sequence[Any]) -> list[Any]:
    """Returns arrays of zeros for parameters of known shapes: tensors of PyTorch where the first array given is one."""
    torch = sys.modules.get("torch")
    first = next((g for g in given if hasattr(g, "__dlpack__")), None)
    if torch is not None and isinstance(first, torch.Tensor):
        return [torch.zeros(static_shape(p), dtype=getattr(torch, str(p.dtype))) for p in params]
    return [np.zeros(static_shape(p) or (), to_numpy(p.dtype)) for p in params]


def returned(arrays: Sequence[Any], given: Sequence[Any], dtypes: Iterable[str]) -> list[Any]:
    """Returns new arrays in the library of the first array in ``given``: tensors of PyTorch, arrays of JAX, else NumPy's.

    ``dtypes``: their data types. bfloat16 is the library's type of that name. In NumPy that is ``ml_dtypes.bfloat16``
    where one of ``given`` has it, and otherwise the bits as uint16.
    """
    first = next((type(g) for g in given if hasattr(g, "__dlpack__")), np.ndarray)
    library = first.__module__.partition(".")[0]
    if library == "torch":
        torch = sys.modules["torch"]
        return [_tensor(torch, a, d) for a, d in zip(arrays, dtypes, strict=True)]
    in_jax = library in ("jax", "jaxlib") and "jax.numpy" in sys.modules
    given_types = [g.dtype for g in given if isinstance(getattr(g, "dtype", None), np.dtype)]
    half = next((t for t in given_types if t.name == "bfloat16"), None)
    if half is None and in_jax:
        half = np.dtype(sys.modules["jax.numpy"].bfloat16)
    if half is not None:
        arrays = [a.view(half) if d == "bfloat16" else a for a, d in zip(arrays, dtypes, strict=True)]
    return [sys.modules["jax.numpy"].asarray(a) for a in arrays] if in_jax else list(arrays)


def _tensor(torch: Any, array: Any, dtype: str) -> Any:
    if isinstance(array, torch.Tensor):
        return array
    if dtype == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def array_call(function: Function) -> Callable[[Sequence[Any]], int]:
    """Returns what calls a function on arrays of another library; UNUSUAL where the careful path has to decide."""
    tensors = TensorCalls(function._arguments.given)

    def call(args: Sequence[Any]) -> int:
        addresses = tensors.addresses(args)
        if addresses is not None:
            return int(function._raw(*addresses))
        arrays = as_numpy(args)
        return UNUSUAL if arrays is None else function._quick(function.address, *arrays)

    return call


def completed_call(function: Function, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Call a function with new arrays for those that are left out, and return them in the first argument's library."""
    missing = function._arguments.given[len(args) :]
    if not named and all(p.writes and static_shape(p) is not None for p in missing):
        fresh = new_arrays(missing, args)
        function(*args, *fresh)
    else:
        complete, fresh = completed(function._arguments, args, named)
        function(*complete)
        missing = [p for p, a in zip(function._arguments.given, complete, strict=True) if any(a is f for f in fresh)]
    if not fresh:
        return None
    out = returned(fresh, [*args, *named.values()], [str(p.dtype) for p in missing])
    return out[0] if len(out) == 1 else tuple(out)
