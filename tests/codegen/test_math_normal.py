"""1 + erf(t) keeps its digits where it nearly vanishes; gelu is made of it."""

import math

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen.lower import lower
from tilewright.codegen.lower.math_normal import named_sums
from tilewright.te import ops
from tilewright.tir import Call, Var, const, op

TARGETS = ("native -num-cores=1", "llvm -mcpu=x86-64-v2 -num-cores=1")


def ulps(got: np.ndarray, exact: np.ndarray) -> float:
    """The largest error in units of the last place of the exact result."""
    return float(np.max(np.abs(got.astype("float64") - exact) / np.spacing(np.abs(exact.astype("float32")))))


def run(f, xs: np.ndarray, target: str) -> np.ndarray:
    """``f`` of a tensor, compiled and called."""
    x = te.placeholder(xs.shape, str(xs.dtype), name="x")
    y = np.empty_like(xs)
    tw.build([x, f(x)], target=target)(xs, y)
    return y


def twice_normal(x: float) -> float:
    return math.erfc(-x * math.sqrt(0.5))


@pytest.mark.parametrize("target", TARGETS)
def test_gelu_is_right_to_the_last_places(target):
    xs = np.concatenate([np.linspace(-12.99, 6, 4001), np.linspace(-1, 1, 1001), [-1e-30, 1e-30, 0.5, 87.0]])
    xs = xs.astype("float32")
    exact = np.array([x / 2 * twice_normal(x) for x in xs.astype("float64")])
    assert ulps(run(ops.gelu, xs, target), exact) < 7


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("sign", [1, -1])
def test_sums_with_one(target, sign):
    xs = np.linspace(-9, 9, 4001).astype("float32")

    def f(x):
        return te.compute(x.shape, lambda i: 1.0 + te.erf(x[i]) if sign > 0 else 1.0 - te.erf(x[i]), name="y")

    exact = np.array([math.erfc(-sign * float(x)) for x in xs])
    assert ulps(run(f, xs, target), exact) < 5


def test_float64():
    xs = np.concatenate([np.linspace(-36, 6, 2001), np.linspace(-1, 1, 501)])
    exact = np.array([x / 2 * twice_normal(x) for x in xs])
    # the reference rounds x / sqrt(2), which costs it x**2 / 2 units
    np.testing.assert_allclose(run(ops.gelu, xs, TARGETS[0]), exact, rtol=3e-13)
    assert run(ops.gelu, np.array([-37.4]), TARGETS[0])[0] < 0


def test_special_values():
    xs = np.array([0.0, -0.0, math.inf, math.nan, -100.0, -3.4e38], "float32")
    got = run(ops.gelu, xs, TARGETS[0])
    np.testing.assert_array_equal(got, np.array([0, 0, math.inf, math.nan, 0, 0], "float32"))
    np.testing.assert_array_equal(np.signbit(got[[0, 1, 4, 5]]), [False, True, True, True])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_named(dtype):
    x = Var("x", dtype)
    one = const(1.0, dtype)

    def named(e) -> str | None:
        found = named_sums(e)
        return found.op.removeprefix("tir.") if isinstance(found, Call) else None

    def erf(y):
        return op.unary("erf", y)

    assert named(erf(x) + one) == named(one + erf(x)) == named(one - erf(x)) == "erf_plus_one"
    assert named(erf(x * math.sqrt(0.5)) + one) == named(one + erf(x / math.sqrt(2.0))) == "twice_normal"
    assert named(erf(x * 0.7) + one) == "erf_plus_one"
    assert named(erf(x) + const(2.0, dtype)) is named(erf(x) - one) is named(op.unary("tanh", x) + one) is None


def test_no_name_is_left_after_lowering():
    x = te.placeholder((7,), "float16", name="x")
    text = str(lower(te.create_prim_func([x, ops.gelu(x)])).func)
    assert "erf" not in text and "normal" not in text
