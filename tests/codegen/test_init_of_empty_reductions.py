"""A reduction over a size that is 0 gives its init, whatever unit loops and conditions splitting has left around it."""

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.tir import interpret


def product_sum(n):
    a, b = te.placeholder((2, n), name="A"), te.placeholder((2, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((2, 2), lambda i, j: te.sum(a[i, k] * b[j, k], axis=k), name="C")
    return te.create_prim_func([a, b, c])


def split_by_one(sch, block):
    i, j, k = sch.get_loops(block)
    outer, inner = sch.split(k, [None, 1])
    rest, last = sch.split(inner, [None, 5], preserve_unit_iters=False)
    sch.reorder(rest, j, outer, i, last)


def factored_by_one(sch, block):
    i, j, k = sch.get_loops(block)
    outer, middle, inner = sch.split(k, [None, 8, 5], preserve_unit_iters=False)
    sch.rfactor(sch.split(middle, [None, 1])[1], factor_axis=-1)


@pytest.mark.parametrize("steps", [split_by_one, factored_by_one])
@pytest.mark.parametrize("size", [0, 1, 7])
def test_init_runs_beside_unit_loops(steps, size):
    sch = tw.Schedule(product_sum(te.var("n")))
    steps(sch, "C")
    rng = np.random.default_rng(0)
    a, b = [rng.integers(-9, 9, (2, size)).astype("float32") for _ in range(2)]
    for run in (tw.build(sch, target="native -num-cores=1"), lambda *given: interpret(sch.func, *given)):
        out = np.full((2, 2), np.nan, "float32")
        run(a, b, out)
        np.testing.assert_array_equal(out, a @ b.T)
