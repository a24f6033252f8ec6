"""Modules of OpenCL kernels, which the device's driver compiles when they are first called."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from ...codegen.late_tables import Backend, TargetKind
from ...codegen.lowered import LoweredFunc
from ...codegen.machine.target import Target
from ...codegen.runtime.arguments import c_types
from ..device_module import DeviceLaunches, DeviceModule
from ..gpu_module import launch_functions, launch_problem
from ..launch.kernels import GpuKernel
from .opencl_device import OpenClDevice, OpenClError, opencl_device
from .opencl_text import asserts, opencl_source


class OpenClModule(DeviceModule):
    """Functions for OpenCL devices."""

    words = ("opencl", "cl")

    def printed(self, kernels: Sequence[GpuKernel]) -> str:
        return opencl_source(kernels, self.target)

    def program(self) -> Any:
        device = opencl_device()
        for kernel in self.all_kernels:
            device.check(kernel)
        return device.compiled(self.source)

    def launches(self, program: Any, kernels: Sequence[GpuKernel]) -> OpenClLaunches:
        return OpenClLaunches(opencl_device(), kernels, program)


class OpenClLaunches(DeviceLaunches):
    """The launches of a function on certain arguments, in a queue of OpenCL."""

    device: OpenClDevice

    def __init__(self, device: OpenClDevice, kernels: Sequence[GpuKernel], program: Any) -> None:
        super().__init__(device, kernels)
        self.program = program

    def launched(self, kernel: GpuKernel, grid: Sequence[int]) -> Callable[[], Any]:
        cl, queue = self.device.cl, self.device.queue
        known, kinds = asserts(kernel), c_types(kernel.params)
        values = [self.argument(p) for p in kernel.params]
        given = [v if kind is ctypes.c_void_p else kind(v) for v, kind in zip(values, kinds, strict=True)]
        if known:
            given.insert(0, self.flag([one.message for one in known]))
        run = cl.Kernel(self.program, kernel.name)
        for n, value in enumerate(given):
            run.set_arg(n, value)
        items = [blocks * threads for blocks, threads in zip(grid, kernel.block, strict=True)]
        return lambda: cl.enqueue_nd_range_kernel(queue, run, items, list(kernel.block))

    def seconds(self, number: int) -> float:
        events = [launch() for _ in range(number) for launch in self._prepared]
        self.device.finish()
        return float(events[-1].profile.end - events[0].profile.start) * 1e-9 if events else 0.0


def missing_device(target: Target) -> list[str]:
    """Returns what this machine lacks to run OpenCL kernels, or nothing."""
    try:
        opencl_device()
    except OpenClError as error:
        return [str(error).removeprefix("this machine has no ")]
    return []


OPENCL = TargetKind(
    "opencl", lambda functions, target: OpenClModule(launch_functions(functions, target), target),
    "spir64-unknown-unknown", gpu=True, missing=missing_device, refuses=launch_problem,
    summary="devices of OpenCL",
)  # fmt: skip
"""Devices of OpenCL, GPUs of every maker and processors: ``target="opencl"``."""


def _emit(functions: Sequence[LoweredFunc]) -> str:
    made = launch_functions({one.name: one.scheduled or one.func for one in functions}, Target("opencl"))
    return OpenClModule(made, Target("opencl")).source


OPENCL_TEXT = Backend("opencl", ".cl", _emit)
"""The back end ``opencl`` of modules, for functions whose loops are bound to blocks and threads."""
