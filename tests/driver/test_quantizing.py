"""Models with quantized products: their values, what they cost, and their files."""

import json

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph import Builder, GraphError, load_graph, save_graph

KINDS = ("int8", "int8-weights", "int4-weights")


def layers(rng, rows=4, depth=96, width=64):
    """A network of two layers and one convolution, whose batch norm belongs to the weights."""
    b = Builder("net")
    x, image = b.input("x", (rows, depth)), b.input("image", (1, 3, 8, 8))
    w1, w2 = [b.constant((rng.standard_normal(s) / 8).astype("float32")) for s in ((depth, width), (10, width + 16))]
    h = b.op("relu", b.op("matmul", x, w1))
    kernel = b.constant((rng.standard_normal((16, 3, 3, 3)) / 4).astype("float32"))
    c = b.op("conv2d", image, kernel, padding=1)
    c = b.op("multiply", c, b.constant(rng.random((16, 1, 1)).astype("float32") + 0.5))
    pooled = b.op("reshape", b.op("mean", b.op("relu", c), axis=(2, 3)), shape=(1, 16))
    joined = b.op("concatenate", h, b.op("broadcast_to", pooled, shape=(rows, 16)), axis=1)
    return b.graph([b.op("dense", joined, w2, b.constant(rng.standard_normal(10).astype("float32")))])


def samples(rng, count=4):
    return [
        {"x": rng.standard_normal((4, 96)).astype("float32"), "image": rng.random((1, 3, 8, 8)).astype("float32")}
        for _ in range(count)
    ]


@pytest.mark.parametrize("kind, most", [("int8", 0.03), ("int8-weights", 0.03), ("int4-weights", 0.2)])
def test_outputs_stay_near_those_of_the_float_model(kind, most):
    rng = np.random.default_rng(0)
    net, given = layers(rng), samples(rng)
    report = tw.quantization_report(net, kind, calibration=given)
    (out,) = report.outputs
    assert 1e-4 < out.error < most and out.same_choice > 0.7 and report.samples == 4
    assert report.bytes_after < (0.5 if kind == "int4-weights" else 0.6) * report.bytes_before or kind != "int8"
    errors = [row.error for row in report.layers if row.error is not None]
    assert errors == sorted(errors, reverse=True) and len(errors) == (3 if kind == "int8" else 2)
    kept = [row.layer.kept for row in report.layers if row.error is None]
    assert kept == ([] if kind == "int8" else ["a convolution: int8 quantizes those"])
    text = str(report)
    assert text.startswith(f"{kind}: weights of products") and "same choice" in text
    assert json.loads(json.dumps(report.as_dict(), default=str))["layers"][0]["error"] == errors[0]
    want, got = tw.build(net)(**given[0]), tw.build(tw.quantize(net, kind, calibration=given))(**given[0])
    np.testing.assert_array_equal(got, tw.build(report.graph)(**given[0]))
    assert np.abs(got - want).max() < 3 * most * np.abs(want).max()


def test_int8_computes_with_rounded_numbers():
    """One layer is what NumPy computes with the same numbers."""
    rng = np.random.default_rng(0)
    b = Builder()
    weight = rng.standard_normal((64, 32)).astype("float32")
    net = b.graph([b.op("matmul", b.input("x", (8, 64)), b.constant(weight))])
    x = rng.standard_normal((8, 64)).astype("float32")
    step = np.float32((max(x.max(), 0) - min(x.min(), 0)) / 255)
    zero = np.clip(np.rint(-min(float(x.min()), 0.0) / step), 0, 255)
    numbers = np.clip(np.rint(x / step) + zero, 0, 255) - zero
    scales = (np.abs(weight).max(0) / 127).astype("float32")
    want = (numbers @ np.rint(weight / scales)) * (step * scales)
    got = tw.build(tw.quantize(net, "int8", calibration=x))(x)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_a_zero_weight_and_data_without_range():
    b = Builder()
    x = b.input("x", (2, 32))
    net = b.graph([b.op("matmul", x, b.constant(np.zeros((32, 16), "float32")))])
    for kind in KINDS:
        got = tw.build(tw.quantize(net, kind, calibration=np.zeros((2, 32), "float32")))(np.ones((2, 32), "float32"))
        assert not got.any()


def test_products_that_are_kept():
    rng = np.random.default_rng(0)
    net, given = layers(rng), samples(rng)
    report = tw.quantization_report(net, "int8-weights", given)
    name = next(row.layer.name for row in report.layers if row.error is not None)
    kept = tw.quantization_report(net, "int8-weights", given, keep=[name])
    assert [row.layer.kept for row in kept.layers if row.layer.name == name] == ["asked for"]
    with pytest.raises(ValueError, match="keep: no product makes 'nothing'"):
        tw.quantize(net, "int8-weights", keep=["nothing"])


def test_what_cannot_be_asked_for():
    rng = np.random.default_rng(0)
    net = layers(rng)
    with pytest.raises(ValueError, match="no kind 'int8-weight'.*did you mean.*int8-weights"):
        tw.quantize(net, "int8-weight")
    with pytest.raises(ValueError, match="int8 needs calibration="):
        tw.quantize(net, "int8")
    with pytest.raises(ValueError, match="the model takes x, image"):
        tw.quantize(net, "int8", calibration=[{"x": np.zeros((4, 96), "float32")}])
    with pytest.raises(ValueError, match="group=20"):
        tw.quantize(net, "int4-weights", group=20)
    with pytest.raises(ValueError, match="activations='int4'"):
        tw.quantize(net, "int4-weights", activations="int4")


def test_data_that_is_not_finite_keeps_its_product():
    b = Builder()
    net = b.graph([b.op("matmul", b.input("x", (2, 32)), b.constant(np.ones((32, 16), "float32")))])
    report = tw.quantization_report(
        net, "int8", np.ones((2, 32), "float32"), calibration=np.full((2, 32), np.inf, "float32")
    )
    assert report.layers[0].layer.kept == "its data is not finite"


def test_files_of_graphs(tmp_path):
    rng = np.random.default_rng(0)
    net, given = layers(rng), samples(rng)[0]
    quantized = tw.quantize(net, "int4-weights")
    save_graph(quantized, tmp_path / "net.twgraph")
    again = load_graph(tmp_path / "net.twgraph")
    assert str(again) == str(quantized)
    np.testing.assert_array_equal(tw.build(tmp_path / "net.twgraph")(**given), tw.build(quantized)(**given))
    with pytest.raises(ValueError, match="ends in .twgraph"):
        save_graph(net, tmp_path / "net.npz")
    (tmp_path / "bad.twgraph").write_bytes(b"nothing")
    with pytest.raises(GraphError, match="is no graph that save_graph wrote"):
        load_graph(tmp_path / "bad.twgraph")
