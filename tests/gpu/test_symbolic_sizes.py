"""Programs of symbolic sizes on GPUs: one schedule serves all sizes, equal to NumPy, and assemblers take its kernels."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen.late_tables import TARGET_KINDS
from tilewright.driver.building import BuildError
from tilewright.gpu.opencl.opencl_module import missing_device
from tilewright.gpu.ptx import find_ptxas, run_ptxas
from tilewright.gpu.wgsl.webgpu_module import missing_adapter
from tilewright.tir import script as T

ops = te.ops


@dataclass(frozen=True)
class Symbolic:
    """A program of symbolic sizes. ``shapes``: of its inputs, with names of sizes; ``empty``: NumPy has a result where they are 0."""

    shapes: tuple[tuple[Any, ...], ...]
    make: Any
    reference: Any
    empty: bool = True
    dtypes: tuple[str, ...] = ()


def soft(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def normed(x, g, b):
    c = x - x.mean(-1, keepdims=True)
    return c / np.sqrt((c**2).mean(-1, keepdims=True) + 1e-5) * g + b


def conv(x, w):
    p = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return np.einsum("ncyxij,ocij->noyx", np.lib.stride_tricks.sliding_window_view(p, (3, 3), axis=(2, 3)), w)


def half_batches(a, b):
    k = te.reduce_axis((0, 32), name="k")
    wide = lambda x: x.astype("float32")  # noqa: E731
    return te.compute(
        (a.shape[0], 32, 32), lambda z, i, j: te.sum(wide(a[z, i, k]) * wide(b[z, k, j]), axis=k), name="C"
    )


def half_product(a, b):
    k = te.reduce_axis((0, 64), name="k")
    wide = lambda x: x.astype("float32")  # noqa: E731
    return te.compute((a.shape[0], 96), lambda i, j: te.sum(wide(a[i, k]) * wide(b[k, j]), axis=k), name="C")


PROGRAMS = {
    "relu": Symbolic((("n",),), ops.relu, lambda x: np.maximum(x, 0)),
    "add": Symbolic((("n", "m"), ("n", "m")), ops.add, np.add),
    "bias": Symbolic((("n", "m"), ("m",)), ops.mul, np.multiply),
    "three axes": Symbolic((("n", "m", "n"),), ops.exp, np.exp),
    "softmax": Symbolic((("n", 100),), ops.softmax, soft),
    "softmax of long rows": Symbolic((("n", "m"),), ops.softmax, soft, empty=False),
    "few long rows": Symbolic(((8, "m"),), ops.softmax, soft, empty=False),
    "layer norm": Symbolic((("n", 96), (96,), (96,)), ops.layer_norm, normed),
    "layer norm of long rows": Symbolic((("n", "m"), ("m",), ("m",)), ops.layer_norm, normed, empty=False),
    "row sums": Symbolic((("n", "m"),), lambda x: ops.sum(x, 1), lambda x: x.sum(1)),
    "column sums": Symbolic((("n", "m"),), lambda x: ops.sum(x, 0), lambda x: x.sum(0)),
    "sum of all": Symbolic((("n",),), ops.sum, np.sum),
    "mean": Symbolic((("n", 13),), lambda x: ops.mean(x, 0), lambda x: x.mean(0), empty=False),
    "argmax": Symbolic((("n", 70),), lambda x: ops.argmax(x, 1), lambda x: x.argmax(1)),
    "product, rows": Symbolic((("n", 48), (48, 80)), ops.matmul, np.matmul),
    "product, columns": Symbolic(((40, 48), (48, "n")), ops.matmul, np.matmul),
    "product, steps": Symbolic(((40, "n"), ("n", 80)), ops.matmul, np.matmul),
    "product, all": Symbolic((("n", "m"), ("m", "k")), ops.matmul, np.matmul),
    "dense": Symbolic(
        (("n", 48), (80, 48), (80,)),
        lambda x, w, b: ops.relu(ops.dense(x, w, b)),
        lambda x, w, b: np.maximum(x @ w.T + b, 0),
    ),
    "float16 product": Symbolic((("n", 64), (64, 96)), half_product, np.matmul, dtypes=("float16", "float16")),
    "float16 batches": Symbolic((("n", 32, 32), ("n", 32, 32)), half_batches, np.matmul, dtypes=("float16", "float16")),
    "batches of products": Symbolic((("n", 33, 20), ("n", 20, 24)), ops.batch_matmul, np.matmul),
    "conv": Symbolic((("n", 5, 9, 9), (6, 5, 3, 3)), lambda x, w: ops.conv2d(x, w, 1, 1), conv),
    "conv of images": Symbolic(
        ((2, 5, "n", "m"), (6, 5, 3, 3)), lambda x, w: ops.conv2d(x, w, 1, 1), conv, empty=False
    ),
    "transpose": Symbolic((("n", "m"),), ops.transpose, np.transpose),
    "transposes": Symbolic((("n", 40, 33),), lambda x: ops.transpose(x, (0, 2, 1)), lambda x: x.swapaxes(1, 2)),
    "gather": Symbolic(
        ((9, 17), ("n",)), lambda x, i: ops.take(x, i, 0), lambda x, i: x[i.astype(int)], dtypes=("float32", "int32")
    ),
    "concat": Symbolic((("n", 13),), lambda x: ops.concat([x, x], 0), lambda x: np.concatenate([x, x])),
    "reshape": Symbolic((("n", 13),), lambda x: ops.reshape(x, (x.shape[0] * 13,)), lambda x: x.reshape(-1)),
    "running sums": Symbolic(((5, "n"),), lambda x: ops.cumsum(x, 1), lambda x: x.cumsum(1)),
    "attention": Symbolic(
        (("n", "m", 8),) * 3, ops.attention, lambda q, k, v: soft(q @ k.swapaxes(1, 2) / np.sqrt(8)) @ v, empty=False
    ),
}
LARGER = {"n": 0, "m": 3, "k": 1}


def tensors_of(program):
    """Returns the te tensors of a program, inputs first."""
    names = {e for shape in program.shapes for e in shape if isinstance(e, str)}
    sizes = {name: te.var(name) for name in sorted(names)}
    dtypes = program.dtypes or ("float32",) * len(program.shapes)
    inputs = [
        te.placeholder([sizes.get(e, e) for e in shape], dtype, f"in{n}")
        for n, (shape, dtype) in enumerate(zip(program.shapes, dtypes, strict=True))
    ]
    return [*inputs, program.make(*inputs)]


def require_equal(module, program, size, tensors):
    """Run a module at a size, and compare its result with NumPy's."""
    rng = np.random.default_rng(size)
    shapes = [[size + LARGER[e] if isinstance(e, str) else e for e in shape] for shape in program.shapes]
    arrays = [
        rng.integers(*((0, 9) if t.dtype.is_int else (-4, 5)), shape).astype(str(t.dtype))
        for shape, t in zip(shapes, tensors, strict=False)
    ]
    want = np.asarray(program.reference(*[a.astype("float64") for a in arrays]))
    got = np.full(want.shape, 99, str(tensors[-1].dtype))
    module(*arrays, got)
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5, err_msg=f"size {size}")


@pytest.mark.parametrize("name", PROGRAMS)
def test_on_the_simulated_gpu(name):
    program = PROGRAMS[name]
    tensors = tensors_of(program)
    module = tw.build(tensors, "gpu-sim")
    assert "as written" not in module.origin and "not scheduled" not in module.origin
    for size in (*([0] if program.empty else []), 1, 7, 35):
        require_equal(module, program, size, tensors)


SOME = ("bias", "softmax of long rows", "row sums", "product, rows", "product, steps", "conv", "transpose", "attention")


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed: pip install nvidia-cuda-nvcc-cu12")
@pytest.mark.parametrize("name", [*SOME, "float16 product"])
def test_assembled(name):
    module = tw.build(tensors_of(PROGRAMS[name]), "cuda -arch=sm_90a")
    reports = [report for text in module.ptx.values() for report in run_ptxas(text, "sm_90a")[0]]
    assert reports and all(r.spill_bytes == 0 for r in reports)


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize(("kind", "missing"), [("opencl", missing_device), ("webgpu", missing_adapter)])
def test_on_devices(kind, missing, name):
    if lacks := missing(tw.Target(kind)):
        pytest.skip(lacks[0])
    program = PROGRAMS[name]
    tensors = tensors_of(program)
    module = tw.build(tensors, kind)
    for size in (*([0] if program.empty else []), 1, 7, 64, 130)[: 4 if name == "attention" else None]:
        require_equal(module, program, size, tensors)


def test_tiles_are_chosen_for_products():
    """A product of symbolic rows is computed in tiles of shared memory, and a few rows have a schedule of their own."""
    module = tw.build(tensors_of(PROGRAMS["product, rows"]), "gpu-sim")
    assert module.plan.parts == ("threads_matmul",)
    assert module.get_source("lowered").count('scope="shared"') >= 2
    assert "up to n = 1 for n = 1" in module.origin
    module = tw.build(tensors_of(PROGRAMS["float16 batches"]), "gpu-sim")
    assert module.plan.parts == ("warps_C",)


def test_pipelines_of_symbolic_length():
    """The copies of a loop whose end only the launch knows run two steps ahead."""

    @T.prim_func
    def running(a: T.handle, c: T.Buffer((32,), "float32")):
        n = T.int32()
        A = T.match_buffer(a, (n, 32))
        for _ in T.thread_binding(1, thread="blockIdx.x"):
            S = T.decl_buffer((32,), scope="shared")
            L = T.decl_buffer((1,), scope="local")
            for t in T.thread_binding(32, thread="threadIdx.x"):
                L[0] = 0.0
                for k in T.serial(
                    n,
                    annotations={
                        "software_pipeline_stage": [0, 2],
                        "software_pipeline_order": [0, 1],
                        "software_pipeline_async_stages": [0],
                    },
                ):
                    S[t] = A[k, t]
                    L[0] = L[0] * 0.5 + S[31 - t]
                c[t] = L[0]

    module = tw.codegen.compile(running, "gpu-sim")
    for n in (0, 1, 2, 3, 8):
        a = np.random.default_rng(n).integers(-8, 9, (n, 32)).astype("float32")
        want = np.zeros(32, "float32")
        for row in a:
            want = want * np.float32(0.5) + row[::-1]
        got = np.empty(32, "float32")
        module(a, got)
        np.testing.assert_array_equal(got, want)
    if find_ptxas():
        text = "\n".join(tw.codegen.compile(running, "cuda -arch=sm_80").ptx.values())
        assert "cp.async" in text and run_ptxas(text, "sm_80")[0][0].spill_bytes == 0


def test_what_has_no_schedule_is_refused(monkeypatch):
    """A program that no rule schedules for all sizes is no plain loop in silence."""
    kind = TARGET_KINDS["gpu-sim"]
    refusing = dataclasses.replace(kind, refuses=lambda func, target, partly: "it has no code")
    monkeypatch.setitem(TARGET_KINDS, "gpu-sim", refusing)
    with pytest.raises(
        BuildError, match="serves all sizes: the schedule for n = 317 does not serve .*: it has no code"
    ):
        tw.build(tensors_of(PROGRAMS["relu"]), "gpu-sim")


def test_a_network_with_a_symbolic_batch():
    """Each of its kernels serves all batches."""
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 64, 10),
        torch.nn.LayerNorm(10), torch.nn.Softmax(-1),
    ).eval()  # fmt: skip
    batch = torch.export.Dim("batch", max=64)
    exported = torch.export.export(net, (torch.randn(2, 3, 8, 8),), dynamic_shapes=({0: batch},))
    model = tw.build(tw.from_torch(exported), "gpu-sim")
    for n in (1, 3, 17):
        x = torch.randn(n, 3, 8, 8)
        got = model(x.numpy())
        np.testing.assert_allclose(np.asarray(got), net(x).detach().numpy(), rtol=1e-4, atol=1e-5)
