"""ONNX models as graphs, against ONNX's own tests and its reference implementation."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs the extra onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import tilewright as tw  # noqa: E402
from tilewright.driver.building import BuildError  # noqa: E402
from tilewright.driver.models.model_building import build_graph, load_model  # noqa: E402
from tilewright.frontends.onnx import (  # noqa: E402
    OnnxError,
    UnsupportedOnnxOperators,
    from_onnx,
    known_values,  # noqa: E402
    register_onnx_operator,
)
from tilewright.frontends.onnx.call import CONVERTERS  # noqa: E402

from .onnx_backend import cases, outcome  # noqa: E402


def model(nodes, inputs, outputs, constants=None, opset=17, **more):
    """A model; inputs are name: shape, constants name: array."""
    return helper.make_model(
        helper.make_graph(
            nodes,
            "net",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
            [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()],
        ),
        opset_imports=[helper.make_opsetid("", opset), *more.get("opsets", [])],
    )


SAMPLE = [*cases()[::40], *[c for c in cases() if "has_element_empty_no_input" in c.name]]


@pytest.mark.parametrize("case", SAMPLE, ids=[c.name for c in SAMPLE])
def test_onnx_node_tests(case):
    found = outcome(case)
    if found.status == "skipped":
        pytest.skip("types that are not supported")
    assert found.status == "ok", found.reason


def convolutional(rng):
    def data(*shape):
        return rng.standard_normal(shape).astype(np.float32) * np.float32(0.3)

    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c1", "s", "b", "m", "v"], ["n1"]),
        helper.make_node("Relu", ["n1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], group=8, pads=[1, 1, 1, 1]),
        helper.make_node("Clip", ["c2", "zero", "six"], ["k2"]),
        helper.make_node("Add", ["k2", "r1"], ["a"]),
        helper.make_node("MaxPool", ["a"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Shape", ["p"], ["shape"]),
        helper.make_node("Gather", ["shape", "first"], ["batch"], axis=0),
        helper.make_node("Concat", ["batch", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["p", "target"], ["f"]),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["y"], transB=1),
    ]
    constants = {
        "w1": data(8, 3, 3, 3), "b1": data(8), "s": data(8) + 1, "b": data(8), "m": data(8), "v": abs(data(8)) + 1,
        "w2": data(8, 1, 3, 3), "zero": np.float32(0), "six": np.float32(6), "first": np.array([0]), "rest": np.array([-1]),
        "w3": data(5, 8 * 16), "b3": data(5),
    }  # fmt: skip
    return model(nodes, {"x": [2, 3, 16, 16]}, ["y"], constants)


def test_a_network_against_the_reference():
    rng = np.random.default_rng(0)
    proto = convolutional(rng)
    x = rng.standard_normal((2, 3, 16, 16)).astype(np.float32)
    (want,) = onnx.reference.ReferenceEvaluator(proto).run(None, {"x": x})
    np.testing.assert_allclose(build_graph(from_onnx(proto))(x), want, rtol=1e-4, atol=1e-5)
    again = from_onnx(proto.SerializeToString())
    assert str(again) == str(from_onnx(proto))


def test_shapes_that_the_caller_gives():
    proto = model([helper.make_node("Relu", ["x"], ["y"])], {"x": ["batch", 3]}, ["y"])
    assert "x: float32[batch, 3]" in str(from_onnx(proto))
    assert from_onnx(proto, shapes={"x": (4, 3)}).inputs[0].shape == (4, 3)


def test_a_file(tmp_path):
    proto = model([helper.make_node("Exp", ["x"], ["y"])], {"x": [3]}, ["y"])
    path = tmp_path / "m.onnx"
    onnx.save(proto, str(path))
    np.testing.assert_allclose(build_graph(from_onnx(path))(np.zeros(3, np.float32)), 1)
    with pytest.raises(OnnxError, match="there is no file"):
        from_onnx(tmp_path / "other.onnx")
    (tmp_path / "bad.onnx").write_bytes(b"not a model \xff\xfe" * 9)
    with pytest.raises(OnnxError, match="not a readable ONNX model"):
        from_onnx(tmp_path / "bad.onnx")


def test_all_missing_operators_are_listed_at_once():
    nodes = [
        helper.make_node("Foo", ["x"], ["a"], domain="mine", name="first"),
        helper.make_node("Foo", ["a"], ["b"], domain="mine"),
        helper.make_node("Bar", ["b"], ["y"], domain="mine"),
    ]
    proto = model(nodes, {"x": [3]}, ["y"], opsets=[helper.make_opsetid("mine", 1)])
    with pytest.raises(UnsupportedOnnxOperators, match=r"mine.Foo: 2 \(first: Foo 'first'\); mine.Bar: 1") as error:
        from_onnx(proto)
    assert list(error.value.operators) == ["mine.Foo", "mine.Bar"]
    register_onnx_operator("Foo", lambda c: c.op("add", c.input(0), c.input(0)), domain="mine")
    register_onnx_operator("Bar", lambda c: c.op("relu", c.input(0)), domain="mine")
    try:
        np.testing.assert_array_equal(build_graph(from_onnx(proto))(np.ones(3, np.float32)), [4, 4, 4])
    finally:
        del CONVERTERS["mine", "Foo"], CONVERTERS["mine", "Bar"]


@pytest.mark.parametrize(
    ("nodes", "problem"),
    [
        ([helper.make_node("Relu", ["nothing"], ["y"])], "reads 'nothing', which nothing provides"),
        ([helper.make_node("Relu", ["x"], ["z"])], "the output 'y' is not computed"),
        ([helper.make_node("Reshape", ["x", "bad"], ["y"])], r"Reshape 'y': reshape: \(3,\) has 3 elements"),
        ([helper.make_node("MatMul", ["x", "x2"], ["y"])], "MatMul 'y': matmul: the length of the sum differs"),
        ([helper.make_node("Cast", ["x"], ["y"], to=14)], "the data type complex64 is not supported"),
    ],
)
def test_errors_name_the_node(nodes, problem):
    proto = model(nodes, {"x": [3], "x2": [4, 5]}, ["y"], {"bad": np.array([2, 2])})
    with pytest.raises(OnnxError, match=problem):
        from_onnx(proto)


def test_inputs_that_have_to_be_constants():
    proto = model([helper.make_node("Reshape", ["x", "s"], ["y"])], {"x": [4]}, ["y"])
    proto.graph.input.append(helper.make_tensor_value_info("s", TensorProto.INT64, [2]))
    read = from_onnx(proto)
    assert read.question.inputs == ("s",) and "input 1, s, has to be a constant" in read.refusal()
    with pytest.raises(BuildError, match="constants={'s': …} gives them ahead"):
        load_model(read)
    assert from_onnx(proto, constants={"s": np.array([2, 2])}).outputs[0].shape == (2, 2)


@pytest.mark.parametrize("more", [[], ["ratio"], ["ratio", "no"], ["", "no"]], ids=str)
def test_dropout_outside_of_training_changes_nothing(more):
    constants = {"ratio": np.array(0.5, np.float32), "no": np.array(False)}
    proto = model([helper.make_node("Dropout", ["x", *more], ["y"])], {"x": [3]}, ["y"], constants)
    np.testing.assert_array_equal(build_graph(from_onnx(proto))(np.arange(3, dtype=np.float32)), [0, 1, 2])


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("auto", ["NOTSET", "VALID"])
def test_windows_of_any_rank_without_padding(rank, auto):
    x, w = np.ones((1, 2, *[5] * rank), np.float32), np.ones((3, 2, *[3] * rank), np.float32)
    proto = model([helper.make_node("Conv", ["x", "w"], ["y"], auto_pad=auto)], {"x": x.shape}, ["y"], {"w": w})
    np.testing.assert_array_equal(build_graph(from_onnx(proto))(x), np.full((1, 3, *[3] * rank), 2.0 * 3**rank))


@pytest.mark.parametrize("block", [1, 2, 3])
def test_blocks_of_space_become_channels_and_come_back(block):
    proto = model([helper.make_node("SpaceToDepth", ["x"], ["y"], blocksize=block),
                   helper.make_node("DepthToSpace", ["y"], ["z"], blocksize=block)],
                  {"x": [2, 3, 6, 12]}, ["y", "z"])  # fmt: skip
    x = np.arange(2 * 3 * 6 * 12, dtype=np.float32).reshape(2, 3, 6, 12)
    y, z = build_graph(from_onnx(proto))(x)
    assert y.shape == (2, 3 * block**2, 6 // block, 12 // block)
    for row in range(block):
        for column in range(block):
            first = 3 * (row * block + column)
            np.testing.assert_array_equal(y[:, first : first + 3], x[:, :, row::block, column::block])
    np.testing.assert_array_equal(z, x)


@pytest.mark.parametrize("last", [[], ["axes"], ["axes", "step"]], ids=str)
def test_a_part_of_a_shape_with_an_unknown_size(last):
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Slice", ["s", "begin", "end", *last], ["part"]),
        helper.make_node("Concat", ["part", "minus"], ["to"], axis=0),
        helper.make_node("Reshape", ["x", "to"], ["y"]),
    ]
    constants = {n: np.array([v]) for n, v in {"begin": 0, "end": 2, "axes": 0, "step": 1, "minus": -1}.items()}
    graph = from_onnx(model(nodes, {"x": ["n", 3, 2, 5]}, ["y"], constants))
    assert "float32[n, 3, 10]" in str(graph)


@pytest.mark.parametrize(
    "coordinates", ["half_pixel", "half_pixel_symmetric", "asymmetric", "align_corners", "pytorch_half_pixel"]
)
@pytest.mark.parametrize("rounding", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
def test_resize_rounds_the_coordinates_of_the_standard(coordinates, rounding):
    """Compared where onnx's reference evaluator and ONNX Runtime agree."""
    reference, runtime = pytest.importorskip("onnx.reference"), pytest.importorskip("onnxruntime")
    runtime.set_default_logger_severity(4)
    compared = 0
    for n, scale in ((2, 2.5), (3, 0.4), (3, 0.5), (3, 1.5), (3, 2.6), (5, 0.5), (5, 0.75), (5, 2.5), (7, 1.2)):
        x = np.arange(n, dtype="float32").reshape(1, 1, n)
        node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode="nearest", nearest_mode=rounding,
                                coordinate_transformation_mode=coordinates)  # fmt: skip
        scales = onnx.numpy_helper.from_array(np.array([1, 1, scale], "float32"), "s")
        ends = [helper.make_tensor_value_info(v, onnx.TensorProto.FLOAT, s) for v, s in (("x", x.shape), ("y", None))]
        graph = helper.make_graph([node], "g", ends[:1], ends[1:], [scales])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
        want = reference.ReferenceEvaluator(model).run(None, {"x": x})[0]
        if np.array_equal(want, runtime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]):
            compared += 1
            got = tw.build(tw.from_onnx(model), target="native -num-cores=1")(x)
            np.testing.assert_array_equal(got, want, err_msg=f"{n} {scale}")
    assert compared


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("scale", [2.0, 1.75])
def test_resized_integers_are_integers(dtype, scale):
    """They are cut off, as in ONNX Runtime; scales that are whole multiples go another way than others."""
    runtime = pytest.importorskip("onnxruntime")
    x = np.random.default_rng(0).integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (1, 2, 8, 8)).astype(dtype)
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode="linear")
    scales = onnx.numpy_helper.from_array(np.array([1, 1, scale, scale], "float32"), "s")
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    ends = [helper.make_tensor_value_info(v, kind, s) for v, s in (("x", x.shape), ("y", None))]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], [scales])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    (want,) = runtime.InferenceSession(made.SerializeToString()).run(None, {"x": x})
    got = tw.build(tw.from_onnx(made), target="native -num-cores=1")(x)
    assert got.dtype == want.dtype == dtype
    assert np.abs(got.astype(int) - want.astype(int)).max() <= 1


def test_results_up_to_a_size_are_computed_while_the_graph_is_made(monkeypatch):
    """A sum has at most as many elements as the product of its inputs' sizes; a scalar makes it no larger."""
    monkeypatch.setattr(known_values, "LARGEST_KNOWN", 12)
    node = helper.make_node("Add", ["a", "b"], ["c"])
    for shapes, is_known in (
        (((11,), ()), True),
        (((4, 1), (3,)), True),
        (((), (11,)), True),
        (((12,), ()), False),
        (((4, 1), (4,)), False),
    ):
        a, b = [np.full(s, n, np.float32) for n, s in enumerate(shapes, 1)]
        made = known_values.evaluate(onnx, node, [(a, "float32"), (b, "float32")], {"": 17})
        assert (made is not None) == is_known, shapes
        if made is not None:
            np.testing.assert_array_equal(made[0][0], a + b)


def test_a_file_that_changed_after_it_was_read_is_an_error(tmp_path):
    path = tmp_path / "m.onnx"
    rng = np.random.default_rng(0)

    def write(factor):
        weight = onnx.numpy_helper.from_array((rng.standard_normal((600, 600)) * factor).astype(np.float32), "w")
        node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
        types = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2, 600]) for n in "xy"]
        onnx.save(onnx.helper.make_model(onnx.helper.make_graph([node], "g", types[:1], types[1:], [weight])), path)

    write(1.0)
    graph = tw.from_onnx(path)
    tw.build(graph, "native -num-cores=1")
    write(2.0)
    with pytest.raises(tw.graph.GraphError, match="was changed since"):
        tw.build(graph, "native -num-cores=1")
    path.unlink()
    with pytest.raises(tw.graph.GraphError, match="read the model again"):
        tw.build(graph, "native -num-cores=1")
    write(2.0)
    tw.build(tw.from_onnx(path), "native -num-cores=1")
