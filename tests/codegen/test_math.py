"""The polynomial expansions against higher precision: errors in units of the last place, and special values."""

import math

import numpy as np
import pytest

from tilewright.codegen.lower.lower_math import lower_math
from tilewright.codegen.math import expand
from tilewright.tir import BufferStore, Call, Expr, For, PrimFunc, Var, const, decl_buffer
from tilewright.tir.expr import DType
from tilewright.tir.expr.intrinsics import operation_named
from tilewright.tir.expr.intrinsics.number_operations import exp, fabs, fma, fmod, isnan, pow_
from tilewright.tir.interpret import interpret
from tilewright.tir.interpret.interpret_expr import ExprCompiler

INF, NAN = math.inf, math.nan
LD = np.longdouble


def evaluate(name: str, dtype: str, *xs: np.ndarray, fused: bool = True) -> np.ndarray:
    """The expansion of ``tir.<name>`` on whole arrays, as one long vector."""
    xs = tuple([np.asarray(x, dtype) for x in xs])
    wide = DType(dtype).with_lanes(len(xs[0]))
    args = [Var(f"x{i}", wide) for i in range(len(xs))]
    e = expand(Call(f"tir.{name}", tuple(args), wide), fused)
    assert e is not None
    compiler = ExprCompiler(lambda *_: None, {})
    run = compiler.compile(e)
    for v, x in zip(args, xs, strict=True):
        compiler.registers[compiler.slot(v)] = x
    with np.errstate(all="ignore"):
        out = run()
    assert out.dtype == dtype
    return out


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


def erf(x: np.ndarray) -> np.ndarray:
    return np.array([math.erf(v) for v in x], x.dtype)


REFERENCE = {
    "exp": np.exp, "exp2": np.exp2, "exp10": lambda x: np.power(x.dtype.type(10), x), "expm1": np.expm1, "log": np.log,
    "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "tanh": np.tanh, "sigmoid": sigmoid, "erf": erf,
    "rsqrt": lambda x: 1 / np.sqrt(x), "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh,
}  # fmt: skip
# function: (intervals of float32, ULP) and (intervals of float64, ULP)
WIDE = (-1e-3, 1e-3), (-2, 2), (-100, 100)
FAR_32 = (-1.4e5, 1.4e5), (1e6, 1.4e8), (1e8, 1e12), (1e30, 3e38)
CASES32 = {
    "exp": ([(-104, 89), (-1, 1), (-1e-6, 1e-6)], 1), "exp2": ([(-150, 128), (-1, 1)], 1),
    "exp10": ([(-45, 38.5), (-1, 1)], 1), "expm1": ([(-20, 89), (-1, 1), (-1e-3, 1e-3)], 1.5),
    "log": ([(0, 1e-38), (1e-38, 1), (0.5, 2), (0.99, 1.01), (1, 1e38)], 1),
    "log2": ([(0, 1e-38), (1e-38, 1), (0.5, 2), (0.99, 1.01), (1, 1e38)], 1.5),
    "log10": ([(0, 1e-38), (1e-38, 1), (0.5, 2), (0.99, 1.01), (1, 1e38)], 1.5),
    "log1p": ([(-1, 1), (-1e-3, 1e-3), (0, 3.4e38)], 1.5), "tanh": ([(-10, 10), (-1, 1), (-1e-3, 1e-3)], 1.5),
    "sigmoid": ([(-104, 20), (-2, 2)], 1.5), "erf": ([(-5, 5), (-1, 1), (-1e-3, 1e-3)], 1.5),
    "rsqrt": ([(0, 1), (1, 1e38)], 1.5), "sin": ([*WIDE, *FAR_32], 1),
    "cos": ([*WIDE, *FAR_32], 1), "tan": ([*WIDE, *FAR_32], 1.5),
    "asin": ([(-1, 1), (-1e-3, 1e-3)], 0.51), "acos": ([(-1, 1), (-1e-3, 1e-3)], 0.51), "atan": ([*WIDE, (-1e30, 1e30)], 0.51),
    "sinh": ([*WIDE], 0.51), "cosh": ([*WIDE], 0.51), "asinh": ([*WIDE, (-1e30, 1e30)], 0.51), "acosh": ([(1, 2), (1, 1e30)], 0.51),
    "atanh": ([(-1, 1), (-1e-3, 1e-3)], 0.51),
}  # fmt: skip
FAR_64 = (-1.1e9, 1.1e9), (1e15, 1e22), (1e300, 1e308)
CASES64 = {
    "exp": ([(-745, 709.7), (-1, 1)], 1), "exp2": ([(-1070, 1023), (-1, 1)], 1), "exp10": ([(-320, 308), (-1, 1)], 1),
    "expm1": ([(-40, 700), (-1, 1), (-1e-5, 1e-5)], 2), "log": ([(0, 1e-307), (0.5, 2), (0.99, 1.01), (1, 1e300)], 1),
    "log2": ([(0, 1e-307), (0.5, 2), (0.99, 1.01), (1, 1e300)], 2),
    "log10": ([(0, 1e-307), (0.5, 2), (0.99, 1.01), (1, 1e300)], 2),
    "log1p": ([(-1, 1), (-1e-5, 1e-5), (0, 1.7e308)], 2), "tanh": ([(-25, 25), (-1, 1), (-1e-5, 1e-5)], 1.5),
    "sigmoid": ([(-745, 40), (-2, 2)], 1.5), "erf": ([(-7, 7), (-1, 1), (-1e-3, 1e-3)], 2.5), "rsqrt": ([(0, 1)], 1.5),
    "asin": ([(-1, 1), (-1e-3, 1e-3)], 1.5), "acos": ([(-1, 1)], 2), "atan": ([*WIDE, (-1e30, 1e30)], 2),
    "sin": ([*WIDE, *FAR_64], 1), "cos": ([*WIDE, *FAR_64], 1), "tan": ([*WIDE, *FAR_64], 1.5),
    "sinh": ([*WIDE, (-700, 700)], 2), "cosh": ([*WIDE, (-700, 700)], 2),
    "asinh": ([*WIDE, (-1e12, 1e12), (-8e307, 8e307)], 3),
    "acosh": ([(1, 2), (1, 1e12), (1, 1.7e308)], 3), "atanh": ([(-1, 1), (-1e-3, 1e-3)], 3),
}  # fmt: skip


def samples(lo: float, hi: float, dtype: str, count: int, seed: int) -> np.ndarray:
    """Half of them even over the interval, half even over the exponents."""
    rng = np.random.default_rng(seed)
    even = rng.uniform(lo, hi, count // 2)
    size = max(abs(lo), abs(hi))
    small = size * np.exp2(rng.uniform(-40, 0, count - count // 2)) * rng.choice([-1.0, 1.0], count - count // 2)
    small = np.where((small < lo) | (small > hi), -small, small)
    small = np.where((small < lo) | (small > hi), lo, small)
    return np.concatenate([even, small]).astype(dtype)


def ulps(got: np.ndarray, want: np.ndarray, dtype: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        rounded = want.astype(dtype)
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    unit = np.spacing(np.abs(rounded)).astype(LD)
    with np.errstate(all="ignore"):
        error = np.abs(got.astype(LD) - want.astype(LD)) / unit
    return np.where(same, np.minimum(error, 0.5), np.where(np.isfinite(error), error, INF))


def worst(name: str, dtype: str, intervals: list[tuple[float, float]], count: int, fused: bool = True) -> float:
    higher = np.float64 if dtype == "float32" else LD
    out = 0.0
    for i, (lo, hi) in enumerate(intervals):
        x = samples(lo, hi, dtype, count, i)
        with np.errstate(all="ignore"):
            want = REFERENCE[name](x.astype(higher))
        error = ulps(evaluate(name, dtype, x, fused=fused), want, dtype)
        out = max(out, float(error.max()))
    return out


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", sorted(CASES32))
def test_float32(name: str, fused: bool) -> None:
    intervals, limit = CASES32[name]
    assert worst(name, "float32", intervals, 20000 if fused else 8000, fused) <= limit + (0 if fused else 0.5)


@pytest.mark.skipif(np.finfo(LD).eps > 1e-18, reason="needs a long double of 64 bits or more as reference")
@pytest.mark.parametrize("name", sorted(CASES64))
def test_float64(name: str) -> None:
    intervals, limit = CASES64[name]
    assert worst(name, "float64", intervals, 500) <= limit


SPECIAL = {
    "exp": [(INF, INF), (-INF, 0), (0, 1), (-0.0, 1), (1e30, INF), (-1e30, 0)],
    "exp2": [(INF, INF), (-INF, 0), (0, 1), (10, 1024), (-149, 2.0**-149), (-126, 2.0**-126), (128, INF)],
    "exp10": [(INF, INF), (-INF, 0), (0, 1), (2, 100), (40, INF)],
    "expm1": [(INF, INF), (-INF, -1), (0, 0), (-0.0, -0.0), (-100, -1)],
    "log": [(INF, INF), (0, -INF), (-0.0, -INF), (1, 0), (-1, NAN), (-INF, NAN)],
    "log2": [(INF, INF), (0, -INF), (1, 0), (8, 3), (0.25, -2), (-1, NAN), (2.0**-149, -149)],
    "log10": [(INF, INF), (0, -INF), (1, 0), (-1, NAN)],
    "log1p": [(INF, INF), (-1, -INF), (0, 0), (-0.0, -0.0), (-2, NAN), (1e-45, 1e-45)],
    "tanh": [(INF, 1), (-INF, -1), (0, 0), (-0.0, -0.0), (20, 1), (-20, -1), (1e-45, 1e-45)],
    "sigmoid": [(INF, 1), (-INF, 0), (0, 0.5), (100, 1)],
    "erf": [(INF, 1), (-INF, -1), (0, 0), (-0.0, -0.0), (6, 1), (-6, -1)],
    "rsqrt": [(INF, 0), (0, INF), (4, 0.5), (-1, NAN)],
    "sin": [(INF, NAN), (0, 0), (-0.0, -0.0)],
    "cos": [(INF, NAN), (0, 1), (-0.0, 1)],
    "tan": [(-INF, NAN), (0, 0), (-0.0, -0.0)],
    "asin": [(0, 0), (-0.0, -0.0), (1.5, NAN), (-1.5, NAN)],
    "acos": [(1, 0), (1.5, NAN), (-1.5, NAN)],
    "atan": [(INF, math.pi / 2), (-INF, -math.pi / 2), (0, 0), (-0.0, -0.0)],
    "sinh": [(INF, INF), (-INF, -INF), (0, 0), (-0.0, -0.0)],
    "cosh": [(INF, INF), (-INF, INF), (0, 1)],
    "asinh": [(INF, INF), (-INF, -INF), (0, 0), (-0.0, -0.0)],
    "acosh": [(INF, INF), (1, 0), (0.5, NAN), (-2, NAN), (-3e38, NAN)],
    "atanh": [(1, INF), (-1, -INF), (0, 0), (-0.0, -0.0), (1.5, NAN)],
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", sorted(SPECIAL))
def test_special_values(name: str, dtype: str) -> None:
    pairs = [
        (x, y) for x, y in [*SPECIAL[name], (NAN, NAN)] if dtype == "float32" or abs(x) not in (2.0**-149, 128, 40)
    ]
    x = np.array([p[0] for p in pairs], dtype)
    want = np.array([p[1] for p in pairs], dtype)
    got = evaluate(name, dtype, x)
    np.testing.assert_array_equal(got, want)
    zero = want == 0
    assert (np.signbit(got[zero]) == np.signbit(want[zero])).all(), f"{name}: {x[zero]} gives {got[zero]}"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pow(dtype: str) -> None:
    rng = np.random.default_rng(1)
    count = 20000 if dtype == "float32" else 1000
    higher = np.float64 if dtype == "float32" else LD
    top = 38 if dtype == "float32" else 300
    x = np.power(10.0, rng.uniform(-top, top, count)).astype(dtype)
    y = (rng.uniform(-1, 1, count) * top / np.abs(np.log10(x.astype(float)))).astype(dtype)
    near = (1 + rng.uniform(-0.3, 0.3, count)).astype(dtype)
    steep = (rng.uniform(-1, 1, count) * 0.95 * top * math.log(10) / np.abs(np.log(near.astype(float)))).astype(dtype)
    for a, b in ((x, y), (near, steep)):
        want = np.power(a.astype(higher), b.astype(higher))
        assert ulps(evaluate("pow", dtype, a, b), want, dtype).max() <= (1 if dtype == "float32" else 2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pairs_of_special_values(dtype: str) -> None:
    values = [0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, 2.5, -2.5, INF, -INF, NAN, 1e30, -1e30]
    x = np.repeat(np.array(values, dtype), len(values))
    y = np.tile(np.array(values, dtype), len(values))
    with np.errstate(all="ignore"):
        for name, f in (("pow", np.power), ("atan2", np.arctan2), ("hypot", np.hypot), ("fmod", np.fmod)):
            want, got = f(x, y), evaluate(name, dtype, x, y)
            same = (got == want) & (np.signbit(got) == np.signbit(want)) | np.isnan(got) & np.isnan(want)
            close = np.isfinite(want) & (np.abs(got - want) <= 2 * np.spacing(np.abs(want)))
            wrong = ~(same | close)
            assert not wrong.any(), f"{name} of {x[wrong]}, {y[wrong]}: {got[wrong]}, not {want[wrong]}"


def test_atan2() -> None:
    rng = np.random.default_rng(2)
    x, y = [
        (rng.choice([-1, 1], 20000) * np.power(10.0, rng.uniform(-6, 6, 20000))).astype("float32") for _ in range(2)
    ]
    want = np.arctan2(y.astype(np.float64), x.astype(np.float64))
    assert ulps(evaluate("atan2", "float32", y, x), want, "float32").max() <= 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_hypot_over_the_whole_range(dtype: str) -> None:
    rng = np.random.default_rng(3)
    top = 37 if dtype == "float32" else 307
    sizes = np.power(10.0, rng.uniform(-top, top, 2000))
    x, y = sizes.astype(dtype), (sizes * rng.uniform(-3, 3, 2000)).astype(dtype)
    want = np.hypot(x.astype(LD), y.astype(LD))
    assert ulps(evaluate("hypot", dtype, x, y), want, dtype).max() <= (0.51 if dtype == "float32" else 1.25)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fmod_is_exact(dtype: str) -> None:
    rng = np.random.default_rng(4)
    y = np.power(10.0, rng.uniform(-20, 10, 3000)).astype(dtype)
    quotient = np.power(10.0, rng.uniform(-2, 25 if dtype == "float32" else 40, 3000))
    x = (rng.choice([-1, 1], 3000) * np.where(np.arange(3000) % 3, quotient, np.rint(quotient)) * y).astype(dtype)
    np.testing.assert_array_equal(evaluate("fmod", dtype, x, y), np.fmod(x, y))
    if dtype == "float32":
        np.testing.assert_array_equal(evaluate("fmod", dtype, x, y, fused=False), np.fmod(x, y))


def near_multiples(dtype: str) -> np.ndarray:
    """The numbers nearest to whole multiples of pi/2: what the reduction leaves of them is small."""
    rng = np.random.default_rng(5)
    n = np.unique(np.concatenate([np.arange(1, 400), np.exp2(rng.uniform(9, 29, 600)).astype(np.int64)]))
    x = (n.astype(LD) * (LD(2) * np.arctan(LD(1)))).astype(dtype)
    return np.concatenate([x, -x, np.nextafter(x, x.dtype.type(0))])


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_waves_near_multiples_of_a_quarter_turn(name: str, dtype: str) -> None:
    x = near_multiples(dtype)
    want = getattr(np, name)(x.astype(np.float64 if dtype == "float32" else LD))
    assert ulps(evaluate(name, dtype, x), want, dtype).max() <= 1.5


def test_float64_without_fused_operations_takes_the_library() -> None:
    x = Var("x", "float64")
    for name in ("sin", "cos", "tan"):
        assert expand(operation_named(name)(x), fused=False) is None
    assert expand(fmod(x, x), fused=False) is None


def test_float16_goes_through_float32() -> None:
    x = np.linspace(-5, 5, 1000).astype("float16")
    got = evaluate("tanh", "float16", x)
    assert ulps(got, np.tanh(x.astype(np.float64)), "float16").max() <= 0.51


def test_what_stays() -> None:
    x = Var("x", "float32")
    for name in ("sqrt", "floor", "round", "fabs", "trunc"):
        assert expand(operation_named(name)(x)) is None
    assert expand(isnan(x)) is None and expand(fma(x, x, x)) is None


def test_the_pass_on_a_function() -> None:
    A, B = decl_buffer((13,), name="A"), decl_buffer((13,), name="B")
    i, a, b = Var("i"), Var("a", "handle"), Var("b", "handle")
    value: Expr = operation_named("sigmoid")(exp(A[i]) - pow_(fabs(A[i]), 0.5))
    loop = For(i, const(0), const(13), "serial", BufferStore(B, value, (i,)))
    func = PrimFunc((a, b), loop, {a: A, b: B})
    lowered = lower_math(func)
    x = np.linspace(-3, 3, 13).astype("float32")
    before, after = np.zeros(13, "float32"), np.zeros(13, "float32")
    interpret(func, x, before)
    interpret(lowered, x, after)
    np.testing.assert_allclose(after, before, rtol=1e-6)
    assert not any(name in str(lowered) for name in ("T.exp", "T.sigmoid", "T.pow"))
    plain = PrimFunc((a, b), For(i, const(0), const(13), "serial", BufferStore(B, A[i], (i,))), {a: A, b: B})
    assert lower_math(plain) is plain
