"""The worker times calls by a loop in native code."""

from tilewright import te
from tilewright.codegen.machine.target import Target
from tilewright.codegen.runtime.bound_calls import BoundCall
from tilewright.schedule import Schedule
from tilewright.tuner.measure.measuring_worker import Worker, _repeated
from tilewright.tuner.measure.protocol import Message


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

    ask("open", func=func.script(), target=str(Target("native -num-cores=1")), seed=0, positive=False)
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
