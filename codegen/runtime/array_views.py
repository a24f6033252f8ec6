"""Views of arrays as pointer, dtype, shape and strides, without a copy: NumPy's own, and those that :mod:`.dlpack_views` reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...tir.expr.base.slot import Slot

CPU_DEVICES = (1, 3, 11)  # kDLCPU, kDLCUDAHost, kDLROCMHost: memory that this processor reads


class ArrayView(NamedTuple):
    """An array of any library. Strides count elements. ``dtype`` is our name for it, or the library's own when we have
    none."""

    pointer: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    writable: bool
    aligned: bool
    owner: Any

    def extent_bytes(self) -> tuple[int, int]:
        """Return the first used byte and the byte after the last one; equal for an array without elements."""
        if 0 in self.shape:
            return self.pointer, self.pointer
        low = sum(min(0, (n - 1) * s) for n, s in zip(self.shape, self.strides, strict=True))
        high = sum(max(0, (n - 1) * s) for n, s in zip(self.shape, self.strides, strict=True))
        return self.pointer + low * self.itemsize, self.pointer + (high + 1) * self.itemsize

    def is_compact(self) -> bool:
        """Return whether the array is row-major without gaps (dimensions of extent 1 may have any stride)."""
        step = 1
        for n, s in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if n != 1 and s != step and 0 not in self.shape:
                return False
            step *= n
        return True


OTHER_VIEWS: Slot[Callable[[Any, tuple[int, ...]], ArrayView | None]] = Slot(lambda value, devices: None)
"""Reads arrays of other libraries that lie on one of the devices."""


def view_of(value: Any, devices: tuple[int, ...] = CPU_DEVICES) -> ArrayView | None:
    """Return ``value`` as an :class:`ArrayView`, or None when it is not an array. ValueError when its memory cannot be
    used here: it is on none of ``devices``, DLPack's numbers."""
    return _numpy_view(value) if isinstance(value, np.ndarray) else OTHER_VIEWS.value(value, devices)


def _numpy_view(array: np.ndarray[Any, Any]) -> ArrayView:
    dtype, itemsize = array.dtype, array.dtype.itemsize
    name = "bool" if dtype.kind == "b" else dtype.name
    if not dtype.isnative:
        name = f"{name} of the other byte order"
    whole = itemsize > 0 and all(s % itemsize == 0 for s in array.strides)
    strides = tuple(s // itemsize for s in array.strides) if whole else tuple(0 for _ in array.strides)
    flags = array.flags
    return ArrayView(
        array.__array_interface__["data"][0], name, array.shape, strides, itemsize, bool(flags.writeable),
        bool(flags.aligned) and whole, array,
    )  # fmt: skip
