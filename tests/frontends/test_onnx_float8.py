"""ONNX models with float8: conversions, quantized weights, inputs and outputs, against ml_dtypes."""

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph import GraphError
from tilewright.graph.builder import Builder

KINDS = ("float8_e4m3fn", "float8_e5m2")


def number(dtype):
    helper = pytest.importorskip("onnx").TensorProto
    return {"float32": helper.FLOAT, "float8_e4m3fn": helper.FLOAT8E4M3FN, "float8_e5m2": helper.FLOAT8E5M2}[dtype]


def model(nodes, inputs, outputs, **constants):
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    infos = [
        [helper.make_tensor_value_info(name, number(dtype), shape) for name, (dtype, shape) in some.items()]
        for some in (inputs, outputs)
    ]
    made = [helper.make_node(op, ins.split(), outs.split(), **attrs) for op, ins, outs, attrs in nodes]
    data = [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(made, "g", *infos, data)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def kind_of(dtype):
    return getattr(pytest.importorskip("ml_dtypes"), dtype)


def some_numbers():
    x = np.random.default_rng(0).standard_normal(60) * 100
    return np.concatenate([x, [np.nan, np.inf, -np.inf, 1e6]]).astype(np.float32).reshape(4, 16)


def largest(dtype):
    return {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}[dtype]


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("saturate", [0, 1])
def test_cast_saturates_where_it_says_so(dtype, saturate):
    kind, x = kind_of(dtype), some_numbers()
    nodes = [("Cast", "x", "y", {"to": number(dtype), "saturate": saturate}), ("Cast", "y", "z", {"to": 1})]
    f = tw.build(model(nodes, {"x": ("float32", [4, 16])}, {"z": ("float32", [4, 16])}))
    with np.errstate(invalid="ignore"):
        want = (np.clip(x, -largest(dtype), largest(dtype)) if saturate else x).astype(kind).astype(np.float32)
    np.testing.assert_array_equal(f(x), want)


@pytest.mark.parametrize("dtype", KINDS)
def test_quantized_weights_are_read(dtype):
    kind = kind_of(dtype)
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((4, 16), (16, 8)))
    w, s = w.astype(kind), np.linspace(0.1, 0.5, 8).astype(np.float32)
    nodes = [("DequantizeLinear", "w s", "d", {"axis": 1}), ("MatMul", "x d", "z", {})]
    f = tw.build(model(nodes, {"x": ("float32", [4, 16])}, {"z": ("float32", [4, 8])}, w=w, s=s))
    np.testing.assert_allclose(f(x), x @ (w.astype(np.float32) * s), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", KINDS)
def test_quantized_and_moved(dtype):
    kind, x, s = kind_of(dtype), some_numbers(), np.float32(0.25)
    nodes = [
        ("QuantizeLinear", "x s z", "q", {}), ("Transpose", "q", "t", {}), ("Concat", "t t", "c", {"axis": 1}),
        ("DequantizeLinear", "c s z", "y", {}),
    ]  # fmt: skip
    made = model(nodes, {"x": ("float32", [4, 16])}, {"y": ("float32", [16, 8])}, s=s, z=np.zeros((), kind))
    with np.errstate(invalid="ignore"):
        want = np.clip(x / s, -largest(dtype), largest(dtype)).astype(kind).astype(np.float32).T * s
    np.testing.assert_array_equal(tw.build(made)(x), np.concatenate([want, want], 1))


@pytest.mark.parametrize("dtype", KINDS)
def test_inputs_and_outputs(dtype):
    kind = kind_of(dtype)
    with np.errstate(invalid="ignore"):
        x = some_numbers().astype(kind)
    nodes = [("Transpose", "x", "t", {}), ("Cast", "t", "y", {"to": 1})]
    f = tw.build(model(nodes, {"x": (dtype, [4, 16])}, {"t": (dtype, [16, 4]), "y": ("float32", [16, 4])}))
    for given in (x, x.view(np.uint8)):
        t, y = f(given)
        assert t.dtype == given.dtype
        np.testing.assert_array_equal(t.view(np.uint8), x.view(np.uint8).T)
        np.testing.assert_array_equal(y, x.astype(np.float32).T)


@pytest.mark.parametrize("dtype", KINDS)
def test_a_constant_is_converted(dtype):
    kind, w = kind_of(dtype), np.linspace(-3, 3, 12).astype(np.float32)
    nodes = [("Cast", "w", "c", {"to": 1}), ("Add", "x c", "y", {})]
    f = tw.build(model(nodes, {"x": ("float32", [12])}, {"y": ("float32", [12])}, w=w.astype(kind)))
    np.testing.assert_array_equal(f(np.ones(12, np.float32)), 1 + w.astype(kind).astype(np.float32))


def test_arithmetic_is_refused():
    made = model([("Add", "x x", "y", {})], {"x": (KINDS[0], [4])}, {"y": (KINDS[0], [4])})
    with pytest.raises(ValueError, match="Add 'y'.*only keeps numbers"):
        tw.build(made)


def test_values_of_graphs_have_whole_bytes():
    b = Builder("g")
    with pytest.raises(GraphError, match="whole bytes: keep its numbers as int8"):
        b.input("x", (4, 4), "int4")
    x = b.input("y", (4, 4), "int32")
    with pytest.raises(GraphError, match="whole bytes: keep its numbers as uint8"):
        b.op("cast", x, dtype="uint4")


def test_constants_of_numbers():
    b = Builder("g")
    assert b.constant([1.0, -2.0], dtype="float8_e4m3fn") in b.constants
    assert b.constants[b.constant([1.0, -2.0], dtype="float8_e4m3fn")].tolist() == [0x38, 0xC0]
    assert b.constants[b.constant(np.array([1, 2], np.uint8), dtype="float8_e5m2")].tolist() == [1, 2]
