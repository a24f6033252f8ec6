"""Sums that threads of several blocks add to atomically: equal on the simulated GPU, taken by the assembler, refused elsewhere."""

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen.backend.emitter import EmitError
from tilewright.gpu import GpuError, RaceError
from tilewright.gpu.ptx import find_ptxas, run_ptxas
from tilewright.schedule import ScheduleError
from tilewright.tuner.rules.gpu_rows import RowThreads, atomic_sums


def summed(shape, dtype, reduce=te.sum):
    x, k = te.placeholder(shape, dtype, "X"), te.reduce_axis((0, shape[-1]), name="k")
    return te.create_prim_func([x, te.compute(shape[:-1], lambda *i: reduce(x[(*i, k)], axis=k), name="Y")])


def scheduled(shape, dtype, parts=8):
    s = tw.Schedule(summed(shape, dtype))
    atomic_sums(s, "Y", len(shape) - 1, parts, RowThreads(64))
    return s


CASES = [("float32", (3, 1000)), ("float32", (5000,)), ("int32", (17, 256)), ("float16", (2, 512)), ("float64", (2, 3, 77)),
         ("int64", (7, 100)), ("uint32", (1, 130)), ("float32", (13, 8))]  # fmt: skip


@pytest.mark.parametrize(("dtype", "shape"), CASES)
def test_equal_on_the_simulated_gpu(dtype, shape):
    x = np.random.default_rng(0).integers(0, 3, shape).astype(dtype)
    np.testing.assert_array_equal(tw.build(scheduled(shape, dtype), "gpu-sim")(x), x.sum(-1, dtype=dtype))


def test_any_order_is_within_rounding():
    x = np.random.default_rng(1).standard_normal((4, 4096)).astype("float32")
    np.testing.assert_allclose(
        tw.build(scheduled((4, 4096), "float32", 32), "gpu-sim")(x), x.sum(-1, dtype="float64"), rtol=1e-4
    )


@pytest.mark.parametrize(("dtype", "word", "arch"), [
    ("float32", "f32", "sm_80"), ("float64", "f64", "sm_80"), ("float16", "noftz.f16", "sm_80"), ("int32", "s32", "sm_80"),
    ("uint32", "u32", "sm_90"), ("int64", "u64", "sm_90"), ("float32", "f32", "sm_90"),
])  # fmt: skip
def test_assembler_takes_it(dtype, word, arch):
    _, text = tw.build(scheduled((3, 1000), dtype), f"cuda -arch={arch}").ptx.values()
    assert f"red.relaxed.gpu.global.add.{word}" in text
    if find_ptxas():
        (report,), _ = run_ptxas(text, arch)
        assert report.spill_bytes == 0


def columns(rows, width, dtype, lanes=2):
    """The sums of columns: blocks have some rows each, threads some neighbouring columns."""
    x, k = te.placeholder((rows, width), dtype, "X"), te.reduce_axis((0, rows), name="k")
    s = tw.Schedule(te.create_prim_func([x, te.compute((width,), lambda j: te.sum(x[k, j], axis=k), name="Y")]))
    j, k = s.get_loops("Y")
    part, _ = s.split(k, [4, None])
    partial = s.rfactor(part, 0)
    block = s.get_block("Y")
    j, part = s.get_loops(block)
    zeros = s.decompose_reduction(block, j)
    s.annotate(block, "atomic_update", 1)
    thread, lane = s.split(j, [None, lanes])
    s.reorder(part, thread, lane)
    s.bind(part, "blockIdx.x")
    s.bind(thread, "threadIdx.x")
    s.compute_at(partial, thread)
    s.set_scope(partial, 0, "local")
    s.vectorize(lane)
    s.bind(s.get_loops(zeros)[0], "threadIdx.x")
    return s


@pytest.mark.parametrize(
    ("dtype", "width", "lanes"), [("float16", 64, 2), ("float16", 24, 4), ("bfloat16", 16, 2), ("float16", 33, 3)]
)
def test_neighbouring_columns(dtype, width, lanes):
    x = np.random.default_rng(0).integers(0, 3, (12, width)).astype("float32")
    given = (x.view("uint32") >> 16).astype("uint16") if dtype == "bfloat16" else x.astype(dtype)
    out = np.zeros(width, given.dtype)
    tw.build(columns(12, width, dtype, lanes), "gpu-sim")(given, out)
    got = (out.astype("uint32") << 16).view("float32") if dtype == "bfloat16" else out
    np.testing.assert_array_equal(got, x.sum(0))


@pytest.mark.parametrize(("dtype", "arch", "lanes", "words", "count"), [
    ("float16", "sm_80", 2, "red.relaxed.gpu.global.add.noftz.f16x2 ", 1),
    ("float16", "sm_90", 4, "red.relaxed.gpu.global.add.noftz.f16x2 ", 2),
    ("bfloat16", "sm_90", 2, "red.relaxed.gpu.global.add.noftz.bf16x2 ", 1),
    ("bfloat16", "sm_90", 1, "red.relaxed.gpu.global.add.noftz.bf16 ", 1),
    ("float16", "sm_80", 3, "red.relaxed.gpu.global.add.noftz.f16 ", 3),
    ("float32", "sm_80", 2, "red.relaxed.gpu.global.add.f32 ", 2),
])  # fmt: skip
def test_pairs_are_one_instruction(dtype, arch, lanes, words, count):
    _, text = tw.build(columns(12, 24, dtype, lanes), f"cuda -arch={arch}").ptx.values()
    assert text.count(words) == text.count("red.relaxed") == count
    if find_ptxas():
        run_ptxas(text, arch)


def test_older_architectures_refuse_bfloat16():
    with pytest.raises(EmitError, match="atomic_add_pair of bfloat16 needs -arch=sm_90 or newer; the target has sm_80"):
        tw.build(columns(12, 24, "bfloat16"), "cuda").get_source("ptx")


def annotated(func, decomposed=True):
    s = tw.Schedule(func)
    (k,) = s.get_loops("Y")[-1:]
    part, _ = s.split(k, [4, None])
    if decomposed:
        s.decompose_reduction("Y", s.get_loops("Y")[0])
    name = next(n for n in ("Y_update", "Y") if n in s.func.script())
    s.annotate(s.get_block(name), "atomic_update", 1)
    return s, part


def test_a_sum_on_blocks_asks_for_the_annotation():
    s = tw.Schedule(summed((8, 64), "float32"))
    with pytest.raises(ScheduleError, match="carries the reduction of block 'Y'.*"):
        s.bind(s.get_loops("Y")[1], "blockIdx.x")
    s, part = annotated(summed((8, 64), "float32"), decomposed=False)
    with pytest.raises(ScheduleError, match="carries the reduction of block 'Y'"):
        s.bind(part, "blockIdx.x")  # the block still has its init


@pytest.mark.parametrize("step", ["parallel", "vectorize"])
def test_processors_do_not_add_atomically(step):
    s, part = annotated(summed((8, 64), "float32"))
    with pytest.raises(ScheduleError, match="carries the reduction of block 'Y_update'"):
        getattr(s, step)(part)


def test_the_annotation_stays_while_the_sum_runs_on_blocks():
    s, part = annotated(summed((8, 64), "float32"))
    s.bind(part, "blockIdx.x")
    with pytest.raises(
        ScheduleError, match="the reduce axis .* of block 'Y_update' would run on the thread_binding loop"
    ):
        s.unannotate(s.get_block("Y_update"), "atomic_update")
    s.unroll(part)
    s.unannotate(s.get_block("Y_update"), "atomic_update")
    assert "atomic_update" not in s.func.script()


REFUSED = [
    ("a maximum", lambda: summed((8, 64), "float32", te.max), "it does not add"),
    ("bytes", lambda: summed((8, 64), "int8"), "int8 is not added atomically"),
]


@pytest.mark.parametrize(("func", "words"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_is_not_added(func, words):
    s, part = annotated(func())
    s.bind(part, "blockIdx.x")
    with pytest.raises(GpuError, match=rf"block 'Y_update' cannot update its result atomically: {words}"):
        tw.build(s, "gpu-sim")


def test_atomic_and_plain_uses_in_one_kernel_are_a_race():
    func = tw.tir.parse("""
@T.prim_func
def main(X: T.Buffer((64,), "float32"), Y: T.Buffer((1,), "float32"), Z: T.Buffer((64,), "float32")):
    for b in T.thread_binding(1, thread="blockIdx.x"):
        for t in T.thread_binding(64, thread="threadIdx.x"):
            T.evaluate(T.atomic_add(T.address_of(Y[0]), X[t]))
            Z[t] = Y[0]
""")
    with pytest.raises(RaceError, match=r"reads Y\[0\], to which threads add atomically in this kernel"):
        tw.build(func, "gpu-sim")(np.ones(64, "float32"), np.zeros(1, "float32"), np.zeros(64, "float32"))


def test_numbers_of_another_type_are_not_added():
    with pytest.raises(tw.tir.ParseError, match="adds float32 to an element of type int32; cast the value"):
        tw.tir.parse("""
@T.prim_func
def main(Y: T.Buffer((1,), "int32")):
    T.evaluate(T.atomic_add(T.address_of(Y[0]), T.float32(1)))
""")


def test_the_interpreter_adds():
    func = tw.tir.parse("""
@T.prim_func
def main(X: T.Buffer((16,), "float32"), Y: T.Buffer((1,), "float32")):
    for i in range(16):
        T.evaluate(T.atomic_add(T.address_of(Y[0]), X[i]))
""")
    x, y = np.arange(16, dtype="float32"), np.ones(1, "float32")
    tw.tir.interpret(func, x, y)
    assert y == 121
    with pytest.raises(Exception, match="atomic_add"):
        tw.codegen.compile(func, "native")


def test_pairs_of_other_types_are_not_added():
    with pytest.raises(tw.tir.ParseError, match="adds pairs of float16, bfloat16, not float32"):
        tw.tir.parse("""
@T.prim_func
def main(Y: T.Buffer((2,), "float32")):
    T.evaluate(T.atomic_add_pair(T.address_of(Y[0]), T.float32(1), T.float32(2)))
""")


@pytest.mark.parametrize(
    ("change", "want"),
    [
        ("atomic_fetch_add", 10 + sum(range(64))), ("atomic_fetch_max", 63), ("atomic_fetch_min", 0), ("atomic_fetch_and", 0),
        ("atomic_fetch_or", 63), ("atomic_fetch_xor", 10), ("atomic_exchange", 63),
    ],
)  # fmt: skip
def test_atomic_changes_return_what_was_there(change, want):
    text = f"""
@T.prim_func
def main(OLD: T.Buffer((64,), "int32"), C: T.Buffer((1,), "int32")):
    for t in T.thread_binding(64, thread="threadIdx.x"):
        OLD[t] = T.{change}(T.address_of(C[0]), t)
"""
    old, c = np.empty(64, np.int32), np.array([10], np.int32)
    tw.build(tw.tir.parse(text), "gpu-sim")(old, c)
    assert c[0] == want and old[0] == 10
    if change == "atomic_exchange":
        assert old[1:].tolist() == list(range(63))
    source = tw.build(tw.tir.parse(text), "cuda -arch=sm_90").get_source("ptx")
    assert source.count("atom.global") == 1 and source.count("fence.acq_rel.gpu") == 2
