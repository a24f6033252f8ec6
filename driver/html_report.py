"""This module writes the contents of a database as one HTML page, with inline drawings and without scripts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from ..codegen.runtime.written_files import write_file
from ..tuning_db import Database, utc_now
from .planning import open_database
from .svg import history_svg

_MAX_CHARTS = 60
_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #59636e; --line: #d1d9e0; --paper: #ffffff;
        --accent: #0969da; --bad: #cf222e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9198a1; --line: #3d444d; --paper: #0d1117;
        --accent: #4493f8; --bad: #f85149; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
       max-width: 60rem; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2.5rem; overflow-wrap: anywhere; }
p.note { color: var(--soft); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--line); }
th.n, td.n { text-align: right; }
svg { width: 100%; height: auto; }
svg text { font: 11px system-ui, sans-serif; fill: var(--soft); }
svg .axis { stroke: var(--line); } svg .best { stroke: var(--accent); fill: none; stroke-width: 2; }
svg .trial { fill: var(--soft); opacity: .6; } svg .failed { stroke: var(--bad); }
@media print { body { margin: 0; max-width: none; } section { break-inside: avoid; } }
"""


def write_report(db: Database | str | os.PathLike[str], path: str | os.PathLike[str]) -> int:
    """Write the page to ``path``; its size in bytes."""
    with open_database(db, readonly=True) as opened:
        text = report_html(opened)
    data = text.encode()
    write_file(Path(path), data)
    return len(data)


def report_html(db: Database) -> str:
    """Returns the page as text."""
    best = db.query("SELECT * FROM best_records ORDER BY spec, name, target_text")
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Tilewright: {escape(os.path.basename(db.path))}</title><style>{_STYLE}</style></head><body>",
        f"<h1>Tuning records in {escape(os.path.basename(db.path))}</h1>",
        f'<p class="note">{db.count()} records of {db.count("workloads")} workloads on {db.count("targets")} targets, '
        f"{db.count('sessions')} sessions. Written {utc_now()[:16].replace('T', ' ')} UTC.</p>",
        _table(
            ("workload", "target", "time", "GFLOP/s", "GB/s", "schedule", "on"),
            [
                (
                    row["spec"] or row["name"],
                    row["target_text"],
                    _time(row["run_seconds"]),
                    _number(row["gflops"]),
                    _number(row["gbytes_per_second"]),
                    row["sketch"],
                    row["created"][:10],
                )
                for row in best
            ],
            numbers=(2, 3, 4),
        ),
    ]
    for row in best[:_MAX_CHARTS]:
        parts.append(_section(db, row))
    if len(best) > _MAX_CHARTS:
        parts.append(f'<p class="note">{len(best) - _MAX_CHARTS} more are in the table alone.</p>')
    parts.append("</body></html>")
    return "\n".join(parts) + "\n"


def _section(db: Database, row: dict[str, Any]) -> str:
    where = "workload = ? AND target = ?"
    keys = (row["workload"], row["target"])
    trials = db.query(f"SELECT status, run_seconds FROM records WHERE {where} ORDER BY id", keys)
    failures = db.query(
        f"SELECT status, sum(records) AS n, min(example) AS example FROM failures_by_reason WHERE {where} "
        "GROUP BY status ORDER BY n DESC",
        keys,
    )
    flops = db.query("SELECT flops FROM workloads WHERE key = ?", keys[:1])[0]["flops"]
    title = escape(f"{row['spec'] or row['name']}")
    chart = history_svg([t["run_seconds"] if t["status"] == "ok" else None for t in trials], flops)
    text = f"<section><h2>{title}</h2>{chart}"
    if failures:
        rows = [(f["status"], str(f["n"]), f["example"].strip().split("\n")[0][:160]) for f in failures]
        text += _table(("failed", "records", "example"), rows, numbers=(1,))
    return text + "</section>"


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        opening = [f'<{tag} class="n">' if i in numbers else f"<{tag}>" for i in range(len(cells))]
        return "".join([f"{start}{escape(cell)}</{tag}>" for start, cell in zip(opening, cells, strict=True)])

    if not rows:
        return '<p class="note">No records yet.</p>'
    body = "".join([f"<tr>{line(row, 'td')}</tr>" for row in rows])
    return f'<div class="wide"><table><thead><tr>{line(titles, "th")}</tr></thead><tbody>{body}</tbody></table></div>'


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.2f} µs"


def _number(value: float | None) -> str:
    return f"{value:.1f}" if value else "–"
