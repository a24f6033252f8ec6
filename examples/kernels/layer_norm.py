"""Layer normalisation in two passes over rows that stay in the first-level cache.

The mean comes first, the squares of the differences from it second: to subtract the square of the mean from a sum of
squares would cancel. Both are sums by lanes as in ``row_sums.py``. Several rows are computed together, because the scale
and the shift of a column are then loaded once for all of them: loads, not arithmetic, bound the last sweep.

Run it: ``python examples/kernels/layer_norm.py``.
"""

from __future__ import annotations

import sys

import numpy as np
from kernel import Kernel, Scheduler, run

import tilewright as tw
from tilewright import te
from tilewright.tuner.recipes import RowSweep, sweep_rows

EPSILON = 1e-5


def declare(m: int, n: int) -> tw.PrimFunc:
    """Y = (X - mean) / sqrt(variance + epsilon) * gamma + beta, row by row"""
    x = te.placeholder((m, n), name="X")
    gamma, beta = te.placeholder((n,), name="gamma"), te.placeholder((n,), name="beta")
    k, s = te.reduce_axis((0, n), name="k"), te.reduce_axis((0, n), name="s")
    total = te.compute((m,), lambda i: te.sum(x[i, k], axis=k), name="total")
    mean = te.compute((m,), lambda i: total[i] * (1.0 / n), name="mean")
    squares = te.compute((m,), lambda i: te.sum((x[i, s] - mean[i]) * (x[i, s] - mean[i]), axis=s), name="squares")
    scale = te.compute((m,), lambda i: te.rsqrt(squares[i] * (1.0 / n) + EPSILON), name="scale")
    y = te.compute((m, n), lambda i, j: (x[i, j] - mean[i]) * scale[i] * gamma[j] + beta[j], name="Y")
    return te.create_prim_func([x, gamma, beta, y])


def by_rows(rows: int, vectors: int) -> Scheduler:
    """A schedule: ``rows`` rows at a time, ``vectors`` vectors of partial sums for each."""

    def schedule(func: tw.PrimFunc, target: tw.Target) -> tw.Schedule:
        sch = tw.Schedule(func)
        lanes, threads = target.vector_lanes("float32"), target.num_cores > 1
        sweep = RowSweep(lanes, rows=rows, accumulators=vectors, rows_inside=True, shared=threads)
        sweep_rows(sch, ["total", "mean", "squares", "scale", "Y"], sweep)
        return sch

    return schedule


def reference(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, out: np.ndarray) -> None:
    """NumPy."""
    np.subtract(x, x.mean(axis=-1, keepdims=True), out=out)
    out *= 1 / np.sqrt(np.square(out).mean(axis=-1, keepdims=True) + np.float32(EPSILON))
    out *= gamma
    out += beta


KERNELS = [
    Kernel(
        "layer_norm 128×768",
        declare(128, 768),
        by_rows(4, 2),
        reference,
        "layer norm",
        yardstick="copy",
        goal="1.2 × numba",
    ),
]

if __name__ == "__main__":
    run(KERNELS, sys.argv[1:])
