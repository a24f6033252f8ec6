"""These kernels normalize rows: softmax in three sweeps, softmax in two, and layer normalisation.

**Softmax** of rows that stay in registers or in the first-level cache: the maximum of a row, the exponentials and their sum,
the division. The exponentials take nearly all the time, a dozen instructions for each vector, so everything else has to be
small beside them:

- powers of two are cheaper than those of e, whose reduction to a small argument needs two more steps;
- the maximum and the sum run in vectors side by side, finished by horizontal steps once per row;
- a row short enough is unrolled in full: its exponentials are then values in registers and never stored;
- one division per row: the result is multiplied by the reciprocal of the sum.

The maximum compares as ``x > best ? x : best``, one instruction where a maximum that passes NaN on takes three. NaN comes
through nevertheless: the exponential of a NaN is NaN, hence the sum, hence all of the row.

**Online softmax**, two sweeps instead of three, for rows too long for the caches. The pair (m, s), the maximum so far and the
sum of exp(x - m) so far, is a reduction like any other: two pairs join to

    (max(m, m'), s * exp(m - max(m, m')) + s' * exp(m' - max(m, m')))

in any order (M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax", 2018). ``te.comm_reducer`` declares
it, ``register_reducer`` tells the schedule that it may be taken apart, and ``rfactor`` makes two vectors of pairs of each
row. Four rows go side by side: each step waits for an exponential of the step before, and eight vectors wait together;
memory, too, answers several streams faster than one. The price is an exponential for each element of the first sweep.

**Layer normalisation** in two passes. The mean comes first, the squares of the differences from it second: to subtract the
square of the mean from a sum of squares would cancel. Several rows are computed together, because the scale and the shift of
a column are then loaded once for all of them: loads, not arithmetic, bound the last sweep.

Run it: ``python examples/kernels/norms.py [words of names]``.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from kernel import Kernel, Scheduler, run

import tilewright as tw
from tilewright import te
from tilewright.schedule import register_reducer
from tilewright.tuner.recipes import RowSweep, loops_within, sweep_rows

EPSILON = 1e-5
LOG2_E = 1.4426950408889634
larger = te.comm_reducer(lambda a, b: te.select(b > a, b, a), lambda dtype: te.min_value(dtype), name="larger")


def declare_softmax(m: int, n: int) -> tw.PrimFunc:
    """Y[i, j] = exp(X[i, j] - max of row i) / their sum"""
    x = te.placeholder((m, n), name="X")
    k, s = te.reduce_axis((0, n), name="k"), te.reduce_axis((0, n), name="s")
    most = te.compute((m,), lambda i: larger(x[i, k], axis=k), name="most")
    power = te.compute((m, n), lambda i, j: te.exp2((x[i, j] - most[i]) * LOG2_E), name="power")
    total = te.compute((m,), lambda i: te.sum(power[i, s], axis=s), name="total")
    scale = te.compute((m,), lambda i: 1.0 / total[i], name="scale")
    y = te.compute((m, n), lambda i, j: power[i, j] * scale[i], name="Y")
    return te.create_prim_func([x, y])


def softmax_by_rows(rows: int, vectors: int, unroll: bool) -> Scheduler:
    """A schedule: ``rows`` rows at a time, ``vectors`` vectors of partial results for each; ``unroll``: no loops within
    a row."""

    def schedule(func: tw.PrimFunc, target: tw.Target) -> tw.Schedule:
        sch = tw.Schedule(func)
        lanes, threads = target.vector_lanes("float32"), target.num_cores > 1
        steps = 64 if unroll else 1
        sweep = RowSweep(lanes, 1, rows, accumulators=vectors, vectors=vectors, unroll=steps, shared=threads)
        loops = sweep_rows(sch, ["most", "power", "total", "scale", "Y"], sweep)
        for stage in ("power", "Y") if unroll else ():
            for loop in loops_within(sch, stage, loops[""])[:-1]:
                sch.unroll(loop)
        return sch

    return schedule


def reference_softmax(x: np.ndarray, out: np.ndarray) -> None:
    """Compute the result with NumPy."""
    np.subtract(x, x.max(axis=-1, keepdims=True), out=out)
    np.exp(out, out=out)
    np.divide(out, out.sum(axis=-1, keepdims=True), out=out)


def join(a: Any, b: Any) -> tuple[Any, Any]:
    """Two pairs in one. One of the two exponentials is that of 0, so one is enough: of minus the distance."""
    later = b[0] > a[0]
    most, least = te.select(later, b[0], a[0]), te.select(later, a[0], b[0])
    shrunk = te.exp(least - most)
    return most, te.select(later, a[1] * shrunk + b[1], a[1] + b[1] * shrunk)


def starts(pair: Any) -> bool:
    """Returns whether a pair is the one of no elements: the lowest number and 0."""
    most, total = (getattr(part, "value", None) for part in pair)
    return most == np.finfo("float32").min and total == 0


online = te.comm_reducer(join, lambda m, s: (te.min_value(m), te.const(0, s)), name="online")
register_reducer("online softmax", 2, join, starts)


def declare_online(m: int, n: int) -> tw.PrimFunc:
    """Y[i, j] = exp(X[i, j] - max of row i) / their sum"""
    x = te.placeholder((m, n), name="X")
    k = te.reduce_axis((0, n), name="k")
    most, total = te.compute((m,), lambda i: online((x[i, k], te.const(1.0, "float32")), axis=k), name="pair")
    scale = te.compute((m,), lambda i: 1.0 / total[i], name="scale")
    y = te.compute((m, n), lambda i, j: te.exp(x[i, j] - most[i]) * scale[i], name="Y")
    return te.create_prim_func([x, y])


def online_by_rows(
    func: tw.PrimFunc, target: tw.Target, rows: int = 4, vectors: int = 2, ahead: int = 8
) -> tw.Schedule:
    """Schedule ``rows`` rows at a time, with pairs in the lanes of ``vectors`` vectors for each. Rows are fetched
    ``ahead`` steps before, and pairs are joined at the end of the row; the second sweep over these rows follows."""
    lanes = target.vector_lanes("float32")
    sch = tw.Schedule(func)
    partial = sch.rfactor(sch.split(sch.get_loops("pair")[1], [None, vectors * lanes])[1], 1)
    i, j = sch.get_loops("Y")
    block, row = sch.split(i, [None, rows])
    step, lane = sch.split(j, [None, lanes])
    sch.reorder(block, step, row, lane)
    sch.unroll(row)
    sch.vectorize(lane)
    for stage in ("scale", "pair", partial):
        sch.compute_at(stage, block, preserve_unit_loops=True)
    _, chain, row, k = sch.get_loops(partial)
    vector, lane = sch.split(chain, [vectors, lanes])
    sch.reorder(k, row, vector, lane)
    sch.annotate(k, "pragma_prefetch_distance", {"X": ahead})
    for stage in (sch.decompose_reduction(partial, k), partial):
        *_, row, vector, lane = sch.get_loops(stage)
        sch.unroll(row)
        sch.unroll(vector)
        sch.vectorize(lane)
    for number in (0, 1):
        sch.set_scope(partial, number, "local")
    if target.num_cores > 1:
        sch.parallel(block)
    return sch


def declare_layer_norm(m: int, n: int) -> tw.PrimFunc:
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


def layer_norm_by_rows(rows: int, vectors: int) -> Scheduler:
    """A schedule: ``rows`` rows at a time, ``vectors`` vectors of partial sums for each."""

    def schedule(func: tw.PrimFunc, target: tw.Target) -> tw.Schedule:
        sch = tw.Schedule(func)
        lanes, threads = target.vector_lanes("float32"), target.num_cores > 1
        sweep = RowSweep(lanes, rows=rows, accumulators=vectors, rows_inside=True, shared=threads)
        sweep_rows(sch, ["total", "mean", "squares", "scale", "Y"], sweep)
        return sch

    return schedule


def reference_layer_norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, out: np.ndarray) -> None:
    """Compute the result with NumPy."""
    np.subtract(x, x.mean(axis=-1, keepdims=True), out=out)
    out *= 1 / np.sqrt(np.square(out).mean(axis=-1, keepdims=True) + np.float32(EPSILON))
    out *= gamma
    out += beta


KERNELS = [
    Kernel(
        "softmax 12×128×128", declare_softmax(12 * 128, 128), softmax_by_rows(4, 2, True), reference_softmax, "softmax",
        yardstick="copy", goal="1.5 × ONNX Runtime",
    ),
    Kernel(
        "softmax 128×1024", declare_softmax(128, 1024), softmax_by_rows(2, 4, False), reference_softmax, "softmax",
        yardstick="copy", goal="1.3 × ONNX Runtime",
    ),
    Kernel(
        "online softmax 64×65536", declare_online(64, 65536), online_by_rows, reference_softmax, "softmax",
        yardstick="copy", goal="–",
    ),
    Kernel(
        "layer_norm 128×768", declare_layer_norm(128, 768), layer_norm_by_rows(4, 2), reference_layer_norm, "layer norm",
        yardstick="copy", goal="1.2 × numba",
    ),
]  # fmt: skip


if __name__ == "__main__":
    run(KERNELS, sys.argv[1:])
