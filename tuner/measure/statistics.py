"""This module estimates the speed of a candidate from repeated timings.

Timings of the same code are skewed, because noise only adds time. So the figure of a candidate is the median of the
faster half of its timings, which ignores disturbances and, unlike the minimum, does not improve merely by repeating.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class TimeInterval(NamedTuple):
    """An interval that probably contains the figure of a candidate, in seconds."""

    low: float
    high: float


def estimate(times: Sequence[float]) -> float:
    """Returns the median of the faster half of ``times`` (seconds); the only one, when there is one.

    >>> estimate([3.0, 1.0, 2.0, 90.0])
    1.5
    """
    if len(times) == 0:
        raise ValueError("no timings to estimate from")
    ordered = np.sort(np.asarray(times, dtype=np.float64))
    return float(np.median(ordered[: (len(ordered) + 1) // 2]))


def interval(times: Sequence[float]) -> TimeInterval:
    """Returns an interval for :func:`estimate`: plus or minus the spread of the faster half over the root of its size.

    With fewer than three timings nothing is known about the spread: 20 % to either side is assumed.
    """
    ordered = np.sort(np.asarray(times, dtype=np.float64))
    half = ordered[: (len(ordered) + 1) // 2]
    middle = float(np.median(half))
    if len(ordered) < 3:
        return TimeInterval(0.8 * middle, 1.2 * middle)
    spread = max(float(half[-1] - half[0]), 0.002 * middle)
    radius = 1.5 * spread / np.sqrt(len(half))
    return TimeInterval(middle - radius, middle + radius)
