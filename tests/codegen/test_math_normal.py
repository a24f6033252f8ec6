"""1 + erf(t) keeps its digits where it nearly vanishes; gelu is made of it."""

import math

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen.lower import lower
from tilewright.codegen.math.normal import named_sums
from tilewright.te import ops
from tilewright.tir import Call, Var, const
from tilewright.tir.expr.intrinsics.number_operations import erf, tanh

TARGETS = ("native -num-cores=1", "llvm -mcpu=x86-64-v2 -num-cores=1")

# x, gelu(x), and what the exact value lacks in units of the last place
DIGITS = (
    (-37.25, -1.9734635705229075e-302, -0.427), (-30.1, -7.292228326137134e-198, -0.478),
    (-24.7, -1.3208115991965983e-133, -0.287), (-17.3, -4.068863913739972e-66, 0.033),
    (-13.1, -2.156637682105645e-38, -0.214), (-9.4, -2.56446435706535e-20, -0.034),
    (-7.7, -5.2385498863959505e-14, 0.267), (-5.9, -1.0723296392286628e-08, -0.255),
    (-4.1, -8.469577834144176e-05, 0.278), (-2.77696848, -0.007618404700062778, -0.248),
    (-1.6, -0.08767886671929279, 0.486), (-1.1, -0.14923266704102092, -0.407), (-0.7, -0.1693745565561511, -0.088),
    (-0.33, -0.12233099374958434, -0.278), (-0.125, -0.056282721896235885, -0.494),
    (-0.0288650766, -0.014100188677860356, 0.208), (-0.001, -0.000499601057786089, 0.231), (-1e-20, -5e-21, 0.000),
    (1e-300, 5e-301, 0.000), (1e-05, 5.0000398942280396e-06, 0.398), (0.0076457914, 0.003846216890928145, 0.120),
    (0.0146, 0.007385035515451225, 0.134), (0.13, 0.07172318226509294, 0.483), (0.61, 0.4447321486923665, 0.366),
    (1.06, 0.9067533623562559, -0.387), (2.02, 1.9761827785893535, -0.124), (3.7, 3.699601140986134, 0.102),
    (6.4, 6.3999999995027945, -0.465), (8.9, 8.9, -0.001), (16.0, 16.0, 0.000),
)  # fmt: skip


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
    assert ulps(run(ops.gelu, xs, target), exact) < 2


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("sign", [1, -1])
def test_sums_with_one(target, sign):
    xs = np.linspace(-9, 9, 4001).astype("float32")

    def f(x):
        return te.compute(x.shape, lambda i: 1.0 + te.erf(x[i]) if sign > 0 else 1.0 - te.erf(x[i]), name="y")

    exact = np.array([math.erfc(-sign * float(x)) for x in xs])
    assert ulps(run(f, xs, target), exact) < 3


def test_float64():
    xs = np.concatenate([np.linspace(-36, 6, 2001), np.linspace(-1, 1, 501)])
    exact = np.array([x / 2 * twice_normal(x) for x in xs])
    # the reference rounds x / sqrt(2), which costs it x**2 / 2 units
    np.testing.assert_allclose(run(ops.gelu, xs, TARGETS[0]), exact, rtol=3e-13)
    assert run(ops.gelu, np.array([-37.4]), TARGETS[0])[0] < 0


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_special_values(dtype, target):
    xs = np.array([0.0, -0.0, math.inf, math.nan, -100.0, -3.4e38, -math.inf, 3.4e38], dtype)
    got = run(ops.gelu, xs, target)
    np.testing.assert_array_equal(got, np.array([0, 0, math.inf, math.nan, 0, 0, math.nan, xs[-1]], dtype))
    np.testing.assert_array_equal(np.signbit(got[[0, 1, 4, 5]]), [False, True, True, True])


@pytest.mark.parametrize("target", TARGETS)
def test_float64_against_more_digits(target):
    # x / 2 * erfc(-x / sqrt(2)) to 40 digits, as a float64 and what it lacks, in units of the last place
    got = run(ops.gelu, np.array([x for x, _, _ in DIGITS]), target)
    for y, (x, exact, rest) in zip(got, DIGITS, strict=True):
        assert abs((y - exact) / math.ulp(exact) - rest) < 2, x


@pytest.mark.parametrize("target", TARGETS)
def test_float64_where_the_sum_is_near_one(target):
    rng = np.random.default_rng(0)
    xs = np.exp(rng.uniform(math.log(1e-20), math.log(0.3), 60_000)) * rng.choice([-1, 1], 60_000)
    x = xs.astype(np.longdouble)  # x / 2 * (1 + erf(x / sqrt(2))), erf by its Taylor series
    series = sum((-x * x / 2) ** n / (math.factorial(n) * (2 * n + 1)) for n in range(16))
    exact = (x + x * x * np.sqrt(np.longdouble(1) / np.arctan(np.longdouble(1)) / 2) * series) / 2
    off = np.abs(run(ops.gelu, xs, target) - exact) / np.spacing(np.abs(exact.astype("float64")))
    assert np.max(off) < 2


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gelu_is_named_whatever_the_order_of_its_factors(dtype):
    x, y = Var("x", dtype) * Var("z", dtype), Var("y", dtype)
    half = const(0.5, dtype)
    total = Call("tir.twice_normal", (x,), dtype)
    for e in (x * half * total, half * x * total, total * (x * half), x * (half * total), (total * x) * half):
        found = named_sums(e)
        assert isinstance(found, Call) and found.op == "tir.gelu" and found.args[0] is x
    for e in (y * half * total, x * const(0.25, dtype) * total, x * total, half * total, half * half * total):
        assert named_sums(e) is None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_named(dtype):
    x = Var("x", dtype)
    one = const(1.0, dtype)

    def named(e) -> str | None:
        found = named_sums(e)
        return found.op.removeprefix("tir.") if isinstance(found, Call) else None

    assert named(erf(x) + one) == named(one + erf(x)) == named(one - erf(x)) == "erf_plus_one"
    assert named(erf(x * math.sqrt(0.5)) + one) == named(one + erf(x / math.sqrt(2.0))) == "twice_normal"
    assert named(erf(x * 0.7) + one) == "erf_plus_one"
    assert named(erf(x) + const(2.0, dtype)) is named(erf(x) - one) is named(tanh(x) + one) is None


def test_no_name_is_left_after_lowering():
    x = te.placeholder((7,), "float16", name="x")
    text = str(lower(te.create_prim_func([x, ops.gelu(x)])).func)
    assert "erf" not in text and "normal" not in text
