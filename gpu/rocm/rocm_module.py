"""Modules for AMD's GPUs: code objects that HIP loads, and their texts."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from ...codegen.late_tables import TargetKind
from ...codegen.llvm.jit import CompiledCode, optimize_and_compile, undefined_symbols
from ...codegen.lowered import LoweredFunc
from ...pages.written_files import write_file
from ..gpu_module import KernelModule, launch_functions, launch_problem
from ..launch.launch_form import GpuError
from .code_objects import CodeObjectReport, code_object_reports, linked_code_object
from .kernel_text import PROCESSORS, kernel_ir

_HIP = "HIP to launch kernels of AMD's GPUs; export a .hsaco and load it with hipModuleLoad"


class RocmModule(KernelModule):
    """Functions for AMD's GPUs: their kernels are one code object."""

    @cached_property
    def texts(self) -> dict[str, str]:
        """The LLVM IR of each kernel by its name, as emitted."""
        return {kernel.name: kernel_ir(kernel, self.target) for kernel in self.all_kernels}

    @cached_property
    def code(self) -> CompiledCode:
        """The object file of all kernels. GpuError where they call functions that no GPU has."""
        first, *rest = self.texts.values()
        made = optimize_and_compile(first, self.target, link=tuple(rest), loop_unroll=True)
        if absent := [name for name in undefined_symbols(made.object) if name]:
            raise GpuError(f"the kernels call {', '.join(absent)}, functions of a library that GPUs of AMD do not have")
        return made

    @cached_property
    def code_object(self) -> bytes:
        """The linked code object, which ``hipModuleLoadData`` takes. GpuError where no linker is here."""
        return linked_code_object(self.code.object)

    @cached_property
    def reports(self) -> list[CodeObjectReport]:
        """What the object file says of each kernel: registers, spills, shared memory."""
        return code_object_reports(self.code.object)

    def own_source(self, fmt: str) -> str | None:
        """Return ``s`` (also ``asm``), ``ir`` (LLVM IR as emitted) or ``ll`` (after LLVM's passes)."""
        if fmt in ("s", "asm"):
            return self.code.asm()
        if fmt == "ir":
            return "\n".join(self.texts.values())
        return self.code.optimized_ll() if fmt == "ll" else None

    def get_source(self, fmt: str = "s") -> str:
        """Return the program as text: assembly, when none is named, and those of :meth:`GpuModule.get_source`."""
        return super().get_source(fmt)

    def export(self, path: str | Path) -> list[Path]:
        """Write ``.hsaco`` (a code object), ``.o`` (an object file) or a text of the module, by the suffix. Return the files."""
        place = Path(path)
        if place.suffix not in (".hsaco", ".o"):
            return super().export(place)
        write_file(place, self.code_object if place.suffix == ".hsaco" else self.code.object)
        return [place]

    def run(self, lowered: LoweredFunc, args: list[Any], values: list[Any]) -> None:
        raise GpuError(
            f"{lowered.name} does not run here: this machine lacks {_HIP}, or build for opencl, which runs on these GPUs"
        )


ROCM = TargetKind(
    "rocm", lambda functions, target: RocmModule(launch_functions(functions, target), target),
    "amdgcn-amd-amdhsa", "gfx90a", {"arch": "mcpu"}, gpu=True, warps=True, missing=lambda target: [_HIP],
    refuses=launch_problem, cpus=PROCESSORS, summary="GPUs of AMD",
)  # fmt: skip
"""GPUs of AMD: ``target="rocm"``, ``"rocm -mcpu=gfx1100"``."""
