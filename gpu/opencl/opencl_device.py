"""The OpenCL device that kernels run on, by the package pyopencl: its limits, its queue, and programs compiled for it.

Nothing is loaded until :func:`opencl_device` is called. It takes the first GPU, else another device; ``TILEWRIGHT_OPENCL_DEVICE``
is a part of the name of the device or of its platform to take instead.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np

from ..device_module import chosen_device
from ..launch.kernels import GpuKernel
from ..launch.launch_form import GpuError
from .opencl_text import needs_doubles

CHOICE = "TILEWRIGHT_OPENCL_DEVICE"
"""The variable of the environment that names a device."""
_HOW = 'pip install "pyopencl[pocl]" has one that runs on processors; the drivers of GPUs bring theirs'


class OpenClError(GpuError):
    """Raised when OpenCL reports an error, or when this machine has no device for it."""


def _devices(cl: Any) -> list[Any]:
    """Returns the devices of all platforms, GPUs first."""
    try:
        platforms = cl.get_platforms()
    except cl.Error:  # the loader reports an error where no platform is installed
        platforms = []
    found = [device for platform in platforms for device in platform.get_devices()]
    kinds = (cl.device_type.GPU, cl.device_type.ACCELERATOR)
    return sorted(found, key=lambda device: next((n for n, kind in enumerate(kinds) if device.type & kind), len(kinds)))


class OpenClDevice:
    """A device with a context and a queue, whose commands run in order and are timed by the device."""

    def __init__(self) -> None:
        try:
            import pyopencl as cl
        except ImportError as error:
            raise OpenClError(f"this machine has no package pyopencl: {_HOW}") from error
        self.cl = cl
        devices = _devices(cl)
        names = [f"{device.name.strip()} ({device.platform.name.strip()})" for device in devices]
        chosen = chosen_device(names, CHOICE, "OpenCL device", _HOW, OpenClError)
        self.device, self.name = devices[chosen], names[chosen]
        self.context = cl.Context([self.device])
        self.queue = cl.CommandQueue(self.context, properties=cl.command_queue_properties.PROFILING_ENABLE)

    def __repr__(self) -> str:
        return f"<OpenClDevice {self.name}>"

    def memory(self, size: int) -> Any:
        """Return memory of ``size`` bytes, at least one, on the device."""
        return self.cl.Buffer(self.context, self.cl.mem_flags.READ_WRITE, max(size, 1))

    def write(self, memory: Any, source: np.ndarray) -> None:
        """Copy the bytes of an array to the device, and wait."""
        self.cl.enqueue_copy(self.queue, memory, source, is_blocking=True)

    def read(self, target: np.ndarray, memory: Any) -> None:
        """Copy from the device into an array, and wait."""
        self.cl.enqueue_copy(self.queue, target, memory, is_blocking=True)

    def finish(self) -> None:
        """Wait until the device has done what it was asked."""
        self.queue.finish()

    def compiled(self, text: str) -> Any:
        """Return a program, compiled from OpenCL C. OpenClError where the device or its compiler refuses it."""
        if needs_doubles(text) and "cl_khr_fp64" not in self.device.extensions.split():
            raise OpenClError(f"the kernels compute with float64, which {self.name} does not offer (cl_khr_fp64)")
        correct = self.device.single_fp_config & self.cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT
        options = ["-cl-std=CL1.2", *["-cl-fp32-correctly-rounded-divide-sqrt"] * bool(correct)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", self.cl.CompilerWarning)
            try:
                return self.cl.Program(self.context, text).build(options=options, cache_dir=False)  # type: ignore[arg-type]
            except self.cl.Error as error:
                said = [line for line in str(error).splitlines() if "error:" in line] or [str(error).split("\n")[0]]
                raise OpenClError(f"{self.name} refuses the kernels: {' / '.join(said[:4])}") from error

    def check(self, kernel: GpuKernel) -> None:
        """Raise OpenClError for a kernel whose work group is larger than the device allows."""
        threads = kernel.block[0] * kernel.block[1] * kernel.block[2]
        sizes = zip(kernel.block, self.device.max_work_item_sizes, strict=False)
        if threads > self.device.max_work_group_size or any(n > most for n, most in sizes):
            raise OpenClError(
                f"{kernel.name} has {threads} threads in a block, {self.name} at most {self.device.max_work_group_size}"
            )
        if kernel.shared_bytes > self.device.local_mem_size:
            raise OpenClError(
                f"{kernel.name} needs {kernel.shared_bytes} bytes of shared memory, {self.name} has {self.device.local_mem_size}"
            )


@cache
def opencl_device() -> OpenClDevice:
    """Returns the device that kernels run on. OpenClError says how to get one where there is none."""
    return OpenClDevice()
