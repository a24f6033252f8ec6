"""Kernels on an NVIDIA GPU, beside PyTorch on the same device: times, rates, ratios. One script, one run.

    python benchmarks/gpu.py                                     # all kernels, scheduled by the analytic model
    python benchmarks/gpu.py matmul softmax                      # some of them
    python benchmarks/gpu.py --trials 128 --db gpu-records.db    # tuned first, in at most so many measurements each

Each kernel and its counterpart are timed in turns by events of the driver, with arrays on the device, and the results are
compared. Besides the ratio to PyTorch (cuBLAS, cuDNN, FlashAttention) the share of the device's bandwidth is printed, which the
driver names. Without PyTorch only our times are printed; without a device the script says so and ends with 1. ``--small`` has
small sizes, to see that everything runs.
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
from tilewright import te
from tilewright.gpu.ptx import CudaError, DeviceArray, cuda_driver


@dataclass(frozen=True)
class Kernel:
    """te tensors or the text of a workload, what PyTorch does instead, and the operations or bytes that its rate counts.

    ``goal``: the least ratio to PyTorch that we want. ``tolerance``: the largest difference between results of both.
    """

    program: Any
    counterpart: Callable[..., Any]
    amount: float
    unit: str
    goal: float
    tolerance: float = 1e-3


def _product(n: int, dtype: str, out: str = "float32") -> list[te.Tensor]:
    a, b = te.placeholder((n, n), dtype, "A"), te.placeholder((n, n), dtype, "B")
    k = te.reduce_axis((0, n), name="k")
    return [a, b, te.compute((n, n), lambda i, j: te.sum(a[i, k].astype(out) * b[k, j].astype(out), axis=k), name="C")]


def kernels(torch: Any, small: bool = False) -> dict[str, Kernel]:
    """Returns the kernels by name."""
    f = torch.nn.functional if torch is not None else None
    n, rows, columns, heads, seq, dim, many = (
        (128, 64, 256, 2, 64, 32, 1 << 12) if small else (4096, 8192, 4096, 64, 1024, 64, 1 << 26)
    )
    moved = 8 * rows * columns
    return {
        "matmul": Kernel(f"matmul:M={n},N={n},K={n}", lambda a, b: a @ b, 2 * n**3, "TFLOP/s", 0.9, 1e-2),
        "matmul_fp16": Kernel(_product(n, "float16"), lambda a, b: a @ b, 2 * n**3, "TFLOP/s", 0.75, 0.3),  # 0.9 with wgmma
        "softmax": Kernel(f"softmax:M={rows},N={columns}", lambda x: f.softmax(x, -1), moved, "TB/s", 0.9),
        "layer_norm": Kernel(
            f"layer_norm:M={rows},N={columns}", lambda x, g, b: f.layer_norm(x, (columns,), g, b), moved, "TB/s", 0.9
        ),
        "elementwise": Kernel(
            f"mul_add_relu:n={many}", lambda a, b, c: f.relu(a * b + c), 16 * many, "TB/s", 0.9
        ),
        "row_sums": Kernel(f"sum:M={rows},N={columns},axis=1", lambda x: x.sum(1), moved / 2, "TB/s", 0.9, 1e-2),
        "transpose": Kernel(f"transpose:M={rows},N={columns}", lambda x: x.T.contiguous(), moved, "TB/s", 0.9),
        "attention": Kernel(
            f"attention:heads={heads},seq={seq},dim={dim}",
            lambda q, k, v: f.scaled_dot_product_attention(q[None], k[None], v[None])[0], 4 * heads * seq * seq * dim,
            "TFLOP/s", 0.6,
        ),
    }  # fmt: skip


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def _seconds_of_torch(torch: Any, run: Callable[..., Any], inputs: list[Any], number: int) -> float:
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first.record()
    for _ in range(number):
        run(*inputs)
    last.record()
    last.synchronize()
    return float(first.elapsed_time(last)) / 1e3 / number


def measure(name: str, kernel: Kernel, torch: Any, options: argparse.Namespace) -> str:
    """Returns a line: our time and rate, the ratio to PyTorch's time in the same rounds, and where the schedule comes from."""
    target = f"cuda -arch={options.arch}"
    if options.trials:
        tw.tune(kernel.program, target, trials=options.trials, db=options.db)
    module = tw.build(kernel.program, target, db=options.db if options.trials else None)
    rng = np.random.default_rng(0)
    buffers = [p.buffer for p in module.entry.params]
    shapes = [tuple(int(e) for e in b.shape) for b in buffers]
    inputs = [rng.standard_normal(s, np.float32).astype(b.dtype) for s, b in zip(shapes[:-1], buffers, strict=False)]
    arrays = [*map(DeviceArray.of, inputs), DeviceArray(shapes[-1], buffers[-1].dtype)]
    ours, theirs = [], []
    call = module.bind(*arrays)
    call()
    tensors = [] if torch is None else [torch.from_numpy(x).cuda() for x in inputs]
    for _ in range(options.rounds):
        ours.append(call.seconds(options.number) / options.number)
        if torch is not None:
            theirs.append(_seconds_of_torch(torch, kernel.counterpart, tensors, options.number))
    seconds = statistics.median(ours)
    line = f"{name:12} {seconds * 1e6:10.1f} us  {kernel.amount / seconds / 1e12:8.3f} {kernel.unit:8}"
    if kernel.unit == "TB/s" and options.bandwidth:
        line += f"{100 * kernel.amount / seconds / options.bandwidth:5.0f} % of the bandwidth"
    if torch is not None:
        ratio = statistics.median(theirs[1:] or theirs) / seconds
        error = np.abs(arrays[-1].numpy() - kernel.counterpart(*tensors).float().cpu().numpy()).max()
        fine = "" if error <= kernel.tolerance else f" WRONG, at most {kernel.tolerance:g}"
        line += f" {ratio:6.2f} of PyTorch (goal {kernel.goal:g}), largest difference {error:.1e}{fine}"
    return f"{line}  {module.origin}"


def main(words: list[str] | None = None) -> int:
    """Time the kernels that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--number", type=int, default=5, help="calls in a row that are timed together")
    parser.add_argument("--trials", type=int, default=0, help="tune each kernel first, with so many measurements")
    parser.add_argument("--db", default="gpu-records.db")
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args(words)
    try:
        driver = cuda_driver()
    except CudaError as error:
        print(error)
        return 1
    torch = _torch()
    options.arch = "sm_90a" if driver.arch == "sm_90" else min(driver.arch, "sm_90", key=lambda a: int(a[3:]))
    options.bandwidth = 2e3 * driver.attribute(36) * driver.attribute(37) / 8  # double data rate, kHz and bits
    with_torch = "without PyTorch" if torch is None else f"PyTorch {torch.__version__}"
    print(f"{driver.name}, {driver.arch}, {options.bandwidth / 1e12:.2f} TB/s; {with_torch}")
    if torch is not None:
        torch.backends.cuda.matmul.allow_tf32 = False
    known = kernels(torch, options.small)
    failed = 0
    for name in options.kernels or known:
        try:
            print(measure(name, known[name], torch, options), flush=True)
        except Exception as error:  # the others go on
            failed += 1
            print(f"{name:12} failed: {type(error).__name__}: {error}".split("\n")[0], flush=True)
    return 2 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
