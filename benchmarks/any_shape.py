"""This script compares functions of symbolic sizes with functions of fixed sizes, by default and tuned at examples.

    python benchmarks/any_shape.py [KERNEL ...] [--tune 1,16,128,1024] [--sizes 3,9,24,50,100,200,400,700] [--trials 24]
        [--db any-shape.db] [--rows rows.jsonl]

A kernel has one symbolic size n. It is tuned at the examples, and timed at other sizes: the function that was built of
the records, the one by default, and one of that fixed size by default, in turns. A row has geometric means and worst ratios
of the time to that of the fixed size, and the share that the tuned function reaches of the best of the three at each size.
``--tune ""`` leaves tuning out. Rows are written as they come; those that the file has are not measured again.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from table import print_table

import tilewright as tw
from tilewright import te

Kernel = Callable[[Any], list[te.Tensor]]


def _sum(shape: tuple[Any, ...], extent: Any, term: Callable[..., Any], name: str) -> te.Tensor:
    k = te.reduce_axis((0, extent), name="k")
    return te.compute(shape, lambda *i: te.sum(term(k, *i), axis=k), name=name)


def product(n: Any) -> list[te.Tensor]:
    """Rows times a matrix."""
    a, b = te.placeholder((n, 256), name="a"), te.placeholder((256, 512), name="b")
    return [a, b, te.ops.matmul(a, b)]


def square(n: Any) -> list[te.Tensor]:
    """A product all of whose extents are the size."""
    a, b = te.placeholder((n, n), name="a"), te.placeholder((n, n), name="b")
    return [a, b, te.ops.matmul(a, b)]


def linear(n: Any) -> list[te.Tensor]:
    """A layer with bias and gelu."""
    x, w, b = (
        te.placeholder((n, 256), name="x"),
        te.placeholder((1024, 256), name="w"),
        te.placeholder((1024,), name="b"),
    )
    return [x, w, b, te.ops.gelu(te.ops.add(te.ops.dense(x, w), b))]


def inner(n: Any) -> list[te.Tensor]:
    """A product that sums over the size."""
    a, b = te.placeholder((128, n), name="a"), te.placeholder((n, 128), name="b")
    return [a, b, te.ops.matmul(a, b)]


def convolution(n: Any) -> list[te.Tensor]:
    """A convolution of n images."""
    x, w = te.placeholder((n, 32, 14, 14), name="x"), te.placeholder((32, 32, 3, 3), name="w")
    return [x, w, te.ops.conv2d(x, w, padding=1)]


def image(n: Any) -> list[te.Tensor]:
    """A convolution of an image of n rows and 32 columns."""
    x, w = te.placeholder((1, 32, n, 32), name="x"), te.placeholder((64, 32, 3, 3), name="w")
    return [x, w, te.ops.relu(te.ops.conv2d(x, w, padding=1))]


def signal(n: Any) -> list[te.Tensor]:
    """A convolution of a signal of the size."""
    x, w = te.placeholder((1, 32, n), name="x"), te.placeholder((32, 32, 5), name="w")
    return [x, w, te.ops.conv1d(x, w, padding=2)]


def depthwise(n: Any) -> list[te.Tensor]:
    """A depthwise convolution of an image of n rows and 56 columns."""
    x, w = te.placeholder((1, 32, n, 56), name="x"), te.placeholder((32, 1, 3, 3), name="w")
    return [x, w, te.ops.depthwise_conv2d(x, w, padding=1)]


def pool(n: Any) -> list[te.Tensor]:
    """Maxima of windows of an image of n rows and 56 columns."""
    x = te.placeholder((1, 32, n + 1, 56), name="x")
    return [x, te.ops.max_pool2d(x, 2, stride=1)]


def attention(n: Any) -> list[te.Tensor]:
    """Attention of n tokens in four heads."""
    q, k, v = (te.placeholder((4, n, 64), name=name) for name in "qkv")
    return [q, k, v, te.ops.attention(q, k, v)]


def batches(n: Any) -> list[te.Tensor]:
    """A batch of n products."""
    a, b = te.placeholder((n, 32, 64), name="a"), te.placeholder((n, 64, 48), name="b")
    return [a, b, te.ops.batch_matmul(a, b)]


def softmax(n: Any) -> list[te.Tensor]:
    """Rows of 384."""
    x = te.placeholder((n, 384), name="x")
    return [x, te.ops.softmax(x, axis=1)]


def long_softmax(n: Any) -> list[te.Tensor]:
    """64 rows of the size."""
    x = te.placeholder((64, n), name="x")
    return [x, te.ops.softmax(x, axis=1)]


def norm(n: Any) -> list[te.Tensor]:
    """A layer norm of rows of 768."""
    x, g, b = te.placeholder((n, 768), name="x"), te.placeholder((768,), name="g"), te.placeholder((768,), name="b")
    return [x, g, b, te.ops.layer_norm(x, g, b)]


def row_sums(n: Any) -> list[te.Tensor]:
    """Sums of 256 rows of the size."""
    x = te.placeholder((256, n), name="x")
    return [x, _sum((256,), n, lambda k, i: x[i, k], "y")]


def column_sums(n: Any) -> list[te.Tensor]:
    """Sums of 256 columns of the size."""
    x = te.placeholder((n, 256), name="x")
    return [x, _sum((256,), n, lambda k, j: x[k, j], "y")]


def relu(n: Any) -> list[te.Tensor]:
    """Elements of images."""
    x = te.placeholder((n, 16, 28, 28), name="x")
    return [x, te.ops.relu(x)]


def pairs(n: Any) -> list[te.Tensor]:
    """Sums of all pairs."""
    x, y = te.placeholder((n,), name="x"), te.placeholder((n,), name="y")
    return [x, y, te.compute((n, n), lambda i, j: te.exp(x[i] + y[j]), name="z")]


def transposed(n: Any) -> list[te.Tensor]:
    """A sum with a transpose."""
    x, y = te.placeholder((n, 256), name="x"), te.placeholder((256, n), name="y")
    return [x, y, te.compute((n, 256), lambda i, j: x[i, j] + y[j, i], name="z")]


def stencil(n: Any) -> list[te.Tensor]:
    """Means of three neighbours."""
    x = te.placeholder((n + 2, 512), name="x")
    return [x, te.compute((n, 512), lambda i, j: (x[i, j] + x[i + 1, j] + x[i + 2, j]) * 0.25, name="z")]


KERNELS: dict[str, Kernel] = {
    f.__name__: f
    for f in (
        product, square, linear, inner, batches, convolution, image, signal, depthwise, pool, attention, softmax, long_softmax, norm, row_sums, column_sums, relu, pairs,
        transposed, stencil,
    )
}  # fmt: skip


_SAMPLE, _TURN = 2e-4, 5e-2
"""The seconds of a sample and of a module's turn; a single call may take longer."""


def timed(modules: list[Any], values: list[np.ndarray], rounds: int) -> list[float]:
    """Returns the best seconds of each module, in turns, of samples so short that most are not interrupted."""
    best = [math.inf] * len(modules)
    once = min([m.time_evaluator(repeat=3, min_repeat_ms=0.1)(*values).min for m in modules])
    repeat = max(3, min(40, round(_TURN / max(once, _SAMPLE))))
    for turn in range(rounds):
        for n in range(len(modules)):
            which = (n + turn) % len(modules)
            number = max(1, round(_SAMPLE / once))
            best[which] = min(best[which], modules[which].time_evaluator(repeat=repeat, number=number)(*values).min)
    return best


def measured(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Returns the times of a kernel at each size."""
    kernel, target = KERNELS[name], options.target
    symbolic = kernel(te.size_var("n"))
    start = time.perf_counter()
    if options.tune:
        examples = [int(size) for size in options.tune.split(",")]
        tw.tune(symbolic, target, sizes={"n": examples}, trials=options.trials, db=options.db)
    spent = time.perf_counter() - start
    modules = [tw.build(symbolic, target)]
    if options.tune:
        modules.append(tw.build(symbolic, target, db=options.db, require_tuned=True))
    rng, row = np.random.default_rng(0), []
    for size in [int(size) for size in options.sizes.split(",")]:
        fixed = kernel(size)
        values = [rng.random([int(e) for e in t.shape], np.float32) for t in fixed]  # type: ignore[call-overload]
        row.append([size, *timed([tw.build(fixed, target), *modules], values, options.rounds)])
    return {"kernel": name, "tuning": spent, "times": row, "origin": modules[-1].origin}


def _ratios(row: dict[str, Any], column: int) -> list[str]:
    found = [times[column] / times[1] for times in row["times"]]
    return [f"{statistics.geometric_mean(found):.2f}", f"{max(found):.2f}"]


def _of_best(row: dict[str, Any]) -> list[str]:
    """Returns the mean and the least share that the tuned function reaches of the best one at each size."""
    found = [min(times[1:]) / times[3] for times in row["times"]]
    return [f"{statistics.geometric_mean(found):.2f}", f"{min(found):.2f}"]


def main() -> None:
    """Print one row for each kernel."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels", nargs="*", default=list(KERNELS))
    parser.add_argument("--tune", default="1,16,128,1024")
    parser.add_argument("--sizes", default="3,9,24,50,100,200,400,700")
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--db", default="any-shape.db")
    parser.add_argument("--target", default="native -num-cores=1")
    parser.add_argument("--rows", type=Path)
    options = parser.parse_args()
    rows: dict[str, dict[str, Any]] = {}
    if options.rows and options.rows.exists():
        rows = {r["kernel"]: r for r in map(json.loads, options.rows.read_text().splitlines())}
    for name in options.kernels:
        if name not in rows:
            rows[name] = measured(name, options)
            if options.rows:
                with options.rows.open("a") as file:
                    file.write(json.dumps(rows[name]) + "\n")
    columns = [2, 3] if options.tune else [2]
    lines = [
        [name, *[t for c in columns for t in _ratios(rows[name], c)], *(_of_best(rows[name]) if options.tune else [])]
        for name in options.kernels
    ]
    for c, word in zip(columns, ("default", "tuned"), strict=False):
        every = [times[c] / times[1] for name in options.kernels for times in rows[name]["times"]]
        print(
            f"{word}: {statistics.geometric_mean(every):.3f} over {len(every)}, {sum(r > 1.15 for r in every)} above 1.15"
        )
    print_table(
        f"time over that of the fixed size by default, at n = {options.sizes}",
        ["kernel", "default", "worst", *(["tuned", "worst", "of the best", "least"] if options.tune else [])], lines,
    )  # fmt: skip


if __name__ == "__main__":
    main()
