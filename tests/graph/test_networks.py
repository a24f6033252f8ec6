"""Networks as exporters write them: the kernels that they become, and their results against ONNX Runtime."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

from tilewright.frontends.onnx import from_onnx  # noqa: E402
from tilewright.graph import evaluate, fuse, prepare  # noqa: E402

from .network_models import mobilenet, quantized, resnet, transformer  # noqa: E402

RESNET = """conv2d_relu max_pool2d conv2d_relu_1 conv2d_add_relu conv2d_relu_2 conv2d conv2d_add_relu_1
            mean dense"""
MOBILENET = """conv2d_hardswish conv2d_clip depthwise_conv2d_clip mean conv2d_relu conv2d_hardsigmoid multiply
               conv2d_add conv2d_clip_1 depthwise_conv2d_clip_1 mean_1 conv2d_relu_1 conv2d_hardsigmoid_1 multiply_1
               conv2d conv2d_clip_2 depthwise_conv2d_clip_2 mean_2 conv2d_relu_2 conv2d_hardsigmoid_2 multiply_2
               conv2d_add_1 mean_3 matmul_add softmax"""
TRANSFORMER = """matmul_add transpose matmul_add_1 transpose_1 matmul_add_2 transpose_2 attention transpose_3
                 matmul_add_3 add_layer_norm matmul_add_gelu matmul_add_4 add_layer_norm_1"""


@pytest.mark.parametrize(
    ("model", "kernels"),
    [(resnet(blocks=1, size=8), RESNET), (mobilenet(size=8), MOBILENET), (transformer(blocks=1), TRANSFORMER)],
    ids=["resnet", "mobilenet", "transformer"],
)
def test_networks_become_few_kernels_and_compute_the_same(model, kernels):
    graph = from_onnx(model)
    after = prepare(graph)
    assert [k.name for k in fuse(after).kernels] == kernels.split()
    rng = np.random.default_rng(0)
    inputs = {v.name: rng.standard_normal(v.shape).astype(np.float32) for v in graph.inputs}
    (want,) = runtime.InferenceSession(model.SerializeToString()).run(None, inputs)
    (got,) = evaluate(after, *inputs.values())
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_quantized_networks_compute_with_integers():
    model = quantized()
    graph = from_onnx(model)
    after = prepare(graph)
    products = [n for n in after.nodes if n.op in ("conv2d", "matmul")]
    assert [n.output.dtype for n in products] == ["int32"] * 3
    assert [n.inputs[1].dtype for n in products] == ["int8"] * 3
    x = np.random.default_rng(0).standard_normal((1, 4, 6, 6)).astype(np.float32)
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    (want,) = runtime.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})
    (got,) = evaluate(after, x)
    assert np.abs(got - want).max() <= 0.3001  # one step of the last scale
