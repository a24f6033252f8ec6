"""Modules for NVIDIA GPUs, and the launches of their kernels."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import copysign
from threading import Lock
from typing import Any

import numpy as np

from ...codegen.late_tables import TargetKind
from ...codegen.llvm.jit import CompiledCode, Options
from ...codegen.lowered import LoweredFunc
from ...codegen.machine.target import Target
from ...codegen.runtime.arguments import (
    CPU_DEVICES,
    CUDA_DEVICES,
    CUDA_INTERFACE,
    Arguments,
    c_types,
    lies_on_gpu,
    view_of,
)
from ...tir.expr import Var
from ...tir.stmt import Buffer, Stmt
from ..gpu_module import BoundGpuCall, KernelModule, launch_functions, launch_problem
from ..host_launches import HostLaunches
from ..launch.kernels import GpuKernel
from .cuda_driver import CudaDriver, CudaError, cuda_driver
from .device_array import DeviceArray, forms_of, in_streams
from .kernel_text import PARAMETER_ALIGNMENT, kernel_ir, uses_units_beside_threads

_OPTIONS = Options(loop_unroll=True)

_MOST_PREPARED = 8
"""The launches that a module keeps of a function, for sizes and other numbers that decide them."""

_MOST_READY = 64
"""The kinds of arguments that a module knows."""


def _version(arch: str) -> int:
    return int("".join(ch for ch in arch if ch.isdigit()) or 0)


def _runs(code: str, device: str) -> bool:
    """Return whether a device runs code for an architecture. It must be as new, or the very same where the name ends in
    ``a``."""
    return _version(device) == _version(code) if code.endswith("a") else _version(device) >= _version(code)


def _new_enough(target: Target, kernel: GpuKernel) -> Target:
    """Return the target with the version of PTX that a kernel needs. LLVM takes the first one that has the architecture, which for
    sm_90 is 7.8; copies in bulk came with 8.0. Those before sm_70 have one without the exchange of registers, which came with 6.0."""
    if any("ptx" in f for f in target.features):
        return target
    if _version(target.mcpu) < 70:
        return Target(f"{target} -mattr=+ptx60")
    late = target.mcpu == "sm_90" and uses_units_beside_threads(kernel.loop)
    return Target(f"{target} -mattr=+ptx80") if late else target


_LEGACY_STREAM = 1
"""What the CUDA array interface calls the usual stream."""


class CudaModule(KernelModule):
    """Functions for NVIDIA GPUs: kernels as PTX. Arguments may lie in main memory or on the device."""

    devices = (*CPU_DEVICES, *CUDA_DEVICES)

    def __init__(self, functions: Mapping[str, LoweredFunc], target: Target) -> None:
        super().__init__(functions, target)
        self._prepared: dict[str, list[Launches]] = {}
        self._ready: dict[Hashable, ReadyCall] = {}
        self.stream = 0
        """The stream in which calls run, 0 for the usual one: of ``cuda_driver().new_stream()``, or PyTorch's ``stream.cuda_stream``."""
        self._lock = Lock()

    @cached_property
    def code(self) -> dict[str, CompiledCode]:
        """The code of each kernel by its name."""
        return {
            kernel.name: CompiledCode(b"", kernel_ir(kernel, self.target), _new_enough(self.target, kernel), _OPTIONS)
            for kernel in self.all_kernels
        }

    @cached_property
    def ptx(self) -> dict[str, str]:
        """The PTX text of each kernel by its name."""
        return {name: code.asm() for name, code in self.code.items()}

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle holds: the program and its PTX, nothing of a device. What loads it compiles nothing."""
        kept = {**self.__dict__, "ptx": self.ptx}
        made = ("_lock", "_functions", "_prepared", "_ready", "_arguments", "code", "plan")
        return {name: value for name, value in kept.items() if name not in made}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=Lock(), _prepared={}, _ready={}, _arguments={})

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
        shared = {kernel.name: kernel.dynamic_shared for kernel in self.all_kernels}
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
            if param.buffer is not None and not lies_on_gpu(arg):
                array = arg if isinstance(arg, np.ndarray) else np.from_dlpack(arg)
                copy = DeviceArray.of(array)
                copies.append((array, copy, param.writes))
                value = copy.pointer
            elif param.buffer is not None:
                self._await(arg)
            if param.buffer is not None and value % (begin := _beginning(param.buffer)):
                raise CudaError(f"{lowered.name}: the array {param.name} does not begin at a multiple of {begin} bytes")
            out.append(value)
        return out, copies

    def _await(self, array: Any) -> None:
        """Wait for the stream that an array by the CUDA array interface names. With DLPack its owner waits."""
        stream = None if hasattr(array, "__dlpack__") else getattr(array, CUDA_INTERFACE, {}).get("stream")
        if stream is not None and stream != self.stream and (stream, self.stream) != (_LEGACY_STREAM, 0):
            cuda_driver().wait(stream)

    def _launches(self, lowered: LoweredFunc, placed: list[Any]) -> Launches:
        """Return the launches for values with addresses on the device. Those of an earlier call are taken where only
        addresses differ, and numbers that kernels alone read."""
        known = self._prepared.setdefault(lowered.name, [])
        for launches in known:
            if launches.stream == self.stream and launches.places(placed):
                return launches
        launches = Launches(cuda_driver(), self.kernels[lowered.name], self._functions, self.stream)
        launches.prepare(lowered, self.bodies[lowered.name], placed)
        kept = [one for one in known if not (launches.has_memory and one.has_memory)]
        self._prepared[lowered.name] = [launches, *kept[: _MOST_PREPARED - 1]]
        gone = [one for one in known if one not in self._prepared[lowered.name]]
        self._ready = {key: ready for key, ready in self._ready.items() if ready.launches not in gone}
        return launches

    def _learn(self, name: str, key: Hashable, args: tuple[Any, ...]) -> None:
        """Keep that arguments of a form were checked, behind a call with them."""
        arguments = self.arguments(name)
        values, _ = arguments.prepare(args)
        with self._lock:
            of_stream = [one for one in self._prepared[name] if one.stream == self.stream]
            launches = next((one for one in of_stream if one.places(values)), None)
            if launches is None:  # another thread needed the place
                return
            while len(self._ready) >= _MOST_READY:
                del self._ready[next(iter(self._ready))]
            self._ready[key] = ReadyCall(launches, arguments, args, values, self._lock)

    def call(self, name: str, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """Call a function. Where all arrays are on the device, and arguments of their form were checked before, this begins
        the kernels without other checks than those of addresses."""
        found = None if named else forms_of(args)
        if found is None:
            return super().call(name, args, named)
        key = (name, self.stream, found[0])
        ready = self._ready.get(key)
        if ready is not None and ready(found[1]):
            return None
        result = super().call(name, args, named)
        if len(args) == len(self.arguments(name).given) and in_streams(found[0], self.stream):
            self._learn(name, key, args)
        return result

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
        self._launches.prepare(lowered, module.bodies[lowered.name], placed)

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
    refuses=launch_problem, summary="GPUs of NVIDIA",
)  # fmt: skip
"""NVIDIA GPUs: ``target="cuda"``, ``"cuda -arch=sm_90"``."""


class Launches(HostLaunches[int]):
    """The launches of a function, with the memory between its kernels. They may run again and again.

    ``functions``: the kernels in the driver, in the order of the program. Memory is an address on the device.
    """

    def __init__(
        self, driver: CudaDriver, kernels: Sequence[GpuKernel], functions: Mapping[str, int], stream: int = 0
    ) -> None:
        super().__init__(kernels)
        self.driver, self.functions, self.stream = driver, functions, stream
        self._alive: list[DeviceArray] = []
        self._given: list[Any] = []
        self._slots: list[Any] = []
        self._slot_of: dict[Var, Any] = {}
        self._deciding: list[int] = []

    @property
    def has_memory(self) -> bool:
        """Return whether there is memory between the kernels."""
        return bool(self._alive)

    def prepare(self, lowered: LoweredFunc, body: Stmt, values: Sequence[Any]) -> None:
        self._given = list(values)
        self._slots = [as_ctypes(v, kind) for v, kind in zip(values, c_types(lowered.params), strict=True)]
        names = [p.var if p.buffer is None else p.buffer.data for p in lowered.params]
        self._slot_of = dict(zip(names, self._slots, strict=True))
        super().prepare(lowered, body, values)
        self._deciding = [n for n, p in enumerate(lowered.params) if p.buffer is None and p.var in self.values.read]

    def places(self, values: Sequence[Any]) -> bool:
        """Give the kernels other addresses and numbers. Return whether these are their launches; else nothing changes."""
        given = self._given
        if not all(_same_number(values[n], given[n]) for n in self._deciding):
            return False
        for n, value in enumerate(values):
            if value is not given[n]:
                self._slots[n].value = given[n] = value
        return True

    def allocated(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
        made = DeviceArray(shape, dtype, self.driver)
        self._alive.append(made)
        return made.pointer

    def launched(self, kernel: GpuKernel, grid: Sequence[int]) -> Callable[[], None]:
        values = []
        for param, kind in zip(kernel.params, c_types(kernel.params), strict=True):
            slot = self._slot_of.get(param.var if param.buffer is None else param.buffer.data)
            values.append(as_ctypes(self.argument(param), kind) if slot is None else slot)
        return self.driver.prepare(
            self.functions[kernel.name], grid, kernel.block, values, kernel.dynamic_shared, self.stream
        )


def as_ctypes(value: Any, kind: Any) -> Any:
    """Returns a value as a parameter of a kernel."""
    return ctypes.c_uint64(value) if kind is ctypes.c_void_p else kind(value)


def _beginning(buffer: Buffer) -> int:
    """Return what divides the address of an array that a kernel takes."""
    return min(PARAMETER_ALIGNMENT, buffer.data_alignment)


def _same_number(a: Any, b: Any) -> bool:
    return bool(a == b) and (not isinstance(a, float) or copysign(1.0, a) == copysign(1.0, b))


class ReadyCall:
    """A call with arguments whose forms were checked, as were ``args``, with the C values ``values``. What is left to
    check is what may still differ: addresses and floating-point numbers."""

    def __init__(
        self, launches: Launches, arguments: Arguments, args: Sequence[Any], values: Sequence[Any], lock: Lock
    ) -> None:
        self.launches, self._enter, self._lock = launches, launches.driver.enter, lock
        self._sizes = list(values[len(args) :])
        self._scalar = arguments.scalar
        self._numbers = [(n, p) for n, p in enumerate(arguments.given) if p.buffer is None]
        self._arrays, self._pairs = [], []
        spans = []
        for n, param in enumerate(arguments.given):
            if param.buffer is not None:
                view = view_of(args[n], arguments.devices)
                assert view is not None
                low, high = view.extent_bytes()
                self._arrays.append((n, _beginning(param.buffer)))
                if low < high:
                    spans.append((n, low - view.pointer, high - view.pointer, param.writes))
        for place, (n, low, high, writes) in enumerate(spans):
            for other, other_low, other_high, other_writes in spans[:place]:
                if writes or other_writes:
                    self._pairs.append((n, other, other_high - low, high - other_low))

    def __call__(self, values: list[Any]) -> bool:
        """Begin the kernels. False, and nothing has happened, where the addresses have to be looked at."""
        for n, begin in self._arrays:
            if not values[n] or values[n] % begin:
                return False
        for n, other, above, below in self._pairs:
            if -below < values[n] - values[other] < above:
                return False
        for n, param in self._numbers:
            values[n] = self._scalar(n, param, values[n], {})
        values += self._sizes
        self._enter()
        with self._lock:
            if not self.launches.places(values):
                return False
            self.launches()
        return True
