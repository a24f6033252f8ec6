"""Rows that one thread copies to shared memory in bulk: equal on the simulated GPU, what it finds, the assembler, what is refused."""

import re

import numpy as np
import pytest

import tilewright as tw
from tilewright import te, tir
from tilewright.codegen.backend.emitter import EmitError
from tilewright.gpu import GpuError, RaceError
from tilewright.gpu.ptx import find_ptxas, run_ptxas
from tilewright.gpu.simulation.simulator import simulate


def product(m, n, k, dtype="float32"):
    a, b = te.placeholder((m, k), dtype, "A"), te.placeholder((k, n), dtype, "B")
    r = te.reduce_axis((0, k), name="k")
    return te.create_prim_func([a, b, te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")])


def scheduled(func, ahead=0, tile=32, rows="one thread", steps=None):
    """Tiles of 32 by 32 sums; copies of both operands run ``ahead``; ``steps``: how many tiles of k an outer loop has."""
    s = tw.Schedule(func)
    out = s.cache_write("C", 0, "local")
    i, j, k = s.get_loops("C")
    by, ty, yi = s.split(i, [None, 8, 4])
    bx, tx, xi = s.split(j, [None, 8, 4])
    ko, ki = s.split(k, [None, tile])
    s.reorder(by, bx, ty, tx, ko, ki, yi, xi)
    for loop, axis in ((by, "blockIdx.y"), (bx, "blockIdx.x"), (ty, "threadIdx.y"), (tx, "threadIdx.x")):
        s.bind(loop, axis)
    s.reverse_compute_at(out, tx)
    if steps:
        _, ko = s.split(ko, [None, steps])
    for n in (0, 1):
        copy = s.cache_read("C", n, "shared")
        s.compute_at(copy, ko)
        row, column = s.get_loops(copy)[-2:]
        if rows == "threads":
            s.bind(s.split(row, [None, 8])[1], "threadIdx.x")
        s.annotate(column, "bulk_copy", 1)
    if ahead:
        s.annotate(ko, "software_pipeline_stage", [0, 0, ahead])
        s.annotate(ko, "software_pipeline_order", [0, 1, 2])
        s.annotate(ko, "software_pipeline_async_stages", [0])
    return s


def operands(m, n, k, dtype="float32"):
    rng = np.random.default_rng(0)
    return rng.integers(-3, 4, (m, k)).astype(dtype), rng.integers(-3, 4, (k, n)).astype(dtype)


def check(s, m, n, k, dtype="float32"):
    a, b = operands(m, n, k, dtype)
    out = np.zeros((m, n), dtype) if dtype == "int32" else np.full((m, n), np.nan, dtype)
    tw.build(s, "gpu-sim")(a, b, out)
    assert (out == a @ b).all()


@pytest.mark.parametrize("ahead", [0, 1, 2, 3])
@pytest.mark.parametrize(("k", "dtype"), [(32, "float32"), (160, "float32"), (96, "float16"), (224, "int32")])
def test_equal(ahead, k, dtype):
    check(scheduled(product(64, 32, k, dtype), ahead), 64, 32, k, dtype)


@pytest.mark.parametrize("ahead", [0, 2])
def test_rows_that_threads_share(ahead):
    s = scheduled(product(32, 64, 96), ahead, rows="threads")
    assert "if threadIdx_y == 0:" in tw.build(s, "gpu-sim").get_source("lowered")
    check(s, 32, 64, 96)


@pytest.mark.parametrize("ahead", [0, 1, 2])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_phases_go_on_over_loops_around(ahead, steps):
    check(scheduled(product(32, 32, 6 * 16), ahead, 16, steps=steps), 32, 32, 96)


def test_one_wait_and_one_barrier_a_step():
    text = tw.build(scheduled(product(32, 32, 160)), "gpu-sim").get_source("lowered")
    loop = text.split("for k_0 in range(5):")[1]
    assert loop.count("T.ptx_arrive_barrier_expect_tx(T.address_of(arrivals[0]), 8192)") == 1
    assert loop.count("T.ptx_wait_barrier(T.address_of(arrivals[0]), k_0 % 2)") == 1
    assert loop.count("tvm_storage_sync") == 1


def test_two_kinds_of_copies_in_one_stage():
    """The rows of one operand are copied in bulk, the elements of the other by all threads with cp.async."""
    s = scheduled(product(32, 32, 128), 2)
    row, column = s.get_loops("B_shared")[-2:]
    s.unannotate(column, "bulk_copy")
    _, y, x = s.split(s.fuse(row, column), [None, 8, 8])
    s.bind(y, "threadIdx.y")
    s.bind(x, "threadIdx.x")
    text = tw.build(s, "gpu-sim").get_source("lowered")
    assert "T.ptx_wait_group(1)" in text and "expect_tx(T.address_of(arrivals[(k_0 + 2) % 3]), 4096)" in text
    check(s, 32, 32, 128)


# -- what is refused ------------------------------------------------------------------------------------------------------


def test_older_architectures_refuse():
    with pytest.raises(
        EmitError, match=r"bulk copies \(cp.async.bulk\) need -arch=sm_90 or newer; the target has sm_80"
    ):
        tw.build(scheduled(product(32, 32, 32)), "cuda").get_source()


@pytest.mark.parametrize(("made", "words"), [
    (lambda: scheduled(product(32, 32, 36), tile=6), "A_shared cannot be filled by bulk copies: a row of 6 elements has 24 bytes, and bulk copies move "
     "multiples of 16"),
    (lambda: scheduled(product(32, 32, 34), tile=34), "a row of 34 elements has 136 bytes"),
    (lambda: scheduled(product(32, 38, 32)), "B_shared cannot be filled by bulk copies: B has rows that do not all begin at a multiple of 16 bytes"),
    (lambda: scheduled(product(40, 32, 32)), "depends on the condition"),
    (lambda: scheduled(product(32, 32, 64), 1).func.script().replace("[0, 0, 1]", "[0, 1, 1]"),
     "bulk copies run in a stage of their own that software_pipeline_async_stages names"),
])  # fmt: skip
def test_refused(made, words):
    func = made()
    with pytest.raises(GpuError, match=re.escape(words)):
        tw.build(tir.parse(func) if isinstance(func, str) else func, "gpu-sim")


ROWS = """
@T.prim_func
def main(A: T.Buffer((8, WIDTH), "float32"), B: T.Buffer((8, 32), "float32")):
    with T.block("root"):
        S = T.alloc_buffer((32,), scope="SCOPE")
        for b in T.thread_binding(1, thread="blockIdx.x"):
            for k in T.serial(8):
                for c in T.serial(32, annotations={"bulk_copy": 1}):
                    S[c] = VALUE
                for t in T.thread_binding(32, thread="threadIdx.x"):
                    B[k, t] = S[31 - t]
"""


def rows(value="A[k, c]", width=32, scope="shared"):
    return ROWS.replace("VALUE", value).replace("WIDTH", str(width)).replace("SCOPE", scope)


@pytest.mark.parametrize(("text", "words"), [
    (rows("A[k, c] * T.float32(2)"), "S cannot be filled by bulk copies, which move elements of global memory that the kernel only reads"),
    (rows("B[k, c]"), "S cannot be filled by bulk copies, which move"),
    (rows(width=33), "A has rows that do not all begin at a multiple of 16 bytes"),
    (rows("A[k, c + 2]", 36), "A has rows that do not all begin at a multiple of 16 bytes"),
    (rows("A[k, 31 - c]"), "A does not have the elements of a row side by side"),
    (rows("A[k, c // 2]"), "A does not have the elements of a row side by side"),
    (rows(scope="shared.swizzled"), "shared.swizzled exchanges pieces of a row, which takes tensor maps"),
    (rows().replace("for k in T.serial(8)", "for k in T.serial(T.cast(A[0, 0], 'int32'))"), "whose extent is no constant"),
])  # fmt: skip
def test_rows_that_are_refused(text, words):
    with pytest.raises(GpuError, match=re.escape(words)):
        tw.build(tir.parse(text), "gpu-sim")


def test_a_row_in_text():
    a = operands(8, 1, 32)[0]
    out = np.full((8, 32), np.nan, "float32")
    tw.build(tir.parse(rows()), "gpu-sim")(a, out)
    assert (out == a[:, ::-1]).all()


# -- what the simulated GPU finds -----------------------------------------------------------------------------------------

SYNC = 'T.evaluate(T.tvm_storage_sync("shared"))'
WRONG = [
    ("phase", 0, "k_0 % 2)", "0)", "waits for a phase of parity 0 at arrivals[0], and 2 phases are done"),
    ("other phase", 0, "k_0 % 2)", "(k_0 + 1) % 2)", "waits for a phase of parity 1 at arrivals[0], and 1 phases are done"),
    ("too many bytes expected", 0, "8192", "8208", "which still misses 16 bytes"),
    ("too few bytes expected", 0, "8192", "4096", "begin before its phase 0 was awaited"),
    ("no wait", 0, "T.evaluate(T.ptx_wait_barrier(T.address_of(arrivals[0]), k_0 % 2))", "T.evaluate(0)",
     "which an asynchronous copy still fills"),
    ("not ready", 0, "T.evaluate(T.ptx_init_barrier_thread_count(T.address_of(arrivals[0]), 1))", "T.evaluate(0)",
     "arrivals is used before ptx_init_barrier_thread_count"),
    ("no barrier after it", 0, SYNC, "T.evaluate(0)", "arrivals is made ready and used without a barrier in between"),
    ("row at no piece", 0, "A_shared[ax0, ax1] =", "A_shared[ax0, ax1 + 1] =", "begins at element 1, which is at no multiple of 16 bytes"),
    ("row of no pieces", 0, "for ax1 in range(32):", "for ax1 in range(30):", "a row of A_shared has 120 bytes, which is no multiple of 16"),
    ("elements apart", 0, "A_shared[ax0, ax1] =", "A_shared[ax1, ax0] =", "the elements of a row of A_shared do not lie side by side"),
    ("wait of some threads", 0, "T.evaluate(T.ptx_wait_barrier(", "if threadIdx_x < 4:\n" + 28 * " " + "T.evaluate(T.ptx_wait_barrier(",
     "not all threads of a block wait at arrivals"),
    ("copies by all threads", 0, "if threadIdx_x == 0:\n" + 36 * " " + "T.attr", "if threadIdx_x >= 0:\n" + 36 * " " + "T.attr",
     "begin before its phase 0 was awaited"),
    ("bytes that no row fills", 0, "8192", "8128", "64 bytes more arrive at arrivals than it expects"),
    ("no barrier at the end of a step", 0, 24 * " " + SYNC, 24 * " " + "T.evaluate(0)", "which other threads read without a barrier in between"),
    ("version of the next step", 2, "A_shared[k_0, ", "A_shared[(k_0 + 1) % 3, ", "which an asynchronous copy still fills"),
    ("too few mbarriers", 2, "arrivals[(k_0 + 2) % 3]", "arrivals[(k_0 + 1) % 3]", "begin before its phase 0 was awaited"),
]  # fmt: skip


def simulated(text):
    func = tir.parse(text)
    arrays = [*operands(32, 32, 160), np.empty((32, 32), "float32")]
    simulate(func, dict(zip(func.buffers, arrays, strict=True)), {})


@pytest.mark.parametrize(("ahead", "old", "new", "words"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_what_the_simulated_gpu_finds(ahead, old, new, words):
    text = tw.build(scheduled(product(32, 32, 160), ahead), "gpu-sim").get_source("lowered")
    simulated(text)
    assert old in text
    with pytest.raises(GpuError, match=re.escape(words)) as found:
        simulated(text.replace(old, new))
    assert isinstance(found.value, RaceError) == any(
        word in words for word in ("barrier in between", "fills", "awaited")
    )


def test_a_kernel_that_ends_early():
    lines = tw.build(scheduled(product(32, 32, 32)), "gpu-sim").get_source("lowered").split("\n")
    text = "\n".join(line for line in lines if "ptx_wait" not in line).replace(
        "A_shared[threadIdx_y * 4 + i_2, k_1] * B_shared[k_1, threadIdx_x * 4 + j_2]", "1"
    )
    func = tir.parse(text)
    arrays = [*operands(32, 32, 32), np.empty((32, 32), "float32")]
    with pytest.raises(GpuError, match="a kernel ends while copies are on their way to arrivals"):
        simulate(func, dict(zip(func.buffers, arrays, strict=True)), {})


def test_counts():
    """Each row of 32 floats is one instruction and four sectors of memory."""
    s = scheduled(product(32, 32, 64))
    (counts,) = tw.build(s, "gpu-sim")["main"].bind(*operands(32, 32, 64), np.empty((32, 32), "float32")).counted()
    stores = 16 * 2 * 16 * 32  # of 16 instructions of two warps, 16 sectors each
    assert counts["l2_bytes"] == 2 * 64 * 32 * 4 + stores and counts["memory_bytes"] == 2 * 64 * 32 * 4 + 32 * 32 * 4


# -- machine code ---------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed: pip install nvidia-cuda-nvcc-cu12")
@pytest.mark.parametrize("arch", ["sm_90", "sm_90a"])
@pytest.mark.parametrize(("ahead", "rows"), [(0, "one thread"), (2, "one thread"), (2, "threads")])
def test_assembler_takes_it(arch, ahead, rows):
    (text,) = tw.build(scheduled(product(128, 128, 160), ahead, rows=rows), f"cuda -arch={arch}").ptx.values()
    assert ".version 8.0" in text
    (report,), _ = run_ptxas(text, arch)
    assert report.spill_bytes == report.stack_bytes == 0


def test_instructions():
    text = tw.build(scheduled(product(32, 32, 160)), "cuda -arch=sm_90").get_source("ptx")
    for words in ("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes", "mbarrier.init.shared::cta.b64",
                  "mbarrier.arrive.expect_tx.shared::cta.b64 _", "mbarrier.try_wait.parity.shared::cta.b64",
                  "fence.proxy.async.shared::cta"):  # fmt: skip
        assert words in text
