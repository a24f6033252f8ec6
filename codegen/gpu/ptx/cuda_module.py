"""Modules for NVIDIA GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from ....tir.stmt import Stmt
from ...llvm.jit import CompiledCode, Options
from ...lower.pipeline import run_passes
from ...lowered import LoweredFunc
from ...machine.target import Target
from ...machine.target_kinds import TargetKind
from ...runtime.array_views import CPU_DEVICES
from ..gpu_module import GpuModule, launch_functions
from ..launch.gpu_passes import THREAD_PASSES
from .cuda_driver import CudaError, cuda_driver
from .device_array import CUDA_DEVICES, DeviceArray, on_device
from .kernel_launches import Launches
from .kernel_text import PARAMETER_ALIGNMENT, Kernel, kernel_ir, kernels_in

_OPTIONS = Options(loop_unroll=True)


def _version(arch: str) -> int:
    return int("".join(ch for ch in arch if ch.isdigit()) or 0)


class CudaModule(GpuModule):
    """Functions for NVIDIA GPUs: kernels as PTX. Arguments may lie in main memory or on the device."""

    devices = (*CPU_DEVICES, *CUDA_DEVICES)

    def __init__(self, functions: Mapping[str, LoweredFunc], target: Target) -> None:
        super().__init__(functions, target)
        self.kernels: dict[str, list[Kernel]] = {}
        self._bodies: dict[str, Stmt] = {}
        for name, one in functions.items():
            threads = run_passes(one.func, target, THREAD_PASSES)
            self._bodies[name] = threads.body
            self.kernels[name] = kernels_in(LoweredFunc(threads, one.name, target, one.params))

    @cached_property
    def code(self) -> dict[str, CompiledCode]:
        """The code of each kernel by its name."""
        return {
            kernel.name: CompiledCode(b"", kernel_ir(kernel, self.target), self.target, _OPTIONS)
            for kernels in self.kernels.values()
            for kernel in kernels
        }

    @cached_property
    def ptx(self) -> dict[str, str]:
        """The PTX text of each kernel by its name."""
        return {name: code.asm() for name, code in self.code.items()}

    def own_source(self, fmt: str) -> str | None:
        """Return ``ptx`` (also ``asm`` and ``s``), ``ir`` (LLVM IR as emitted) or ``ll`` (after LLVM's passes)."""
        if fmt in ("ptx", "asm", "s"):
            return "\n".join(self.ptx.values())
        if fmt == "ir":
            return "\n".join(code.ir for code in self.code.values())
        if fmt == "ll":
            return "\n".join(code.optimized_ll() for code in self.code.values())
        return None

    def get_source(self, fmt: str = "ptx") -> str:
        """Return the program as text: ``ptx`` and those of :meth:`GpuModule.get_source`."""
        return super().get_source(fmt)

    # -- on the device -------------------------------------------------------------------------------------------------

    @cached_property
    def _functions(self) -> dict[str, int]:
        """The kernels in the driver, by name."""
        driver = cuda_driver()
        if _version(driver.arch) < _version(self.target.mcpu):
            raise CudaError(f"this module is for {self.target.mcpu}, the device {driver.name} is {driver.arch}")
        shared = {kernel.name: kernel.dynamic_shared for kernels in self.kernels.values() for kernel in kernels}
        return {
            name: driver.function(driver.load(text.encode()), name, shared[name]) for name, text in self.ptx.items()
        }

    def _placed(
        self, lowered: LoweredFunc, args: list[Any], values: list[Any]
    ) -> tuple[list[Any], list[tuple[Any, DeviceArray, bool]]]:
        """Return the values with addresses on the device, and the copies made for arrays in main memory, each with its
        original and whether it is written."""
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

    def _launches(self, lowered: LoweredFunc) -> tuple[Launches, Stmt]:
        kernels = self.kernels[lowered.name]
        return Launches(cuda_driver(), kernels, self._functions), self._bodies[lowered.name]

    def run(self, lowered: LoweredFunc, args: list[Any], values: list[Any]) -> None:
        """Run a function on the device. Arrays in main memory are copied there and back; with none of them, the call
        returns when the kernels are on their way."""
        cuda_driver().enter()
        placed, copies = self._placed(lowered, args, values)
        launches, body = self._launches(lowered)
        launches.run(lowered, body, placed)
        for array, copy, written in copies:
            if written:
                copy.numpy(array)

    def timed(self, lowered: LoweredFunc, args: list[Any], values: list[Any], repeat: int, number: int) -> list[float]:
        driver = cuda_driver()
        driver.enter()
        placed, copies = self._placed(lowered, args, values)
        launches, body = self._launches(lowered)
        launches.run(lowered, body, placed)
        first, last, out = driver.new_event(), driver.new_event(), []
        for _ in range(repeat):
            driver.record(first)
            for _ in range(number):
                launches.run(lowered, body, placed)
            driver.record(last)
            out.append(driver.seconds_between(first, last) / number)
        driver.destroy_event(first)
        driver.destroy_event(last)
        for array, copy, written in copies:
            if written:
                copy.numpy(array)
        return out


def _compile(functions: Mapping[str, Any], target: Target) -> CudaModule:
    return CudaModule(launch_functions(functions, target), target)


CUDA = TargetKind("cuda", _compile, "nvptx64-nvidia-cuda", "sm_80", {"arch": "mcpu"}, gpu=True)
"""NVIDIA GPUs: ``target="cuda"``, ``"cuda -arch=sm_90"``."""
