"""Integer kernels and their schedules for hardware, as the tests and the table of docs/guides/hardware.md use them."""

from __future__ import annotations

import numpy as np

import tilewright as tw
from tilewright import te


def matmul(m, n, k):
    """C = A @ B of int8, summed in int32."""
    a, b = te.placeholder((m, k), "int8", name="A"), te.placeholder((k, n), "int8", name="B")
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r].astype("int32") * b[r, j].astype("int32"), axis=r), name="C")
    return te.create_prim_func([a, b, c], "matmul")


def conv(size, channels, filters):
    """A 3x3 convolution of int8 without a border."""
    x = te.placeholder((channels, size + 2, size + 2), "int8", name="X")
    w = te.placeholder((filters, channels, 3, 3), "int8", name="W")
    c, p, q = [te.reduce_axis((0, n), name=name) for n, name in ((channels, "c"), (3, "p"), (3, "q"))]
    out = te.compute(
        (filters, size, size),
        lambda f, i, j: te.sum(x[c, i + p, j + q].astype("int32") * w[f, c, p, q].astype("int32"), axis=[c, p, q]),
        name="Y",
    )
    return te.create_prim_func([x, w, out], "conv")


def fir(size, taps):
    """A filter of int8 samples with a finite response."""
    x, h = te.placeholder((size + taps - 1,), "int8", name="X"), te.placeholder((taps,), "int8", name="H")
    t = te.reduce_axis((0, taps), name="t")
    y = te.compute((size,), lambda i: te.sum(x[i + t].astype("int32") * h[t].astype("int32"), axis=t), name="Y")
    return te.create_prim_func([x, h, y], "fir")


KERNELS = {
    "matmul 16x16x16": (matmul, (16, 16, 16), "C"),
    "conv 8x8, 4 to 4 channels": (conv, (8, 4, 4), "Y"),
    "fir 64, 16 taps": (fir, (64, 16), "Y"),
}
"""Kernels by title: the function, its sizes, and the block."""

PARTITIONS = {
    "matmul": [["A", 1, 0], ["B", 0, 0]],
    "conv": [["X", 0, 0], ["W", 1, 0]],
    "fir": [["X", 0, 4], ["H", 0, 4], ["Y", 0, 4]],
}


def plain(func, block):
    """The loops one after the other, sums in a register."""
    sch = tw.Schedule(func)
    sums = sch.cache_write(sch.get_block(block), 0, "local")
    loops = sch.get_loops(sch.get_block(block))
    spatial = len(sch.get(sums).iter_vars)
    sch.reverse_compute_at(sums, loops[spatial - 1])
    return sch, loops[:spatial], loops[spatial:]


def unpipelined(func, block):
    return plain(func, block)[0]


def pipelined(func, block):
    """The reduction is a pipeline, which starts a step in each cycle."""
    sch, _, reduction = plain(func, block)
    sch.annotate(reduction[0], "pragma_pipeline", 1)
    return sch


def unrolled(func, block):
    """A part of the work is units side by side, each with memories of its own."""
    sch, spatial, reduction = plain(func, block)
    sch.annotate(spatial[0], "pragma_array_partition", PARTITIONS[func.name])
    if func.name != "fir":
        if func.name == "conv":
            sch.reorder(*reduction[1:], reduction[0])
        sch.unroll(reduction[0])
        return sch
    sch = tw.Schedule(func)
    i, t = sch.get_loops(sch.get_block(block))
    sums = sch.cache_write(sch.get_block(block), 0, "local")
    (outer, inner), (t0, t1) = sch.split(i, [None, 4]), sch.split(t, [None, 4])
    sch.reorder(outer, t0, t1, inner)
    sch.annotate(outer, "pragma_array_partition", PARTITIONS[func.name])
    sch.reverse_compute_at(sums, outer)
    for loop in (t1, inner, sch.get_loops(sums)[-1]):
        sch.unroll(loop)
    return sch


def unrolled_pipelined(func, block):
    """The units work in a pipeline over the elements of the result, or over the rest of the reduction."""
    sch = unrolled(func, block)
    place, interval = {"matmul": (0, 1), "conv": (3, 1), "fir": (1, 2)}[func.name]
    sch.annotate(sch.get_loops(sch.get_block(block))[place], "pragma_pipeline", interval)
    return sch


SCHEDULES = {
    "one after the other": unpipelined,
    "pipelined": pipelined,
    "unrolled": unrolled,
    "unrolled and pipelined": unrolled_pipelined,
}


def arrays_of(func, seed=0):
    """Random arrays for the parameters of a function, integers of the whole range, results as well."""
    rng = np.random.default_rng(seed)
    found = []
    for buffer in func.buffers:
        shape, dtype = [int(n) for n in buffer.shape], buffer.dtype
        if dtype == "bool":
            found.append(rng.integers(0, 2, shape).astype(bool))
        else:
            ends = np.iinfo(dtype)
            found.append(rng.integers(ends.min, ends.max, shape, dtype, endpoint=True))
    return found
