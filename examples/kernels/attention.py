"""Attention of several heads, Y = softmax(Q Kᵀ / √d) V, in one kernel. It never writes the scores to memory.

Run it: ``python examples/kernels/attention.py [words of names]``.

Between the two products lies a softmax of a matrix of scores, 4 MB for each head when there are 1024 positions.
Separate steps would write it, read it three times and write it once more. Here all steps are computed for a block of
rows while its scores are in the level-2 cache, as in FlashAttention (T. Dao and others, 2022), with the whole row at
hand:

* ``scores``: some rows of Q by all of K. Vectors go along the positions, which lie a row apart in K, so that K is
  transposed into panels first, once for each head. A tile of scores stays in registers for the d steps of its sums.
* ``most``, ``power``, ``total``: the softmax of ``norms.py``, for as many rows at a time as a tile of the next step has.
  1/√d and the step from powers of e to powers of two are one factor, taken into Q: it is the smallest matrix here.
* ``sums``: the powers by V, whose rows are as long as four vectors, so that a tile takes whole rows of it, one after the
  other. Where it is complete it is divided by ``total`` and written.

All of that is ``compute_at``: the loops over Y's rows are the only ones that are placed by hand, and each stage is computed
in one of them. The multiply-adds bound it; the powers of two, one for each score, take a tenth of the time.
"""

from __future__ import annotations

import math
import sys

import numpy as np
from kernel import Kernel, Scheduler, run

import tilewright as tw
from tilewright import te
from tilewright.tuner.recipes import RowSweep, arrange, finish_tile, loops_within, sweep_rows

LOG2_E = math.log2(math.e)
larger = te.comm_reducer(lambda a, b: te.select(b > a, b, a), lambda dtype: te.min_value(dtype), name="larger")


def declare(heads: int, m: int, n: int, d: int) -> tw.PrimFunc:
    """Y[h] = softmax(Q[h] K[h]ᵀ / √d) V[h], with m rows of Q, n of K and V."""
    q = te.placeholder((heads, m, d), name="Q")
    k = te.placeholder((heads, n, d), name="K")
    v = te.placeholder((heads, n, d), name="V")
    dd = te.reduce_axis((0, d), name="dd")
    j1, j2, j3 = (te.reduce_axis((0, n), name="j") for _ in range(3))
    scaled = te.compute((heads, m, d), lambda h, i, c: q[h, i, c] * (LOG2_E / math.sqrt(d)), name="scaled")
    scores = te.compute((heads, m, n), lambda h, i, j: te.sum(scaled[h, i, dd] * k[h, j, dd], axis=dd), name="scores")
    most = te.compute((heads, m), lambda h, i: larger(scores[h, i, j1], axis=j1), name="most")
    power = te.compute((heads, m, n), lambda h, i, j: te.exp2(scores[h, i, j] - most[h, i]), name="power")
    total = te.compute((heads, m), lambda h, i: te.sum(power[h, i, j2], axis=j2), name="total")
    scale = te.compute((heads, m), lambda h, i: 1.0 / total[h, i], name="scale")
    sums = te.compute((heads, m, d), lambda h, i, c: te.sum(power[h, i, j3] * v[h, j3, c], axis=j3), name="sums")
    y = te.compute((heads, m, d), lambda h, i, c: sums[h, i, c] * scale[h, i], name="Y")
    return te.create_prim_func([q, k, v, y])


def fused(block: int, scores: tuple[int, int], sums: tuple[int, int], unroll: int = 8) -> Scheduler:
    """Returns a schedule: blocks of ``block`` rows; tiles of rows × vectors for the two products."""

    def schedule(func: tw.PrimFunc, target: tw.Target) -> tw.Schedule:
        lanes = target.vector_lanes("float32")
        sch = tw.Schedule(func)
        n = int(func.buffer_map[func.params[1]].shape[1])
        cols = scores[1] * lanes

        # What there is: Kᵀ in panels, a tile of scores in registers.
        tile = sch.cache_write("scores", 0, "local")
        packed = sch.cache_read("scores", "K", "global")
        sch.transform_layout(
            "scores", ("read", "K_global"), lambda h, j, c: (h, j // cols, c, j % cols),
            pad_value=0.0 if n % cols else None,
        )  # fmt: skip
        sch.set_scope("sums", 0, "local")

        # What is where: all of it in a block of rows, the softmax and the second product for a tile of rows at a time.
        splits = {"i": [None, block // sums[0], sums[0]], "c": [None, sums[1], lanes]}
        loops = arrange(sch, "Y", "h i c", splits, "h i0 i1 c0 i2 c1 c2")
        for name in ("i2", "c1"):
            sch.unroll(loops[name])
        sch.vectorize(loops["c2"])
        sch.compute_at("sums", loops["c0"], preserve_unit_loops=True)
        softmax = RowSweep(lanes, rank=2, rows=sums[0], accumulators=4, vectors=4)
        sweep_rows(sch, ["most", "power", "total", "scale"], softmax, at=loops["i1"])
        for stage in (tile, "scores", "scaled"):
            sch.compute_at(stage, loops["i0"], preserve_unit_loops=True)

        # Kᵀ, a head at a time, and the rows of Q.
        sch.compute_at(packed, loops["h"], preserve_unit_loops=True)
        *_, j, c = sch.get_loops(packed)
        part, column = sch.split(j, [None, cols])
        sch.reorder(part, c, column)
        sch.vectorize(column)
        _, lane = sch.split(sch.get_loops("scaled")[-1], [None, lanes])
        sch.vectorize(lane)

        # The scores.
        i, j, dd = loops_within(sch, "scores", loops["i0"])[1:]
        i0, i1 = sch.split(i, [None, scores[0]])
        panel, vector, lane = sch.split(j, [None, scores[1], lanes])
        sch.reorder(panel, i0, dd, i1, vector, lane)
        sch.reverse_compute_at(tile, i0, preserve_unit_loops=True)
        finish_tile(sch, tile, i0, 2, lanes)
        for loop in (i1, vector):
            sch.unroll(loop)
        sch.vectorize(lane)
        sch.annotate(dd, "pragma_unroll_factor", unroll)
        sch.decompose_reduction("scores", dd)

        # The powers by V.
        i, c, j = sch.get_loops("sums")[-3:]
        vector, lane = sch.split(c, [None, lanes])
        sch.reorder(j, i, vector, lane)
        sch.unroll(i)
        sch.unroll(vector)
        sch.vectorize(lane)
        sch.annotate(j, "pragma_unroll_factor", unroll)
        sch.decompose_reduction("sums", j)
        if target.num_cores > 1:
            sch.parallel(loops["h"])
        return sch

    return schedule


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray, out: np.ndarray) -> None:
    """Compute the result with NumPy."""
    s = q @ k.transpose(0, 2, 1) * np.float32(1 / math.sqrt(q.shape[-1]))
    np.exp(s - s.max(-1, keepdims=True), out=s)
    np.matmul(s / s.sum(-1, keepdims=True), v, out=out)


KERNELS = [
    Kernel(
        f"attention 12×{positions}×64", declare(12, positions, positions, 64), fused(48, (12, 2), (6, 4)), reference,
        "attention", goal="0.75 of peak",
    )
    for positions in (128, 1024)
]  # fmt: skip

if __name__ == "__main__":
    run(KERNELS, sys.argv[1:])
