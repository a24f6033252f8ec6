"""Depthwise convolution: every channel by itself, so there is nothing to share but a channel's few weights.

Data are NHWC: a vector is 16 channels of one pixel. The nine weights of these channels stay in registers while a tile of
pixels is computed; all nine taps are unrolled, and a pixel that several taps of the tile look at is loaded once.

The zeros around the image are copied together with the part of the image that a block of tiles needs, for as few channels
as the tiles work on: that part then lies close together in the first-level cache, where the image itself has its pixels
so far apart that they compete for the same places of the cache.

Run it: ``python examples/kernels/depthwise.py``.
"""

from __future__ import annotations

import sys

import numpy as np
from kernel import Kernel, run

import tilewright as tw
from tilewright import te

__all__ = ["KERNELS"]


def declare(height: int, width: int, channels: int) -> tw.PrimFunc:
    """Y[0, y, x, c] = sum over a window of 3 × 3 of X[0, y + ry - 1, x + rx - 1, c] * W[ry, rx, c]"""
    x = te.placeholder((1, height, width, channels), name="X")
    w = te.placeholder((3, 3, channels), name="W")
    padded = te.compute(
        (1, height + 2, width + 2, channels),
        lambda n, i, j, c: te.if_then_else(
            te.all(i >= 1, i < height + 1, j >= 1, j < width + 1), x[n, i - 1, j - 1, c], 0.0
        ),
        name="P",
    )
    ry, rx = te.reduce_axis((0, 3), name="ry"), te.reduce_axis((0, 3), name="rx")
    y = te.compute(
        (1, height, width, channels),
        lambda n, i, j, c: te.sum(padded[n, i + ry, j + rx, c] * w[ry, rx, c], axis=[ry, rx]),
        name="Y",
    )
    return te.create_prim_func([x, w, y])


def tiled(rows: int, pixels: int, vectors: int, down: int, across: int):
    """A schedule: tiles of ``rows`` × ``pixels`` × ``vectors`` vectors of channels, blocks of ``down`` × ``across`` tiles
    for which the image and its border are copied."""

    def schedule(func: tw.PrimFunc, target: tw.Target) -> tw.Schedule:
        lanes = target.vector_lanes("float32")
        sch = tw.Schedule(func)
        out = sch.cache_write("Y", 0, "local")
        _, y, x, c, ry, rx = sch.get_loops("Y")
        y_block, y0, y1 = sch.split(y, [None, down, rows])
        x_block, x0, x1 = sch.split(x, [None, across, pixels])
        part, vector, lane = sch.split(c, [None, vectors, lanes])
        sch.reorder(part, y_block, x_block, y0, x0, vector, ry, rx, y1, x1, lane)
        sch.compute_at("P", x_block)
        sch.vectorize(sch.split(sch.get_loops("P")[-1], [None, lanes])[1])
        sch.reverse_compute_at(out, vector)
        for loop in (y1, x1, ry, rx, *sch.get_loops(out)[-3:-1]):
            sch.unroll(loop)
        sch.vectorize(lane)
        sch.vectorize(sch.get_loops(out)[-1])
        sch.decompose_reduction("Y", ry)
        if target.num_cores > 1:
            sch.parallel(sch.fuse(part, y_block, x_block))
        return sch

    return schedule


def reference(x: np.ndarray, w: np.ndarray, out: np.ndarray) -> None:
    """NumPy."""
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    out[...] = 0
    for a in range(3):
        for b in range(3):
            out += padded[:, a : a + x.shape[1], b : b + x.shape[2]] * w[a, b]


def _kernel(height: int, width: int, channels: int, name: str, goal: str, schedule, yardstick: str = "peak") -> Kernel:
    func, options = declare(height, width, channels), {"stride": 1, "padding": 1}
    return Kernel(name, func, schedule, reference, "depthwise conv2d", options, yardstick, goal)


KERNELS = [
    _kernel(14, 14, 512, "depthwise 3×3 512×14²", "14 µs on Zen 5", tiled(1, 7, 2, 14, 2)),
    _kernel(112, 112, 32, "depthwise 3×3 32×112²", "1.2 × PyTorch", tiled(1, 7, 2, 8, 2), "copy"),
]

if __name__ == "__main__":
    run(KERNELS, sys.argv[1:])
