"""Operators against NumPy at awkward sizes: element-wise, broadcasting, reductions, layout."""

import math

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.te import ops
from tilewright.tir.expr import max_identity, min_identity

SHAPES = [(1,), (7,), (3, 5), (2, 1, 13), ()]


def ph(a, name="A"):
    return te.placeholder(a.shape, str(a.dtype), name)


ERF = np.vectorize(math.erf, otypes=[np.float64])

UNARY = {
    "abs": np.abs,
    "negative": np.negative,
    "square": np.square,
    "sign": np.sign,
    "exp": np.exp,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": lambda x: ERF(x) if x.size else x,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.round,
    "trunc": np.trunc,
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
    "elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "gelu": lambda x: 0.5 * x * (1 + ERF(x / math.sqrt(2))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "softplus": lambda x: np.log1p(np.exp(x)),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "hardsigmoid": lambda x: np.clip(x / 6 + 0.5, 0, 1),
    "hardswish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "identity": lambda x: x,
}


@pytest.mark.parametrize("name", sorted(UNARY))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_unary(name, shape, evaluate, rng):
    x = (rng.standard_normal(shape) * 3).astype("float32")
    A = ph(np.asarray(x))
    got = evaluate(getattr(ops, name)(A), [A], x)
    np.testing.assert_allclose(got, UNARY[name](x.astype("float64")), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name, reference", [("log", np.log), ("sqrt", np.sqrt), ("rsqrt", lambda x: 1 / np.sqrt(x))])
def test_positive_unary(name, reference, evaluate, rng):
    x = rng.random((3, 7)).astype("float32") + 0.1
    A = ph(x)
    np.testing.assert_allclose(evaluate(getattr(ops, name)(A), [A], x), reference(x), rtol=1e-5)


def test_gelu_tanh_and_prelu_and_clip(evaluate, rng):
    x = rng.standard_normal((2, 5)).astype("float32")
    A = ph(x)
    rough = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    np.testing.assert_allclose(evaluate(ops.gelu(A, approximate="tanh"), [A], x), rough, rtol=1e-5, atol=1e-6)
    s = rng.random(5).astype("float32")
    S = ph(s, "S")
    np.testing.assert_allclose(evaluate(ops.prelu(A, S), [A, S], x, s), np.where(x > 0, x, x * s), rtol=1e-6)
    np.testing.assert_array_equal(evaluate(ops.clip(A, -0.5, 0.5), [A], x), np.clip(x, -0.5, 0.5))
    with pytest.raises(ValueError, match="the lower bound 2 is above the upper bound 1"):
        ops.clip(A, 2, 1)
    with pytest.raises(ValueError, match="there are 'none' and 'tanh'"):
        ops.gelu(A, approximate="fast")


def test_integers_in_float_functions(evaluate):
    x = np.arange(5, dtype="int32")
    A = ph(x)
    assert ops.exp(A).dtype == "float32"
    np.testing.assert_allclose(evaluate(ops.exp(A), [A], x), np.exp(x), rtol=1e-6)
    assert ops.floor(A).dtype == "int32"


BROADCASTS = [((3, 5), (3, 5)), ((3, 5), (5,)), ((3, 1), (1, 5)), ((1,), (7,)), ((2, 1, 3), (4, 1)), ((), (3,))]


@pytest.mark.parametrize("a_shape, b_shape", BROADCASTS, ids=str)
@pytest.mark.parametrize(
    "name, reference",
    [("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("div", np.divide), ("maximum", np.maximum),
     ("minimum", np.minimum), ("less", np.less), ("equal", np.equal), ("not_equal", np.not_equal)],
)  # fmt: skip
def test_broadcasting(name, reference, a_shape, b_shape, evaluate, rng):
    a = rng.integers(1, 5, a_shape).astype("float32")
    b = rng.integers(1, 5, b_shape).astype("float32")
    A, B = ph(np.asarray(a)), ph(np.asarray(b), "B")
    got = evaluate(getattr(ops, name)(A, B), [A, B], a, b)
    np.testing.assert_array_equal(got, reference(a, b))


def test_operators_on_tensors(evaluate, rng):
    a, b = rng.standard_normal((3, 4)).astype("float32"), rng.standard_normal(4).astype("float32")
    A, B = ph(a), ph(b, "B")
    got = evaluate((A + B) * 2.0 - A / 4.0 + (1.0 - B), [A, B], a, b)
    np.testing.assert_allclose(got, (a + b) * 2 - a / 4 + (1 - b), rtol=1e-5, atol=1e-6)
    assert (A.astype("int32")).dtype == "int32"


def test_integer_division_and_power(evaluate):
    a, b = np.array([-7, 7, 5], "int32"), np.array([2, 2, 3], "int32")
    A, B = ph(a), ph(b, "B")
    np.testing.assert_array_equal(evaluate(ops.floor_divide(A, B), [A, B], a, b), a // b)
    np.testing.assert_array_equal(evaluate(ops.floor_mod(A, B), [A, B], a, b), a % b)
    np.testing.assert_allclose(evaluate(ops.divide(A, B), [A, B], a, b), a / b, rtol=1e-6)


def test_shapes_that_do_not_broadcast():
    A, B = te.placeholder((3, 4)), te.placeholder((3, 5))
    with pytest.raises(ValueError, match=r"add: the shapes \(3, 4\) and \(3, 5\) do not broadcast: 4 against 5"):
        ops.add(A, B)
    with pytest.raises(ValueError, match=r"\(3, 4\) does not broadcast to \(4,\)"):
        ops.broadcast_to(A, (4,))


REDUCTIONS = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "mean": np.mean}


@pytest.mark.parametrize("name", sorted(REDUCTIONS))
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (1,)], ids=str)
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions(name, axis, keepdims, evaluate, rng):
    x = rng.integers(-2, 3, (3, 1, 7)).astype("float32")
    A = ph(x)
    got = evaluate(getattr(ops, name)(A, axis, keepdims), [A], x)
    want = REDUCTIONS[name](x, axis=axis, keepdims=keepdims)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("op", ["argmax", "argmin"])
@pytest.mark.parametrize("axis", [None, 0, 1, -1], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_arg_extremes(op, axis, dtype, evaluate, rng):
    x = rng.integers(-2, 3, (5, 7)).astype(dtype)  # many ties: the first counts
    A = ph(x)
    got = evaluate(getattr(ops, op)(A, axis), [A], x)
    np.testing.assert_array_equal(got, getattr(np, op)(x, axis=axis))


def test_argmax_of_infinities(evaluate):
    x = np.array([[-np.inf, -np.inf], [-np.inf, 3]], "float32")
    A = ph(x)
    assert evaluate(ops.argmax(A, 1), [A], x).tolist() == [0, 1]


@pytest.mark.parametrize("op", ["argmax", "argmin"])
@pytest.mark.parametrize("size", [1, 7, 17])
def test_the_first_nan_is_the_extreme(op, size, evaluate, rng):
    x = rng.random((5, size), dtype="float32")
    x[1, size // 2 :: 3] = np.nan
    x[2], x[3], x[4] = np.nan, np.inf, -np.inf
    x[4, -1] = np.nan
    A = ph(x)
    np.testing.assert_array_equal(evaluate(getattr(ops, op)(A, 1), [A], x), getattr(np, op)(x, axis=1))


def test_narrow_sums(evaluate, rng):
    x = rng.integers(-128, 128, (5, 40)).astype("int8")
    A = ph(x)
    total = ops.sum(A, 1)
    assert total.dtype == "int32"
    np.testing.assert_array_equal(evaluate(total, [A], x), x.astype("int32").sum(1))
    h = rng.random((4, 9)).astype("float16")
    H = ph(h)
    half = ops.sum(H, -1)
    assert half.dtype == "float16"
    np.testing.assert_array_equal(evaluate(half, [H], h), h.astype("float32").sum(1).astype("float16"))
    assert ops.mean(A, 1).dtype == "float32"


def test_reduction_errors():
    A = te.placeholder((3, 4))
    with pytest.raises(ValueError, match="sum: axis 2 of 2 dimensions"):
        ops.sum(A, 2)
    with pytest.raises(ValueError, match="max: an axis is given twice"):
        ops.max(A, (0, -2))


@pytest.mark.parametrize("axes", [None, (0, 1, 2), (2, 0, 1), (-1, 1, 0)], ids=str)
def test_transpose(axes, evaluate, rng):
    x = rng.random((3, 1, 7)).astype("float32")
    A = ph(x)
    np.testing.assert_array_equal(evaluate(ops.transpose(A, axes), [A], x), np.transpose(x, axes))


@pytest.mark.parametrize(
    "old, new",
    [((6, 4), (24,)), ((6, 4), (3, -1)), ((2, 3, 5), (5, 6)), ((2, 3, 5), (2, 15)), ((12,), (3, 1, 4)), ((1,), ()),
     ((), (1, 1)), ((4, 6), (2, 2, 3, 2)), ((1, 7), (7, 1))],
)  # fmt: skip
def test_reshape(old, new, evaluate, rng):
    x = rng.random(old).astype("float32")
    A = ph(np.asarray(x))
    np.testing.assert_array_equal(evaluate(ops.reshape(A, new), [A], x), np.reshape(x, new))


def test_reshape_keeps_the_indices_simple():
    A = te.placeholder((8, 12, 64), name="A")
    func = te.create_prim_func([A, ops.reshape(A, (8, 768), name="R")])
    assert "R[v_i0, v_i1] = A[v_i0, v_i1 // 64, v_i1 % 64]" in func.script()


def test_reshape_error():
    with pytest.raises(ValueError, match=r"\(3, 4\) has 12 elements, \(5, 2\) has 10"):
        ops.reshape(te.placeholder((3, 4)), (5, 2))


def test_concat_split_stack(evaluate, rng):
    parts = [rng.random((2, n)).astype("float32") for n in (1, 3, 2)]
    tensors = [ph(p, f"P{n}") for n, p in enumerate(parts)]
    np.testing.assert_array_equal(evaluate(ops.concat(tensors, 1), tensors, *parts), np.concatenate(parts, 1))
    x = rng.random((2, 6)).astype("float32")
    A = ph(x)
    for sections in (3, [1, 4]):
        got = evaluate(ops.split(A, sections, 1), [A], x)
        for g, w in zip(got, np.split(x, sections, 1), strict=True):
            np.testing.assert_array_equal(g, w)
    y = rng.random((2, 6)).astype("float32")
    B = ph(y, "B")
    np.testing.assert_array_equal(evaluate(ops.stack([A, B], 1), [A, B], x, y), np.stack([x, y], 1))
    with pytest.raises(ValueError, match="in 4 equal parts"):
        ops.split(A, 4, 1)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_pad(mode, evaluate, rng):
    x = rng.random((3, 4)).astype("float32")
    A = ph(x)
    got = evaluate(ops.pad(A, (1, 2), (0, 3), mode=mode), [A], x)
    np.testing.assert_array_equal(got, np.pad(x, ((1, 0), (2, 3)), mode=mode))


def test_pad_value_and_errors(evaluate):
    x = np.arange(3, dtype="int8")
    A = ph(x)
    np.testing.assert_array_equal(evaluate(ops.pad(A, (1,), value=-5), [A], x), [-5, 0, 1, 2, -5])
    fill = te.placeholder((), A.dtype, "fill")
    padded = evaluate(ops.pad(A, (1,), value=fill), [A, fill], x, np.array(-7, x.dtype))
    np.testing.assert_array_equal(padded, [-7, 0, 1, 2, -7])
    with pytest.raises(ValueError, match="no dimensions"):
        ops.pad(A, (1,), value=A)
    with pytest.raises(ValueError, match="too short to reflect"):
        ops.pad(A, (3,), mode="reflect")


def test_take_and_the_rest(evaluate, rng):
    x = rng.random((5, 3)).astype("float32")
    index = np.array([[4, 0], [9, -1]], "int32")
    A, where = ph(x), ph(index, "I")
    for mode in ("clip", "wrap"):
        np.testing.assert_array_equal(
            evaluate(ops.take(A, where, 0, mode), [A, where], x, index), np.take(x, index, 0, mode=mode)
        )
    np.testing.assert_array_equal(evaluate(ops.take(A, where), [A, where], x, index), np.take(x, index, mode="clip"))
    np.testing.assert_array_equal(evaluate(ops.tile(A, (2, 2)), [A], x), np.tile(x, (2, 2)))
    np.testing.assert_array_equal(evaluate(ops.repeat(A, 3, 1), [A], x), np.repeat(x, 3, 1))
    np.testing.assert_array_equal(evaluate(ops.flip(A, 0), [A], x), np.flip(x, 0))
    np.testing.assert_array_equal(evaluate(ops.strided_slice(A, (1, -1), (5, -4), (2, -1)), [A], x), x[1:5:2, -1:-4:-1])
    cut = ops.strided_slice(A, (None, None), (3, None), (None, -2))
    np.testing.assert_array_equal(evaluate(cut, [A], x), x[:3, ::-2])
    np.testing.assert_array_equal(evaluate(ops.expand_dims(A, (0, 2)), [A], x), np.expand_dims(x, (0, 2)))
    np.testing.assert_array_equal(evaluate(ops.squeeze(ops.expand_dims(A, (0, 2))), [A], x), x)
    np.testing.assert_array_equal(evaluate(ops.flatten(A, 0), [A], x), x.reshape(-1))
    np.testing.assert_array_equal(evaluate(ops.full((2, 3), 1.5), []), np.full((2, 3), 1.5))
    hot = np.array([0, 2], "int32")
    H = ph(hot, "H")
    np.testing.assert_array_equal(evaluate(ops.one_hot(H, 3), [H], hot), np.eye(3, dtype="float32")[hot])
    c = x > 0.5
    C = te.placeholder(c.shape, "bool", "C")
    np.testing.assert_array_equal(evaluate(ops.where(C, A, ops.negative(A)), [C, A], c, x), np.where(c, x, -x))


def test_cast(evaluate):
    x = np.array([1.9, -1.9, 0.0], "float32")
    A = ph(x)
    np.testing.assert_array_equal(evaluate(ops.cast(A, "int32"), [A], x), [1, -1, 0])


FUNCTIONS = {
    "exp2": np.exp2, "expm1": np.expm1, "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "sin": np.sin,
    "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh,
    "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
}  # fmt: skip


@pytest.mark.parametrize("name", list(FUNCTIONS))
@pytest.mark.parametrize("dtype, ulps", [("float32", 2), ("float64", 2), ("float16", 1)])
def test_functions_at_their_ends(evaluate, name, dtype, ulps):
    ends = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.0, 3.25, 1e-4, -1e-4, np.inf, -np.inf, np.nan, 7.0, -7.0]
    x = np.array(ends, dtype)
    X = te.placeholder(x.shape, dtype, name="X")
    got = evaluate(getattr(ops, name)(X), [X], x)
    assert got.dtype == dtype
    with np.errstate(all="ignore"):
        want = FUNCTIONS[name](x.astype("float64")).astype(dtype)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    known = np.isfinite(want)
    np.testing.assert_array_equal(got[np.isinf(want)], want[np.isinf(want)])
    np.testing.assert_array_max_ulp(got[known], want[known], ulps)
    np.testing.assert_array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "argmax", "argmin"])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_reductions_over_no_axes(evaluate, name, dtype):
    """Of a tensor of rank 0, or with the axes (): each element alone, which stands at the place 0."""
    x = np.array(3, dtype)
    A = ph(x)
    assert evaluate(getattr(ops, name)(A), [A], x) == getattr(np, name)(x)
    if not name.startswith("arg"):
        row = np.array([3, -1, 2], dtype)
        B = ph(row)
        np.testing.assert_array_equal(evaluate(getattr(ops, name)(B, axis=()), [B], row), row)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16", "int8", "uint8", "int64"])
def test_the_extreme_of_equal_ends_is_that_end(evaluate, dtype):
    for op, end in ((ops.max, max_identity(dtype)), (ops.min, min_identity(dtype))):
        A = te.placeholder((3, 7), dtype, name="A")
        x = np.full((3, 7), end, "float32" if dtype == "bfloat16" else dtype)
        x = (x.view("uint32") >> 16).astype("uint16") if dtype == "bfloat16" else x
        np.testing.assert_array_equal(evaluate(op(A, axis=1), [A], x), x[:, 0])


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8", "int32"])
@pytest.mark.parametrize("shape", [(1,), (7,), (4099,), (3, 5, 17), (), (0,)])
def test_both_extremes(dtype, shape):
    """Those of all elements, the ends of integers among them; over none those of max and min."""
    rng, size = np.random.default_rng(0), int(np.prod(shape))
    if dtype.startswith("float"):
        data, ends = rng.standard_normal(size).astype(dtype), [np.dtype(dtype).type(v) for v in (-np.inf, np.inf)]
    else:
        ends = [np.iinfo(dtype).min, np.iinfo(dtype).max]
        data = rng.integers(*ends, size, endpoint=True).astype(dtype)
        data[:1] = ends[0]
    x = te.placeholder(shape, dtype, name="x")
    got = tw.build([x, te.ops.extremes(x)], "native -num-cores=1")(data.reshape(shape))
    np.testing.assert_array_equal(got, [data.max(initial=ends[0]), data.min(initial=ends[1])])
    assert got.dtype == dtype


def test_both_extremes_of_nan():
    x = te.placeholder((70,), name="x")
    data = np.arange(70, dtype=np.float32)
    data[33] = np.nan
    assert np.isnan(tw.build([x, te.ops.extremes(x)], "native -num-cores=1")(data)).all()
