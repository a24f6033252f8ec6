"""Arrays under TVM's names, NumPy arrays with ``numpy()``, and their device: there is one, this machine's processor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Device:
    """A device by kind and number."""

    kind: str = "cpu"
    index: int = 0

    @property
    def exist(self) -> bool:
        """Returns True: the processor is there."""
        return True

    def sync(self) -> None:
        """Return at once: calls have finished when they return."""


def cpu(index: int = 0) -> Device:
    """Returns this machine's processor."""
    return Device("cpu", index)


def device(kind: str = "cpu", index: int = 0) -> Device:
    """Returns the device of a target's kind: ``cpu`` or ``llvm``; NotImplementedError for others."""
    if kind.split()[0] not in ("cpu", "llvm", "c", "native"):
        raise NotImplementedError(f"no device {kind!r}: code runs on this machine's processor, cpu()")
    return Device("cpu", index)


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
