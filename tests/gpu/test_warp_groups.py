"""Products of warp groups (wgmma of sm_90a): the intrinsics, the simulated GPU, the text for the assembler, what is refused."""

import re

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
from tilewright.tir.expr.intrinsics.matrix_operations import GROUP_ROWS
from tilewright.tuner.loop_steps import copy_ahead, loops_within
from tilewright.tuner.rules.gpu_matrix_units import (
    GroupTiles,
    MatrixForm,
    group_product,
    out_at,
    store_tiles,
    tiles_on_blocks,
)


@pytest.mark.parametrize(
    "name", ["wgmma_64x64x64_f16", "wgmma_fill_64x64", "wgmma_store_64x128", "wgmma_64x64x64_bf16_nt",
             "wgmma_64x64x64_bf16_tn", "wgmma_64x128x64_f16_tt", "wgmma_64x64x128_e4m3_nt", "wgmma_64x64x128_e5m2_nt"],
)  # fmt: skip
def test_intrinsics(name):
    TensorIntrin.get(name).check(1)


def wide(x):
    return x.astype("float32")


def scheduled(m, n, k, dtype="float16", **sizes):
    a, b = te.placeholder((m, k), dtype, "A"), te.placeholder((k, n), dtype, "B")
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((m, n), lambda i, j: te.sum(wide(a[i, r]) * wide(b[r, j]), axis=r), name="C")
    s = tw.Schedule(te.create_prim_func([a, b, c]))
    group_product(s, "C", GroupTiles(dtype, **sizes))
    return s


def stored(x, dtype):
    return (x.astype("float32").view("uint32") >> 16).astype("uint16") if dtype == "bfloat16" else x.astype(dtype)


SIZES = [
    ("float16", (256, 256, 192), {"groups": (2, 1), "columns": 128, "versions": 2}),
    ("bfloat16", (64, 128, 64), {"groups": (1, 2), "columns": 64}),
    ("float16", (128, 64, 256), {"groups": (1, 1), "rows": 2, "columns": 64, "versions": 3}),
    ("bfloat16", (64, 192, 128), {"groups": (1, 1), "columns": 192, "versions": 2}),
]


@pytest.mark.parametrize(("dtype", "shape", "sizes"), SIZES)
def test_equal_on_the_simulated_gpu(dtype, shape, sizes):
    m, n, k = shape
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (m, k)), rng.integers(-4, 5, (k, n))
    out = np.full((m, n), np.nan, "float32")
    tw.build(scheduled(m, n, k, dtype, **sizes), "gpu-sim")(stored(a, dtype), stored(b, dtype), out)
    assert (out == a @ b).all()


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed: pip install nvidia-cuda-nvcc-cu12")
@pytest.mark.parametrize(("dtype", "shape", "sizes"), SIZES)
def test_assembler_takes_it(dtype, shape, sizes):
    (text,) = tw.build(scheduled(*shape, dtype, **sizes), "cuda -arch=sm_90a").ptx.values()
    word = {"float16": "f16", "bfloat16": "bf16"}[dtype]
    assert f"m64n{sizes['columns']}k16.f32.{word}.{word}" in text and "fence.proxy.async.shared::cta" in text
    (report,), _ = run_ptxas(text, "sm_90a")
    assert report.spill_bytes == report.stack_bytes == 0


def test_descriptors_and_addresses():
    """Pieces of 16 bytes change places by the row's number; a descriptor says rows of 128 bytes, eight of them 1024 bytes
    behind the ones before, and panels of 64 columns 8192 bytes apart."""
    ir = tw.build(scheduled(64, 128, 64, columns=128, groups=(1, 1)), "cuda -arch=sm_90a").get_source("ir")
    left, right = 1 << 62 | 64 << 32 | 1 << 16, 1 << 62 | 64 << 32 | 512 << 16
    assert f", {left}\n" in ir and f", {right}\n" in ir
    assert re.search(r"lshr i64 %\w+, 3\n.*and i64 %\w+, 112\n(.*\n)*?.*xor i64", ir)
    assert "align 1024" in ir


def test_the_model_chooses_it_where_the_architecture_has_it():
    s = scheduled(64, 64, 64, groups=(1, 1), columns=64)
    func = te.create_prim_func(_large())
    assert "wgmma_dot" in tw.build(func, "gpu-sim -arch=sm_90a").get_source()
    with pytest.raises(EmitError, match=r"wgmma_left needs -arch=sm_90a; the target has sm_80"):
        tw.build(s, "cuda").get_source()


def _large():
    a, b = te.placeholder((1024, 1024), "float16", "A"), te.placeholder((1024, 1024), "float16", "B")
    r = te.reduce_axis((0, 1024), name="k")
    return [a, b, te.compute((1024, 1024), lambda i, j: te.sum(wide(a[i, r]) * wide(b[r, j]), axis=r), name="C")]


def run(text):
    a, b = np.ones((64, 128), "float16"), np.ones((128, 64), "float16")
    tw.build(tw.tir.parse(text), "gpu-sim")(a, b, np.empty((64, 64), "float32"))


def script(versions=1):
    return scheduled(64, 64, 128, groups=(1, 1), columns=64, versions=versions).func.script()


def without(word, text, put=""):
    return "\n".join(line if word not in line else put for line in text.split("\n"))


WRONG = [
    ("no fence", lambda: without("T.wgmma_fence(", script()),
     "a product begins on C_wgmma_accumulator, which changed since the last T.wgmma_fence"),
    ("no wait", lambda: without("T.wgmma_wait(", script()), "which a product still"),
    ("a wait for too few", lambda: re.sub(r"(T\.wgmma_wait\(.*), 0\)", r"\1, 1)", script()), "which a product still"),
    ("no group of threads", lambda: script().replace('T.thread_binding(128, thread="threadIdx.x")', "range(128)"),
     "not all threads of a warp group take part in an operation on tiles; threadIdx.x has to be 128 long"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_what_the_simulated_gpu_finds(text, words):
    with pytest.raises(GpuError, match=re.escape(words)):
        run(text())


def test_the_text_as_it_is_runs():
    run(script())
    run(script(2))


def test_a_missing_barrier_is_a_race():
    func = scheduled(64, 64, 128, groups=(1, 1), columns=64).func
    passes = tuple(p for p in LAUNCH_PASSES if p.name != "place_barriers")
    lowered = run_passes(func, tw.Target("gpu-sim"), passes)
    arrays = [np.ones((64, 128), "float16"), np.ones((128, 64), "float16"), np.ones((64, 64), "float32")]
    with pytest.raises(RaceError, match="A_shared.* without a barrier in between"):
        simulate(lowered, dict(zip(lowered.buffers, arrays, strict=True)), {})


def test_operands_stay_until_the_wait():
    """A copy into the version that products read, before they are done, is a race."""
    text = re.sub(r"(T\.wgmma_wait\(.*), 0\)", r"\1, 2)", script())
    with pytest.raises(RaceError, match="which a product still"):
        run(text)


IN_FLIGHT = [
    ("float16", (64, 64, 256), {"groups": (1, 1), "columns": 64, "versions": 3, "in_flight": True}),
    ("bfloat16", (128, 64, 256), {"groups": (1, 1), "rows": 2, "columns": 64, "versions": 4, "in_flight": True}),
    ("float16", (128, 128, 192), {"groups": (2, 1), "columns": 128, "versions": 3, "in_flight": True}),
]
"""Products of a step that go on during the next one."""


@pytest.mark.parametrize(("dtype", "shape", "sizes"), IN_FLIGHT)
def test_products_in_flight(dtype, shape, sizes):
    test_equal_on_the_simulated_gpu(dtype, shape, sizes)
    text = tw.build(scheduled(*shape, dtype, **sizes), "gpu-sim").get_source("lowered")
    loop, ends = (
        text.split("for k_0 in range(")[1].split("T.evaluate(T.wgmma_store")[0],
        "wgmma_wait(C_wgmma_accumulator",
    )
    waits = [line for line in loop.split("\n") if ends in line]
    steps = sizes["versions"] - 1  # one in the loop, the others behind it
    assert [line.rstrip()[-2] for line in waits] == ["1"] * steps + ["0"]
    assert f"A_shared_swizzled = T.decl_buffer(({sizes['versions']}, " in text


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed: pip install nvidia-cuda-nvcc-cu12")
@pytest.mark.parametrize(("dtype", "shape", "sizes"), IN_FLIGHT)
def test_products_in_flight_are_not_taken_one_by_one(dtype, shape, sizes):
    """The assembler warns of products that it awaits one by one, because other instructions touch their registers."""
    (text,) = tw.build(scheduled(*shape, dtype, **sizes), "cuda -arch=sm_90a").ptx.values()
    assert "wgmma.wait_group.sync.aligned 1" in text
    (report,), _ = run_ptxas(text, "sm_90a")
    assert report.spill_bytes == report.stack_bytes == 0 and report.warnings == ()
    touched = text.replace("wgmma.wait_group.sync.aligned 1", "wgmma.wait_group.sync.aligned 7")
    touched = re.sub(r"wgmma.wait_group.sync.aligned 0", "wgmma.wait_group.sync.aligned 7", touched)
    assert any("serialized" in warning for warning in run_ptxas(touched, "sm_90a")[0][0].warnings)


def lowered_in_flight(versions=3):
    return tw.build(
        scheduled(64, 64, 256, groups=(1, 1), columns=64, versions=versions, in_flight=True), "gpu-sim"
    ).get_source("lowered")


@pytest.mark.parametrize(("old", "new", "words"), [
    ("(k_0 + 1) % 3", "(k_0 + 2) % 3", "which a product still reads"),
    (", 0)\n", ", 1)\n", "uses C_wgmma_accumulator, which a product still changes"),
], ids=["the version of the step before", "sums before the last wait"])  # fmt: skip
def test_what_comes_too_early(old, new, words):
    text = lowered_in_flight()
    assert old in text
    if "wgmma" in words:
        text = "\n".join(line.replace(", 0)", ", 1)") if "wgmma_wait" in line else line for line in text.split("\n"))
    func = tw.tir.parse(text if "wgmma" in words else text.replace(old, new))
    arrays = [np.ones((64, 256), "float16"), np.ones((256, 64), "float16"), np.ones((64, 64), "float32")]
    with pytest.raises(RaceError, match=words):
        simulate(func, dict(zip(func.buffers, arrays, strict=True)), {})


def test_sectors_that_blocks_share_count_once():
    """Forty blocks read the same two lines: memory moves them once, caches forty times; the first blocks alone are counted."""
    x, y = te.placeholder((256,), name="X"), te.placeholder((256,), name="Y")
    z = te.compute((40, 256), lambda i, j: x[j] + y[j], name="Z")
    s = tw.Schedule(te.create_prim_func([x, y, z]))
    i, j = s.get_loops("Z")
    s.bind(i, "blockIdx.x")
    s.bind(j, "threadIdx.x")
    arrays = [np.ones(256, "float32"), np.ones(256, "float32"), np.empty((40, 256), "float32")]
    (counts,) = tw.build(s, "gpu-sim")["main"].bind(*arrays).counted()
    assert counts["memory_bytes"] == 4 * (256 + 256 + 40 * 256) and counts["l2_bytes"] == 4 * 3 * 40 * 256


def test_long_reductions_take_one_barrier_a_step():
    """The loop over steps is not listed, so that its length decides nothing."""
    n = 8192
    a, b = te.placeholder((n, n), "float16", "A"), te.placeholder((n, n), "float16", "B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k].astype("float32") * b[k, j].astype("float32"), axis=k), name="C")
    sch = tw.Schedule(te.create_prim_func([a, b, c]))
    group_product(sch, "C", GroupTiles("float16", (2, 1), 1, 256, 4, True))
    text = tw.codegen.compile(sch.func, "cuda -arch=sm_90a").get_source()
    steps = text[text.index("$L__BB0_1:") : text.index("bra \t$L__BB0_1")]
    assert steps.count("bar.sync") == 1 and steps.count("cp.async.cg.shared.global") == 12
    assert "ld.global" not in steps


def laid_out(layout, m, n, k, dtype="float16", groups=(1, 1), rows=1, columns=64, versions=1, in_flight=False):
    """A product of operands that lie as ``layout`` says, 16 bytes of each copied at a time to where products read them."""
    shapes = [(k, m) if layout[0] == "t" else (m, k), (n, k) if layout[1] == "t" else (k, n)]
    a, b = te.placeholder(shapes[0], dtype, "A"), te.placeholder(shapes[1], dtype, "B")
    r = te.reduce_axis((0, k), name="k")
    left = (lambda i: a[r, i]) if layout[0] == "t" else (lambda i: a[i, r])
    right = (lambda j: b[j, r]) if layout[1] == "t" else (lambda j: b[r, j])
    c = te.compute((m, n), lambda i, j: te.sum(wide(left(i)) * wide(right(j)), axis=r), name="C")
    s = tw.Schedule(te.create_prim_func([a, b, c]))
    sizes = GroupTiles(dtype, groups, rows, columns, versions, in_flight)
    group_product(s, "C", sizes, form=MatrixForm(layout=layout))
    return s


def operands(layout, m, n, k, dtype):
    """Operands as they are stored, and their product."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (m, k)), rng.integers(-4, 5, (k, n))
    own = [np.ascontiguousarray(x.T if t == "t" else x) for x, t in zip((a, b), layout, strict=True)]
    return *[stored(x, dtype) for x in own], a @ b


LAID = [
    ("float16", (64, 64, 64), {}),
    ("float16", (128, 64, 128), {"rows": 2}),
    ("bfloat16", (128, 128, 128), {"groups": (2, 1), "columns": 128, "versions": 2}),
    ("bfloat16", (64, 384, 256), {"groups": (1, 2), "columns": 192, "versions": 3, "in_flight": True}),
    ("float16", (128, 256, 256), {"groups": (2, 1), "columns": 256, "versions": 3, "in_flight": True}),
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("dtype", "shape", "sizes"), LAID)
def test_layouts_on_the_simulated_gpu(layout, dtype, shape, sizes):
    *given, product = operands(layout, *shape, dtype)
    out = np.full(shape[:2], np.nan, "float32")
    tw.build(laid_out(layout, *shape, dtype, **sizes), "gpu-sim")(*given, out)
    assert (out == product).all()


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed: pip install nvidia-cuda-nvcc-cu12")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("dtype", "shape", "sizes"), LAID)
def test_assembler_takes_layouts(layout, dtype, shape, sizes):
    """PTX says of each operand whether its steps are rows of shared memory; every copy is one of 16 bytes."""
    (text,) = tw.build(laid_out(layout, *shape, dtype, **sizes), "cuda -arch=sm_90a").ptx.values()
    said = f"{int(layout[0] == 't')}, {int(layout[1] == 'n')};"
    products = [line for line in text.split("\n") if "wgmma.mma_async" in line]
    assert products and all(f", go, 1, 1, {said}" in line for line in products)
    if sizes.get("versions", 1) > 1:
        assert "cp.async.cg.shared.global" in text and "ld.global" not in text
    (report,), _ = run_ptxas(text, "sm_90a")
    assert report.spill_bytes == report.stack_bytes == 0 and report.warnings == ()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_awkward_numbers(layout):
    """Products of infinities, NaN, zeros with a sign and the ends of the type, wherever operands lie."""
    rng = np.random.default_rng(0)
    a, b = rng.choice([0.0, -0.0, 1.0, -3.0, 65504.0, -65504.0, 2.0**-24, np.inf, -np.inf, np.nan], (2, 64, 64),
                      p=[0.2, 0.2, 0.2, 0.2, 0.05, 0.05, 0.094, 0.002, 0.002, 0.002]).astype("float16")  # fmt: skip
    own = [np.ascontiguousarray(x.T if t == "t" else x) for x, t in zip((a, b), layout, strict=True)]
    out = np.empty((64, 64), "float32")
    tw.build(laid_out(layout, 64, 64, 64), "gpu-sim")(*own, out)
    a, b = a.astype("float64"), b.astype("float64")
    with np.errstate(invalid="ignore"):
        expected, size = a @ b, abs(a) @ abs(b)
    finite = np.isfinite(expected)
    assert np.isnan(expected).any() and np.isinf(expected).any() and finite.any()
    np.testing.assert_array_equal(out[~finite], expected[~finite])
    assert (abs(out[finite] - expected[finite]) <= 1e-6 * size[finite]).all()


@pytest.mark.parametrize("layout", ["nt", "tn", "tt"])
@pytest.mark.parametrize(("edit", "words"), [
    (lambda text: without("T.wgmma_fence(", text), "which changed since the last T.wgmma_fence"),
    (lambda text: re.sub(r"(T\.wgmma_wait\(.*), 0\)", r"\1, 2)", text), "which a product still"),
], ids=["no fence", "operands change before the wait"])  # fmt: skip
def test_what_the_simulated_gpu_finds_in_each_layout(layout, edit, words):
    text = laid_out(layout, 64, 64, 128).func.script()
    arrays = [np.ones((128, 64) if layout[0] == "t" else (64, 128), "float16"),
              np.ones((64, 128) if layout[1] == "t" else (128, 64), "float16"), np.empty((64, 64), "float32")]  # fmt: skip
    tw.build(tw.tir.parse(text), "gpu-sim")(*arrays)
    assert (arrays[2] == 128).all()
    with pytest.raises(GpuError, match=words):
        tw.build(tw.tir.parse(edit(text)), "gpu-sim")(*arrays)


@pytest.mark.parametrize("layout", ["nt", "tn", "tt"])
def test_a_missing_barrier_is_a_race_in_each_layout(layout):
    lowered = tw.build(laid_out(layout, 64, 64, 128), "gpu-sim").get_source("lowered")
    func = tw.tir.parse(without("tvm_storage_sync", lowered))
    shapes = [(128, 64) if layout[0] == "t" else (64, 128), (64, 128) if layout[1] == "t" else (128, 64)]
    arrays = [*[np.ones(shape, "float16") for shape in shapes], np.ones((64, 64), "float32")]
    with pytest.raises(RaceError, match="A_shared.* without a barrier in between"):
        simulate(func, dict(zip(func.buffers, arrays, strict=True)), {})


def test_which_rows_descriptors_name():
    """Steps that lie within rows go on by 32 bytes inside of them, steps that are rows by 16 rows; panels of columns are named
    where the steps are rows and there are several."""
    for layout, panels in (("nt", {1}), ("tn", {1, 512}), ("tt", {1}), ("nn", {1, 512})):
        ir = tw.build(laid_out(layout, 64, 128, 64, columns=128), "cuda -arch=sm_90a").get_source("ir")
        high = [int(n) for n in re.findall(r"or i64 %\w+, (\d{15,})", ir)]
        assert {n >> 16 & 0x3FFF for n in high} == panels
        assert {n >> 32 & 0x3FFF for n in high} == {64} and {n >> 62 for n in high} == {1}
        assert len(high) == 8


def float8_product(m, n, k, dtype, groups=(1, 1), columns=64, versions=1, in_flight=False):
    """A product of operands with their steps side by side, 128 of them copied at a time to where products read them."""
    a, b = te.placeholder((m, k), dtype, "A"), te.placeholder((n, k), dtype, "B")
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((m, n), lambda i, j: te.sum(wide(a[i, r]) * wide(b[j, r]), axis=r), name="C")
    s = tw.Schedule(te.create_prim_func([a, b, c]))
    block = s.get_block("C")
    out = s.cache_write(block, 0, "wgmma.accumulator")
    s.transform_layout(block, ("write", 0), lambda i, j: (i // GROUP_ROWS, j // columns, i % GROUP_ROWS, j % columns))
    cut = {"i": [None, groups[0], 1, GROUP_ROWS], "j": [None, groups[1], columns], "k": [None, 128]}
    order, form = "i0 j0 i1 j1 k0 i2 i3 j2 k1", MatrixForm(layout="nt")
    loops, group, copies = tiles_on_blocks(s, block, cut, order, "shared.swizzled", form)
    for copy in copies:
        row, column = loops_within(s, copy, loops["k0"])[-2:]
        piece, lane = s.split(column, [None, 16])
        over, y, line = s.split(row, [None, groups[0] * groups[1], 16])
        s.bind(y, "threadIdx.y")
        s.bind(s.fuse(line, piece), "threadIdx.x")
        s.vectorize(lane)
    copy_ahead(s, loops["k0"], versions, in_flight)
    at = out_at(s, out, group, None, GROUP_ROWS, 128)
    init = s.decompose_reduction(block, loops["k0"])
    word = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}[dtype]
    s.tensorize(loops["i3"], f"wgmma_64x{columns}x128_{word}_nt")
    fill = s.get_loops(init)
    s.tensorize(fill[-2], f"wgmma_fill_64x{columns}")
    stores = store_tiles(s, out, at, (GROUP_ROWS, columns), f"wgmma_store_64x{columns}")
    for loop in (loops["i2"], fill[-3], *stores):
        s.unroll(loop)
    return s


FLOAT8 = [
    ("float8_e4m3fn", (64, 64, 128), {}),
    ("float8_e5m2", (128, 128, 256), {"groups": (2, 1), "columns": 128, "versions": 2}),
    ("float8_e4m3fn", (128, 256, 512), {"groups": (2, 1), "columns": 256, "versions": 3, "in_flight": True}),
]


@pytest.mark.parametrize(("dtype", "shape", "sizes"), FLOAT8)
def test_float8(dtype, shape, sizes):
    """Products of bytes as ml_dtypes reads them; infinities, NaN and zeros with a sign are among them."""
    float8, (m, n, k) = getattr(pytest.importorskip("ml_dtypes"), dtype), shape
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, (m + n, k)).astype("uint8")
    rest = abs(codes.view(float8).astype("float32")) < 1e5
    codes = np.where(rest | (rng.random(codes.shape) < 0.01), codes, np.uint8(0x80))
    a, b = codes[:m].copy(), codes[m:].copy()
    out = np.empty((m, n), "float32")
    tw.build(float8_product(m, n, k, dtype, **sizes), "gpu-sim")(a, b, out)
    a, b = (x.view(float8).astype("float64") for x in (a, b))
    with np.errstate(invalid="ignore"):
        expected, size = a @ b.T, abs(a) @ abs(b).T
    finite = np.isfinite(expected)
    assert np.isnan(expected).any() and finite.any()
    np.testing.assert_array_equal(out[~finite], expected[~finite])
    assert (abs(out[finite] - expected[finite]) <= 1e-6 * size[finite]).all()


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed: pip install nvidia-cuda-nvcc-cu12")
@pytest.mark.parametrize(("dtype", "shape", "sizes"), FLOAT8)
def test_assembler_takes_float8(dtype, shape, sizes):
    (text,) = tw.build(float8_product(*shape, dtype, **sizes), "cuda -arch=sm_90a").ptx.values()
    word = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}[dtype]
    products = [line for line in text.split("\n") if "wgmma.mma_async" in line]
    assert products and all(f"k32.f32.{word}.{word} " in line and ", go, 1, 1; " in line for line in products)
    if sizes.get("versions", 1) > 1:
        assert "cp.async.cg.shared.global" in text and "ld.global" not in text
    (report,), _ = run_ptxas(text, "sm_90a")
    assert report.spill_bytes == report.stack_bytes == 0 and report.warnings == ()


def test_float8_has_its_steps_side_by_side():
    text = TensorIntrin.get("wgmma_64x64x128_e4m3_nt").impl.script()
    for old, new, words in (
        ("wgmma_left(", "wgmma_left_t(", "float8_e4m3fnx2048 is no operand of a warp group that is loaded so"),
        ("float8_e4m3fnx2048", "float8_e4m3fnx1024", "there are float16x1024, bfloat16x1024, float8_e4m3fnx2048"),
    ):
        assert old in text
        with pytest.raises(tw.tir.ParseError, match=words):
            tw.tir.parse(text.replace(old, new))
