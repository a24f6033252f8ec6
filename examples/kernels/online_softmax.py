"""This kernel computes softmax in two sweeps instead of three, for rows too long for the caches.

The pair (m, s), the maximum so far and the sum of exp(x - m) so far, is a reduction like any other: two pairs join to

    (max(m, m'), s * exp(m - max(m, m')) + s' * exp(m' - max(m, m')))

in any order (M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax", 2018). ``te.comm_reducer`` declares
it, ``register_reducer`` tells the schedule that it may be taken apart, and ``rfactor`` makes two vectors of pairs of each
row, and four rows go side by side: each step waits for an exponential of the step before, and eight vectors wait together;
memory, too, answers several streams faster than one. The price is an exponential
for each element of the first sweep, too: rows that stay in a cache are quicker with three sweeps (``softmax.py``).

Run it: ``python examples/kernels/online_softmax.py``.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from kernel import Kernel, run

import tilewright as tw
from tilewright import te
from tilewright.schedule import register_reducer


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


def declare(m: int, n: int) -> tw.PrimFunc:
    """Y[i, j] = exp(X[i, j] - max of row i) / their sum"""
    x = te.placeholder((m, n), name="X")
    k = te.reduce_axis((0, n), name="k")
    most, total = te.compute((m,), lambda i: online((x[i, k], te.const(1.0, "float32")), axis=k), name="pair")
    scale = te.compute((m,), lambda i: 1.0 / total[i], name="scale")
    y = te.compute((m, n), lambda i, j: te.exp(x[i, j] - most[i]) * scale[i], name="Y")
    return te.create_prim_func([x, y])


def schedule(func: tw.PrimFunc, target: tw.Target, rows: int = 4, vectors: int = 2, ahead: int = 8) -> tw.Schedule:
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


def reference(x: np.ndarray, out: np.ndarray) -> None:
    """NumPy."""
    np.subtract(x, x.max(1, keepdims=True), out=out)
    np.exp(out, out=out)
    out /= out.sum(1, keepdims=True)


KERNELS = [
    Kernel("online softmax 64×65536", declare(64, 65536), schedule, reference, "softmax", yardstick="copy", goal="–")
]

if __name__ == "__main__":
    run(KERNELS, sys.argv[1:])
