"""This kernel is a transpose: it only moves data, and each order of elements is contiguous in one of the two arrays
only.

Element by element it would touch a new cache line with each store. A square of 16 × 16 elements goes through registers
instead: sixteen loads of whole lines, a network of shuffles, sixteen stores of whole lines. The code generator makes that
of any copy with two axes exchanged of which one is vectorized.

Squares are visited in blocks. Rows of a power-of-two matrix lie so far apart that they compete for the same places of the
first-level cache; a block is as wide as a few lines, so that what the hardware fetches ahead is used before it is lost.

Run it: ``python examples/kernels/transpose.py``.
"""

from __future__ import annotations

import sys

import numpy as np
from kernel import Kernel, run

import tilewright as tw
from tilewright import te


def declare(m: int, n: int) -> tw.PrimFunc:
    """Y[i, j] = X[j, i]"""
    x = te.placeholder((m, n), name="X")
    return te.create_prim_func([x, te.compute((n, m), lambda i, j: x[j, i], name="Y")])


def blocked(rows: int, columns: int, past_caches: bool = False):
    """A schedule: blocks of ``rows`` rows by ``columns`` columns of the result, in squares of a vector's size."""

    def schedule(func: tw.PrimFunc, target: tw.Target) -> tw.Schedule:
        lanes = target.vector_lanes("float32")
        sch = tw.Schedule(func)
        i, j = sch.get_loops("Y")
        i0, i1 = sch.split(i, [None, rows])
        j0, j1, j2 = sch.split(j, [None, columns // lanes, lanes])
        sch.reorder(i0, j0, j1, i1, j2)
        sch.vectorize(j2)
        if past_caches:
            sch.annotate("Y", "pragma_nontemporal_store", 1)
        if target.num_cores > 1:
            sch.parallel(i0)
        return sch

    return schedule


def reference(x: np.ndarray, out: np.ndarray) -> None:
    """NumPy."""
    np.copyto(out, x.T)


KERNELS = [
    Kernel(
        "transpose 2048²",
        declare(2048, 2048),
        blocked(64, 64),
        reference,
        "transpose",
        yardstick="copy",
        goal="1.3 × JAX",
    ),
]

if __name__ == "__main__":
    run(KERNELS, sys.argv[1:])
