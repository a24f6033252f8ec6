"""The rules of GPUs: what they take, candidates equal to NumPy on the simulated GPU, limits as constraints, the prior."""

import dataclasses
import re

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen import Target
from tilewright.gpu.ptx import find_ptxas, run_ptxas
from tilewright.gpu.simulation.kernel_counts import KernelCounts
from tilewright.tuner import Space, choose_default
from tilewright.tuner.cost.cost_features import Costs, seconds_of_counts
from tilewright.tuner.cost.gpu_model import GPU, SHEETS, gpu_model, measured
from tilewright.tuner.rules import default_rules

from .gpu_programs import PROGRAMS, _soft, difference

SIMULATED = Target("gpu-sim")


@pytest.mark.parametrize("name", PROGRAMS)
def test_candidates_on_the_simulated_gpu(name):
    """The best row of each sketch, and one drawn."""
    program = PROGRAMS[name]
    func = te.create_prim_func(program.make())
    space, rng = Space(func, SIMULATED), np.random.default_rng(len(name))
    assert space.sketches and not space.left
    for sketch in space.sketches[:4]:
        for row in np.concatenate([sketch.best_rows(1), sketch.sample(1, rng)])[: 3 - len(space.sketches) // 2]:
            module = tw.codegen.compile(space.schedule(sketch, row).func, SIMULATED)
            assert difference(module, func, program) <= program.tolerance, sketch.decisions_of(row)


@pytest.mark.parametrize(("name", "sketches"), [
    ("product 7 13 17", ["threads_C"]),
    ("warps float16", ["warps_C"]),
    ("softmax 7 13", ["rows_T_softmax_maxelem"]),
    ("sum of all", ["rows_T_sum", "serial_T_sum", "parts_T_sum"]),
    ("column sum", ["rows_Y", "columns_Y", "serial_Y"]),
    ("transpose 33 70", ["map_T_transpose", "squares_T_transpose"]),
    ("scan", ["map_first+in_order_step"]),
    ("attention", ["threads_attention_qk+rows_attention_softmax_maxelem+threads_attention", "chain_attention_fused"]),
    ("two products", ["threads_C+threads_D", "chain_D_fused"]),
])  # fmt: skip
def test_sketches(name, sketches):
    func = te.create_prim_func(PROGRAMS[name].make())
    assert [s.name for s in Space(func, Target("cuda -arch=sm_90")).sketches] == sketches


def test_rules_of_other_machines_are_not_asked():
    func = te.create_prim_func(PROGRAMS["product 7 13 17"].make())
    assert {rule.gpu for rule in Space(func, SIMULATED).rules} == {True}
    assert {rule.gpu for rule in Space(func, Target("llvm -mcpu=x86-64-v3")).rules} == {False}
    assert {True, False} <= {rule.gpu for rule in default_rules()}


def large(m, n, k, dtype="float32", out="float32"):
    a, b = te.placeholder((m, k), dtype, "A"), te.placeholder((k, n), dtype, "B")
    r = te.reduce_axis((0, k), name="k")
    return te.create_prim_func(
        [a, b, te.compute((m, n), lambda i, j: te.sum(a[i, r].astype(out) * b[r, j].astype(out), axis=r), name="C")]
    )


@pytest.mark.parametrize("where", [{"rows": 2, "teams": 1}, {"rows": 8, "teams": 4}])
def test_attention_in_one_kernel(where):
    program = PROGRAMS["attention"]
    func = te.create_prim_func(program.make())
    space = Space(func, SIMULATED, where={f"chain_attention.{name}": n for name, n in where.items()})
    sketch = space.sketch("chain_attention_fused")
    module = tw.codegen.compile(space.schedule(sketch, sketch.best_rows(1)[0]).func, SIMULATED)
    assert difference(module, func, program) <= program.tolerance
    ptx = tw.codegen.compile(module["main"]._lowered.scheduled, "cuda -arch=sm_90")
    assert len(ptx.kernels["main"]) == 1 and ptx.kernels["main"][0].params[-1].name != "attention_qk"


@pytest.mark.parametrize(("arch", "kib"), [("sm_75", 64), ("sm_80", 163), ("sm_90", 227)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_sensible_rows_fit_the_device(arch, kib, dtype):
    """Threads, shared memory and registers are constraints: no candidate fails at its launch."""
    space = Space(large(512, 512, 512, dtype), Target(f"cuda -arch={arch}"))
    (sketch,) = space.sketches
    rows = sketch.sample(400, np.random.default_rng(0))
    part = sketch.parts[0]
    columns = sketch.tables[0].columns(rows)
    shared, threads = part._shared(columns), part._threads(columns)
    assert threads.max() <= 1024 and shared.max() <= kib << 10
    assert (threads * part._registers(columns)).max() <= 65_536


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed: pip install nvidia-cuda-nvcc-cu12")
@pytest.mark.parametrize(("dtype", "seed"), [("float32", 0), ("float32", 1), ("float16", 0)])
def test_estimates_of_shared_memory_and_registers(dtype, seed):
    """What the assembler says of drawn candidates: the estimates are limits, and not far off."""
    target = Target("cuda -arch=sm_90")
    space = Space(
        large(512, 512, 512, dtype),
        target,
        where={"versions": 1, "steps": 1} if dtype == "float16" else {"versions": 1},
    )
    (sketch,) = space.sketches
    (row,) = sketch.sample(1, np.random.default_rng(seed))
    module = tw.codegen.compile(space.schedule(sketch, row).func, target)
    (kernel,), (text,) = module.kernels["main"], module.ptx.values()
    (report,), _ = run_ptxas(text, "sm_90")
    columns = sketch.tables[0].columns(row[None])
    assert report.spill_bytes == 0
    assert 0.5 * kernel.shared_bytes <= sketch.parts[0]._shared(columns)[0] <= 2 * kernel.shared_bytes
    assert sketch.parts[0]._registers(columns)[0] >= 0.6 * report.registers


@pytest.mark.parametrize(("name", "words"), [
    ("softmax", ("ld.global.nc.v4", "st.global.v4", "shfl.sync")),
    ("sum", ("ld.global.nc.v4", "shfl.sync")),
    ("product", ("cp.async", "ld.shared.v4", "fma.rn")),
    ("bias", ("ld.global.nc.v4", "st.global.v4")),
])  # fmt: skip
def test_default_schedules_use_the_machine(name, words):
    x, b = te.placeholder((2048, 1024), name="X"), te.placeholder((1024,), name="B")
    made = {
        "softmax": lambda: [x, te.ops.softmax(x)],
        "sum": lambda: [x, te.ops.sum(x, 1)],
        "bias": lambda: [x, b, te.compute((2048, 1024), lambda i, j: x[i, j] + b[j], name="Y")],
        "product": lambda: large(1024, 1024, 1024),
    }[name]()
    module = tw.build(made, "cuda -arch=sm_90")
    assert "analytic model's best schedule" in module.origin
    text = module.get_source()
    assert [word for word in words if word not in text] == []


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed: pip install nvidia-cuda-nvcc-cu12")
@pytest.mark.parametrize(("window", "size", "stride", "words"), [
    (3, 56, 1, ("cp.async.ca.shared.global", "st.global.v4")), (3, 14, 2, ("cp.async.ca.shared.global",)),
    (1, 28, 1, ("cp.async.cg.shared.global", "st.global.v4")),
])  # fmt: skip
def test_convolutions_are_products_in_one_kernel(window, size, stride, words):
    """Padding is a part of the copies to shared memory; tiles go on from row to row and from image to image, without spills; the
    prior is near that of the matrix product of the same size, and far below a kernel per result."""
    x, f = te.placeholder((32, 128, size, size), name="X"), te.placeholder((128, 128, window, window), name="W")
    func = te.create_prim_func([x, f, te.ops.conv2d(x, f, stride, window // 2)])
    target = Target("cuda -arch=sm_90")
    space = Space(func, target, where={"versions": 3})
    (sketch,) = space.sketches
    assert sketch.name == "threads_conv2d_nchw"
    module = tw.codegen.compile(space.schedule(sketch, sketch.best_rows(1)[0]).func, target)
    (kernel,), (text,) = module.kernels["main"], module.ptx.values()
    (report,), _ = run_ptxas(text, "sm_90")
    assert report.spill_bytes == report.stack_bytes == 0 and [word for word in words if word not in text] == []
    assert len(kernel.params) == 3  # no padded copy
    alike = prior(large(128, 32 * (size // stride) ** 2, 128 * window**2))
    assert alike <= prior(func) <= 1.5 * alike


def test_zeros_of_padding_are_copied_without_reading():
    """A copy whose condition fails reads no byte; a constant other than zero is stored."""
    x, f = te.placeholder((61, 34), name="X"), te.placeholder((63, 64), name="F")
    for outside in (0.0, 1.0):
        padded = te.compute((61, 63), lambda i, j, at=outside: te.if_then_else(j < 34, x[i, j], at), name="padded")
        k = te.reduce_axis((0, 63), name="k")
        c = te.compute((61, 64), lambda i, j, p=padded, k=k: te.sum(p[i, k] * f[k, j], axis=k), name="C")
        func = te.create_prim_func([x, f, c])
        where = {"versions": 3, "step": 8}
        made = {}
        for target in (Target("cuda -arch=sm_90"), SIMULATED):
            space = Space(func, target, where=where)
            made[target] = tw.codegen.compile(
                space.schedule(space.sketches[0], space.sketches[0].best_rows(1)[0]).func, target
            )
        cuda, simulated = made.values()
        text = cuda.get_source()
        assert re.search(r"cp\.async\.ca\.shared\.global \[[^]]*\], \[[^]]*\], 4, %r", text)
        assert ("st.shared" in text) == (outside != 0)
        a, b = np.random.default_rng(0).integers(-4, 5, (2, 64, 64)).astype("float32")
        whole = np.concatenate([a[:61, :34], np.full((61, 29), outside, "float32")], 1)
        np.testing.assert_array_equal(simulated(a[:61, :34].copy(), b[:63].copy()), whole @ b[:63])


def prior(func, target="cuda -arch=sm_90", **where):
    space = Space(func, Target(target), where=where)
    return min(float(s.score(s.best_rows(1))[1][0]) for s in space.sketches)


def test_the_prior_knows_what_is_slow():
    x = te.placeholder((4096, 4096), name="X")
    turned = te.create_prim_func([x, te.ops.transpose(x)])
    space = Space(turned, Target("cuda"))
    plain, squares = [float(s.score(s.best_rows(1))[1][0]) for s in space.sketches]
    assert squares < 0.7 * plain  # uncoalesced lines
    assert prior(large(1024, 1024, 1024), versions=3) < prior(large(1024, 1024, 1024), versions=1)
    assert prior(large(2048, 2048, 2048, "float16")) < 0.3 * prior(large(2048, 2048, 2048))
    assert prior(large(2048, 2048, 2048), "cuda -arch=sm_90") < prior(large(2048, 2048, 2048), "cuda -arch=sm_75")


def test_the_prior_is_near_the_roofline():
    """A large product within twice the peak of multiply-adds, a large sum within twice the bandwidth."""
    model = gpu_model(Target("cuda -arch=sm_90"))
    peak = 2 * model.fma_lanes * model.cores * model.cycles_per_second
    assert 0.5 <= 2 * 4096**3 / peak / prior(large(4096, 4096, 4096)) <= 1.0
    x = te.placeholder((16384, 4096), name="X")
    seconds = prior(te.create_prim_func([x, te.ops.sum(x, 1)]))
    assert 0.5 <= 16384 * 4096 * 4 / SHEETS[90].memory / seconds <= 1.0


@pytest.mark.parametrize(
    ("arch", "device"), [("sm_80", "A100"), ("sm_86", "A10"), ("sm_87", "A10"), ("sm_90", "H100"), ("sm_90a", "H100")]
)
def test_figures_of_architectures(arch, device):
    sheet = next(s for s in SHEETS.values() if s.device == device)
    model = gpu_model(Target(f"cuda -arch={arch}"))
    assert (model.cores, model.cycles_per_second) == (sheet.cores, sheet.hertz)


def test_figures_of_a_device():
    """H200 as its driver describes it; what it does not say stays."""
    said = {
        16: 132,
        13: 1_980_000,
        36: 3_201_000,
        37: 6144,
        38: 60 << 20,
        39: 2048,
        81: 228 << 10,
        82: 65_536,
        97: 227 << 10,
    }
    model = measured(gpu_model(Target("cuda -arch=sm_90")), lambda number: said.get(number, 0))
    assert (model.cores, model.warps, model.blocks) == (132, 64, 32)
    assert model.memory_bytes_per_cycle * model.cycles_per_second == pytest.approx(0.92 * 4.917e12, rel=1e-3)
    unknown = gpu_model(Target("cuda -arch=sm_90"))
    same = measured(unknown, lambda number: 0)
    for field in dataclasses.fields(unknown):
        assert getattr(same, field.name) == pytest.approx(getattr(unknown, field.name)), field.name


def test_occupancy():
    model = gpu_model(Target("cuda -arch=sm_80"))
    columns = {"blocks": 1000.0, "threads": np.array([128.0, 128, 1024]), "registers": np.array([32.0, 128, 32]), "shared_bytes": np.array([0.0, 0, 100 << 10])}  # fmt: skip
    assert model.costs(3, **columns)["occupancy"].tolist() == [1.0, 0.25, 0.5]


def test_counts_of_the_simulator():
    """A matrix that is read along its columns takes a sector for each element."""
    x = te.placeholder((64, 64), name="X")
    func = te.create_prim_func([x, te.ops.transpose(x)])
    s = tw.Schedule(func)
    i, j = s.get_loops("T_transpose")
    s.bind(i, "blockIdx.x")
    s.bind(j, "threadIdx.x")
    module = tw.codegen.compile(s.func, SIMULATED)
    (found,) = module.bind(np.ones((64, 64), "float32"), np.empty((64, 64), "float32")).counted()
    assert (found["blocks"], found["threads"]) == (64, 64)
    assert found["l2_bytes"] == 64 * 64 * 32 + 64 * 64 * 4  # full sectors are written
    model = gpu_model(SIMULATED)
    assert seconds_of_counts([found], model) > model.launch_seconds


@pytest.mark.parametrize(("apart", "turns"), [(0, 1), (1, 1), (2, 2), (32, 32), (33, 1)])
def test_bank_conflicts(apart, turns):
    counts = KernelCounts(1, 32, 1)
    counts.access(tw.tir.stmt.decl_buffer((2048,), "float32"), "block", apart * np.arange(32), np.zeros(32, int), 1.0)
    assert counts.columns()["shared_wavefronts"] == turns


def test_a_tuned_schedule_for_the_simulated_gpu(tmp_path):
    func = te.create_prim_func(PROGRAMS["product 7 13 17"].make())
    with tw.Database(tmp_path / "records.db") as db:
        result = tw.tune(func, "gpu-sim", trials=3, db=db, final_race=0)
        assert result.best is not None and result.failures == {}
        assert all(r.machine["clock"].startswith("simulated") for r in result.records)
        module = tw.build(func, "gpu-sim", db=db, require_tuned=True)
    assert module.origin.startswith("record ") and difference(module, func, PROGRAMS["product 7 13 17"]) == 0


def test_tuning_for_a_device_that_is_not_here(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_LIBCUDA", "libnothing.so.1")
    tw.gpu.ptx.cuda_driver.cache_clear()
    func = te.create_prim_func(PROGRAMS["product 7 13 17"].make())
    words = "this machine cannot run code for cuda.*: it has no device for cuda: libnothing.so.1 is not installed"
    with pytest.raises(tw.driver.TuneError, match=words):
        tw.tune(func, "cuda", trials=1)
    tw.gpu.ptx.cuda_driver.cache_clear()


def test_features_of_gpus():
    space = Space(te.create_prim_func(PROGRAMS["attention"].make()), SIMULATED)
    features, seconds = space.sketches[0].score(space.sketches[0].best_rows(3))
    assert features.shape == (3, len(GPU.names)) and np.isfinite(features).all() and (seconds > 0).all()
    assert len(choose_default(space).parts) == 1  # in one kernel
    with pytest.raises(KeyError, match="'l3_bytes' is not a feature"):
        Costs(1, features=GPU).put(l3_bytes=1.0)


EPILOGUES = {
    "bias, relu": (lambda c, b, r: te.compute(c.shape, lambda i, j: te.max(c[i, j] + b[j], te.const(0, c.dtype)), name="D"),
                   lambda c, b, r: np.maximum(c + b, 0)),
    "residual": (lambda c, b, r: te.ops.add(c, r), lambda c, b, r: c + r),
    "square of a column bias": (
        lambda c, b, r: te.compute(c.shape, lambda i, j: (c[i, j] + r[i, 0]) * (c[i, j] + r[i, 0]), name="D"),
        lambda c, b, r: (c + r[:, :1]) ** 2),
    "rounded": (lambda c, b, r: te.compute(c.shape, lambda i, j: te.max(te.min(c[i, j] * 2, 100), -100).astype("int8"), name="D"),
                lambda c, b, r: np.clip(c * 2, -100, 100)),
}  # fmt: skip


def with_epilogue(m, n, k, dtype, after):
    out = "int32" if dtype == "int8" else "float32"
    a, b = te.placeholder((m, k), dtype, "A"), te.placeholder((k, n), dtype, "B")
    bias, other = te.placeholder((n,), out, "bias"), te.placeholder((m, n), out, "other")
    r = te.reduce_axis((0, k), name="k")
    wide = te.round_tf32 if dtype == out else (lambda x: x.astype(out))
    c = te.compute((m, n), lambda i, j: te.sum(wide(a[i, r]) * wide(b[r, j]), axis=r), name="C")
    return te.create_prim_func([a, b, bias, other, after(c, bias, other)])


def small_integers(func, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(-2, 3, [int(e) for e in b.shape]).astype(str(b.dtype)) for b in func.buffers[:-1]]


@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize(("dtype", "shape", "arch"), [
    ("float16", (64, 64, 64), "sm_90a"), ("float16", (48, 32, 32), "sm_80"), ("float32", (16, 48, 16), "sm_80"),
    ("int8", (32, 32, 32), "sm_80"),
])  # fmt: skip
def test_stages_after_products_on_matrix_units(name, dtype, shape, arch):
    """One kernel, whose sums reach the stage through shared memory; a drawn row of each sketch is exact."""
    after, reference = EPILOGUES[name]
    func, target = with_epilogue(*shape, dtype, after), Target(f"gpu-sim -arch={arch}")
    space = Space(func, target)
    assert [s.name for s in space.sketches] == ["groups_C", "warps_C"][arch != "sm_90a" :]
    arrays = small_integers(func)
    a, b, bias, other = [x.astype("int64") for x in arrays]
    for sketch in space.sketches:
        (row,) = sketch.sample(1, np.random.default_rng(len(name)))
        module = tw.codegen.compile(space.schedule(sketch, row).func, target)
        np.testing.assert_array_equal(module(*arrays), reference(a @ b, bias, other), str(sketch.decisions_of(row)))


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed: pip install nvidia-cuda-nvcc-cu12")
@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize(("arch", "word"), [("sm_80", "wmma.mma.sync"), ("sm_90a", "wgmma.mma_async")])
def test_the_assembler_takes_stages_after_products(name, arch, word):
    target = Target(f"cuda -arch={arch}")
    space = Space(with_epilogue(512, 512, 256, "float16", EPILOGUES[name][0]), target)
    sketch = space.sketches[0]
    (row,) = sketch.best_rows(1)
    module = tw.codegen.compile(space.schedule(sketch, row).func, target)
    (kernel,), (text,) = module.kernels["main"], module.ptx.values()
    (report,), _ = run_ptxas(text, arch)
    assert word in text and report.spill_bytes == report.stack_bytes == 0
    estimate = sketch.parts[0]._shared(sketch.tables[0].columns(row[None]))[0]
    assert 0.9 * kernel.shared_bytes <= estimate <= 1.2 * kernel.shared_bytes


def _slice(c, bias, other):
    return te.compute((32, 32), lambda i, j: c[i, j] + 1, name="D")


def _twice(c, bias, other):
    return te.compute(c.shape, lambda i, j: c[i, j] + c[j, i], name="D")


@pytest.mark.parametrize(("after", "reference"), [
    (_slice, lambda c: c[:32, :32] + 1), (_twice, lambda c: c + c.T), (lambda c, b, r: te.ops.softmax(c), _soft),
])  # fmt: skip
def test_products_whose_readers_are_no_epilogue(after, reference):
    """The product is on the matrix units all the same, and the stages after it are apart."""
    func = with_epilogue(48, 48, 16, "float16", after)
    space = Space(func, SIMULATED)
    assert space.sketches[0].parts[0].name == "warps_C"
    arrays = small_integers(func)
    module = tw.codegen.compile(space.schedule(space.sketches[0], space.sketches[0].best_rows(1)[0]).func, SIMULATED)
    c = arrays[0].astype("float64") @ arrays[1].astype("float64")
    np.testing.assert_allclose(module(*arrays), reference(c), 1e-5)
