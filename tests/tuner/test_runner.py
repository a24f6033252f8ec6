"""Measuring in worker processes: right candidates get times; crashes, hangs and wrong results get a status and a reason."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen.machine.target import Target
from tilewright.schedule import Schedule
from tilewright.tir.parser import parse
from tilewright.tuner import LocalRunner, ReferenceFailed
from tilewright.tuner.measure import runner as runner_module
from tilewright.tuner.measure.inputs import compare, make_arguments, tolerance

TARGET = Target("native -num-cores=1")


def add_one(n=17):
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
    return te.create_prim_func([a, b])


def calling(name, *args):
    """A function that calls the C library's ``name``."""
    arguments = "".join(f", {a}" for a in args)
    return parse(f"""
@T.prim_func
def main(B: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = T.Cast("float32", T.call_extern("int32", "{name}"{arguments}))
""")


def programs(func, count=1):
    out = [func.script()]
    for factor in range(2, count + 1):
        sch = Schedule(func)
        sch.split(sch.get_loops(sch.get_block("B"))[0], [None, factor])
        out.append(sch.func.script())
    return out


@pytest.fixture
def runner():
    with LocalRunner(workers=2, run_timeout=20.0, max_samples=4) as made:
        yield made


@pytest.mark.parametrize(("cores", "workers"), [(3, 3), (8, 8), (64, 8)])
def test_as_many_workers_as_cores_up_to_eight(monkeypatch, cores, workers):
    monkeypatch.setattr(runner_module, "available_cores", lambda: cores)
    assert len(LocalRunner().workers) == workers
    assert len(LocalRunner(workers=2).workers) == 2


def test_the_best_time_so_far_bounds_the_next_candidates():
    """A candidate is timed further only where it may become the best one, of this call or before it."""

    class Noting(LocalRunner):
        def _compile(self, jobs, deadline):
            for job in jobs:
                job.status = "compiled"

        def _first_run(self, job, jobs, best, stop_above):
            noted.append((best, stop_above))
            job.status, job.times = "ok", times[len(noted) - 1]

        def _race(self, jobs, best, deadline, equally):
            noted.append(best)

    noted, times = [], [[3.0, 5.0], [8.0, 2.0], [6.0, 7.0]]
    results = Noting(workers=1).measure(["a", "b", "c"], best_seconds=4.0)
    assert [r.status for r in results] == ["ok"] * 3
    assert noted == [(4.0, 6.0), (3.0, 4.5), (2.0, 3.0), 2.0]


def test_candidates_are_timed_in_order(runner):
    func = add_one()
    runner.open(func, TARGET)
    results = runner.measure(programs(func, 5))
    assert [r.status for r in results] == ["ok"] * 5
    assert all(r.run_seconds > 0 and r.compile_seconds > 0 and len(r.times) >= 1 for r in results)


class Scripted(LocalRunner):
    """Programs are the seconds that they take; nothing is compiled. ``asked`` has what each run was asked for."""

    def __init__(self):
        super().__init__(workers=1)
        self.asked = []

    def _compile(self, jobs, deadline):
        for job in jobs:
            job.status, job.worker = "compiled", self.workers[0]

    def _run(self, job, jobs, *, check, samples, stop_above, limit):
        self.asked.append((job.program, samples, stop_above, limit))
        job.times += [float(job.program)] * samples
        return True

    def _tidy(self, jobs):
        pass


def test_the_fastest_so_far_is_what_others_are_measured_against():
    runner = Scripted()
    runner.measure(["4e-3", "1e-3", "3e-3", "2e-3"])
    first = [(program, stop) for program, _, stop, _ in runner.asked[:4]]
    assert first == [("4e-3", 1.0), ("1e-3", 1.5 * 4e-3), ("3e-3", 1.5e-3), ("2e-3", 1.5e-3)]
    assert {program for program, *_ in runner.asked[4:]} == {"1e-3"}
    runner.asked.clear()
    runner.measure(["4e-3", "1e-3"], best_seconds=5e-4)
    assert [stop for _, _, stop, _ in runner.asked] == [7.5e-4, 7.5e-4]


def test_all_are_timed_as_often_when_they_are_compared():
    runner = Scripted()
    slow, fast = runner.measure(["90e-3", "1e-3"], equally=True)
    assert len(fast.times) == runner.limits.max_samples and len(slow.times) >= 3
    assert all(stop in (1.0, float("inf")) for _, _, stop, _ in runner.asked)


@pytest.mark.parametrize(
    "limit",
    [
        {"run_timeout": 0},
        {"compile_timeout": float("nan")},
        {"max_samples": 0},
        {"memory_bytes": -1},
        {"min_seconds": -1},
    ],
)
def test_limits_out_of_range_are_refused(limit):
    with pytest.raises(ValueError, match=f"{next(iter(limit))} is "):
        LocalRunner(**limit)


def test_limits_that_may_be_zero():
    limits = LocalRunner(workers=1, min_seconds=0, race_seconds=0.0, memory_bytes=0).limits
    assert (limits.min_seconds, limits.race_seconds, limits.memory_bytes) == (0, 0, 0)
    with pytest.raises(ValueError, match="run_timeout is a number of seconds above zero"):
        LocalRunner(workers=1, run_timeout=0.0)


def test_a_program_that_cannot_be_read_has_a_reason(runner):
    func = add_one()
    runner.open(func, TARGET)
    bad, good = runner.measure(
        [func.script().replace("T.grid", "T.nowhere").replace("range", "nowhere"), *programs(func)]
    )
    assert bad.status == "compile_error" and "nowhere" in bad.error
    assert good.status == "ok"


def test_a_wrong_result_is_no_success(runner):
    func = add_one()
    runner.open(func, TARGET)
    runner._reference = (np.zeros(17, np.float32).tobytes(),)
    runner._ready.clear()
    (result,) = runner.measure(programs(func))
    assert result.status == "wrong_result"
    assert "17 of 17 elements are wrong, first at [0]" in result.error
    assert result.run_seconds == float("inf")


def test_a_crash_is_a_record_and_the_next_candidate_runs(runner):
    runner.open(calling("abort"), TARGET, verify=False)
    first, second = runner.measure(programs(calling("abort"), 2))
    assert first.status == second.status == "crash"
    assert "SIGABRT" in first.error
    func = add_one()
    runner.open(func, TARGET)
    assert runner.measure(programs(func))[0].status == "ok"


def test_a_hang_is_ended():
    with LocalRunner(workers=1, run_timeout=1.0) as runner:
        func = calling("sleep", 1000)
        runner.open(func, TARGET, verify=False)
        (result,) = runner.measure(programs(func))
    assert result.status == "timeout"
    assert "more than 1 s" in result.error


def test_compiling_that_takes_too_long_is_ended():
    with LocalRunner(workers=1, compile_timeout=0.001) as runner:
        func = add_one()
        runner.open(func, TARGET, verify=False)
        (result,) = runner.measure(programs(func))
    assert result.status == "timeout"
    assert result.error == "compiling takes more than 0.001 s"


def test_a_reference_that_fails_is_reported(runner):
    with pytest.raises(ReferenceFailed, match="does not run: .*SIGABRT"):
        runner.open(calling("abort"), TARGET)


def test_after_the_deadline_nothing_is_begun(runner):
    func = add_one()
    runner.open(func, TARGET)
    results = runner.measure(programs(func, 3), deadline=time.monotonic() - 1)
    assert [r.status for r in results] == ["skipped"] * 3


def test_workers_end_with_the_runner():
    runner = LocalRunner(workers=2)
    runner.open(add_one(), TARGET)
    processes = [w._process for w in runner.workers]
    runner.close()
    assert all(p.poll() is not None for p in processes)


def test_symbolic_shapes_are_refused(runner):
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    func = te.create_prim_func([a, te.compute((n,), lambda i: a[i] + 1.0, name="B")])
    with pytest.raises(ValueError, match=r"symbolic shape \(n\).*bind them, or give examples"):
        runner.open(func, TARGET)


def test_a_target_that_cannot_run_here_is_refused(runner):
    with pytest.raises(ValueError, match="cannot run code for .*aarch64"):
        runner.open(add_one(), Target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76"))


def test_arrays_begin_where_numpys_begin():
    arguments = make_arguments(add_one(), 0)
    assert {v.ctypes.data % 64 for v in arguments.values} == {16}


def test_inputs_follow_from_the_seed():
    one, two, other = (make_arguments(add_one(), seed) for seed in (1, 1, 2))
    assert np.array_equal(one.values[0], two.values[0])
    assert not np.array_equal(one.values[0], other.values[0])
    assert np.isnan(one.values[1]).all() and one.outputs == (1,) and one.in_out == ()


def test_writing_out_of_bounds_is_noticed():
    arguments = make_arguments(add_one(), 0)
    assert arguments.damage() is None
    array = arguments.values[1]
    beyond = np.lib.stride_tricks.as_strided(array, (18,), array.strides)
    beyond[17] = 1.0
    assert arguments.damage() == "argument 1 was written out of bounds"


def test_writing_an_input_is_noticed():
    arguments = make_arguments(add_one(), 0)
    arguments.values[0][3] += 1
    assert arguments.damage() == "argument 0 is an input but was written"


def test_the_tolerance_allows_rounding_and_nothing_else():
    k = te.reduce_axis((0, 1000), name="k")
    a = te.placeholder((7, 1000), name="A")
    func = te.create_prim_func([a, te.compute((7,), lambda i: te.sum(a[i, k], axis=k), name="B")])
    limits = tolerance(func)
    exact = np.linspace(-20, 20, 7).astype(np.float32)
    assert compare([exact * np.float32(1 + 1e-6)], [exact], ["float32"], limits) is None
    assert "first at [0]" in compare([exact * np.float32(1.001)], [exact], ["float32"], limits)
    broken = exact.copy()
    broken[3] = np.nan
    assert "1 of 7" in compare([broken], [exact], ["float32"], limits)


def test_integers_are_compared_exactly():
    a = np.arange(5, dtype=np.int32)
    assert compare([a], [a], ["int32"], (0.1, 0.1)) is None
    assert "1 of 5" in compare([a + (a == 2)], [a], ["int32"], (0.1, 0.1))


def test_workers_end_when_the_tuner_is_killed():
    program = """
import os, signal
from tilewright.tuner.measure.process import WorkerProcess
worker = WorkerProcess()
worker.request({"command": "drop", "job": 0}, timeout=60)
print(worker.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd="/", check=False)
    pid = int(done.stdout)
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("the worker outlived its parent")


def test_what_a_candidate_prints_does_not_disturb_the_messages(runner):
    func = calling("putchar", 65)
    runner.open(func, TARGET, verify=False)
    assert [r.status for r in runner.measure(programs(func, 2))] == ["ok", "ok"]


def test_a_memory_limit_ends_a_greedy_candidate():
    n = 1 << 28
    a = te.placeholder((n,), name="A")
    func = te.create_prim_func([a, te.compute((n,), lambda i: a[i] + 1.0, name="B")])
    with LocalRunner(workers=1, memory_bytes=1 << 30) as limited:
        with pytest.raises(ReferenceFailed, match="MemoryError|allocate|open"):
            limited.open(func, TARGET)
