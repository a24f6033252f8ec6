"""Products, convolutions, pooling, normalisation and attention against plain NumPy, at awkward sizes."""

import itertools
import math

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.te import ops
from tilewright.tuner.space.search_space import Space, choose_default


def ph(a, name="A"):
    return te.placeholder(a.shape, str(a.dtype), name)


def small(rng, *shape, dtype="float32"):
    """Small whole numbers: float sums of their products are exact."""
    return rng.integers(-3, 4, shape).astype(dtype)


# Products


@pytest.mark.parametrize("m, n, k", [(1, 1, 1), (7, 13, 5), (1, 17, 16), (16, 1, 7)])
@pytest.mark.parametrize("ta, tb", list(itertools.product([False, True], repeat=2)))
def test_matmul(m, n, k, ta, tb, evaluate, rng):
    a, b = small(rng, *((k, m) if ta else (m, k))), small(rng, *((n, k) if tb else (k, n)))
    A, B = ph(a), ph(b, "B")
    got = evaluate(ops.matmul(A, B, ta, tb), [A, B], a, b)
    np.testing.assert_array_equal(got, (a.T if ta else a) @ (b.T if tb else b))


def test_matmul_broadcasts(evaluate, rng):
    a, b = small(rng, 2, 1, 3, 4), small(rng, 5, 4, 7)
    A, B = ph(a), ph(b, "B")
    np.testing.assert_array_equal(evaluate(ops.matmul(A, B), [A, B], a, b), a @ b)


def test_matmul_types(evaluate, rng):
    a, b = small(rng, 3, 9, dtype="int8") * 40, small(rng, 9, 5, dtype="int8") * 40
    A, B = ph(a), ph(b, "B")
    C = ops.matmul(A, B)
    assert C.dtype == "int32"
    np.testing.assert_array_equal(evaluate(C, [A, B], a, b), a.astype("int32") @ b.astype("int32"))
    assert ops.matmul(te.placeholder((2, 3), "float16"), te.placeholder((3, 2), "float16")).dtype == "float16"
    assert ops.matmul(A, B, out_dtype="int64").dtype == "int64"
    assert ops.matmul(te.placeholder((2, 3), "uint8"), B_of(3, "int8")).dtype == "int32"


def B_of(k, dtype):
    return te.placeholder((k, 2), dtype)


def test_matmul_loops():
    A, B = te.placeholder((4, 8), name="A"), te.placeholder((8, 16), name="B")
    text = te.create_prim_func([A, B, ops.matmul(A, B, name="C")]).script()
    assert "for i, j, k in T.grid(4, 16, 8):" in text
    assert "C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]" in text


def test_product_errors():
    A, B = te.placeholder((4, 8)), te.placeholder((7, 16))
    with pytest.raises(ValueError, match=r"length of the sum differs, 8 and 7: the shapes are \(4, 8\) and \(7, 16\)"):
        ops.matmul(A, B)
    with pytest.raises(ValueError, match=r"dense: the number of features differs"):
        ops.dense(A, B)
    with pytest.raises(ValueError, match=r"the left operand has the shape \(4, 8\); 3 dimensions are expected"):
        ops.batch_matmul(A, B)
    with pytest.raises(TypeError, match="cannot multiply and add bool and bool"):
        ops.matmul(te.placeholder((1, 1), "bool"), te.placeholder((1, 1), "bool"))


@pytest.mark.parametrize(
    ("rows", "columns", "ends"),
    [
        (7, 9, [2, 2, 6]), (1, 16, [0, 0, 1]), (13, 17, [13, 13, 13]), (16, 1, [0, 0, 0]), (5, 0, [1, 2, 5]), (3, 4, []), (0, 3, [0]),
        (40, 33, [9, 9, 17, 34]), (64, 32, [0, 1, 1, 40, 64, 64]), (70, 16, [70]), (33, 5, [40, 50]), (16, 17, [-3, 8, 15]),
    ],
)  # fmt: skip
def test_grouped_matmul(evaluate, rng, rows, columns, ends):
    """Rows behind the last group give 0, whatever they hold; ends outside the rows are the nearest row."""
    a, b = (
        rng.standard_normal((rows, 5)).astype("float32"),
        rng.standard_normal((len(ends), 5, columns)).astype("float32"),
    )
    a[max(ends[-1], 0) if ends else 0 :] = np.nan
    A, B, E = (
        te.placeholder(a.shape, name="A"),
        te.placeholder(b.shape, name="B"),
        te.placeholder((len(ends),), "int32"),
    )
    got = evaluate(ops.grouped_matmul(A, B, E), [A, B, E], a, b, np.array(ends, "int32"))
    want, begin = np.zeros((rows, columns), "float32"), 0
    for matrix, end in zip(b, np.clip(ends, 0, rows), strict=True):
        want[begin:end] = a[begin:end] @ matrix
        begin = end
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_grouped_matmul_with_any_number_of_rows(rng):
    """Tiles of a group's rows read one matrix each, wherever groups begin and end."""
    b = rng.standard_normal((5, 24, 33)).astype("float32")
    A, B = te.placeholder((te.var("n"), 24), name="A"), te.placeholder(b.shape, name="B")
    E = te.placeholder((5,), "int64", name="E")
    module = tw.build([A, B, E, ops.grouped_matmul(A, B, E)])
    for rows in (0, 1, 2, 7, 8, 9, 64, 101):
        a = rng.standard_normal((rows, 24)).astype("float32")
        for _ in range(3):
            ends = np.sort(rng.integers(0, rows + 1, 5))
            want, begin = np.zeros((rows, 33), "float32"), 0
            for n, end in enumerate(ends):
                want[begin:end], begin = a[begin:end] @ b[n], end
            np.testing.assert_allclose(module(a, b, ends), want, rtol=1e-5, atol=1e-5)


def test_a_matrix_that_is_looked_up_is_not_copied(rng):
    """The product of each batch with the matrix that is chosen for it is scheduled as one with its own matrix."""
    A, B = te.placeholder((6, 16, 64), name="A"), te.placeholder((4, 64, 64), name="B")
    where, k = te.placeholder((6,), "int32", name="where"), te.reduce_axis((0, 64), "k")
    C = te.compute((6, 16, 64), lambda p, r, j: te.sum(A[p, r, k] * B[where[p], k, j], axis=k), name="C")
    func = te.create_prim_func([A, B, where, C])
    scheduled = choose_default(Space(func, "native -num-cores=1")).schedule.func
    assert all(buffer.num_bytes() < 6 * 64 * 64 * 4 for buffer in scheduled.body.block.alloc_buffers)
    a, b = rng.standard_normal((6, 16, 64)).astype("float32"), rng.standard_normal((4, 64, 64)).astype("float32")
    chosen = np.array([3, 0, 0, 2, 1, 3], "int32")
    np.testing.assert_allclose(tw.build(func)(a, b, chosen), a @ b[chosen], rtol=1e-4, atol=1e-5)


def test_grouped_matmul_refuses_what_does_not_fit():
    A, B = te.placeholder((4, 8), name="A"), te.placeholder((3, 8, 5), name="B")
    with pytest.raises(TypeError, match="the ends of the groups are float32, not integers"):
        ops.grouped_matmul(A, B, te.placeholder((3,), name="E"))
    with pytest.raises(ValueError, match="the number of groups"):
        ops.grouped_matmul(A, B, te.placeholder((2,), "int64", name="E"))
    with pytest.raises(ValueError, match="the length of the sum"):
        ops.grouped_matmul(te.placeholder((4, 7), name="A"), B, te.placeholder((3,), "int64", name="E"))


def test_dense_and_batch_matmul(evaluate, rng):
    x, w, b = small(rng, 2, 3, 7), small(rng, 5, 7), small(rng, 5)
    X, W, B = ph(x, "X"), ph(w, "W"), ph(b, "b")
    np.testing.assert_array_equal(evaluate(ops.dense(X, W), [X, W], x, w), x @ w.T)
    np.testing.assert_array_equal(evaluate(ops.dense(X, W, B), [X, W, B], x, w, b), x @ w.T + b)
    p, q = small(rng, 1, 3, 4), small(rng, 5, 6, 4)
    P, Q = ph(p, "P"), ph(q, "Q")
    got = evaluate(ops.batch_matmul(P, Q, transpose_b=True), [P, Q], p, q)
    np.testing.assert_array_equal(got, p @ q.transpose(0, 2, 1))


def test_symbolic_matmul(evaluate, rng):
    n, k = te.var("n"), te.var("k")
    A, B = te.placeholder((n, k), name="A"), te.placeholder((k, 5), name="B")
    a, b = small(rng, 7, 3), small(rng, 3, 5)
    got = evaluate(ops.relu(ops.matmul(A, B)), [A, B], a, b, shapes=[(7, 5)])
    np.testing.assert_array_equal(got, np.maximum(a @ b, 0))


# Convolutions


def conv_reference(x, w, stride, before, after, dilation, groups):
    """x: (N, C, spatial…), w: (O, C/groups, kernel…)."""
    n = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0), *zip(before, after, strict=True)])
    out_c, per = w.shape[0], w.shape[1]
    size = [(x.shape[2 + d] - (w.shape[2 + d] - 1) * dilation[d] - 1) // stride[d] + 1 for d in range(n)]
    y = np.zeros((x.shape[0], out_c, *size), "float64")
    for at in np.ndindex(*size):
        window = tuple(
            slice(at[d] * stride[d], at[d] * stride[d] + (w.shape[2 + d] - 1) * dilation[d] + 1, dilation[d])
            for d in range(n)
        )
        for o in range(out_c):
            g = o // (out_c // groups)
            part = x[(slice(None), slice(g * per, (g + 1) * per), *window)]
            y[(slice(None), o, *at)] = (part * w[o]).reshape(x.shape[0], -1).sum(1)
    return y


CONV2D = [
    # c, o, size, kernel, stride, padding, dilation, groups, (before, after)
    (3, 4, (7, 7), (3, 3), 1, 0, 1, 1, ((0, 0), (0, 0))),
    (3, 4, (7, 7), (3, 3), 1, 1, 1, 1, ((1, 1), (1, 1))),
    (2, 5, (7, 13), (3, 1), (2, 1), (1, 0), 1, 1, ((1, 0), (1, 0))),
    (4, 6, (5, 7), (2, 3), 1, (0, 1, 2, 3), 1, 2, ((0, 1), (2, 3))),
    (2, 2, (9, 8), (3, 3), 1, "same", 2, 1, ((2, 2), (2, 2))),
    (2, 2, (7, 6), (3, 3), 2, "same", 1, 1, ((1, 0), (1, 1))),
    (1, 1, (1, 1), (1, 1), 1, "valid", 1, 1, ((0, 0), (0, 0))),
    (4, 4, (5, 5), (3, 3), 2, ((1, 0), (0, 1)), 1, 4, ((1, 0), (0, 1))),
]


@pytest.mark.parametrize("case", CONV2D, ids=str)
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_conv2d(case, layout, evaluate, rng):
    c, o, size, kernel, stride, padding, dilation, groups, (before, after) = case
    x, w, b = small(rng, 2, c, *size), small(rng, o, c // groups, *kernel), small(rng, o)
    pair = lambda v: v if isinstance(v, tuple) else (v, v)  # noqa: E731
    want = conv_reference(x, w, pair(stride), before, after, pair(dilation), groups)
    if layout == "NHWC":
        x, w, want = x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0), want.transpose(0, 2, 3, 1)
    X, W, B = ph(x, "X"), ph(w, "W"), ph(b, "B")
    y = ops.conv2d(X, W, stride, padding, dilation, groups, layout)
    np.testing.assert_array_equal(evaluate(y, [X, W], x, w), want)
    y = ops.conv2d(X, W, stride, padding, dilation, groups, layout, bias=B)
    shift = b[:, None, None] if layout == "NCHW" else b
    np.testing.assert_array_equal(evaluate(y, [X, W, B], x, w, b), want + shift)


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("last", [False, True])
def test_conv1d_conv3d(n, last, evaluate, rng):
    size, kernel = (9, 5, 7)[:n], (3, 2, 1)[:n]
    x, w = small(rng, 1, 4, *size), small(rng, 6, 2, *kernel)
    want = conv_reference(x, w, (2,) * n, (1,) * n, (1,) * n, (1,) * n, 2)
    spatial = {1: "W", 3: "DHW"}[n]
    layout = f"N{spatial}C" if last else f"NC{spatial}"
    if last:
        x, w, want = np.moveaxis(x, 1, -1), np.moveaxis(np.moveaxis(w, 0, -1), 0, -2), np.moveaxis(want, 1, -1)
    X, W = ph(x, "X"), ph(w, "W")
    y = getattr(ops, f"conv{n}d")(X, W, 2, 1, 1, 2, layout)
    np.testing.assert_array_equal(evaluate(y, [X, W], x, w), want)


def test_conv2d_int8_and_kernel_layout(evaluate, rng):
    x, w = small(rng, 1, 3, 5, 5, dtype="int8") * 30, small(rng, 2, 3, 3, 3, dtype="int8") * 30
    want = conv_reference(x.astype("int64"), w.astype("int64"), (1, 1), (0, 0), (0, 0), (1, 1), 1)
    x, w = x.transpose(0, 2, 3, 1), w.transpose(0, 2, 3, 1)
    X, W = ph(x, "X"), ph(w, "W")
    y = ops.conv2d(X, W, layout="NHWC", kernel_layout="OHWI")
    assert y.dtype == "int32"
    np.testing.assert_array_equal(evaluate(y, [X, W], x, w), want.transpose(0, 2, 3, 1))


def test_conv2d_stages_and_names():
    X, W = te.placeholder((1, 4, 8, 8), name="X"), te.placeholder((4, 4, 3, 3), name="W")
    text = te.create_prim_func([X, W, ops.conv2d(X, W, padding=1)]).script()
    assert 'T.block("pad_temp")' in text
    assert "for nn, ff, yy, xx, rc, ry, rx in T.grid(1, 4, 8, 8, 4, 3, 3):" in text
    assert "pad_temp[v_nn, v_rc, v_yy + v_ry, v_xx + v_rx] * W[v_ff, v_rc, v_ry, v_rx]" in text


def test_conv2d_errors():
    X, W = te.placeholder((1, 4, 8, 8)), te.placeholder((6, 3, 3, 3))
    with pytest.raises(ValueError, match=r"4 channels in 1 group\(s\), the weight 3 per group"):
        ops.conv2d(X, W)
    with pytest.raises(ValueError, match="3 groups do not divide 4 input channels"):
        ops.conv2d(X, W, groups=3)
    with pytest.raises(ValueError, match="there are 'NCHW' and 'NHWC'"):
        ops.conv2d(X, W, layout="NCWH")
    with pytest.raises(ValueError, match="a window of 9 elements does not fit into 8"):
        ops.conv2d(X, te.placeholder((6, 4, 9, 3)))
    with pytest.raises(ValueError, match="give 1, 2 or 4 numbers"):
        ops.conv2d(X, te.placeholder((6, 4, 3, 3)), padding=(1, 1, 1))
    with pytest.raises(ValueError, match="stride=0 has to be at least 1"):
        ops.conv2d(X, te.placeholder((6, 4, 3, 3)), stride=0)


@pytest.mark.parametrize("multiplier", [1, 2])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("stride, padding", [(1, 1), (2, "same"), (1, 0)])
def test_depthwise(multiplier, layout, stride, padding, evaluate, rng):
    c = 3
    x, w = small(rng, 1, c, 7, 5), small(rng, c, multiplier, 3, 3)
    if padding == "same":
        before, after = (1, 1), (1, 1)
    else:
        before = after = (padding, padding)
    want = conv_reference(x, w.reshape(c * multiplier, 1, 3, 3), (stride,) * 2, before, after, (1, 1), c)
    if layout == "NHWC":
        x, w, want = x.transpose(0, 2, 3, 1), w.transpose(2, 3, 0, 1), want.transpose(0, 2, 3, 1)
    X, W = ph(x, "X"), ph(w, "W")
    got = evaluate(ops.depthwise_conv2d(X, W, stride, padding, layout=layout), [X, W], x, w)
    np.testing.assert_array_equal(got, want)


def transposed_reference(x, w, stride, padding, extra, groups):
    """x: (N, C, H, W), w: (C, O/groups, KH, KW)."""
    n, c, h, wid = x.shape
    per, (kh, kw) = w.shape[1], w.shape[2:]
    full = np.zeros((n, per * groups, (h - 1) * stride[0] + kh + extra[0], (wid - 1) * stride[1] + kw + extra[1]))
    for ci, yy, xx, o in itertools.product(range(c), range(h), range(wid), range(per)):
        g = ci // (c // groups)
        y0, x0 = yy * stride[0], xx * stride[1]
        full[:, g * per + o, y0 : y0 + kh, x0 : x0 + kw] += x[:, ci, yy, xx][:, None, None] * w[ci, o]
    return full[:, :, padding : full.shape[2] - padding, padding : full.shape[3] - padding]


@pytest.mark.parametrize("stride, padding, extra, groups", [
    ((1, 1), 0, (0, 0), 1), ((2, 2), 1, (1, 1), 1), ((2, 3), 0, (0, 2), 1), ((2, 1), 1, (1, 0), 2), ((1, 1), 3, (0, 0), 1),
])  # fmt: skip
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_conv2d_transpose(stride, padding, extra, groups, layout, evaluate, rng):
    x, w = small(rng, 1, 4, 6, 5), small(rng, 4, 3, 3, 2)
    want = transposed_reference(x, w, stride, padding, extra, groups)
    if want.shape[3] < 1:
        pytest.skip("nothing left")
    if layout == "NHWC":
        x, w, want = x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0), want.transpose(0, 2, 3, 1)
    X, W = ph(x, "X"), ph(w, "W")
    y = ops.conv2d_transpose(X, W, stride, padding, extra, groups, layout)
    np.testing.assert_array_equal(evaluate(y, [X, W], x, w), want)


# Pooling


def pool_reference(x, k, s, p, d, ceil_mode, kind, include):
    """x: (N, C, spatial…)"""
    n = x.ndim - 2
    size = []
    for dim in range(n):
        room = x.shape[2 + dim] + 2 * p[dim] - (k[dim] - 1) * d[dim] - 1
        count = (-(-room // s[dim]) if ceil_mode else room // s[dim]) + 1
        if ceil_mode and (count - 1) * s[dim] >= x.shape[2 + dim] + p[dim]:
            count -= 1
        size.append(count)
    y = np.zeros((*x.shape[:2], *size))
    for at in np.ndindex(*size):
        begin = [at[i] * s[i] - p[i] for i in range(n)]
        places = [[begin[i] + j * d[i] for j in range(k[i])] for i in range(n)]
        inside = [[q for q in places[i] if 0 <= q < x.shape[2 + i]] for i in range(n)]
        counted = [[q for q in places[i] if q < x.shape[2 + i] + p[i]] for i in range(n)] if include else inside
        window = x[np.ix_(range(x.shape[0]), range(x.shape[1]), *inside)].reshape(*x.shape[:2], -1)
        here = (slice(None), slice(None), *at)
        y[here] = window.max(2) if kind == "max" else window.sum(2) / np.prod([len(c) for c in counted])
    return y


POOLS = [  # size, kernel, stride, padding, dilation, ceil_mode
    ((7, 8), 2, None, 0, 1, False),
    ((7, 8), 3, 2, 1, 1, False),
    ((7, 6), (3, 2), (2, 3), (1, 0), 1, True),
    ((9, 9), 3, 2, 1, 2, False),
    ((5, 5), 2, 2, 1, 1, True),
    ((1, 1), 1, 1, 0, 1, False),
]


@pytest.mark.parametrize("case", POOLS, ids=str)
@pytest.mark.parametrize("kind", ["max", "avg", "avg_exclude"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_pool2d(case, kind, layout, evaluate, rng):
    size, kernel, stride, padding, dilation, ceil_mode = case
    x = rng.standard_normal((2, 3, *size)).astype("float32") - 2
    pair = lambda v: v if isinstance(v, tuple) else (v, v)  # noqa: E731
    k = pair(kernel)
    want = pool_reference(
        x, k, pair(k if stride is None else stride), pair(padding), pair(dilation), ceil_mode, kind[:3], kind == "avg"
    )
    if layout == "NHWC":
        x, want = x.transpose(0, 2, 3, 1), want.transpose(0, 2, 3, 1)
    X = ph(x, "X")
    if kind == "max":
        y = ops.max_pool2d(X, kernel, stride, padding, dilation, ceil_mode, layout)
    else:
        y = ops.avg_pool2d(X, kernel, stride, padding, dilation, ceil_mode, layout, count_include_pad=kind == "avg")
    np.testing.assert_allclose(evaluate(y, [X], x), want, rtol=1e-5, atol=1e-6)


def test_pool1d_3d_global(evaluate, rng):
    x = rng.standard_normal((1, 2, 7)).astype("float32")
    X = ph(x)
    want = pool_reference(x, (3,), (2,), (1,), (1,), False, "max", True)
    np.testing.assert_allclose(evaluate(ops.max_pool1d(X, 3, 2, 1), [X], x), want)
    v = rng.standard_normal((1, 2, 4, 5, 3)).astype("float32")
    V = ph(v)
    want = pool_reference(v, (2, 2, 2), (2, 2, 1), (0, 0, 0), (1, 1, 1), False, "avg", True)
    np.testing.assert_allclose(evaluate(ops.avg_pool3d(V, 2, (2, 2, 1)), [V], v), want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        evaluate(ops.global_avg_pool(V), [V], v), v.mean((2, 3, 4), keepdims=True), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_array_equal(evaluate(ops.global_max_pool(V, "NDHWC"), [V], v), v.max((1, 2, 3), keepdims=True))
    with pytest.raises(ValueError, match="lets a window of 2 elements see padding only"):
        ops.max_pool1d(X, 2, 1, 2)


# Softmax and norms


def softmax_reference(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize("shape, axis", [((7,), 0), ((3, 13), -1), ((3, 13), 0), ((2, 5, 4), 1), ((1, 1), 1)], ids=str)
def test_softmax(shape, axis, evaluate, rng):
    x = (rng.standard_normal(shape) * 20).astype("float32")
    X = ph(x, "X")
    want = softmax_reference(x.astype("float64"), axis)
    np.testing.assert_allclose(evaluate(ops.softmax(X, axis), [X], x), want, rtol=1e-5, atol=1e-12)
    np.testing.assert_allclose(
        evaluate(ops.log_softmax(X, axis), [X], x), np.log(np.maximum(want, 1e-300)), rtol=1e-5, atol=1e-4
    )


def test_softmax_stages():
    X = te.placeholder((4, 8), name="X")
    text = te.create_prim_func([X, ops.softmax(X)]).script()
    for stage in ("maxelem", "exp", "expsum", "norm"):
        assert f'T.block("T_softmax_{stage}")' in text
    with pytest.raises(TypeError, match="softmax: the input is int32"):
        ops.softmax(te.placeholder((3,), "int32"))


@pytest.mark.parametrize("shape, axis", [((3, 17), -1), ((2, 3, 5), (1, 2)), ((7,), 0)], ids=str)
def test_layer_norm_and_rms_norm(shape, axis, evaluate, rng):
    x = (rng.standard_normal(shape) * 3 + 100).astype("float32")
    axes = axis if isinstance(axis, tuple) else (axis,)
    inner = tuple(shape[a] for a in axes)
    g, b = rng.random(inner).astype("float32"), rng.random(inner).astype("float32")
    X, G, B = ph(x, "X"), ph(g, "G"), ph(b, "B")
    d = x.astype("float64")
    mean, var = d.mean(axes, keepdims=True), d.var(axes, keepdims=True)
    got = evaluate(ops.layer_norm(X, G, B, axis), [X, G, B], x, g, b)
    np.testing.assert_allclose(got, (d - mean) / np.sqrt(var + 1e-5) * g + b, rtol=1e-4, atol=1e-4)
    got = evaluate(ops.rms_norm(X, G, axis), [X, G], x, g)
    want = d / np.sqrt((d * d).mean(axes, keepdims=True) + 1e-5) * g
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_batch_norm_and_group_norm(evaluate, rng):
    x = rng.standard_normal((2, 6, 3, 5)).astype("float32")
    g, b, m, v = (rng.random(6).astype("float32") + 0.5 for _ in range(4))
    X, G, B, M, V = ph(x, "X"), ph(g, "G"), ph(b, "B"), ph(m, "M"), ph(v, "V")
    c = lambda t: t[:, None, None]  # noqa: E731
    got = evaluate(ops.batch_norm(X, G, B, M, V), [X, G, B, M, V], x, g, b, m, v)
    np.testing.assert_allclose(got, (x - c(m)) / np.sqrt(c(v) + 1e-5) * c(g) + c(b), rtol=1e-4, atol=1e-5)
    got = evaluate(ops.group_norm(X, G, B, 3), [X, G, B], x, g, b)
    d = x.reshape(2, 3, 2, 3, 5).astype("float64")
    normal = (d - d.mean((2, 3, 4), keepdims=True)) / np.sqrt(d.var((2, 3, 4), keepdims=True) + 1e-5)
    np.testing.assert_allclose(got, normal.reshape(x.shape) * c(g) + c(b), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="the size of gamma differs, 6 and 5"):
        ops.batch_norm(X, te.placeholder((5,)), B, M, V)


@pytest.mark.parametrize("lead", [(), (2,), (2, 3)], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_attention(lead, causal, evaluate, rng):
    q, k, v = (rng.standard_normal((*lead, s, d)).astype("float32") for s, d in ((5, 4), (7, 4), (7, 3)))
    Q, K, V = ph(q, "Q"), ph(k, "K"), ph(v, "V")
    scores = q @ np.swapaxes(k, -1, -2) / 2
    if causal:
        scores = np.where(np.arange(7)[None, :] <= np.arange(5)[:, None] + 2, scores, -np.inf)
    got = evaluate(ops.attention(Q, K, V, causal=causal), [Q, K, V], q, k, v)
    np.testing.assert_allclose(got, softmax_reference(scores, -1) @ v, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_in_a_window(causal, evaluate, rng):
    q, k, v = (rng.standard_normal((2, s, 4)).astype("float32") for s in (5, 7, 7))
    Q, K, V = ph(q, "Q"), ph(k, "K"), ph(v, "V")
    away = np.arange(5)[:, None] + 2 - np.arange(7)
    sees = (away < 3) & (away >= 0 if causal else away > -3)
    scores = np.where(sees, q @ k.transpose(0, 2, 1) / 2, -np.inf)
    got = evaluate(ops.attention(Q, K, V, causal=causal, window=3), [Q, K, V], q, k, v)
    np.testing.assert_allclose(got, softmax_reference(scores, -1) @ v, rtol=1e-4, atol=1e-5)
    for window in (0, True, 2.0):
        with pytest.raises(ValueError, match="the window is .*, not a positive integer"):
            ops.attention(Q, K, V, window=window)


@pytest.mark.parametrize("dtype", ["bool", "float32"])
def test_attention_mask(dtype, evaluate, rng):
    q, k, v = (rng.standard_normal((2, 4, 3)).astype("float32") for _ in range(3))
    allowed = np.tril(np.ones((4, 4), bool))
    mask = allowed if dtype == "bool" else np.where(allowed, 0, -np.inf).astype("float32")
    Q, K, V, M = ph(q, "Q"), ph(k, "K"), ph(v, "V"), te.placeholder((4, 4), dtype, "M")
    scores = np.where(allowed, q @ k.transpose(0, 2, 1) * 0.25, -np.inf)
    got = evaluate(ops.attention(Q, K, V, M, scale=0.25), [Q, K, V, M], q, k, v, mask)
    np.testing.assert_allclose(got, softmax_reference(scores, -1) @ v, rtol=1e-4, atol=1e-5)


# Sizes known at the call, and narrow floats


@pytest.mark.parametrize("rows", [1, 7])
def test_symbolic_rows(rows, evaluate, rng):
    n = te.var("n")
    X, G = te.placeholder((n, 13), name="X"), te.placeholder((13,), name="G")
    x, g = rng.standard_normal((rows, 13)).astype("float32"), rng.random(13).astype("float32")
    d = x.astype("float64")
    got = evaluate(ops.softmax(X), [X], x, shapes=[x.shape])
    np.testing.assert_allclose(got, softmax_reference(d, -1), rtol=1e-5)
    got = evaluate(ops.layer_norm(X, G), [X, G], x, g, shapes=[x.shape])
    want = (d - d.mean(1, keepdims=True)) / np.sqrt(d.var(1, keepdims=True) + 1e-5) * g
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    got = evaluate(ops.mean(X, 0), [X], x, shapes=[(13,)])
    np.testing.assert_allclose(got, d.mean(0), rtol=1e-5, atol=1e-6)
    got = evaluate(ops.reshape(X, (n * 13,)), [X], x, shapes=[(rows * 13,)])
    np.testing.assert_array_equal(got, x.reshape(-1))
    got = evaluate(ops.concat([X, X], 0), [X], x, shapes=[(2 * rows, 13)])
    np.testing.assert_array_equal(got, np.concatenate([x, x]))


def test_symbolic_batch_and_length(evaluate, rng):
    n, s = te.var("n"), te.var("s")
    Q, K, V = (te.placeholder((n, s, 4), name=name) for name in "QKV")
    q, k, v = (rng.standard_normal((2, 5, 4)).astype("float32") for _ in range(3))
    got = evaluate(ops.attention(Q, K, V, causal=True), [Q, K, V], q, k, v, shapes=[(2, 5, 4)])
    scores = np.where(np.tril(np.ones((5, 5), bool)), q @ k.transpose(0, 2, 1) / 2, -np.inf)
    np.testing.assert_allclose(got, softmax_reference(scores, -1) @ v, rtol=1e-4, atol=1e-5)
    X, W = te.placeholder((n, 3, 7, 7), name="X"), te.placeholder((2, 3, 3, 3), name="W")
    x, w = small(rng, 2, 3, 7, 7), small(rng, 2, 3, 3, 3)
    got = evaluate(ops.conv2d(X, W, padding=1), [X, W], x, w, shapes=[(2, 2, 7, 7)])
    np.testing.assert_array_equal(got, conv_reference(x, w, (1, 1), (1, 1), (1, 1), (1, 1), 1))


def test_float16(evaluate, rng):
    a, b = small(rng, 5, 7, dtype="float16"), small(rng, 7, 3, dtype="float16")
    A, B = ph(a), ph(b, "B")
    got = evaluate(ops.gelu(ops.matmul(A, B)), [A, B], a, b)
    assert got.dtype == np.float16
    y = a.astype("float64") @ b
    erf = np.vectorize(math.erf)
    np.testing.assert_allclose(got, 0.5 * y * (1 + erf(y / np.sqrt(2))), rtol=2e-3, atol=2e-3)
    got = evaluate(ops.softmax(A), [A], a)
    np.testing.assert_allclose(got, softmax_reference(a.astype("float64"), -1), rtol=2e-3)


def test_bfloat16(evaluate, rng):
    a, b = small(rng, 5, 7), small(rng, 7, 3)
    bits = lambda x: (x.view("uint32") >> 16).astype("uint16")  # noqa: E731 - exact: the numbers are small
    A, B = te.placeholder((5, 7), "bfloat16", "A"), te.placeholder((7, 3), "bfloat16", "B")
    got = evaluate(ops.matmul(A, B), [A, B], bits(a), bits(b))
    np.testing.assert_array_equal(got, bits(a @ b))
