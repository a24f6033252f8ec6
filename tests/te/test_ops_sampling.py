"""Sampling, scattering, sorting and overlapping windows against plain NumPy, at awkward sizes."""

import itertools

import numpy as np
import pytest

from tilewright import te
from tilewright.te import ops


def ph(a, name="X"):
    return te.placeholder(a.shape, str(a.dtype), name)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(("axis", "k"), [(1, 3), (0, 7), (-1, 13), (0, 0)])
def test_topk(axis, k, largest, evaluate, rng):
    x = rng.integers(-4, 5, (7, 13)).astype(np.float32)
    X = ph(x)
    order = np.argsort(-x if largest else x, axis=axis, kind="stable").take(range(k), axis)
    values, indices = evaluate(list(ops.topk(X, k, axis, largest)), [X], x)
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, axis))


def test_topk_takes_nan_for_the_largest(evaluate):
    x = np.array([1, np.nan, 3, np.nan, -np.inf], np.float32)
    X = ph(x)
    np.testing.assert_array_equal(evaluate(ops.topk(X, 5)[1], [X], x), [1, 3, 2, 0, 4])
    np.testing.assert_array_equal(evaluate(ops.topk(X, 5, largest=False)[1], [X], x), [4, 0, 2, 1, 3])
    with pytest.raises(ValueError, match="topk: k=6 of 5 elements"):
        ops.topk(X, 6)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatter_nd(reduction, evaluate, rng):
    x, at = rng.integers(0, 9, (5, 7, 3)).astype(np.int32), np.array([[[0, 1], [4, -1]], [[0, 1], [-2, 6]]])
    new = rng.integers(0, 9, (2, 2, 3)).astype(np.int32)
    want = x.copy()
    step = {"none": lambda a, b: b, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[reduction]
    for i in itertools.product(range(2), range(2)):
        want[tuple(at[i])] = step(want[tuple(at[i])], new[i])
    X, AT, U = ph(x), ph(at, "I"), ph(new, "U")
    np.testing.assert_array_equal(evaluate(ops.scatter_nd(X, AT, U, reduction), [X, AT, U], x, at, new), want)


def test_updates_outside_are_dropped(evaluate):
    x, at, new = np.zeros(5, np.float32), np.array([[5], [-6], [1 << 40], [2]]), np.ones(4, np.float32)
    X, AT, U = ph(x), ph(at, "I"), ph(new, "U")
    np.testing.assert_array_equal(evaluate(ops.scatter_nd(X, AT, U), [X, AT, U], x, at, new), [0, 0, 1, 0, 0])
    flat = at[:, 0].copy()
    J = ph(flat, "J")
    np.testing.assert_array_equal(evaluate(ops.scatter_elements(X, J, U), [X, J, U], x, flat, new), [0, 0, 1, 0, 0])
    with pytest.raises(ValueError, match="scatter_nd: updates of the shape"):
        ops.scatter_nd(X, AT, ph(np.ones((4, 2), np.float32), "V"))


def test_gathers_outside_give_the_nearest_element(evaluate):
    x, at = np.arange(5, dtype=np.float32), np.array([7, -9, 1 << 40, -1])
    X, AT = ph(x), ph(at, "I")
    np.testing.assert_array_equal(evaluate(ops.gather_elements(X, AT), [X, AT], x, at), [4, 0, 4, 4])


def test_resample(evaluate, rng):
    x, at, w = (
        rng.integers(0, 9, (3, 7)).astype(np.float32),
        np.array([[0, 6], [2, 9]], np.int32),
        np.array([[1, 2], [3, 4]]),
    )
    w = w.astype(np.float32)
    X, AT, W = ph(x), ph(at, "I"), ph(w, "W")
    want = np.stack([x[:, 0] + 2 * x[:, 6], 3 * x[:, 2] + 4 * x[:, 6]], axis=1)
    np.testing.assert_array_equal(evaluate(ops.resample(X, AT, W, 1), [X, AT, W], x, at, w), want)


def test_col2im_adds_up_what_lies_on_an_element(evaluate, rng):
    columns = rng.integers(0, 9, (2, 3 * 2 * 2, 3 * 2)).astype(np.float32)
    want = np.zeros((2, 3, 7, 5), np.float32)
    for ky, kx, y, x in itertools.product(range(2), range(2), range(3), range(2)):
        want[:, :, y * 2 + ky * 2, x * 3 + kx] += columns.reshape(2, 3, 2, 2, 3, 2)[:, :, ky, kx, y, x]
    X = ph(columns)
    got = evaluate(ops.col2im(X, (7, 5), (2, 2), (2, 3), 0, (2, 1)), [X], columns)
    np.testing.assert_array_equal(got, want)
    with pytest.raises(ValueError, match="col2im: 12x6 columns for windows of 9 elements"):
        ops.col2im(X, (7, 5), (3, 3))


def test_max_pool_positions(evaluate, rng):
    x = rng.permutation(2 * 3 * 7 * 5).reshape(2, 3, 7, 5).astype(np.float32)
    X = ph(x)
    got = evaluate(ops.max_pool_positions(X, (3, 2), (2, 1), (1, 0)), [X], x)
    best = evaluate(ops.max_pool2d(X, (3, 2), (2, 1), (1, 0)), [X], x)
    np.testing.assert_array_equal(x.reshape(-1)[got], best)
    turned = evaluate(ops.max_pool_positions(X, (3, 2), (2, 1), (1, 0), column_major=True), [X], x)
    plane, inner = np.divmod(got, 35)
    np.testing.assert_array_equal(turned, plane * 35 + inner % 5 * 7 + inner // 5)


def test_a_shifted_grid_and_whole_offsets_read_neighbours(evaluate, rng):
    x = rng.integers(0, 9, (1, 2, 5, 7)).astype(np.float32)
    ys, xs = np.meshgrid(np.linspace(-1, 1, 5), np.linspace(-1, 1, 7), indexing="ij")
    grid = np.stack([xs, ys], -1)[None].astype(np.float32)
    X, G = ph(x), ph(grid, "G")
    for method in ("nearest", "linear", "cubic"):
        got = evaluate(ops.grid_sample(X, G, method, align_corners=True), [X, G], x, grid)
        np.testing.assert_allclose(got, x, atol=1e-4)
    far = np.full_like(grid, 9)
    for padding, want in (("zeros", 0 * x), ("border", np.broadcast_to(x[..., -1:, -1:], x.shape))):
        np.testing.assert_array_equal(evaluate(ops.grid_sample(X, G, "linear", padding), [X, G], x, far), want)
    offset = np.zeros((1, 2, 5, 7), np.float32)
    offset[:, 1] = 1
    OFF = ph(offset, "O")
    got = evaluate(ops.deformable_windows(X, OFF, kernel=1), [X, OFF], x, offset)[:, :, 0, 0]
    np.testing.assert_array_equal(got, np.concatenate([x[..., 1:], np.zeros((1, 2, 5, 1))], axis=-1))


def test_roi_align_of_a_plane_is_the_middle_of_each_cell(evaluate):
    x = (np.arange(9)[:, None] * 10 + np.arange(9)[None, :]).astype(np.float32)[None, None]
    rois, batch = np.array([[1, 1, 5, 5], [0, 2, 8, 6]], np.float32), np.array([0, 0])
    X, R, B = ph(x), ph(rois, "R"), ph(batch, "B")
    got = evaluate(ops.roi_align(X, R, B, (2, 2), aligned=False), [X, R, B], x, rois, batch)
    np.testing.assert_allclose(got[0, 0], [[22, 24], [42, 44]], rtol=1e-6)
    np.testing.assert_allclose(got[1, 0], [[32, 36], [52, 56]], rtol=1e-6)


def test_extremes_from_infinity(evaluate):
    x = np.array([[-np.inf] * 3, [1, -np.inf, 2]], np.float32)
    X = ph(x)
    np.testing.assert_array_equal(evaluate(ops.max(X, 1), [X], x), [-np.inf, 2])
    np.testing.assert_array_equal(evaluate(ops.min(X, 1), [X], -x), [np.inf, -2])
    for op in (ops.softmax, ops.log_softmax):
        assert np.isnan(evaluate(op(X, 1), [X], x)[0]).all()


def test_pooling_of_infinities(evaluate):
    x = np.full((1, 1, 6), -np.inf, np.float32)
    X = ph(x)
    np.testing.assert_array_equal(evaluate(ops.max_pool1d(X, 2, 1, 1, 2), [X], x), x)
    places = evaluate(ops.max_pool_positions(X, 2, 1, 1, 2), [X], x)
    np.testing.assert_array_equal(places, [[[1, 0, 1, 2, 3, 4]]])  # no element of the padding, as in PyTorch
    x[0, 0, 4] = np.nan
    places = evaluate(ops.max_pool_positions(X, 2, 1, 1, 2), [X], x)
    np.testing.assert_array_equal(places, [[[1, 0, 1, 4, 3, 4]]])


def test_reinterpret(evaluate):
    x = np.array([0, 1.5, -2], np.float32)
    X = ph(x)
    np.testing.assert_array_equal(evaluate(ops.reinterpret(X, "int32"), [X], x), x.view(np.int32))
