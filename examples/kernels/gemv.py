"""A matrix times a vector: the matrix is read once and used once, so the limit is the bandwidth of reading.

As in ``row_sum.py``, each row has its own partial sums, and sixteen rows go side by side: a vector of x is loaded once for
all of them.

Run it: ``python examples/kernels/gemv.py``.
"""

from __future__ import annotations

import sys

import numpy as np
from kernel import Kernel, run
from row_sweeps import by_rows

import tilewright as tw
from tilewright import te


def declare(m: int, n: int) -> tw.PrimFunc:
    """Y[i] = sum over j of A[i, j] * X[j]"""
    a, x = te.placeholder((m, n), name="A"), te.placeholder((n,), name="X")
    j = te.reduce_axis((0, n), name="j")
    y = te.compute((m,), lambda i: te.sum(a[i, j] * x[j], axis=j), name="Y")
    return te.create_prim_func([a, x, y])


def reference(a: np.ndarray, x: np.ndarray, out: np.ndarray) -> None:
    """NumPy."""
    np.matmul(a, x, out=out)


KERNELS = [
    Kernel(
        "gemv 4096²",
        declare(4096, 4096),
        by_rows("Y", "A", 16, 1, 8),
        reference,
        "gemv",
        yardstick="read",
        goal="0.95 of bandwidth",
    ),
]

if __name__ == "__main__":
    run(KERNELS, sys.argv[1:])
