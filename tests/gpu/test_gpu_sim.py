"""Kernels on the simulated GPU: equal to NumPy, and errors with a place."""

import numpy as np
import pytest

import tilewright as tw
from tilewright import te, tir
from tilewright.codegen.lower import run_passes
from tilewright.gpu import GpuError, RaceError
from tilewright.gpu.launch import LAUNCH_PASSES
from tilewright.gpu.simulation.simulator import simulate


def integers(*shape, seed=0):
    return np.random.default_rng(seed).integers(-4, 5, shape).astype("float32")


def run(schedule, *inputs, shape):
    out = np.full(shape, np.nan, "float32")
    tw.build(schedule, "gpu-sim")(*inputs, out)
    return out


def matmul(m, n, k):
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="k")
    return te.create_prim_func([a, b, te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")])


def tiled(func):
    """Virtual threads, shared memory filled by all threads, accumulators in registers."""
    s = tw.Schedule(func)
    out = s.cache_write("C", 0, "local")
    i, j, k = s.get_loops("C")
    by, vy, ty, yi = s.split(i, [None, 2, 4, 2])
    bx, vx, tx, xi = s.split(j, [None, 2, 8, 2])
    ko, ki = s.split(k, [None, 4])
    s.reorder(by, bx, vy, vx, ty, tx, ko, ki, yi, xi)
    for loop, axis in zip((by, bx, vy, vx, ty, tx), ("blockIdx.y", "blockIdx.x", "vthread.y", "vthread.x",
                                                      "threadIdx.y", "threadIdx.x"), strict=True):  # fmt: skip
        s.bind(loop, axis)
    s.reverse_compute_at(out, tx)
    for n in (0, 1):
        copy = s.cache_read("C", n, "shared")
        s.compute_at(copy, ko)
        own = s.get_loops(copy)[7:]
        if not own:
            continue
        _, a, b = s.split(s.fuse(*own) if len(own) > 1 else own[0], [None, 4, 8])
        s.bind(a, "threadIdx.y")
        s.bind(b, "threadIdx.x")
    return s


@pytest.mark.parametrize(("m", "n", "k"), [(16, 32, 16), (17, 13, 7), (1, 1, 1), (32, 16, 13)])
def test_tiled_matmul(m, n, k):
    a, b = integers(m, k), integers(k, n, seed=1)
    assert (run(tiled(matmul(m, n, k)), a, b, shape=(m, n)) == a @ b).all()


def test_shared_memory_holds_one_step():
    text = tw.build(tiled(matmul(32, 32, 16)), "gpu-sim").get_source("lowered")
    assert 'A_shared = T.decl_buffer((16, 4), scope="shared")' in text
    assert "C_local = T.decl_buffer((2, 2, 2, 2)" in text
    assert text.count("tvm_storage_sync") == 2


def pipelined(func, stages=(0, 0, 1), order=(0, 1, 2)):
    s = tiled(func)
    outer = s.get_loops("C")[6]
    s.annotate(outer, "software_pipeline_stage", list(stages))
    s.annotate(outer, "software_pipeline_order", list(order))
    return s


@pytest.mark.parametrize("k", [4, 8, 13, 32])
def test_software_pipeline(k):
    a, b = integers(16, k), integers(k, 32, seed=1)
    assert (run(pipelined(matmul(16, 32, k)), a, b, shape=(16, 32)) == a @ b).all()


def test_a_pipeline_has_two_versions_and_one_barrier_in_its_loop():
    text = tw.build(pipelined(matmul(16, 32, 32)), "gpu-sim").get_source("lowered")
    assert 'A_shared = T.decl_buffer((2, 16, 4), scope="shared")' in text
    head, loop = text.split("for k_0 in range(7):")
    assert head.count("tvm_storage_sync") <= 1 and loop.count("tvm_storage_sync") == 1


@pytest.mark.parametrize(("stages", "order", "words"), [
    ((0, 1), (0, 1), r"software_pipeline_stage \[0, 1\] and software_pipeline_order \[0, 1\] do not fit its 3 statements"),
    ((0, 0, 1), (0, 1, 1), "do not fit its 3 statements"),
])  # fmt: skip
def test_wrong_pipelines(stages, order, words):
    with pytest.raises(GpuError, match=words):
        tw.build(pipelined(matmul(16, 32, 32), stages, order), "gpu-sim")


def row_sum(m, n):
    x = te.placeholder((m, n), name="X")
    k = te.reduce_axis((0, n), name="k")
    return te.create_prim_func([x, te.compute((m,), lambda i: te.sum(x[i, k], axis=k), name="Y")])


@pytest.mark.parametrize("threads", [2, 7, 32, 64, 256])
@pytest.mark.parametrize("n", [1, 13, 300])
def test_sum_across_threads(threads, n):
    s = tw.Schedule(row_sum(3, n))
    i, k = s.get_loops("Y")
    _, t = s.split(k, [None, threads])
    s.bind(i, "blockIdx.x")
    s.bind(t, "threadIdx.x")
    x = integers(3, n)
    assert (run(s, x, shape=(3,)) == x.sum(1)).all()


@pytest.mark.parametrize("rows", [1, 4])
def test_sum_across_one_of_two_axes(rows):
    s = tw.Schedule(row_sum(8, 40))
    i, k = s.get_loops("Y")
    i, y = s.split(i, [None, rows])
    _, t = s.split(k, [None, 16])
    s.bind(i, "blockIdx.x")
    s.bind(y, "threadIdx.y")
    s.bind(t, "threadIdx.x")
    x = integers(8, 40)
    assert (run(s, x, shape=(8,)) == x.sum(1)).all()


def test_rfactor_and_cross_thread():
    s = tw.Schedule(row_sum(3, 96))
    i, k = s.get_loops("Y")
    _, t = s.split(k, [None, 32])
    part = s.rfactor(t, 0)
    i, t = s.get_loops("Y")
    s.bind(i, "blockIdx.x")
    s.bind(t, "threadIdx.x")
    s.compute_at(part, t)
    x = integers(3, 96)
    assert (run(s, x, shape=(3,)) == x.sum(1)).all()


def test_argmax_across_threads():
    x = te.placeholder((3, 50), name="X")
    s = tw.Schedule(te.create_prim_func([x, te.ops.argmax(x, 1)] if hasattr(te.ops, "argmax") else [x]))
    block = next(b.block.name for b in tir.walk.blocks_of(s.func) if b.block.init is not None)
    i, k = s.get_loops(block)[:2]
    _, t = s.split(k, [None, 16])
    s.bind(i, "blockIdx.x")
    s.bind(t, "threadIdx.x")
    blocks = [b.block.name for b in tir.walk.blocks_of(s.func) if b.block.iter_vars and b.block.name != block]
    for other in blocks:
        s.bind(s.get_loops(other)[0], "blockIdx.x")
    data = np.random.default_rng(0).permutation(150).reshape(3, 50).astype("float32")
    module = tw.build(s, "gpu-sim")
    out = np.zeros(3, module.entry.params[-1].buffer.dtype)
    module(data, out)
    assert (out == data.argmax(1)).all()


REVERSED = """
@T.prim_func
def main(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    with T.block("root"):
        S = T.alloc_buffer((64,), scope="shared")
        for b in T.thread_binding(1, thread="blockIdx.x"):
            for t in T.thread_binding(64, thread="threadIdx.x"):
                with T.block("S"):
                    v = T.axis.spatial(64, t)
                    S[v] = A[v]
            for t in T.thread_binding(64, thread="threadIdx.x"):
                with T.block("B"):
                    v = T.axis.spatial(64, t)
                    B[v] = S[INDEX]
"""


def simulated(text, passes=LAUNCH_PASSES):
    func = run_passes(tir.parse(text), tw.Target("gpu-sim"), passes)
    x, out = integers(64), np.full(64, np.nan, "float32")
    simulate(func, dict(zip(func.buffers, (x, out), strict=True)), {})
    return x, out


def test_barrier_between_threads():
    x, out = simulated(REVERSED.replace("INDEX", "63 - v"))
    assert (out == x[::-1]).all()


def test_no_barrier_where_each_thread_reads_its_own():
    func = run_passes(tir.parse(REVERSED.replace("INDEX", "v")), tw.Target("gpu-sim"), LAUNCH_PASSES)
    assert "tvm_storage_sync" not in func.script()


def test_one_block_without_a_loop_has_shared_memory():
    func = tir.parse("""
@T.prim_func
def main(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    for t in T.thread_binding(64, thread="threadIdx.x"):
        S = T.alloc_buffer((64,), scope="shared")
        S[t] = A[t]
        B[t] = S[63 - t]
""")
    x = integers(64)
    assert (run(func, x, shape=(64,)) == x[::-1]).all()
    assert "bar.sync" in tw.build(func, "cuda").get_source()


WITHOUT_BARRIERS = tuple(p for p in LAUNCH_PASSES if p.name != "place_barriers")


def test_a_race_has_a_place():
    with pytest.raises(RaceError, match=r"main: reads S\[63\] in blockIdx.x 0, threadIdx.x 0, which thread 63 of block 0 "
                                        "wrote without a barrier in between"):  # fmt: skip
        simulated(REVERSED.replace("INDEX", "63 - v"), WITHOUT_BARRIERS)


def test_a_read_of_nothing_has_a_place():
    text = REVERSED.replace("S[v] = A[v]", "T.where(t < 9)\n                    S[v] = A[v]").replace("INDEX", "v")
    with pytest.raises(GpuError, match=r"reads S\[9\], which nothing has written, in blockIdx.x 0, threadIdx.x 9"):
        simulated(text)


def test_an_access_outside_is_refused_or_has_a_place():
    with pytest.raises(IndexError, match=r"reads S\[.*\] of shape \(64\), dimension 0: the index is 70"):
        simulated(REVERSED.replace("INDEX", "v + 7"))
    with pytest.raises(GpuError, match=r"reads S\[64\], outside its shape \(64,\), in blockIdx.x 0, threadIdx.x 57"):
        simulated(REVERSED.replace("INDEX", "v + 7").replace("S[v] = A[v]", "S[v] = A[v] + T.float32(0)"),
                  tuple(p for p in LAUNCH_PASSES if p.name not in ("check_accesses", "compact_buffers", "narrow_shared")))  # fmt: skip


def test_a_function_without_threads_is_refused():
    with pytest.raises(GpuError, match="no loop runs on blocks or threads; bind one"):
        tw.codegen.compile(matmul(4, 4, 4), "gpu-sim")


def copying_ahead(k, stages, asynchronous=(0,)):
    s = pipelined(matmul(16, 32, k), stages)
    s.annotate(s.get_loops("C")[6], "software_pipeline_async_stages", list(asynchronous))
    return s


@pytest.mark.parametrize(("k", "stages"), [
    (4, (0, 0, 1)), (8, (0, 0, 1)), (13, (0, 0, 1)), (32, (0, 0, 2)), (32, (0, 0, 3)), (32, (0, 1, 3)), (8, (0, 0, 3)), (32, (1, 1, 2)),
])  # fmt: skip
def test_asynchronous_copies(k, stages):
    a, b = integers(16, k), integers(k, 32, seed=1)
    s = copying_ahead(k, stages, sorted(set(stages[:2])))
    assert (run(s, a, b, shape=(16, 32)) == a @ b).all()


def test_asynchronous_copies_have_one_barrier_a_step():
    text = tw.build(copying_ahead(32, (0, 0, 2)), "gpu-sim").get_source("lowered")
    head, loop = text.split("for k_0 in range(6):")
    assert (
        "tvm_storage_sync" not in head and head.count("ptx_commit_group()") == 2 and head.count("ptx_wait_group(") == 0
    )
    assert (
        loop.count("tvm_storage_sync") == 3
        and loop.count("ptx_wait_group(1)") == 2
        and loop.count("ptx_wait_group(0)") == 1
    )


@pytest.mark.parametrize(("text", "without", "words"), [
    ("wait", "T.evaluate(T.ptx_wait_group(1))", "reads A_shared.*, which an asynchronous copy still fills"),
    ("wait for fewer", "ptx_wait_group(0)", "reads .*_shared.*, which an asynchronous copy still fills"),
    ("barriers", 'T.evaluate(T.tvm_storage_sync("shared"))', "without a barrier in between"),
])  # fmt: skip
def test_copies_that_are_not_awaited(text, without, words):
    lowered = tw.build(copying_ahead(32, (0, 0, 2)), "gpu-sim").get_source("lowered")
    broken = tw.tir.parse(lowered.replace(without, "ptx_wait_group(2)" if "fewer" in text else "T.evaluate(0)"))
    arrays = [integers(16, 32), integers(32, 32, seed=1), np.empty((16, 32), "float32")]
    with pytest.raises(RaceError, match=words):
        simulate(broken, dict(zip(broken.buffers, arrays, strict=True)), {})


@pytest.mark.parametrize(("stages", "asynchronous", "words"), [
    ((0, 0, 1), [1], "C_local, which is copied asynchronously, is used in the stage that copies it"),
    ((0, 0, 1), [2], "software_pipeline_async_stages names a stage that no statement has"),
    ((0, 1, 1), [0, 1], "B_shared, which is copied asynchronously, is used in the stage that copies it"),
])  # fmt: skip
def test_stages_that_cannot_be_asynchronous(stages, asynchronous, words):
    with pytest.raises(GpuError, match=words):
        tw.build(copying_ahead(32, stages, asynchronous), "gpu-sim")


COPIED = """
@T.prim_func
def main(A: T.Buffer((8, 32), "float32"), B: T.Buffer((8, 32), "float32")):
    with T.block("root"):
        S = T.alloc_buffer((32,), scope="shared")
        for b in T.thread_binding(1, thread="blockIdx.x"):
            for t in T.thread_binding(32, thread="threadIdx.x"):
                for k in T.serial(8, annotations={"software_pipeline_stage": [0, 1], "software_pipeline_order": [0, 1],
                                                  "software_pipeline_async_stages": [0]}):
                    S[t] = VALUE
                    B[k, t] = S[31 - t]
"""


@pytest.mark.parametrize(("value", "words"), [
    ("A[k, t]", None),
    ("A[k, t] * T.float32(2)", "S cannot be filled by asynchronous copies"),
    ("B[k, t]", "S cannot be filled by asynchronous copies"),
])  # fmt: skip
def test_what_asynchronous_copies_may_move(value, words):
    func = tir.parse(COPIED.replace("VALUE", value))
    a = integers(8, 32)
    if words is None:
        assert (run(func, a, shape=(8, 32)) == a[:, ::-1]).all()
        return
    with pytest.raises(GpuError, match=words):
        tw.build(func, "gpu-sim")


def test_shared_memory_of_blocks_of_one_thread():
    func = tir.parse("""
@T.prim_func
def main(X: T.Buffer((6,), "float32"), Y: T.Buffer((6,), "float32")):
    S = T.alloc_buffer((6,), scope="shared")
    for b in T.thread_binding(6, thread="blockIdx.x"):
        with T.block("S"):
            v = T.axis.spatial(6, b)
            S[v] = X[v] + T.float32(1)
        with T.block("Y"):
            v = T.axis.spatial(6, b)
            Y[v] = S[v]
""")
    x = integers(6)
    assert (run(func, x, shape=(6,)) == x + 1).all()
