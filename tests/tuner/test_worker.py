"""The worker times calls by a loop in native code."""

import pytest

from tilewright import te
from tilewright.codegen.machine.target import Target
from tilewright.codegen.runtime.module import BoundCall
from tilewright.schedule import Schedule
from tilewright.tuner.measure.measuring_worker import Worker, _repeated, _timings
from tilewright.tuner.measure.process import Message


def test_no_python_is_timed(monkeypatch):
    a = te.placeholder((7,), name="A")
    func = te.create_prim_func([a, te.compute((7,), lambda i: a[i] + 1.0, name="B")])
    worker = Worker()
    call, calls = BoundCall.__call__, []
    monkeypatch.setattr(BoundCall, "__call__", lambda self: (calls.append(1), call(self))[1])

    def ask(command, **header):
        reply, _ = worker.answer(Message({"command": command, **header}, ()))
        assert reply["status"] == "ok", reply
        return reply

    ask("open", func=func.script(), target=str(Target("native -num-cores=1")), seed=0)
    ask("compile", job=0, program=Schedule(func).func.script())
    times = ask("run", job=0, check=False, samples=3, min_seconds=2e-4, stop_above=1.0)["times"]
    assert len(times) == 3 and all(t > 0 for t in times)
    assert len(calls) <= 1  # hundreds of calls of a few nanoseconds each, all in native code


def test_calls_are_repeated_until_they_take_long_enough():
    asked = []

    def seconds(number):
        asked.append(number)
        return 17e-9 * number

    number, taken = _repeated(seconds, 2e-4)
    assert taken >= 2e-4 and number == asked[-1] < 20_000 and len(asked) <= 5
    assert _repeated(lambda n: 0.0, 2e-4)[1] == 0.0  # a clock that stands still ends it as well


class Clock:
    """Calls of ``each`` seconds; the runs whose numbers are in ``disturbed`` take so many seconds more."""

    def __init__(self, each, disturbed):
        self.each, self.disturbed, self.runs = each, disturbed, 0

    def __call__(self, number):
        self.runs += 1
        return self.each * number + self.disturbed.get(self.runs, 0.0)


@pytest.mark.parametrize("disturbed", [1, 2, 3])
@pytest.mark.parametrize("each", [5e-9, 17e-6, 232e-6, 21e-3])
def test_one_disturbed_timing_decides_nothing(each, disturbed):
    times = _timings(Clock(each, {disturbed: 16e-3}), 2, 2e-4, 1.5 * each)
    assert len(times) >= 2 and min(times) == pytest.approx(each)


def test_a_disturbed_first_run_does_not_fix_how_often_a_short_call_is_repeated():
    clock = Clock(5e-9, {1: 16e-3})  # the first run alone takes longer than a sample has to
    times = _timings(clock, 4, 2e-4, 1e-3)
    assert sorted(times)[:3] == pytest.approx([5e-9] * 3) and clock.runs > 4


def test_slow_calls_are_timed_twice_and_very_slow_ones_once():
    slow, very = Clock(2e-3, {}), Clock(3.0, {})
    assert len(_timings(slow, 5, 2e-4, 1e-3)) == 2 == slow.runs
    assert len(_timings(very, 5, 2e-4, 1e-3)) == 1 == very.runs
    assert len(_timings(Clock(3.0, {}), 5, 2e-4, 2.0)) == 2  # it would decide that the candidate is dropped
