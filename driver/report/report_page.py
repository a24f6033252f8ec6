"""This module writes the contents of a database as one HTML page of at most 300 KB."""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from pathlib import Path

from ...pages import CHART_STYLE, COLOURS, counted, folded, rate_text, seconds_text, table
from ...pages.page_style import CODE_STYLE, TABLE_STYLE
from ...pages.written_files import utf8_text, write_file
from ...tuning_db import Database, open_database, utc_now
from .history_details import ALL_CHARTS, ONE_CHART, THREE_CHARTS, details_html
from .history_row import row_html
from .search_history import SearchHistory, search_histories

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
