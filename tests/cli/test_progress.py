"""What a search shows while it goes on, at any width, with and without a terminal."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from tilewright.cli import output as module
from tilewright.cli.output import ProgressView
from tilewright.tuner import BatchStarted, CandidateMeasured, FinalComparison
from tilewright.tuning_db import TuningRecord


def event(kind, done, records=(), best=2e-3, batch=0):
    return kind(done, 64, 0, best, 1.0, 1.0, 60.0, tuple(records), batch)


def record(seconds=None, status="ok"):
    return TuningRecord("w", "t", "{}", (seconds,) if seconds else (), status, sketch="s")


@pytest.fixture
def search():
    shown = ProgressView("matmul:M=512,N=512,K=512,dtype=float32", 64, 2e9, SimpleNamespace(seconds=1e-3, limit="peak"))
    shown.on_event(event(BatchStarted, 0, batch=8))
    for done, one in enumerate([record(4e-3), record(status="crash"), record(2e-3), record(status="crash")], start=1):
        shown.on_event(event(CandidateMeasured, done, [one]))
    return shown


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_lines_fit(search, width):
    lines = search.lines(width)
    assert max(map(len, lines)) <= max(width, 20) and lines[1].endswith(" 4/64")
    text = " ".join(lines[2:])
    for words in ("best 2 ms", "1 TFLOP/s", "50 % of peak", "default 4 ms", "2 crash", "s left", "4 of 8 done"):
        assert words in text


def test_what_happens_is_said(search):
    for kind, words in ((BatchStarted, "compiling and running"), (FinalComparison, "comparing the best once more")):
        search.on_event(event(kind, 4))
        assert words in " ".join(search.lines(80))


def test_the_end_shows_the_times_of_the_final_comparison():
    """There the best schedule and the default are timed once more, on the same footing."""
    shown = ProgressView("relu", 64)
    shown.on_event(event(CandidateMeasured, 0, [TuningRecord("w", "t", "[1]", (2.53e-6,), "ok")]))
    again = [TuningRecord("w", "t", trace, (seconds,), "ok") for trace, seconds in (("[2]", 2.57e-6), ("[1]", 2.6e-6))]
    shown.settle(SimpleNamespace(best=again[0], records=again))
    assert shown.figure() == "best 2.57 µs, default 2.6 µs"


def test_without_a_terminal_lines_come_at_once_and_while_nothing_happens(capsys, monkeypatch):
    monkeypatch.setattr(module, "_EVERY_SECONDS", 0.05)
    with ProgressView("matmul", 8) as shown:
        assert capsys.readouterr().err == "matmul: starting\n"
        shown.says("measuring the machine")
        deadline = time.monotonic() + 10
        found = ""
        while "measuring" not in found and time.monotonic() < deadline:
            time.sleep(0.02)
            found += capsys.readouterr().err
    assert found.startswith("matmul: measuring the machine, 0 s\n")


def test_a_terminal_is_drawn_over(search, monkeypatch, capsys):
    pytest.importorskip("rich")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(module, "moves", lambda stream: True)
    with search:
        search.update(5, 1e-3)
    shown = capsys.readouterr().err
    assert "5/64" in shown and "best 1 ms" in shown and "\x1b[" in shown


def test_the_end_has_the_build_line_and_the_schedule(run, monkeypatch):
    from tilewright.tuner.measure import LocalRunner, MeasureResult

    monkeypatch.setattr(LocalRunner, "open", lambda *a, **k: None)
    monkeypatch.setattr(
        LocalRunner, "measure", lambda self, programs, **k: [MeasureResult("ok", times=(1e-6,)) for _ in programs]
    )
    done = run("tune", "relu:M=7,N=64", "--num-cores", "1", "--trials", "2", "--db", "t.db")
    assert "build it: tilewright build relu:M=7,N=64 --num-cores 1 --db t.db --output relu.so" in done.out
    assert "sch.get_block(" in done.out and done.err.startswith(
        "relu:M=7,N=64: loading the compiler\nrelu:M=7,N=64: starting\n"
    )
