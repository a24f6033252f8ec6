"""A kernel is a computation, a schedule for it by hand, and a NumPy reference that checks it.

``Kernel`` joins the three. ``run`` builds each one, compares its result with NumPy's, and prints how long it takes; the
comparison with other libraries is ``benchmarks/kernels.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.tir.cost import count_bytes, count_flops

Scheduler = Callable[[tw.PrimFunc, tw.Target], tw.Schedule]


@dataclass(frozen=True)
class Kernel:
    """One row of the table."""

    name: str
    """The name in tables: ``matmul 1024³``."""
    func: tw.PrimFunc
    """The unscheduled function: inputs first, one output last."""
    schedule: Scheduler
    """A function that schedules it for a target."""
    reference: Callable[..., Any]
    """The NumPy reference; it takes the input arrays and, as ``out=``, the array of the result."""
    operation: str = ""
    """The operation that ``benchmarks/peers.py`` runs in other libraries; none when it is empty."""
    options: dict[str, Any] = field(default_factory=dict)
    """Attributes of the operation: strides, padding."""
    yardstick: str = "peak"
    """The limit of the kernel: ``peak`` (multiply-adds), or the bandwidth of ``read``, ``copy``, ``triad`` or ``quad``
    sweeps over as many bytes."""
    goal: str = ""
    """The goal in words."""
    tolerance: float = 1e-4
    """The tolerance of the comparison with NumPy, relative to the largest value."""
    without: str = ""
    """A feature of this machine that it does not use: ``amx-tile``. Its limit is then that of the machine without it."""
    plain: Callable[[list[np.ndarray]], list[np.ndarray]] = list
    """The arrays in the layout in which other libraries are given them."""

    def target(self, cores: int) -> tw.Target:
        """This machine, with so many threads."""
        less = f"-mattr=-{self.without} " if self.without and tw.Target("native").has(self.without) else ""
        return tw.Target(f"native {less}-num-cores={cores}")

    def arrays(self, seed: int = 0) -> list[np.ndarray]:
        """Returns random inputs and an output full of NaN (or -1), in the order of the parameters."""
        rng = np.random.default_rng(seed)
        out = []
        for param in self.func.params:
            buffer = self.func.buffer_map[param]
            half = buffer.dtype == "bfloat16"
            array = _aligned([int(extent) for extent in buffer.shape], "uint16" if half else buffer.dtype)
            if half:  # its bits: the upper half of a float32's
                array[...] = rng.standard_normal(array.shape, "float32").view("uint32") >> 16
            elif array.dtype.kind == "f":
                array[...] = rng.standard_normal(array.shape)
            else:
                array[...] = rng.integers(0 if array.dtype.kind == "u" else -128, 128, array.shape)
            out.append(array)
        out[-1][...] = np.nan if out[-1].dtype.kind == "f" else -1
        return out

    @property
    def flops(self) -> float:
        """Returns the operations of one call."""
        return float(count_flops(self.func) or 0)

    @property
    def bytes(self) -> float:
        """Returns the bytes of all arguments, each moved once."""
        return float(count_bytes(self.func) or 0)

    def build(self, target: tw.Target) -> Any:
        """Returns the scheduled function, compiled."""
        return tw.build(self.schedule(self.func, target), target=target, name="kernel")

    def call_arrays(self, module: Any, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """``arrays`` as the module takes them: arguments that it expects in a packed layout are packed."""
        out = list(arrays)
        free = [int(n) for n in self.func.attrs.get("layout_free_buffers", ())]
        if free:
            made = module.pack_weights(*[arrays[n] for n in free])
            for n, packed in zip(free, made if isinstance(made, tuple) else (made,), strict=True):
                out[n] = packed
        return out

    def check(self, module: Any, arrays: Sequence[np.ndarray]) -> None:
        """Run the module once and raise AssertionError when its result is not NumPy's."""
        expected = np.empty_like(arrays[-1])
        self.reference(*arrays[:-1], out=expected)
        module(*self.call_arrays(module, arrays))
        scale = float(np.abs(expected).max()) or 1.0
        worst = float(np.abs(arrays[-1].astype("float64") - expected).max()) / scale
        assert worst <= self.tolerance, f"{self.name}: off by {worst:.2e} of the largest value"


def _aligned(shape: Sequence[int], dtype: str) -> np.ndarray:
    """Returns an array that starts at a cache line, as allocators of other libraries give them."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    room = np.empty(count + 64, "uint8")
    start = -room.ctypes.data % 64
    return room[start : start + count].view(dtype).reshape(shape)


def pick(kernels: Sequence[Kernel], words: Sequence[str]) -> list[Kernel]:
    """Returns the kernels whose name contains one of the words; all kernels when there are no words."""
    return [k for k in kernels if not words or any(w in k.name for w in words)]


def run(kernels: Sequence[Kernel], words: Sequence[str] = (), cores: int = 1) -> None:
    """Build, check and time each one."""
    for kernel in pick(kernels, words):
        module = kernel.build(kernel.target(cores))
        arrays = kernel.arrays()
        kernel.check(module, arrays)
        seconds = module.time_evaluator(repeat=10, min_repeat_ms=10)(*kernel.call_arrays(module, arrays)).median
        rate = f"{kernel.flops / seconds * 1e-9:.0f} GFLOP/s" if kernel.yardstick == "peak" else ""
        rate = rate or f"{kernel.bytes / seconds * 1e-9:.1f} GB/s"
        print(f"{kernel.name}: {seconds * 1e6:.1f} µs, {rate}")
