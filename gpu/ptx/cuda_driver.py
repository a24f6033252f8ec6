"""NVIDIA's driver, by ctypes on ``libcuda.so.1``: memory, copies, streams, events, modules and launches.

Nothing is loaded until :func:`cuda_driver` is called. ``TILEWRIGHT_LIBCUDA`` names another library.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from ..launch.launch_form import GpuError

DYNAMIC_SHARED = 8
"""The attribute of a function for the most shared memory that a launch may give it."""
_COMPUTE_MAJOR, _COMPUTE_MINOR = 75, 76


class CudaError(GpuError):
    """Raised when the driver reports an error, or when there is no driver."""


class CudaDriver:
    """The driver with the primary context of device 0, current in the threads that use it."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._set_current, self._launch = library.cuCtxSetCurrent, library.cuLaunchKernel
        self._call("cuInit", ctypes.c_uint(0))
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
        self._device = device
        self._context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        self.enter()

    def _call(self, name: str, *args: Any) -> None:
        code = getattr(self._library, name)(*args)
        if code:
            raise self._error(name, code)

    def _error(self, name: str, code: int) -> CudaError:
        text = ctypes.c_char_p()
        self._library.cuGetErrorString(ctypes.c_int(code), ctypes.byref(text))
        return CudaError(f"{name}: {(text.value or b'unknown error').decode()} (error {code} of CUDA's driver)")

    def enter(self) -> None:
        """Make the context current in this thread."""
        code = self._set_current(self._context)
        if code:
            raise self._error("cuCtxSetCurrent", code)

    @property
    def arch(self) -> str:
        """The device's architecture, such as ``sm_90``."""
        return f"sm_{self.attribute(_COMPUTE_MAJOR)}{self.attribute(_COMPUTE_MINOR)}"

    @property
    def name(self) -> str:
        """The device's name."""
        text = ctypes.create_string_buffer(128)
        self._call("cuDeviceGetName", text, ctypes.c_int(len(text)), self._device)
        return text.value.decode()

    def attribute(self, number: int) -> int:
        """Return an attribute of the device by CUDA's number for it."""
        out = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(out), ctypes.c_int(number), self._device)
        return out.value

    # -- memory --------------------------------------------------------------------------------------------------------

    def allocate(self, size: int) -> int:
        """Return the address of ``size`` bytes, at least one, on the device."""
        out = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(out), ctypes.c_size_t(max(size, 1)))
        return out.value

    def free(self, address: int) -> None:
        """Give memory back."""
        self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def copy_in(self, address: int, source: int, size: int) -> None:
        """Copy bytes from main memory to the device."""
        self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), ctypes.c_void_p(source), ctypes.c_size_t(size))

    def copy_out(self, target: int, address: int, size: int) -> None:
        """Copy bytes from the device to main memory, after the work that was begun before."""
        self._call("cuMemcpyDtoH_v2", ctypes.c_void_p(target), ctypes.c_uint64(address), ctypes.c_size_t(size))

    # -- streams and events --------------------------------------------------------------------------------------------

    def wait(self, stream: int | None = None) -> None:
        """Wait for the work of a stream, or of all."""
        if stream is None:
            self._call("cuCtxSynchronize")
        else:
            self._call("cuStreamSynchronize", ctypes.c_void_p(stream))

    def new_stream(self) -> int:
        """Return a stream, whose work runs in order and beside that of other streams."""
        out = ctypes.c_void_p()
        self._call("cuStreamCreate", ctypes.byref(out), ctypes.c_uint(0))
        return out.value or 0

    def destroy_stream(self, stream: int) -> None:
        """Give a stream back; what it has is finished before."""
        self._call("cuStreamDestroy_v2", ctypes.c_void_p(stream))

    def new_event(self) -> int:
        """Return an event, which has a time when it is recorded."""
        out = ctypes.c_void_p()
        self._call("cuEventCreate", ctypes.byref(out), ctypes.c_uint(0))
        return out.value or 0

    def record(self, event: int, stream: int = 0) -> None:
        """Let an event happen after the work that a stream has."""
        self._call("cuEventRecord", ctypes.c_void_p(event), ctypes.c_void_p(stream))

    def seconds_between(self, first: int, last: int) -> float:
        """Return the time between two events, waiting for the last one."""
        out = ctypes.c_float()
        self._call("cuEventSynchronize", ctypes.c_void_p(last))
        self._call("cuEventElapsedTime", ctypes.byref(out), ctypes.c_void_p(first), ctypes.c_void_p(last))
        return out.value / 1e3

    def destroy_event(self, event: int) -> None:
        """Give an event back."""
        self._call("cuEventDestroy_v2", ctypes.c_void_p(event))

    # -- kernels -------------------------------------------------------------------------------------------------------

    def load(self, code: bytes) -> int:
        """Return a module made of PTX text (which the driver assembles) or of machine code."""
        out = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(out), ctypes.c_char_p(code + b"\0"))
        return out.value or 0

    def function(self, module: int, name: str, dynamic_shared: int = 0) -> int:
        """Return a kernel of a module; launches may give it ``dynamic_shared`` bytes of shared memory."""
        out = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(out), ctypes.c_void_p(module), name.encode())
        if dynamic_shared:
            self._call("cuFuncSetAttribute", out, ctypes.c_int(DYNAMIC_SHARED), ctypes.c_int(dynamic_shared))
        return out.value or 0

    def prepare(
        self, function: int, grid: Sequence[int], block: Sequence[int], values: Sequence[Any], shared: int = 0,
        stream: int = 0,
    ) -> Callable[[], None]:  # fmt: skip
        """Return a function that begins a kernel. ``values`` are ctypes objects, one for each parameter."""
        pointers = (ctypes.c_void_p * max(1, len(values)))(*[ctypes.addressof(v) for v in values])
        sizes = [ctypes.c_uint(n) for n in (*grid, *block, shared)]
        given = (ctypes.c_void_p(function), *sizes, ctypes.c_void_p(stream), pointers, None)
        begin, error = partial(self._launch, *given), self._error

        def launch(_: Any = values) -> None:  # the values live as long as their addresses are used
            code = begin()
            if code:
                raise error("cuLaunchKernel", code)

        return launch

    def launch(
        self, function: int, grid: Sequence[int], block: Sequence[int], values: Sequence[Any], **how: int
    ) -> None:
        """Begin a kernel: :meth:`prepare`, at once."""
        self.prepare(function, grid, block, values, **how)()


@cache
def cuda_driver() -> CudaDriver:
    """Returns the driver. :class:`CudaError` when this machine has none, or no device."""
    name = os.environ.get("TILEWRIGHT_LIBCUDA", "libcuda.so.1")
    try:
        library = ctypes.CDLL(name)
    except OSError:
        raise CudaError(
            f"this machine has no device for cuda: {name} is not installed; gpu-sim runs the same kernels on the CPU"
        ) from None
    return CudaDriver(library)
