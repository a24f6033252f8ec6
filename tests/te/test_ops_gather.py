"""Logical operators, gathers, running sums, triangles and Einstein sums against NumPy."""

import numpy as np
import pytest

from tilewright import te
from tilewright.te import ops


def ph(a, name="A"):
    return te.placeholder(a.shape, str(a.dtype), name)


RNG = np.random.default_rng(0)
WHOLE = RNG.integers(-9, 10, (7, 13)).astype(np.int32)
OTHER = np.where(RNG.integers(-5, 6, (13,)) == 0, 3, RNG.integers(1, 6, (13,))).astype(np.int32)

BINARY = {
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "left_shift": np.left_shift,
    "right_shift": np.right_shift,
    "truncate_divide": lambda a, b: np.trunc(a / b).astype(np.int32),
    "remainder": np.fmod,
}


@pytest.mark.parametrize("op", BINARY)
def test_binary(op, evaluate):
    A, B = ph(WHOLE), ph(OTHER, "B")
    got = evaluate(getattr(ops, op)(A, B), [A, B], WHOLE, OTHER)
    np.testing.assert_array_equal(got, BINARY[op](WHOLE, OTHER))


def test_tests_and_negation(evaluate):
    x = np.array([0, 1, -2, np.inf, -np.inf, np.nan, 3e38], np.float32)
    A = ph(x)
    for op, want in (("is_nan", np.isnan), ("is_inf", np.isinf), ("logical_not", np.logical_not)):
        np.testing.assert_array_equal(evaluate(getattr(ops, op)(A), [A], x), want(x))
    W = ph(WHOLE)
    np.testing.assert_array_equal(evaluate(ops.bitwise_not(W), [W], WHOLE), ~WHOLE)
    assert not evaluate(ops.is_nan(W), [W], WHOLE).any()
    with pytest.raises(TypeError, match="integers are needed"):
        ops.bitwise_and(A, A)
    with pytest.raises(TypeError, match="integers are needed"):
        ops.truncate_divide(A, A)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather_and_scatter_elements(axis, evaluate):
    at = RNG.integers(-WHOLE.shape[axis], WHOLE.shape[axis], (5, 13) if axis == 0 else (7, 4))
    A, IDX = ph(WHOLE), ph(at, "I")
    want = np.take_along_axis(WHOLE, at, axis)
    np.testing.assert_array_equal(evaluate(ops.gather_elements(A, IDX, axis), [A, IDX], WHOLE, at), want)
    new = RNG.integers(50, 99, at.shape).astype(np.int32)
    U = ph(new, "U")
    moved = WHOLE.copy()
    lines = np.moveaxis(at, axis, 0).reshape(at.shape[axis], -1)
    for k, line in enumerate(lines):
        for n, where in enumerate(line):
            np.moveaxis(moved, axis, 0).reshape(WHOLE.shape[axis], -1, copy=False)[where, n] = np.moveaxis(
                new, axis, 0
            ).reshape(at.shape[axis], -1)[k, n]
    got = evaluate(ops.scatter_elements(A, IDX, U, axis), [A, IDX, U], WHOLE, at, new)
    np.testing.assert_array_equal(got, moved)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "bool"])
@pytest.mark.parametrize("size", [15, 16, 33, 64, 70])
def test_scattered_rows_are_copied_whole(size, dtype, evaluate):
    """Vectors of a row are copied at a time, and what is left."""
    x = RNG.integers(0, 2, (3, size)).astype(dtype)
    at, new = np.array([[0], [1], [size - 1]]), np.array([[1], [0], [1]]).astype(dtype)
    A, IDX, U = ph(x), ph(at, "I"), ph(new, "U")
    want = x.copy()
    np.put_along_axis(want, at, new, 1)
    np.testing.assert_array_equal(evaluate(ops.scatter_elements(A, IDX, U, 1), [A, IDX, U], x, at, new), want)


@pytest.mark.filterwarnings("ignore:invalid value")  # what NumPy says of NaN
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("reduction", ["max", "min"])
def test_a_scatter_keeps_nan(dtype, reduction, evaluate):
    """As ``numpy.maximum.at`` does, whether the element or an update is NaN, in any order."""
    x, at = np.array([1, np.nan, 2, 3, 4], dtype), np.array([0, 1, 2, 2, 3, 3])
    new = np.array([np.nan, 1, np.nan, 5, 5, np.nan], dtype)
    want = x.copy()
    (np.maximum if reduction == "max" else np.minimum).at(want, at, new)
    X, AT, U = ph(x, "X"), ph(at, "AT"), ph(new, "U")
    got = evaluate(ops.scatter_elements(X, AT, U, 0, reduction), [X, AT, U], x, at, new)
    np.testing.assert_array_equal(got, want)


def test_scatter_with_a_reduction(evaluate):
    x, at, new = np.ones(5, np.float32), np.array([1, 1, -1]), np.array([2, 3, 4], np.float32)
    A, IDX, U = ph(x), ph(at, "I"), ph(new, "U")
    want = {"add": [1, 6, 1, 1, 5], "mul": [1, 6, 1, 1, 4], "max": [1, 3, 1, 1, 4], "min": [1, 1, 1, 1, 1]}
    for reduction, expected in want.items():
        got = evaluate(ops.scatter_elements(A, IDX, U, 0, reduction), [A, IDX, U], x, at, new)
        np.testing.assert_array_equal(got, expected)
    with pytest.raises(ValueError, match="reduction='sum'"):
        ops.scatter_elements(A, IDX, U, 0, "sum")


def test_gather_nd(evaluate):
    x = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)
    at = np.array([[0, 2], [1, -1], [-2, 0]])
    A, IDX = ph(x), ph(at, "I")
    np.testing.assert_array_equal(evaluate(ops.gather_nd(A, IDX), [A, IDX], x, at), x[at[:, 0], at[:, 1]])
    each = np.array([[2], [0]])
    J = ph(each, "J")
    got = evaluate(ops.gather_nd(A, J, batch_dims=1), [A, J], x, each)
    np.testing.assert_array_equal(got, np.stack([x[0, 2], x[1, 0]]))
    with pytest.raises(ValueError, match="gather_nd: 2 indices after 2 batch dimensions"):
        ops.gather_nd(A, IDX, batch_dims=2)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
def test_running_sums_and_products(exclusive, reverse, evaluate):
    x = RNG.integers(1, 4, (3, 7)).astype(np.float32)
    A = ph(x)
    for op, f, neutral in (("cumsum", np.cumsum, 0), ("cumprod", np.cumprod, 1)):
        turned = x[:, ::-1] if reverse else x
        want = f(turned, axis=1)
        if exclusive:
            want = np.concatenate([np.full((3, 1), neutral), want[:, :-1]], axis=1)
        got = evaluate(getattr(ops, op)(A, 1, exclusive, reverse), [A], x)
        np.testing.assert_array_equal(got, want[:, ::-1] if reverse else want)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_running_sums_of_one_step_are_copies(dtype, reverse, evaluate):
    x = RNG.integers(1, 4, (3, 1, 5)).astype(dtype)
    A = ph(x)
    for op, neutral in (("cumsum", 0), ("cumprod", 1)):
        np.testing.assert_array_equal(evaluate(getattr(ops, op)(A, 1, False, reverse), [A], x), x)
        one = evaluate(getattr(ops, op)(A, 1, True, reverse), [A], x)
        np.testing.assert_array_equal(one, np.full_like(x, neutral))
        assert one.dtype == x.dtype


@pytest.mark.parametrize("k", [-2, 0, 1, 9])
def test_triangles(k, evaluate):
    x = np.arange(1, 1 + 2 * 5 * 7, dtype=np.float32).reshape(2, 5, 7)
    A = ph(x)
    np.testing.assert_array_equal(evaluate(ops.triangle(A, k), [A], x), np.triu(x, k))
    np.testing.assert_array_equal(evaluate(ops.triangle(A, k, upper=False), [A], x), np.tril(x, k))


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)]),
        ("ij,jk", [(3, 4), (4, 5)]),
        ("ii->i", [(5, 5)]),
        ("ii", [(5, 5)]),
        ("ij->ji", [(2, 7)]),
        ("...k,kn->...n", [(2, 3, 4), (4, 5)]),
        ("...ij,...jk->...ik", [(2, 3, 4), (4, 5)]),
        ("i,j->ij", [(3,), (4,)]),
        ("i,i->", [(7,), (7,)]),
        ("bhid,bhjd->bhij", [(2, 2, 3, 4), (2, 2, 5, 4)]),
        ("ij,ij,ij->i", [(2, 3), (2, 3), (2, 3)]),
    ],
)
def test_einsum(equation, shapes, evaluate):
    arrays = [RNG.integers(-3, 4, s).astype(np.float32) for s in shapes]
    tensors = [ph(a, f"A{n}") for n, a in enumerate(arrays)]
    got = evaluate(ops.einsum(equation, *tensors), tensors, *arrays)
    np.testing.assert_array_equal(got, np.einsum(equation, *arrays))


@pytest.mark.parametrize(
    ("equation", "problem"),
    [
        ("ij", "1 terms"),
        ("ij,kl,m", "3 terms"),
        ("ij,jkl", "does not name the dimensions"),
        ("ij,jk->iz", "z of the result"),
    ],
)
def test_einsum_errors(equation, problem):
    a, b = te.placeholder((3, 4), name="A"), te.placeholder((4, 5), name="B")
    with pytest.raises(ValueError, match=problem):
        ops.einsum(equation, a, b)
    with pytest.raises(ValueError, match="j is 4 and 3"):
        ops.einsum("ij,jk", a, te.placeholder((3, 5)))


def test_floor_division_of_floats(evaluate):
    x = np.array([7, -7, 7, -7, 5.5, -5.5, 0, 1e6, 0.3, -0.3], np.float32)
    y = np.array([3, 3, -3, -3, 2, 2, 4, 7, 0.1, 0.1], np.float32)
    A, B = ph(x), ph(y, "B")
    np.testing.assert_allclose(evaluate(ops.floor_mod(A, B), [A, B], x, y), np.mod(x, y), rtol=1e-6)
    np.testing.assert_array_equal(evaluate(ops.floor_divide(A, B), [A, B], x, y), np.floor_divide(x, y))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floor_division_of_odd_floats(dtype, evaluate, rng):
    odd = np.array([np.nan, np.inf, -np.inf, 0, -0.0, 2, -2.5, 3e38, 1e-45, 0.1, 7, -7, 8388609, 16777215], dtype)
    x, y = np.repeat(odd, odd.size), np.tile(odd, odd.size)
    A, B = ph(x), ph(y, "B")
    with np.errstate(all="ignore"):
        want = np.floor_divide(x, y)
    np.testing.assert_array_equal(evaluate(ops.floor_divide(A, B), [A, B], x, y), want)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint8", "bool"])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(
    ("shape", "axis", "k"),
    [
        ((40,), 0, 3),
        ((3, 40), 1, 8),
        ((3, 40), 1, 9),
        ((40, 3), 0, 40),
        ((4, 1), 1, 1),
        ((4, 3), 1, 0),
        ((257,), 0, 2),
        ((300, 2), 0, 5),
        ((2, 513), 1, 31),
        ((3, 256, 2), 1, 16),
    ],
)
def test_the_first_of_a_row_in_order(shape, axis, k, largest, dtype, evaluate):
    """Few by reductions, more by a heap, of long rows in chunks: of equal elements the first, NaN as the largest, both zeros equal."""
    rng = np.random.default_rng(k)
    x = rng.integers(-2, 3, shape)
    if dtype.startswith("float"):
        x = x.astype(dtype)
        x[rng.random(shape) < 0.2], x[rng.random(shape) < 0.2], x[rng.random(shape) < 0.2] = np.nan, -0.0, -np.inf
    x = (abs(x) if dtype in ("uint8", "bool") else x).astype(dtype)
    wide = x.astype(np.float64)
    keys = np.where(np.isnan(wide), np.inf, wide)
    order = np.lexsort((keys, np.isnan(wide)) if not largest else (-keys, ~np.isnan(wide)), axis=axis)
    want = np.take(order, range(k), axis)
    X = ph(x, "X")
    values, places = ops.topk(X, k, axis, largest)
    np.testing.assert_array_equal(evaluate(places, [X], x), want)
    np.testing.assert_array_equal(evaluate(values, [X], x), np.take_along_axis(x, want, axis))
