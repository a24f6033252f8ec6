"""Modules of WebGPU kernels, which the adapter's driver compiles when they are first called."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...codegen.late_tables import Backend, TargetKind
from ...codegen.lowered import LoweredFunc, Param
from ...codegen.machine.target import Target
from ...codegen.runtime.arguments import c_types
from ..device_module import DeviceLaunches, DeviceModule
from ..gpu_module import launch_functions, launch_problem
from ..launch.kernels import GpuKernel
from .webgpu_device import WebGpuDevice, WebGpuError, webgpu_device
from .wgsl_text import WgslKernel, field_kind, has_loops, interface_of, reads_zero, wgsl_source


class WebGpuModule(DeviceModule):
    """Functions for the adapters of WebGPU."""

    words = ("wgsl",)

    def printed(self, kernels: Sequence[GpuKernel]) -> str:
        return wgsl_source(kernels, self.target)

    def program(self) -> dict[str, Pipeline]:
        device, kernels = webgpu_device(), self.all_kernels
        watched = any(map(has_loops, kernels)) and device.leaves_loops
        source = wgsl_source(kernels, self.target, True) if watched else self.source
        takes = {kernel.name: interface_of(kernel, watched) for kernel in kernels}
        for kernel in kernels:
            device.check(kernel, len(takes[kernel.name].arrays) + bool(takes[kernel.name].asserts))
        shader = device.compiled(source)
        return {name: Pipeline(device, shader, name, one, reads_zero(source)) for name, one in takes.items()}

    def launches(self, program: Any, kernels: Sequence[GpuKernel]) -> WebGpuLaunches:
        return WebGpuLaunches(webgpu_device(), kernels, program)


@dataclass(frozen=True, eq=False)
class Pipeline:
    """An entry point of a shader, and what it takes. The driver compiles it when it is first launched."""

    device: WebGpuDevice
    shader: Any
    name: str
    takes: WgslKernel
    zero: bool
    """Whether the uniform structure ends in a 0 (:func:`.wgsl_text.reads_zero`)."""

    @cached_property
    def made(self) -> Any:
        """The pipeline and the layout of its bindings."""
        kinds = ["storage" if p.writes else "read-only-storage" for p in self.takes.arrays]
        kinds += ["uniform"] * bool(self.takes.scalars or self.zero) + ["storage"] * bool(self.takes.asserts)
        return self.device.pipeline(self.shader, self.name, kinds)


class WebGpuLaunches(DeviceLaunches):
    """The launches of a function on certain arguments, which go to the device's queue together."""

    device: WebGpuDevice

    def __init__(self, device: WebGpuDevice, kernels: Sequence[GpuKernel], program: dict[str, Pipeline]) -> None:
        super().__init__(device, kernels)
        self.program = program

    def launched(self, kernel: GpuKernel, grid: Sequence[int]) -> Callable[[], Any]:
        blocks = tuple(grid)
        self.device.check_grid(kernel, blocks)
        pipeline = self.program[kernel.name]
        takes, (made, layout) = pipeline.takes, pipeline.made
        given = [self.argument(p) for p in takes.arrays]
        words = [_word(p, self.argument(p), kernel) for p in takes.scalars] + [bytes(4)] * pipeline.zero
        if words:
            given.append(self.device.uniform(b"".join(words)))
        if takes.asserts:
            given.append(self.flag(takes.asserts))
        entries = [{"binding": n, "resource": {"buffer": b, "offset": 0, "size": b.size}} for n, b in enumerate(given)]
        group = self.device.device.create_bind_group(layout=layout, entries=entries)
        return lambda: (made, group, blocks)

    def _calls(self) -> list[Any]:
        return [launch() for launch in self._prepared]

    def __call__(self) -> None:
        """Launch the kernels."""
        self.device.submit(self._calls())

    def seconds(self, number: int) -> float:
        return self.device.seconds(self._calls() * number)


def _word(p: Param, value: Any, kernel: GpuKernel) -> bytes:
    """Returns a scalar as the four bytes that a kernel reads. WebGpuError for an integer that does not fit."""
    kind = field_kind(p)
    if kind == "f32":
        return np.float32(value).tobytes()
    (form,) = c_types([p])
    whole = int(form(value).value) if form is not ctypes.c_void_p else int(value)
    if kind == "i32" and not -(1 << 31) <= whole < 1 << 31:
        raise WebGpuError(f"{kernel.name}: {p.name} = {whole} does not fit into 32 bits, which WGSL's integers have")
    return (whole & 0xFFFFFFFF).to_bytes(4, "little") if p.dtype.bits == 32 or kind == "i32" else (
        whole & ((1 << max(8, p.dtype.bits)) - 1)).to_bytes(4, "little")  # fmt: skip


def missing_adapter(target: Target) -> list[str]:
    """Returns what this machine lacks to run WebGPU kernels, or nothing."""
    try:
        webgpu_device()
    except WebGpuError as error:
        return [str(error).removeprefix("this machine has no ")]
    return []


WEBGPU = TargetKind(
    "webgpu", lambda functions, target: WebGpuModule(launch_functions(functions, target), target),
    "spirv-unknown-vulkan1.2-compute", gpu=True, fused=False, doubles=False, missing=missing_adapter, refuses=launch_problem,
    summary="adapters of WebGPU",
)  # fmt: skip
"""Adapters of WebGPU, over Vulkan, Metal and Direct3D, and browsers: ``target="webgpu"``."""


def _emit(functions: Sequence[LoweredFunc]) -> str:
    made = launch_functions({one.name: one.scheduled or one.func for one in functions}, Target("webgpu"))
    return WebGpuModule(made, Target("webgpu")).source


WGSL_TEXT = Backend("wgsl", ".wgsl", _emit)
"""The back end ``wgsl`` of modules, for functions whose loops are bound to blocks and threads."""
