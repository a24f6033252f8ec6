"""This module draws a search: what each trial took, and the best so far."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from .figures import duration_text, seconds_text
from .plot import Axis, Plot, thinned

LEAST_DOTS = 12
"""A chart over time with so few dots shows the best so far as a line only."""


def improvements(seconds: Sequence[float | None]) -> list[tuple[int, float]]:
    """Returns ``(number, seconds)`` of each trial that is faster than all before it; None is a failed trial.

    >>> improvements([None, 3.0, 4.0, 2.0])
    [(1, 3.0), (3, 2.0)]
    """
    out: list[tuple[int, float]] = []
    for number, value in enumerate(seconds):
        if value is not None and (not out or value < out[-1][1]):
            out.append((number, value))
    return out


def _steps(best: Sequence[tuple[int, float]], most: int) -> list[tuple[int, float]]:
    """Returns the first and the last improvement, and those between that are large enough to be seen apart. Large
    enough is a fortieth of the whole gain, or an eighth where only few points may be drawn."""
    least = (best[0][1] / best[-1][1]) ** (1 / (8 if most <= 2 * LEAST_DOTS else 40))
    out = [best[0]]
    for number, value in best[1:-1]:
        if value * least < out[-1][1] and best[-1][1] * least < value:
            out.append((number, value))
    return out + list(best[1:][-1:])


def search_chart(
    seconds: Sequence[float | None],
    title: Callable[[int], str] | None = None,
    *,
    spent: Sequence[float] = (),
    over_time: bool = False,
    levels: Mapping[str, float | None] | None = None,
    sessions: Sequence[float] = (),
    most: int = 240,
) -> str:
    """Returns a chart of the seconds of each trial and of the best so far. A failed trial is None; when no trial
    succeeded, the text is empty.

    ``title`` says of a trial, by its number from 0, what appears under the pointer at each best one. ``spent`` are the
    seconds since the beginning after each trial: the chart runs over them with ``over_time``, else they stand beside the
    numbers of trials. ``levels`` are times to draw across by name, ``sessions`` the places where sessions began. At most
    about ``most`` dots are drawn.
    """
    at = list(spent) if over_time else [float(n) for n in range(1, len(seconds) + 1)]
    good = [s for s in seconds if s is not None]
    if not good:
        return ""
    marks = {name: value for name, value in (levels or {}).items() if value}
    center = sorted(good)[len(good) // 2]
    shown = [s for s in good if s <= 30 * center]
    y = Axis.around([*shown, *marks.values()], "time, less is better", log=True, text=seconds_text)
    x = _across(at, spent, over_time)
    best = improvements(seconds)
    plot = Plot(x, y, f"{len(seconds)} trials, the best took {seconds_text(min(good))}")
    for place in sessions[1:]:
        plot.down(place, "another session begins here")
    for name, value in marks.items():
        plot.across(value, f"{name} {seconds_text(value)}")
    chosen = thinned(len(seconds), most, [n for n, _ in best])
    plot.cloud([(at[n], s) for n in chosen if (s := seconds[n]) is not None])
    plot.cloud([(at[n], y.high) for n in chosen if seconds[n] is None], "failed")
    plot.line([*[(at[n], s) for n, s in best], (at[-1], best[-1][1])], steps=True)
    named = title or (lambda n: seconds_text(seconds[n]))
    if most > LEAST_DOTS or not over_time:
        plot.dots([(at[n], s, named(n)) for n, s in _steps(best, most)], "best", 3)
    return plot.svg()


def _across(at: Sequence[float], spent: Sequence[float], over_time: bool) -> Axis:
    """Returns the axis of the trials or of the time; that of the trials has the time beside each number."""
    high = max(at[-1], at[0] + 1e-9)
    if over_time:
        return Axis(min(at[0], 0.0), high, "time spent", text=duration_text)
    if not spent:
        return Axis(min(at[0], 1.0), high, "trial", text="{:,.0f}".format, whole=True)

    def text(trial: float) -> str:
        return f"{trial:,.0f} ({duration_text(spent[min(max(round(trial), 1), len(spent)) - 1])})"

    return Axis(min(at[0], 1.0), high, "trial (time spent)", text=text, whole=True)


def sparkline(seconds: Sequence[float | None], width: int = 120, height: int = 24) -> str:
    """Returns a small picture of the best so far over the trials; failed trials are red ticks below."""
    best = improvements(seconds)
    count = max(len(seconds), 1)
    parts = []
    low, high = (math.log(best[-1][1]), math.log(best[0][1])) if best else (0.0, 0.0)
    if best:
        path, last = "", 0.0
        for number, value in best:
            x = number / count * width
            y = 2 + (high - math.log(value)) / ((high - low) or 1.0) * (height - 8)
            path += f"M{x:.0f} {y:.3g}" if not path else f"H{x:.0f}V{y:.3g}"
            last = y
        parts.append(
            f'<path class="line" d="{path}H{width}"/><circle class="best" cx="{width - 2}" cy="{last:.3g}" r="2"/>'
        )
    bad = [n for n, s in enumerate(seconds) if s is None]
    most = max(1, round(width / 4 * len(bad) / count))  # as dense as the failures are
    failed = sorted(
        {round(bad[n] / count * width) for n in (thinned(len(bad), most) if count > width else range(len(bad)))}
    )
    if failed:
        parts.append(f'<path class="failed" d="{"".join([f"M{x} {height - 3}v3" for x in failed])}"/>')
    said = f"{len(seconds)} trials, {sum(s is None for s in seconds)} failed"
    return (
        f'<svg class="spark" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">'
        f"<title>{said}</title>{''.join(parts)}</svg>"
    )
