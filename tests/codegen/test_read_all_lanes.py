"""Masks of loads are dropped where all lanes may be read, and that is faster."""

import numpy as np
import pytest

import tilewright as tw
from tilewright import te

from ..fuzz.guarded_arrays import at_the_end

AVX512 = "llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512 -num-cores=1"


def loads_of(body, size, length, dtype="float32"):
    """The lowered text of ``body`` over vectors of 16 elements."""
    x = te.placeholder((length,), dtype, "x")
    func = te.create_prim_func([x, te.compute((size,), lambda i: body(x, i), name="C")])
    sch = tw.Schedule(func)
    sch.vectorize(sch.split(sch.get_loops("C")[0], [None, 16])[1])
    return tw.build(sch, target=AVX512).get_source("lowered")


@pytest.mark.parametrize("place", [lambda i: i, lambda i: 2 * i, lambda i: i // 4, lambda i: 100 - i])
def test_loads_inside_of_their_buffers_need_no_mask(place):
    def body(x, i):
        return te.if_then_else(x[place(i)] > 0, x[place(i)], te.const(-1, "float32"))

    assert "predicate" not in loads_of(body, 96, 200)


@pytest.mark.parametrize(
    ("place", "length"), [(lambda i: 2 * i - 1, 200), (lambda i: 3 * i, 280), (lambda i: 100 * i, 9600)]
)
def test_masks_stay_where_lanes_may_lie_outside_or_far_apart(place, length):
    def body(x, i):
        return te.if_then_else(te.all(i > 0, i < 90), x[place(i)], te.const(-1, "float32"))

    assert "predicate" in loads_of(body, 96, length)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_quotients_by_lanes_that_a_condition_leaves_out(dtype, stride):
    a, b = [te.placeholder((64 * stride,), dtype, n) for n in "ab"]

    def body(i):
        by = b[stride * i]
        usual = te.all(by != te.const(0, dtype), by != te.const(-1, dtype))
        return te.if_then_else(usual, te.floordiv(a[stride * i], by), te.const(7, dtype))

    run = tw.build(te.create_prim_func([a, b, te.compute((64,), body)]), "native -num-cores=1")
    x = np.full(64 * stride, np.iinfo(dtype).min, dtype)
    y = np.resize(np.array([0, -1, 3, -2, 5], dtype), 64 * stride)
    made = np.zeros(64, dtype)
    run(x, y, made)
    usual = (y != 0) & (y != -1)
    np.testing.assert_array_equal(made, np.where(usual, x // np.where(usual, y, 1), 7)[::stride])


@pytest.mark.parametrize("width", [2, 5, 9, 15])
@pytest.mark.parametrize(("distance", "start"), [(2, 0), (3, 0), (2, -1), (2, 1)])
def test_short_rows_keep_the_part_of_a_mask_that_says_where_they_end(width, distance, start):
    """Each second element of rows, read up to the end of the array: lanes that a condition on rows leaves out are inside."""
    length = distance * (width - 1) + max(start, 0) + 1
    x = te.placeholder((6, length), "float32", "x")

    def body(i, j):
        inside = te.all(distance * j + start >= 0, distance * j + start < length)
        read = te.if_then_else(inside, x[i, distance * j + start], te.const(3, "float32"))
        return te.if_then_else((i + j) % 2 < 1, read, te.const(-1, "float32"))

    sch = tw.Schedule(te.create_prim_func([x, te.compute((6, width), body, name="C")]))
    sch.vectorize(sch.get_loops("C")[1])
    run = tw.build(sch, target="native -num-cores=1")
    a = at_the_end(np.random.default_rng(0).standard_normal((6, length)).astype("float32"))
    made = at_the_end(np.zeros((6, width), "float32"))
    run(a, made)
    i, j = np.indices((6, width))
    places = distance * j + start
    want = np.where((i + j) % 2 < 1, np.where(places >= 0, a[i, np.maximum(places, 0)], 3), -1)
    np.testing.assert_array_equal(made, want)


def test_lanes_of_short_rows_are_picked_out_of_whole_vectors():
    x = te.placeholder((6, 18), "float32", "x")

    def body(i, j):
        return te.if_then_else((i + j) % 2 < 1, x[i, 2 * j], te.const(-1, "float32"))

    sch = tw.Schedule(te.create_prim_func([x, te.compute((6, 9), body, name="C")]))
    sch.vectorize(sch.get_loops("C")[1])
    assert "masked.gather" not in tw.build(sch, target=AVX512).get_source("ll")
