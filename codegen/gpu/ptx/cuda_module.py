"""Modules for NVIDIA GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from ...llvm.jit import CompiledCode, Options
from ...lower.pipeline import run_passes
from ...lowered import LoweredFunc
from ...machine.target import Target
from ...machine.target_kinds import TargetKind
from ..gpu_module import GpuModule, launch_functions
from ..launch.gpu_passes import THREAD_PASSES
from .kernel_text import Kernel, kernel_ir, kernels_in

_OPTIONS = Options(loop_unroll=True)


class CudaModule(GpuModule):
    """Functions for NVIDIA GPUs: kernels as PTX."""

    def __init__(self, functions: Mapping[str, LoweredFunc], target: Target) -> None:
        super().__init__(functions, target)
        self.kernels: dict[str, list[Kernel]] = {}
        for name, one in functions.items():
            threads = run_passes(one.func, target, THREAD_PASSES)
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


def _compile(functions: Mapping[str, Any], target: Target) -> CudaModule:
    return CudaModule(launch_functions(functions, target), target)


CUDA = TargetKind("cuda", _compile, "nvptx64-nvidia-cuda", "sm_80", {"arch": "mcpu"}, gpu=True)
"""NVIDIA GPUs: ``target="cuda"``, ``"cuda -arch=sm_90"``."""
