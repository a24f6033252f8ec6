"""Modules for NVIDIA GPUs, and the launches of their kernels."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import prod
from threading import Lock
from typing import Any

import numpy as np

from ...codegen.late_tables import TargetKind
from ...codegen.llvm.jit import CompiledCode, Options
from ...codegen.lower.pipeline import run_passes
from ...codegen.lowered import LoweredFunc
from ...codegen.machine.target import Target
from ...codegen.runtime.arguments import CPU_DEVICES, KINDS, ArrayView, DLTensor, c_types
from ...tir.stmt import Stmt
from ..gpu_module import BoundGpuCall, GpuModule, launch_functions
from ..host_launches import HostLaunches
from ..launch import THREAD_PASSES
from ..launch.kernels import GpuKernel, kernels_in
from .cuda_driver import CudaDriver, CudaError, cuda_driver
from .kernel_text import PARAMETER_ALIGNMENT, kernel_ir, uses_units_beside_threads

# Arrays in the memory of a GPU, which other libraries take through DLPack without a copy.


CUDA_DEVICES = (2, 13)
"""DLPack's numbers for memory of a GPU, and memory that it shares with the processor."""


class DeviceArray:
    """An array on device 0, row-major without gaps. Its memory is given back with the last reference to it."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, driver: CudaDriver | None = None) -> None:
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        self._driver = cuda_driver() if driver is None else driver
        self.nbytes = prod(self.shape) * self.dtype.itemsize
        self.pointer = self._driver.allocate(self.nbytes)

    @staticmethod
    def of(array: Any) -> DeviceArray:
        """Return a copy of an array in main memory."""
        found = DeviceArray(np.shape(array), np.asarray(array).dtype)
        found.copy_from(array)
        return found

    def __repr__(self) -> str:
        return f"<DeviceArray {self.dtype}{list(self.shape)} at {self.pointer:#x}>"

    def __del__(self) -> None:
        if getattr(self, "pointer", 0):
            self._driver.free(self.pointer)
            self.pointer = 0

    def copy_from(self, array: Any) -> None:
        """Copy the elements of an array in main memory. ValueError when its shape is another one."""
        source = np.asarray(array, self.dtype, order="C")
        if source.shape != self.shape:
            raise ValueError(f"an array of shape {source.shape} for one of shape {self.shape}")
        self._driver.copy_in(self.pointer, source.ctypes.data, self.nbytes)

    def numpy(self, out: np.ndarray[Any, Any] | None = None) -> np.ndarray[Any, Any]:
        """Return the elements in main memory: in ``out``, or in a new array."""
        found = np.empty(self.shape, self.dtype) if out is None else out
        whole = found if found.flags.c_contiguous else np.empty(self.shape, self.dtype)
        self._driver.copy_out(whole.ctypes.data, self.pointer, self.nbytes)
        if whole is not found:
            found[...] = whole
        return found

    def array_view(self) -> ArrayView:
        """Return the array as what the checks of arguments look at."""
        strides = tuple([prod(self.shape[n + 1 :]) for n in range(len(self.shape))])
        name = "bool" if self.dtype.kind == "b" else self.dtype.name
        return ArrayView(self.pointer, name, self.shape, strides, self.dtype.itemsize, True, True, self)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA_DEVICES[0], 0

    def __dlpack__(self, **_: Any) -> Any:
        self._driver.wait()
        return dlpack_capsule(self.array_view(), CUDA_DEVICES[0])


def on_device(value: Any) -> bool:
    """Returns whether an array lies in the memory of a GPU."""
    where = getattr(value, "__dlpack_device__", None)
    return where is not None and int(where()[0]) in CUDA_DEVICES


def as_ctypes(value: Any, kind: Any) -> Any:
    """Returns a value as a parameter of a kernel."""
    return ctypes.c_uint64(value) if kind is ctypes.c_void_p else kind(value)


# DLPack capsules of arrays that others are to use without a copy.


class _Managed(ctypes.Structure):
    """The struct DLManagedTensor of dlpack.h before version 1."""


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_new_capsule.restype = ctypes.py_object
_given: dict[int, Any] = {}
"""What capsules given to others keep alive, by the address of their struct."""


def _forgotten(managed: Any) -> None:
    _given.pop(ctypes.addressof(managed.contents), None)


_forget = _Deleter(_forgotten)


def dlpack_capsule(view: ArrayView, device: int) -> Any:
    """Returns a DLPack capsule of an array on ``device``, DLPack's number. Its consumer calls the deleter in the end."""
    rank = len(view.shape)
    shape, strides = (ctypes.c_int64 * rank)(*view.shape), (ctypes.c_int64 * rank)(*view.strides)
    kind = next(code for code, name in KINDS.items() if view.dtype.rstrip("0123456789") == name)
    tensor = DLTensor(view.pointer, device, 0, rank, kind, 8 * view.itemsize, 1, shape, strides, 0)
    managed = _Managed(tensor, None, _forget)
    _given[ctypes.addressof(managed)] = (managed, shape, strides, view)
    return _new_capsule(ctypes.addressof(managed), b"dltensor", None)


_OPTIONS = Options(loop_unroll=True)


def _version(arch: str) -> int:
    return int("".join(ch for ch in arch if ch.isdigit()) or 0)


def _runs(code: str, device: str) -> bool:
    """Return whether a device runs code for an architecture. It must be as new, or the very same where the name ends in
    ``a``."""
    return _version(device) == _version(code) if code.endswith("a") else _version(device) >= _version(code)


def _new_enough(target: Target, kernel: GpuKernel) -> Target:
    """Return the target with the version of PTX that a kernel needs. LLVM takes the first one that has the architecture, which for
    sm_90 is 7.8; copies in bulk came with 8.0."""
    late = (
        target.mcpu == "sm_90"
        and uses_units_beside_threads(kernel.loop)
        and not any("ptx" in f for f in target.features)
    )
    return Target(f"{target} -mattr=+ptx80") if late else target


class CudaModule(GpuModule):
    """Functions for NVIDIA GPUs: kernels as PTX. Arguments may lie in main memory or on the device."""

    devices = (*CPU_DEVICES, *CUDA_DEVICES)

    def __init__(self, functions: Mapping[str, LoweredFunc], target: Target) -> None:
        super().__init__(functions, target)
        self.kernels: dict[str, list[GpuKernel]] = {}
        self._bodies: dict[str, Stmt] = {}
        self._last: dict[str, tuple[list[Any], Launches]] = {}
        self.stream = 0
        """The stream in which calls run, 0 for the usual one: of ``cuda_driver().new_stream()``, or PyTorch's ``stream.cuda_stream``."""
        self._lock = Lock()
        for name, one in functions.items():
            threads = run_passes(one.func, target, THREAD_PASSES)
            self._bodies[name] = threads.body
            self.kernels[name] = kernels_in(LoweredFunc(threads, one.name, target, one.params))

    @cached_property
    def code(self) -> dict[str, CompiledCode]:
        """The code of each kernel by its name."""
        return {
            kernel.name: CompiledCode(b"", kernel_ir(kernel, self.target), _new_enough(self.target, kernel), _OPTIONS)
            for kernels in self.kernels.values()
            for kernel in kernels
        }

    @cached_property
    def ptx(self) -> dict[str, str]:
        """The PTX text of each kernel by its name."""
        return {name: code.asm() for name, code in self.code.items()}

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle holds: the program and its PTX, nothing of a device. What loads it compiles nothing."""
        kept = {**self.__dict__, "ptx": self.ptx, "_last": {}}
        return {name: value for name, value in kept.items() if name not in ("_lock", "_functions", "code", "plan")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=Lock())

    def own_source(self, fmt: str) -> str | None:
        """Return ``ptx`` (also ``asm`` and ``s``), ``ir`` (LLVM IR as emitted) or ``ll`` (after LLVM's passes).

        The kernels of a program are one module: ``ptx`` is a file that ``ptxas`` takes, ``ll`` one that ``llc`` takes. ``ir`` shows
        what was emitted for each kernel by itself.
        """
        if fmt in ("ptx", "asm", "s"):
            return joined_ptx(list(self.ptx.values()))
        if fmt == "ir":
            return "\n".join(code.ir for code in self.code.values())
        if fmt == "ll":
            first, *rest = self.code.values()
            return replace(first, link=tuple([code.ir for code in rest])).optimized_ll()
        return None

    def get_source(self, fmt: str = "ptx") -> str:
        """Return the program as text: ``ptx`` and those of :meth:`GpuModule.get_source`."""
        return super().get_source(fmt)

    # -- on the device -------------------------------------------------------------------------------------------------

    @cached_property
    def _functions(self) -> dict[str, int]:
        """The kernels in the driver, by name."""
        driver = cuda_driver()
        if not _runs(self.target.mcpu, driver.arch):
            raise CudaError(f"this module is for {self.target.mcpu}, the device {driver.name} is {driver.arch}")
        shared = {kernel.name: kernel.dynamic_shared for kernels in self.kernels.values() for kernel in kernels}
        return {
            name: driver.function(driver.load(text.encode()), name, shared[name]) for name, text in self.ptx.items()
        }

    def _placed(
        self, lowered: LoweredFunc, args: list[Any], values: list[Any]
    ) -> tuple[list[Any], list[tuple[Any, DeviceArray, bool]]]:
        """Return the values with addresses on the device, and the copies made for arrays in main memory. Each copy
        comes with its original and whether it is written."""
        given, out, copies = iter(args), [], []
        for param, value in zip(lowered.params, values, strict=True):
            arg = value if param.kind == "size" else next(given)
            if param.buffer is not None and not on_device(arg):
                array = arg if isinstance(arg, np.ndarray) else np.from_dlpack(arg)
                copy = DeviceArray.of(array)
                copies.append((array, copy, param.writes))
                value = copy.pointer
            elif param.buffer is not None and value % PARAMETER_ALIGNMENT:
                raise CudaError(
                    f"{lowered.name}: the array {param.name} does not begin at a multiple of {PARAMETER_ALIGNMENT} bytes"
                )
            out.append(value)
        return out, copies

    def _launches(self, lowered: LoweredFunc, placed: list[Any]) -> Launches:
        """Return the launches for values with addresses on the device; those of the last call, where it had the same."""
        known = self._last.get(lowered.name)
        if known is not None and known[0] == placed and known[1].stream == self.stream:
            return known[1]
        launches = Launches(cuda_driver(), self.kernels[lowered.name], self._functions, self.stream)
        launches.prepare(lowered, self._bodies[lowered.name], placed)
        self._last[lowered.name] = (placed, launches)
        return launches

    def run(self, lowered: LoweredFunc, args: list[Any], values: list[Any]) -> None:
        """Run a function on the device. Arrays in main memory are copied there and back; with none of them, the call
        returns when the kernels are on their way."""
        cuda_driver().enter()
        placed, copies = self._placed(lowered, args, values)
        with self._lock:
            self._launches(lowered, placed)()
        if copies and self.stream:
            cuda_driver().wait(self.stream)
        for array, copy, written in copies:
            if written:
                copy.numpy(array)

    def timed(self, lowered: LoweredFunc, args: list[Any], values: list[Any], repeat: int, number: int) -> list[float]:
        call = self.bound(lowered, args, values, None)
        call()
        out = [call.seconds(number) / number for _ in range(repeat)]
        call.finish()
        return out

    def bound(self, lowered: LoweredFunc, args: list[Any], values: list[Any], alive: Any) -> PlacedCall:
        return PlacedCall(self, lowered, args, values, alive)


class PlacedCall(BoundGpuCall):
    """A function with its arguments on the device. Those in main memory are copied there once, and results back after calls."""

    def __init__(
        self, module: CudaModule, lowered: LoweredFunc, args: list[Any], values: list[Any], alive: Any
    ) -> None:
        super().__init__(module, lowered, args, values, alive)
        self._driver = cuda_driver()
        self._driver.enter()
        placed, self._copies = module._placed(lowered, args, values)
        self._launches = Launches(self._driver, module.kernels[lowered.name], module._functions, module.stream)
        self._launches.prepare(lowered, module._bodies[lowered.name], placed)

    def __call__(self) -> None:
        """Run the function, and wait for it; results in main memory are there then."""
        self._driver.enter()
        self._launches()
        self._driver.wait()
        self.finish()

    def seconds(self, number: int) -> float:
        """Return the seconds of ``number`` calls together, by the driver's events; nothing is copied back."""
        driver = self._driver
        first, last = driver.new_event(), driver.new_event()
        driver.record(first, self._launches.stream)
        for _ in range(number):
            self._launches()
        driver.record(last, self._launches.stream)
        taken = driver.seconds_between(first, last)
        driver.destroy_event(first)
        driver.destroy_event(last)
        return taken

    def finish(self) -> None:
        """Copy the results to the arrays in main memory."""
        for array, copy, written in self._copies:
            if written:
                copy.numpy(array)


def joined_ptx(texts: Sequence[str]) -> str:
    """Returns the PTX of several modules as one module, which has one header. Its version is the highest of theirs."""
    headers = [_HEADER.search(text) for text in texts]
    if len(texts) < 2 or None in headers:
        return "\n".join(texts)
    found = [header for header in headers if header is not None]
    newest = max(found, key=lambda header: tuple(map(int, header["version"].split("."))))
    bodies = [text[header.end() :] for text, header in zip(texts, found, strict=True)]
    return texts[0][: found[0].start()] + newest[0] + "".join(bodies)


_HEADER = re.compile(r"\.version (?P<version>[\d.]+)\n\.target [^\n]*\n\.address_size \d+\n")
"""The directives at the head of a PTX module."""


def missing_device(target: Target) -> list[str]:
    """Returns what this machine lacks to run code for ``target``: a device, or one that is new enough."""
    try:
        driver = cuda_driver()
    except CudaError as error:
        return [str(error).removeprefix("this machine has no ")]
    if not _runs(target.mcpu, driver.arch):
        return [f"device of {target.mcpu}; {driver.name} is {driver.arch}"]
    return []


def _compile(functions: Mapping[str, Any], target: Target) -> CudaModule:
    return CudaModule(launch_functions(functions, target), target)


CUDA = TargetKind(
    "cuda", _compile, "nvptx64-nvidia-cuda", "sm_80", {"arch": "mcpu"}, gpu=True, warps=True, missing=missing_device,
    summary="GPUs of NVIDIA",
)  # fmt: skip
"""NVIDIA GPUs: ``target="cuda"``, ``"cuda -arch=sm_90"``."""


class Launches(HostLaunches[int]):
    """The launches of a function on certain arguments, with the memory between its kernels. They may run again and again.

    ``functions``: the kernels in the driver, in the order of the program. Memory is an address on the device.
    """

    def __init__(
        self, driver: CudaDriver, kernels: Sequence[GpuKernel], functions: Mapping[str, int], stream: int = 0
    ) -> None:
        super().__init__(kernels)
        self.driver, self.functions, self.stream = driver, functions, stream
        self._alive: list[DeviceArray] = []

    def allocated(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
        made = DeviceArray(shape, dtype, self.driver)
        self._alive.append(made)
        return made.pointer

    def launched(self, kernel: GpuKernel, grid: Sequence[int]) -> Callable[[], None]:
        kinds = c_types(kernel.params)
        values = [as_ctypes(self.argument(p), kind) for p, kind in zip(kernel.params, kinds, strict=True)]
        return self.driver.prepare(
            self.functions[kernel.name], grid, kernel.block, values, kernel.dynamic_shared, self.stream
        )
