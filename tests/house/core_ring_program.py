"""What the core ring has to do: :mod:`.test_ring` runs this file in a copy of the library where all else is deleted."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import compile as compile_function
from tilewright.schedule import Schedule, ScheduleError
from tilewright.tir import interpret, verify


def matmul(m, n, k):
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="k")
    return te.create_prim_func([a, b, te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")])


def scheduled(func):
    sch = Schedule(func)
    i, j, k = sch.get_loops(sch.get_block("C"))
    i0, i1 = sch.split(i, [None, 4])
    j0, j1 = sch.split(j, [None, 8])
    sch.reorder(i0, j0, k, i1, j1)
    sch.parallel(i0)
    sch.unroll(i1)
    sch.vectorize(j1)
    return sch


def arrays(m, n, k):
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((m, k), (k, n)))
    return a, b, np.full((m, n), np.nan, np.float32)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (7, 13, 16), (16, 16, 17), (17, 50, 12)])
def test_a_scheduled_product_is_right(sizes):
    sch = scheduled(matmul(*sizes))
    verify(sch.func)
    for run in (lambda *x: interpret(sch.func, *x), compile_function(sch, "native")):
        a, b, c = arrays(*sizes)
        run(a, b, c)
        assert np.array_equal(c, a @ b)


def test_a_wrong_step_is_refused():
    sch = Schedule(matmul(7, 13, 16))
    _, _, k = sch.get_loops(sch.get_block("C"))
    with pytest.raises(ScheduleError, match="parallel"):
        sch.parallel(k)
