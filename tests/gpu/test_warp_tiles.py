"""Products on matrix units: the intrinsics, the simulated GPU, and the text for the assembler."""

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen.backend.emitter import EmitError
from tilewright.codegen.lower import run_passes
from tilewright.gpu import GpuError, RaceError
from tilewright.gpu.launch import LAUNCH_PASSES
from tilewright.gpu.ptx import find_ptxas, run_ptxas
from tilewright.gpu.simulation.simulator import simulate
from tilewright.schedule import TensorIntrin
from tilewright.schedule.intrin import LAYOUTS
from tilewright.tir.expr.intrinsics.matrix_operations import rounded_to_tf32
from tilewright.tuner.rules.gpu_matrix_units import MatrixForm, WarpTiles, warp_product

SUMS = {"float16": "float32", "bfloat16": "float32", "float32": "float32", "int8": "int32"}


@pytest.mark.parametrize(
    "name", [*[f"wmma_16x16x16_{t}{layout}" for t in ("f16", "bf16", "tf32", "s8") for layout in ("", "_nt", "_tn", "_tt")],
             *[f"wmma_{step}_16x16_{t}" for step in ("fill", "store") for t in ("f32", "s32")]],
)  # fmt: skip
def test_intrinsics(name):
    TensorIntrin.get(name).check()


def product(m, n, k, dtype):
    a, b = te.placeholder((m, k), dtype, "A"), te.placeholder((k, n), dtype, "B")
    r, out = te.reduce_axis((0, k), name="k"), SUMS[dtype]
    wide = te.round_tf32 if dtype == out else (lambda x: x.astype(out))
    c = te.compute((m, n), lambda i, j: te.sum(wide(a[i, r]) * wide(b[r, j]), axis=r), name="C")
    return te.create_prim_func([a, b, c])


def stored(x, dtype):
    return (x.astype("float32").view("uint32") >> 16).astype("uint16") if dtype == "bfloat16" else x.astype(dtype)


def scheduled(m, n, k, dtype, **sizes):
    s = tw.Schedule(product(m, n, k, dtype))
    warp_product(s, "C", WarpTiles(dtype, **sizes))
    return s


@pytest.mark.parametrize("dtype", SUMS)
@pytest.mark.parametrize(("m", "n", "k", "warps", "tiles"), [(32, 48, 16, (1, 1), (1, 1)), (64, 64, 32, (2, 2), (2, 2)),
                                                            (128, 32, 64, (2, 1), (2, 2))])  # fmt: skip
def test_equal_on_the_simulated_gpu(dtype, m, n, k, warps, tiles):
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (m, k)), rng.integers(-4, 5, (k, n))
    out = np.full((m, n), 77, SUMS[dtype])
    module = tw.build(scheduled(m, n, k, dtype, warps=warps, tiles=tiles, steps=1 if k == 16 else 2), "gpu-sim")
    module(stored(a, dtype), stored(b, dtype), out)
    assert (out == a @ b).all()


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed: pip install nvidia-cuda-nvcc-cu12")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("dtype", SUMS)
def test_assembler_takes_it(dtype, arch):
    (text,) = tw.build(scheduled(128, 128, 64, dtype), f"cuda -arch={arch}").ptx.values()
    assert "wmma.mma.sync.aligned" in text
    (report,), _ = run_ptxas(text, arch)
    assert report.spill_bytes == report.stack_bytes == 0


def test_a_missing_barrier_is_a_race():
    func = scheduled(64, 64, 32, "float16").func
    passes = tuple(p for p in LAUNCH_PASSES if p.name != "place_barriers")
    lowered = run_passes(func, tw.Target("gpu-sim"), passes)
    arrays = [np.ones((64, 32), "float16"), np.ones((32, 64), "float16"), np.ones((64, 64), "float32")]
    with pytest.raises(RaceError, match="reads A_shared.* wrote without a barrier in between"):
        simulate(lowered, dict(zip(lowered.buffers, arrays, strict=True)), {})


def test_a_warp_has_32_threads():
    s = tw.Schedule(product(16, 16, 16, "float16"))
    warp_product(s, "C", WarpTiles("float16", (1, 1), (1, 1), 1))
    text = s.func.script().replace('T.thread_binding(32, thread="threadIdx.x")', "range(32)")
    with pytest.raises(GpuError, match="not all threads of a warp take part in an operation on tiles"):
        tw.build(tw.tir.parse(text), "gpu-sim")(
            np.ones((16, 16), "float16"), np.ones((16, 16), "float16"), np.ones((16, 16), "float32")
        )


def test_a_pipeline_around_tiles():
    s = scheduled(64, 64, 96, "float16")
    outer = next(loop for loop in s.get_loops("C_update_o") if loop.name == "k_0")
    s.annotate(outer, "software_pipeline_stage", [0, 0, 1])
    s.annotate(outer, "software_pipeline_order", [0, 1, 2])
    a, b = np.random.default_rng(0).integers(-4, 5, (2, 64 * 96)).astype("float16")
    a, b, out = a.reshape(64, 96), b.reshape(96, 64), np.zeros((64, 64), "float32")
    tw.build(s, "gpu-sim")(a, b, out)
    assert (out == a.astype("float32") @ b.astype("float32")).all()


TF32 = [(1.0, 1.0), (1 + 2**-10, 1 + 2**-10), (1 + 2**-11, 1 + 2**-10), (-1 - 2**-11, -1 - 2**-10), (1 + 2**-12, 1.0), (0.0, 0.0),
        (np.inf, np.inf), (-np.inf, -np.inf), (np.nan, np.nan), (2.0**-149, 0.0), (3.4028235e38, np.inf)]  # fmt: skip


@pytest.mark.parametrize("target", ["native -num-cores=1", "interpreter", "gpu-sim"])
def test_round_tf32(target):
    """Eleven significant bits, halves away from zero, in vectors and by themselves; the interpreter has the same."""
    given, expected = (np.array(column, "float32") for column in zip(*TF32, strict=True))
    x = te.placeholder(given.shape, name="X")
    func = te.create_prim_func([x, te.compute(given.shape, lambda i: te.round_tf32(x[i]), name="Y")])
    if target == "interpreter":
        out = np.empty_like(given)
        tw.tir.interpret(func, given, out)
    else:
        out = tw.build(func, target)(given)
    np.testing.assert_array_equal(out, expected)


def test_tf32_rounds_what_float32_would_keep():
    rng = np.random.default_rng(1)
    a, b = [rng.standard_normal((32, 32)).astype("float32") for _ in range(2)]
    c = tw.build(product(32, 32, 32, "float32"), "gpu-sim")(a, b)
    short = [rounded_to_tf32(x).astype("float64") for x in (a, b)]
    assert np.abs(c - short[0] @ short[1]).max() < 1e-5 < 1e-3 < np.abs(c - a.astype("float64") @ b).max()


def laid_out(layout, m, n, k, dtype, versions=1):
    """A product of operands that lie as ``layout`` says, by two warps with 32 by 16 sums each."""
    shapes = [(k, m) if layout[0] == "t" else (m, k), (n, k) if layout[1] == "t" else (k, n)]
    a, b = te.placeholder(shapes[0], dtype, "A"), te.placeholder(shapes[1], dtype, "B")
    r, out_type = te.reduce_axis((0, k), name="k"), SUMS[dtype]
    wide = te.round_tf32 if dtype == out_type else (lambda x: x.astype(out_type))
    left = (lambda i: a[r, i]) if layout[0] == "t" else (lambda i: a[i, r])
    right = (lambda j: b[j, r]) if layout[1] == "t" else (lambda j: b[r, j])
    c = te.compute((m, n), lambda i, j: te.sum(wide(left(i)) * wide(right(j)), axis=r), name="C")
    s = tw.Schedule(te.create_prim_func([a, b, c]))
    sizes = WarpTiles(dtype, (1, 2), (2, 1), 2, (4, 4), versions)
    warp_product(s, "C", sizes, form=MatrixForm(layout=layout))
    return s


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", SUMS)
def test_layouts_on_the_simulated_gpu(layout, dtype):
    m, n, k = 64, 96, 64
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (m, k)), rng.integers(-4, 5, (k, n))
    own = [np.ascontiguousarray(x.T if t == "t" else x) for x, t in zip((a, b), layout, strict=True)]
    out = np.full((m, n), 77, SUMS[dtype])
    tw.build(laid_out(layout, m, n, k, dtype, versions=2), "gpu-sim")(*[stored(x, dtype) for x in own], out)
    assert (out == a @ b).all()


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed: pip install nvidia-cuda-nvcc-cu12")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", SUMS)
def test_assembler_takes_layouts(layout, dtype):
    """Loads and products of PTX agree on which operand lies as columns."""
    (text,) = tw.build(laid_out(layout, 64, 64, 64, dtype), "cuda -arch=sm_80").ptx.values()
    a, b = ["col" if t == "t" else "row" for t in layout]
    for words in (
        f"wmma.load.a.sync.aligned.{a}.",
        f"wmma.load.b.sync.aligned.{b}.",
        f"wmma.mma.sync.aligned.{a}.{b}.",
    ):
        assert words in text
        assert text.count(words) == text.count(words.split(".aligned")[0])
    (report,), _ = run_ptxas(text, "sm_80")
    assert report.spill_bytes == report.stack_bytes == 0


KEPT = """
@T.prim_func
def kept(A: T.Buffer((16, 16), "float16"), B: T.Buffer((16, 16), "float16"), C: T.Buffer((16, 16), "float32")):
    b = T.alloc_buffer((16, 16), "float16", scope="wmma.matrix_b")
    c = T.alloc_buffer((16, 16), scope="wmma.accumulator")
    for x in T.thread_binding(32, thread="threadIdx.x"):
        b.vstore([0, 0], T.LOAD("float16x256", T.address_of(B[0, 0]), 16))
        c.vstore([0, 0], T.Broadcast(T.float32(0), 256))
        c.vstore([0, 0], T.wmma_dot(
            c.vload([0, 0], "float32x256"), T.wmma_load_a("float16x256", T.address_of(A[0, 0]), 16),
            b.vload([0, 0], "float16x256"),
        ))
        T.evaluate(T.wmma_store(T.address_of(C[0, 0]), 16, c.vload([0, 0], "float32x256")))
"""


def test_registers_do_not_say_how_operands_lie():
    """An operand that lies transposed is loaded where it is multiplied: PTX leaves open how registers hold it."""
    a, b = np.random.default_rng(0).integers(-4, 5, (2, 16, 16)).astype("float16")
    for load, right in (("wmma_load_b", b), ("wmma_load_b_t", b.T)):
        func, out = tw.tir.parse(KEPT.replace("LOAD", load)), np.empty((16, 16), "float32")
        tw.build(func, "gpu-sim")(a, b, out)
        assert (out == a @ right).all()
    assert "wmma.mma" in tw.build(tw.tir.parse(KEPT.replace("LOAD", "wmma_load_b")), "cuda").get_source()
    with pytest.raises(EmitError, match="wmma_load_b_t stands in a product; registers of b don't say"):
        tw.build(tw.tir.parse(KEPT.replace("LOAD", "wmma_load_b_t")), "cuda").get_source()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_awkward_numbers(layout):
    """Products of infinities, NaN, zeros with a sign and the ends of the type, wherever operands lie."""
    rng = np.random.default_rng(0)
    a, b = rng.choice([0.0, -0.0, 1.0, -3.0, 65504.0, -65504.0, 2.0**-24, np.inf, -np.inf, np.nan], (2, 32, 32),
                      p=[0.2, 0.2, 0.2, 0.2, 0.05, 0.05, 0.085, 0.005, 0.005, 0.005]).astype("float16")  # fmt: skip
    own = [np.ascontiguousarray(x.T if t == "t" else x) for x, t in zip((a, b), layout, strict=True)]
    out = np.empty((32, 32), "float32")
    tw.build(laid_out(layout, 32, 32, 32, "float16"), "gpu-sim")(*own, out)
    a, b = a.astype("float64"), b.astype("float64")
    with np.errstate(invalid="ignore"):
        expected, size = a @ b, abs(a) @ abs(b)
    finite = np.isfinite(expected)
    assert np.isnan(expected).any() and np.isinf(expected).any() and finite.any()
    np.testing.assert_array_equal(out[~finite], expected[~finite])
    assert (abs(out[finite] - expected[finite]) <= 1e-6 * size[finite]).all()


@pytest.mark.parametrize("layout", ["nt", "tn", "tt"])
def test_a_missing_barrier_is_a_race_in_each_layout(layout):
    func = laid_out(layout, 32, 32, 32, "float16").func
    passes = tuple(p for p in LAUNCH_PASSES if p.name != "place_barriers")
    lowered = run_passes(func, tw.Target("gpu-sim"), passes)
    arrays = [np.ones((32, 32), "float16"), np.ones((32, 32), "float16"), np.ones((32, 32), "float32")]
    with pytest.raises(RaceError, match="reads A_shared.* wrote without a barrier in between"):
        simulate(lowered, dict(zip(lowered.buffers, arrays, strict=True)), {})
