"""Determinants, and what prepares features in models of scikit-learn, against ONNX Runtime and NumPy."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper  # noqa: E402

import tilewright as tw  # noqa: E402
from tilewright.frontends.onnx import OnnxError  # noqa: E402

TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64}


def model_of(op, *inputs, domain="ai.onnx.ml", **attrs):
    given = [helper.make_tensor_value_info(f"x{n}", TYPES[x.dtype.name], x.shape) for n, x in enumerate(inputs)]
    node = helper.make_node(op, [v.name for v in given], ["y"], domain=domain, **attrs)
    graph = helper.make_graph(
        [node], "g", given, [helper.make_tensor_value_info("y", given[0].type.tensor_type.elem_type, None)]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)], ir_version=9)  # fmt: skip


def agrees(op, *inputs, **attrs):
    model = model_of(op, *inputs, **attrs)
    if op == "OneHotEncoder":
        model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    session = runtime.InferenceSession(model.SerializeToString())
    (want,) = session.run(None, {f"x{n}": x for n, x in enumerate(inputs)})
    got = tw.build(tw.from_onnx(model))(*inputs)
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (5, 5), (2, 3, 7, 7)])
def test_determinants(shape):
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    model = model_of("Det", x, domain="")
    built = tw.build(tw.from_onnx(model))
    exchanged = x[..., ::-1, :].copy()
    whole = np.round(x)  # with zeros as pivots, and some that are singular
    singular = np.zeros_like(x)
    for given in (x, exchanged, whole, singular):
        np.testing.assert_allclose(built(given), np.linalg.det(given.astype(np.float64)), rtol=1e-4, atol=1e-4)


def test_determinants_of_other_matrices_are_refused():
    with pytest.raises(OnnxError, match="no square matrix"):
        tw.from_onnx(model_of("Det", np.ones((2, 3), np.float32), domain=""))


def test_categories():
    agrees("OneHotEncoder", np.array([[3, 1], [7, 5], [0, 3]]), cats_int64s=[1, 3, 5], zeros=1)
    with pytest.raises(OnnxError, match="strings"):
        tw.from_onnx(model_of("OneHotEncoder", np.array([1]), cats_strings=["a"]))
    with pytest.raises(OnnxError, match="zeros=0"):
        tw.from_onnx(model_of("OneHotEncoder", np.array([1]), cats_int64s=[1], zeros=0))


@pytest.mark.parametrize("missing", [float("nan"), -1.0])
@pytest.mark.parametrize("values", [[2.5], [1.0, 2.0, 3.0]])
def test_missing_numbers(missing, values):
    x = np.array([[missing, 1, missing], [0, missing, 5]], np.float32)
    agrees("Imputer", x, imputed_value_floats=values, replaced_value_float=missing)


def test_columns_side_by_side():
    a, b = np.arange(6, dtype=np.float32).reshape(3, 2), np.arange(9, dtype=np.float32).reshape(3, 3)
    agrees("FeatureVectorizer", a, b, inputdimensions=[2, 3])
    with pytest.raises(OnnxError, match=r"inputdimensions=\(2, 4\)"):
        tw.from_onnx(model_of("FeatureVectorizer", a, b, inputdimensions=[2, 4]))
