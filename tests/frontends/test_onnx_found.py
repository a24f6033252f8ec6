"""ONNX's operators that find elements, of data that the model computes, against ONNX Runtime."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

import tilewright as tw  # noqa: E402
from tilewright.graph import Graph  # noqa: E402
from tilewright.graph.value_dependent import ValueDependentGraph  # noqa: E402


def parsed(text, opset=17):
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>{text}')


def agrees(text, calls, **bounds):
    """Checks results of calls; the model is one graph, built once."""
    model = parsed(text)
    graph = tw.from_onnx(model)
    assert isinstance(graph, Graph)
    built = tw.build(graph, bounds=bounds)
    session = runtime.InferenceSession(model.SerializeToString())
    names = [i.name for i in session.get_inputs()]
    for inputs in calls:
        wanted = session.run(None, dict(zip(names, inputs, strict=True)))
        made = built(*inputs)
        for got, want in zip(made if isinstance(made, tuple) else (made,), wanted, strict=True):
            assert (got.shape, got.dtype) == (want.shape, want.dtype)
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    return built


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def many(*shape):
    """Returns data of which some, none and all elements are positive."""
    return [(normal(*shape, seed=n),) for n in range(3)] + [
        (np.ones(shape, np.float32),),
        (-np.ones(shape, np.float32),),
    ]


NON_ZERO = "g (float[3,4] x) => (int64[2,n] y) { r = Relu(x) y = NonZero(r) }"
GATHERED = """g (float[3,4] x) => (float[n] y, int64[2] s) { r = Relu(x) i = NonZero(r) t = Transpose<perm=[1,0]>(i)
    z = GatherND(x, t) y = Mul(z, z) s = Shape(i) }"""
SLICED = """g (float[9] x) => (float[n] y) <int64[1] b={1}, int64[1] e={4}, int64[1] a={0}>
    { r = Relu(x) i = NonZero(r) q = Squeeze(i, a) z = Gather(x, q) w = Exp(z) y = Slice(w, b, e, a) }"""
COMPRESSED = """g (float[6,4] x) => (float[n,4] y, float[m] z) <int64[1] o={1}, float t={0}>
    { s = ReduceSum<keepdims=0>(x, o) c = Greater(s, t) y = Compress<axis=0>(x, c) z = Compress(x, c) }"""
REDUCED = """g (float[5,3] x) => (float[m,3] y) <int64[1] o={1}, float t={0}> { s = ReduceSum<keepdims=0>(x, o) c = Greater(s, t)
    k = Compress<axis=0>(x, c) kt = Transpose(k) p = MatMul(kt, k) q = MatMul(k, p) w = Concat<axis=0>(q, x) y = Softmax<axis=1>(w) }"""
COUNTED = """g (float[7] x) => (float[k] y, int64[k] i) <int64[1] five={5}> { r = Relu(x) nz = NonZero(r) f = Reshape(nz, m)
    v = Gather(x, f) s = Shape(v) n = Min(s, five) y, i = TopK(v, n) }""".replace(
    "five={5}", "five={5}, int64[1] m={-1}"
)


@pytest.mark.parametrize(
    ("text", "shape"),
    [(NON_ZERO, (3, 4)), (GATHERED, (3, 4)), (SLICED, (9,)), (COMPRESSED, (6, 4)), (REDUCED, (5, 3)), (COUNTED, (7,))],
    ids=["outputs", "gathered", "sliced", "compressed", "products", "counted"],
)
def test_elements_are_found_in_computed_data(text, shape):
    agrees(text, many(*shape))


def test_elements_of_inputs_with_symbolic_sizes():
    text = "g (float[b,4] x) => (int64[2,n] y) { r = Relu(x) y = NonZero(r) }"
    agrees(text, [*many(1, 4), *many(9, 4), *many(32, 4)], b=32)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("extent", [1, 13, 40])
def test_unique(order, extent):
    text = f"""g (float[{extent}] x) => (float[n] y, int64[n] first, int64[{extent}] number, int64[n] count)
        {{ r = Round(x) y, first, number, count = Unique<sorted={order}>(r) }}"""
    agrees(text, many(extent))


def test_unique_along_an_axis_is_built_for_its_values():
    model = parsed("g (float[4,2] x) => (float[n,2] y) { r = Round(x) y = Unique<axis=0>(r) }")
    built = tw.build(tw.from_onnx(model))
    x = np.array([[1, 2], [0, 1], [1, 2], [0, 3]], np.float32)
    np.testing.assert_array_equal(built(x), np.unique(x, axis=0))


SUPPRESSED = """g (float[{b},{n},4] x, float[{b},{c},{n}] s) => (int64[k,3] y)
    <int64[1] most={{{most}}}, float[1] overlap={{{overlap}}}, float[1] least={{0.45}}>
    {{ h = Sigmoid(s) y = NonMaxSuppression<center_point_box={center}>(x, h, most, overlap{least}) }}"""


def boxes(batches, count, center, seed):
    """Returns boxes on a coarse grid, so that some touch, some are equal, and some have no area."""
    rng = np.random.default_rng(seed)
    low, size = rng.integers(0, 12, (batches, count, 2)), rng.integers(0, 6, (batches, count, 2))
    ends = [low, size] if center else [low, low + size]
    if not center and seed % 2:
        ends.reverse()  # corners may come in any order
    return np.concatenate(ends, 2).astype(np.float32)


@pytest.mark.parametrize("center", [0, 1])
@pytest.mark.parametrize(
    ("sizes", "most", "overlap", "least"),
    [
        ((1, 1, 1), 3, 0.5, ""),
        ((2, 3, 30), 7, 0.3, ", least"),
        ((1, 2, 17), 40, 0.0, ""),
        ((1, 1, 16), 5, 0.9, ", least"),
    ],
)
def test_boxes_that_overlap_are_suppressed(center, sizes, most, overlap, least):
    b, c, n = sizes
    text = SUPPRESSED.format(b=b, c=c, n=n, most=most, overlap=overlap, least=least, center=center)
    agrees(text, [(boxes(b, n, center, seed), normal(b, c, n, seed=seed)) for seed in range(6)])


def test_limits_of_the_suppression_may_be_inputs():
    text = """g (float[1,30,4] x, float[1,1,30] s, int64[1] k, float[1] t) => (int64[n,3] y)
        { h = Sigmoid(s) y = NonMaxSuppression(x, h, k, t) }"""
    given = boxes(1, 30, 0, 2), normal(1, 1, 30)
    agrees(text, [(*given, np.array([k]), np.array([t], np.float32)) for k, t in ((4, 0.5), (40, 0.1), (0, 0.5))])


def test_the_boxes_that_are_left_are_gathered():
    text = """g (float[1,b,4] x, float[1,1,b] s) => (float[n,4] w) <int64[1] k={5}, float[1] t={0.5}, int64[1] two={2},
        int64[1] three={3}, int64[1] one={1}, int64[1] zero={0}> { h = Sigmoid(s) y = NonMaxSuppression(x, h, k, t)
        i = Slice(y, two, three, one) j = Squeeze(i, one) q = Squeeze(x, zero) w = Gather(q, j) }"""
    agrees(text, [(boxes(1, n, 0, n), normal(1, 1, n)) for n in (1, 3, 30)], b=30)


def test_sizes_that_steps_of_a_loop_find_decide_the_graph():
    """Each step counts the elements that are not 0, and the call is built for what it finds."""
    text = """g (float[5] x) => (float[5] s) <int64 k={3}, bool t={1}> { s = Loop(k, t, x) <body = b (int64 i, bool c, float[5] a)
        => (bool d, float[5] e) { d = Identity(c) nz = NonZero(a) sh = Shape(nz) f = Cast<to=1>(sh) g2 = ReduceSum<keepdims=0>(f)
        e = Sub(a, g2) }> }"""
    model = parsed(text)
    graph = tw.from_onnx(model)
    assert isinstance(graph, ValueDependentGraph)
    built, session = tw.build(graph), runtime.InferenceSession(model.SerializeToString())
    for x in ([1, 0, 2, 0, 3], [4, 4, 4, 0, 0], [0, 0, 0, 0, 0], [6, 1, 5, 7, 2], [4, 4, 4, 0, 0]):
        x = np.array(x, "float32")
        np.testing.assert_array_equal(built(x), session.run(None, {"x": x})[0])
    assert "specializations by x" in repr(built)
