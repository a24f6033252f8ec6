"""This module draws a search as SVG: each trial as a dot, the best so far as a line."""

from __future__ import annotations

import math
from collections.abc import Sequence

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 720, 220, 56, 28, 10
_MAX_DOTS = 600


def history_svg(seconds: Sequence[float | None], flops: float | None) -> str:
    """``seconds`` of each trial in order, None for a failed one. The axis is GFLOP/s when ``flops`` (operations of one
    run) is known, else calls per second: up is better."""
    unit, scale = ("GFLOP/s", flops / 1e9) if flops else ("runs/s", 1.0)
    values = [None if s is None else scale / s for s in seconds]
    good = [v for v in values if v is not None]
    if not good:
        return ""
    top = _round_up(max(good))
    count = len(values)

    def x(index: int) -> float:
        return _LEFT + (index + 0.5) / count * (_WIDTH - _LEFT - 8)

    def y(value: float) -> float:
        return _TOP + (1 - value / top) * (_HEIGHT - _TOP - _BOTTOM)

    parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="Best {max(good):.4g} {unit} of {count}">']
    for share in (0, 0.25, 0.5, 0.75, 1):
        level = y(top * share)
        parts.append(f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - 8}" y1="{level:.1f}" y2="{level:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{level + 4:.1f}" text-anchor="end">{top * share:.4g}</text>')
    parts.append(f'<text x="{_LEFT}" y="{_HEIGHT - 6}">trial 1</text>')
    parts.append(f'<text x="{_WIDTH - 8}" y="{_HEIGHT - 6}" text-anchor="end">{count}</text>')
    parts.append(f'<text x="{(_LEFT + _WIDTH) / 2}" y="{_HEIGHT - 6}" text-anchor="middle">{unit}</text>')
    step = max(1, math.ceil(count / _MAX_DOTS))
    for i in range(0, count, step):
        value = values[i]
        if value is None:
            at = x(i)
            low = y(0)
            parts.append(f'<path class="failed" d="M{at - 2:.1f} {low - 4:.1f}l4 4m0 -4l-4 4"/>')
        else:
            parts.append(f'<circle class="trial" cx="{x(i):.1f}" cy="{y(value):.1f}" r="2"/>')
    best = 0.0
    path = ""
    for i, value in enumerate(values):
        if value is not None and value > best:
            path += f"M{x(i):.1f} {y(value):.1f}" if not path else f"H{x(i):.1f}V{y(value):.1f}"
            best = value
    parts.append(f'<path class="best" d="{path}H{x(count - 1):.1f}"/></svg>')
    return "".join(parts)


def _round_up(value: float) -> float:
    """Returns the next of 1, 1.5, 2, 3, 5, 7.5, 10 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.5, 2, 3, 5, 7.5, 10) if step * power >= value * 0.999)
