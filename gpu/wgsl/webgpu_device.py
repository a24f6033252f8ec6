"""The WebGPU adapter that kernels run on, by the package wgpu: its limits, its queue, and shaders compiled for it.

Nothing is loaded until :func:`webgpu_device` is called. It takes the first GPU of Vulkan, Metal or Direct3D 12, else
another adapter of theirs; ``TILEWRIGHT_WEBGPU_ADAPTER`` is a part of the name of the adapter or of its driver to take instead.
"""

from __future__ import annotations

import os
from functools import cache, cached_property
from typing import Any

import numpy as np

from ..device_module import chosen_device
from ..launch.kernels import GpuKernel
from ..launch.launch_form import GpuError

CHOICE = "TILEWRIGHT_WEBGPU_ADAPTER"
"""The variable of the environment that names an adapter."""
_HOW = "pip install wgpu brings WebGPU; the driver of a GPU, or lavapipe for processors (Debian: mesa-vulkan-drivers), an adapter"
_BACKENDS = ("Vulkan", "Metal", "D3D12")
_CLOCK = "timestamp-query"
_MANY = 100_001
"""The iterations of a loop that asks whether the driver leaves loops early."""
_COUNTS = """
@group(0) @binding(0) var<storage, read_write> count: array<u32>;
@compute @workgroup_size(1) fn counts() {
  var seen = 0u;
  for (var n = 0u; n < count[0]; n++) { seen ^= n; }
  count[0] = seen;
}
"""


class WebGpuError(GpuError):
    """Raised when WebGPU reports an error, or when this machine has no adapter for it."""


class WebGpuDevice:
    """A device of an adapter, with all that its limits allow, and a queue whose commands run in order."""

    def __init__(self) -> None:
        try:
            import wgpu
        except ImportError as error:
            raise WebGpuError(f"this machine has no package wgpu: {_HOW}") from error
        self.wgpu = wgpu
        adapters = _adapters(wgpu)
        names = [f"{a.info['device']} ({a.info['backend_type']}, {a.info['description']})" for a in adapters]
        chosen = chosen_device(names, CHOICE, "WebGPU adapter", _HOW, WebGpuError)
        adapter, self.name = adapters[chosen], names[chosen]
        self.limits: dict[str, int] = dict(adapter.limits)
        self.has_clock = _CLOCK in adapter.features
        self.device = adapter.request_device_sync(
            required_features=[_CLOCK] if self.has_clock else [], required_limits=self.limits
        )
        self.queue = self.device.queue
        self._last = self.memory(4)

    def __repr__(self) -> str:
        return f"<WebGpuDevice {self.name}>"

    @cached_property
    def leaves_loops(self) -> bool:
        """Whether the driver leaves loops after some iterations, and gives wrong results, as lavapipe does."""
        count = self.memory(4)
        self.write(count, np.array([_MANY], np.uint32))
        pipeline, layout = self.pipeline(self.compiled(_COUNTS), "counts", ["storage"])
        entry = {"binding": 0, "resource": {"buffer": count, "offset": 0, "size": 4}}
        self.submit([(pipeline, self.device.create_bind_group(layout=layout, entries=[entry]), (1, 1, 1))])
        counted = np.zeros(1, np.uint32)
        self.read(counted, count)
        return bool(counted[0] != np.bitwise_xor.reduce(np.arange(_MANY, dtype=np.uint32)))

    def memory(self, size: int) -> Any:
        """Return memory of ``size`` bytes, in whole words and at least one, on the device."""
        most = min(self.limits["max-buffer-size"], self.limits["max-storage-buffer-binding-size"])
        if size > most:
            raise WebGpuError(f"an array has {size} bytes, {self.name} allows {most}")
        use = self.wgpu.BufferUsage
        return self.device.create_buffer(
            size=max(-(-size // 4) * 4, 4), usage=use.STORAGE | use.COPY_SRC | use.COPY_DST
        )

    def uniform(self, values: bytes) -> Any:
        """Return memory that holds values which all threads read."""
        padded = values + bytes(-len(values) % 16)
        return self.device.create_buffer_with_data(data=padded, usage=self.wgpu.BufferUsage.UNIFORM)

    def write(self, memory: Any, source: np.ndarray) -> None:
        """Copy the bytes of an array to the device."""
        raw = source.view(np.uint8).reshape(-1)
        if raw.nbytes % 4:
            raw = np.concatenate([raw, np.zeros(-raw.nbytes % 4, np.uint8)])
        self.queue.write_buffer(memory, 0, raw)

    def read(self, target: np.ndarray, memory: Any) -> None:
        """Copy from the device into an array, behind all that was asked of the device before."""
        raw = np.frombuffer(self.queue.read_buffer(memory), np.uint8)
        into = target.view(np.uint8).reshape(-1)
        into[:] = raw[: into.nbytes]

    def finish(self) -> None:
        """Wait until the device has done what it was asked."""
        self.queue.read_buffer(self._last)  # behind all commands; wgpu 0.32 cannot ask the queue itself

    def compiled(self, text: str) -> Any:
        """Return a shader module. WebGpuError where the device or its compiler refuses it."""
        return self._asked(lambda: self.device.create_shader_module(code=text))

    def pipeline(self, shader: Any, name: str, kinds: list[str]) -> Any:
        """Return the pipeline of an entry point, whose bindings are of these kinds, and their layout."""
        visible = self.wgpu.ShaderStage.COMPUTE
        entries = [{"binding": n, "visibility": visible, "buffer": {"type": kind}} for n, kind in enumerate(kinds)]
        layout = self.device.create_bind_group_layout(entries=entries)

        def made() -> Any:
            whole = self.device.create_pipeline_layout(bind_group_layouts=[layout])
            return self.device.create_compute_pipeline(layout=whole, compute={"module": shader, "entry_point": name})

        return self._asked(made), layout

    def _asked(self, ask: Any) -> Any:
        try:
            return ask()
        except self.wgpu.GPUError as error:  # type: ignore[attr-defined]
            said = " ".join(str(error).split())
            raise WebGpuError(f"{self.name} refuses the kernels: {said[:600]}") from error

    def submit(self, calls: list[tuple[Any, Any, tuple[int, ...]]], clock: Any = None) -> None:
        """Run kernels, each a pipeline, its bind group and the workgroups, in their order; ``clock``: what takes the time."""
        encoder = self.device.create_command_encoder()
        timed = {} if clock is None else {"timestamp_writes": {
            "query_set": clock, "beginning_of_pass_write_index": 0, "end_of_pass_write_index": 1}}  # fmt: skip
        compute = encoder.begin_compute_pass(**timed)
        for pipeline, group, grid in calls:
            compute.set_pipeline(pipeline)
            compute.set_bind_group(0, group)
            compute.dispatch_workgroups(*grid)
        compute.end()
        if clock is not None:
            encoder.resolve_query_set(clock, 0, 2, self._times, 0)
        self.queue.submit([encoder.finish()])

    def seconds(self, calls: list[tuple[Any, Any, tuple[int, ...]]]) -> float:
        """Return the seconds of kernels together, by the device's clock. WebGpuError where it has none."""
        if not self.has_clock:
            raise WebGpuError(f"{self.name} has no clock ({_CLOCK}), so nothing is timed")
        use = self.wgpu.BufferUsage
        clock = self.device.create_query_set(type="timestamp", count=2)
        self._times = self.device.create_buffer(size=16, usage=use.QUERY_RESOLVE | use.COPY_SRC)
        self.submit(calls, clock)
        start, end = np.frombuffer(self.queue.read_buffer(self._times), np.uint64)
        return float(int(end) - int(start)) * 1e-9

    def check(self, kernel: GpuKernel, bindings: int) -> None:
        """Raise WebGpuError for a kernel that is larger than the device allows."""
        threads = kernel.block[0] * kernel.block[1] * kernel.block[2]
        sizes = zip(kernel.block, [self.limits[f"max-compute-workgroup-size-{axis}"] for axis in "xyz"], strict=True)
        most = self.limits["max-compute-invocations-per-workgroup"]
        if threads > most or any(n > limit for n, limit in sizes):
            raise WebGpuError(f"{kernel.name} has {threads} threads in a block, {self.name} at most {most}")
        room, arrays = (
            self.limits["max-compute-workgroup-storage-size"],
            self.limits["max-storage-buffers-per-shader-stage"],
        )
        if kernel.shared_bytes > room:
            raise WebGpuError(
                f"{kernel.name} needs {kernel.shared_bytes} bytes of shared memory, {self.name} has {room}"
            )
        if bindings > arrays:
            raise WebGpuError(f"{kernel.name} takes {bindings} arrays, {self.name} at most {arrays}")

    def check_grid(self, kernel: GpuKernel, grid: tuple[int, ...]) -> None:
        """Raise WebGpuError for a launch of more blocks along an axis than the device allows."""
        most = self.limits["max-compute-workgroups-per-dimension"]
        if max(grid) > most:
            raise WebGpuError(f"{kernel.name} has {max(grid)} blocks along an axis, {self.name} at most {most}")


def _adapters(wgpu: Any) -> list[Any]:
    """Returns the adapters, GPUs first. Those of OpenGL lack what kernels need."""
    os.environ.setdefault("XDG_RUNTIME_DIR", os.environ.get("TMPDIR", "/tmp"))  # without it, drivers print warnings
    found = [a for a in wgpu.gpu.enumerate_adapters_sync() if a.info["backend_type"] in _BACKENDS]
    kinds = ("DiscreteGPU", "IntegratedGPU", "VirtualGPU")
    return sorted(
        found, key=lambda a: next((n for n, k in enumerate(kinds) if k == a.info["adapter_type"]), len(kinds))
    )


@cache
def webgpu_device() -> WebGpuDevice:
    """Returns the device that kernels run on. WebGpuError says how to get one where there is none."""
    return WebGpuDevice()
