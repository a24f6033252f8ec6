"""Recurrent layers, Scan and Loop of ONNX as loops, against ONNX Runtime."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs the extra onnx")
runtime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from tilewright.driver.models.model_building import build_graph  # noqa: E402
from tilewright.frontends.onnx import from_onnx  # noqa: E402
from tilewright.graph import fuse, prepare  # noqa: E402

FLOAT = TensorProto.FLOAT


def info(name, shape, dtype=FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def agree(nodes, inputs, outputs, constants):
    """Returns the graph of a model after the passes; the compiled graph computes what ONNX Runtime does."""
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    graph = helper.make_graph(
        nodes, "net", [info(*i) for i in inputs.items()], [info(o, None) for o in outputs], weights
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    arrays = {n: rng.standard_normal(s).astype(np.float32) for n, s in inputs.items()}
    want = runtime.InferenceSession(model.SerializeToString()).run(None, arrays)
    read = from_onnx(model)
    made = build_graph(read)(*arrays.values())
    for got, expected in zip(made if isinstance(made, tuple) else (made,), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    return prepare(read)


def layer(op, steps, batch, width, state, **attrs):
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    lengths = attrs.pop("lengths", None)
    d = 2 if attrs.get("direction") == "bidirectional" else 1
    rng = np.random.default_rng(1)
    constants = {
        "w": rng.standard_normal((d, gates * state, width)).astype(np.float32) / 3,
        "r": rng.standard_normal((d, gates * state, state)).astype(np.float32) / 3,
        "b": rng.standard_normal((d, 2 * gates * state)).astype(np.float32) / 3,
    }
    if lengths is not None:
        constants["n"] = np.array(lengths, np.int32)
    outputs = ["y", "h", "c"][: 3 if op == "LSTM" else 2]
    node = helper.make_node(op, ["x", "w", "r", "b", "n" if lengths else ""], outputs, hidden_size=state, **attrs)
    return agree([node], {"x": [steps, batch, width]}, outputs, constants)


@pytest.mark.parametrize(
    ("op", "sizes", "attrs"),
    [
        ("LSTM", (13, 2, 5, 7), {}),
        ("LSTM", (7, 3, 4, 16), {"direction": "bidirectional", "lengths": (7, 1, 5)}),
        ("GRU", (13, 1, 5, 7), {"direction": "reverse"}),
        ("GRU", (7, 2, 5, 7), {"linear_before_reset": 1, "lengths": (2, 7)}),
        ("RNN", (16, 1, 1, 1), {"activations": ["Relu"]}),
    ],
)
def test_recurrent_layers(op, sizes, attrs):
    graph = layer(op, *sizes, **attrs)
    loops = [n for n in graph.nodes if n.op == "scan"]
    assert [n.attrs["steps"] for n in loops] == [sizes[0]] * len(loops)
    products = [[n.op for n in loop.attrs["body"].nodes].count("dense") for loop in loops]
    assert products == [2 if op == "GRU" else 1] * len(loops)  # the input's product is outside


def test_kernels_do_not_grow_with_the_steps():
    counts = [len(list(fuse(layer("LSTM", steps, 1, 5, 7)).leaves())) for steps in (2, 64)]
    assert counts[0] == counts[1] < 12


def test_scan_along_axes_and_backwards():
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "a"], ["t"]), helper.make_node("Mul", ["t", "b"], ["p"]),
         helper.make_node("MatMul", ["t", "k"], ["q"])],
        "body", [info("s", [3]), info("a", [3]), info("b", [3])], [info("t", [3]), info("p", [3]), info("q", [2])],
    )  # fmt: skip
    node = helper.make_node(
        "Scan", ["s0", "x", "z"], ["s1", "p1", "q1"], body=body, num_scan_inputs=2, scan_input_axes=[1, 0],
        scan_input_directions=[1, 0], scan_output_axes=[1, 0], scan_output_directions=[0, 1],
    )  # fmt: skip
    k = np.arange(6, dtype=np.float32).reshape(3, 2)
    graph = agree([node], {"s0": [3], "x": [3, 13], "z": [13, 3]}, ["s1", "p1", "q1"], {"k": k})
    assert [n.op for n in graph.nodes].count("scan") == 1


@pytest.mark.parametrize(("ends", "loops"), [(False, 1), (True, 0)])
def test_loops_with_a_trip_count(ends, loops):
    """A loop that ends by its own condition before its trip count is unrolled."""
    condition = (
        [helper.make_node("Less", ["i", "five"], ["go"])] if ends else [helper.make_node("Identity", ["on"], ["go"])]
    )
    body = helper.make_graph(
        [*condition, helper.make_node("Cast", ["i"], ["f"], to=FLOAT), helper.make_node("Add", ["s", "f"], ["u"]),
         helper.make_node("Mul", ["u", "w"], ["t"]), helper.make_node("Neg", ["t"], ["row"])],
        "body", [info("i", [], TensorProto.INT64), info("on", [], TensorProto.BOOL), info("s", [4])],
        [info("go", [], TensorProto.BOOL), info("t", [4]), info("row", [4])],
    )  # fmt: skip
    node = helper.make_node("Loop", ["n", "yes", "s0"], ["s1", "rows"], body=body)
    constants = {
        "n": np.array(13),
        "yes": np.array(True),
        "five": np.array(5),
        "w": np.array([0.5, 0.25, 1, -1], np.float32),
    }
    graph = agree([node], {"s0": [4]}, ["s1", "rows"], constants)
    assert [n.op for n in graph.nodes].count("scan") == loops
