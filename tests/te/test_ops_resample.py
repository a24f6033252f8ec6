"""Adaptive pooling and resizing against plain NumPy, at awkward sizes."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from tilewright import te
from tilewright.te import ops


def ph(a, name="X"):
    return te.placeholder(a.shape, str(a.dtype), name)


# Adaptive pooling


def adaptive_reference(x, sizes, f):
    """``x`` (N, C, spatial…) pooled to ``sizes`` by ``f`` of each window."""
    out = np.empty((*x.shape[:2], *sizes), x.dtype)
    for index in itertools.product(*map(range, sizes)):
        window = [slice(i * n // o, -(-(i + 1) * n // o)) for i, n, o in zip(index, x.shape[2:], sizes, strict=True)]
        out[(slice(None), slice(None), *index)] = f(x[(slice(None), slice(None), *window)], tuple(range(2, x.ndim)))
    return out


@pytest.mark.parametrize(
    "size, out", [((7, 13), (3, 5)), ((8, 6), (4, 3)), ((5, 7), (1, 7)), ((3, 2), (7, 5)), ((1, 1), 1)]
)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_adaptive_pool2d(evaluate, rng, size, out, layout):
    x = rng.standard_normal((2, 3, *size)).astype("float32")
    sizes = out if isinstance(out, tuple) else (out, out)
    largest, mean = adaptive_reference(x, sizes, np.max), adaptive_reference(x, sizes, np.mean)
    if layout == "NHWC":
        x, largest, mean = (a.transpose(0, 2, 3, 1).copy() for a in (x, largest, mean))
    X = ph(x)
    np.testing.assert_array_equal(evaluate(ops.adaptive_max_pool2d(X, out, layout), [X], x), largest)
    np.testing.assert_allclose(evaluate(ops.adaptive_avg_pool2d(X, out, layout), [X], x), mean, rtol=1e-5, atol=1e-6)


def test_adaptive_pool_1d_3d_and_types(evaluate, rng):
    x = rng.integers(-99, 99, (1, 2, 13)).astype("int32")
    X = ph(x)
    got = evaluate(ops.adaptive_avg_pool1d(X, 5), [X], x)
    np.testing.assert_allclose(got, adaptive_reference(x.astype("float32"), (5,), np.mean), rtol=1e-6)
    np.testing.assert_array_equal(evaluate(ops.adaptive_max_pool1d(X, 5), [X], x), adaptive_reference(x, (5,), np.max))
    v = rng.standard_normal((1, 2, 4, 5, 3)).astype("float32")
    V = ph(v)
    want = adaptive_reference(v, (2, 3, 3), np.mean)
    np.testing.assert_allclose(evaluate(ops.adaptive_avg_pool3d(V, (2, 3, None)), [V], v), want, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(
        evaluate(ops.adaptive_max_pool3d(V, 2), [V], v), adaptive_reference(v, (2, 2, 2), np.max)
    )


def test_adaptive_pool_errors():
    X, n = te.placeholder((1, 2, 7, 7)), te.var("n")
    with pytest.raises(ValueError, match="output_size=0 has to be at least 1"):
        ops.adaptive_avg_pool2d(X, 0)
    with pytest.raises(ValueError, match=r"output_size=\(1, 2, 3\) has 3 entries for 2 dimensions"):
        ops.adaptive_max_pool2d(X, (1, 2, 3))
    with pytest.raises(ValueError, match="a size is n; it has to be a constant here"):
        ops.adaptive_max_pool2d(te.placeholder((1, 2, n, 7)), 3)


# Resizing


def place(i, n, out, mode):
    if mode == "asymmetric":
        return Fraction(i * n, out)
    if mode == "align_corners":
        return Fraction(i * (n - 1), out - 1) if out > 1 else Fraction(0)
    if mode == "pytorch_half_pixel" and out == 1:
        return Fraction(0)
    return Fraction((2 * i + 1) * n, 2 * out) - Fraction(1, 2)


ROUND = {
    "floor": math.floor,
    "ceil": math.ceil,
    "round_prefer_floor": lambda p: math.ceil(p - Fraction(1, 2)),
    "round_prefer_ceil": lambda p: math.floor(p + Fraction(1, 2)),
}


def cubic(d, a):
    d = abs(d)
    return (
        (a + 2) * d**3 - (a + 3) * d**2 + 1 if d <= 1 else a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0
    )


def matrix(n, out, method, mode, rounding, a):
    """The weight of each of ``n`` elements in each of ``out`` results."""
    m = np.zeros((out, n))
    for i in range(out):
        p = place(i, n, out, mode)
        if method == "nearest":
            m[i, min(max(ROUND[rounding](p), 0), n - 1)] = 1
            continue
        low, reach = math.floor(p), 1 if method == "linear" else 2
        for j in range(low - reach + 1, low + reach + 1):
            d = float(p - j)
            m[i, min(max(j, 0), n - 1)] += 1 - abs(d) if method == "linear" else cubic(d, a)
    return m


def resize_reference(x, sizes, method, mode, rounding="round_prefer_floor", a=-0.75):
    """``x`` (N, C, spatial…) at ``sizes``."""
    out = x.astype("float64")
    for axis, size in enumerate(sizes, 2):
        m = matrix(x.shape[axis], size, method, mode, rounding, a)
        out = np.moveaxis(np.tensordot(m, out, (1, axis)), 0, axis)
    return out


MODES = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("size, out", [((7, 5), (13, 16)), ((13, 16), (5, 7)), ((4, 4), (1, 8)), ((1, 3), (5, 3))])
def test_resize2d(evaluate, rng, size, out, method, mode):
    x = rng.standard_normal((1, 2, *size)).astype("float32")
    X = ph(x)
    want = resize_reference(x, out, method, mode)
    got = evaluate(ops.resize2d(X, out, method=method, coordinate_mode=mode), [X], x)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rounding", list(ROUND))
@pytest.mark.parametrize("n, out", [(2, 4), (4, 2), (7, 17), (16, 3)])
def test_nearest_rounds_exactly(evaluate, n, out, rounding):
    x = np.arange(n, dtype="int32").reshape(1, 1, n)
    X = ph(x)
    for mode in MODES:
        got = evaluate(ops.resize1d(X, out, method="nearest", coordinate_mode=mode, rounding=rounding), [X], x)
        assert got.ravel().tolist() == resize_reference(x, (out,), "nearest", mode, rounding).ravel().tolist()


def test_resize_1d_3d_layouts_and_types(evaluate, rng):
    v = rng.standard_normal((1, 2, 3, 4, 5)).astype("float32")
    want = resize_reference(v, (5, 4, 2), "linear", "half_pixel")
    V, W = ph(v), ph(v.transpose(0, 2, 3, 4, 1))
    np.testing.assert_allclose(evaluate(ops.resize3d(V, (5, 4, 2)), [V], v), want, rtol=1e-5, atol=1e-5)
    got = evaluate(ops.resize3d(W, (5, 4, 2), "NDHWC"), [W], v.transpose(0, 2, 3, 4, 1))
    np.testing.assert_allclose(got, want.transpose(0, 2, 3, 4, 1), rtol=1e-5, atol=1e-5)
    whole = rng.integers(0, 255, (1, 1, 7)).astype("uint8")
    U = ph(whole)
    y = ops.resize1d(U, 13, method="cubic", cubic_alpha=-0.5)
    assert y.dtype == "float32" and ops.resize1d(U, 7).dtype == "float32"
    want = resize_reference(whole, (13,), "cubic", "half_pixel", a=-0.5)
    np.testing.assert_allclose(evaluate(y, [U], whole), want, rtol=1e-5, atol=1e-4)
    half = rng.standard_normal((1, 1, 7)).astype("float16")
    H = ph(half)
    z = ops.resize1d(H, 16)
    assert z.dtype == "float16"
    want = resize_reference(half, (16,), "linear", "half_pixel")
    np.testing.assert_allclose(evaluate(z, [H], half), want, rtol=2e-3, atol=1e-3)
    np.testing.assert_array_equal(evaluate(ops.resize1d(H, 7), [H], half), half)


def test_resize_errors():
    X = te.placeholder((1, 2, 7, 7))
    with pytest.raises(ValueError, match="resize2d: method='area'; there are 'nearest', 'linear', 'cubic'"):
        ops.resize2d(X, 3, method="area")
    with pytest.raises(ValueError, match="coordinate_mode='tf_crop_and_resize'; there are 'half_pixel'"):
        ops.resize2d(X, 3, coordinate_mode="tf_crop_and_resize")
    with pytest.raises(ValueError, match=r"size=\(3, 0\) has to be at least 1"):
        ops.resize2d(X, (3, 0))
    with pytest.raises(ValueError, match=r"layout='NCWH'"):
        ops.resize2d(X, 3, "NCWH")


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize("block", [2, (3, 2), 1])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_depth_to_space(mode, block, layout, evaluate, rng):
    b, d = block if isinstance(block, tuple) else (block, block)
    x = rng.standard_normal((2, 3 * b * d, 4, 5)).astype(np.float32)
    parts = x.reshape((2, b, d, 3, 4, 5) if mode == "DCR" else (2, 3, b, d, 4, 5))
    want = parts.transpose((0, 3, 4, 1, 5, 2) if mode == "DCR" else (0, 1, 4, 2, 5, 3)).reshape(2, 3, 4 * b, 5 * d)
    if layout == "NHWC":
        x, want = x.transpose(0, 2, 3, 1), want.transpose(0, 2, 3, 1)
    X = ph(x)
    np.testing.assert_array_equal(evaluate(ops.depth_to_space(X, block, layout, mode), [X], x), want)


def test_depth_to_space_wants_whole_blocks():
    with pytest.raises(ValueError, match="blocks of 2 x 2 do not divide 6 channels"):
        ops.depth_to_space(ph(np.zeros((1, 6, 2, 2), np.float32)))
    with pytest.raises(ValueError, match="there are 'DCR' and 'CRD'"):
        ops.depth_to_space(ph(np.zeros((1, 4, 2, 2), np.float32)), mode="RCD")
