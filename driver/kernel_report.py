"""What the kernels of a GPU's module take: threads, registers, spills, shared memory, occupancy. None of them runs.

Registers come from NVIDIA's assembler where ``ptxas`` is installed, for AMD's GPUs from the code object. Occupancy is the share of the
warps that a multiprocessor holds which the blocks that fit on it have, by the limits of the target's model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..codegen.machine.target import WARP
from ..codegen.machine.target_text import TargetError
from ..pages import size_text
from ..tuner.cost.gpu_model import GpuModel
from ..tuner.cost.machine_model import MachineModel


@dataclass(frozen=True)
class KernelResources:
    """What a kernel takes. ``grid``: its blocks along x, y and z as text; ``spilled_bytes``: registers that a thread keeps in memory;
    ``occupancy``: from 0 to 1. What nothing here can say is None."""

    name: str
    grid: str
    threads: int
    shared_bytes: int
    registers: int | None = None
    spilled_bytes: int | None = None
    occupancy: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields by their names."""
        return asdict(self)


def kernel_resources(module: Any) -> list[KernelResources]:
    """Returns what each kernel of a module takes. TargetError for modules of which that is not known."""
    kernels = getattr(module, "all_kernels", None)
    if kernels is None:
        raise TargetError(
            f"modules for {module.target.kind} do not say what their kernels take; cuda, rocm, opencl and webgpu do"
        )
    model, known = MachineModel.of(module.target), _registers(module)
    out = []
    for kernel in kernels:
        registers, spilled, shared = known.get(kernel.name, (None, None, kernel.shared_bytes))
        threads = kernel.block[0] * kernel.block[1] * kernel.block[2]
        if kernel.name in known and module.target.kind == "cuda":
            shared += kernel.dynamic_shared  # the launch gives it, and the assembler does not know of it
        share = None
        if registers is not None and isinstance(model, GpuModel) and module.target.kind == "cuda":
            share = occupancy(model, threads, registers, shared)
        grid = " x ".join(map(str, kernel.grid))
        out.append(KernelResources(kernel.name, grid, threads, shared, registers, spilled, share))
    return out


def occupancy(model: GpuModel, threads: int, registers: int, shared_bytes: int) -> float:
    """Returns the share of a multiprocessor's warps that run at a time, from 0 (no block fits) to 1."""
    given = {"threads": threads, "shared_bytes": shared_bytes, "registers": registers}
    columns = {name: np.array([float(value)]) for name, value in given.items()}
    if not model.fits(**columns)[0]:
        return 0.0
    return float(model.resident(columns)[0] * -(-threads // WARP) / model.warps)


def _registers(module: Any) -> Mapping[str, tuple[int, int, int]]:
    """Returns registers, bytes of spills and of shared memory of each kernel, by whoever can say them."""
    kind = module.target.kind
    if kind == "rocm":
        return {r.kernel: (r.vector_registers, r.scratch_bytes, r.shared_bytes) for r in module.reports}
    if kind != "cuda":
        return {}
    from ..gpu.ptx import find_ptxas, run_ptxas

    if find_ptxas(module.target.mcpu) is None:
        return {}
    reports, _ = run_ptxas(module.get_source("ptx"), module.target.mcpu)
    return {r.kernel: (r.registers, r.spill_bytes, r.shared_bytes) for r in reports}


def resources_text(rows: list[KernelResources]) -> str:
    """Returns a table of what kernels take."""
    heads = ("kernel", "grid", "threads", "shared", "registers", "spilled", "occupancy")
    lines = [heads] + [
        (
            r.name, r.grid, str(r.threads), size_text(r.shared_bytes), _said(r.registers),
            "-" if r.spilled_bytes is None else size_text(r.spilled_bytes), "-" if r.occupancy is None else f"{r.occupancy:.0%}",
        )
        for r in rows
    ]  # fmt: skip
    widths = [max(len(line[n]) for line in lines) for n in range(len(heads))]
    return "\n".join(
        ["  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    )


def _said(number: int | None) -> str:
    return "-" if number is None else str(number)
