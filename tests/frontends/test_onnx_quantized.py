"""Quantized numbers in ONNX models, those of ONNX Runtime's quantizer included, against ONNX Runtime."""

import itertools

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs the extra onnx")
runtime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from tilewright.driver.models.model_building import build_graph  # noqa: E402
from tilewright.frontends.onnx import OnnxError, from_onnx  # noqa: E402
from tilewright.graph import Services, prepare  # noqa: E402

MICROSOFT = "com.microsoft"
TYPES = {"uint8": np.uint8, "int8": np.int8, "uint16": np.uint16, "int16": np.int16}


def model_of(nodes, inputs, constants=None, outputs=("y",), types=None, opset=21):
    """Returns a model of inputs and constants, which are arrays, or tensors of types that NumPy lacks."""
    tensors = [v if isinstance(v, TensorProto) else numpy_helper.from_array(np.asarray(v), n) for n, v in (constants or {}).items()]  # fmt: skip
    graph = helper.make_graph(
        nodes, "net",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in inputs.items()],
        [helper.make_tensor_value_info(n, (types or {}).get(n, TensorProto.FLOAT), None) for n in outputs], tensors,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def both(op, given, inputs=None, constants=None, to=np.float32, domain=MICROSOFT, **attrs):
    """Returns what a node gives here and in ONNX Runtime."""
    node = helper.make_node(op, given, ["y"], domain=domain, **attrs)
    types = {"y": helper.np_dtype_to_tensor_dtype(np.dtype(to))}
    model = model_of([node], inputs, constants, types=types)
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1  # threads find ranges of parts of a state
    (want,) = runtime.InferenceSession(model.SerializeToString(), options).run(None, inputs)
    got = build_graph(from_onnx(model))(*inputs.values())
    assert got.dtype == want.dtype and got.shape == want.shape
    return got, want


def near(pair, units=1, few=0.02):
    """Whole numbers are those of ONNX Runtime, save few that another order of rounding puts one unit off."""
    got, want = pair
    off = np.abs(got.astype(np.int64) - want)
    assert off.max(initial=0) <= units and (off > 0).mean() <= few


def ends(rng, shape, dtype):
    """Returns numbers of the whole type, its ends among them."""
    info = np.iinfo(dtype)
    out = rng.integers(info.min, info.max, shape, endpoint=True).astype(dtype)
    out.flat[0], out.flat[-1] = info.min, info.max
    return out


def zeros_of(dtype):
    """Returns zero points at the ends of a type and between."""
    info = np.iinfo(dtype)
    return [dtype(info.min), dtype(info.max), dtype((info.min + info.max) // 2 + 3)]


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_two_numbers(op, dtype):
    rng = np.random.default_rng(0)
    for za, zc in itertools.product(zeros_of(dtype), zeros_of(dtype)):
        constants = {"sa": np.float32(0.02), "za": za, "sb": np.float32(0.03), "zb": dtype(7), "sc": np.float32(0.05), "zc": zc}  # fmt: skip
        for shapes in [((3, 7), (3, 7)), ((3, 7), (7,)), ((3, 1), (1, 5)), ((4,), ())]:
            a, b = [ends(rng, s, dtype) for s in shapes]
            near(both(op, ["a", "sa", "za", "b", "sb", "zb", "sc", "zc"], {"a": a, "b": b}, constants, dtype), few=0.1)


def test_two_numbers_without_zero_points():
    a = np.arange(-128, 128, dtype=np.int8)
    inputs, constants = {"a": a, "b": a[::-1].copy()}, {"s": np.float32(0.5), "t": np.float32(1)}
    node = helper.make_node("QLinearAdd", ["a", "s", "", "b", "s", "", "t"], ["y"], domain=MICROSOFT)
    got = build_graph(from_onnx(model_of([node], inputs, constants)))(*inputs.values())
    np.testing.assert_array_equal(got, np.zeros(256, np.int8))  # -0.5, ties to even


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize(("op", "attrs"), [("QLinearSigmoid", {}), ("QLinearLeakyRelu", {"alpha": 0.3})])
def test_one_number(op, attrs, dtype):
    x = np.arange(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, dtype=np.int16).astype(dtype).reshape(4, 64)
    for zx, zy in itertools.product(zeros_of(dtype), zeros_of(dtype)):
        constants = {"sx": np.float32(0.05), "zx": zx, "sy": np.float32(1 / 256), "zy": zy}
        near(both(op, ["x", "sx", "zx", "sy", "zy"], {"x": x}, constants, dtype, **attrs))


@pytest.mark.parametrize(("opset", "axis"), [(13, -1), (13, 1), (12, 1), (12, 2)])
def test_softmax(opset, axis):
    x = ends(np.random.default_rng(0), (2, 3, 5), np.uint8)
    constants = {"sx": np.float32(0.03), "zx": np.uint8(100), "sy": np.float32(1 / 256), "zy": np.uint8(0)}
    near(both("QLinearSoftmax", ["x", "sx", "zx", "sy", "zy"], {"x": x}, constants, np.uint8, opset=opset, axis=axis), few=0.1)  # fmt: skip


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("gate", ["Sigmoid", "HardSigmoid", "Tanh"])
@pytest.mark.parametrize("rows", [14, "n"])
def test_a_number_times_a_function_of_it_between_quantizations(dtype, gate, rows):
    """x · gate(x) of all 256 numbers, quantized before, between and after, is what ONNX Runtime computes step by step."""
    make, info = helper.make_node, np.iinfo(dtype)
    q = np.resize(np.arange(info.min, info.max + 1), (14, 3, 7)).astype(dtype)
    zero = TYPES[dtype](info.min + 120)
    constants = {"sx": np.float32(0.043), "zx": zero, "sg": np.float32(0.0079), "zg": zero, "sy": np.float32(0.0371), "zy": TYPES[dtype](info.min + 9)}  # fmt: skip
    nodes = [
        make("DequantizeLinear", ["q", "sx", "zx"], ["x"]), make(gate, ["x"], ["g"]),
        make("QuantizeLinear", ["g", "sg", "zg"], ["gq"]), make("DequantizeLinear", ["gq", "sg", "zg"], ["h"]),
        make("Mul", ["x", "h"], ["m"]), make("QuantizeLinear", ["m", "sy", "zy"], ["y"]),
    ]  # fmt: skip
    model = model_of(nodes, {"q": q}, constants, types={"y": helper.np_dtype_to_tensor_dtype(np.dtype(dtype))})
    if rows == "n":
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = rows
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    (want,) = runtime.InferenceSession(model.SerializeToString(), options).run(None, {"q": q})
    assert [n.op for n in prepare(from_onnx(model)).nodes].count("take") == 1
    np.testing.assert_array_equal(build_graph(from_onnx(model))(q), want)


def test_concatenation_and_choice_of_numbers():
    rng = np.random.default_rng(0)
    a, b = ends(rng, (2, 3), np.uint8), ends(rng, (2, 5), np.uint8)
    constants = {"s": np.float32(0.02), "z": np.uint8(3), "t": np.float32(0.05), "w": np.uint8(255)}
    given = ["s", "z", "a", "s", "z", "b", "t", "w"]
    near(both("QLinearConcat", given, {"a": a, "b": b}, constants, np.uint8, axis=-1), few=0.1)
    flag = rng.integers(0, 2, (2, 1)).astype(bool)
    inputs = {"f": flag, "a": ends(rng, (3, 1, 4), np.uint8), "b": ends(rng, (2, 4), np.uint8)}
    near(both("QLinearWhere", ["f", "a", "s", "z", "b", "t", "w", "s", "z"], inputs, constants, np.uint8), few=0.1)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("attrs", [{}, {"pads": [1, 0, 1, 1]}, {"strides": [2, 2], "pads": [1, 1, 1, 1], "count_include_pad": 1}, {"ceil_mode": 1, "strides": [2, 2]}])  # fmt: skip
def test_means_of_windows(attrs, last):
    x = ends(np.random.default_rng(0), (2, 7, 8, 3) if last else (2, 3, 7, 8), np.uint8)
    constants = {"sx": np.float32(0.03), "zx": np.uint8(100), "sy": np.float32(0.02), "zy": np.uint8(0)}
    given = ["x", "sx", "zx", "sy", "zy"]
    near(both("QLinearAveragePool", given, {"x": x}, constants, np.uint8, kernel_shape=[3, 2], channels_last=last, **attrs))  # fmt: skip
    near(both("QLinearGlobalAveragePool", given, {"x": x}, constants, np.uint8, channels_last=last))


@pytest.mark.parametrize("types", [(np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8)])
@pytest.mark.parametrize("columns", [False, True])
def test_products_of_integers(types, columns):
    """The sums of integers are exact, also with zero points at the ends of their types, known or not."""
    rng = np.random.default_rng(0)
    m, k, n = 3, 17, 7
    a, b = ends(rng, (m, k), types[0]), ends(rng, (k, n), types[1])
    for za, zb in itertools.product(zeros_of(types[0]), zeros_of(types[1])):
        parts = {
            "sa": np.float32(0.02), "za": za,
            "sb": rng.random(n).astype(np.float32) + 0.1 if columns else np.float32(0.01),
            "zb": ends(rng, n, types[1]) if columns else zb,
        }  # fmt: skip
        bias = {"bias": rng.standard_normal(n).astype(np.float32)}
        given = ["a", "b", "sa", "sb", "za", "zb", "bias"]
        for constants in ({"b": b, **parts, **bias}, {}):
            inputs = {"a": a} if constants else {"a": a, "b": b, **{k: np.asarray(v) for k, v in parts.items()}, **bias}
            got, want = both("MatMulIntegerToFloat", given, inputs, constants)
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
        out = {"sy": np.float32(0.7), "zy": types[0](5)}
        given = ["a", "sa", "za", "b", "sb", "zb", "sy", "zy"]
        near(both("QLinearMatMul", given, {"a": a}, {"b": b, **parts, **out}, types[0], domain=""), few=0.1)


@pytest.mark.parametrize(("left", "right"), [(0, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("rounded", [False, True])
def test_qgemm(left, right, rounded):
    rng = np.random.default_rng(0)
    m, k, n = 3, 17, 7
    inputs = {"a": ends(rng, (k, m) if left else (m, k), np.uint8)}
    constants = {
        "b": ends(rng, (n, k) if right else (k, n), np.int8), "sa": np.float32(0.02), "za": np.uint8(255),
        "sb": rng.random(n).astype(np.float32) / 10, "zb": rng.integers(-9, 9, n).astype(np.int8),
        "c": rng.integers(-2000, 2000, n).astype(np.int32), "sy": np.float32(0.3), "zy": np.uint8(128),
    }  # fmt: skip
    given = ["a", "sa", "za", "b", "sb", "zb", "c", *(["sy", "zy"] if rounded else [])]
    attrs = {"transA": left, "transB": right, "alpha": 0.5}
    pair = both("QGemm", given, inputs, constants, np.uint8 if rounded else np.float32, **attrs)
    if rounded:
        near(pair, few=0.1)
    else:
        np.testing.assert_allclose(*pair, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("x", [np.linspace(-1, 3, 34), np.linspace(0, 3, 34), np.linspace(-3, -1, 34), np.zeros(34)], ids=["both", "above", "below", "zero"])  # fmt: skip
def test_operands_that_are_quantized_at_the_call(x):
    rng = np.random.default_rng(0)
    x = x.astype(np.float32).reshape(2, 17)
    constants = {"b": ends(rng, (17, 5), np.int8), "s": rng.random(5).astype(np.float32), "z": ends(rng, 5, np.int8), "c": rng.random(5).astype(np.float32)}  # fmt: skip
    got, want = both("DynamicQuantizeMatMul", ["x", "b", "s", "z", "c"], {"x": x}, constants)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])
    model = model_of([node], {"x": x}, outputs=("y", "s", "z"), types={"y": 2, "z": 2})
    for got, want in zip(build_graph(from_onnx(model))(x), runtime.InferenceSession(model.SerializeToString()).run(None, {"x": x}), strict=True):  # fmt: skip
        np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize(
    "activation", [("Relu", {}), ("Clip", {"low": 0.0, "high": 6.0}), ("Clip", {"low": 0.5, "high": 6.0}), None]
)
def test_the_range_of_data_that_is_not_negative_takes_one_reduction(activation):
    rng = np.random.default_rng(7)
    name, bounds = activation or ("Neg", {})
    constants = {n: np.float32(v) for n, v in bounds.items()}
    nodes = [
        helper.make_node(name, ["x", *bounds], ["r"]),
        helper.make_node("DynamicQuantizeLinear", ["r"], ["y", "s", "z"]),
    ]
    types = {"y": TensorProto.UINT8, "z": TensorProto.UINT8}
    shape = (2, 5, 7)
    for x in (rng.standard_normal(shape) * 4, np.zeros(shape), -np.ones(shape), np.full(shape, 7.0)):
        x = x.astype(np.float32)
        model = model_of(nodes, {"x": x}, constants, outputs=("y", "s", "z"), types=types)
        want = runtime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
        graph = from_onnx(model)
        got = build_graph(graph)(x)
        kinds = [n.op for n in prepare(graph).nodes]
        assert {"max", "min", "extremes"} & {*kinds} == ({"max"} if activation else {"extremes"})
        np.testing.assert_allclose(got[1], want[1], rtol=1e-6)
        near((got[0], want[0]))
        assert got[2] == want[2]


@pytest.mark.parametrize(
    ("direction", "per_channel", "dtype"), [("forward", False, "int8"), ("bidirectional", True, "uint8")]
)
def test_lstm_of_integer_weights(direction, per_channel, dtype):
    rng, size, width, ways = np.random.default_rng(9), 16, 12, 2 if direction == "bidirectional" else 1
    x = rng.standard_normal((5, 2, width)).astype(np.float32)
    of_scale = (ways, 4 * size) if per_channel else (ways,)
    constants = {"b": rng.standard_normal((ways, 8 * size)).astype(np.float32)}
    for name, rows in (("w", width), ("r", size)):
        constants[name] = ends(rng, (ways, rows, 4 * size), dtype)
        constants[f"{name}s"] = rng.uniform(0.002, 0.004, of_scale).astype(np.float32)
        zeros = rng.integers(100, 150, of_scale) if dtype == "uint8" and not per_channel else np.zeros(of_scale)
        constants[f"{name}z"] = (zeros if dtype == "int8" or not per_channel else zeros + 128).astype(dtype)
    given = ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"]
    got, want = both("DynamicQuantizeLSTM", given, {"x": x}, constants, hidden_size=size, direction=direction)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_loops_multiply_integer_weights():
    """The weights of the state stay numbers of 8 bits in the loop."""
    rng, size = np.random.default_rng(2), 32
    names = {n: rng.integers(-127, 127, (1, size, 4 * size)).astype(np.int8) for n in "wr"}
    scales = {n: np.full(1, 0.01, np.float32) for n in ("ws", "rs")}
    constants = {**names, **scales, **{n: np.zeros(1, np.int8) for n in ("wz", "rz")}}
    given = ["x", "w", "r", "", "", "", "", "", "ws", "wz", "rs", "rz"]
    node = helper.make_node("DynamicQuantizeLSTM", given, ["y"], domain=MICROSOFT, hidden_size=size)
    x = np.zeros((7, 1, size), np.float32)
    (loop,) = [n for n in prepare(from_onnx(model_of([node], {"x": x}, constants))).nodes if n.body is not None]
    (product,) = [n for n in loop.body.nodes if n.op == "matmul"]
    assert [v.dtype for v in product.given] == ["uint8", "int8"]


@pytest.mark.parametrize(
    ("op", "direction", "batch", "per_channel", "attrs"),
    [
        ("LSTM", "forward", 1, False, {}),
        ("LSTM", "bidirectional", 3, False, {}),
        ("GRU", "reverse", 8, True, {}),
        ("GRU", "forward", 2, True, {"linear_before_reset": 1}),
        ("RNN", "forward", 9, True, {}),
    ],
)
def test_recurrent_layers_of_decoded_weights(op, direction, batch, per_channel, attrs):
    """The product of rounded data is one of integers, that of a state one with codes in the loop, for few rows."""
    rng, width, size, ways = np.random.default_rng(4), 160, 160, 2 if direction == "bidirectional" else 1
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    x = rng.standard_normal((4, batch, width)).astype(np.float32)
    constants = {
        "xs": np.float32(0.03),
        "xz": np.uint8(125),
        "b": rng.standard_normal((ways, 2 * gates * size)).astype(np.float32),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "xs", "xz"], ["d"]),
    ]
    for name in "wr":
        count = (gates * size,) if per_channel else ()
        constants[f"{name}q"] = ends(rng, (ways, gates * size, width), np.int8)
        constants[f"{name}s"] = rng.uniform(0.0005, 0.001, count).astype(np.float32)
        constants[f"{name}z"] = np.zeros(count, np.int8)
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}q", f"{name}s", f"{name}z"], [name], axis=1))
    nodes.append(helper.make_node(op, ["d", "w", "r", "b"], ["y"], hidden_size=size, direction=direction, **attrs))
    model = model_of(nodes, {"x": x}, constants)
    (want,) = runtime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(build_graph(from_onnx(model))(x), want, rtol=1e-4, atol=2e-5)
    graph = prepare(from_onnx(model), services=Services(packed_nbits=frozenset(["float32"])))
    outside = [n for n in graph.nodes if n.op == "dense"]
    assert [[v.dtype for v in n.inputs[:2]] for n in outside] == [["uint8", "int8"]] * ways
    loops = [n.body for n in graph.nodes if n.body is not None]
    kinds = {n.op for body in loops for n in body.nodes}
    assert len(loops) == ways and "cast" not in kinds
    assert {"dense", "dense_packed_nbits"} & kinds == ({"dense"} if batch > 8 else {"dense_packed_nbits"})


@pytest.mark.parametrize("last", [0, 1])
def test_convolutions(last):
    rng = np.random.default_rng(0)
    x, w = ends(rng, (1, 7, 6, 4) if last else (1, 4, 7, 6), np.uint8), ends(rng, (6, 2, 3, 3), np.int8)
    constants = {
        "w": w, "sx": np.float32(0.02), "zx": np.uint8(255), "sw": rng.random(6).astype(np.float32) / 50, "zw": np.zeros(6, np.int8),
        "sy": np.float32(0.4), "zy": np.uint8(9), "b": rng.integers(-500, 500, 6).astype(np.int32),
    }  # fmt: skip
    given = ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy", "b"]
    attrs = {"group": 2, "pads": [1, 1, 1, 1], **({"channels_last": 1} if last else {})}
    near(both("QLinearConv", given, {"x": x}, constants, np.uint8, domain=MICROSOFT if last else "", **attrs))


@pytest.mark.parametrize("domain", ["", MICROSOFT])
@pytest.mark.parametrize("to", TYPES.values(), ids=TYPES)
def test_rounding_and_saturation(domain, to):
    info = np.iinfo(to)
    x = np.float32([0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 1e9, -1e9, info.max, info.min, info.max + 0.5, info.min - 0.5])
    for zero in zeros_of(to):
        constants = {"s": np.float32(1), "z": zero}
        near(both("QuantizeLinear", ["x", "s", "z"], {"x": x}, constants, to, domain), 0)
        q = ends(np.random.default_rng(0), 40, to)
        got, want = both("DequantizeLinear", ["q", "s", "z"], {"q": q}, constants, np.float32, domain)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_blocks_of_numbers(axis):
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((6, 7)) * 40).astype(np.float32)
    shape = [6, 7]
    shape[axis] = -(-shape[axis] // 3)
    constants = {"s": rng.random(shape).astype(np.float32) + 0.5, "z": rng.integers(-9, 9, shape).astype(np.int8)}
    near(both("QuantizeLinear", ["x", "s", "z"], {"x": x}, constants, np.int8, "", axis=axis, block_size=3), 0)
    q = ends(rng, (6, 7), np.int8)
    got, want = both("DequantizeLinear", ["q", "s", "z"], {"q": q}, constants, np.float32, "", axis=axis, block_size=3)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4])
@pytest.mark.parametrize("raw", [False, True])
def test_numbers_of_four_bits(kind, raw, tmp_path):
    """Weights of 4 bits are read; a product with them, and quantizing to their type, saturate as ONNX Runtime does."""
    rng, low = np.random.default_rng(0), -8 if kind == TensorProto.INT4 else 0
    w = rng.integers(low, low + 16, (9, 5))
    small = helper.tensor_dtype_to_np_dtype(kind)
    tensor = numpy_helper.from_array(w.astype(small), "w") if raw else helper.make_tensor("w", kind, w.shape, w.ravel())
    zero = helper.make_tensor("z", kind, [], [low + 3])
    constants = {"w": tensor, "z": zero, "s": np.float32(0.5)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]), helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["f"]), helper.make_node("MatMul", ["d", "f"], ["y"]),
    ]  # fmt: skip
    x = np.linspace(-9, 9, 27, dtype=np.float32).reshape(3, 9)
    model = model_of(nodes, {"x": x}, constants)
    (want,) = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(build_graph(from_onnx(model))(x), want, rtol=1e-5)
    path = tmp_path / "m.onnx"
    onnx.save(model, str(path), save_as_external_data=True, size_threshold=0)
    np.testing.assert_allclose(build_graph(from_onnx(path))(x), want, rtol=1e-5)


def few_bits(rng, bits, k, n, size, zeros, known=True, **more):
    blocks = -(-k // size)
    inputs = {"x": rng.standard_normal((3, k)).astype(np.float32)}
    constants = {
        "w": rng.integers(0, 256, (n, blocks, size * bits // 8)).astype(np.uint8),
        "s": rng.standard_normal(n * blocks).astype(np.float32),
    }
    given = ["x", "w", "s", "z" if zeros else "", "g" if "g" in more else "", "b" if "b" in more else ""]
    if zeros == "packed":
        constants["z"] = rng.integers(0, 256, n * -(-blocks * bits // 8)).astype(np.uint8)
    elif zeros:
        constants["z"] = (rng.random((n, blocks)) * (1 << bits)).astype(np.float32)
    constants.update(more)
    if not known:
        inputs, constants = {**inputs, **constants}, {}
    while given[-1] == "":
        given.pop()
    return given, inputs, constants, {"K": k, "N": n, "bits": bits, "block_size": size}


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", ["", "packed", "float"])
@pytest.mark.parametrize(("k", "n", "size"), [(64, 7, 16), (48, 5, 32), (17, 3, 16), (256, 2, 256)])
def test_weights_of_few_bits(bits, zeros, k, n, size):
    rng = np.random.default_rng(bits)
    bias = {"b": rng.standard_normal(n).astype(np.float32)} if n > 3 else {}
    given, inputs, constants, attrs = few_bits(rng, bits, k, n, size, zeros, **bias)
    node = helper.make_node("MatMulNBits", given, ["y"], domain=MICROSOFT, **attrs)
    want = inputs["x"] @ weights(constants, **attrs) + constants.get("b", 0)
    got = build_graph(from_onnx(model_of([node], inputs, constants)))(*inputs.values())
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)
    if zeros != "float" or bits == 4:  # others are refused by ONNX Runtime
        _, peer = both("MatMulNBits", given, inputs, constants, **attrs)
        np.testing.assert_allclose(peer, want, rtol=1e-3, atol=1e-2)


def weights(constants, K, N, bits, block_size, places=None):  # noqa: N803
    """Returns the weights [K, N] that a MatMulNBits node means, in plain NumPy."""

    def numbers(packed):
        return np.stack([packed >> s & (1 << bits) - 1 for s in range(0, 8, bits)], -1).reshape(N, -1)

    blocks = -(-K // block_size)
    zero = constants.get("z", np.full((N, blocks), 1 << bits - 1))
    zero = numbers(zero.reshape(N, -1))[:, :blocks] if zero.dtype == np.uint8 else zero
    at = np.arange(K) // block_size if places is None else places
    q = numbers(constants["w"].reshape(N, -1))[:, :K].astype(np.float64)
    return ((q - zero[:, at]) * constants["s"].reshape(N, -1)[:, at]).T


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", ["", "packed"])
def test_weights_that_only_the_call_knows(bits, zeros):
    given, inputs, constants, attrs = few_bits(np.random.default_rng(0), bits, 40, 3, 16, zeros, known=False)
    got = build_graph(from_onnx(model_of([helper.make_node("MatMulNBits", given, ["y"], domain=MICROSOFT, **attrs)], inputs)))(*inputs.values())  # fmt: skip
    np.testing.assert_allclose(got, inputs["x"] @ weights(inputs, **attrs), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("zeros", ["", "packed", "float"])
def test_weights_in_another_order_of_blocks(zeros):
    rng = np.random.default_rng(0)
    places = rng.permutation(np.arange(64, dtype=np.int32) // 16)
    given, inputs, constants, attrs = few_bits(rng, 4, 64, 5, 16, zeros, g=places)
    want = inputs["x"] @ weights(constants, **attrs, places=places)
    got = build_graph(from_onnx(model_of([helper.make_node("MatMulNBits", given, ["y"], domain=MICROSOFT, **attrs)], inputs, constants)))(*inputs.values())  # fmt: skip
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)
    if not zeros:  # ONNX Runtime leaves packed zero points unread where the order is given
        _, peer = both("MatMulNBits", given, inputs, constants, **attrs)
        np.testing.assert_allclose(peer, want, rtol=1e-3, atol=1e-2)


def test_bits_that_are_not_supported():
    given, inputs, constants, attrs = few_bits(np.random.default_rng(0), 4, 64, 5, 16, "")
    node = helper.make_node("MatMulNBits", given, ["y"], domain=MICROSOFT, **{**attrs, "bits": 3})
    with pytest.raises(OnnxError, match="weights of 3 bits"):
        from_onnx(model_of([node], inputs, constants))


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [False, True])
def test_rows_of_numbers_in_blocks(bits, zeros):
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.integers(0, 256, (9, 64 * bits // 8)).astype(np.uint8), "s": rng.random((9, 4)).astype(np.float32),
        "z": rng.integers(0, 256, (9, 4 * bits // 8)).astype(np.uint8),
    }  # fmt: skip
    given = ["w", "i", "s", *(["z"] if zeros else [])]
    attrs = {"bits": bits, "block_size": 16, "gather_axis": 0, "quantize_axis": 1}
    got, want = both("GatherBlockQuantized", given, {"i": np.array([[0, 8], [-1, 3]])}, constants, **attrs)
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("form", ["dynamic", "QOperator", "QDQ", "16 bits", "4 bits"])
def test_models_of_the_common_quantizer(form, tmp_path):
    """A small network as ``onnxruntime.quantization`` writes it gives what ONNX Runtime computes of it."""
    quantization = pytest.importorskip("onnxruntime.quantization")
    rng = np.random.default_rng(0)

    def data(*shape):
        return (rng.standard_normal(shape) / 4).astype(np.float32)

    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "w2"], ["d"], pads=[1, 1, 1, 1]), helper.make_node("Add", ["d", "r"], ["a"]),
        helper.make_node("LeakyRelu", ["a"], ["k"], alpha=0.1), helper.make_node("Concat", ["k", "r"], ["e"], axis=1),
        helper.make_node("AveragePool", ["e"], ["v"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["v"], ["g"]), helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "w3"], ["m"]), helper.make_node("Sigmoid", ["m"], ["s"]),
        helper.make_node("Mul", ["m", "s"], ["u"]), helper.make_node("Gemm", ["u", "w4", "b4"], ["y"], transB=1),
    ]  # fmt: skip
    constants = {
        "w1": data(16, 3, 3, 3),
        "w2": data(16, 16, 3, 3),
        "w3": data(32, 32),
        "w4": data(7, 32),
        "b4": data(7),
    }
    xs = rng.standard_normal((8, 1, 3, 8, 8)).astype(np.float32)
    source, target = tmp_path / "a.onnx", tmp_path / "b.onnx"
    onnx.save(model_of(nodes, {"x": xs[0]}, constants, opset=17), str(source))

    class Reader(quantization.CalibrationDataReader):
        left = list(xs)

        def get_next(self):
            return {"x": self.left.pop()} if self.left else None

    if form == "dynamic":
        quantization.quantize_dynamic(source, target)
    elif form == "4 bits":
        quantizer = pytest.importorskip("onnxruntime.quantization.matmul_nbits_quantizer", reason="needs onnx_ir")
        made = quantizer.MatMulNBitsQuantizer(onnx.load(source), block_size=16, is_symmetric=False)
        made.process()
        made.model.save_model_to_file(str(target))
    else:
        wide = form == "16 bits"
        quantization.quantize_static(
            source, target, Reader(), per_channel=form == "QDQ",
            quant_format=quantization.QuantFormat.QOperator if form == "QOperator" else quantization.QuantFormat.QDQ,
            activation_type=quantization.QuantType.QUInt16 if wide else quantization.QuantType.QUInt8,
        )  # fmt: skip
    options = runtime.SessionOptions()  # what the nodes say one by one
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = runtime.InferenceSession(str(target), options)
    built = build_graph(from_onnx(target))
    for x in xs[:3]:
        (want,) = session.run(None, {"x": x})
        # means of four whole numbers are ties, which the order of a sum decides; later layers enlarge that
        np.testing.assert_allclose(built(x), want, atol=0.05 * np.abs(want).max() + 1e-3)
