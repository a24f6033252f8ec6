"""Vectors whose lanes lie side by side in memory are stored together."""

import numpy as np
import pytest

import tilewright as tw
from tilewright.tir import script as T

NATIVE = "native -num-cores=1"


def run_and_lowered(func, *shapes):
    """The result of ``func`` for numbers from 0 on, and its lowered text."""
    run = tw.build(func, target=NATIVE)
    arrays = [np.arange(np.prod(shape), dtype="float32").reshape(shape) for shape in shapes]
    arrays[-1][...] = -1
    run(*arrays)
    return arrays, run.get_source("lowered")


@pytest.mark.parametrize("count", [2, 3, 4])
def test_lanes_in_turn_are_shuffled(count):
    @T.prim_func
    def turns(a: T.Buffer((count, 64), "float32"), c: T.Buffer((64 * count,), "float32")):
        T.func_attr({"tir.noalias": True})
        for i in range(4):
            for n in T.unroll(count):
                for v in T.vectorized(16):
                    with T.block("C"):
                        vi, vn, vv = T.axis.remap("SSS", [i, n, v])
                        c[(vi * 16 + vv) * count + vn] = a[vn, vi * 16 + vv] + T.float32(1)

    (a, c), text = run_and_lowered(turns, (count, 64), (64 * count,))
    assert "T.Shuffle" in text and f"T.Ramp(i * {16 * count}, {count}, 16)" not in text
    np.testing.assert_array_equal(c, a.T.reshape(-1) + 1)


def test_an_element_that_is_missing_keeps_stores_of_lanes():
    @T.prim_func
    def gaps(a: T.Buffer((3, 16), "float32"), c: T.Buffer((64,), "float32")):
        T.func_attr({"tir.noalias": True})
        for n in T.unroll(3):
            for v in T.vectorized(16):
                with T.block("C"):
                    vn, vv = T.axis.remap("SS", [n, v])
                    c[vv * 4 + vn] = a[vn, vv]

    (a, c), text = run_and_lowered(gaps, (3, 16), (64,))
    assert "T.Shuffle" not in text
    np.testing.assert_array_equal(c.reshape(16, 4), np.vstack([a, np.full((1, 16), -1)]).T)


def test_values_that_read_what_is_stored_keep_their_order():
    @T.prim_func
    def after(c: T.Buffer((33,), "float32")):
        T.func_attr({"tir.noalias": True})
        for n in T.unroll(2):
            for v in T.vectorized(16):
                with T.block("C"):
                    vn, vv = T.axis.remap("SS", [n, v])
                    c[vv * 2 + vn] = c[vv * 2 + 1] + T.float32(1)

    run = tw.build(after, target=NATIVE)
    c = np.arange(33, dtype="float32")
    run(c)
    old = np.arange(33, dtype="float32")
    np.testing.assert_array_equal(c[0:32:2], old[1:33:2] + 1)
    np.testing.assert_array_equal(c[1:32:2], old[1:33:2] + 1)
