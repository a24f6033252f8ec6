"""This module draws the row of a workload in a report. The row has its share of the roofline, the search in small, and
what failed."""

from __future__ import annotations

from html import escape

from ...pages import counted, rate_text, seconds_text, share_text, sparkline
from .search_history import SearchHistory

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
