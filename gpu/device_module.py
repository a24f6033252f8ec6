"""Modules whose kernels are text that the driver of a device compiles when they are first called.

A device is an object with memory of its own. Its package says how memory is copied, and how a kernel is launched.
"""

from __future__ import annotations

import ctypes
import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from math import prod
from threading import Lock
from typing import Any, Protocol

import numpy as np

from ..codegen.lowered import LoweredFunc
from ..codegen.machine.target import Target
from ..codegen.runtime.arguments import view_of
from .gpu_module import BoundGpuCall, KernelModule
from .host_launches import HostLaunches
from .launch.kernels import GpuKernel
from .launch.launch_form import GpuError


def chosen_device(names: Sequence[str], choice: str, kind: str, how: str, error: type[GpuError]) -> int:
    """Return the number of the first device whose name has the text of the environment variable ``choice``.

    ``how`` says how to get a device of the ``kind``; ``error`` is raised where there is none, or none of that name.
    """
    wanted = os.environ.get(choice, "").strip()
    if not names:
        raise error(f"this machine has no {kind}: {how}")
    found = next((n for n, name in enumerate(names) if wanted.lower() in name.lower()), None)
    if found is None:
        raise error(f"this machine has no {kind} {wanted!r}, which {choice} names; there are {', '.join(names)}")
    return found


class KernelDevice(Protocol):
    """A device that has memory, and runs what it is given in order."""

    def memory(self, size: int) -> Any:
        """Return memory of ``size`` bytes, at least one, on the device."""

    def write(self, memory: Any, source: np.ndarray) -> None:
        """Copy the bytes of an array to the device."""

    def read(self, target: np.ndarray, memory: Any) -> None:
        """Copy from the device into an array, behind all that was asked of the device before."""

    def finish(self) -> None:
        """Wait until the device has done what it was asked."""


class DeviceModule(KernelModule):
    """Functions of a device. Arguments lie in main memory, and are copied to the device and back."""

    words: tuple[str, ...] = ()
    """The names of the kernels' text: of the source, and of the suffix of its file."""

    def __init__(self, functions: Mapping[str, LoweredFunc], target: Target) -> None:
        super().__init__(functions, target)
        self._lock = Lock()

    @abstractmethod
    def printed(self, kernels: Sequence[GpuKernel]) -> str:
        """Return kernels as one text."""

    @abstractmethod
    def program(self) -> Any:
        """Return the kernels, compiled for the device that is here. GpuError where it refuses one."""

    @abstractmethod
    def launches(self, program: Any, kernels: Sequence[GpuKernel]) -> DeviceLaunches:
        """Return what launches kernels of the program."""

    @cached_property
    def source(self) -> str:
        """The text of all kernels."""
        return self.printed(self.all_kernels)

    def own_source(self, fmt: str) -> str | None:
        """Return the text of the kernels, by one of its names."""
        return self.source if fmt in self.words else None

    def get_source(self, fmt: str = "") -> str:
        """Return the program as text: the kernels', when none is named, and those of :meth:`GpuModule.get_source`."""
        return super().get_source(fmt or self.words[0])

    @cached_property
    def _program(self) -> Any:
        return self.program()

    def run(self, lowered: LoweredFunc, args: list[Any], values: list[Any]) -> None:
        """Run a function on the device, and wait for its results."""
        self.bound(lowered, args, values, None)()

    def timed(self, lowered: LoweredFunc, args: list[Any], values: list[Any], repeat: int, number: int) -> list[float]:
        call = self.bound(lowered, args, values, None)
        call()
        return [call.seconds(number) / number for _ in range(repeat)]

    def bound(self, lowered: LoweredFunc, args: list[Any], values: list[Any], alive: Any) -> PlacedCall:
        with self._lock:
            program = self._program
        launches = self.launches(program, self.kernels[lowered.name])
        return PlacedCall(self, launches, lowered, args, values, alive)


class PlacedCall(BoundGpuCall):
    """A function with its arguments on the device. They are copied there once, and results back after calls."""

    def __init__(
        self, module: DeviceModule, launches: DeviceLaunches, lowered: LoweredFunc, args: list[Any], values: list[Any], alive: Any
    ) -> None:  # fmt: skip
        super().__init__(module, lowered, args, values, alive)
        self._device, self._launches = launches.device, launches
        self._copies: list[tuple[np.ndarray, Any]] = []
        launches.prepare(lowered, module.bodies[lowered.name], self._placed(lowered, args, values))

    def _placed(self, lowered: LoweredFunc, args: list[Any], values: list[Any]) -> list[Any]:
        """Return the values with memory of the device in place of addresses."""
        given, out = iter(args), []
        for param, value in zip(lowered.params, values, strict=True):
            arg = value if param.kind == "size" else next(given)
            if param.buffer is not None:
                here = _bytes_of(arg, value)
                memory = self._device.memory(here.nbytes)
                if here.nbytes:
                    self._device.write(memory, here)
                    if param.writes:
                        self._copies.append((here, memory))
                value = memory
            out.append(value)
        return out

    def __call__(self) -> None:
        """Run the function, and wait for it; its results are in main memory then."""
        self._launches()
        self._device.finish()
        self._launches.require_assertions()
        for here, memory in self._copies:
            self._device.read(here, memory)

    def seconds(self, number: int) -> float:
        """Return the seconds of ``number`` calls together, by the device's clock; nothing is copied back."""
        return self._launches.seconds(number)


def _bytes_of(array: Any, address: int) -> np.ndarray:
    """Returns the memory of an array from its first element to its last, as bytes."""
    view = view_of(array)
    assert view is not None
    _, end = view.extent_bytes()
    size = max(end - address, 0) if address else 0
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address)) if size else np.empty(0, np.uint8)


class DeviceLaunches(HostLaunches[Any]):
    """The launches of a function on certain arguments, with the memory between its kernels."""

    def __init__(self, device: KernelDevice, kernels: Sequence[GpuKernel]) -> None:
        super().__init__(kernels)
        self.device = device
        self._flags: list[tuple[Any, Sequence[str]]] = []

    def allocated(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return self.device.memory(prod(shape) * dtype.itemsize)

    @abstractmethod
    def seconds(self, number: int) -> float:
        """Return the seconds of ``number`` calls together, by the device's clock."""

    def flag(self, known: Sequence[str]) -> Any:
        """Return memory for the number of an assertion that fails, from 1 on; ``known``: what each says."""
        memory = self.device.memory(4)
        self.device.write(memory, np.zeros(1, np.int32))
        self._flags.append((memory, known))
        return memory

    def require_assertions(self) -> None:
        """Raise GpuError with the message of an assertion that failed, if one did."""
        for memory, known in self._flags:
            number = np.zeros(1, np.int32)
            self.device.read(number, memory)
            if number[0]:
                self.device.write(memory, np.zeros(1, np.int32))
                raise GpuError(known[number[0] - 1])
