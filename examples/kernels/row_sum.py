"""Sums of the rows of a matrix: every element is read once, so the limit is the bandwidth of reading.

A sum in one variable would wait four cycles for each addition. Here a row is summed into the lanes of a vector (``rfactor``
makes them partial sums of their own), which are added up once at the end of the row, in steps that halve the vector, and
eight rows go side by side: memory answers that many streams faster than one. What a later step reads is asked for ahead of
time: the processor's own prefetching stops at each page.

Run it: ``python examples/kernels/row_sum.py``.
"""

from __future__ import annotations

import sys

import numpy as np
from kernel import Kernel, run
from row_sweeps import by_rows

import tilewright as tw
from tilewright import te


def declare(m: int, n: int) -> tw.PrimFunc:
    """S[i] = sum over j of X[i, j]"""
    x = te.placeholder((m, n), name="X")
    j = te.reduce_axis((0, n), name="j")
    s = te.compute((m,), lambda i: te.sum(x[i, j], axis=j), name="S")
    return te.create_prim_func([x, s])


def reference(x: np.ndarray, out: np.ndarray) -> None:
    """NumPy."""
    np.sum(x, axis=1, out=out)


KERNELS = [
    Kernel(
        "row sum 4096²",
        declare(4096, 4096),
        by_rows("S", "X", 8, 1, 4),
        reference,
        "row sum",
        yardstick="read",
        goal="0.95 of bandwidth",
    ),
]

if __name__ == "__main__":
    run(KERNELS, sys.argv[1:])
