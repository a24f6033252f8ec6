"""Kernels on an NVIDIA GPU, beside PyTorch on the same device: times, rates, ratios. One script, one run.

    python benchmarks/gpu.py                  # all kernels
    python benchmarks/gpu.py matmul softmax   # some of them
    python benchmarks/gpu.py --rounds 20

Each kernel and its counterpart are timed in turns by events of the driver, with arrays on the device, and the results are
compared. Without PyTorch only our times are printed; without a device the script says so and ends with 1. Kernels are
scheduled by the recipes for GPUs, not tuned.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.codegen.gpu.ptx import CudaError, DeviceArray, cuda_driver


@dataclass(frozen=True)
class Kernel:
    """A workload, what PyTorch does instead, and the operations or bytes that its rate counts."""

    spec: str
    counterpart: Callable[..., Any]
    amount: float
    unit: str


def _kernels(torch: Any) -> dict[str, Kernel]:
    f = getattr(torch, "nn", None) and torch.nn.functional
    n, rows, columns, heads, seq, dim = 4096, 8192, 4096, 64, 1024, 64
    return {
        "matmul": Kernel(f"matmul:M={n},N={n},K={n}", lambda a, b: a @ b, 2 * n**3, "TFLOP/s"),
        "softmax": Kernel(f"softmax:M={rows},N={columns}", lambda x: f.softmax(x, -1), 8 * rows * columns, "TB/s"),
        "layer_norm": Kernel(
            f"layer_norm:M={rows},N={columns}", lambda x, g, b: f.layer_norm(x, (columns,), g, b), 8 * rows * columns,
            "TB/s",
        ),
        "elementwise": Kernel(
            f"mul_add_relu:n={1 << 26}", lambda a, b, c: f.relu(a * b + c), 16 << 26, "TB/s"
        ),
        "transpose": Kernel(
            f"transpose:M={rows},N={columns}", lambda x: x.T.contiguous(), 8 * rows * columns, "TB/s"
        ),
        "attention": Kernel(
            f"attention:heads={heads},seq={seq},dim={dim}",
            lambda q, k, v: f.scaled_dot_product_attention(q, k, v), 4 * heads * seq * seq * dim, "TFLOP/s",
        ),
    }  # fmt: skip


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def _seconds_of_torch(torch: Any, run: Callable[..., Any], inputs: list[Any]) -> float:
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first.record()
    run(*inputs)
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last)) / 1e3


def measure(kernel: Kernel, arch: str, torch: Any, rounds: int) -> str:
    """Returns a line: our time and rate, and the ratio to PyTorch's time in the same rounds."""
    module = tw.build(kernel.spec, f"cuda -arch={arch}")
    rng = np.random.default_rng(0)
    shapes = [tuple(int(e) for e in p.buffer.shape) for p in module.entry.params]
    inputs = [rng.standard_normal(shape, dtype=np.float32) for shape in shapes[:-1]]
    arrays = [*map(DeviceArray.of, inputs), DeviceArray(shapes[-1], np.float32)]
    ours, theirs = [], []
    evaluate = module.time_evaluator(repeat=1)
    tensors = [] if torch is None else [torch.from_numpy(x).cuda() for x in inputs]
    for _ in range(rounds):
        ours.append(evaluate(*arrays).min)
        if torch is not None:
            theirs.append(_seconds_of_torch(torch, kernel.counterpart, tensors))
    seconds = statistics.median(ours)
    line = f"{kernel.spec:36} {seconds * 1e6:10.1f} us  {kernel.amount / seconds / 1e12:7.2f} {kernel.unit:8}"
    if torch is None:
        return line
    error = np.abs(arrays[-1].numpy() - kernel.counterpart(*tensors).cpu().numpy()).max()
    return (
        f"{line} {statistics.median(theirs[1:] or theirs) / seconds:6.2f} of PyTorch   largest difference {error:.1e}"
    )


def main() -> int:
    """Time the kernels that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*")
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    try:
        driver = cuda_driver()
    except CudaError as error:
        print(error)
        return 1
    torch = _torch()
    arch = min(driver.arch, "sm_90", key=lambda a: int(a[3:]))
    print(f"{driver.name}, {driver.arch}; {'without PyTorch' if torch is None else f'PyTorch {torch.__version__}'}")
    if torch is not None:
        torch.backends.cuda.matmul.allow_tf32 = False
    for name, kernel in _kernels(torch).items():
        if not options.kernels or name in options.kernels:
            print(measure(kernel, arch, torch, options.rounds), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
