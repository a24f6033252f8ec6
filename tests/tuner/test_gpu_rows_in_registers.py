"""Rows that registers hold: read once, in vectors that are all asked for before the first is used, and right for any length."""

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen import Target
from tilewright.gpu.ptx import find_ptxas, run_ptxas
from tilewright.tuner import Space

from .gpu_programs import _soft


def normed(x, axes=(-1,)):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)


def _layer_norm(x):
    g, b = [te.placeholder(x.shape[-1:], x.dtype, name) for name in "GB"]
    return [x, g, b, te.ops.layer_norm(x, g, b)]


def _rms_norm(x):
    g = te.placeholder(x.shape[-1:], x.dtype, "G")
    return [x, g, te.ops.rms_norm(x, g)]


def _residual(x):
    y = te.placeholder(x.shape, x.dtype, "Y")
    return [x, y, te.ops.softmax(te.compute(x.shape, lambda *i: x(*i) + y(*i), name="Z"))]


CHAINS = {
    "softmax": (lambda x: [x, te.ops.softmax(x)], _soft),
    "log_softmax": (lambda x: [x, te.ops.log_softmax(x)], lambda x: np.log(_soft(x))),
    "layer_norm": (_layer_norm, lambda x, g, b: normed(x) * g + b),
    "layer_norm of two axes": (lambda x: [x, te.ops.layer_norm(x, axis=(-2, -1))], lambda x: normed(x, (-2, -1))),
    "rms_norm": (_rms_norm, lambda x, g: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * g),
    "residual": (_residual, lambda x, y: _soft(x + y)),
    "sum": (lambda x: [x, te.ops.sum(x, -1)], lambda x: x.sum(-1)),
}
TOLERANCES = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 1.6e-2}


def numpy_type(dtype):
    return np.dtype(dtype if dtype != "bfloat16" else pytest.importorskip("ml_dtypes").bfloat16)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize(
    ("name", "shape"),
    [(name, shape) for name in CHAINS for shape in ((3, 77), (2, 1000)) if "two axes" not in name]
    + [("layer_norm of two axes", (2, 4, 6, 32)), ("softmax", (2, 3, 100)), ("layer_norm of two axes", (3, 7, 11))],
)
def test_rows_of_any_length(name, shape, dtype):
    make, reference = CHAINS[name]
    tensors, kind = make(te.placeholder(shape, dtype, "X")), numpy_type(dtype)
    space, rng = Space(te.create_prim_func(tensors), Target("gpu-sim"), where={"keep": 2}), np.random.default_rng(1)
    sketch = next(s for s in space.sketches if s.name.startswith("rows"))
    inputs = [rng.standard_normal([int(n) for n in t.shape]).astype("float32").astype(kind) for t in tensors[:-1]]
    want = reference(*[x.astype("float64") for x in inputs])
    for row in np.concatenate([sketch.best_rows(1), sketch.sample(2, rng)]):
        assert sketch.decisions_of(row)["keep"] == 2
        got = np.zeros(want.shape, kind)
        tw.codegen.compile(space.schedule(sketch, row).func, Target("gpu-sim"))(*inputs, got)
        error = np.abs(got.astype("float64") - want).max() / max(1.0, np.abs(want).max())
        assert error <= TOLERANCES[dtype], sketch.decisions_of(row)


@pytest.mark.parametrize(("name", "extra"), [("softmax", 0), ("log_softmax", 0), ("layer_norm", 2), ("rms_norm", 1)])
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_memory_is_read_once(name, extra, dtype):
    """The sectors of the default schedule are those of its arrays; the weights are read for each row."""
    rows, columns = 4, 2048
    tensors, kind = CHAINS[name][0](te.placeholder((rows, columns), dtype, "X")), numpy_type(dtype)
    module = tw.build(tensors, "gpu-sim -arch=sm_90")
    arrays = [np.ones([int(n) for n in t.shape], kind) for t in tensors]
    (counts,) = module.bind(*arrays).counted()
    assert counts["l2_bytes"] == (2 + extra) * rows * columns * kind.itemsize


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed: pip install nvidia-cuda-nvcc-cu12")
@pytest.mark.parametrize(("name", "reductions"), [("softmax", 2), ("layer_norm", 2), ("rms_norm", 1)])
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_default_schedules_of_long_rows(name, reductions, dtype):
    """Loads of 16 bytes stand before the first barrier, there is one barrier for each reduction, and nothing is spilled."""
    module = tw.build(CHAINS[name][0](te.placeholder((8192, 4096), dtype, "X")), "cuda -arch=sm_90")
    (text,) = module.ptx.values()
    (report,), _ = run_ptxas(text, "sm_90")
    assert report.spill_bytes == report.stack_bytes == 0
    assert text.count("bar.sync") == reductions
    (kernel,) = next(iter(module.kernels.values()))
    bytes_of_thread = 4096 * (4 if dtype == "float32" else 2) // kernel.block[0]
    assert text.split("bar.sync")[0].count("ld.global.nc.v4.b32") >= bytes_of_thread // 16
    assert text.count("max.NaN.f") >= (name == "softmax") * bytes_of_thread // 16
