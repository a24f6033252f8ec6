"""This module draws the charts of a report about one workload on one target."""

from __future__ import annotations

from collections.abc import Callable

from ...pages import Axis, Plot, duration_text, rate_text, search_chart, seconds_text, thinned
from .search_history import SearchHistory


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
    x = Axis.around(axis, "predicted", log=True, text=seconds_text)
    y = Axis.around(axis, "measured", log=True, text=seconds_text)
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
    x = Axis.around([intensity / 6, intensity * 6, ridge / 3, ridge * 3], "operations per byte", log=True)
    y = Axis.around(
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
