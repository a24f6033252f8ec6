"""Ten kinds of kernels on GPUs: equal to NumPy on the simulated one, taken by ptxas for three architectures.

    python -m tests.gpu.kernel_table             # run all, print a line each
    python -m tests.gpu.kernel_table --markdown  # the table of docs/guides/gpu.md

Results are compared at awkward sizes (``small``); the assembler gets the sizes of ``large``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilewright as tw
from tilewright import te
from tilewright.gpu.ptx import PtxasReport, find_ptxas, run_ptxas

ARCHITECTURES = ("sm_80", "sm_90", "sm_90a")
OWN = {"sm_90a": ("fp16 matmul",)}
"""The kernels that are others for an architecture than for the one before; the rest is not assembled again."""


@dataclass(frozen=True)
class Case:
    """A kernel: ``build(*sizes)`` returns its te tensors, ``reference(*inputs)`` its result. ``tolerance``: 0 where the
    inputs are integers and the result is exact; ``index``: of the input that holds indices, below the first size."""

    build: Callable[..., list[Any]]
    reference: Callable[..., np.ndarray]
    small: tuple[int, ...]
    large: tuple[int, ...]
    tolerance: float = 0
    index: int | None = None


def _matmul(m, n, k, dtype="float32", out="float32"):
    held = "float32" if dtype == "tf32" else dtype
    a, b = te.placeholder((m, k), held, "A"), te.placeholder((k, n), held, "B")
    r = te.reduce_axis((0, k), name="k")
    wide = te.round_tf32 if dtype == "tf32" else (lambda x: x.astype(out))
    return [a, b, te.compute((m, n), lambda i, j: te.sum(wide(a[i, r]) * wide(b[r, j]), axis=r), name="C")]


def _conv(ci, co, h, w):
    x, k = te.placeholder((1, ci, h, w), name="X"), te.placeholder((co, ci, 3, 3), name="W")
    return [x, k, te.ops.conv2d(x, k, 1, 1)]


def _depthwise(c, h, w):
    x, k = te.placeholder((1, c, h, w), name="X"), te.placeholder((c, 1, 3, 3), name="W")
    return [x, k, te.ops.depthwise_conv2d(x, k, 1, 1)]


def _softmax(m, n):
    x = te.placeholder((m, n), name="X")
    return [x, te.ops.softmax(x)]


def _layer_norm(m, n):
    x, g, b = te.placeholder((m, n), name="X"), te.placeholder((n,), name="G"), te.placeholder((n,), name="B")
    return [x, g, b, te.ops.layer_norm(x, g, b)]


def _reduction(m, n):
    x = te.placeholder((m, n), name="X")
    return [x, te.ops.sum(x, 1)]


def _gather(rows, count, width):
    x, i = te.placeholder((rows, width), name="X"), te.placeholder((count,), "int32", "I")
    return [x, i, te.ops.take(x, i, 0)]


def _transpose(m, n):
    x = te.placeholder((m, n), name="X")
    return [x, te.ops.transpose(x)]


def _attention(heads, seq, dim):
    q, k, v = [te.placeholder((heads, seq, dim), name=name) for name in "QKV"]
    return [q, k, v, te.ops.attention(q, k, v)]


def _windows(x):
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))


def _soft(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _normed(x, g, b):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * g + b


CASES: dict[str, Case] = {
    "matmul": Case(_matmul, lambda a, b: a @ b, (33, 40, 17), (1024, 1024, 1024)),
    "conv": Case(_conv, lambda x, w: np.einsum("ncyxij,ocij->noyx", _windows(x), w), (3, 5, 7, 9), (64, 64, 56, 56)),
    "depthwise": Case(
        _depthwise, lambda x, w: np.einsum("ncyxij,coij->ncyx", _windows(x), w), (5, 7, 13), (64, 56, 56)
    ),
    "softmax": Case(_softmax, _soft, (7, 33), (1536, 1024), 1e-6),
    "layer_norm": Case(_layer_norm, _normed, (5, 130), (1024, 768), 1e-5),
    "reduction": Case(_reduction, lambda x: x.sum(1), (13, 300), (1024, 4096)),
    "gather": Case(_gather, lambda x, i: x[i], (17, 13, 7), (4096, 1024, 256), index=1),
    "transpose": Case(_transpose, lambda x: x.T, (33, 70), (2048, 2048)),
    "int8 matmul": Case(
        lambda m, n, k: _matmul(m, n, k, "int8", "int32"), lambda a, b: a @ b, (17, 33, 16), (1000, 1000, 1000)
    ),
    "fp16 matmul": Case(
        lambda m, n, k: _matmul(m, n, k, "float16", "float32"), lambda a, b: a @ b, (64, 32, 48), (1024, 1024, 1024)
    ),
    "tf32 matmul": Case(
        lambda m, n, k: _matmul(m, n, k, "tf32", "float32"), lambda a, b: a @ b, (64, 32, 48), (1024, 1024, 1024)
    ),
    "int8 matmul, matrix units": Case(
        lambda m, n, k: _matmul(m, n, k, "int8", "int32"), lambda a, b: a @ b, (32, 64, 32), (1024, 1024, 1024)
    ),
    "attention": Case(
        _attention,
        lambda q, k, v: _soft(q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])) @ v, (2, 40, 16), (12, 512, 64), 1e-5,
    ),
}  # fmt: skip
"""The kernels by name."""


def error_on_gpu(case: Case, target: str) -> float:
    """Returns the largest error of a kernel at its small sizes, scheduled by the rules for a target."""
    tensors = case.build(*case.small)
    func = te.create_prim_func(tensors)
    rng = np.random.default_rng(0)
    arrays = []
    for n, buffer in enumerate(func.buffers):
        shape = [int(e) for e in buffer.shape]
        low, high = (0, case.small[0]) if n == case.index else (-4, 5)
        arrays.append(rng.integers(low, high, shape).astype(buffer.dtype))
    wide = [a.astype("int64" if a.dtype.kind == "i" else "float64") for a in arrays[:-1]]
    module = tw.build(tensors, target)
    if arrays[-1].dtype.kind == "f":
        arrays[-1][...] = np.nan
    module(*arrays)
    return float(np.abs(arrays[-1] - case.reference(*wide)).max())


def assembled(case: Case, arch: str) -> list[PtxasReport]:
    """Returns what ptxas says of the kernels at the large sizes."""
    module = tw.build(case.build(*case.large), f"cuda -arch={arch}")
    return [report for text in module.ptx.values() for report in run_ptxas(text, arch)[0]]


def is_assembled(name: str, arch: str) -> bool:
    """Returns whether a kernel for an architecture is another one than for the one before."""
    return name in OWN.get(arch, CASES)


def _cell(name: str, arch: str) -> str:
    if not find_ptxas():
        return "ptxas is not installed"
    if not is_assembled(name, arch):
        return "as sm_90"
    reports = assembled(CASES[name], arch)
    return "; ".join(f"{r.registers} / {r.spill_bytes} / {r.shared_bytes}" for r in reports)


def rows() -> list[tuple[str, ...]]:
    """Returns a row for each kernel: its name, what the simulated GPU computes, and what ptxas says."""
    out = []
    for name, case in CASES.items():
        error = error_on_gpu(case, "gpu-sim")
        equal = "equal" if error == 0 else f"within {error:.0e}" if error <= case.tolerance else f"differs by {error}"
        out.append((name, equal, *[_cell(name, arch) for arch in ARCHITECTURES]))
    return out


def main() -> None:
    """Print the table."""
    head = ("kernel", "gpu-sim", *ARCHITECTURES)
    table = [head, ("---",) * len(head), *rows()] if "--markdown" in sys.argv else rows()
    for row in table:
        print("| " + " | ".join(row) + " |" if "--markdown" in sys.argv else "  ".join(row))


if __name__ == "__main__":
    main()
