"""These kernels are convolutions of images, computed like matrix products but without the matrix of windows.

Run it: ``python examples/kernels/conv.py [words of names]``.

Data are NHWC, weights HWIO. A tile is ``rows`` x ``pixels`` of the image by ``vectors`` vectors of output channels: 28
accumulators of the 32 registers. One step of the reduction (one tap of the window, one input channel) loads ``vectors``
vectors of weights and broadcasts one number per pixel; the same pixels serve the next tap, shifted. Seven rows of four
vectors would need fewer loads, but 28 accumulators, 4 vectors of weights and a broadcast are one register too many.

The weights are constant and packed ahead into *panels* of ``vectors`` vectors of channels, in the order of the steps.

The border of zeros is a stage of its own, made for a *block* of image rows before the tiles of that block need it: it is
still in the cache then, and all panels of weights pass over it. Its rows are copied as vectors across pixels and channels
alike, however few channels there are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from kernel import Kernel, Scheduler, run

import tilewright as tw
from tilewright import te
from tilewright.tuner.recipes import Panels, TileNest, tiled_product


def declare(shape: tuple[int, int, int, int], window: int = 3, stride: int = 1, padding: int = 1) -> tw.PrimFunc:
    """``shape``: height and width of the image, channels in, channels out."""
    height, width, channels, outputs = shape
    data = te.placeholder((1, height, width, channels), name="X")
    weight = te.placeholder((window, window, channels, outputs), name="W")
    source = data
    if padding:
        source = te.compute(
            (1, height + 2 * padding, width + 2 * padding, channels),
            lambda n, y, x, c: te.if_then_else(
                te.all(y >= padding, y < height + padding, x >= padding, x < width + padding),
                data[n, y - padding, x - padding, c],
                0.0,
            ),
            name="P",
        )
    ry, rx = te.reduce_axis((0, window), name="ry"), te.reduce_axis((0, window), name="rx")
    rc = te.reduce_axis((0, channels), name="rc")
    out = te.compute(
        (1, *[(size + 2 * padding - window) // stride + 1 for size in (height, width)], outputs),
        lambda n, y, x, f: te.sum(
            source[n, y * stride + ry, x * stride + rx, rc] * weight[ry, rx, rc, f], axis=[ry, rx, rc]
        ),
        name="C",
        attrs={"layout_free_placeholders": [weight]},
    )
    return te.create_prim_func([data, weight, out])


def tiled(rows: int, pixels: int, vectors: int, block: int, *, unroll: int = 8, fetch: str = "") -> Scheduler:
    """Returns a schedule: tiles of ``rows`` x ``pixels`` x ``vectors`` vectors, ``block`` tiles of rows between two
    borders.

    ``fetch``: operands, of ``"XW"``: while a panel of weights or a block of the image is used, the next one is fetched,
    a little in every step. That helps where the data come from beyond the level-2 cache: their first use would wait for
    all of them.
    """

    def schedule(func: tw.PrimFunc, target: tw.Target) -> tw.Schedule:
        lanes = target.vector_lanes("float32")
        height = int(func.buffer_map[func.params[2]].shape[1])
        sch = tw.Schedule(func)
        padded = "P" in [b.name for b in sch.get_producers("C")]
        nest = TileNest(  # blocks of rows; in each, panels of channels; in each, tiles; then the reduction, and the tile
            "n y x f ry rx rc", {"y": [None, block, rows], "x": [None, pixels], "f": [None, vectors, lanes]},
            outer="n y0 f0 y1 x0", reduce="ry rx rc", tile="y2 x1 f1 f2", lanes=lanes, unroll={"rc": unroll},
        )  # fmt: skip
        loops, _ = tiled_product(sch, "C", nest, packed=Panels("W", column=3, width=vectors * lanes, inner=[0, 1, 2]))

        # The border: rows of it in one go, pixels and channels together.
        if padded:
            sch.compute_at("P", loops["y0"], preserve_unit_loops=True)
            _, part = sch.split(sch.fuse(*sch.get_loops("P")[-2:]), [None, lanes])
            sch.vectorize(part)

        if "W" in fetch:
            sch.annotate(loops["f0"], "pragma_prefetch_next", ["W_global"])
        if "X" in fetch:
            sch.annotate(loops["y0"], "pragma_prefetch_next", ["X"])
        if target.num_cores > 1:
            sch.parallel(loops["y0" if block * rows < height else "f0"])
        return sch

    return schedule


def reference_of(window: int, stride: int, padding: int) -> Callable[..., None]:
    """Compute the result with NumPy: one product of matrices for each place in the window."""

    def reference(data: np.ndarray, weight: np.ndarray, out: np.ndarray) -> None:
        padded = np.pad(data, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
        height, width = (stride * (size - 1) + 1 for size in out.shape[1:3])
        out[...] = 0
        for dy in range(window):
            for dx in range(window):
                out += padded[:, dy : dy + height : stride, dx : dx + width : stride] @ weight[dy, dx]

    return reference


def kernel(
    name: str, goal: str, schedule: Scheduler, shape: tuple[int, int, int, int], window: int = 3, stride: int = 1,
    padding: int = 1,
) -> Kernel:  # fmt: skip
    """Returns one shape, scheduled."""
    return Kernel(
        name, declare(shape, window, stride, padding), schedule, reference_of(window, stride, padding), "conv2d",
        {"stride": stride, "padding": padding}, goal=goal,
    )  # fmt: skip


KERNELS = [
    kernel("conv 3×3 64×56²", "0.95 of peak", tiled(1, 14, 2, 7, fetch="X"), (56, 56, 64, 64)),
    kernel("conv 3×3 128×28²", "0.95 of peak", tiled(1, 14, 2, 14), (28, 28, 128, 128)),
    kernel("conv 3×3 256×14²", "0.95 of peak", tiled(1, 14, 2, 14, fetch="W"), (14, 14, 256, 256)),
    kernel("conv 3×3 512×7²", "0.92 of peak", tiled(2, 7, 2, 4, fetch="W"), (7, 7, 512, 512)),
    kernel("conv 7×7 s2 3×224² → 64", "0.92 of peak", tiled(1, 14, 2, 14, unroll=3), (224, 224, 3, 64), 7, 2, 3),
    kernel("conv 1×1 s2 64×56² → 128", "0.91 of peak", tiled(1, 14, 2, 14, unroll=16), (56, 56, 64, 128), 1, 2, 0),
]

if __name__ == "__main__":
    run(KERNELS, sys.argv[1:])
