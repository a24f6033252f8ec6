"""This module draws charts as SVG, among them the chart of a search. Dots have titles that appear under the pointer.
It writes their figures for people as well: three digits and a unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape


def seconds_text(seconds: float | None) -> str:
    """Returns a time such as ``1.23 ms``; a dash for None and for what is not finite."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}" if seconds / scale < 999.5 else f"{seconds / scale:.0f} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def duration_text(seconds: float) -> str:
    """Returns how long something went on: ``0 s``, ``45 s``, ``12.5 min``, ``11.8 h``."""
    for unit, scale in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * scale:
            return f"{seconds / scale:.3g} {unit}"
    return seconds_text(seconds) if seconds else "0 s"


def size_text(count: float | None) -> str:
    """Returns a number of bytes such as ``1.5 MiB``; a dash for None."""
    if count is None:
        return "–"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} TiB"


def rate_text(per_second: float | None, unit: str) -> str:
    """Returns a rate such as ``96.5 GFLOP/s``, for ``unit`` FLOP/s; a dash for None."""
    if per_second is None or not math.isfinite(per_second):
        return "–"
    for prefix, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if per_second >= scale:
            return (
                f"{per_second / scale:.3g} {prefix}{unit}"
                if per_second < 999.5 * scale
                else f"{per_second / scale:.0f} {prefix}{unit}"
            )
    return f"{per_second:.3g} {unit}"


def counted(number: int, what: str) -> str:
    """Returns a number of things: ``1 trial``, ``2 trials``."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def share_text(share: float | None) -> str:
    """Returns a share such as ``38 %``; with one more digit below 10 %, a dash for None."""
    if share is None:
        return "–"
    return f"{share:.0%}".replace("%", " %") if share >= 0.0995 else f"{share:.1%}".replace("%", " %")


_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 12, 12, 34
_LETTER = 6.0
"""How wide a letter of the texts at ticks is, about."""


@dataclass(frozen=True)
class ChartAxis:
    """An axis from ``low`` to ``high``; ``text`` writes the numbers at its ticks, which are integers where it is ``whole``."""

    low: float
    high: float
    title: str = ""
    log: bool = False
    text: Callable[[float], str] = field(default="{:.4g}".format)
    whole: bool = False

    @classmethod
    def around(
        cls,
        values: Iterable[float],
        title: str = "",
        *,
        log: bool = False,
        zero: bool = False,
        text: Callable[[float], str] = "{:.4g}".format,
    ) -> ChartAxis:
        """Returns an axis that has room for all ``values``; with ``zero`` it begins at 0."""
        known = [v for v in values if math.isfinite(v) and (v > 0 or not log)]
        low, high = (min(known), max(known)) if known else (1.0, 1.0) if log else (0.0, 1.0)
        if log:
            low, high = low / 1.15, high * 1.15
        else:
            room = 0.06 * (high - low) or 0.5 * abs(high) or 1.0
            low, high = (0.0 if zero and low >= 0 else low - room), high + room
        return cls(low, high, title, log, text)

    def place(self, value: float) -> float:
        """Returns where ``value`` lies, from 0 to 1; values outside go to the end."""
        if self.log:
            value, low, high = (math.log(max(v, 1e-300)) for v in (value, self.low, self.high))
        else:
            low, high = self.low, self.high
        return min(max((value - low) / ((high - low) or 1.0), 0.0), 1.0)

    def ticks(self) -> list[float]:
        """Returns round numbers inside the axis, some three to seven."""
        if not self.log:
            step = _round_step((self.high - self.low) / 4)
            if self.whole and step % 1:
                step = math.ceil(step)
            first = math.ceil(self.low / step)
            return [n * step for n in range(first, math.floor(self.high / step) + 1)]
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for parts in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8)):
            found = [p * 10.0**d for d in decades for p in parts if self.low <= p * 10.0**d <= self.high]
            if len(found) >= 3:
                break
        return found[:: -(-len(found) // 7) or 1] or [self.low, self.high]


def _round_step(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step)) if step > 0 else 1.0
    return next(p * power for p in (1, 2, 2.5, 5, 10) if p * power >= step * 0.999)


class Plot:
    """A chart with two axes, drawn step by step; ``svg()`` returns it. ``label`` says what it shows to those who hear it."""

    def __init__(self, x: ChartAxis, y: ChartAxis, label: str, width: int = 480, height: int = 230) -> None:
        self.x_axis, self.y_axis, self.label, self.width, self.height = x, y, label, width, height
        self.parts: list[str] = []
        right, bottom = width - _RIGHT, height - _BOTTOM
        levels = [(round(self.y(value)), escape(y.text(value))) for value in y.ticks()]
        grid = "".join([f"M{_LEFT} {at}H{right}" for at in (*[at for at, _ in levels], bottom)])
        beside = "".join([f'<text x="{_LEFT - 6}" y="{at + 4}">{text}</text>' for at, text in levels])
        below = "".join([f'<text x="{at:.0f}" y="{bottom + 15}">{escape(text)}</text>' for at, text in self._apart()])
        self.parts.append(f'<path class="grid" d="{grid}"/><g class="end">{beside}')
        self.parts.append(f'<text x="{right}" y="{height - 4}">{escape(x.title)}</text></g><g class="mid">{below}</g>')
        self.parts.append(f'<text x="{_LEFT}" y="{height - 4}">↑ {escape(y.title)}</text>')

    def _apart(self) -> list[tuple[float, str]]:
        """Returns the places and texts of the ticks below, without those that would lie upon the one before.

        All of them lie inside the picture.
        """
        kept: list[tuple[float, str]] = []
        end = -math.inf
        for at, text in [(self.x(value), self.x_axis.text(value)) for value in self.x_axis.ticks()]:
            half = _LETTER * len(text) / 2
            at = min(at, self.width - half)
            if at - half > end:
                kept.append((at, text))
                end = at + half + _LETTER
        return kept

    def x(self, value: float) -> float:
        """Returns where ``value`` lies across the picture."""
        return round(_LEFT + self.x_axis.place(value) * (self.width - _LEFT - _RIGHT), 1)

    def y(self, value: float) -> float:
        """Returns where ``value`` lies down the picture."""
        return round(_TOP + (1 - self.y_axis.place(value)) * (self.height - _TOP - _BOTTOM), 1)

    def line(self, points: Sequence[tuple[float, float]], kind: str = "line", steps: bool = False) -> Plot:
        """Draw a line through points, or the steps of a value that holds until the next one."""
        path, last = "", ""
        for number, (a, b) in enumerate(points):
            x, y = (f"{v:.0f}" if steps else f"{v:g}" for v in (self.x(a), self.y(b)))
            if number == 0:
                path = f"M{x} {y}"
            elif not steps:
                path += f"L{x} {y}"
            elif y != last or number == len(points) - 1:
                path += f"H{x}V{y}" if y != last else f"H{x}"
            last = y
        self.parts.append(f'<path class="{kind}" d="{path}"/>')
        return self

    def dots(self, points: Iterable[tuple[float, float, str]], kind: str = "dot", size: float = 2.5) -> Plot:
        """Draw points ``(x, y, title)``; those of the kind ``failed`` are crosses."""
        self.parts.append(f'<g class="{kind}">')
        for a, b, title in points:
            x, y = self.x(a), self.y(b)
            said = f"<title>{escape(title)}</title>" if title else ""
            if kind == "failed":
                self.parts.append(f'<path d="M{x - 2.5:g} {y - 2.5:g}l5 5m0-5l-5 5">{said}</path>')
            else:
                self.parts.append(f'<circle cx="{x:.0f}" cy="{y:.0f}" r="{size:g}">{said}</circle>')
        self.parts.append("</g>")
        return self

    def cloud(self, points: Iterable[tuple[float, float]], kind: str = "cloud") -> Plot:
        """Draw many points without titles as one path; those of the kind ``failed`` are crosses."""
        mark = "l4 4m0-4l-4 4" if kind == "failed" else "h0"
        shift = 2 if kind == "failed" else 0
        places = dict.fromkeys((round(self.x(a)) - shift, round(self.y(b)) - shift) for a, b in points)
        path = "".join([f"M{x} {y}{mark}" for x, y in places])
        if path:
            self.parts.append(f'<path class="{kind}" d="{path}"/>')
        return self

    def across(self, value: float, title: str, kind: str = "mark") -> Plot:
        """Draw a level line with a word at its end."""
        at = round(self.y(value))
        self.parts.append(f'<path class="{kind}" d="M{_LEFT} {at}H{self.width - _RIGHT}"/>')
        self.parts.append(f'<text x="{self.width - _RIGHT}" y="{at - 4}" class="said">{escape(title)}</text>')
        return self

    def down(self, value: float, title: str) -> Plot:
        """Draw an upright mark; its title appears under the pointer."""
        self.parts.append(
            f'<path class="mark" d="M{self.x(value)} {_TOP}V{self.height - _BOTTOM}"><title>{escape(title)}</title></path>'
        )
        return self

    def svg(self) -> str:
        """Returns the picture."""
        size = f'viewBox="0 0 {self.width} {self.height}" width="{self.width}"'
        return f'<svg {size} role="img" aria-label="{escape(self.label)}">{"".join(self.parts)}</svg>'


def thinned(count: int, most: int, keep: Iterable[int] = ()) -> list[int]:
    """Returns at most about ``most`` of the numbers below ``count``, evenly spaced, and those of ``keep``.

    >>> thinned(10, 3, keep=[7])
    [0, 4, 7, 8]
    """
    step = max(1, -(-count // most))
    return sorted({*range(0, count, step), *keep})


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
    y = ChartAxis.around([*shown, *marks.values()], "time, less is better", log=True, text=seconds_text)
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


def _across(at: Sequence[float], spent: Sequence[float], over_time: bool) -> ChartAxis:
    """Returns the axis of the trials or of the time; that of the trials has the time beside each number."""
    high = max(at[-1], at[0] + 1e-9)
    if over_time:
        return ChartAxis(min(at[0], 0.0), high, "time spent", text=duration_text)
    if not spent:
        return ChartAxis(min(at[0], 1.0), high, "trial", text="{:,.0f}".format, whole=True)

    def text(trial: float) -> str:
        return f"{trial:,.0f} ({duration_text(spent[min(max(round(trial), 1), len(spent)) - 1])})"

    return ChartAxis(min(at[0], 1.0), high, "trial (time spent)", text=text, whole=True)


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
