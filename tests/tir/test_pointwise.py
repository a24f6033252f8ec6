"""Bounds of expressions at each point of a grid hold what NumPy computes, rounded after each operation or at the end."""

import numpy as np
import pytest

from tilewright import te
from tilewright.tir import IntImm, Var
from tilewright.tir.arith import lies_between
from tilewright.tir.arith.pointwise import bounds_at_points, grid

i = Var("i")
POINTS = grid({i: (-20, 300)})
AT = np.arange(-20, 301)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("seed", range(8))
def test_floats_round_inside(dtype, seed):
    rng = np.random.default_rng(seed)
    c, d, e = (np.dtype(dtype).type(x) for x in rng.uniform(-3, 3, 3))
    x = te.cast(dtype, i)
    number = (x * te.const(float(c), dtype) + te.const(float(d), dtype)) * te.const(float(e), dtype)
    lo, hi = bounds_at_points(te.cast("int32", te.floor(number)), POINTS)
    stepwise = np.floor((AT.astype(dtype) * c + d) * e)
    at_once = np.floor(((AT.astype("float64") * float(c) + float(d)) * float(e)).astype(dtype))
    for value in (stepwise, at_once):
        assert (lo <= value).all() and (value <= hi).all()
    assert (hi - lo).max() <= (1 if dtype != "float16" else 40)


def test_small_fractions_are_exact():
    x = te.cast("float32", i)
    lo, hi = bounds_at_points(
        te.cast("int32", te.floor(x * te.const(0.5, "float32") - te.const(0.25, "float32"))), POINTS
    )
    np.testing.assert_array_equal(lo, np.floor(AT * 0.5 - 0.25))
    np.testing.assert_array_equal(hi, lo)


@pytest.mark.parametrize(
    "expression, value",
    [
        (i // 7 * 3 - i % 7, AT // 7 * 3 - AT % 7),
        (te.max(te.min(i, 100), 3), np.clip(AT, 3, 100)),
        (te.cast("int32", te.cast("float32", i) / te.const(2.0, "float32")), np.trunc(AT / 2)),
        (te.cast("int32", te.ceil(te.cast("float64", i) * te.const(0.75, "float64"))), np.ceil(AT * 0.75)),
    ],
)
def test_whole_numbers_are_exact(expression, value):
    lo, hi = bounds_at_points(expression, POINTS)
    np.testing.assert_array_equal(lo, value)
    np.testing.assert_array_equal(hi, value)


@pytest.mark.parametrize(
    "expression",
    [
        te.cast("int8", i),  # 300 is no int8
        te.cast("uint32", te.cast("float32", i)),
        te.cast("int32", te.const(1.0, "float32") / te.cast("float32", i)),
        te.cast("int32", te.exp(te.cast("float32", i))),
    ],
)
def test_what_is_not_followed(expression):
    assert bounds_at_points(expression, POINTS) is None


def test_lies_between():
    at = te.cast("int32", te.floor(te.cast("float32", i) * te.const(0.5, "float32")))
    assert lies_between(at, i // 2, i // 2, lambda _: (0, 99))
    assert not lies_between(at, i // 2, i // 2 - 1, lambda _: (0, 99))
    assert not lies_between(at, i // 2, i // 2, lambda _: (0, None))
    assert not lies_between(at, i // 2, i // 2, lambda _: (0, 10**6))
    assert not lies_between(i // 2, IntImm(0), IntImm(1000), lambda _: (0, 99))  # the rules are for these


def test_bounds_have_to_hold_at_each_point():
    """An expression that is inside at some points only is not proven to lie between the ends."""
    half = te.cast("int32", te.floor(te.cast("float32", i) * te.const(0.5, "float32")))
    zero, range_of = IntImm(0), {i: (0, 20)}.__getitem__
    assert lies_between(half, zero, IntImm(10), range_of)
    assert not lies_between(half, zero, IntImm(9), range_of)  # 10 at the last point alone
    assert not lies_between(half, IntImm(1), IntImm(10), range_of)  # 0 at the first points
    assert lies_between(half, i // 2, i // 2, range_of)
    assert not lies_between(half, zero, IntImm(10), lambda v: (-1, 20))  # -1 at the first point


def test_grids_end_below_the_numbers_that_float64_has_exactly():
    whole = 2**52
    assert grid({i: (whole - 3, whole - 1)})[i].tolist() == [whole - 3, whole - 2, whole - 1]
    assert grid({i: (1 - whole, 3 - whole)})[i].tolist() == [1 - whole, 2 - whole, 3 - whole]
    assert grid({i: (whole - 3, whole)}) is None
    assert grid({i: (-whole, 3 - whole)}) is None
