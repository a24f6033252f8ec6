"""Softmax along rows that stay in registers or in the first-level cache.

Three sweeps over a row: its maximum, the exponentials and their sum, the division. The exponentials take nearly all the
time, a dozen instructions for each vector, so everything else has to be small beside them:

- powers of two are cheaper than those of e, whose reduction to a small argument needs two more steps;
- the maximum and the sum run in vectors side by side, finished by horizontal steps once per row;
- a row short enough is unrolled in full: its exponentials are then values in registers and never stored;
- one division per row: the result is multiplied by the reciprocal of the sum.

The maximum compares as ``x > best ? x : best``, one instruction where a maximum that passes NaN on takes three. NaN comes
through nevertheless: the exponential of a NaN is NaN, hence the sum, hence all of the row.

Run it: ``python examples/kernels/softmax.py``.
"""

from __future__ import annotations

import sys

import numpy as np
from kernel import Kernel, Scheduler, run

import tilewright as tw
from tilewright import te
from tilewright.tuner.recipes import RowSweep, loops_within, sweep_rows

LOG2_E = 1.4426950408889634
larger = te.comm_reducer(lambda a, b: te.select(b > a, b, a), lambda dtype: te.min_value(dtype), name="larger")


def declare(m: int, n: int) -> tw.PrimFunc:
    """Y[i, j] = exp(X[i, j] - max of row i) / their sum"""
    x = te.placeholder((m, n), name="X")
    k, s = te.reduce_axis((0, n), name="k"), te.reduce_axis((0, n), name="s")
    most = te.compute((m,), lambda i: larger(x[i, k], axis=k), name="most")
    power = te.compute((m, n), lambda i, j: te.exp2((x[i, j] - most[i]) * LOG2_E), name="power")
    total = te.compute((m,), lambda i: te.sum(power[i, s], axis=s), name="total")
    scale = te.compute((m,), lambda i: 1.0 / total[i], name="scale")
    y = te.compute((m, n), lambda i, j: power[i, j] * scale[i], name="Y")
    return te.create_prim_func([x, y])


def by_rows(rows: int, vectors: int, unroll: bool) -> Scheduler:
    """A schedule: ``rows`` rows at a time, ``vectors`` vectors of partial results for each; ``unroll``: no loops within
    a row."""

    def schedule(func: tw.PrimFunc, target: tw.Target) -> tw.Schedule:
        sch = tw.Schedule(func)
        lanes, threads = target.vector_lanes("float32"), target.num_cores > 1
        sweep = RowSweep(lanes, rows=rows, accumulators=vectors, vectors=vectors, shared=threads)
        steps = sweep_rows(sch, ["most", "power", "total", "scale", "Y"], sweep)
        if unroll:
            for stage in ("most", "total", "power", "Y"):
                for loop in loops_within(sch, stage, steps[""]) if stage in ("power", "Y") else ():
                    if sch.get(loop).kind == "serial":
                        sch.unroll(loop)
                if stage in steps and stage in ("most", "total"):
                    sch.unroll(steps[stage])
        return sch

    return schedule


def reference(x: np.ndarray, out: np.ndarray) -> None:
    """NumPy."""
    np.subtract(x, x.max(axis=-1, keepdims=True), out=out)
    np.exp(out, out=out)
    np.divide(out, out.sum(axis=-1, keepdims=True), out=out)


def _kernel(m: int, n: int, name: str, goal: str, schedule) -> Kernel:
    return Kernel(name, declare(m, n), schedule, reference, "softmax", yardstick="copy", goal=goal)


KERNELS = [
    _kernel(12 * 128, 128, "softmax 12×128×128", "1.5 × ONNX Runtime", by_rows(4, 2, True)),
    _kernel(128, 1024, "softmax 128×1024", "1.3 × ONNX Runtime", by_rows(2, 4, False)),
]

if __name__ == "__main__":
    run(KERNELS, sys.argv[1:])
