"""This kernel is relu(a·b + c) over millions of elements: memory traffic is the limit, not arithmetic.

The processor waits for memory, so the schedule is about traffic. A store to a line that is not in the cache reads the
line first; a non-temporal store does not, which saves one of five streams. Each iteration of the loop takes a few
vectors of every array and prefetches those of a later one: the processor's own prefetching stops at each page of 4 KiB.

Run it: ``python examples/kernels/elementwise.py``.
"""

from __future__ import annotations

import sys

import numpy as np
from kernel import Kernel, run

import tilewright as tw
from tilewright import te


def declare(n: int) -> tw.PrimFunc:
    """D = max(A * B + C, 0)"""
    a, b, c = (te.placeholder((n,), name=name) for name in "ABC")
    d = te.compute((n,), lambda i: te.max(a[i] * b[i] + c[i], 0.0), name="D")
    return te.create_prim_func([a, b, c, d])


def streamed(vectors: int = 4, ahead: int = 6):
    """A schedule: ``vectors`` vectors of each array per iteration, fetched ``ahead`` iterations before, stored past the
    caches."""

    def schedule(func: tw.PrimFunc, target: tw.Target) -> tw.Schedule:
        lanes = target.vector_lanes("float32")
        sch = tw.Schedule(func)
        (i,) = sch.get_loops("D")
        if target.num_cores > 1:
            core, i = sch.split(i, [target.num_cores, None])
            sch.parallel(core)
        step, vector, lane = sch.split(i, [None, vectors, lanes])
        sch.unroll(vector)
        sch.vectorize(lane)
        sch.annotate(step, "pragma_prefetch_distance", dict.fromkeys("ABC", ahead))
        sch.annotate("D", "pragma_nontemporal_store", 1)
        return sch

    return schedule


def reference(a: np.ndarray, b: np.ndarray, c: np.ndarray, out: np.ndarray) -> None:
    """NumPy, without temporaries."""
    np.multiply(a, b, out=out)
    np.add(out, c, out=out)
    np.maximum(out, 0, out=out)


KERNELS = [
    Kernel(
        "relu(a·b+c), 16 M",
        declare(1 << 24),
        streamed(),
        reference,
        "mul add relu",
        yardstick="quad",
        goal="0.95 of bandwidth",
    ),
]

if __name__ == "__main__":
    run(KERNELS, sys.argv[1:])
