"""Kernels on an NVIDIA GPU, beside PyTorch on the same device: times, rates, ratios. One script, one run.

    python benchmarks/gpu.py --code DIR --build                  # anywhere: build the kernels ahead, into a folder
    python benchmarks/gpu.py --code DIR --rows rows.md           # on the device: run them, a row as soon as it is measured
    python benchmarks/gpu.py matmul softmax                      # build and run some of them
    python benchmarks/gpu.py --trials 128 --db gpu-records.db    # tuned first, in at most so many measurements each

Each kernel and its counterpart are timed in turns by events of the driver, with arrays on the device, and the results are
compared. Besides the ratio to PyTorch (cuBLAS, cuDNN, FlashAttention) the share of the device's bandwidth is printed, which the
driver names. Without PyTorch only our times are printed; without a device the script says so and ends with 1. ``--small`` has
small sizes, to see that everything runs.
"""

from __future__ import annotations

import argparse
import pickle
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw
from tilewright import te
from tilewright.gpu.ptx import CudaError, DeviceArray, cuda_driver


@dataclass(frozen=True)
class Kernel:
    """te tensors or the text of a workload, what PyTorch does instead, and the operations or bytes that its rate counts.

    ``goal``: the least ratio to PyTorch that we want. ``tolerance``: the largest difference between results of both, as a share of
    the largest result.
    """

    program: Any
    counterpart: Callable[..., Any]
    amount: float
    unit: str
    goal: float
    tolerance: float = 1e-5


def _inputs(dtype: str, **shapes: Sequence[int]) -> list[te.Tensor]:
    return [te.placeholder(tuple(shape), dtype, name) for name, shape in shapes.items()]


def _product(m: int, n: int, k: int, dtype: str, out: str, transposed: bool = False) -> list[te.Tensor]:
    """Returns A·B, or A·Bᵀ, with sums in float32, which ``out`` rounds."""
    a, b = _inputs(dtype, A=(m, k), B=(n, k) if transposed else (k, n))
    r = te.reduce_axis((0, k), name="k")

    def wide(x: Any) -> Any:
        return x.astype("float32")

    c = te.compute(
        (m, n), lambda i, j: te.sum(wide(a[i, r]) * wide(b[j, r] if transposed else b[r, j]), axis=r), name="C"
    )
    return [a, b, c if out == "float32" else te.compute((m, n), lambda i, j: c[i, j].astype(out), name="D")]


def _linear(m: int, n: int, k: int, dtype: str) -> list[te.Tensor]:
    """Returns gelu(A·Wᵀ + b), in ``dtype`` as PyTorch's layers have it."""
    a, w, c = _product(m, n, k, dtype, "float32", transposed=True)
    (bias,) = _inputs(dtype, bias=(n,))
    shifted = te.compute((m, n), lambda i, j: c[i, j] + bias[j].astype("float32"), name="shifted")
    active = te.ops.gelu(shifted)
    return [a, w, bias, te.compute((m, n), lambda i, j: active[i, j].astype(dtype), name="D")]


def _attention(heads: int, seq: int, dim: int, dtype: str) -> list[te.Tensor]:
    q, k, v = _inputs(dtype, Q=(heads, seq, dim), K=(heads, seq, dim), V=(heads, seq, dim))
    return [q, k, v, te.ops.attention(q, k, v)]


def _convolution(n: int, c: int, o: int, size: int, window: int, stride: int) -> list[te.Tensor]:
    x, w = _inputs("float32", X=(n, c, size, size), W=(o, c, window, window))
    return [x, w, te.ops.conv2d(x, w, stride, window // 2)]


def _convolution_of_halves(n: int, c: int, o: int, size: int, window: int) -> list[te.Tensor]:
    """Returns a convolution of float16 with the channels last, sums in float32, rounded at the end."""
    x, w = _inputs("float16", X=(n, size, size, c), W=(window, window, c, o))
    p = window // 2

    def padded(b: Any, i: Any, j: Any, q: Any) -> Any:
        inside = te.all(i >= p, i < size + p, j >= p, j < size + p)
        return te.if_then_else(inside, x[b, i - p, j - p, q], te.const(0, "float16"))

    source = te.compute((n, size + 2 * p, size + 2 * p, c), padded, name="padded") if p else x
    r, t, q = [te.reduce_axis((0, e), name=name) for e, name in ((window, "r"), (window, "t"), (c, "q"))]
    y = te.compute(
        (n, size, size, o),
        lambda b, i, j, k: te.sum(source[b, i + r, j + t, q].astype("float32") * w[r, t, q, k].astype("float32"), axis=[r, t, q]),
        name="sums",
    )  # fmt: skip
    return [x, w, te.compute(y.shape, lambda *i: y[i].astype("float16"), name="Y")]


def kernels(torch: Any, small: bool = False) -> dict[str, Kernel]:
    """Returns the kernels by name."""
    f = torch.nn.functional if torch is not None else None
    rows, columns, many = (64, 256, 1 << 12) if small else (8192, 4096, 1 << 26)
    moved = 8 * rows * columns
    out: dict[str, Kernel] = {}
    for n in (128, 256) if small else (4096, 8192):
        flops = 2 * n**3
        out[f"bfloat16 {n}"] = Kernel(
            _product(n, n, n, "bfloat16", "bfloat16"), lambda a, b: a @ b, flops, "TFLOP/s", 0.85, 1e-2)  # fmt: skip
        out[f"float16 {n}"] = Kernel(
            _product(n, n, n, "float16", "float16"), lambda a, b: a @ b, flops, "TFLOP/s", 0.85, 2e-3)  # fmt: skip
        out[f"bfloat16 {n}, sums"] = Kernel(
            _product(n, n, n, "bfloat16", "float32"), lambda a, b: a @ b, flops, "TFLOP/s", 0.85, 1e-2)  # fmt: skip
        out[f"linear gelu {n}"] = Kernel(
            _linear(n, n, n, "bfloat16"), lambda a, w, b: f.gelu(f.linear(a, w, b)), flops, "TFLOP/s", 0.85, 1e-2)  # fmt: skip
    n = 128 if small else 4096
    out["matmul"] = Kernel(f"matmul:M={n},N={n},K={n}", lambda a, b: a @ b, 2 * n**3, "TFLOP/s", 0.9)

    def attended(q: Any, k: Any, v: Any) -> Any:
        return f.scaled_dot_product_attention(q[None], k[None], v[None])[0]

    for dim in (64, 128):
        for seq in (64,) if small else (2048, 4096, 16384):
            heads = max(1, (1 << 19) // (seq * dim // 4))
            out[f"attention {dim} {seq}"] = Kernel(
                _attention(heads, seq, dim, "bfloat16"), attended, 4 * heads * seq * seq * dim, "TFLOP/s", 0.9, 2e-2
            )
    heads, seq = (2, 64) if small else (64, 1024)
    out["attention"] = Kernel(
        f"attention:heads={heads},seq={seq},dim=64", attended, 4 * heads * seq * seq * 64, "TFLOP/s", 0.6
    )
    for c, o, size, window, stride in [
        (64, 64, 56, 1, 1), (64, 64, 56, 3, 1), (64, 256, 56, 1, 1), (128, 128, 28, 3, 1), (256, 256, 14, 3, 1),
        (512, 512, 7, 3, 1), (256, 512, 56, 1, 2), (3, 64, 224, 7, 2),
    ]:  # fmt: skip
        if small:
            c, o, size = min(c, 8), 8, 14
        batch, wide = (1 if small else 32), size // stride
        out[f"conv {c}-{o} {size} {window}x{window}/{stride}"] = Kernel(
            _convolution(batch, c, o, size, window, stride),
            lambda x, w, stride=stride, window=window: f.conv2d(x, w, None, stride, window // 2),
            2 * batch * c * o * wide**2 * window**2, "TFLOP/s", 0.8,
        )  # fmt: skip
    for c, o, size, window in ((64, 64, 56, 3), (64, 256, 56, 1), (256, 256, 14, 3)):
        batch, size = (1, 14) if small else (32, size)
        out[f"conv16 {c}-{o} {size} {window}x{window}"] = Kernel(
            _convolution_of_halves(batch, c, o, size, window),
            lambda x, w, window=window: f.conv2d(
                x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), None, 1, window // 2
            ).permute(0, 2, 3, 1),
            2 * batch * c * o * size**2 * window**2, "TFLOP/s", 0.8, 2e-3,
        )  # fmt: skip
    rms = _inputs("float32", X=(rows, columns), G=(columns,))
    out |= {
        "softmax": Kernel(f"softmax:M={rows},N={columns}", lambda x: f.softmax(x, -1), moved, "TB/s", 0.9),
        "layer_norm": Kernel(
            f"layer_norm:M={rows},N={columns}", lambda x, g, b: f.layer_norm(x, (columns,), g, b), moved, "TB/s", 0.9
        ),
        "rms_norm": Kernel(
            [*rms, te.ops.rms_norm(*rms)], lambda x, g: f.rms_norm(x, (columns,), g, 1e-5), moved, "TB/s", 0.9
        ),
        "elementwise": Kernel(f"mul_add_relu:n={many}", lambda a, b, c: f.relu(a * b + c), 16 * many, "TB/s", 0.9),
        "row_sums": Kernel(f"sum:M={rows},N={columns},axis=1", lambda x: x.sum(1), moved / 2, "TB/s", 0.9),
        "transpose": Kernel(f"transpose:M={rows},N={columns}", lambda x: x.T.contiguous(), moved, "TB/s", 0.9),
    }
    return out


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


def built(name: str, program: Any, options: argparse.Namespace) -> Any:
    """Returns the module of a kernel: the one that lies in the folder of ``--code``, or else one built now, which is put there."""
    target = f"cuda -arch={options.arch}"
    kept = (
        Path(options.code, f"{name.replace(' ', '_').replace('/', '_')}.{options.arch}.pkl") if options.code else None
    )
    if kept is not None and kept.exists():
        return pickle.loads(kept.read_bytes())
    if options.trials:
        tw.tune(program, target, trials=options.trials, db=options.db)
    module = tw.build(program, target, db=options.db if options.trials else None)
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(pickle.dumps(module))
    return module


def measure(name: str, kernel: Kernel, torch: Any, options: argparse.Namespace) -> str:
    """Returns a row: our time and rate, the ratio to PyTorch's time in the same rounds, the difference, where the schedule is from."""
    module = built(name, kernel.program, options)
    rng = np.random.default_rng(0)
    buffers = [p.buffer for p in module.entry.params]
    shapes = [tuple(int(e) for e in b.shape) for b in buffers]
    values = [rng.standard_normal(s, np.float32) for s in shapes[:-1]]
    if torch is None:
        arrays: list[Any] = [*map(DeviceArray.of, values), DeviceArray(shapes[-1], buffers[-1].dtype)]
    else:
        kinds = [getattr(torch, str(b.dtype)) for b in buffers]
        arrays = [torch.from_numpy(x).cuda().to(kind) for x, kind in zip(values, kinds[:-1], strict=True)]
        arrays.append(torch.empty(shapes[-1], dtype=kinds[-1], device="cuda"))
    ours, theirs = [], []
    call = module.bind(*arrays)
    call()
    seconds = call.seconds(1)
    number = max(1, min(options.number, int(0.05 / seconds)))
    rounds = max(2, min(options.rounds, int(options.limit / (seconds * number))))
    for _ in range(rounds):
        ours.append(call.seconds(number) / number)
        if torch is not None:
            theirs.append(_seconds_of_torch(torch, kernel.counterpart, arrays[:-1], number))
    seconds = statistics.median(ours)
    cells = [name, f"{seconds * 1e6:.1f}", f"{kernel.amount / seconds / 1e12:.3f} {kernel.unit}"]
    share = kernel.amount / seconds / options.bandwidth if kernel.unit == "TB/s" and options.bandwidth else None
    cells.append("" if share is None else f"{share:.2f}")
    if torch is None:
        return _row([*cells, "", "", module.origin])
    ratio = statistics.median(theirs[1:] or theirs) / seconds
    want = kernel.counterpart(*arrays[:-1]).float()
    error = float((arrays[-1].float() - want).abs().max() / want.abs().max())
    fine = "" if error <= kernel.tolerance else f" WRONG, at most {kernel.tolerance:g}"
    return _row([*cells, f"{ratio:.2f} (goal {kernel.goal:g})", f"{error:.0e}{fine}", module.origin])


def launch_times(torch: Any, options: argparse.Namespace) -> list[str]:
    """Returns rows of the time of one call of a kernel of 256 elements, as the host sees it."""
    x = te.placeholder((256,), name="X")
    module = built("launch", [x, te.compute((256,), lambda i: x[i] * 2, name="Y")], options)
    arrays = [DeviceArray.of(np.ones(256, "float32")), DeviceArray((256,), "float32")]
    calls: dict[str, Callable[[], Any]] = {"a call of a module": lambda: module(*arrays)}
    bound = module.bind(*arrays)
    calls["launches that were prepared"] = bound._launches
    if torch is not None:
        tensors = [torch.ones(256, device="cuda"), torch.empty(256, device="cuda")]
        calls["a call of a module with tensors"] = lambda: module(*tensors)
        calls["PyTorch, torch.mul"] = lambda: torch.mul(tensors[0], 2, out=tensors[1])
    out = []
    for name, call in calls.items():
        call()
        found = []
        for _ in range(20):
            begun = time.perf_counter()
            for _ in range(100):
                call()
            found.append((time.perf_counter() - begun) / 100)
            cuda_driver().wait()
        out.append(_row([f"launch: {name}", f"{min(found) * 1e6:.2f}", "", "", "", "", ""]))
    return out


HEAD = ("kernel", "us", "rate", "of the bandwidth", "of PyTorch", "largest difference", "schedule")


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", help="names, or beginnings of names; launch for the time of a call")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--number", type=int, default=5, help="calls in a row that are timed together, at most")
    parser.add_argument("--limit", type=float, default=2.0, help="seconds that our part of a kernel's rounds may take")
    parser.add_argument("--trials", type=int, default=0, help="tune each kernel first, with so many measurements")
    parser.add_argument("--db", default="gpu-records.db")
    parser.add_argument("--code", help="a folder of kernels built ahead")
    parser.add_argument("--build", action="store_true", help="fill the folder of --code; needs no device")
    parser.add_argument("--arch", help="the architecture to build for; the device's, with --build sm_90a")
    parser.add_argument("--rows", type=Path, help="a file to which rows are added")
    parser.add_argument("--small", action="store_true")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    """Time the kernels that the command line names."""
    options = _arguments(words)
    torch = _torch()
    known = kernels(torch, options.small)
    missing = [word for word in options.kernels if not any(name.startswith(word) for name in (*known, "launch"))]
    if missing:
        print(f"no kernel begins with {', '.join(missing)}; there are {', '.join(known)}, launch")
        return 2
    chosen = [name for name in known if not options.kernels or any(name.startswith(word) for word in options.kernels)]
    if options.build:
        options.arch = options.arch or "sm_90a"
        for name in chosen:
            begun = time.perf_counter()
            try:
                said = built(name, known[name].program, options).origin
            except Exception as error:  # the others go on
                said = f"failed: {type(error).__name__}: {error}".split("\n")[0]
            print(f"{name}: {time.perf_counter() - begun:.1f} s, {said}", flush=True)
        return 0
    try:
        driver = cuda_driver()
    except CudaError as error:
        print(error)
        return 1
    options.arch = options.arch or (
        "sm_90a" if driver.arch == "sm_90" else min(driver.arch, "sm_90", key=lambda a: int(a[3:]))
    )
    options.bandwidth = 2e3 * driver.attribute(36) * driver.attribute(37) / 8  # double data rate, kHz and bits
    with_torch = "without PyTorch" if torch is None else f"PyTorch {torch.__version__}"
    if torch is not None:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    failed = 0

    def say(line: str) -> None:
        print(line, flush=True)
        if options.rows is not None:
            with options.rows.open("a") as file:
                file.write(line + "\n")

    say(f"{driver.name}, {driver.arch}, {options.bandwidth / 1e12:.2f} TB/s; {with_torch}\n")
    say(_row(HEAD))
    say(_row(["---"] * len(HEAD)))
    for name in chosen:
        try:
            say(measure(name, known[name], torch, options))
        except Exception as error:  # the others go on
            failed += 1
            say(_row([name, f"failed: {type(error).__name__}: {error}".split("\n")[0], "", "", "", "", ""]))
    if not options.kernels or any("launch".startswith(word) for word in options.kernels):
        for line in launch_times(torch, options):
            say(line)
    return 2 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
