"""Products as people write them: for two architectures, each product of 16-bit types is one on matrix units, without a spill."""

import math

import numpy as np
import pytest

pytest.importorskip("onnx")  # it brings ml_dtypes

import ml_dtypes  # noqa: E402
from onnx import TensorProto, numpy_helper  # noqa: E402

import tilewright as tw  # noqa: E402
from tilewright import te  # noqa: E402
from tilewright.gpu.ptx import find_ptxas, run_ptxas  # noqa: E402
from tilewright.graph import fuse  # noqa: E402
from tilewright.tuner import Space  # noqa: E402
from tilewright.tuner.cost.axis_roles import product_axes  # noqa: E402
from tilewright.tuner.program import ProgramInfo  # noqa: E402

from ..graph.network_models import resnet, transformer  # noqa: E402

ops = te.ops


def linear(after, dtype="float16", rows=512):
    x, w, b = (
        te.placeholder((rows, 256), dtype, "x"),
        te.placeholder((512, 256), dtype, "w"),
        te.placeholder((512,), dtype, "b"),
    )
    return [x, w, b, after(ops.dense(x, w, b))]


def product(m, n, k, lead=(), **turned):
    a = te.placeholder((*lead, *((k, m) if turned.get("transpose_a") else (m, k))), "float16", "a")
    b = te.placeholder((*lead, *((n, k) if turned.get("transpose_b") else (k, n))), "float16", "b")
    return [a, b, ops.matmul(a, b, **turned)]


def projections():
    x, *weights = [te.placeholder((256, 256), "float16", name) for name in "xuvw"]
    return [x, *weights, *[ops.dense(x, w, name=f"p{n}") for n, w in enumerate(weights)]]


def gated(rows=256, columns=512):
    x = te.placeholder((rows, 256), "float16", "x")
    u, v = (te.placeholder((columns, 256), "float16", name) for name in "uv")
    return [x, u, v, ops.multiply(ops.silu(ops.dense(x, u)), ops.dense(x, v))]


def conv(layout, stride=1, dilation=1, groups=1, k=3, padding=1, channels=64):
    first = layout == "NCHW"
    x = te.placeholder((2, channels, 28, 28) if first else (2, 28, 28, channels), "bfloat16", "x")
    w = te.placeholder((64, channels // groups, k, k) if first else (k, k, channels // groups, 64), "bfloat16", "w")
    return [x, w, ops.conv2d(x, w, stride, padding, dilation, groups=groups, layout=layout)]


def einsum(equation, *shapes):
    a, b = (te.placeholder(shape, "float16", name) for shape, name in zip(shapes, "ab", strict=True))
    return [a, b, ops.einsum(equation, a, b)]


def widened(equation, *shapes, dtype="float16"):
    a, b = (te.placeholder(shape, dtype, name) for shape, name in zip(shapes, "ab", strict=True))
    return [a, b, ops.einsum(equation, ops.cast(a, "float32"), ops.cast(b, "float32"))]


def mixed(m, n, k, left, right, out=None, transpose_b=True):
    a, b = te.placeholder((m, k), left, "a"), te.placeholder((n, k) if transpose_b else (k, n), right, "b")
    return [a, b, ops.matmul(a, b, False, transpose_b, out)]


def of_zero_points(left="uint8", right="int8", m=512, n=512, k=512, staged=True, turned=True):
    """Products of bytes less a zero point of all rows, and one for each column, scaled at the end."""
    a, b = te.placeholder((m, k), left, "a"), te.placeholder((n, k) if turned else (k, n), right, "b")
    y, z = te.placeholder((1,), left, "y"), te.placeholder((n,), right, "z")
    less_a, less_b = (
        lambda i, j: as_int32(a[i, j]) - as_int32(y[0]),
        lambda i, j: as_int32(b[i, j]) - as_int32(z[i if turned else j]),
    )
    if staged:
        less_a, less_b = te.compute(a.shape, less_a, "less_a"), te.compute(b.shape, less_b, "less_b")
    r = te.reduce_axis((0, k))
    total = te.compute(
        (m, n),
        lambda i, j: te.sum(less_a(i, r.var) * (less_b(j, r.var) if turned else less_b(r.var, j)), axis=r),
        "total",
    )
    return [a, y, b, z, te.compute((m, n), lambda i, j: total[i, j].astype("float32") * 0.5, "out")]


def as_int32(x):
    return x.astype("int32")


def conv_of_zero_points():
    x, w = te.placeholder((16, 28, 28, 64), "uint8", "x"), te.placeholder((3, 3, 64, 64), "uint8", "w")
    around = ops.pad(x, [0, 1, 1, 0], [0, 1, 1, 0], te.const(7, "uint8"))
    ry, rx, rc = te.reduce_axis((0, 3)), te.reduce_axis((0, 3)), te.reduce_axis((0, 64))
    of = lambda n, i, j, c: (as_int32(around[n, i + ry, j + rx, rc]) - 7) * (as_int32(w[ry, rx, rc, c]) - 9)  # noqa: E731
    return [x, w, te.compute((16, 28, 28, 64), lambda *at: te.sum(of(*at), axis=[ry, rx, rc]))]


def weights_of_bytes(dtype):
    x, w, r = te.placeholder((256, 512), dtype, "x"), te.placeholder((256, 512), "int8", "w"), te.reduce_axis((0, 512))
    wide = ops.cast(w, "float32")
    return [x, w, te.compute((256, 256), lambda i, j: te.sum(x[i, r].astype("float32") * wide[j, r], axis=r))]


def masked(depth=64, queries=256, shape=(256, 256), dtype="bool", **options):
    q, k, v = (
        te.placeholder((8, n, depth), "bfloat16", name)
        for n, name in ((queries, "q"), (shape[-1], "k"), (shape[-1], "v"))
    )
    m = te.placeholder(shape, dtype, "m")
    return [q, k, v, m, ops.attention(q, k, v, m, **options)]


FORMS = {
    "linear, gelu": (lambda: linear(ops.gelu), 1),
    "linear, relu, bfloat16": (lambda: linear(ops.relu, "bfloat16"), 1),
    "linear, float32": (lambda: linear(lambda y: ops.cast(y, "float32")), 1),
    "linear of 100 rows": (lambda: linear(ops.relu, rows=100), 1),
    **{f"{a}{b}": (lambda a=a, b=b: product(256, 256, 256, transpose_a=a == "t", transpose_b=b == "t"), 1) for a in "nt" for b in "nt"},
    "batches": (lambda: product(100, 130, 72, (3, 4)), 1),
    "projections": (projections, 3),
    "gated": (gated, 2),
    "gated, other sizes": (lambda: gated(100, 500), 2),
    "split heads": (lambda: einsum("bqhd,bkhd->bhqk", (2, 128, 4, 64), (2, 128, 4, 64)), 1),
    "several axes": (lambda: einsum("xiqr,qrhj->xhij", (4, 32, 8, 16), (8, 16, 4, 32)), 1),
    "NCHW": (lambda: conv("NCHW"), 1), "NHWC": (lambda: conv("NHWC"), 1),
    "strides": (lambda: conv("NCHW", stride=2), 1), "dilation": (lambda: conv("NHWC", dilation=2, padding=2), 1),
    "groups": (lambda: conv("NCHW", groups=4), 1), "1x1": (lambda: conv("NCHW", k=1, padding=0), 1),
    "stages that widen": (lambda: widened("bqhd,bkhd->bhqk", (2, 128, 4, 64), (2, 128, 4, 64)), 1),
    "stages that widen, bfloat16": (lambda: widened("ik,jk->ij", (250, 100), (130, 100), dtype="bfloat16"), 1),
    "float8": (lambda: mixed(256, 256, 512, "float8_e4m3fn", "float8_e4m3fn", "float16"), 1),
    "float8, by rows": (lambda: mixed(100, 130, 200, "float8_e5m2", "float8_e5m2", "float32", False), 1),
    "float16 by int8": (lambda: weights_of_bytes("float16"), 1), "bfloat16 by int8": (lambda: weights_of_bytes("bfloat16"), 1),
    "uint8": (lambda: mixed(256, 256, 256, "uint8", "uint8"), 1),
    "zero points": (of_zero_points, 1), "zero points, in the product": (lambda: of_zero_points(staged=False), 1),
    "zero points of uint8, by rows": (lambda: of_zero_points(right="uint8", turned=False), 1),
    "zero points of a convolution": (conv_of_zero_points, 1),
    "three channels": (lambda: conv("NCHW", k=7, padding=3, stride=2, channels=3), 1),
}  # fmt: skip
"""Programs by name, with the number of their products."""

ATTENTION = {
    "boolean mask": masked,
    "added mask": lambda: masked(dtype="float32"),
    "other lengths": lambda: masked(queries=100, shape=(100, 200)),
    "80 features, causal": lambda: masked(80, causal=True),
    "128 features": lambda: masked(128, dtype="float32"),
}


def without_spills(module, arch):
    assert find_ptxas() is None or all(
        report.spill_bytes == 0 for text in module.ptx.values() for report in run_ptxas(text, arch)[0]
    )


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_each_product_is_on_matrix_units(name, arch):
    make, products = FORMS[name]
    module = tw.build(make(), f"cuda -arch={arch}")
    text = "\n".join(module.ptx.values())
    kernels = [part for part in text.split(".entry")[1:] if "wgmma.mma_async" in part or "wmma.mma.sync" in part]
    assert len(kernels) == products
    without_spills(module, arch)


@pytest.mark.parametrize("name", ATTENTION)
def test_attention_is_one_kernel_of_warp_groups(name):
    module = tw.build(ATTENTION[name](), "cuda -arch=sm_90a")
    assert sum(len(kernels) for kernels in module.kernels.values()) == 1
    assert "wgmma.mma_async" in module.get_source()
    without_spills(module, "sm_90a")


@pytest.mark.parametrize("groups", range(1, 9))
@pytest.mark.parametrize("keys", [64, 128, 256])
@pytest.mark.parametrize(("causal", "window"), [(False, None), (True, 100)])
def test_attention_for_any_number_of_warp_groups(groups, keys, causal, window):
    """Rows of a tile that the groups do not share evenly are copied under a condition, beside loops whose length depends on the block."""
    shape, rng = (1, 320, 64), np.random.default_rng(groups)
    s = tw.Schedule(
        te.create_prim_func(
            [
                *(x := [te.placeholder(shape, "float16", name) for name in "qkv"]),
                ops.attention(*x, causal=causal, window=window),
            ]
        )
    )
    if keys == 256 and groups > 3 or keys == 128 and groups > 5:
        with pytest.raises(tw.ScheduleError, match=f"each has {65536 // (128 * groups) // 8 * 8} in {groups} groups"):
            s.online_softmax("attention", groups=groups, keys=keys)
        return
    s.online_softmax("attention", groups=groups, keys=keys)
    q, k, v = (rng.standard_normal(shape).astype("float16") for _ in "qkv")
    out = np.zeros(shape, "float16")
    tw.build(s, "gpu-sim -arch=sm_90a")(q, k, v, out)
    scores, away = (
        q.astype("float64") @ k.astype("float64").transpose(0, 2, 1) / 8,
        np.arange(320)[:, None] - np.arange(320),
    )
    seen = (away >= 0 if causal else away == away) & (away < (window or 320))
    weights = np.where(seen, np.exp(scores), 0)
    np.testing.assert_allclose(
        out, weights @ v.astype("float64") / weights.sum(-1, keepdims=True), rtol=2e-3, atol=3e-3
    )


@pytest.mark.parametrize(("groups", "keys"), [(5, 128), (8, 64)])
def test_ptxas_takes_what_fits(groups, keys):
    x = [te.placeholder((1, 512, 64), "float16", name) for name in "qkv"]
    s = tw.Schedule(te.create_prim_func([*x, ops.attention(*x, causal=True)]))
    s.online_softmax("attention", groups=groups, keys=keys)
    for text in tw.build(s, "cuda -arch=sm_90a").ptx.values():
        assert "wgmma.mma_async" in text
        if find_ptxas() is not None:
            run_ptxas(text, "sm_90a")


@pytest.mark.parametrize("target", ["gpu-sim", "gpu-sim -arch=sm_90a"])
def test_a_gated_layer(target):
    """The second product takes the stage that reads both, and the first one's sums are in memory by then."""
    rng = np.random.default_rng(0)
    x, u, v = (rng.standard_normal((n, 256)).astype("float16") / 16 for n in (100, 72, 72))
    out = np.zeros((100, 72), "float16")
    tw.build(gated(100, 72), target)(x, u, v, out)
    a, b = (x.astype("float64") @ w.astype("float64").T for w in (u, v))
    np.testing.assert_allclose(out, a / (1 + np.exp(-a)) * b, rtol=4e-3, atol=1e-3)


def numbers(rng, shape, dtype):
    """Small integers, or all bytes; and the numbers that they stand for."""
    if dtype.endswith("int8"):
        found = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)
    else:
        own = np.dtype(dtype) if dtype.startswith("float1") else np.dtype(getattr(ml_dtypes, dtype))
        found = rng.integers(-4, 5, shape).astype(own)
    return found, found.astype("float64")


@pytest.mark.parametrize("shape", [(64, 64, 128), (50, 70, 90)])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("left", "right", "out"),
    [("float8_e4m3fn", "float8_e4m3fn", "float32"), ("float8_e5m2", "float8_e5m2", "float16"), ("uint8", "uint8", None),
     ("int8", "int8", None)],
)  # fmt: skip
def test_products_of_bytes_are_exact(left, right, out, turned, shape):
    rng, (m, n, k) = np.random.default_rng(0), shape
    (a, exact_a), (b, exact_b) = numbers(rng, (m, k), left), numbers(rng, (n, k) if turned else (k, n), right)
    found = np.zeros((m, n), out or "int32")
    module = tw.build(mixed(m, n, k, left, right, out, turned), "gpu-sim")
    module(a, b, found)
    assert "wmma_dot" in module.get_source("lowered")
    np.testing.assert_array_equal(found, exact_a @ (exact_b.T if turned else exact_b))


def test_float8_of_every_kind_is_multiplied():
    """Each of the 256 bytes once in a row; subnormal numbers and the largest are exact in float16, and NaN and infinities are kept."""
    for dtype in ("float8_e4m3fn", "float8_e5m2"):
        codes = np.arange(256, dtype="uint8").view(getattr(ml_dtypes, dtype))
        a, b = np.zeros((256, 16), codes.dtype), np.eye(16, dtype="float32").astype(codes.dtype)
        a[:, 0] = codes
        out = np.zeros((256, 16), "float32")
        tw.build(mixed(256, 16, 16, dtype, dtype, "float32", False), "gpu-sim")(a, b, out)
        with np.errstate(invalid="ignore"):
            wanted = a.astype("float32") @ b.astype("float32")
        np.testing.assert_array_equal(out, wanted)


def few_results(dtype="float16"):
    x, w, b = (
        te.placeholder((32, 8192), dtype, "x"),
        te.placeholder((48, 8192), dtype, "w"),
        te.placeholder((48,), dtype, "b"),
    )
    return [x, w, b, ops.relu(ops.dense(x, w, b))]


@pytest.mark.parametrize("target", ["gpu-sim", "gpu-sim -arch=sm_90a"])
def test_few_results_of_many_steps_are_added_up_in_parts(target):
    rng = np.random.default_rng(0)
    x, w, b = (rng.integers(-2, 3, shape).astype("float16") for shape in ((32, 8192), (48, 8192), (48,)))
    module, out = tw.build(few_results(), target), np.zeros((32, 48), "float16")
    module(x, w, b, out)
    text = module.get_source("lowered")
    assert "_rf" in text and "wmma_dot" in text
    np.testing.assert_array_equal(out, np.maximum(x.astype("float64") @ w.astype("float64").T + b, 0))


@pytest.mark.parametrize(("left", "right"), [("uint8", "int8"), ("int8", "uint8")])
@pytest.mark.parametrize("shape", [(64, 128, 96), (50, 70, 90)])
def test_bytes_of_both_signs(left, right, shape):
    """The candidates that multiply int8 alone, and correct the sums, are exact whether or not the model prefers them."""
    rng, (m, n, k) = np.random.default_rng(0), shape
    func = te.create_prim_func(mixed(m, n, k, left, right))
    space = Space(func, "gpu-sim")
    sketch = next(s for s in space.sketches if s.name.endswith("warps_matmul_signed"))
    (a, exact_a), (b, exact_b) = numbers(rng, (m, k), left), numbers(rng, (n, k), right)
    out = np.zeros((m, n), "int32")
    module = tw.build(space.schedule(sketch, sketch.best_rows(1)[0]), "gpu-sim")
    module(a, b, out)
    assert "wmma_dot" in module.get_source("lowered")
    np.testing.assert_array_equal(out, exact_a @ exact_b.T)


def test_bytes_of_both_signs_are_multiplied_as_one():
    module = tw.build(mixed(512, 512, 512, "uint8", "int8"), "cuda")
    assert "wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.s8" in module.get_source()


@pytest.mark.parametrize(
    ("left", "right", "m", "n", "k", "staged", "turned"),
    [("uint8", "int8", 50, 70, 90, True, True), ("int8", "int8", 64, 32, 48, False, False),
     ("uint8", "uint8", 33, 40, 64, True, False), ("int8", "uint8", 64, 64, 64, False, True)],
)  # fmt: skip
def test_zero_points_are_taken_out(left, right, m, n, k, staged, turned):
    """Each candidate on matrix units is exact, whichever sign the factors have."""
    func = te.create_prim_func(of_zero_points(left, right, m, n, k, staged, turned))
    space, rng = Space(func, "gpu-sim"), np.random.default_rng(0)
    (a, exact_a), (y, exact_y), (b, exact_b), (z, exact_z) = (
        numbers(rng, shape, dtype) for shape, dtype in (((m, k), left), (1, left), ((n, k) if turned else (k, n), right), (n, right))
    )  # fmt: skip
    sketch = next(s for s in space.sketches if "warps" in s.name)
    out = np.zeros((m, n), "float32")
    module = tw.build(space.schedule(sketch, sketch.best_rows(1)[0]), "gpu-sim")
    module(a, y, b, z, out)
    assert "wmma_dot" in module.get_source("lowered")
    other = (exact_b - exact_z[:, None]).T if turned else exact_b - exact_z
    np.testing.assert_array_equal(out, ((exact_a - exact_y) @ other * 0.5).astype("float32"))


@pytest.mark.parametrize("axis", ["blockIdx.y", "blockIdx.z"])
def test_more_blocks_than_an_axis_has_run_along_x(axis):
    a = te.placeholder((65_540, 3), "int32", "a")
    s = tw.Schedule(te.create_prim_func([a, te.compute((65_540, 3), lambda i, j: a[i, j] + 3 * i + j, name="c")]))
    i, j = s.get_loops("c")
    s.bind(i, axis)
    s.bind(j, "blockIdx.x")
    module = tw.build(s, "gpu-sim")
    assert axis not in module.get_source("lowered")
    x, out = np.zeros((65_540, 3), "int32"), np.zeros((65_540, 3), "int32")
    module(x, out)
    np.testing.assert_array_equal(out.reshape(-1), np.arange(3 * 65_540))


def test_more_batches_than_an_axis_has_blocks():
    module = tw.build(product(16, 16, 16, (70_000,)), "cuda")
    (kernels,) = module.kernels.values()
    assert "wmma.mma.sync" in module.get_source() and [k.grid[1:] for k in kernels] == [(1, 1)]


def of_halves(model):
    """A model of float32 with its inputs, results and weights in float16."""
    for w in model.graph.initializer:
        if w.data_type == TensorProto.FLOAT:
            w.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(w).astype("float16"), w.name))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    return model


@pytest.mark.parametrize(
    ("model", "products"), [(lambda: transformer(128, 256, 4, 1), 8), (lambda: resnet((64, 128), 1, 64), 5)]
)
def test_kernels_of_networks(model, products):
    """Each kernel of a network of float16 that multiplies matrices of some size does so on matrix units; no kernel spills."""
    counted = 0
    for kernel in fuse(tw.from_onnx(of_halves(model()))).kernels:
        module = tw.build(kernel.func, "cuda -arch=sm_90a")
        sizes = [roles.sizes(b) for b in ProgramInfo(kernel.func).blocks if (roles := product_axes(b)) is not None]
        text = module.get_source()
        if sizes and min(sizes[0][1:]) >= 16 and math.prod(sizes[0]) >= 2**21:
            assert "wgmma.mma_async" in text or "wmma.mma.sync" in text, kernel.name
            counted += 1
        without_spills(module, "sm_90a")
    assert counted == products
