"""Arrays under TVM's names: NumPy arrays with ``numpy()``."""

from __future__ import annotations

from typing import Any

import numpy as np

from .devices import Device


class NDArray(np.ndarray):
    """A NumPy array that answers to TVM's names."""

    def numpy(self) -> np.ndarray:
        """Returns the array as NumPy's, sharing memory."""
        return self.view(np.ndarray)

    asnumpy = to_numpy = numpy

    @property
    def device(self) -> Device:  # type: ignore[override]  # NumPy's is a word
        """Returns where the array is: in this machine's memory."""
        return Device()

    def copyto(self, target: Any) -> NDArray:
        """Copy the array into another one, or make a copy for a device, and return it."""
        if isinstance(target, Device):
            return self.copy()
        np.copyto(target, self)
        return target

    def copyfrom(self, source: Any) -> NDArray:
        """Copy ``source`` into the array and return it."""
        np.copyto(self, source)
        return self


def array(values: Any, device: Device | None = None) -> NDArray:
    """Returns a copy of ``values`` as an array."""
    return np.array(values, order="C").view(NDArray)


def empty(shape: Any, dtype: str = "float32", device: Device | None = None) -> NDArray:
    """Returns an array of that shape, not filled."""
    return np.empty(shape, dtype).view(NDArray)
