"""In a depthwise convolution each channel is computed by itself, so only the few weights of a channel are reused.

With nine multiply-adds for each number that is read, the caches are the limit. Data are in blocks of channels,
[block][row][column] [channel of the block]. One block of all channels is NHWC: then the pixels of 16 channels, a
vector, lie a power of two apart and compete for the same few places of the first-level cache. In blocks of 16 (NCHW16c)
they lie side by side: the three rows that a row of the result looks at stay in that cache, and the next ones are
fetched by the processor itself.

The zeros around the image are no copy of it: they are declared as one (``P``) and written into the sum (``compute_inline``).
Lowering then takes the loop over rows apart into the first, the middle and the last ones, and unrolls columns, so that each
tap is known to be inside or beyond the edge and nothing is checked while it runs. All nine taps are unrolled too; their
weights stay in registers, and a pixel that several taps of the tile look at is loaded once.

Run it: ``python examples/kernels/depthwise.py``.
"""

from __future__ import annotations

import sys

import numpy as np
from kernel import Kernel, run

import tilewright as tw
from tilewright import te


def declare(height: int, width: int, channels: int, block: int = 0) -> tw.PrimFunc:
    """Returns a depthwise convolution over a window of 3 × 3 in blocks of ``block`` channels. Y[b, y, x, c] is the sum
    of X[b, y + ry - 1, x + rx - 1, c] * W[b, ry, rx, c], where b is a block of ``block`` channels, a divisor of all; 0:
    of all, NHWC with one image."""
    block = block or channels
    blocks = channels // block
    x = te.placeholder((blocks, height, width, block), name="X")
    w = te.placeholder((blocks, 3, 3, block), name="W")
    padded = te.compute(
        (blocks, height + 2, width + 2, block),
        lambda b, i, j, c: te.if_then_else(
            te.all(i >= 1, i < height + 1, j >= 1, j < width + 1), x[b, i - 1, j - 1, c], 0.0
        ),
        name="P",
    )
    ry, rx = te.reduce_axis((0, 3), name="ry"), te.reduce_axis((0, 3), name="rx")
    y = te.compute(
        (blocks, height, width, block),
        lambda b, i, j, c: te.sum(padded[b, i + ry, j + rx, c] * w[b, ry, rx, c], axis=[ry, rx]),
        name="Y",
    )
    return te.create_prim_func([x, w, y])


def tiled(rows: int, pixels: int, vectors: int):
    """A schedule: tiles of ``rows`` × ``pixels`` × ``vectors`` vectors of channels, one vector after the other."""

    def schedule(func: tw.PrimFunc, target: tw.Target) -> tw.Schedule:
        lanes = target.vector_lanes("float32")
        sch = tw.Schedule(func)
        sch.compute_inline("P")
        out = sch.cache_write("Y", 0, "local")
        block, y, x, c, ry, rx = sch.get_loops("Y")
        part, vector, lane = sch.split(c, [None, vectors, lanes])
        enough = int(sch.get(block).extent) * int(sch.get(part).extent) >= target.num_cores
        y_part, y0, y1 = sch.split(y, [1 if enough else target.num_cores, None, rows])
        x0, x1 = sch.split(x, [None, pixels])
        sch.reorder(block, part, y_part, y0, x0, vector, ry, y1, x1, rx, lane)  # rx last: few numbers wait in registers
        sch.reverse_compute_at(out, vector)
        for loop in (y1, x1, ry, rx, *sch.get_loops(out)[-3:-1]):
            sch.unroll(loop)
        if int(sch.get(x0).extent) <= 2:  # both edges in one version of the code
            sch.unroll(x0)
        sch.vectorize(lane)
        sch.vectorize(sch.get_loops(out)[-1])
        sch.decompose_reduction("Y", ry)
        if target.num_cores > 1:
            sch.parallel(sch.fuse(block, part, y_part))
        return sch

    return schedule


def reference(x: np.ndarray, w: np.ndarray, out: np.ndarray) -> None:
    """Compute the result with NumPy."""
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    out[...] = 0
    for a in range(3):
        for b in range(3):
            out += padded[:, a : a + x.shape[1], b : b + x.shape[2]] * w[:, a : a + 1, b : b + 1]


def nhwc(arrays: list[np.ndarray]) -> list[np.ndarray]:
    """``arrays`` in the layout that other libraries like best: images in NHWC, weights as [row, column, channel]."""
    x, w, y = (np.moveaxis(a, 0, 2).reshape(1, *a.shape[1:3], -1) for a in arrays)
    return [x, w[0], y]


def _kernel(size: tuple[int, ...], name: str, goal: str, schedule, yardstick: str = "peak") -> Kernel:
    operation, options = "depthwise conv2d", {"stride": 1, "padding": 1}
    return Kernel(name, declare(*size), schedule, reference, operation, options, yardstick, goal, plain=nhwc)


KERNELS = [
    _kernel((14, 14, 512, 16), "depthwise 3×3 512×14²", "14 µs on Zen 5", tiled(1, 7, 1)),
    _kernel((14, 14, 512), "depthwise 3×3 512×14², NHWC", "–", tiled(2, 7, 2)),
    _kernel((112, 112, 32), "depthwise 3×3 32×112²", "1.2 × PyTorch", tiled(2, 7, 2), "copy"),
]

if __name__ == "__main__":
    run(KERNELS, sys.argv[1:])
