"""The final race: who takes part, and what the records say afterwards; and when a search stops for lack of gain."""

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen.machine.target import Target
from tilewright.tuner import MeasureResult, ModelGuidedSearch, PriorModel, Runner, SearchStrategy, Space, tune
from tilewright.tuner.search import Candidate
from tilewright.tuner.search.session import decide, finalists
from tilewright.tuning_db import Database, TuningRecord

TARGET = Target("llvm -mcpu=x86-64-v3 -num-cores=1")


def record(trace, *times, status="ok"):
    figure = sorted(times)[0] if times else None
    return TuningRecord("w", "t", trace, times=times if status == "ok" else (), status=status, run_seconds=figure)


def ran(*times):
    return MeasureResult("ok", "", times)


def names(records):
    return [r.trace for r in records]


def test_those_near_the_best_take_part():
    sure = (1.0, 1.001, 1.002)
    records = [record("far", 1.2, 1.201, 1.202), record("near", 1.04, 1.041, 1.042), record("best", *sure),
               record("unsure", 1.15), record("broken", status="crash"), record("near", 1.5)]  # fmt: skip
    assert names(finalists(records, 4)) == ["best", "near", "unsure"]
    assert names(finalists(records, 2)) == ["best", "near"]
    assert finalists([records[0], records[2]], 4) == [] == finalists([], 4)
    assert names(finalists(records, 2, "far")) == ["best", "near", "far"]
    assert names(finalists([records[0], records[2]], 4, "far")) == ["best", "far"]
    assert finalists([records[0], records[2]], 4, "best") == []


def test_the_race_decides():
    lucky, good = decide([record("lucky", 1.0), record("good", 1.02)], [ran(1.2, 1.2, 1.2), ran(1.1, 1.1, 1.1)])
    assert good.run_seconds == 1.02 and good.times == (1.02, 1.1, 1.1, 1.1)
    assert lucky.run_seconds == 1.2 and lucky.times == (1.2, 1.2, 1.2)


def test_a_race_that_was_cut_short_takes_no_timings_away():
    known = record("default", 1.1, 1.11, 1.12)
    default, _ = decide([known, record("best", 1.0, 1.0, 1.0)], [ran(70.0), ran(1.0, 1.0)])
    assert default.times == (1.1, 1.11, 1.12, 70.0) and default.run_seconds == pytest.approx(1.105)


def test_a_wrong_result_disqualifies_and_what_did_not_run_stays_as_it_was():
    entered = [record("wrong", 1.0), record("late", 1.01), record("good", 1.02)]
    results = [MeasureResult("wrong_result", "off by 2"), MeasureResult("skipped"), ran(1.0)]
    wrong, good = decide(entered, results)
    assert (wrong.status, wrong.error, wrong.times, wrong.run_seconds) == ("wrong_result", "off by 2", (), None)
    assert good.run_seconds == 1.0


def matmul():
    a, b = te.placeholder((13, 7), name="A"), te.placeholder((7, 17), name="B")
    r = te.reduce_axis((0, 7), name="k")
    return te.create_prim_func([a, b, te.compute((13, 17), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")])


class Drifting(Runner):
    """What is measured first looks fast, though it is the slowest of all when measured again."""

    def __init__(self):
        self.seen = []

    def open(self, func, target, *, seed=0, verify=True):
        pass

    def measure(self, traces, *, best_seconds=float("inf"), deadline=float("inf")):
        out = []
        for trace in traces:
            again = trace in self.seen
            first = trace == self.seen[0] if self.seen else True
            self.seen.append(trace)
            out.append(ran((2.0 if again else 1.0) if first else 1.01))
        return out

    def close(self):
        pass


def test_the_best_is_the_winner_of_the_race(tmp_path):
    with Database(tmp_path / "t.db") as db:
        runner = Drifting()
        result = tune(matmul(), TARGET, trials=8, runner=runner, db=db)
        assert len(result.records) == 8 == db.count() and len(runner.seen) == 12
        assert result.best_schedule.func.script() != runner.seen[0] and result.best_seconds == 1.01
        stored = db.best(matmul(), TARGET)
        assert stored == result.best and len(stored.times) == 2
        assert {r.id: r for r in db.records()} == {r.id: r for r in result.records}


def test_the_race_may_be_left_out():
    runner = Drifting()
    result = tune(matmul(), TARGET, trials=8, runner=runner, final_race=0)
    assert len(runner.seen) == 8 and result.best_schedule.func.script() == runner.seen[0]


class Promising(SearchStrategy):
    """Random rows; says what it expects of the rest."""

    expected = 1.0

    def ask(self, count, remaining):
        (sketch, *_) = self.space.sketches
        rows = sketch.all_rows()
        return [Candidate(sketch, tuple(map(int, rows[n]))) for n in self.rng.permutation(len(rows))[:count]]

    def tell(self, candidates, seconds):
        pass

    def promise(self):
        return self.expected


@pytest.mark.parametrize(("expected", "stop_early", "stopped"), [
    (1.0, True, "converged"), (0.995, True, "converged"), (0.9, True, "trials"), (1.0, False, "trials"),
    (None, True, "trials"),
])  # fmt: skip
def test_a_search_stops_when_no_gain_is_in_sight(expected, stop_early, stopped):
    class Strategy(Promising):
        pass

    Strategy.expected = expected
    result = tune(
        matmul(), TARGET, trials=64, runner=Constant(), strategy=Strategy, stop_early=stop_early, final_race=0
    )
    assert result.stopped == stopped
    assert (24 <= len(result.records) <= 40) == (stopped == "converged")


class Constant(Drifting):
    """Everything takes a second."""

    def measure(self, traces, *, best_seconds=float("inf"), deadline=float("inf")):
        return [ran(1.0) for _ in traces]


def test_a_model_says_what_it_expects():
    search = ModelGuidedSearch(Space(matmul(), TARGET), np.random.default_rng(0), PriorModel())
    first = search.ask(8, 64)
    least = min(float(pool.prior.min()) for pool in search.pools)
    assert search.promise() >= least
    search.tell(first, [2.0 * c.predicted_seconds for c in first])  # the prior is off by two
    assert search.promise() >= 2.0 * least * 0.999
