"""This module writes figures for people: three digits and a unit."""

from __future__ import annotations

import math


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
