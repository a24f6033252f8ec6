"""Modules of OpenCL kernels, which the device's driver compiles when they are first called."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from math import prod
from threading import Lock
from typing import Any

import numpy as np

from ...codegen.late_tables import Backend, TargetKind
from ...codegen.lower.pipeline import run_passes
from ...codegen.lowered import LoweredFunc
from ...codegen.machine.target import Target
from ...codegen.runtime.arguments import c_types, view_of
from ...tir.stmt import AssertStmt, Stmt
from ..gpu_module import BoundGpuCall, GpuModule, launch_functions
from ..host_launches import HostLaunches
from ..launch import THREAD_PASSES
from ..launch.kernels import GpuKernel, kernels_in
from ..launch.launch_form import GpuError
from .opencl_device import OpenClDevice, OpenClError, opencl_device
from .opencl_text import asserts, opencl_source


class OpenClModule(GpuModule):
    """Functions for OpenCL devices. Arguments lie in main memory, and are copied to the device and back."""

    def __init__(self, functions: Mapping[str, LoweredFunc], target: Target) -> None:
        super().__init__(functions, target)
        self.kernels: dict[str, list[GpuKernel]] = {}
        self._bodies: dict[str, Stmt] = {}
        self._lock = Lock()
        for name, one in functions.items():
            threads = run_passes(one.func, target, THREAD_PASSES)
            self._bodies[name] = threads.body
            self.kernels[name] = kernels_in(LoweredFunc(threads, one.name, target, one.params))

    @cached_property
    def source(self) -> str:
        """The OpenCL C of all kernels, as one text."""
        return opencl_source([kernel for kernels in self.kernels.values() for kernel in kernels], self.target)

    def own_source(self, fmt: str) -> str | None:
        """Return ``opencl`` (also ``cl``), the text of the kernels."""
        return self.source if fmt in ("opencl", "cl") else None

    def get_source(self, fmt: str = "opencl") -> str:
        """Return the program as text: ``opencl`` and those of :meth:`GpuModule.get_source`."""
        return super().get_source(fmt)

    @cached_property
    def _program(self) -> Any:
        """The kernels, compiled for the device."""
        device = opencl_device()
        for kernels in self.kernels.values():
            for kernel in kernels:
                device.check(kernel)
        return device.compiled(self.source)

    def run(self, lowered: LoweredFunc, args: list[Any], values: list[Any]) -> None:
        """Run a function on the device, and wait for its results."""
        self.bound(lowered, args, values, None)()

    def timed(self, lowered: LoweredFunc, args: list[Any], values: list[Any], repeat: int, number: int) -> list[float]:
        call = self.bound(lowered, args, values, None)
        call()
        return [call.seconds(number) / number for _ in range(repeat)]

    def bound(self, lowered: LoweredFunc, args: list[Any], values: list[Any], alive: Any) -> PlacedOpenClCall:
        with self._lock:
            program = self._program
        return PlacedOpenClCall(self, program, lowered, args, values, alive)


class PlacedOpenClCall(BoundGpuCall):
    """A function with its arguments on the device. They are copied there once, and results back after calls."""

    def __init__(
        self, module: OpenClModule, program: Any, lowered: LoweredFunc, args: list[Any], values: list[Any], alive: Any
    ) -> None:
        super().__init__(module, lowered, args, values, alive)
        self._device = opencl_device()
        self._copies: list[tuple[np.ndarray, Any]] = []
        self._launches = OpenClLaunches(self._device, module.kernels[lowered.name], program)
        self._launches.prepare(lowered, module._bodies[lowered.name], self._placed(lowered, args, values))

    def _placed(self, lowered: LoweredFunc, args: list[Any], values: list[Any]) -> list[Any]:
        """Return the values with memory of the device in place of addresses."""
        given, out = iter(args), []
        for param, value in zip(lowered.params, values, strict=True):
            arg = value if param.kind == "size" else next(given)
            if param.buffer is not None:
                here = _bytes_of(arg, value)
                memory = self._device.memory(here.nbytes)
                if here.nbytes:
                    self._device.copy(memory, here)
                    if param.writes:
                        self._copies.append((here, memory))
                value = memory
            out.append(value)
        return out

    def __call__(self) -> None:
        """Run the function, and wait for it; its results are in main memory then."""
        self._launches()
        self._device.queue.finish()
        self._launches.require_assertions()
        for here, memory in self._copies:
            self._device.copy(here, memory)

    def seconds(self, number: int) -> float:
        """Return the seconds of ``number`` calls together, by the device's clock; nothing is copied back."""
        events = [event for _ in range(number) for event in self._launches.events()]
        self._device.queue.finish()
        return float(events[-1].profile.end - events[0].profile.start) * 1e-9 if events else 0.0


def _bytes_of(array: Any, address: int) -> np.ndarray:
    """Returns the memory of an array from its first element to its last, as bytes."""
    view = view_of(array)
    assert view is not None
    _, end = view.extent_bytes()
    size = max(end - address, 0) if address else 0
    return np.frombuffer((ctypes.c_char * size).from_address(address), np.uint8) if size else np.empty(0, np.uint8)


class OpenClLaunches(HostLaunches[Any]):
    """The launches of a function on certain arguments, with the memory between its kernels, buffers of OpenCL."""

    def __init__(self, device: OpenClDevice, kernels: Sequence[GpuKernel], program: Any) -> None:
        super().__init__(kernels)
        self.device, self.program = device, program
        self._flags: list[tuple[Any, list[AssertStmt]]] = []

    def allocated(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return self.device.memory(prod(shape) * dtype.itemsize)

    def launched(self, kernel: GpuKernel, grid: Sequence[int]) -> Callable[[], Any]:
        cl, queue = self.device.cl, self.device.queue
        known, kinds = asserts(kernel), c_types(kernel.params)
        values = [self.argument(p) for p in kernel.params]
        given = [v if kind is ctypes.c_void_p else kind(v) for v, kind in zip(values, kinds, strict=True)]
        if known:
            flag = self.device.memory(4)
            self.device.copy(flag, np.zeros(1, np.int32))
            self._flags.append((flag, known))
            given.insert(0, flag)
        run = cl.Kernel(self.program, kernel.name)
        for n, value in enumerate(given):
            run.set_arg(n, value)
        items = [blocks * threads for blocks, threads in zip(grid, kernel.block, strict=True)]
        return lambda: cl.enqueue_nd_range_kernel(queue, run, items, list(kernel.block))

    def events(self) -> list[Any]:
        """Launch the kernels, and return their events."""
        return [launch() for launch in self._prepared]

    def require_assertions(self) -> None:
        """Raise GpuError with the message of an assertion that failed, if one did."""
        for flag, known in self._flags:
            number = np.zeros(1, np.int32)
            self.device.copy(number, flag)
            if number[0]:
                self.device.copy(flag, np.zeros(1, np.int32))
                raise GpuError(known[number[0] - 1].message)


def missing_device(target: Target) -> list[str]:
    """Returns what this machine lacks to run OpenCL kernels, or nothing."""
    try:
        opencl_device()
    except OpenClError as error:
        return [str(error).removeprefix("this machine has no ")]
    return []


OPENCL = TargetKind(
    "opencl", lambda functions, target: OpenClModule(launch_functions(functions, target), target),
    "spir64-unknown-unknown", gpu=True, missing=missing_device, summary="devices of OpenCL",
)  # fmt: skip
"""Devices of OpenCL, GPUs of every maker and processors: ``target="opencl"``."""


def _emit(functions: Sequence[LoweredFunc]) -> str:
    made = launch_functions({one.name: one.scheduled or one.func for one in functions}, Target("opencl"))
    return OpenClModule(made, Target("opencl")).source


OPENCL_TEXT = Backend("opencl", ".cl", _emit)
"""The back end ``opencl`` of modules, for functions whose loops are bound to blocks and threads."""
