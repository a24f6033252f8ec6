"""Damaged and hostile ONNX models: each is an OnnxError that names the place, and nothing else is read."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs the extra onnx")

from onnx import TensorProto, helper  # noqa: E402

import tilewright  # noqa: E402
from tilewright.frontends.onnx import OnnxError, UnsupportedOnnxOperators, from_onnx, importer, model_file  # noqa: E402

from . import onnx_fuzz  # noqa: E402


def external(tmp_path, **entries):
    """The path of a model whose weights are external data, 64 bytes after 64 others in data.bin."""
    folder = onnx_fuzz.prepared(tmp_path) / "models"
    (folder / "data.bin").write_bytes(b"\0" * 64 + np.arange(16, dtype=np.float32).tobytes())
    proto = onnx_fuzz.seeds()[3]
    tensor = proto.graph.initializer[0]
    del tensor.external_data[:]
    for key, text in {"location": "data.bin", "offset": "64", "length": "64", **entries}.items():
        tensor.external_data.add(key=key, value=text)
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    return folder / "m.onnx"


def test_external_data_beside_the_model(tmp_path):
    graph = from_onnx(external(tmp_path))
    (weights,) = graph.constants.values()
    np.testing.assert_array_equal(weights, np.arange(16).reshape(4, 4))


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ({"location": "../secret"}, "'../secret' lies outside of the model's folder"),
        ({"location": "link"}, "'link' lies outside of the model's folder"),
        ({"location": "/etc/passwd"}, "lies outside of the model's folder"),
        ({"location": "a/../../secret"}, "lies outside of the model's folder"),
        ({"location": "."}, "lies outside of the model's folder"),
        ({"location": "none.bin"}, "there is no file 'none.bin'"),
        ({"offset": "100"}, "ends behind the end of 'data.bin'"),
        ({"offset": "-4"}, "the offset of its external data is '-4', not a number"),
        ({"length": "9999"}, r"needs 64 bytes, its external data has 9999"),
    ],
)
def test_external_data_elsewhere(tmp_path, entries, problem):
    with pytest.raises(OnnxError, match=f"the tensor 'w'.*{problem}"):
        from_onnx(external(tmp_path, **entries))


def test_external_data_needs_a_folder():
    with pytest.raises(OnnxError, match="can only be read with a model that is given as a path"):
        from_onnx(onnx_fuzz.seeds()[3].SerializeToString())


@pytest.mark.parametrize(
    ("dims", "problem"),
    [((-1, 4), "negative size"), ((2**40, 2**40), "too large"), ((5, 4, 3, 3), "needs 720 bytes, there are 432")],
)
def test_sizes_of_tensors(dims, problem):
    proto = onnx_fuzz.seeds()[0]
    proto.graph.initializer[0].dims[:] = dims
    with pytest.raises(OnnxError, match=f"the tensor 'w'.*{problem}"):
        from_onnx(proto)


def test_a_function_that_calls_itself():
    proto = onnx_fuzz.seeds()[2]
    proto.functions[0].node.append(helper.make_node("Twice", ["p"], ["q2"], domain="mine"))
    with pytest.raises(OnnxError, match="does a function call itself"):
        from_onnx(proto)


def test_functions_that_double_at_each_level(monkeypatch):
    monkeypatch.setattr(importer, "_MOST_NODES", 500)
    proto = onnx_fuzz.seeds()[2]
    for level in range(30):
        below = "Twice" if level == 0 else f"F{level - 1}"
        calls = [helper.make_node(below, ["p"], [name], domain="mine") for name in ("a", "q")]
        proto.functions.append(
            helper.make_function("mine", f"F{level}", ["p"], ["q"], calls, [helper.make_opsetid("", 20)])
        )
    proto.graph.node[2].op_type = "F29"
    with pytest.raises(OnnxError, match="too many nodes"):
        from_onnx(proto)


def test_as_many_nodes_as_are_allowed(monkeypatch):
    nodes = [helper.make_node("Neg", ["x" if n == 0 else f"y{n - 1}"], [f"y{n}"]) for n in range(6)]
    proto = onnx_fuzz._model(nodes, [onnx_fuzz._value("x", [4])], ["y5"], {})
    monkeypatch.setattr(importer, "_MOST_NODES", 6)
    assert len(from_onnx(proto).nodes) == 6
    monkeypatch.setattr(importer, "_MOST_NODES", 5)
    with pytest.raises(OnnxError, match="Neg 'y5': .* too many nodes"):
        from_onnx(proto)


def test_missing_operators_in_branches_and_functions_are_listed_with_the_others():
    proto = onnx_fuzz.seeds()[2]
    proto.graph.node[0].attribute[0].g.node[0].op_type = "Foo"
    proto.functions[0].node[1].op_type = "Bar"
    with pytest.raises(UnsupportedOnnxOperators) as error:
        from_onnx(proto)
    assert error.value.operators == {"Foo": ["Foo 'e' in If 'b'"], "Bar": ["Bar 'q' in the function 'Twice'"]}


def test_values_that_ask_for_too_much():
    node = helper.make_node("ConstantOfShape", ["s"], ["y"])
    proto = onnx_fuzz._model([node], [], ["y"], {"s": np.array([2**31, 2**31])})
    with pytest.raises(OnnxError, match="ConstantOfShape 'y'"):
        from_onnx(proto)


def test_names_with_lines_and_paths_stay_names():
    proto = onnx_fuzz.seeds()[0]
    proto.graph.input[0].name = proto.graph.node[0].input[0] = "../x\ny"
    assert from_onnx(proto).inputs[0].name == "___x_y"
    proto.graph.node[0].name, proto.graph.node[0].input[1] = "a\nb", "missing\n" * 99
    with pytest.raises(OnnxError, match=r"Conv 'a\\nb' reads 'missing\\n") as error:
        from_onnx(proto)
    assert "\n" not in str(error.value) and len(str(error.value)) < 600


def test_types_that_are_not_supported():
    proto = onnx_fuzz.seeds()[0]
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
    with pytest.raises(OnnxError, match="the input 'x': the data type string is not supported; string operators are"):
        from_onnx(proto)
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT8E5M2FNUZ
    with pytest.raises(
        OnnxError, match="it does not compute with float8_e5m2fnuz; Cast and DequantizeLinear convert such numbers"
    ):
        from_onnx(proto)


@pytest.mark.parametrize("text", [b"net", b"Conv", b"pads", b"kernel_shape", b"\x01x", b"\x01w"])
def test_texts_that_are_not_utf8(text):
    data = onnx_fuzz.seeds()[0].SerializeToString()
    assert text in data
    with pytest.raises(OnnxError, match=r"the model: the \w+ .*xe5.* of a \w+Proto is not UTF-8"):
        from_onnx(data.replace(text, text[:-1] + b"\xe5"))


def test_mutated_models():
    root = Path(__file__).parents[2]
    words = [sys.executable, "-m", "tests.frontends.onnx_fuzz", "--n", "60", "--seed", "5"]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True)
    assert "60 models: " in done.stdout and ", 0 findings" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("letters", range(1, 5))  # the bytes of names before a tensor decide how it is aligned
def test_large_weights_stay_in_their_file(tmp_path, letters):
    weights = np.random.default_rng(0).standard_normal((2100, 130)).astype(np.float32)
    proto = helper.make_model(
        helper.make_graph(
            [helper.make_node("Gemm", ["x", "w"], ["y"], transB=1), helper.make_node("Gather", ["w", "i"], ["z"])],
            "g" * letters,
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 130]), helper.make_tensor_value_info("i", TensorProto.INT64, [2])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 2100]), helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 130])],
            [onnx.numpy_helper.from_array(weights, "w")],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
    )  # fmt: skip
    path = tmp_path / "m.onnx"
    onnx.save(proto, path)
    (base,) = [data for data in from_onnx(path).constants.values() if data.shape == weights.shape]
    while base is not None and not isinstance(base, np.memmap):
        base = base.base
    assert base is not None
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "m.onnx").symlink_to(path)
    x = np.random.default_rng(1).standard_normal((3, 130)).astype(np.float32)
    for model in (path, tmp_path / "links" / "m.onnx"):
        y, z = tilewright.build(model)(x, np.array([2099, 5]))
        np.testing.assert_allclose(y, x @ weights.T, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(z, weights[[2099, 5]])


@pytest.mark.parametrize("number", range(len(onnx_fuzz.seeds())))
def test_bytes_without_large_data(tmp_path, monkeypatch, number):
    monkeypatch.setattr(model_file, "LARGE_BYTES", 8)
    proto = onnx_fuzz.seeds()[number]
    data = proto.SerializeToString()
    smaller = onnx.ModelProto.FromString(model_file.without_large_data(memoryview(data), "m.onnx"))
    (tmp_path / "m.onnx").write_bytes(data)
    outside = [t for t in proto.graph.initializer if t.data_location == TensorProto.EXTERNAL]
    if not outside:
        onnx.load_external_data_for_model(smaller, str(tmp_path))
        for one, other in zip(proto.graph.initializer, smaller.graph.initializer, strict=True):
            assert one.raw_data == other.raw_data and one.dims == other.dims and one.name == other.name
    rng = np.random.default_rng(number)
    for _ in range(200):  # damaged bytes: nothing but bytes comes back
        damaged = bytearray(data[: rng.integers(len(data) + 1)])
        for at in rng.integers(max(len(damaged), 1), size=3):
            damaged[at : at + 1] = bytes([rng.integers(256)])
        assert isinstance(model_file.without_large_data(memoryview(bytes(damaged)), "m.onnx"), bytes)
