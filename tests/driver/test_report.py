"""The report of a database: what it says, that it is small, and that it needs nothing from outside."""

from __future__ import annotations

import itertools
import re
import sqlite3
from html.parser import HTMLParser

import pytest

from tilewright import te
from tilewright.driver.report import report_html, search_histories
from tilewright.pages import ChartAxis, Plot, search_chart, seconds_text
from tilewright.tuning_db import Database, TargetRecord, TuningRecord

SPENT = [0.25 * n for n in range(1, 51)]
TARGET = TargetRecord("lab", "native -num-cores=1", cpu="A CPU", llvm_cpu="skylake", vector_bits=256, num_cores=1)
LIMITS = {"peak_flops": 1e11, "bandwidth": 2e10, "roofline_seconds": 1e-6, "limited_by": "peak"}


def relu(n):
    A = te.placeholder((n,), name="A")
    return te.create_prim_func([A, te.compute((n,), lambda i: te.max(A[i], 0.0), name="B")])


TRACE = '{"format": 1, "insts": []}'


def add(db, n, times, limits=LIMITS, samples=2):
    """A session of ``relu(n)`` whose trials took ``times``, each measured ``samples`` times; None is a failed one."""
    func = relu(n)
    key = db.add_workload(func, spec=f"relu:M=1,N={n}", name="relu")
    session = db.start_session(func, TARGET, trials=len(times), limits=limits, versions={"tilewright": "1"})
    db.add_records(
        TuningRecord(
            key, TARGET.key, TRACE, (s,) * samples, sketch="map", session=session, trial=t, predicted_seconds=s * 1.1
        )
        if s
        else TuningRecord(
            key, TARGET.key, TRACE, status="crash", error="signal <11>", sketch="map", session=session, trial=t
        )
        for t, s in enumerate(times)
    )
    db.finish_session(session, "done", "all trials were used")


@pytest.fixture
def db(tmp_path):
    with Database(tmp_path / "lab.db") as opened:
        yield opened


class Page(HTMLParser):
    """Checks that elements close, and keeps tags, links and text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.text = [], [], ""
        self.feed(text)
        assert self.open == [] and len(text.encode()) <= 300_000
        assert not {"script", "link", "img", "iframe"} & set(self.tags) and "http" not in text and "url(" not in text

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in ("meta", "br", "wbr"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text += data + " "


def test_no_factor_comes_from_a_single_timing(db):
    add(db, 17, [4e-6, 2e-6], samples=1)
    db.add_baseline(relu(17), TARGET, "numpy", 5e-6)
    assert "as fast as" not in Page(report_html(db)).text


def test_a_page_shows_everything_about_a_workload(db):
    add(db, 17, [4e-6, None, 3e-6, 2e-6])
    db.add_baseline(relu(17), TARGET, "numpy", 5e-6)
    add(db, 17, [2.5e-6, 2.4e-6])
    page = Page(report_html(db))
    for words in (
        "1 workload", "6 trials", "1 failed", "relu:M=1,N=17", "2 µs", "50 % of the roofline", "2.00× as fast as default",
        "2.50× as fast as numpy", "Convergence by trial", "Convergence by time", "Predicted against measured", "Roofline",
        "When each sketch was tried", "signal <11>", "The best five", "all trials were used", "A CPU", "skylake",
        "tilewright build relu:M=1,N=17 --target 'native -num-cores=1' --db", "another session begins here", "tilewright 1",
    ):  # fmt: skip
        assert words in page.text, words
    assert page.tags.count("details") >= 3


def test_an_empty_database_and_one_with_failures_only(db):
    assert "No records yet" in Page(report_html(db)).text
    add(db, 7, [None] * 5)
    add(db, 8, [1e-6], limits=None)
    page = Page(report_html(db))
    assert "nothing worked: 5 crash" in page.text and "1 workload without a result" in page.text
    assert page.text.index("N=7") < page.text.index("N=8")  # what failed comes first


def test_time_between_sessions_does_not_count(db):
    add(db, 7, [1e-6, 2e-6])
    add(db, 7, [1.5e-6])
    with sqlite3.connect(db.path) as conn:
        conn.execute("UPDATE sessions SET started = '2026-01-01T00:00:00+00:00' WHERE rowid = 1")
        conn.execute("UPDATE sessions SET started = '2026-01-02T00:00:00+00:00' WHERE rowid = 2")
        for number, moment in enumerate(["01T00:00:03", "01T00:00:05", "02T00:00:04"], start=1):
            conn.execute("UPDATE records SET created = ? WHERE id = ?", [f"2026-01-{moment}+00:00", number])
    (history,) = search_histories(db)
    assert history.elapsed == [3.0, 5.0, 9.0] and history.session_starts == [0, 2]


def test_many_workloads_and_many_records_stay_small(db):
    for n in range(1, 61):
        add(db, n, [1e-6 * (1 + (7 * n + t) % 13) if t % 9 else None for t in range(5)])
    with db.writing() as tables:  # 40,000 records of one workload, made by SQLite
        tables.execute(
            "WITH RECURSIVE c(n) AS (SELECT 100 UNION ALL SELECT n + 1 FROM c WHERE n < 40000) INSERT INTO records "
            "(digest, workload, target, session, trial, sketch, status, run_seconds, num_times, times, trace, created) "
            "SELECT 'd' || n, workload, target, session, n, sketch, 'ok', 1e-6 * (2 + (n * 7919) % 1000), 1, '[1]', trace, "
            "created FROM c, (SELECT * FROM records LIMIT 1)"
        )
    page = Page(report_html(db))
    assert page.text.count("relu:M=1,N=") >= 60 and "60 workloads" in page.text


def test_the_text_of_others_is_text(db):
    add(db, 7, [1e-6])
    with sqlite3.connect(db.path) as conn:
        conn.execute("UPDATE workloads SET spec = '<script>alert(1)</script>'")
        conn.execute("UPDATE targets SET text = '\"><b onclick=x>'")
    text = report_html(db)
    assert "<script" not in text and "<b onclick" not in text
    Page(re.sub("&[a-z]+;", "", text))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, ["trial", "20"]),
        ({"spent": SPENT}, ["trial (time spent)", "20 (5 s)", "40 (10 s)"]),
        ({"spent": SPENT, "over_time": True}, ["time spent", "5 s", "10 s"]),
    ],
    ids=["trials", "trials and time", "time"],
)
def test_convergence_by_trial_and_by_time(options, said):
    chart = search_chart([1e-6 + 1e-8 * n for n in range(50)], **options)
    assert [word for word in said if f">{word}</text>" not in chart] == []


def test_numbers_of_trials_are_integers_and_texts_below_a_chart_lie_apart():
    assert ChartAxis(1.0, 3.0, "trial", whole=True).ticks() == [1, 2, 3]
    assert ChartAxis(1.0, 11.0, "trial", whole=True).ticks() == [3, 6, 9]
    narrow = ChartAxis(3.2e-7, 1.2e-6, "predicted", log=True, text=seconds_text)
    drawn = Plot(narrow, narrow, "a chart", 240).svg().partition('<g class="mid">')[2].partition("</g>")[0]
    places = [(float(x), text) for x, text in re.findall(r'<text x="([\d.]+)" y="\d+">([^<]*)</text>', drawn)]
    assert len(places) >= 2
    for (left, one), (right, other) in itertools.pairwise(places):
        assert right - left > 3 * (len(one) + len(other))


def test_the_last_text_below_a_chart_is_not_cut_off():
    axis = ChartAxis(6e-8, 3.01e-7, "predicted", log=True, text=seconds_text)
    drawn = Plot(axis, axis, "a chart", 300).svg().partition('<g class="mid">')[2].partition("</g>")[0]
    place, text = re.findall(r'<text x="([\d.]+)" y="\d+">([^<]*)</text>', drawn)[-1]
    assert text == "300 ns" and float(place) + 3 * len(text) <= 300


def test_kernels_of_models_come_by_their_time_with_their_shapes(db):
    add(db, 17, [4e-6, 2e-6])
    for n, seconds in ((7, 1e-6), (13, 9e-6), (16, 3e-6)):
        key = db.add_workload(relu(n), name=f"fused_{n}")
        session = db.start_session(relu(n), TARGET, trials=1)
        db.add_record(TuningRecord(key, TARGET.key, TRACE, (seconds,) * 2, session=session, trial=0))
    histories = search_histories(db)
    assert [h.title for h in histories] == ["relu:M=1,N=17", "fused_13", "fused_16", "fused_7"]
    assert histories[0].shapes == "" and histories[1].shapes == "13, 13"
    text = Page(report_html(db)).text
    assert "3 kernels take 13 µs together, each called once" in text and "16, 16 on native" in text
