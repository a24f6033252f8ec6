"""Writes the contents of a database as one HTML page of at most 300 KB, without scripts and without network.

Each workload on each target is a row: its share of the roofline, the search in small, and what failed. Below it open
charts, the best schedules, and how to build them.
"""

from __future__ import annotations

import datetime
import difflib
import json
import os
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from ..pages import (
    CHART_STYLE,
    COLOURS,
    ChartAxis,
    Plot,
    code_html,
    counted,
    duration_text,
    folded,
    rate_text,
    search_chart,
    seconds_text,
    share_text,
    sparkline,
    table,
    thinned,
)
from ..pages.html_text import CODE_STYLE, TABLE_STYLE
from ..pages.written_files import utf8_text, write_file
from ..schedule import ScheduleError, Trace, TraceError
from ..tir.parser import ParseError, parse
from ..tir.stmt import PrimFunc
from ..tuner import replay
from ..tuning_db import Database, open_database, utc_now

_TRIALS = (
    "SELECT id, workload, target, session, trial, status, run_seconds, predicted_seconds, sketch, created, "
    "length(times) - length(replace(times, ',', '')) + 1 AS samples FROM records "
    "ORDER BY id"
)
_PAIRS = (
    "SELECT DISTINCT r.workload AS workload, r.target AS target, w.spec AS spec, w.name AS name, w.flops AS flops, "
    "w.bytes AS bytes, w.shapes AS shapes, t.text AS target_text, t.cpu AS cpu FROM records AS r JOIN workloads AS w ON w.key = r.workload "
    "JOIN targets AS t ON t.key = r.target"
)


@dataclass
class SearchHistory:
    """The trials of a workload on a target in order. It also has the sessions that made them and what is known of the
    machine.

    ``trials`` are rows of the table records without times and traces; ``sessions`` rows of the table sessions;
    ``baselines`` seconds of other contenders by name.
    """

    facts: Mapping[str, Any]
    trials: list[Mapping[str, Any]] = field(default_factory=list)
    sessions: list[Mapping[str, Any]] = field(default_factory=list)
    baselines: dict[str, float] = field(default_factory=dict)

    @cached_property
    def title(self) -> str:
        """Returns what the workload is called."""
        return str(self.facts["spec"] or self.facts["name"] or self.facts["workload"][:12])

    @property
    def is_kernel(self) -> bool:
        """Returns whether it has no spec, as a kernel of a model or a function of a program."""
        return not self.facts["spec"]

    @property
    def shapes(self) -> str:
        """Returns the shapes of a kernel's arguments, the results last, as ``1x56x56x64, 3x3x64x64``."""
        found = json.loads(self.facts["shapes"] or "[]") if self.is_kernel else []
        return ", ".join(["x".join(map(str, argument["shape"])) or "scalar" for argument in found])

    @cached_property
    def seconds(self) -> list[float | None]:
        """Returns the seconds of each trial, None for a failed one."""
        return [t["run_seconds"] if t["status"] == "ok" else None for t in self.trials]

    @cached_property
    def best(self) -> Mapping[str, Any] | None:
        """Returns the fastest correct trial."""
        good = [t for t in self.trials if t["status"] == "ok"]
        return min(good, key=lambda t: t["run_seconds"], default=None)

    @cached_property
    def default(self) -> Mapping[str, Any] | None:
        """Returns the default schedule's trial, the first of a search; None when it failed or is not there. Some files give
        it the number 1."""
        first = next((t for t in self.trials if t["trial"] in (0, 1)), None)
        return first if first is not None and first["status"] == "ok" else None

    @cached_property
    def roofline(self) -> float | None:
        """Returns the least seconds that the machine allows, as its last session knew them."""
        known = [s["roofline_seconds"] for s in self.sessions if s["roofline_seconds"]]
        return known[-1] if known else None

    @cached_property
    def failures(self) -> Counter[str]:
        """Returns how many trials failed, by status."""
        return Counter(t["status"] for t in self.trials if t["status"] != "ok")

    def levels(self) -> dict[str, float | None]:
        """Returns the times to compare with, by name."""
        default = self.default["run_seconds"] if self.default else None
        return {"default": default, **self.baselines, "roofline": self.roofline}

    def is_certain(self, name: str) -> bool:
        """Returns whether a factor between the best time and the one of that name may be given. Both were taken more than
        once."""
        compared = [self.best, *([self.default] if name == "default" else [])]
        return all(trial is not None and trial["samples"] > 1 for trial in compared)

    @cached_property
    def session_starts(self) -> list[int]:
        """Returns the numbers of the trials, from 0, with which sessions began."""
        ids = [t["session"] for t in self.trials]
        return [n for n, one in enumerate(ids) if n == 0 or one != ids[n - 1]]

    @cached_property
    def elapsed(self) -> list[float]:
        """Returns for each trial the seconds spent until then; the time between two sessions does not count."""
        started = {s["id"]: _moment(s["started"]) for s in self.sessions}
        out: list[float] = []
        before = last = 0.0
        current: object = self
        for trial in self.trials:
            at = _moment(trial["created"])
            if trial["session"] != current:
                current, before, begin = trial["session"], last, started.get(trial["session"], at)
            last = max(last, before + max(at - begin, 0.0))
            out.append(last)
        return out


def search_histories(db: Database) -> list[SearchHistory]:
    """Returns what ``db`` holds by workload and target. Those where nothing worked come first, then workloads by name,
    then the kernels of models, the slowest first."""
    found = {(row["workload"], row["target"]): SearchHistory(row) for row in db.query(_PAIRS)}
    for row in db.query(_TRIALS):
        found[row["workload"], row["target"]].trials.append(row)
    for row in db.query("SELECT * FROM sessions ORDER BY started, id"):
        if (row["workload"], row["target"]) in found:
            found[row["workload"], row["target"]].sessions.append(row)
    for row in db.query("SELECT * FROM baselines"):
        if (row["workload"], row["target"]) in found:
            found[row["workload"], row["target"]].baselines[row["name"]] = row["seconds"]

    def place(h: SearchHistory) -> tuple[Any, ...]:
        seconds = h.best["run_seconds"] if h.best is not None and h.is_kernel else 0.0
        return h.best is not None, h.is_kernel, -seconds, h.title, h.facts["target_text"]

    return sorted(found.values(), key=place)


def best_five(db: Database, history: SearchHistory) -> list[dict[str, Any]]:
    """Returns the five fastest trials with their decisions and traces."""
    rows = db.query(
        "SELECT id, run_seconds, sketch, decisions, trace FROM records WHERE workload = ? AND target = ? AND "
        "status = 'ok' ORDER BY run_seconds, id LIMIT 5",
        [history.facts["workload"], history.facts["target"]],
    )
    return [{**row, "decisions": _decisions_of(row["decisions"])} for row in rows]


def examples(db: Database, history: SearchHistory) -> Sequence[Mapping[str, Any]]:
    """Returns status, number and an example of the failures, the most frequent first."""
    return db.query(
        "SELECT status, sum(records) AS n, min(example) AS example FROM failures_by_reason WHERE workload = ? AND "
        "target = ? GROUP BY status ORDER BY n DESC",
        [history.facts["workload"], history.facts["target"]],
    )


def _decisions_of(text: str) -> dict[str, Any]:
    found = json.loads(text)
    return found if isinstance(found, dict) else {}


def _moment(text: str) -> float:
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


MOST_BYTES = 300_000
_STYLE = (
    COLOURS
    + "body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);margin:2rem auto;max-width:76rem;padding:0 1rem}"
    "h1{font-size:1.5rem;margin:0 0 .3rem}p{margin:.3rem 0 1rem}.note{color:var(--soft)}.bad{color:var(--bad)}"
    "details.row{border-top:1px solid var(--line)}details.row:last-of-type{border-bottom:1px solid var(--line)}"
    "details.row>summary,div.row{display:grid;grid-template-columns:minmax(12rem,3fr) 220px minmax(9rem,2fr) 120px minmax(5rem,1fr);gap:.2rem 1rem;"
    "align-items:center;padding:.45rem .3rem;cursor:pointer;list-style:none}div.row{cursor:default;border-top:1px solid var(--line)}"
    "summary::-webkit-details-marker{display:none}details.row[open]>summary{background:var(--raised)}"
    "details.row>summary:hover{background:var(--raised)}summary:focus-visible{outline:2px solid var(--accent)}"
    ".who .name{display:block;font-weight:600;overflow-wrap:anywhere;padding-left:1.1em;position:relative}.who .note{margin-left:1.3em}.who .note{font-size:.85em}.who .name::before{content:'▸';color:var(--soft);position:absolute;left:0}"
    "details.row[open] .who .name::before{content:'▾'}div.row .name::before{content:''!important}"
    ".figures span{display:inline-block;margin-right:.8em}.figures,.count{font-size:.9em;font-variant-numeric:tabular-nums}.count span{display:block}"
    ".more{padding:.6rem .3rem 1.4rem}.charts{display:flex;flex-wrap:wrap;gap:1rem 2rem}figure{margin:0;max-width:100%;min-width:0}"
    "figcaption{font-weight:600;font-size:.9em;margin-bottom:.2rem}.more table{font-size:.85em}.more>details{margin:.6rem 0}"
    ".more>details>summary,.facts summary{cursor:pointer;color:var(--accent)}pre{background:var(--raised);padding:.5rem .7rem;border-radius:4px}"
    ".code{background:var(--raised);padding:.5rem .7rem;border-radius:4px}.plus{color:var(--good)}.minus{color:var(--bad)}"
    + CODE_STYLE
    + TABLE_STYLE
    + CHART_STYLE
    + "svg .track{fill:var(--line);fill-opacity:.6}svg .tick{stroke-width:2.5;fill:none}svg .tick.default{stroke:var(--warn)}"
    "svg .tick.other{stroke:var(--ink)}svg .tried{stroke:var(--accent);stroke-width:1.5}svg.spark .line{stroke-width:1.5}"
    ".legend{display:flex;flex-wrap:wrap;gap:.2rem 1.4rem;font-size:.85em;color:var(--soft);margin:.2rem 0 .8rem}"
    ".legend i{display:inline-block;width:.9em;height:.7em;margin-right:.4em;border-radius:2px}.facts{margin:1.5rem 0;font-size:.9em}"
    "@media(max-width:60rem){details.row>summary,div.row{grid-template-columns:1fr 1fr}.who,.figures,.bar{grid-column:1/-1}}"
    "@media print{body{margin:0;max-width:none;font-size:11px}details.row:not([open]),summary,div.row,figure{break-inside:avoid}"
    "details.row>summary{background:none!important;break-after:avoid}.legend i{print-color-adjust:exact}.screen{display:none}"
    "details.row>summary,div.row{grid-template-columns:minmax(0,3fr) 140px minmax(0,2fr) 90px 60px}.who,.figures,.bar{grid-column:auto}"
    "pre,.code{white-space:pre-wrap;overflow-wrap:anywhere}}"
)
_LEGEND = (
    '<div class="legend"><span><i style="background:var(--accent)"></i>tuned</span><span><i style="background:var(--warn)"></i>'
    'default schedule</span><span><i style="background:var(--ink)"></i>NumPy</span><span><i style="background:var(--line)"></i>'
    "up to the roofline: the least time that the measured peak and bandwidth allow</span></div>"
)


def write_report(db: Database | str | os.PathLike[str], path: str | os.PathLike[str]) -> int:
    """Write the page to ``path``; its size in bytes."""
    with open_database(db, readonly=True) as opened:
        text = report_html(opened)
    data = text.encode()
    write_file(Path(path), data)
    return len(data)


def report_html(db: Database) -> str:
    """Returns the page as text. Where there is much to show, charts have fewer points, and in the end no parts open."""
    histories = search_histories(db)
    fewer = [dots for dots in (240, 100, 50) if dots * len(histories) <= 10_000]
    for dots in (*fewer, ALL_CHARTS, THREE_CHARTS, ONE_CHART):
        page = _page(db, histories, dots, len(histories))
        if len(page.encode()) <= MOST_BYTES:
            return page
    opening = len(histories)
    while opening and len(page.encode()) > MOST_BYTES:
        opening = opening * 3 // 4
        page = _page(db, histories, ONE_CHART, opening)
    return page


def _page(db: Database, histories: Sequence[SearchHistory], dots: int, opening: int) -> str:
    name = escape(os.path.basename(db.path))
    rows = []
    for number, history in enumerate(histories):
        if number < opening:
            shown = " open" if len(histories) == 1 else ""
            rows.append(
                f'<details class="row"{shown}><summary>{row_html(history)}</summary>{details_html(db, history, dots)}</details>'
            )
        else:
            rows.append(f'<div class="row">{row_html(history)}</div>')
    left = len(histories) - opening
    note = (
        f'<p class="note">{left} workloads have no details here; report them from a database of their own.</p>'
        if left
        else ""
    )
    body = "".join(rows) or '<p class="note">No records yet. `tilewright tune SPEC --db …` makes some.</p>'
    return utf8_text(
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Tilewright: {name}</title><style>{_STYLE}</style></head><body><h1>{name}</h1>"
        f"{_summary(histories)}{_LEGEND if rows else ''}{body}{note}{_machines(db, histories)}</body></html>\n"
    )


def _summary(histories: Sequence[SearchHistory]) -> str:
    trials = sum(len(h.trials) for h in histories)
    failed = sum(sum(h.failures.values()) for h in histories)
    lost = sum(h.best is None for h in histories)
    words = [counted(len(histories), "workload"), counted(trials, "trial")]
    words += [f'<span class="bad">{failed} failed</span>'] if failed else []
    words += [f'<span class="bad">{counted(lost, "workload")} without a result</span>'] if lost else []
    kernels = [h for h in histories if h.is_kernel and h.best is not None]
    if len(kernels) > 1:
        best = sum(h.best["run_seconds"] for h in kernels if h.best is not None)
        words.append(f"{len(kernels)} kernels take {seconds_text(best)} together, each called once")
    return f'<p class="note">{", ".join(words)}. Written {utc_now()[:16].replace("T", " ")} UTC. <span class="screen">A click on a row opens it.</span></p>'


def _machines(db: Database, histories: Sequence[SearchHistory]) -> str:
    """Returns what is known of the machines and versions."""
    rows = []
    for target in db.query("SELECT key, text, cpu, llvm_cpu, vector_bits FROM targets ORDER BY text"):
        sessions = [s for h in histories if h.facts["target"] == target["key"] for s in h.sessions]
        measured = next((s for s in reversed(sessions) if s["peak_flops"]), None)
        peak = rate_text(measured["peak_flops"], "FLOP/s") if measured else "–"
        bits = f"{target['vector_bits']} bits" if target["vector_bits"] else "–"
        rows.append((target["text"], target["cpu"] or "–", target["llvm_cpu"] or "–", bits, peak))
    machines = table(("target", "CPU", "LLVM's name", "vectors", "peak"), rows)
    found = db.query("SELECT versions, max(started) AS last FROM sessions GROUP BY versions ORDER BY last DESC LIMIT 3")
    versions = table(
        ("versions",),
        [(v["versions"].strip("{}").replace('"', "").replace(",", ", ").replace(":", " "),) for v in found],
    )
    return f'<div class="facts">{folded("Machines and versions", machines + versions)}</div>' if rows else ""


_WIDTH, _HEIGHT = 220, 22


def row_html(history: SearchHistory) -> str:
    """Returns the row: name, bar, figures, sparkline, trials."""
    best = history.best
    failed = sum(history.failures.values())
    trials = counted(len(history.trials), "trial")
    trouble = f'<span class="bad">{failed} failed</span>' if failed else ""
    title = escape(history.title).replace(",", ",<wbr>")  # long names break at commas
    note = " on ".join([part for part in (history.shapes, history.facts["target_text"]) if part])
    name = f'<span class="name">{title}</span><span class="note">{escape(note)}</span>'
    if best is None:
        reasons = ", ".join(
            [f"{count} {status.replace('_', ' ')}" for status, count in history.failures.most_common(3)]
        )
        figures = f'<span class="bad">nothing worked: {escape(reasons)}</span>'
        return _grid(name, "", figures, sparkline(history.seconds), trials)
    flops = history.facts["flops"]
    words = [f"<b>{seconds_text(best['run_seconds'])}</b>"]
    if flops:
        words.append(rate_text(flops / best["run_seconds"], "FLOP/s"))
    if history.roofline:
        words.append(f"{share_text(history.roofline / best['run_seconds'])} of the roofline")
    words += [
        f"{seconds / best['run_seconds']:.2f}× as fast as {escape(named)}"
        for named, seconds in history.levels().items()
        if seconds and named != "roofline" and history.is_certain(named)
    ]
    figures = "".join([f"<span>{word}</span>" for word in words])
    return _grid(name, bar_svg(history), figures, sparkline(history.seconds), f"{trials} {trouble}")


def _grid(*cells: str) -> str:
    kinds = ("who", "bar", "figures", "search", "count")
    return "".join([f'<span class="{kind}">{cell}</span>' for kind, cell in zip(kinds, cells, strict=True)])


def bar_svg(history: SearchHistory) -> str:
    """Returns a bar for the best time, with a mark for each other contender. It is full at the roofline, or, where that
    is not known, at the fastest time of all."""
    best = history.best
    if best is None:
        return ""
    others = {name: s for name, s in history.levels().items() if s and name != "roofline"}
    full = history.roofline or min([best["run_seconds"], *others.values()])
    full = min([full, best["run_seconds"], *others.values()])  # a figure of the machine may have been too low
    of = "of the roofline" if history.roofline else "of the fastest"

    def x(seconds: float) -> float:
        return round(full / seconds * (_WIDTH - 2), 1)

    tuned = f"tuned: {seconds_text(best['run_seconds'])}, {share_text(full / best['run_seconds'])} {of}"
    parts = [
        f'<rect class="track" width="{_WIDTH}" height="12" y="5" rx="2"/>',
        f'<rect class="bar" width="{max(x(best["run_seconds"]), 1.5)}" height="12" y="5" rx="2"/>',
    ]
    for name, seconds in others.items():
        said = f"{name}: {seconds_text(seconds)}, {share_text(full / seconds)} {of}"
        kind = "default" if name == "default" else "other"
        parts.append(f'<path class="tick {kind}" d="M{max(x(seconds), 1)} 1v20"><title>{escape(said)}</title></path>')
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" role="img"><title>{escape(tuned)}</title>{"".join(parts)}</svg>'


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


def by_trial(history: SearchHistory, dots: int, timed: bool = False) -> str:
    """Returns the times over the numbers of the trials; ``timed``: the axis has the time spent as well."""
    starts = [float(n + 1) for n in history.session_starts]
    spent = history.elapsed if timed and history.elapsed and history.elapsed[-1] > 0 else ()
    return search_chart(
        history.seconds, _title_of(history), levels=history.levels(), sessions=starts, most=dots, spent=spent
    )


def by_time(history: SearchHistory, dots: int) -> str:
    """Returns the times over the seconds spent."""
    places = history.elapsed
    if not places or places[-1] <= 0:
        return ""
    starts = [places[n] for n in history.session_starts]
    return search_chart(
        history.seconds, _title_of(history), spent=places, over_time=True, levels=history.levels(),
        sessions=starts, most=dots,
    )  # fmt: skip


def _title_of(history: SearchHistory) -> Callable[[int], str]:
    """Returns a function that gives the line that appears under the pointer at a trial."""

    def title(number: int) -> str:
        trial = history.trials[number]
        took = seconds_text(trial["run_seconds"]) if trial["status"] == "ok" else trial["status"]
        return f"trial {number + 1}: {took}, {trial['sketch']}"

    return title


def predicted_chart(history: SearchHistory, dots: int) -> str:
    """Returns what the cost model expected beside what was measured; empty text without predictions."""
    found = [
        (t["predicted_seconds"], t["run_seconds"])
        for t in history.trials
        if t["status"] == "ok" and t["predicted_seconds"]
    ]
    if len(found) < 3:
        return ""
    axis = [value for pair in found for value in pair]
    x = ChartAxis.around(axis, "predicted", log=True, text=seconds_text)
    y = ChartAxis.around(axis, "measured", log=True, text=seconds_text)
    plot = Plot(x, y, f"{len(found)} predictions beside measured times", 300, 230)
    plot.line([(x.low, y.low), (x.high, y.high)], "mark")
    return plot.cloud([found[n] for n in thinned(len(found), dots)]).svg()


def timeline_chart(history: SearchHistory, dots: int) -> str:
    """Returns when each sketch was tried: a tick for a trial, red for a failed one."""
    places = history.elapsed
    count: dict[str, int] = {}
    for trial in history.trials:
        name = trial["sketch"] or "no sketch"
        count[name] = count.get(name, 0) + 1
    names = sorted(count, key=lambda name: -count[name])[:8]
    width, row, left = 480, 18, 170
    last = places[-1] if places and places[-1] > 0 else 1.0
    parts = []
    for number, name in enumerate(names):
        y = number * row + 4
        short, said = (name, "") if len(name) <= 24 else (name[:23] + "…", f"<title>{_plain(name)}</title>")
        parts.append(f'<text x="0" y="{y + 11}">{_plain(short)} ({count[name]}){said}</text>')
        for kind, good in (("tried", True), ("failed", False)):
            mine = [
                n
                for n, t in enumerate(history.trials)
                if (t["sketch"] or "no sketch") == name and (t["status"] == "ok") == good
            ]
            at = sorted({round(left + places[n] / last * (width - left - 4)) for n in mine})
            share = len(mine) / count[name]  # ticks of a kind are as dense as its trials
            chosen = [at[n] for n in thinned(len(at), max(round(max(dots, 8) * share), 1))]
            if chosen:
                parts.append(f'<path class="{kind}" d="{"".join([f"M{x} {y}v13" for x in chosen])}"/>')
    height = len(names) * row + 20
    parts.append(
        f'<text x="{left}" y="{height - 4}">0 s</text><text x="{width - 4}" y="{height - 4}" class="end">{duration_text(last)}</text>'
    )
    return f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img" aria-label="when each sketch was tried">{"".join(parts)}</svg>'


def roofline_chart(history: SearchHistory) -> str:
    """Returns the machine's roof and where the contenders lie below it; empty text when the machine's limits are not known."""
    limits = next((s for s in reversed(history.sessions) if s["peak_flops"] and s["bandwidth"]), None)
    flops, size = history.facts["flops"], history.facts["bytes"]
    if limits is None or not flops or not size or history.best is None:
        return ""
    peak, bandwidth, intensity = limits["peak_flops"], limits["bandwidth"], flops / size
    ridge = peak / bandwidth
    times = {
        "tuned": history.best["run_seconds"],
        **{k: v for k, v in history.levels().items() if v and k != "roofline"},
    }
    rates = {name: flops / seconds for name, seconds in times.items()}
    x = ChartAxis.around([intensity / 6, intensity * 6, ridge / 3, ridge * 3], "operations per byte", log=True)
    y = ChartAxis.around(
        [peak * 1.2, *(r / 1.5 for r in rates.values())], "FLOP/s", log=True, text=lambda v: rate_text(v, "")
    )
    plot = Plot(x, y, "roofline", 300, 230)
    corner = max(x.low, y.low / bandwidth)
    plot.line(
        [
            (corner, min(bandwidth * corner, peak)),
            (min(ridge, x.high), min(peak, bandwidth * x.high)),
            (x.high, min(peak, bandwidth * x.high)),
        ],
        "roof",
    )
    for name, rate in rates.items():
        said = f"{name}: {rate_text(rate, 'FLOP/s')} at {intensity:.3g} operations per byte"
        plot.dots([(intensity, rate, said)], {"tuned": "best", "default": "default"}.get(name, "dot"), 4)
    return plot.svg()


def _plain(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
