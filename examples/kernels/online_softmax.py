"""Softmax in two sweeps instead of three: the maximum and the sum in one pass, for rows too long for the caches.

The pair (m, s), the maximum so far and the sum of exp(x - m) so far, is a reduction like any other: two pairs join to

    (max(m, m'), s * exp(m - max(m, m')) + s' * exp(m' - max(m, m')))

in any order (M. Milakov and N. Gimelshein, "Online normalizer calculation for softmax", 2018). ``te.comm_reducer`` declares
it, ``register_reducer`` tells the schedule that it may be taken apart, and ``rfactor`` makes four vectors of pairs of each
row: each step waits for an exponential of the step before, and several vectors wait together. The price is two
exponentials for each element of the first sweep: rows that stay in a cache are quicker with three sweeps (``softmax.py``).

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

__all__ = ["KERNELS", "declare", "schedule"]


def join(a: Any, b: Any) -> tuple[Any, Any]:
    """Two pairs in one."""
    most = te.select(b[0] > a[0], b[0], a[0])
    return most, a[1] * te.exp(a[0] - most) + b[1] * te.exp(b[0] - most)


def starts(pair: Any) -> bool:
    """Whether a pair is the one of no elements: the lowest number and 0."""
    most, total = (getattr(part, "value", None) for part in pair)
    return most == np.finfo("float32").min and total == 0


online = te.comm_reducer(join, lambda m, s: (te.min_value(m), te.const(0, s)), name="online")
register_reducer("online softmax", 2, join, starts)


def declare(m: int, n: int) -> tw.PrimFunc:
    """Y[i, j] = exp(X[i, j] - max of row i) / their sum"""
    x = te.placeholder((m, n), name="X")
    k = te.reduce_axis((0, n), name="k")
    most, total = te.compute((m,), lambda i: online((x[i, k], te.const(1.0, "float32")), axis=k), name="pair")
    y = te.compute((m, n), lambda i, j: te.exp(x[i, j] - most[i]) / total[i], name="Y")
    return te.create_prim_func([x, y])


def schedule(func: tw.PrimFunc, target: tw.Target) -> tw.Schedule:
    """Pairs in the lanes of four vectors, joined at the end of a row; then the second sweep."""
    lanes = target.vector_lanes("float32")
    sch = tw.Schedule(func)
    _, k = sch.get_loops("pair")
    _, chain = sch.split(k, [None, 4 * lanes])
    partial = sch.rfactor(chain, 1)
    row, j = sch.get_loops("Y")
    _, inner = sch.split(j, [None, lanes])
    sch.vectorize(inner)
    for block in ("pair", partial):
        sch.compute_at(block, row)
    *_, chain, k = sch.get_loops(partial)
    vector, lane = sch.split(chain, [4, lanes])
    sch.reorder(k, vector, lane)
    sch.unroll(vector)
    sch.vectorize(lane)
    first = sch.decompose_reduction(partial, k)
    sch.vectorize(sch.get_loops(first)[-1])
    if target.num_cores > 1:
        sch.parallel(row)
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
