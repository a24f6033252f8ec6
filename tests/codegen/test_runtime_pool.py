"""The pool and the scratch memory of the runtime, called directly."""

import ctypes
import os
import re
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from tilewright.codegen.llvm.jit import load, optimize_and_compile
from tilewright.codegen.machine.target import Target
from tilewright.codegen.runtime.loader import runtime_symbols
from tilewright.codegen.runtime.runtime_ir import PARTS, SYMBOLS, runtime_ir

BODY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)

# run(ctx, n, threads, times): each element of ctx is counted up once per pass over [0, n)
COUNT = """
declare void @tw_parallel_for(ptr, ptr, i64, i32)
define internal void @body(ptr %ctx, i64 %begin, i64 %end) {
entry:
  %any = icmp slt i64 %begin, %end
  br i1 %any, label %loop, label %done
loop:
  %i = phi i64 [ %begin, %entry ], [ %j, %loop ]
  %at = getelementptr i64, ptr %ctx, i64 %i
  %old = load i64, ptr %at
  %new = add i64 %old, 1
  store i64 %new, ptr %at
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
define void @run(ptr %ctx, i64 %n, i32 %threads, i64 %times) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %j, %loop ]
  call void @tw_parallel_for(ptr @body, ptr %ctx, i64 %n, i32 %threads)
  %j = add i64 %i, 1
  %more = icmp slt i64 %j, %times
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


@pytest.fixture(scope="module")
def counter():
    loaded = load(optimize_and_compile(COUNT, Target("native")).object, ["run"], runtime_symbols())
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_int64)(loaded.address("run"))

    def count(n, threads, times):
        out = np.zeros(max(n, 1), np.int64)
        run(out.ctypes.data, n, threads, times)
        return out

    count.keep = loaded
    return count


def parallel_for(body, n, threads):
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32)
    callback = BODY(body)
    call(runtime_symbols()["tw_parallel_for"])(ctypes.cast(callback, ctypes.c_void_p), None, n, threads)


@pytest.mark.parametrize("n", [0, 1, 7, 13, 16, 17])
@pytest.mark.parametrize("threads", [0, 1, 2, 3, 8])
def test_chunks_cover_the_range_once(n, threads):
    chunks = []
    parallel_for(lambda ctx, begin, end: chunks.append((begin, end)), n, threads)
    assert sorted(i for begin, end in chunks for i in range(begin, end)) == list(range(n))
    assert len(chunks) == min(n, max(threads, 1))


def test_each_chunk_has_a_thread_of_its_own():
    threads = set()
    barrier = threading.Barrier(3)

    def body(ctx, begin, end):
        barrier.wait(timeout=30)  # nobody passes before all three are here
        threads.add(threading.get_native_id())

    parallel_for(body, 3, 3)
    assert len(threads) == 3


@pytest.mark.parametrize("threads, times", [(2, 3000), (3, 300), (7, 100), (2, 1)])
def test_many_regions_in_a_row(counter, threads, times):
    assert (counter(17, threads, times) == times).all()
    assert (counter(5, 2, 3) == 3).all()  # fewer threads than before, then more again
    assert (counter(17, threads, 2) == 2).all()


def test_nested_regions_run_in_their_thread():
    ranges = []

    def outer(ctx, begin, end):
        parallel_for(lambda c, b, e: ranges.append((begin, b, e, threading.get_native_id())), 13, 4)

    parallel_for(outer, 2, 2)
    assert sorted(r[:3] for r in ranges) == [(0, 0, 13), (1, 0, 13)]


@pytest.fixture(scope="module")
def cores():
    """The functions of the pool that note and leave a core, to be called for thread 0 and for thread 1 of a job of two."""
    loaded = load(
        optimize_and_compile(runtime_ir(Target("native")), Target("native")).object, ["tw_note_core", "tw_leave_core"]
    )
    note = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_int64)(loaded.address("tw_note_core"))
    leave = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(loaded.address("tw_leave_core"))
    yield note, leave
    del loaded


def test_a_chunk_is_claimed_once():
    loaded = load(optimize_and_compile(runtime_ir(Target("native")), Target("native")).object, ["tw_claim"])
    claim = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_int64, ctypes.c_int64)(loaded.address("tw_claim"))
    asked = [(1, 5), (1, 5), (2, 5), (1, 4), (1, 6), (2, 4), (1, 6)]  # 4: a worker that comes late for an earlier job
    assert [claim(*words) for words in asked] == [True, False, True, False, True, False, False]
    won = []
    threads = [
        threading.Thread(target=lambda: won.append([e for e in range(7, 2000) if claim(1, e)])) for _ in range(3)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(won[0]) + len(won[1]) + len(won[2]) == len({*won[0], *won[1], *won[2]}) > 0


def test_the_caller_takes_the_chunk_of_a_worker_that_has_not_begun():
    """The worker is held, before it claims its chunk of each job, where it would leave the core of another thread."""
    begun, go_on, arrived = threading.Event(), threading.Event(), []

    @ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)
    def hold(index, threads):
        arrived.append((index, threads))
        begun.set()
        go_on.wait(timeout=60)

    ask = "call void @tw_leave_core(i64 %index, i64 %threads)"
    held = f"call void inttoptr (i64 {ctypes.cast(hold, ctypes.c_void_p).value} to ptr)(i64 %index, i64 %threads)"
    text = runtime_ir(Target("native"))
    assert text.count(ask) == 1
    compiled = optimize_and_compile(text.replace(ask, held), Target("native"))
    loaded = load(compiled.object, ["tw_parallel_for"])
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32)
    run, chunks = call(loaded.address("tw_parallel_for")), []

    @BODY
    def body(ctx, begin, end):
        assert begun.wait(timeout=60)  # the worker has seen the job
        chunks.append((begin, end, threading.get_native_id()))

    own = threading.get_native_id()
    run(ctypes.cast(body, ctypes.c_void_p), None, 17, 2)
    assert (chunks, arrived) == ([(0, 8, own), (8, 17, own)], [(1, 2)])
    go_on.set()  # the worker finds its chunk taken, and both share the next jobs
    for _ in range(20):
        run(ctypes.cast(body, ctypes.c_void_p), None, 7, 2)
    assert sorted(chunk[:2] for chunk in chunks[2:]) == [(0, 3)] * 20 + [(3, 7)] * 20
    time_out = time.monotonic() + 60
    while len(arrived) < 2 and time.monotonic() < time_out:
        time.sleep(0.001)  # the worker sees one of them at least, and then waits for another: the code must stay loaded
    assert len(arrived) >= 2
    _KEPT.append((loaded, hold, body))


_KEPT: list = []
"""Code and callbacks that a detached worker may still enter."""


def test_a_part_of_the_runtime_names_functions_of_parts_before_it_alone():
    known: set[str] = set()
    for part in PARTS:
        known.update(re.findall(r"^(?:define [^@]*|)@(tw_\w+)", part.text, re.MULTILINE))
        assert set(re.findall(r"@(tw_\w+)", part.text)) <= known
    assert set(SYMBOLS) <= known


linux_with_two_cores = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="needs Linux and two cores"
)


@linux_with_two_cores
def test_a_worker_leaves_the_core_of_the_caller(cores):
    note, leave = cores
    allowed, system = os.sched_getaffinity(0), ctypes.CDLL(None)
    found = []
    for _ in range(20):  # the system may move the thread back at any time, but not each time
        note(0)
        before = system.sched_getcpu()
        leave(1, 2)
        found.append(system.sched_getcpu() != before)
        assert os.sched_getaffinity(0) == allowed
    assert sum(found) > 10


@linux_with_two_cores
def test_a_worker_with_one_core_stays(cores):
    note, leave = cores
    allowed = os.sched_getaffinity(0)
    only = {min(allowed)}
    try:
        os.sched_setaffinity(0, only)
        note(0)
        leave(1, 2)
        assert os.sched_getaffinity(0) == only
    finally:
        os.sched_setaffinity(0, allowed)


def test_callers_in_several_threads(counter):
    results = []
    callers = [threading.Thread(target=lambda: results.append(counter(17, 2, 500))) for _ in range(4)]
    for t in callers:
        t.start()
    for t in callers:
        t.join()
    assert len(results) == 4 and all((r == 500).all() for r in results)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_after_a_fork(counter):
    assert (counter(17, 2, 10) == 10).all()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if (counter(17, 3, 10) == 10).all() else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert (counter(17, 2, 10) == 10).all()


def test_the_process_ends_with_workers_about():
    script = (
        "import ctypes, sys\n"
        "from tilewright.codegen.runtime.loader import runtime_symbols\n"
        "B = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(lambda c, b, e: None)\n"
        "f = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32)\n"
        "f(runtime_symbols()['tw_parallel_for'])(ctypes.cast(B, ctypes.c_void_p), None, 8, 4)\n"
        "print('done')\n"
    )
    done = subprocess.run([sys.executable, "-P" if sys.version_info >= (3, 11) else "-s", "-c", script],
                          capture_output=True, text=True, timeout=120, cwd="/")  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def memory():
    symbols = runtime_symbols()
    alloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(symbols["tw_alloc"])
    free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(symbols["tw_free"])
    return alloc, free


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 4096, 2 << 20, (3 << 20) + 17])
def test_scratch_memory(size):
    alloc, free = memory()
    block = alloc(size)
    assert block % 64 == 0
    ctypes.memset(block, 0xAA, size)
    free(block)


def test_freed_memory_is_handed_out_again():
    alloc, free = memory()
    block = alloc(12345678)
    free(block)
    assert alloc(12345600) == block  # it fits
    free(block)
    small = alloc(1 << 20)  # far too large for this
    assert small != block
    free(small)


def test_blocks_in_use_are_apart():
    alloc, free = memory()
    sizes = [1, 100, 1000, 4096, 70000, 100000] * 8  # more than the cache has slots
    for _ in range(3):
        blocks = sorted((alloc(s), s) for s in sizes)
        assert all(a + s <= b for (a, s), (b, _) in zip(blocks, blocks[1:], strict=False))
        for block, _ in blocks:
            free(block)
    free(None)


def test_scratch_memory_in_many_threads():
    alloc, free = memory()
    bad = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for size in rng.integers(1, 200000, 300):
            block = alloc(int(size))
            mark = (ctypes.c_uint8 * int(size)).from_address(block)
            mark[0] = mark[int(size) - 1] = seed
            if mark[0] != seed or mark[int(size) - 1] != seed:
                bad.append(seed)
            free(block)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not bad


def test_memory_that_does_not_exist():
    alloc, _ = memory()
    assert alloc(1 << 60) is None


@pytest.mark.parametrize("triple", ["aarch64-linux-gnu", "arm64-apple-darwin", "x86_64-linux-gnu", "riscv64-linux-gnu"])
@pytest.mark.parametrize("exported", [False, True])
def test_the_runtime_compiles_for_every_target(triple, exported):
    code = optimize_and_compile(
        runtime_ir(Target(f"llvm -mtriple={triple}"), "linkonce_odr hidden" if exported else "", exported),
        Target(f"llvm -mtriple={triple}"),
    )
    if not exported:
        text = code.asm()
        assert all(symbol in text for symbol in SYMBOLS)


def test_timing(scale_module):
    a = np.ones((16, 4), np.float32)
    b = np.full_like(a, np.nan)
    function = scale_module()["scale"]
    result = function.time_evaluator(repeat=3, number=7)(a, b, 2.0)
    np.testing.assert_array_equal(b, 2 * a)
    assert len(result.results) == 3 and result.number == 7
    assert 0 < result.min <= result.median <= result.max and result.min <= result.mean <= result.max
    longer = function.time_evaluator(repeat=2, min_repeat_ms=2.0)(a, b, 2.0)
    assert longer.number > 1
    cold = function.time_evaluator(repeat=2, number=2, cold=1 << 22)(a, b, 2.0)
    assert cold.min > 0
    with pytest.raises(ValueError, match="repeat = 0"):
        function.time_evaluator(repeat=0)(a, b, 2.0)
    with pytest.raises(RuntimeError, match="more than 99 rows"):
        function.time_evaluator()(np.ones((100, 4), np.float32), np.ones((100, 4), np.float32), 1.0)
