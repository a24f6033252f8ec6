"""ONNX Runtime's own operators of transformers and fused graphs, against ONNX Runtime, and NumPy where it has no kernel."""

import itertools
import math

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs the extra onnx")
runtime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")

from onnx import helper  # noqa: E402

from tilewright.driver.models.model_building import build_graph  # noqa: E402
from tilewright.frontends.onnx import OnnxError, from_onnx  # noqa: E402

MICROSOFT = "com.microsoft"


def model_of(op, inputs, outputs=("y",), domain=MICROSOFT, **attrs):
    """Returns a model of one node. An input that is None is left out; an output may be named ""."""
    names = ["" if v is None else f"x{n}" for n, v in enumerate(inputs)]
    given = [(n, v) for n, v in zip(names, inputs, strict=True) if v is not None]
    graph = helper.make_graph(
        [helper.make_node(op, names, list(outputs), domain=domain, **attrs)], "net",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in given],
        [helper.make_empty_tensor_value_info(n) for n in outputs if n],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def built(op, inputs, outputs=("y",), **attrs):
    """Returns what a node gives here."""
    got = build_graph(from_onnx(model_of(op, inputs, outputs, **attrs)))(*[v for v in inputs if v is not None])
    return list(got) if isinstance(got, (tuple, list)) else [got]


def check(op, inputs, outputs=("y",), tolerance=2e-5, **attrs):
    """The results are those of ONNX Runtime; returns both."""
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    model = model_of(op, inputs, outputs, **attrs)
    fed = {f"x{n}": v for n, v in enumerate(inputs) if v is not None}
    want = runtime.InferenceSession(model.SerializeToString(), options).run(None, fed)
    got = built(op, inputs, outputs, **attrs)
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    return got, want


def normal(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("op", ["Gelu", "FastGelu", "QuickGelu"])
def test_activations(op):
    x = np.concatenate([normal(100) * 3, [0.0, -0.0, 30, -30]]).astype(np.float32)
    check(op, [x])
    check(op, [normal(2, 3, 7)], **({"alpha": 0.7} if op == "QuickGelu" else {}))


@pytest.mark.parametrize("op", ["BiasGelu", "FastGelu"])
def test_activations_of_sums(op):
    check(op, [normal(2, 3, 17), normal(17)])


def test_a_gate_of_the_second_half():
    x, bias = normal(2, 3, 14), normal(14)
    left, right = np.split((x + bias).astype(np.float64), 2, axis=-1)
    want = left * right * 0.5 * (1 + np.vectorize(math.erf)(right / math.sqrt(2)))
    np.testing.assert_allclose(built("BiasSplitGelu", [x, bias])[0], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("left", "right"), list(itertools.product([(0, 0), (1, 0), (0, 1), (1, 1)], repeat=2)))
def test_products_of_turned_factors(left, right):
    (ta, ba), (tb, bb) = left, right
    m, k, n, batch = 3, 5, 7, (2, 4)

    def factor(rows, columns, trans, first, seed):
        x = normal(*batch, rows, columns, seed=seed)
        x = np.swapaxes(x, -1, -2) if trans else x
        return np.asarray(np.moveaxis(x, -2, 0) if first else x, order="C")

    a, b = factor(m, k, ta, ba, 0), factor(k, n, tb, bb, 1)
    got, _ = check("FusedMatMul", [a, b], alpha=0.3, transA=ta, transBatchA=ba, transB=tb, transBatchB=bb)
    want = 0.3 * normal_product(a, b, left, right)
    np.testing.assert_allclose(got[0], want, rtol=1e-5, atol=1e-5)
    if not (ba or bb):
        check("FusedMatMul", [a[0, 0], b], transA=ta, transB=tb)
        check("TransposeMatMul", [a, b[0, 0]], transA=ta, transB=tb)


def normal_product(a, b, left, right):
    """Returns the product of factors whose axes are moved back."""
    parts = []
    for x, (trans, first) in ((a, left), (b, right)):
        x = np.moveaxis(x, 0, -2) if first else x
        parts.append(np.swapaxes(x, -1, -2) if trans else x)
    return parts[0] @ parts[1]


ACTIVATIONS = [
    ("Relu", ()), ("Tanh", ()), ("Sigmoid", ()), ("LeakyRelu", (0.2,)), ("Clip", (-0.5, 0.7)), ("HardSigmoid", (0.3, 0.4)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "params"), ACTIVATIONS)
def test_fused_convolutions(name, params):
    x, w, b = normal(2, 4, 7, 8), normal(6, 2, 3, 3) * 0.3, normal(6)
    windows = {"pads": [1, 0, 1, 2], "strides": [2, 1], "group": 2, "kernel_shape": [3, 3]}
    more = {"activation": name, **({"activation_params": list(params)} if params else {})}
    (got,), _ = check("FusedConv", [x, w, b], **windows, **more)
    check("FusedConv", [x, w, b, normal(*got.shape)], **windows, **more)
    check("FusedConv", [x, w], auto_pad="SAME_UPPER", group=2, **more)
    last = built("NhwcFusedConv", [np.moveaxis(x, 1, 3).copy(), w, b], **windows, **more)
    np.testing.assert_allclose(np.moveaxis(last[0], 3, 1), got, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("ta", "tb"), list(itertools.product((0, 1), repeat=2)))
def test_fused_gemm(ta, tb):
    a, b = normal(*((5, 3) if ta else (3, 5))), normal(*((7, 5) if tb else (5, 7)))
    for name, params in ACTIVATIONS:
        told = dict(zip(("activation_alpha", "activation_beta"), params, strict=False)) if name != "Clip" else {}
        if name != "Clip":
            check("FusedGemm", [a, b, normal(7)], alpha=0.5, beta=2.0, transA=ta, transB=tb, activation=name, **told)
    check("FusedGemm", [a, b], transA=ta, transB=tb, activation="Relu")


def test_convolution_and_maxima_of_last_channels():
    x, w = normal(2, 7, 8, 4), normal(6, 4, 3, 3)
    want, _ = check("Conv", [np.moveaxis(x, 3, 1).copy(), w], domain="", pads=[1, 1, 1, 1])
    (got,) = built("NhwcConv", [x, w], pads=[1, 1, 1, 1])
    np.testing.assert_allclose(np.moveaxis(got, 3, 1), want[0], rtol=1e-5, atol=1e-5)
    check("NhwcMaxPool", [(x * 40).astype(np.int8)], kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])


@pytest.mark.parametrize("skip", [(2, 3, 17), (1, 3, 17), (3, 17)])
@pytest.mark.parametrize(("beta", "bias"), list(itertools.product((0, 1), repeat=2)))
def test_normalized_sums(skip, beta, bias):
    x, s, gamma = normal(2, 3, 17), normal(*skip, seed=1), normal(17)
    more = [normal(17, seed=2) if beta else None, normal(17, seed=3) if bias else None]
    for outputs in (["y"], ["y", "", "", "sum"]):
        check("SkipLayerNormalization", [x, s, gamma, *more], outputs)
        check("SkipSimplifiedLayerNormalization", [x, s, gamma, more[1]], outputs, epsilon=1e-3)


@pytest.mark.parametrize(("segments", "mask", "places"), list(itertools.product((0, 1), repeat=3)))
def test_normalized_embeddings(segments, mask, places):
    rng = np.random.default_rng(0)
    words, positions = rng.integers(0, 30, (2, 5)).astype(np.int32), rng.integers(0, 9, (2, 5)).astype(np.int32)
    inputs = [
        words, rng.integers(0, 2, (2, 5)).astype(np.int32) if segments else None, normal(30, 8), normal(9, 8),
        normal(2, 8) if segments else None, normal(8, seed=4), normal(8, seed=5),
        np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]], np.int32) if mask else None, positions if places else None,
    ]  # fmt: skip
    check("EmbedLayerNormalization", inputs, ["y", "index", "sum"])


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embeddings(interleaved):
    cos, sin = normal(20, 4), normal(20, 4, seed=1)
    places = np.random.default_rng(0).integers(0, 20, (2, 5))
    for at in (places, np.array([3])):
        check("RotaryEmbedding", [normal(2, 5, 24), at, cos, sin], interleaved=interleaved)
        check("RotaryEmbedding", [normal(2, 3, 5, 8), at, cos, sin], interleaved=interleaved)
        partial = {"num_heads": 2, "rotary_embedding_dim": 8}
        check("RotaryEmbedding", [normal(2, 5, 24), at, cos, sin], interleaved=interleaved, **partial)
        check("RotaryEmbedding", [normal(2, 2, 5, 12), at, cos, sin], interleaved=interleaved, **partial)


MASKS = {
    "none": lambda b, s, t: None,
    "lengths": lambda b, s, t: np.array([t, max(t - 2, 1)], np.int32),
    "ends": lambda b, s, t: np.array([t, t - 1, 0, 2], np.int32),
    "padding": lambda b, s, t: np.tile(np.arange(t) < t - 2, (b, 1)).astype(np.int32),
    "whole": lambda b, s, t: np.maximum(np.random.default_rng(0).integers(0, 2, (b, s, t)), np.arange(t) == 0).astype(
        np.int32
    ),
}


@pytest.mark.parametrize("unidirectional", [0, 1])
@pytest.mark.parametrize("mask", MASKS)
def test_attention_of_one_input(mask, unidirectional):
    b, s, n, h, d = 2, 5, 3, 4, 6
    x, w, bias = normal(b, s, d), normal(d, 3 * n * h), normal(3 * n * h)
    for past in (0, 3):
        earlier = normal(2, b, n, past, h) if past else None
        given = [x, w, bias, MASKS[mask](b, s, s + past), earlier]
        attrs = {"num_heads": n, "unidirectional": unidirectional}
        check("Attention", given, ["y", "present"] if past else ["y"], **attrs)
        more = [] if past else [normal(1, n, s, s)]  # ONNX Runtime refuses to add to scores of earlier keys
        check("Attention", [*given, *more], ["y", "present"], scale=0.3, mask_filter_value=-5.0, **attrs)


def test_attention_of_other_widths():
    check("Attention", [normal(2, 5, 6), normal(6, 12 + 12 + 9), normal(33)], num_heads=3, qkv_hidden_sizes=[12, 12, 9])


@pytest.mark.parametrize("unidirectional", [0, 1])
@pytest.mark.parametrize("mask", ["none", "lengths", "padding", "whole"])
def test_attention_of_three_inputs(mask, unidirectional):
    b, n, h = 2, 3, 4
    attrs = {"num_heads": n, "unidirectional": unidirectional}
    for s, length, past in ((5, 5, 0), (1, 1, 4), (3, 3, 2), (4, 6, 0), (6, 4, 0), (1, 6, 0)):
        v = h if past else h + 1  # ONNX Runtime refuses earlier values that are wider than keys
        q, k, x = normal(b, s, n * h), normal(b, length, n * h, seed=1), normal(b, length, n * v, seed=2)
        earlier = [normal(b, n, past, h), normal(b, n, past, v)] if past else [None, None]
        if mask == "lengths" and past:
            continue
        m, bias = MASKS[mask](b, s, length + past), normal(n * (h + h + v))
        check("MultiHeadAttention", [q, k, x, bias, m], **attrs) if not past else None
        outputs = ["y", "keys", "values"]
        check("MultiHeadAttention", [q, k, x, None, m, normal(b, 1, s, length + past), *earlier], outputs, **attrs)


def test_attention_of_packed_and_of_turned_inputs():
    b, s, n, h = 2, 5, 3, 4
    packed = normal(b, s, n, 3, h)
    apart = [packed[..., i, :].reshape(b, s, n * h).copy() for i in range(3)]
    (want,), _ = check("MultiHeadAttention", apart, num_heads=n)
    np.testing.assert_allclose(built("MultiHeadAttention", [packed], num_heads=n)[0], want, rtol=1e-5, atol=1e-5)
    two = [apart[0], packed[..., 1:, :].copy()]
    np.testing.assert_allclose(built("MultiHeadAttention", two, num_heads=n)[0], want, rtol=1e-5, atol=1e-5)
    turned = [v.reshape(b, s, n, h).swapaxes(1, 2).copy() for v in apart[1:]]
    check("MultiHeadAttention", [apart[0], *turned], num_heads=n)


@pytest.mark.parametrize("unidirectional", [0, 1])
def test_attention_of_sizes_that_the_call_knows(unidirectional):
    """Batch, queries, and earlier and new keys are sizes of the call."""
    n, h = 3, 4
    shapes = {"x0": ("b", "s", n * h), "x1": ("b", "l", n * h), "x2": ("b", "l", n * h), "x6": ("b", n, "p", h), "x7": ("b", n, "p", h)}  # fmt: skip
    f = None
    for b, s, length, past in ((2, 5, 5, 3), (1, 4, 6, 1), (3, 1, 2, 7)):
        inputs = [normal(b, s, n * h), normal(b, length, n * h), normal(b, length, n * h, seed=1), None, None, None,
                  normal(b, n, past, h), normal(b, n, past, h, seed=2)]  # fmt: skip
        attrs = {"num_heads": n, "unidirectional": unidirectional}
        _, want = check("MultiHeadAttention", inputs, ["y", "keys", "values"], **attrs)
        model = model_of("MultiHeadAttention", inputs, ["y", "keys", "values"], **attrs)
        f = f or build_graph(from_onnx(model, shapes=shapes), bounds={"b": 4, "s": 8, "l": 8, "p": 8})
        for got, other in zip(f(*[v for v in inputs if v is not None]), want, strict=True):
            np.testing.assert_allclose(got, other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("mask", MASKS)
def test_attention_of_half_precision(mask):
    """ONNX Runtime has it for GPUs only; the results are near to those of float32."""
    inputs = [normal(2, 5, 6), normal(6, 36), normal(36), MASKS[mask](2, 5, 5)]
    (want,) = built("Attention", inputs, num_heads=3, unidirectional=1)
    half = [v.astype(np.float16) if v is not None and v.dtype == np.float32 else v for v in inputs]
    (got,) = built("Attention", half, num_heads=3, unidirectional=1)
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, want, rtol=2e-2, atol=2e-2)


def cached(b, s, past, filled, heads=4, groups=2, width=16, packed=False):
    """Returns the first seven inputs of GroupQueryAttention: ``filled`` are the positions after the call."""
    parts = [normal(b, s, n * width, seed=i) for i, n in enumerate((heads, groups, groups))]
    parts = [np.concatenate(parts, axis=2), None, None] if packed else parts
    earlier = [None, None] if past is None else [normal(b, groups, past, width, seed=i) for i in (3, 4)]
    return [*parts, *earlier, np.array(filled, np.int32) - 1, np.array([max(filled)], np.int32)]


def check_cached(inputs, **attrs):
    """As :func:`check`, with the total number of positions a constant of the model."""
    inputs = [*inputs]
    outputs, total = ["y", "keys", "values"], int(inputs[6][0])
    model = model_of("GroupQueryAttention", inputs, outputs, num_heads=4, kv_num_heads=2, **attrs)
    fed = {f"x{n}": v for n, v in enumerate(inputs) if v is not None}
    want = runtime.InferenceSession(model.SerializeToString()).run(None, fed)
    f = build_graph(from_onnx(model, constants={"x6": np.array([total], np.int32)}))
    for a, b in zip(f(*[v for n, v in enumerate(inputs) if v is not None and n != 6]), want, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


CACHES = [
    cached(1, 5, None, [5]), cached(2, 3, None, [3, 3]), cached(1, 1, 4, [5]), cached(2, 1, 6, [7, 4]), cached(1, 1, 12, [5]),
    cached(2, 1, 12, [9, 3]), cached(1, 3, 12, [9]), cached(1, 3, 5, [8]), cached(1, 5, 12, [5]), cached(2, 3, 0, [3, 3]),
    cached(1, 3, 5, [8], packed=True),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CACHES)))
@pytest.mark.parametrize(
    "attrs", [{}, {"local_window_size": 3}, {"softcap": 2.0, "scale": 0.7}, {"smooth_softmax": 1}, {"scale": 0.2}]
)
def test_attention_of_groups_over_a_cache(number, attrs):
    check_cached(CACHES[number], **attrs)


@pytest.mark.parametrize("number", range(len(CACHES)))
@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotated_attention_over_a_cache(number, interleaved):
    angles = [normal(16, 8, seed=i) for i in (7, 8)]
    check_cached([*CACHES[number], *angles], do_rotary=1, rotary_interleaved=interleaved)
    places = CACHES[number][5][:, None] + 1 - CACHES[number][0].shape[1] + np.arange(CACHES[number][0].shape[1])
    check_cached([*CACHES[number], *angles, places.astype(np.int64)], do_rotary=1)


@pytest.mark.parametrize("number", range(1, len(CACHES), 2))
@pytest.mark.parametrize("attrs", [{}, {"softcap": 2.0}])
def test_scores_and_sinks_of_attention_over_a_cache(number, attrs):
    b, s, total = CACHES[number][0].shape[0], CACHES[number][0].shape[1], int(CACHES[number][6][0])
    check_cached([*CACHES[number], None, None, None, normal(1, 4, s, total)], **attrs)
    check_cached([*CACHES[number], None, None, None, normal(b, 1, s, total), normal(4)], **attrs)


def test_attention_over_a_cache_of_sizes_that_the_call_knows():
    """As exporters of language models write it: the mask's length tells the total number of positions."""
    heads, groups, width = 4, 2, 8
    nodes = [
        helper.make_node("Shape", ["mask"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["long"]),
        helper.make_node("Cast", ["long"], ["total"], to=onnx.TensorProto.INT32),
        helper.make_node("ReduceSum", ["mask", "axes"], ["count"], keepdims=0),
        helper.make_node("Sub", ["count", "one"], ["last"]),
        helper.make_node("Cast", ["last"], ["lengths"], to=onnx.TensorProto.INT32),
        helper.make_node(
            "GroupQueryAttention", ["q", "k", "v", "past_k", "past_v", "lengths", "total"], ["y", "keys", "values"],
            domain=MICROSOFT, num_heads=heads, kv_num_heads=groups,
        ),
    ]  # fmt: skip
    shapes = {
        "q": ("b", "s", heads * width), "k": ("b", "s", groups * width), "v": ("b", "s", groups * width),
        "past_k": ("b", groups, "p", width), "past_v": ("b", groups, "p", width), "mask": ("b", "t"),
    }  # fmt: skip
    inputs = [
        helper.make_tensor_value_info(n, onnx.TensorProto.INT64 if n == "mask" else onnx.TensorProto.FLOAT, d) for n, d in shapes.items()
    ]  # fmt: skip
    constants = [onnx.numpy_helper.from_array(v, n) for n, v in (("one", np.array(1)), ("axes", np.array([1])))]
    outputs = [helper.make_empty_tensor_value_info(n) for n in ("y", "keys", "values")]
    graph = helper.make_graph(nodes, "net", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    session = runtime.InferenceSession(model.SerializeToString())
    f = build_graph(from_onnx(model), bounds={"b": 2, "s": 8, "p": 8, "t": 16})
    for b, s, past, total in ((1, 5, 0, 5), (1, 1, 5, 6), (2, 1, 6, 7), (1, 3, 4, 7), (2, 4, 0, 4), (1, 1, 8, 5)):
        mask = np.ones((b, total), np.int64)
        mask[1:, -2:] = int(s > 1)  # the rows of a padded prompt are not specified
        given = [v for v in cached(b, s, past, [total] * b, width=width) if v is not None][:5]
        fed = dict(zip(shapes, [*given, mask], strict=True))
        for got, want in zip(f(*fed.values()), session.run(None, fed), strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


REFUSED = [
    ("GroupQueryAttention", cached(1, 5, None, [5]), {"num_heads": 4, "kv_num_heads": 2, "causal": 0}, "causal=0 is not supported"),
    ("GroupQueryAttention", [*cached(1, 5, None, [5]), *[None] * 7, normal(16), normal(16)], {"num_heads": 4, "kv_num_heads": 2}, "q_norm_weight"),
    ("FusedConv", [normal(1, 2, 5, 5), normal(2, 2, 3, 3)], {"activation": "Sparkle"}, "'Sparkle' is not supported"),
    ("RotaryEmbedding", [normal(2, 5, 24), np.zeros((2, 5), np.int64), normal(9, 4), normal(9, 4)], {"is_packed_batching": 1}, "is_packed_batching"),
    ("Attention", [normal(2, 5, 6), normal(6, 18), normal(18)], {"num_heads": 3, "do_rotary": 1}, "do_rotary=1 is not supported"),
    ("Attention", [normal(2, 5, 6), normal(6, 18), normal(18), np.zeros((2, 1, 5, 5), np.int32)], {"num_heads": 3}, "attention_bias takes one"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "inputs", "attrs", "message"), REFUSED)
def test_what_is_refused(op, inputs, attrs, message):
    with pytest.raises(OnnxError, match=message):
        from_onnx(model_of(op, inputs, **attrs))
