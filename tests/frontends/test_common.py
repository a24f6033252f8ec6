"""What all readers build of operators of the graph, against NumPy and PyTorch."""

import warnings

import numpy as np
import pytest

from tilewright.frontends import common
from tilewright.frontends.common import GraphCall
from tilewright.graph import Builder
from tilewright.graph.reference import evaluate

RNG = np.random.default_rng(5)
ENDS = {"bool": (False, True), "float32": (-np.inf, np.inf), "int8": (-128, 127)}


def computed(build, *arrays):
    """The results of what ``build(call, *values)`` adds."""
    builder = Builder("net")
    values = [builder.input(f"x{n}", a.shape, a.dtype.name) for n, a in enumerate(arrays)]
    made = build(GraphCall(builder, "node"), *values)
    return evaluate(builder.graph(list(made) if isinstance(made, tuple) else [made]), *arrays)


def stretched(x, low, high, gaps, fill):
    """Padding element by element."""
    shape = [a + b + max((e - 1) * (g + 1) + 1, 0) for a, b, e, g in zip(low, high, x.shape, gaps, strict=True)]
    out = np.full(shape, fill, x.dtype)
    for at in np.ndindex(*x.shape):
        place = tuple(a + i * (g + 1) for a, i, g in zip(low, at, gaps, strict=True))
        if all(0 <= p < e for p, e in zip(place, shape, strict=True)):
            out[place] = x[at]
    return out


@pytest.mark.parametrize("shape", [(0, 3), (1, 7), (2, 3)])
@pytest.mark.parametrize(
    ("low", "high", "gaps"), [((0, 0), (0, 0), (0, 0)), ((1, 2), (0, 3), (2, 1)), ((2, -1), (1, -1), (0, 1))]
)
@pytest.mark.parametrize("dtype", ["float32", "int8", "bool"])
def test_padding_before_behind_and_between(shape, low, high, gaps, dtype):
    x = RNG.integers(0, 2, shape).astype(dtype)
    want = stretched(x, low, high, gaps, 1)
    (known,) = computed(lambda c, v: c.op("identity", common.padded(c, v, low, high, 1, gaps)), x)
    (given,) = computed(lambda c, v, f: c.op("identity", common.padded(c, v, low, high, f, gaps)), x, np.ones(1, dtype))
    for found in (known, given):
        assert (found.shape, found.tolist()) == (want.shape, want.tolist())


def test_padding_by_a_constant_of_bfloat16():
    (found,) = computed(
        lambda c, v: common.padded(c, v, [1], [0], c.constant(np.uint16(0x3FC0), "bfloat16")), np.zeros(1, np.float32)
    )
    assert found.tolist() == [1.5, 0]


@pytest.mark.parametrize(("mode", "theirs"), [("reflect", "reflect"), ("edge", "edge"), ("wrap", "wrap")])
def test_padding_by_the_elements(mode, theirs):
    x = RNG.standard_normal((4, 5), np.float32)
    (found,) = computed(lambda c, v: common.padded(c, v, (3, 0), (1, 4), mode=mode), x)
    assert found.tolist() == np.pad(x, ((3, 1), (0, 4)), theirs).tolist()


@pytest.mark.parametrize(
    ("space", "stride", "padding", "dilation", "more", "groups"),
    [
        ((7, 5), (2, 3), (1, 0), (1, 1), (1, 2), 1),
        ((7, 5), (2, 1), (1, 3), (2, 1), (0, 0), 2),
        ((5,), (3,), (0,), (2,), (2,), 2),
        ((3, 1, 4), (1, 2, 2), (2, 0, 1), (1, 1, 2), (0, 1, 0), 1),
        ((4, 4), (2, 2), (4, 4), (1, 1), (0, 0), 1),
    ],
)
def test_transposed_convolutions(space, stride, padding, dilation, more, groups):
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    n = len(space)
    x, w = RNG.standard_normal((2, 4, *space), np.float32), RNG.standard_normal((4, 3, *[3, 3, 2][:n]), np.float32)
    bias = RNG.standard_normal(3 * groups, np.float32)
    arguments = (stride, padding, more, groups, dilation)
    want = getattr(torch.nn.functional, f"conv_transpose{n}d")(*map(torch.from_numpy, (x, w, bias)), *arguments).numpy()
    windows = {"stride": stride, "padding": (*padding, *padding), "dilation": dilation, "output_padding": more}
    (found,) = computed(lambda c, *v: common.transposed_convolution(c, *v, groups=groups, **windows), x, w, bias)
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize(("space", "kernel", "stride", "padding", "dilation"), [
    ((7,), (3,), (2,), (1,), (2,)), ((8, 7), (2, 3), (3, 2), (1, 1), (1, 2)), ((4, 5, 6), (2, 2, 3), (2, 3, 2), (1, 0, 1), (1, 1, 1)),
])  # fmt: skip
def test_maxima_and_their_positions(ceil_mode, space, kernel, stride, padding, dilation):
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    x = RNG.integers(-3, 3, (2, 3, *space)).astype(np.float32)
    pool = getattr(torch.nn.functional, f"max_pool{len(space)}d")
    want, places = [v.numpy() for v in pool(torch.from_numpy(x), kernel, stride, padding, dilation, ceil_mode, True)]
    planes = np.arange(6).reshape(2, 3, *[1] * len(space)) * np.prod(space)
    windows = {"kernel": kernel, "stride": stride, "padding": (*padding, *padding), "dilation": dilation}
    found = computed(lambda c, v: common.max_pool(c, v, ceil_mode=ceil_mode, positions=True, **windows), x)
    assert found[0].tolist() == want.tolist()
    assert found[1].tolist() == (places + planes).tolist()


def test_windows_in_four_dimensions_are_refused():
    x = np.zeros((1, 1, 2, 2, 2, 2), np.float32)
    windows = {"stride": (1,) * 4, "padding": (0,) * 8, "dilation": (1,) * 4}
    with pytest.raises(ValueError, match="node: windows in 4 dimensions are not supported"):
        computed(lambda c, v: common.convolution(c, v, v, None, **windows), x)


@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 3), (4, 3, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(("row", "dtype"), [
    ("sum", "int32"), ("prod", "float32"), ("max", "float32"), ("min", "int8"), ("mean", "float64"), ("max", "bool"), ("min", "bool"),
])  # fmt: skip
def test_reductions_of_bool_and_over_nothing(shape, keepdims, row, dtype):
    x = RNG.integers(0, 3, shape).astype(dtype)
    for axes in ((), (0,), (1, 2), (0, 1, 2)):
        if max(axes, default=-1) >= max(x.ndim, 1):
            continue
        (found,) = computed(lambda c, v, a=axes: common.reduced(c, row, v, a, keepdims), x)
        if not axes or not x.ndim:
            want = x
        else:
            starts = {"initial": ENDS[dtype][row == "min"]} if row in ("max", "min") else {}
            with warnings.catch_warnings():  # means of nothing
                warnings.simplefilter("ignore")
                want = getattr(np, row)(x, axis=axes, keepdims=keepdims, **starts).astype(dtype)
        assert (found.shape, found.dtype) == (np.shape(want), x.dtype)
        np.testing.assert_allclose(found, want, rtol=1e-6)


def test_the_logarithm_of_sums_of_infinities():
    x = np.array([[-np.inf, -np.inf], [np.inf, 1], [1000, 1000], [-1000, 3]], np.float32)
    (found,) = computed(lambda c, v: common.log_sum_exp(c, v, (1,)), x)
    np.testing.assert_allclose(found, [-np.inf, np.inf, 1000 + np.log(2), 3], rtol=1e-6)


def test_the_logarithm_of_a_sum_that_cancels_the_largest_element():
    x = np.full((1, 1000), -np.log(999.5), np.float16)
    (found,) = computed(lambda c, v: common.log_sum_exp(c, v, (1,)), x)
    want = np.log(np.exp(x.astype(np.float64)).sum(1))
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, want, rtol=2e-3)


@pytest.mark.parametrize(("shape", "axis"), [((5, 3), 1), ((4, 2, 3), 1), ((3, 2, 5), 2)])
def test_normalizing_by_the_batch(shape, axis):
    x, scale, shift = RNG.standard_normal(shape), RNG.standard_normal(shape[axis]), RNG.standard_normal(shape[axis])
    found = computed(lambda c, *v: common.batch_normalized(c, *v, 1e-3, axis), x, scale, shift)
    rows = np.moveaxis(x, axis, -1).reshape(-1, shape[axis])
    mean, variance, root = rows.mean(0), rows.var(0), 1 / np.sqrt(rows.var(0) + 1e-3)
    wide = [v.reshape([-1 if d == axis else 1 for d in range(x.ndim)]) for v in (mean, root, scale, shift)]
    for got, want in zip(found, ((x - wide[0]) * wide[1] * wide[2] + wide[3], mean, variance, root), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


def indexed(name, extents=(3, 4, 5)):
    """Places as a reader gives them, as NumPy's indices, and the shape of the result.

    ``i`` varies along all dimensions that are no whole ones, ``j`` along the last of them, ``b`` along the first one as well.
    """
    where, shape = {
        "one": (["i", 2, 3], (2, 7, 4, 5)), "inner": ([0, "i", 3], (3, 2, 7, 5)), "last": ([0, 1, "i"], (3, 4, 2, 7)),
        "two": (["i", "j", 2], (2, 7, 5)), "apart": (["i", 2, "j"], (2, 7, 4)), "turned": ([3, "i", 0], (5, 2, 7, 3)),
        "batch": ([0, "b", 2], (3, 7, 5)), "all": (["i", "j", "i"], (2, 7)), "whole": ([0, 1, 2], (3, 4, 5)),
    }[name]  # fmt: skip
    rank = len(shape)
    free = [d for d in range(rank) if d not in where]
    arrays, places = [], []
    for extent, place in zip(extents, where, strict=True):
        if isinstance(place, int):
            wide = [1] * rank
            wide[place] = extent
            arrays.append(np.arange(extent).reshape(wide))
            places.append(place)
            continue
        varies = free if place == "i" else [0, *free] if place == "b" else free[-1:]
        wide = [e if d in varies else 1 for d, e in enumerate(shape)]
        arrays.append(RNG.integers(0, extent, wide).astype(RNG.choice(["int32", "int64"])))
        places.append(arrays[-1])
    return places, tuple(arrays), shape


def with_values(places, given):
    """The places with values of the graph in place of arrays."""
    rest = iter(given)
    return [p if isinstance(p, int) else next(rest) for p in places]


FORMS = ["one", "inner", "last", "two", "apart", "turned", "batch", "all", "whole"]


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("dtype", ["float32", "bool"])
def test_lookups_at_places(name, dtype):
    x = RNG.standard_normal((3, 4, 5)).round().astype(dtype)
    places, arrays, shape = indexed(name)
    given = [p for p in places if not isinstance(p, int)]
    (found,) = computed(lambda c, v, *g: common.looked_up(c, v, with_values(places, g), shape), x, *given)
    np.testing.assert_array_equal(found, np.broadcast_to(x[arrays], shape))


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", ["float64", "bool"])
def test_writes_at_places(name, reduction, dtype):
    x = RNG.standard_normal((3, 4, 5)).round().astype(dtype)
    places, arrays, shape = indexed(name)
    new = RNG.standard_normal(shape).round().astype(dtype)
    given = [p for p in places if not isinstance(p, int)]
    for array in given:  # some count from the end, and some lie outside
        array[RNG.random(array.shape) < 0.2] = -1
        array[RNG.random(array.shape) < 0.1] = 9
    want, combine = x.copy(), {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}.get(reduction)
    for at, *index in zip(np.ndindex(*shape), *[np.broadcast_to(a, shape).flat for a in arrays], strict=True):
        if all(-e <= i < e for i, e in zip(index, x.shape, strict=True)):
            place = tuple(index)
            want[place] = new[at] if combine is None else combine(want[place], new[at])
    (found,) = computed(lambda c, v, n, *g: common.written(c, v, with_values(places, g), n, reduction), x, new, *given)
    np.testing.assert_allclose(found, want, rtol=1e-12)


def test_lookups_and_writes_of_nothing():
    x, none = np.zeros((0, 3), np.float32), np.zeros((0, 1), np.int64)
    (found,) = computed(lambda c, v, i: common.looked_up(c, v, [i, 1], (0, 3)), x, none)
    assert found.shape == (0, 3)
    (found,) = computed(lambda c, v, i, n: common.written(c, v, [i, 1], n), np.ones((2, 3), np.float32), none, x)
    np.testing.assert_array_equal(found, np.ones((2, 3)))


@pytest.mark.parametrize("dtype", ["float64", "int8"])
@pytest.mark.parametrize(
    ("left", "right"), [((3,), (3,)), ((3,), (3, 5)), ((4, 3), (3,)), ((2, 4, 3), (3, 5)), ((2, 4, 3), (2, 3, 1)), ((0, 3), (3, 2))]
)  # fmt: skip
def test_products_of_matrices_and_vectors(left, right, dtype):
    a, b = [RNG.integers(-128, 128, shape).astype(dtype) for shape in (left, right)]
    (found,) = computed(lambda c, *v: common.product(c, *v), a, b)
    assert found.dtype == a.dtype
    np.testing.assert_array_equal(found, a @ b)


@pytest.mark.parametrize(("alpha", "beta"), [(1, 1), (2, 1), (1, 0), (3, -1)])
def test_sums_with_factors(alpha, beta):
    x, y = np.array([[1, 2], [3, 4]], np.float32), np.array([1, np.nan if beta == 0 else 5], np.float32)
    (found,) = computed(lambda c, v, w: common.scaled_sum(c, v, w, alpha, beta), x, y)
    np.testing.assert_array_equal(found, alpha * x + (0 if beta == 0 else beta * y))


def test_a_second_converter_is_refused():
    table = {}
    common.graph_call.entering(table, "twice")(computed)
    with pytest.raises(ValueError, match=r"'twice' has two converters: .*\.computed and .*\.stretched\. .* delete it"):
        common.graph_call.entering(table, "double", "twice")(stretched)
