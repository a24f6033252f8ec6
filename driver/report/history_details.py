"""This module writes what opens below a row of a report: charts, the best schedules, and how to build them."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from ...pages import code_html, folded, seconds_text, table
from ...schedule import ScheduleError, Trace, TraceError
from ...tir.parser import ParseError, parse
from ...tir.stmt import PrimFunc
from ...tuner import replay
from ...tuning_db import Database
from .history_charts import by_time, by_trial, predicted_chart, roofline_chart, timeline_chart
from .search_history import SearchHistory, best_five, examples

ONE_CHART, THREE_CHARTS, ALL_CHARTS, _PROGRAM_DOTS = 12, 16, 20, 100
"""With so few points a page has room for one chart of each workload only; for three; for all, but not for the schedule's
steps; for the scheduled program as well."""

_MOST_CODE = 40_000
"""Longer programs are left out."""


def details_html(db: Database, history: SearchHistory, dots: int) -> str:
    """Returns the part that opens; ``dots`` is about how many points a chart may have."""
    best = best_five(db, history)
    if dots < ALL_CHARTS:
        parts = [_titled("Convergence by trial and by time", by_trial(history, ONE_CHART, timed=True))]
    else:
        parts = [
            _titled("Convergence by trial", by_trial(history, dots)),
            _titled("Convergence by time", by_time(history, dots // 2)),
            _titled("Roofline", roofline_chart(history)),
        ]
    if dots >= THREE_CHARTS:
        parts += [
            _titled("Predicted against measured", predicted_chart(history, dots if dots >= ALL_CHARTS else 6)),
            _titled("When each sketch was tried", timeline_chart(history, dots // 2)),
        ]
    parts += [
        _titled("What failed", _failures(examples(db, history))),
        _titled("The best five", _decisions(best)),
        _titled("Sessions", _sessions(history.sessions[-6:])),
    ]
    charts = f'<div class="charts">{"".join(parts)}</div>'
    return f'<div class="more">{_build(db, history)}{charts}{_schedule(db, history, best, dots)}</div>'


def _titled(title: str, content: str) -> str:
    return f"<figure><figcaption>{escape(title)}</figcaption>{content}</figure>" if content else ""


def _build(db: Database, history: SearchHistory) -> str:
    """Returns the lines that build the best schedule, on the command line and in Python."""
    spec, target = history.facts["spec"], history.facts["target_text"]
    if not spec or history.best is None:
        return ""
    output = f"{history.facts['name'] or 'kernel'}.so"
    command = shlex.join(["tilewright", "build", spec, "--target", target, "--db", db.path, "-o", output])
    python = f"tilewright.build({spec!r}, {target!r}, db={db.path!r})"
    return f"<pre>{escape(command)}\n{escape(python)}</pre>"


def _failures(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [
        (row["status"].replace("_", " "), str(row["n"]), row["example"].strip().split("\n")[0][:160]) for row in rows
    ]
    return table(("reason", "trials", "example"), lines, numbers=(1,))


def _decisions(best: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        (seconds_text(r["run_seconds"]), r["sketch"], ", ".join([f"{k}={v}" for k, v in r["decisions"].items()]))
        for r in best
    ]
    return table(("time", "sketch", "decisions"), rows, numbers=(0,))


def _sessions(sessions: Sequence[Mapping[str, Any]]) -> str:
    rows = [(s["started"][:16].replace("T", " "), s["status"], s["ended"], s["host"]) for s in sessions]
    return table(("started", "status", "why it ended", "host"), rows)


def _schedule(db: Database, history: SearchHistory, best: Sequence[Mapping[str, Any]], dots: int) -> str:
    """Returns the best schedule as Python, what differs from the default, and the scheduled program."""
    if not best:
        return ""
    if dots <= ALL_CHARTS:
        return ""
    python = _python(best[0]["trace"])
    steps = folded("The best schedule as Python", code_html(python, fold=False))
    default = _default_trace(db, history)
    change = folded("What differs from the default schedule", _difference(_python(default), python)) if default else ""
    program = _program(db, history, best[0]["trace"]) if dots >= _PROGRAM_DOTS else ""
    text = folded("The scheduled program", code_html(program)) if len(program) < _MOST_CODE else ""
    return steps + change + text


def _default_trace(db: Database, history: SearchHistory) -> str:
    if history.default is None:
        return ""
    return str(db.query("SELECT trace FROM records WHERE id = ?", [history.default["id"]])[0]["trace"])


def _python(trace: str) -> str:
    try:
        return Trace.from_json(trace).as_python()
    except (TraceError, ValueError) as error:
        return f"# the trace cannot be read: {error}"


def _program(db: Database, history: SearchHistory, trace: str) -> str:
    """Returns the scheduled program; empty text when the steps do not apply today."""
    rows = db.query("SELECT text FROM workloads WHERE key = ?", [history.facts["workload"]])
    try:
        func = parse(rows[0]["text"])
        return replay(func, Trace.from_json(trace)).func.script() if isinstance(func, PrimFunc) else ""
    except (ParseError, ScheduleError, TraceError, ValueError):
        return ""


def _difference(before: str, after: str) -> str:
    """Returns a line-by-line comparison; empty text when there is no difference."""
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1))[2:]
    kinds = {"+": "plus", "-": "minus"}
    marked = [
        f'<span class="{kinds.get(line[:1], "same")}">{escape(line)}</span>' for line in lines if line[:2] != "@@"
    ]
    return f"<pre>{'<br>'.join(marked)}</pre>" if marked else ""
