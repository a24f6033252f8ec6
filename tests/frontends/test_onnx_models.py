"""ONNX's own tests of whole models and sequences of tensors, against ONNX's reference implementation; what is refused."""

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
    *[c for c in model_cases("simple") if "gradient" not in c.name],
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
        ([node("SequenceConstruct", "x", "s"), node("SequenceAt", "s five", "y")], "position 5 is outside of a sequence of 1"),
        ([node("SequenceEmpty", "", "s"), node("SequenceErase", "s", "y")], "nothing to erase"),
        ([node("SequenceConstruct", "x five", "y")], "one data type"),
        ([node("SequenceConstruct", "x", "s"), node("Relu", "s", "y")], "input 0 is a sequence"),
        ([node("SequenceConstruct", "x", "s"), node("Shape", "s", "y")], "one of its inputs is a sequence"),
        ([node("SplitToSequence", "x five", "s"), node("SequenceAt", "s x", "y")], "the position is float32"),
        ([node("SplitToSequence", "x parts", "y")], "do not make 2"),
        ([node("SequenceAt", "x five", "y")], "input 0 is not a sequence"),
    ],
)  # fmt: skip
def test_sequences_that_cannot_be(nodes, message):
    with pytest.raises(OnnxError, match=message):
        from_onnx(model(nodes, {"x": (2,)}, ["y"], five=np.int64(5), parts=np.array([4, -2])))


STRINGS = [  # nodes, and the message that names the operator, the node and what to do
    ([node("StringConcat", "words words", "y")], r"StringConcat: 1 \(first: StringConcat 'y'\).*tokenize outside"),
    ([node("StringSplit", "words", "y")], "StringSplit: 1 .*tokenize outside"),
    ([node("StringNormalizer", "words", "y")], "StringNormalizer: 1 .*tokenize outside"),
    ([node("RegexFullMatch", "words", "y", pattern="a")], "RegexFullMatch: 1 .*tokenize outside"),
    ([helper.make_node("CategoryMapper", ["words"], ["y"], domain="ai.onnx.ml")], "CategoryMapper: 1 .*tokenize outside"),
    ([node("Identity", "words", "y")], "Identity 'y' reads 'words', which is of strings; .*tokenize outside"),
    ([node("Constant", "", "c", value_strings=["a"]), node("Identity", "c", "y")], "Identity 'y' reads 'c', which is of strings"),
    ([helper.make_node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", keys_strings=["a"], values_floats=[1.0])],
     "LabelEncoder 'y': its labels are strings; .*tokenize outside"),
    ([helper.make_node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", keys_floats=[1.0], values_strings=["a"])],
     "LabelEncoder 'y': its labels are strings; .*tokenize outside"),
    ([helper.make_node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", keys_floats=[1.0], values_floats=[1.0, 2.0])],
     "LabelEncoder 'y': 1 keys for 2 values"),
    ([node("Cast", "x", "y", to=TensorProto.STRING)], "the data type string is not supported; .*tokenize outside"),
    ([helper.make_node("Gradient", ["x"], ["y"], "slope", "", "ai.onnx.preview.training", xs=["x"], y="x")],
     "Gradient: 1 .*Gradient 'slope'.*register_onnx_operator"),
    ([node("Relu", "x", "z")], "the output 'y' is not computed"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "message"), STRINGS, ids=[n[-1].op_type + str(i) for i, (n, _) in enumerate(STRINGS)]
)
def test_strings_and_gradients_are_refused_by_name(nodes, message):
    with pytest.raises(OnnxError, match=message):
        from_onnx(model(nodes, {"x": (2,)}, ["y"], words=np.array(["a", "b"], object)))


def test_an_input_of_strings_is_refused_by_name():
    proto = model([node("Relu", "x", "y")], {"x": (2,)}, ["y"])
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
    with pytest.raises(OnnxError, match="the input 'x': the data type string is not supported; .*tokenize outside"):
        from_onnx(proto)
    with pytest.raises(OnnxError, match="the output 'y' is of strings; .*tokenize outside"):
        from_onnx(model([], {"x": (2,)}, ["y"], y=np.array(["a"], object)))


def test_constants_of_strings_that_nothing_reads():
    nodes = [node("Constant", "", "c", value_string="made by hand"), node("Relu", "x", "y")]
    proto = model(nodes, {"x": (2,)}, ["y"], words=np.array(["a", "b"], object))
    (found,) = evaluate(from_onnx(proto), np.array([-1, 2], np.float32))
    assert found.tolist() == [0, 2]


@pytest.mark.parametrize("dtype", ["int64", "float32"])
@pytest.mark.parametrize("shape", [(), (1,), (7, 2)])
def test_labels_that_are_numbers(dtype, shape):
    kind = {"int64": "int64s", "float32": "floats"}[dtype]
    keys = {"int64": [3, -1, 7, 3], "float32": [0.5, float("nan"), 3.0, -1.0]}[dtype]
    attributes = {f"keys_{kind}": keys, "values_floats": [0.5, -2.0, 4.0, 8.0], "default_float": 9.0}
    proto = model(
        [helper.make_node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", **attributes)], {"x": shape}, ["y"],
        helper.np_dtype_to_tensor_dtype(np.dtype(dtype)),
    )  # fmt: skip
    x = np.resize(np.array([*keys, 2, 0], dtype), shape)
    table = {str(k): v for k, v in zip(keys, attributes["values_floats"], strict=True)}
    (found,) = evaluate(from_onnx(proto), x)
    assert found.shape == shape
    assert found.ravel().tolist() == [table.get(str(k), 9.0) for k in x.ravel().tolist()]


def test_large_fills_are_computed_when_the_model_runs():
    nodes = [node("ConstantOfShape", "shape", "c", value=numpy_helper.from_array(np.array([2], np.float32))), node("ReduceMax", "c", "s"), node("Add", "s x", "y")]  # fmt: skip
    (found,) = evaluate(from_onnx(model(nodes, {"x": (1,)}, ["y"], shape=np.array([3, 7]))), np.ones(1, np.float32))
    assert found.ravel() == [3]
    graph = from_onnx(model(nodes, {"x": (1,)}, ["y"], shape=np.array([3000, 3000])))
    assert build_graph(graph)(np.ones(1, np.float32)).ravel() == [3]
