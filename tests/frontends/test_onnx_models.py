"""ONNX's own tests of whole models, sequences of tensors, and derivatives, against ONNX's reference implementation."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs the extra onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from tilewright.driver.models.model_building import build_graph  # noqa: E402
from tilewright.frontends.onnx import OnnxError, from_onnx  # noqa: E402
from tilewright.graph.reference import evaluate  # noqa: E402

from .onnx_backend import outcome  # noqa: E402
from .onnx_model_tests import model_cases  # noqa: E402

SAMPLE = [
    *model_cases("simple"),
    *list(model_cases("pytorch-operator"))[::5],
    *list(model_cases("pytorch-converted"))[::8],
]


@pytest.mark.parametrize("case", SAMPLE, ids=[c.name for c in SAMPLE])
def test_models_of_onnx(case):
    found = outcome(case)
    if found.status == "skipped":
        pytest.skip("types that are not supported")
    assert found.status == "ok", found.reason


def model(nodes, inputs, outputs, dtype=TensorProto.FLOAT, opset=18, **constants):
    """A model; inputs are name: shape."""
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(n, dtype, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, dtype, None) for n in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()],
    )
    domains = [("", opset), ("ai.onnx.preview.training", 1)]
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*d) for d in domains])


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


SEQUENCES = [  # nodes from x of shape (7, 4) to y; constants
    ([node("SplitToSequence", "x", "s", axis=1, keepdims=0), node("SequenceAt", "s i", "y")], {"i": -4}),
    ([node("SplitToSequence", "x n", "s"), node("SequenceAt", "s i", "y")], {"n": 3, "i": 2}),
    ([node("SplitToSequence", "x n", "s"), node("ConcatFromSequence", "s", "y", axis=-2)], {"n": [2, 0, 5]}),
    ([node("SequenceConstruct", "x x", "s"), node("ConcatFromSequence", "s", "y", axis=-1, new_axis=1)], {}),
    ([node("SequenceEmpty", "", "s"), node("SequenceInsert", "s x", "t"), node("SequenceAt", "t i", "y")], {"i": 0}),
    (
        [
            node("SplitToSequence", "x", "s"), node("SequenceErase", "s i", "t"), node("SequenceInsert", "t row i", "u"),
            node("ConcatFromSequence", "u", "y", axis=0),
        ],
        {"i": -2, "row": np.full((1, 4), 3, np.float32)},
    ),
    ([node("SequenceConstruct", "x", "s"), node("Identity", "s", "t"), node("SequenceAt", "t i", "y")], {"i": 0}),
    ([node("SplitToSequence", "x", "s"), node("SequenceErase", "s", "t"), node("ConcatFromSequence", "t", "y", axis=0)], {}),
]  # fmt: skip


@pytest.mark.parametrize(("nodes", "constants"), SEQUENCES, ids=[str(n) for n in range(len(SEQUENCES))])
def test_sequences_are_lists_while_the_model_is_read(nodes, constants):
    data = {n: np.asarray(v, None if isinstance(v, np.ndarray) else np.int64) for n, v in constants.items()}
    proto = model(nodes, {"x": (7, 4)}, ["y"], **data)
    x = np.arange(28, dtype=np.float32).reshape(7, 4)
    (expected,) = ReferenceEvaluator(proto).run(None, {"x": x})
    (found,) = evaluate(from_onnx(proto), x)
    np.testing.assert_array_equal(found, expected)


def test_a_loop_collects_a_sequence():
    """The body appends ``x * (number + 1)`` to a sequence; three rounds."""
    float_tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, (2,))
    body = helper.make_graph(
        [
            node("Add", "number one", "next"), node("CastLike", "next x", "factor"), node("Mul", "x factor", "p"),
            node("SequenceInsert", "s p", "t"), node("Identity", "go", "goes"),
        ],
        "body",
        [
            helper.make_tensor_value_info("number", TensorProto.INT64, ()),
            helper.make_tensor_value_info("go", TensorProto.BOOL, ()),
            helper.make_value_info("s", helper.make_sequence_type_proto(float_tensor)),
        ],
        [
            helper.make_tensor_value_info("goes", TensorProto.BOOL, ()),
            helper.make_value_info("t", helper.make_sequence_type_proto(float_tensor)),
        ],
    )  # fmt: skip
    nodes = [
        node("SequenceEmpty", "", "s0"), helper.make_node("Loop", ["trips", "", "s0"], ["s1"], body=body),
        node("ConcatFromSequence", "s1", "y", axis=0, new_axis=1),
    ]  # fmt: skip
    proto = model(nodes, {"x": (2,)}, ["y"], trips=np.int64(3), one=np.int64(1))
    (found,) = evaluate(from_onnx(proto), np.array([1, -2], np.float32))
    np.testing.assert_array_equal(found, [[1, -2], [2, -4], [3, -6]])


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("SequenceConstruct", "x", "y")], "the output 'y' is a sequence"),
        ([node("SequenceConstruct", "x", "s"), node("SequenceAt", "s five", "y")], "position 5 is outside of a sequence of 1"),
        ([node("SequenceEmpty", "", "s"), node("SequenceErase", "s", "y")], "nothing to erase"),
        ([node("SequenceConstruct", "x five", "y")], "one data type"),
        ([node("SequenceConstruct", "x", "s"), node("Relu", "s", "y")], "input 0 is a sequence"),
        ([node("SequenceConstruct", "x", "s"), node("Shape", "s", "y")], "one of its inputs is a sequence"),
        ([node("SplitToSequence", "x five", "s"), node("SequenceAt", "s x", "y")], "has to be a constant"),
        ([node("SplitToSequence", "x parts", "y")], "do not make 2"),
        ([node("SequenceAt", "x five", "y")], "input 0 is not a sequence"),
    ],
)  # fmt: skip
def test_sequences_that_cannot_be(nodes, message):
    with pytest.raises(OnnxError, match=message):
        from_onnx(model(nodes, {"x": (2,)}, ["y"], five=np.int64(5), parts=np.array([4, -2])))


DERIVATIVES = [  # nodes from x of (3, 4) and w of (4, 2) to y
    [node("MatMul", "x w", "h"), node("Tanh", "h", "t"), node("ReduceSum", "t", "y", keepdims=0)],
    [node("MatMul", "x w", "h"), node("Sigmoid", "h", "a"), node("Softplus", "a", "b"), node("Erf", "b", "y")],
    [node("ReduceMean", "x", "m"), node("Sub", "x m", "c"), node("Abs", "c", "d"), node("MatMul", "d w", "y")],
    [
        node("Exp", "x", "e"), node("ReduceSum", "e axes", "s"), node("Div", "e s", "p"), node("Log", "p", "l"),
        node("MatMul", "l w", "y"),
    ],
    [node("Transpose", "w", "v"), node("MatMul", "v w", "h"), node("Sqrt", "q", "r"), node("Mul", "h r", "y")],
    [node("Max", "x half", "a"), node("Min", "a one", "b"), node("Cos", "b", "c"), node("Neg", "c", "d"), node("MatMul", "d w", "y")],
    [node("Reshape", "x flat", "f"), node("Sin", "f", "g"), node("Mul", "g f", "y")],
    [node("Mul", "x x", "y")],
]  # fmt: skip


@pytest.mark.parametrize("nodes", DERIVATIVES, ids=[n[0].op_type + str(len(n)) for n in DERIVATIVES])
def test_gradients_are_slopes(nodes):
    constants = {
        "axes": np.array([1]), "q": np.array(2.0), "half": np.array(0.5), "one": np.array(1.0), "flat": np.array([2, 6]),
    }  # fmt: skip
    slope = helper.make_node(
        "Gradient", ["x", "w"], ["dx", "dw"], "", "", "ai.onnx.preview.training", xs=["x", "w"], y="y"
    )
    inputs = {"x": (3, 4), "w": (4, 2)}
    derived = from_onnx(model([*nodes, slope], inputs, ["dx", "dw"], TensorProto.DOUBLE, **constants))
    plain = build_graph(from_onnx(model(nodes, inputs, ["y"], TensorProto.DOUBLE, **constants)))
    rng = np.random.default_rng(3)
    given = {n: rng.uniform(0.1, 1.3, s) for n, s in inputs.items()}
    found = build_graph(derived)(*given.values())
    step = 1e-6
    for name, slopes in zip(inputs, found, strict=True):
        for at in np.ndindex(*inputs[name]):
            moved = {n: a.copy() for n, a in given.items()}
            moved[name][at] += step
            ahead = np.sum(plain(*moved.values()))
            moved[name][at] -= 2 * step
            expected = (ahead - np.sum(plain(*moved.values()))) / (2 * step)
            np.testing.assert_allclose(slopes[at], expected, rtol=1e-5, atol=1e-6)


def test_gradients_that_cannot_be():
    def tried(*nodes, inputs="x", y="y", **constants):
        slope = helper.make_node("Gradient", inputs.split(), ["dx"], "", "", "ai.onnx.preview.training", xs=["x"], y=y)
        from_onnx(model([*nodes, slope], {"x": (3,)}, ["dx"], **constants))

    with pytest.raises(OnnxError, match="the operator cumsum has no rule"):
        tried(node("CumSum", "x axis", "y"), axis=np.int64(0))
    with pytest.raises(OnnxError, match="y, 'z', is not a tensor"):
        tried(node("Relu", "x", "y"), y="z")
    with pytest.raises(OnnxError, match="at other values"):
        tried(node("Relu", "x", "y"), inputs="y")


def test_large_fills_are_computed_when_the_model_runs():
    nodes = [node("ConstantOfShape", "shape", "c", value=numpy_helper.from_array(np.array([2], np.float32))), node("ReduceMax", "c", "s"), node("Add", "s x", "y")]  # fmt: skip
    (found,) = evaluate(from_onnx(model(nodes, {"x": (1,)}, ["y"], shape=np.array([3, 7]))), np.ones(1, np.float32))
    assert found.ravel() == [3]
    graph = from_onnx(model(nodes, {"x": (1,)}, ["y"], shape=np.array([3000, 3000])))
    assert build_graph(graph)(np.ones(1, np.float32)).ravel() == [3]
