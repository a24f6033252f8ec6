"""These kernels are limited by memory traffic: element-wise arithmetic, a transpose, and a blur.

**relu(a·b + c)** over millions of elements. A store to a line that is not in the cache reads the line first; a non-temporal
store does not, which saves one of five streams. Each iteration takes a few vectors of every array and prefetches those of a
later one: the processor's own prefetching stops at each page of 4 KiB.

**A transpose** only moves data, and each order of elements is contiguous in one of the two arrays only. Element by element
it would touch a new cache line with each store. A square of 16 × 16 elements goes through registers instead: sixteen loads
of whole lines, a network of shuffles, sixteen stores of whole lines. The code generator makes that of any copy with two axes
exchanged of which one is vectorized. Squares are visited in bands of rows of the result: columns of a power-of-two matrix
compete for the same places of the first-level cache; a band takes a few lines of each row that it reads, so that what the
hardware fetches ahead is used before it is lost.

**A 3×3 box blur**, both directions fused. Nine additions become four: sums of three neighbours in a row, then sums of three of
those in a column. A row of such sums serves three rows of the result. It is computed when the first of these needs it
(``compute_at``) and kept while the others do: ``rolling_buffer`` leaves room for three rows, which stay in the first-level
cache, and computes only the new one. Threads work on blocks of rows, each with its sums. What remains is to read the image
once, prefetched, and to write the result once, past the caches. Where all data stay in a large cache this takes a fifteenth
longer; where memory is slow, or other processes use it too, it takes two thirds of the time.

Run it: ``python examples/kernels/memory.py [words of names]``.
"""

from __future__ import annotations

import sys

import numpy as np
from kernel import Kernel, Scheduler, run

import tilewright as tw
from tilewright import te
from tilewright.tuner.recipes import ElementSweep, sweep_elements


def declare_fma(n: int) -> tw.PrimFunc:
    """D = max(A * B + C, 0)"""
    a, b, c = (te.placeholder((n,), name=name) for name in "ABC")
    d = te.compute((n,), lambda i: te.max(a[i] * b[i] + c[i], 0.0), name="D")
    return te.create_prim_func([a, b, c, d])


def streamed(vectors: int = 4, ahead: int = 6) -> Scheduler:
    """A schedule: ``vectors`` vectors of each array per iteration, fetched ``ahead`` iterations before, stored past the
    caches."""

    def schedule(func: tw.PrimFunc, target: tw.Target) -> tw.Schedule:
        lanes = target.vector_lanes("float32")
        sch = tw.Schedule(func)
        if target.num_cores > 1:
            core, _ = sch.split(sch.get_loops("D")[0], [target.num_cores, None])
            sch.parallel(core)
        step = sweep_elements(sch, "D", ElementSweep(vectors * lanes, lanes))
        sch.annotate(step, "pragma_prefetch_distance", dict.fromkeys("ABC", ahead))
        sch.annotate("D", "pragma_nontemporal_store", 1)
        return sch

    return schedule


def reference_fma(a: np.ndarray, b: np.ndarray, c: np.ndarray, out: np.ndarray) -> None:
    """Compute the result with NumPy, without temporaries."""
    np.multiply(a, b, out=out)
    np.add(out, c, out=out)
    np.maximum(out, 0, out=out)


def declare_transpose(m: int, n: int) -> tw.PrimFunc:
    """Y[i, j] = X[j, i]"""
    x = te.placeholder((m, n), name="X")
    return te.create_prim_func([x, te.compute((n, m), lambda i, j: x[j, i], name="Y")])


def blocked(rows: int) -> Scheduler:
    """A schedule: blocks of ``rows`` rows of the result, in squares of a vector's size."""

    def schedule(func: tw.PrimFunc, target: tw.Target) -> tw.Schedule:
        sch = tw.Schedule(func)
        sweep = ElementSweep(target.vector_lanes("float32"), across=0, tile=rows, shared=target.num_cores > 1)
        sweep_elements(sch, "Y", sweep)
        return sch

    return schedule


def reference_transpose(x: np.ndarray, out: np.ndarray) -> None:
    """Compute the result with NumPy."""
    np.copyto(out, x.T)


def declare_blur(height: int, width: int) -> tw.PrimFunc:
    """Y[i, j] = mean of X[i : i + 3, j : j + 3]"""
    x = te.placeholder((height, width), name="X")
    rows = te.compute((height, width - 2), lambda i, j: x[i, j] + x[i, j + 1] + x[i, j + 2], name="rows")
    y = te.compute(
        (height - 2, width - 2), lambda i, j: (rows[i, j] + rows[i + 1, j] + rows[i + 2, j]) * (1 / 9), name="Y"
    )
    return te.create_prim_func([x, y])


def rolling(vectors: int, ahead: int) -> Scheduler:
    """A schedule: one row at a time, ``vectors`` vectors per iteration, fetched ``ahead`` iterations before."""

    def schedule(func: tw.PrimFunc, target: tw.Target) -> tw.Schedule:
        lanes = target.vector_lanes("float32")
        sch = tw.Schedule(func)
        i, _ = sch.get_loops("Y")
        if target.num_cores == 1:
            sch.compute_at("rows", i, preserve_unit_loops=True)
        else:  # the loop over a rolling buffer runs in order; blocks of rows do not share a buffer
            block, _ = sch.split(i, [None, 16])
            sch.compute_at("rows", block, preserve_unit_loops=True)
            sch.parallel(block)
        for block in ("Y", "rows"):
            step, vector, lane = sch.split(sch.get_loops(block)[-1], [None, vectors, lanes])
            sch.unroll(vector)
            sch.vectorize(lane)
        sch.annotate(step, "pragma_prefetch_distance", {"X": ahead})
        if target.num_cores == 1:
            sch.rolling_buffer("rows", 0)
        sch.annotate("Y", "pragma_nontemporal_store", 1)
        return sch

    return schedule


def reference_blur(x: np.ndarray, out: np.ndarray) -> None:
    """Compute the result with NumPy."""
    rows = x[:, :-2] + x[:, 1:-1]
    rows += x[:, 2:]
    np.add(rows[:-2], rows[1:-1], out=out)
    out += rows[2:]
    out *= np.float32(1 / 9)


KERNELS = [
    Kernel(
        "relu(a·b+c), 16 M", declare_fma(1 << 24), streamed(), reference_fma, "mul add relu",
        yardstick="quad", goal="0.95 of bandwidth",
    ),
    Kernel(
        "transpose 2048²", declare_transpose(2048, 2048), blocked(64), reference_transpose, "transpose",
        yardstick="copy", goal="1.3 × JAX",
    ),
    Kernel(
        "blur 3×3 2048²", declare_blur(2048, 2048), rolling(2, 16), reference_blur, "blur",
        yardstick="copy", goal="1.25 × JAX",
    ),
]  # fmt: skip


if __name__ == "__main__":
    run(KERNELS, sys.argv[1:])
