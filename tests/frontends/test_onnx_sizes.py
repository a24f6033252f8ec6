"""Symbolic sizes in ONNX models: as data, in slices and indices; names and orders in which a model may be given."""

import itertools

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx.parser")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import tilewright as tw  # noqa: E402
from tests.frontends.onnx_graphs import checked, outcome, random_net  # noqa: E402
from tilewright.codegen.runtime.arguments import evaluate  # noqa: E402
from tilewright.frontends.onnx import OnnxError  # noqa: E402
from tilewright.frontends.onnx.call import CONVERTERS  # noqa: E402
from tilewright.te.ops.arguments import slice_range  # noqa: E402
from tilewright.tir.expr import convert  # noqa: E402

node = helper.make_node


def model_of(nodes, inputs, constants=(), outputs=("y",), kinds=TensorProto.FLOAT):
    given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()]
    results = [helper.make_tensor_value_info(o, kinds, None) for o in outputs]
    tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in dict(constants).items()]
    graph = helper.make_graph(nodes, "net", given, results, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def built(model, **bounds):
    return tw.build(tw.from_onnx(model), target="native -num-cores=1", bounds=bounds)


def same_as_onnxruntime(model, *inputs, bounds):
    session = onnxruntime.InferenceSession(model.SerializeToString())
    names = [i.name for i in model.graph.input]
    f = built(model, **bounds)
    for arrays in inputs:
        (want,) = session.run(None, dict(zip(names, arrays, strict=True)))
        got = f(*arrays)
        assert got.shape == want.shape and got.dtype == want.dtype
        np.testing.assert_allclose(got, want, 1e-5, 1e-6)


def rows(*counts, columns=3):
    return [(np.arange(1, n * columns + 1, dtype=np.float32).reshape(n, columns),) for n in counts]


def test_ranges_of_slices_are_those_of_python():
    n = tw.te.var("n")
    ends = [None, -(2**63), -4, -2, -1, 0, 1, 3, 2**31 - 1, 2**63 - 1]
    for begin, end, step in itertools.product(ends, ends, (1, 2, 3, -1, -2)):
        first, count = map(convert, slice_range(begin, end, step, n))
        for extent in range(6):
            want = range(extent)[begin:end:step]
            assert evaluate(count, {n: extent}) == len(want), (begin, end, step, extent)
            assert not want or evaluate(first, {n: extent}) == want[0], (begin, end, step, extent)


def test_ranges_of_slices_whose_ends_are_sizes():
    n, m = tw.te.var("n"), tw.te.var("m")
    for begin, end, step in [
        (m, None, 1),
        (None, m, 1),
        (m - 2, n - 1, 1),
        (None, 0 - m, 2),
        (m - 3, None, -1),
        (None, m - 4, -2),
    ]:
        first, count = map(convert, slice_range(begin, end, step, n))
        for extent, other in itertools.product(range(6), range(6)):
            known = {n: extent, m: other}
            ends = [None if e is None else evaluate(e, known) for e in (begin, end)]
            want = range(extent)[ends[0] : ends[1] : step]
            assert evaluate(count, known) == len(want), (begin, end, step, known)
            assert not want or evaluate(first, known) == want[0], (begin, end, step, known)


@pytest.mark.parametrize(
    "op, other", [("Add", 3), ("Sub", 2), ("Mul", -2), ("Div", 2), ("Mod", 2), ("Max", 2), ("Min", 1)]
)
def test_a_size_is_a_number_that_kernels_compute_with(op, other):
    nodes = [
        node("Shape", ["x"], ["s"]), node("Gather", ["s", "first"], ["d"]), node(op, ["d", "other"], ["e"]),
        node("Sub", ["e", "two"], ["g"]), node("Div", ["g", "two"], ["h"]), node("Cast", ["h"], ["f"], to=TensorProto.FLOAT),
        node("ReduceSum", ["x"], ["t"], keepdims=0), node("Add", ["t", "f"], ["y"]),
    ]  # fmt: skip
    model = model_of(nodes, {"x": ["n", 3]}, {"first": np.array(0), "other": np.array(other), "two": np.array(2)})
    same_as_onnxruntime(model, *rows(0, 1, 2, 5), bounds={"n": 8})


def test_the_whole_shape_and_the_number_of_elements_are_data():
    nodes = [node("Shape", ["x"], ["s"]), node("Size", ["x"], ["c"]), node("Unsqueeze", ["c", "zero"], ["u"]), node("Concat", ["s", "u"], ["y"], axis=0)]  # fmt: skip
    model = model_of(nodes, {"x": ["n", 3]}, {"zero": np.array([0])}, kinds=TensorProto.INT64)
    same_as_onnxruntime(model, *rows(0, 1, 4), bounds={"n": 8})


def test_a_range_up_to_a_size():
    nodes = [
        node("Shape", ["x"], ["s"]), node("Gather", ["s", "a"], ["d"]), node("Range", ["b", "d", "c"], ["r"]),
        node("Cast", ["r"], ["y"], to=TensorProto.FLOAT),
    ]  # fmt: skip
    model = model_of(nodes, {"x": ["n", 3]}, {"a": np.array(0), "b": np.array(1), "c": np.array(2)})
    same_as_onnxruntime(model, *rows(1, 2, 5, 6), bounds={"n": 8})


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_the_last_extreme_of_a_symbolic_axis(op):
    model = model_of([node(op, ["x"], ["y"], axis=0, select_last_index=1)], {"x": ["n", 3]}, kinds=TensorProto.INT64)
    same_as_onnxruntime(model, *rows(1, 4), (np.ones((5, 3), np.float32),), bounds={"n": 8})


@pytest.mark.parametrize("index", [-1, 0, [-1, 0, -2], [[1, -1]]])
def test_indices_from_the_end_of_a_symbolic_axis(index):
    model = model_of([node("Gather", ["x", "i"], ["y"])], {"x": ["n", 3]}, {"i": np.array(index)})
    same_as_onnxruntime(model, *rows(2, 3, 7), bounds={"n": 8})


def test_an_index_outside_of_a_symbolic_axis_is_refused_at_the_call():
    f = built(model_of([node("Gather", ["x", "i"], ["y"])], {"x": ["n", 3]}, {"i": np.array(-3)}), n=8)
    assert f(*rows(3)[0]).tolist() == [1, 2, 3]
    with pytest.raises(Exception, match="strided_slice"):
        f(*rows(2)[0])


@pytest.mark.parametrize(
    "begin, end, step",
    [(1, 2**31 - 1, 1), (-2, 2**63 - 1, 1), (0, -1, 1), (-1, -(2**63), -1), (2**31 - 1, 0, -2), (1, -1, 2)],
)
def test_slices_of_a_symbolic_axis(begin, end, step):
    tensors = {"b": np.array([begin]), "e": np.array([end]), "a": np.array([0]), "s": np.array([step])}
    model = model_of([node("Slice", ["x", "b", "e", "a", "s"], ["y"])], {"x": ["n", 3]}, tensors)
    same_as_onnxruntime(model, *rows(0, 1, 2, 5), bounds={"n": 8})


def test_a_batch_normalization_of_symbolic_channels():
    numbers = {k: np.arange(1, 4).astype(np.float32) for k in "abcd"}
    model = model_of([node("BatchNormalization", ["x", *"abcd"], ["y"])], {"x": ["n", "c"]}, numbers)
    same_as_onnxruntime(model, *rows(1, 4), bounds={"n": 8, "c": 8})


def test_nodes_stand_in_any_order():
    nodes = [node("Relu", ["h"], ["y"]), node("Neg", ["g"], ["h"]), node("Neg", ["x"], ["g"])]
    model = model_of(nodes, {"x": [3]})
    x = np.array([-1, 0, 2], np.float32)
    assert built(model)(x).tolist() == [0, 0, 2]
    assert [n.op_type for n in model.graph.node] == ["Relu", "Neg", "Neg"]


def test_nodes_in_a_cycle_are_named():
    nodes = [node("Add", ["x", "h"], ["y"]), node("Neg", ["y"], ["g"]), node("Abs", ["g"], ["h"])]
    with pytest.raises(OnnxError, match="Abs 'h', Neg 'g'|Neg 'g', Add 'y'|Add 'y', Abs 'h'"):
        tw.from_onnx(model_of(nodes, {"x": [3]}))


@pytest.mark.parametrize("option", ["shapes", "constants"])
def test_names_that_are_no_input_are_refused(option):
    model = model_of([node("Relu", ["image"], ["y"])], {"image": [2]})
    with pytest.raises(OnnxError, match=f"{option}= names 'imge', which is no input; did you mean 'image'"):
        tw.from_onnx(model, **{option: {"imge": [2]}})


def test_constants_have_the_data_type_of_the_model():
    model = model_of([node("Add", ["x", "z"], ["y"])], {"x": [2], "z": [2]})
    f = tw.build(tw.from_onnx(model, constants={"z": [1.5, 2]}), target="native -num-cores=1")
    assert f(np.ones(2, np.float32)).tolist() == [2.5, 3]
    with pytest.raises(OnnxError, match="is float32 in the model"):
        tw.from_onnx(model, constants={"z": [1j, 2]})
    tw.from_onnx(model, constants={"z": [1.5, 2]}, shapes={"z": (2,)})
    with pytest.raises(OnnxError, match=r"'z' the shape \(3,\), and its value is a constant of shape \(2,\)"):
        tw.from_onnx(model, constants={"z": [1.5, 2]}, shapes={"z": (3,)})


_OF_SYMBOLIC_AXES = [
    "y = Hardmax <axis = 0> (x)",
    "y = EyeLike <k = 1> (x)",
    "a = ArgMax <axis = 1> (x) d = Shape <start = 1> (x) v = Constant <value = float[2] {0, 2}> () y = OneHot <axis = 0> (a, d, v)",
    "q = Shape <start = 0, end = 1> (x) b = Shape <start = 1> (x) l = Expand (q, b) y = ReverseSequence (x, l)",
    "y, z, w = Split <num_outputs = 3> (x)",
    "q = Constant <value = int64[2] {2, 1}> () y, z = Split (x, q)",
    "l = Shape <start = 1> (x) t = Constant <value = int64[1] {2}> () h = Div (l, t) r = Sub (l, h)"
    " q = Concat <axis = 0> (h, r) y, z = Split <axis = 1> (x, q)",
    "s = Shape (x) y = Tile (x, s)",
    'p = Constant <value = int64[4] {1, 0, 1, 1}> () y = Pad <mode = "wrap"> (x, p)',
    'p = Constant <value = int64[4] {1, 0, 1, 1}> () y = Pad <mode = "reflect"> (x, p)',
    "p = Constant <value = int64[4] {1, 0, -1, 2}> () v = ReduceSum <keepdims = 0> (x) y = Pad (x, p, v)",
    "k = Constant <value = int64[1] {2}> () y, z = TopK <axis = 0> (x, k)",
    "y, z, w = DynamicQuantizeLinear (x)",
    "a = Constant <value = int64[1] {2}> () t = Unsqueeze (x, a) u = Neg (t) y = TensorScatter <axis = 1> (t, u)",
    "s = Shape (x) c = ConstantOfShape (s) e = Exp (c) y = ReduceSum (e)",
    "k = Constant <value = int64 {3}> () c = Constant <value = bool {1}> ()"
    " y, z = Loop (k, c, x) <body = step (int64 i, bool g, float[] u) => (bool h, float[] v, float[] w)"
    " { h = Identity (g) v = Tanh (u) w = Neg (v) }>",
]


def _of_text(body):
    head = '<ir_version: 10, opset_import: ["" : 24]> net (float[n, m] x) => (float y)'
    model = onnx.parser.parse_model(f"{head} {{ {body} }}")
    model.graph.output[0].type.Clear()
    return model


@pytest.mark.parametrize("body", _OF_SYMBOLIC_AXES)
def test_operators_of_symbolic_axes(body):
    assert checked(_of_text(body), 3) == ("same", "")


_COORDINATES = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]


@pytest.mark.parametrize(
    "coordinates, mode, scale",
    [
        (coordinates, mode, (2.0, 1.5, 0.5, 0.0)[(a + b) % 4])
        for a, coordinates in enumerate(_COORDINATES)
        for b, mode in enumerate(["nearest", "linear", "cubic"])
    ],
)
def test_images_of_symbolic_sizes_are_resized(coordinates, mode, scale):
    attributes = f'mode = "{mode}", coordinate_transformation_mode = "{coordinates}"'
    by_scales = f"k = Constant <value = float[2] {{1, {scale}}}> () y = Resize <{attributes}> (x, , k)"
    by_sizes = f"q = Constant <value = int64[1] {{4}}> () s = Shape <end = 1> (x) t = Concat <axis = 0> (q, s) y = Resize <{attributes}> (x, , , t)"  # fmt: skip
    kind, message = checked(_of_text(by_scales if scale else by_sizes), 3)
    assert kind in ("same", "refused at the call"), message  # an image without elements has no values to take
    assert kind == "same" or "'n': 0" in message or "'m': 0" in message


def test_an_element_of_a_slice_is_the_slice_of_the_whole():
    body = """b = Constant <value = int64[1] {2}> () e = Constant <value = int64[1] {5}> () k = Constant <value = int64 {2}> ()
    s = Slice (x, b, e) y = Gather <axis = 0> (s, k)"""
    model = _of_text(body)
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, [6, 2]))
    assert checked(model, 3) == ("same", "")


def test_a_scale_that_is_no_ratio_is_refused_for_a_symbolic_size():
    text = "k = Constant <value = float[2] {1, 0.31415927}> () y = Resize (x, , k)"
    with pytest.raises(OnnxError, match="Resize.*a scale of 0.314.* for m elements.*sizes= can say"):
        tw.from_onnx(_of_text(text))


@pytest.mark.parametrize("seed", range(10, 18))
def test_random_graphs_give_what_onnx_runtime_gives(seed):
    found = outcome(seed, shrink=False)
    assert found.kind != "finding", f"{found.message}\n{found.model}"


def test_random_graphs_have_nearly_all_operators():
    used = {n.op_type for seed in range(600) for n in random_net(seed).nodes}
    left_out = {
        "BitCast", "Det", "MelWeightMatrix", "Optional", "OptionalGetElement", "OptionalHasElement", "Scatter", "SequenceEmpty",
        "SequenceErase", "SimplifiedLayerNormalization", "TfIdfVectorizer", "Upsample",
    }  # fmt: skip
    assert {name for domain, name in CONVERTERS if not domain} - used <= left_out


@pytest.mark.parametrize("name", ["ReverseSequence", "ScatterElements"])
def test_random_graphs_show_a_wrong_converter(name, monkeypatch):
    right = CONVERTERS["", name]
    monkeypatch.setitem(CONVERTERS, ("", name), lambda c: c.op("add", right(c), c.like(1, c.input(0))))
    with_it = [seed for seed in range(20) if any(n.op_type == name for n in random_net(seed).nodes)]
    assert any(outcome(seed, shrink=False).kind == "finding" for seed in with_it)
