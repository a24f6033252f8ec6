"""Quantized programs of PyTorch: the operators of PT2E, and what torchao's configurations leave in an export."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch.ao.quantization.fx._decomposed")

import tilewright as tw  # noqa: E402
from tilewright.codegen import Target  # noqa: E402
from tilewright.driver.graph_services import prepared  # noqa: E402

Q = torch.ops.quantized_decomposed
VNNI = "llvm -mtriple=x86_64-linux-gnu -mcpu=icelake-server -num-cores=1"


def both(function, *inputs):
    """Returns what PyTorch and what the built export compute."""

    class Program(torch.nn.Module):
        def forward(self, *given):
            return function(*given)

    exported = torch.export.export(Program(), inputs)
    got = tw.build(tw.from_torch(exported))(*[x.numpy() for x in inputs])
    want = function(*inputs)
    want = want if isinstance(want, (tuple, list)) else (want,)
    return [w.numpy() for w in want], list(got if isinstance(got, tuple) else (got,))


def same(function, *inputs, rtol=0):
    for want, got in zip(*both(function, *inputs), strict=True):
        assert want.shape == got.shape
        # an export says float64 of scales that PyTorch computes in float32
        assert want.dtype == got.dtype or (want.dtype, got.dtype) == (np.float32, np.float64)
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)


X = torch.from_numpy((np.random.default_rng(0).standard_normal((4, 6, 64)) * 3).astype("float32"))
SCALES = torch.rand(6, generator=torch.Generator().manual_seed(0)) / 20 + 0.01


@pytest.mark.parametrize("dtype, low, high", [(torch.uint8, 0, 255), (torch.int8, -128, 127), (torch.int8, -8, 7)])
def test_numbers_of_a_tensor(dtype, low, high):
    zero = 3
    same(lambda x: Q.quantize_per_tensor(x, 0.0371, zero, low, high, dtype), X)
    q = Q.quantize_per_tensor(X, 0.0371, zero, low, high, dtype)
    same(lambda q: Q.dequantize_per_tensor(q, 0.0371, zero, low, high, dtype), q)
    same(lambda q: Q.dequantize_per_tensor(q, 0.0371, zero, low, high, dtype, out_dtype=torch.float16), q)

    def chosen(x):
        scale, place = Q.choose_qparams.tensor(x, low, high, 1e-6, dtype)
        q = Q.quantize_per_tensor.tensor(x, scale, place, low, high, dtype)
        return scale, place, Q.dequantize_per_tensor.tensor(q, scale, place, low, high, dtype)

    same(chosen, X, rtol=1e-6)


def test_numbers_of_channels():
    zeros = torch.arange(6) - 3
    for places in (zeros, torch.zeros(6, dtype=torch.int64)):
        same(lambda x, p=places: Q.quantize_per_channel(x, SCALES, p, 1, -128, 127, torch.int8), X)
        q = Q.quantize_per_channel(X, SCALES, places, 1, -128, 127, torch.int8)
        same(lambda q, p=places: Q.dequantize_per_channel(q, SCALES, p, 1, -128, 127, torch.int8), q)
    same(lambda q: Q.dequantize_per_channel(q, SCALES, None, 1, -128, 127, torch.int8), q)


@pytest.mark.parametrize("choose", ["choose_qparams_per_token", "choose_qparams_per_token_asymmetric"])
def test_numbers_of_rows(choose):
    def rows(x):
        scales, zeros = getattr(Q, choose)(x, torch.int8)
        q = Q.quantize_per_token(x, scales, zeros, -128, 127, torch.int8)
        return scales, q, Q.dequantize_per_token(q, scales, zeros, -128, 127, torch.int8, torch.float32)

    same(rows, X, rtol=1e-6)


def test_numbers_of_groups():
    x, rng = X[0], np.random.default_rng(0)
    scales = torch.from_numpy((rng.random((6, 4)) / 10 + 0.05).astype("float32"))
    zeros = torch.from_numpy(rng.integers(-3, 4, (6, 4)).astype("float32"))
    same(lambda x: Q.quantize_per_channel_group(x, scales, zeros, -8, 7, torch.int8, 16), x)
    q = Q.quantize_per_channel_group(x, scales, zeros, -8, 7, torch.int8, 16)
    same(lambda q: Q.dequantize_per_channel_group(q, scales, zeros, -8, 7, torch.int8, 16, torch.float32), q, rtol=1e-6)


def test_products_of_int8():
    rng = np.random.default_rng(0)
    a, b = [torch.from_numpy(rng.integers(-128, 128, s).astype("int8")) for s in ((32, 64), (64, 48))]
    same(torch._int_mm, a, b)
    x, w = torch.from_numpy(rng.standard_normal((3, 64)).astype("float32")), b.T.contiguous()
    (want,), (got,) = both(lambda x: torch._weight_int8pack_mm(x, w, torch.ones(48) / 16), x)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


def configurations():
    quantization = pytest.importorskip("torchao.quantization")
    from torchao.quantization.granularity import PerGroup

    return {
        "Int8WeightOnly": quantization.Int8WeightOnlyConfig(),
        "Int8DynamicActivationInt8Weight": quantization.Int8DynamicActivationInt8WeightConfig(),
        "IntxWeightOnly, 4 bits": quantization.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)),
        "IntxWeightOnly, 2 bits": quantization.IntxWeightOnlyConfig(weight_dtype=torch.int2, granularity=PerGroup(64)),
        "Int8DynamicActivationIntxWeight": quantization.Int8DynamicActivationIntxWeightConfig(
            weight_dtype=torch.int4, weight_granularity=PerGroup(32)
        ),
    }  # fmt: skip


@pytest.mark.parametrize("rows", [1, 17])
@pytest.mark.parametrize("name", ["Int8WeightOnly", "Int8DynamicActivationInt8Weight", "IntxWeightOnly, 4 bits",
                                  "IntxWeightOnly, 2 bits", "Int8DynamicActivationIntxWeight"])  # fmt: skip
def test_configurations_of_torchao(name, rows):
    config = configurations()[name]
    from torchao.quantization import quantize_

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 128)).eval()
    quantize_(model, config)
    x = torch.randn(rows, 256)
    graph = tw.from_torch(torch.export.export(model, (x,)).run_decompositions())
    want, got = model(x).detach().numpy(), tw.build(graph)(x.numpy())
    np.testing.assert_allclose(got, want, atol=1e-5 * np.abs(want).max())
    text = str(prepared(graph, Target.of(VNNI)))
    if name != "Int8DynamicActivationInt8Weight":
        assert text.count("dense_packed_nbits(") == 2


@pytest.mark.parametrize("dynamic", [False, True])
def test_exports_of_pt2e(dynamic):
    pytest.importorskip("torchao.quantization.pt2e")
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(16 * 64, 32)
    ).eval()  # fmt: skip
    x = torch.randn(1, 3, 8, 8)
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config(is_dynamic=dynamic))
    prepared_model = prepare_pt2e(torch.export.export(model, (x,)).module(), quantizer)
    prepared_model(x)
    converted = convert_pt2e(prepared_model)
    got = tw.build(tw.from_torch(torch.export.export(converted, (x,))))(x.numpy())
    np.testing.assert_allclose(got, converted(x).detach().numpy(), atol=2e-5)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_weights_of_float8(name):
    kind = getattr(torch, name)

    class Product(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("weight", torch.randn(16, 8).to(kind))
            self.register_buffer("scale", torch.rand(16) + 0.5)

        def forward(self, x):
            y = x @ (self.weight.float() * self.scale[:, None]).t()
            return y, x.to(kind), (x * 1e4).to(kind).float()

    model, x = Product(), torch.randn(4, 8)
    x[0, :3] = torch.tensor([float("inf"), float("-inf"), float("nan")])
    made, wanted = tw.build(tw.from_torch(torch.export.export(model, (x,))))(x), model(x)
    torch.testing.assert_close(made[0], wanted[0], rtol=1e-5, atol=1e-5, equal_nan=True)
    assert made[1].dtype == kind
    torch.testing.assert_close(made[1].float(), wanted[1].float(), rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(made[2], wanted[2], rtol=0, atol=0, equal_nan=True)
