"""What a search returns: enqueued schedules, tables, plots, and what a notebook shows."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

import tilewright as tw
from tilewright import te
from tilewright.schedule import ScheduleError
from tilewright.tuner import LocalRunner, TuningSession
from tilewright.tuner.measure import MeasureResult
from tilewright.tuning_db import Database


@pytest.fixture(autouse=True)
def measured(monkeypatch):
    """Candidates take 3, 4, 5, … ms; every fourth fails."""
    count = iter(range(1, 10_000))

    def measure(self, programs, **_):
        taken = [(n, (n + 2) * 1e-3) for n in (next(count) for _ in programs)]
        return [MeasureResult("ok", times=(s, s)) if n % 4 else MeasureResult("crash", "signal 11") for n, s in taken]

    monkeypatch.setattr(LocalRunner, "open", lambda *a, **k: None)
    monkeypatch.setattr(LocalRunner, "measure", measure)


@pytest.fixture
def func():
    A, B = te.placeholder((17, 16), name="A"), te.placeholder((16, 32), name="B")
    k = te.reduce_axis((0, 16), name="k")
    return te.create_prim_func([A, B, te.compute((17, 32), lambda i, j: te.sum(A[i, k] * B[k, j], [k]), name="C")])


def by_hand(func):
    sch = tw.Schedule(func)
    i, j, _ = sch.get_loops(sch.get_block("C"))
    sch.parallel(sch.fuse(i, j))
    return sch


@pytest.mark.parametrize("form", [lambda s: s, lambda s: s.trace, lambda s: s.trace.dumps()])
def test_an_enqueued_schedule_is_measured_after_the_default(func, form):
    session = TuningSession(func, tw.Target("native -num-cores=1"), final_race=0)
    session.enqueue(form(by_hand(func)))
    records = session.run(4).records
    assert records[1].sketch == "enqueued" and records[1].ok
    assert records[1].trace == by_hand(func).trace.dumps()


def test_what_does_not_apply_is_refused_when_it_is_enqueued(func):
    other = tw.Schedule(func)
    other.split(other.get_loops(other.get_block("C"))[0], [None, 4])
    small = te.create_prim_func([A := te.placeholder((4,), name="A"), te.compute((4,), lambda i: A[i] + 1.0, name="B")])
    with pytest.raises(ScheduleError, match="C"):
        TuningSession(small, tw.Target("native")).enqueue(other)


def test_tune_takes_schedules(func):
    result = tw.tune(func, "native -num-cores=1", trials=3, enqueue=[by_hand(func)])
    assert "enqueued" in [r.sketch for r in result.records]


def test_representations_are_short(func, tmp_path):
    result = tw.tune(func, "native -num-cores=1", trials=5, db=tmp_path / "t.db")
    text = repr(result)
    assert re.fullmatch(r"TuneResult\(\S+ on native -num-cores=1: best 3 ms, \d trials; all trials were used\)", text)
    assert len(repr(result.records[0])) < 80 and "insts" not in repr(result.records)


class Tags(HTMLParser):
    """Checks that elements close in the order in which they opened."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen = [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_notebooks_show_things(func):
    result = tw.tune(func, "native -num-cores=1", trials=9)
    sch = by_hand(func)
    module = tw.build(func, "native -num-cores=1")
    for shown, words in [
        (func, "T.grid"), (sch, "how it came to be"), (sch.trace, "sch.parallel"), (sch.mod, "T.parallel"),
        (module.target, "vectors of"), (result, "all trials were used"), (module, "not tuned"),
    ]:  # fmt: skip
        tags = Tags(shown._repr_html_())
        assert "script" not in tags.seen
        plain = re.sub(r"<[^>]*>", "", shown._repr_html_())
        assert words.split()[0] in plain
    assert "<svg" in result._repr_html_() and "<details" in func._repr_html_()


def test_progress_in_a_notebook_is_drawn_again_in_one_place(func, monkeypatch):
    from tilewright.driver import tuning

    drawn = []
    display = pytest.importorskip("IPython.display")
    monkeypatch.setattr(display, "display", lambda shown, display_id: drawn.append(shown) or Handle())

    class Handle:
        update = staticmethod(drawn.append)

    monkeypatch.setattr(tuning, "_EVERY_SECONDS", 0.0)
    monkeypatch.setattr(tuning, "in_notebook", lambda: True)
    tw.tune(func, "native -num-cores=1", trials=4)
    assert "starting the workers" in drawn[0].data and "4 of 4 trials, done" in drawn[-1].data and len(drawn) >= 6


def test_records_as_a_table(func, tmp_path):
    pytest.importorskip("pandas")
    with Database(tmp_path / "t.db") as db:
        result = tw.tune(func, "native -num-cores=1", trials=5, db=db)
        frame, stored = result.records_dataframe(), db.records_dataframe(func)
    for table in (frame, stored):
        assert len(table) == 5 and list(table.status).count("crash") == 1
        assert table.run_seconds.min() == 0.003 and table.gflops.max() == 2 * 17 * 32 * 16 / 0.003 / 1e9
        assert str(table.created.dtype).startswith("datetime64") and any(c.startswith("decision_") for c in table)


def test_plots(func):
    pytest.importorskip("plotly")
    result = tw.tune(func, "native -num-cores=1", trials=12, stop_early=False)
    for name in ("optimization_history", "timeline", "edf", "slice", "parallel_coordinate", "param_importances",
                 "predicted_against_measured"):  # fmt: skip
        figure = getattr(result, f"plot_{name}")()
        assert figure.data and figure.layout.title.text
    history = result.plot_optimization_history()
    assert list(history.data[1].y) == [0.003, 0.003] and len(history.data[0].y) == len(result.records)
    with pytest.raises(ValueError, match="no trial decided 'nothing'; there are"):
        result.plot_slice(["nothing"])


def test_what_is_missing_is_named(func, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    monkeypatch.setitem(sys.modules, "pandas", None)
    result = tw.tune(func, "native -num-cores=1", trials=2)
    with pytest.raises(ImportError, match=r"pip install 'tilewright\[viz\]'"):
        result.plot_edf()
    with pytest.raises(ImportError, match=r"pip install 'tilewright\[viz\]'"):
        result.records_dataframe()
