"""This module draws charts as SVG: axes, lines, dots with titles that appear under the pointer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 12, 12, 34
_LETTER = 6.0
"""How wide a letter of the texts at ticks is, about."""


@dataclass(frozen=True)
class Axis:
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
    ) -> Axis:
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

    def __init__(self, x: Axis, y: Axis, label: str, width: int = 480, height: int = 230) -> None:
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
