"""Sessions: budgets, records, resuming, interruption; with a made-up runner, so that nothing depends on times."""

import hashlib
import time
from contextlib import nullcontext

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen.machine.target import Target
from tilewright.driver.report import search_histories
from tilewright.schedule import Schedule, Trace
from tilewright.tir.interpret import interpret
from tilewright.tuner import (
    BatchStarted,
    CandidateMeasured,
    FinalComparison,
    MeasureResult,
    RandomSearch,
    Runner,
    SearchEnded,
    SearchStarted,
    TuningInterrupted,
    TuningSession,
    default_schedule,
    tune,
)
from tilewright.tuner.remote import runner_for
from tilewright.tuner.search import session, tune_result
from tilewright.tuning_db import Database

TARGET = Target("llvm -mcpu=x86-64-v3 -num-cores=1")


def matmul(m=13, n=17, k=7):
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="k")
    return te.create_prim_func([a, b, te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")])


class FakeRunner(Runner):
    """Times follow from the trace's text; every ``fail_every``-th fails; ``interrupt_at`` raises KeyboardInterrupt."""

    def __init__(self, fail_every=0, interrupt_at=None):
        self.fail_every, self.interrupt_at = fail_every, interrupt_at
        self.seen, self.opened, self.closed = [], 0, 0

    def open(self, func, target, *, seed=0, verify=True):
        self.opened += 1

    def measure(self, traces, *, best_seconds=float("inf"), deadline=float("inf")):
        out = []
        for trace in traces:
            self.seen.append(trace)
            if self.interrupt_at is not None and len(self.seen) >= self.interrupt_at:
                raise KeyboardInterrupt
            if self.fail_every and len(self.seen) % self.fail_every == 0:
                out.append(MeasureResult("crash", "while running: killed by SIGSEGV"))
            else:
                number = int(hashlib.sha256(trace.encode()).hexdigest()[:6], 16)
                out.append(MeasureResult("ok", "", (1e-3 + number * 1e-9,), 0.01))
        return out

    def close(self):
        self.closed += 1


def test_the_budget_is_used_and_the_best_is_the_fastest():
    progress = []
    result = tune(matmul(), TARGET, trials=20, runner=FakeRunner(), callbacks=[progress.append])
    assert len(result.records) == 20 and result.stopped == "trials"
    assert result.best_seconds == min(r.run_seconds for r in result.records)
    measured = [p for p in progress if isinstance(p, CandidateMeasured)]
    assert [p.trials_done for p in measured] == list(range(1, 21))
    assert [p.record.trace for p in measured] == [r.trace for r in result.records]
    kinds = [type(p) for p in progress]
    assert kinds[0] is SearchStarted and kinds[-2:] == [FinalComparison, SearchEnded] and kinds.count(BatchStarted) == 4
    assert progress[-1].best_gflops == pytest.approx(2 * 13 * 17 * 7 / result.best_seconds / 1e9)
    assert result.history()[-1] == (20, result.best_seconds)


def test_the_best_trace_replays_and_computes_the_right_thing():
    func = matmul()
    result = tune(func, TARGET, trials=8, runner=FakeRunner())
    a = np.arange(13 * 7, dtype=np.float32).reshape(13, 7) % 5
    b = np.arange(7 * 17, dtype=np.float32).reshape(7, 17) % 3
    c = np.full((13, 17), np.nan, np.float32)
    interpret(result.best_schedule.func, a, b, c)
    assert np.array_equal(c, a @ b)


def test_failures_are_records_with_reasons_and_never_best():
    result = tune(matmul(), TARGET, trials=16, runner=FakeRunner(fail_every=2))
    assert result.failures == {"crash": 8}
    assert all(r.error.endswith("SIGSEGV") and r.run_seconds is None for r in result.records if not r.ok)
    assert result.best.ok


def test_when_everything_fails_there_is_no_best():
    result = tune(matmul(), TARGET, trials=8, runner=FakeRunner(fail_every=1))
    assert result.best is None and result.best_schedule is None and result.best_gflops == 0.0


def test_records_are_stored_and_a_session_goes_on_from_them(tmp_path):
    func = matmul()
    with Database(tmp_path / "t.db") as db:
        first = tune(func, TARGET, trials=16, runner=FakeRunner(), db=db, seed=3)
        assert db.count() == 16 and db.best(func, TARGET).trace == first.best.trace
        assert db.sessions()[0].status == "done"
        runner = FakeRunner()
        second = tune(func, TARGET, trials=16, runner=runner, db=db, seed=3, final_race=0)
        assert not {r.trace for r in first.records} & {r.trace for r in second.records}
        assert second.best_seconds <= first.best_seconds
        assert db.count() == 32


def test_another_workload_warms_the_model_up(tmp_path):
    with Database(tmp_path / "t.db") as db:
        tune(matmul(), TARGET, trials=16, runner=FakeRunner(), db=db)
        session = TuningSession(matmul(16, 16, 16), TARGET, db=db, runner=FakeRunner())
        assert session.search.foreign is not None
        assert len(session.search.foreign[2]) == 16
        assert len(session.run(8).records) == 8


def test_an_interrupt_keeps_what_was_found(tmp_path):
    func = matmul()
    with Database(tmp_path / "t.db") as db:
        with pytest.raises(TuningInterrupted, match="16 candidates were measured, the best took 0.00") as caught:
            tune(func, TARGET, trials=64, runner=FakeRunner(interrupt_at=20), db=db)
        assert isinstance(caught.value, KeyboardInterrupt)
        result = caught.value.result
        assert result.stopped == "interrupted"
        assert len(result.records) == 16 == db.count()
        assert result.best is not None
        assert db.sessions()[0].status == "interrupted"


def test_an_interrupt_behind_the_time_limit_is_not_late():
    class Slow(FakeRunner):
        def measure(self, traces, *, best_seconds=float("inf"), deadline=float("inf")):
            time.sleep(0.2)
            return super().measure(traces)

    for at, late in ((1, False), (None, True)):
        with pytest.raises(TuningInterrupted) if at else nullcontext() as caught:
            made = tune(matmul(), TARGET, trials=4, time_limit=0.1, runner=Slow(interrupt_at=at), final_race=0)
        result = caught.value.result if at else made
        assert result.elapsed_seconds > 0.2
        assert bool(result.late) == late


@pytest.mark.parametrize(("limit", "kept"), [(10.0, 0.5), (100.0, 2.0), (None, 0.0)])
def test_time_is_kept_for_the_final_comparison_where_there_is_one(monkeypatch, limit, kept):
    ends = []

    def loop(self, deadline):
        ends.append(0.0 if deadline == self._run.deadline else self._run.deadline - deadline)
        return "time"

    monkeypatch.setattr(TuningSession, "_loop", loop)
    for final_race in (True, False):
        TuningSession(matmul(), TARGET, runner=FakeRunner()).run(4, time_limit=limit, final_race=final_race)
    assert ends == pytest.approx([kept, 0.0])


def test_a_session_says_which_error_ended_it(tmp_path):
    class Broken(FakeRunner):
        def measure(self, traces, **options):
            raise OSError("no space left\non the disk")

    with Database(tmp_path / "t.db") as db:
        with pytest.raises(OSError, match="no space"):
            tune(matmul(), TARGET, trials=4, runner=Broken(), db=db)
        assert [(s.status, s.ended) for s in db.sessions()] == [("failed", "OSError: no space left")]


class Streaming(FakeRunner):
    """Tells each result when it has it; a second timing follows."""

    def measure(self, traces, *, best_seconds=float("inf"), deadline=float("inf"), finished=None):
        first = super().measure(traces)
        for number, result in enumerate(first):
            if finished is not None:
                finished(number, result)
        return [MeasureResult(r.status, r.error, (*r.times, 2e-3)) for r in first]


def test_candidates_are_recorded_as_they_finish(tmp_path):
    with Database(tmp_path / "t.db") as db:
        counts = []
        result = tune(
            matmul(), TARGET, trials=9, runner=Streaming(), db=db, callbacks=[lambda p: counts.append(db.count())]
        )
        assert counts[:11] == [0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8]
        assert {r.id: r for r in db.records()} == {r.id: r for r in result.records}
        assert all(r.times[-1] == 2e-3 for r in result.records)
        assert [r.trial for r in result.records] == list(range(9))  # timing again does not change the number
        (history,) = search_histories(db)
        assert history.default is not None and history.default["id"] == result.records[0].id


def test_a_callback_stops_the_search(tmp_path):
    with Database(tmp_path / "t.db") as db:
        result = tune(
            matmul(), TARGET, trials=64, runner=Streaming(), db=db,
            callbacks=[lambda p: p.stop() if p.trials_done == 3 else None],
        )  # fmt: skip
        assert result.stopped == "stopped" and len(result.records) == 3 == db.count()
        assert result.why == "a callback, or stop(), asked for the end" and result.best is not None


def test_the_default_schedule_is_the_first_candidate_and_takes_part_in_the_end(tmp_path):
    default = default_schedule(matmul(), TARGET)
    with Database(tmp_path / "t.db") as db:
        runner = FakeRunner()
        result = tune(matmul(), TARGET, trials=12, runner=runner, db=db)
        assert result.records[0].trace == default.trace.dumps() and runner.seen[0] == default.func.script()
        assert result.records[0].sketch in {r.sketch for r in result.records[1:]}  # it is a candidate of a sketch
        assert default.func.script() in runner.seen[12:]
        again = FakeRunner()
        tune(matmul(), TARGET, trials=4, runner=again, db=db)
        assert again.seen[0] != default.func.script() and default.func.script() in again.seen[4:]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"time_limit": float("nan")}, ValueError, "time_limit is a number of seconds, not nan"),
        ({"time_limit": float("inf")}, ValueError, "not inf; None is no limit"),
        ({"time_limit": -1}, ValueError, "not -1"),
        ({"time_limit": "5"}, ValueError, "not '5'"),
        ({"trials": 0}, ValueError, "trials is at least 1, not 0"),
        ({"trials": 2.5}, TypeError, "trials is a whole number, not 2.5"),
    ],
)
def test_limits_are_numbers(options, error, message):
    with pytest.raises(error, match=message):
        tune(matmul(), TARGET, runner=FakeRunner(), **options)


def test_a_seed_fixes_what_is_tried():
    runners = [FakeRunner() for _ in range(3)]
    for runner, seed in zip(runners, (5, 5, 6), strict=True):
        tune(matmul(), TARGET, trials=24, runner=runner, seed=seed)
    assert runners[0].seen == runners[1].seen
    assert runners[0].seen != runners[2].seen


def test_a_strategy_may_be_replaced():
    result = tune(matmul(), TARGET, trials=8, runner=FakeRunner(), strategy=RandomSearch)
    assert len(result.records) == 8


def test_time_may_be_up_before_the_trials():
    result = tune(matmul(), TARGET, trials=8, runner=FakeRunner(), time_limit=0.0)
    assert result.stopped == "time" and result.records == ()
    assert result.problem == "no candidate was measured within 0 s"


def test_a_foreign_runner_stays_open():
    runner = FakeRunner()
    tune(matmul(), TARGET, trials=8, runner=runner)
    assert (runner.opened, runner.closed) == (1, 0)


def test_symbolic_shapes_are_refused():
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    func = te.create_prim_func([a, te.compute((n,), lambda i: a[i] + 1.0, name="B")])
    with pytest.raises(ValueError, match="symbolic shape"):
        tune(func, TARGET, trials=1)
    assert isinstance(default_schedule(func, TARGET), Schedule)


def test_the_default_schedule_needs_no_measurement_and_replays():
    func = matmul()
    sch = default_schedule(func, TARGET)
    assert len(sch.trace) > 5
    again = Schedule(func)
    Trace.from_json(sch.trace.dumps()).apply_to_schedule(again)
    assert again.func.script() == sch.func.script()


def test_a_renamed_program_goes_on_where_the_other_stopped(tmp_path):
    def product(names):
        a, b = te.placeholder((13, 7), name=names[0]), te.placeholder((7, 17), name=names[1])
        r = te.reduce_axis((0, 7), name="r")
        c = te.compute((13, 17), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name=names[2])
        return te.create_prim_func([a, b, te.compute((13, 17), lambda i, j: te.max(c[i, j], 0.0), name=names[3])])

    path, other = str(tmp_path / "t.db"), product("XYZW")
    with Database(path) as db:
        first = tune(product("ABCD"), TARGET, trials=16, db=db, runner=FakeRunner())
        session = TuningSession(other, TARGET, db=db, runner=FakeRunner())
        assert session.best.run_seconds == first.best_seconds and session.best.workload == session.workload
        second = session.run(8)
        sch = Schedule(other)
        Trace.from_json(second.best.trace).apply_to_schedule(sch)
        asked = {(r.sketch.split("_", 2)[2], str(r.decisions)) for r in first.records} & {
            (r.sketch.split("_", 2)[2], str(r.decisions)) for r in second.records if r.sketch != "default"
        }
        assert not asked  # what the first session measured is known to the second
        assert db.best(product("ABCD"), TARGET).run_seconds == db.best(other, TARGET).run_seconds == second.best_seconds


class Steady(FakeRunner):
    """The first candidates take 9, 8, 7, 6 ms, all later ones 6."""

    def measure(self, traces, *, best_seconds=float("inf"), deadline=float("inf")):
        self.seen += traces
        first = len(self.seen) - len(traces)
        return [MeasureResult("ok", "", (max(6, 9 - first - n) * 1e-3,)) for n in range(len(traces))]


@pytest.mark.parametrize(
    "options, stopped, trials",
    [
        ({"enough_seconds": 7.5e-3}, "enough", 4),
        ({"enough_seconds": 1e-3}, "trials", 40),
        ({"patience": 8}, "patience", 12),
        ({"patience": 100}, "trials", 40),
    ],
)
def test_a_search_ends_when_it_is_fast_enough_or_gains_nothing(options, stopped, trials):
    result = tune(
        matmul(), TARGET, trials=40, runner=Steady(), batch=4, stop_early=False, final_race=0, **options
    )  # fmt: skip
    assert (result.stopped, len(result.records)) == (stopped, trials) and result.why


def test_a_new_shape_starts_from_the_best_of_the_nearest_ones(tmp_path):
    """Those of 48 come first; what does not fit the new sizes is replaced by what is next to it; other kinds do not count."""
    options = {"trials": 12, "runner": FakeRunner(), "final_race": 0, "stop_early": False}
    with Database(tmp_path / "shapes.db") as db:
        before = {n: tune(matmul(n, n, 16), TARGET, db=db, **options).best for n in (48, 200)}
        session = TuningSession(matmul(40, 48, 16), TARGET, db=db, runner=FakeRunner())
        names = [(c.sketch.name, c.sketch.decisions_of(c.row)) for c in session._nearest]
        session.run(8)
        tried = [(r.sketch, dict(r.decisions)) for r in session.records]
    near = (before[48].sketch, dict(before[48].decisions))
    assert len(names) == 2 and names[0][0] == near[0] and all(n in tried for n in names)
    same = [k for k, v in near[1].items() if names[0][1][k] == v]
    assert len(same) >= len(near[1]) - 2
    a = te.placeholder((7, 9), name="A")
    other = te.create_prim_func([a, te.compute((7, 9), lambda i, j: a[i, j] + 1.0, name="B")])
    with Database(tmp_path / "shapes.db") as db:
        assert TuningSession(other, TARGET, db=db, runner=FakeRunner())._nearest == []


def test_the_time_left_comes_from_finished_batches_of_chosen_candidates(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(tune_result.time, "monotonic", lambda: clock[0])
    run = tune_result.Run(trials=10, deadline=float("inf"), callbacks=(), start=0.0)
    clock[0] = 5.0  # starting the workers, and the default schedule
    run.begins_batch(1)
    assert run.remaining_seconds(1) == float("inf")
    clock[0] = 9.0
    run.begins_batch(5)
    assert run.remaining_seconds(5) == 5.0 and run.remaining_seconds(10) == 0.0
    run.deadline = 11.0
    assert run.remaining_seconds(5) == 2.0


@pytest.mark.parametrize(
    "option",
    [
        {"seed": -1}, {"batch": 0}, {"final_race": -1}, {"patience": 0}, {"patience": 2.5}, {"enough_seconds": 0.0},
        {"enough_seconds": float("nan")}, {"enough_seconds": "1"}, {"batch": True},
    ],
)  # fmt: skip
def test_options_out_of_range_are_refused(option):
    (name,) = option
    with pytest.raises((TypeError, ValueError), match=f"^{name} is "):
        tune(matmul(), TARGET, trials=1, **option)


def test_a_runner_may_be_an_address_and_is_closed_at_the_end(monkeypatch):
    made = FakeRunner()
    monkeypatch.setattr(session, "runner_for", lambda address: {"mine://here": made}[address])
    assert tune(matmul(), TARGET, trials=2, runner="mine://here").best is not None
    assert made.closed == 1
    given = FakeRunner()
    monkeypatch.setattr(session, "runner_for", runner_for)
    assert tune(matmul(), TARGET, trials=2, runner=given).best is not None
    assert given.closed == 0  # it is the caller's


@pytest.mark.parametrize(
    ("runner", "error", "said"),
    [
        ("tapir://x", ValueError, "runner 'tapir://x': no such runner; there are local, dask"),
        (5, TypeError, "runner is an address such as 'dask://host:8786', or a tuner.Runner, not 5"),
        (FakeRunner, TypeError, r"FakeRunner\(\) makes one"),
    ],
)
def test_what_is_no_runner_is_refused(runner, error, said):
    with pytest.raises(error, match=said):
        tune(matmul(), TARGET, trials=1, runner=runner)
