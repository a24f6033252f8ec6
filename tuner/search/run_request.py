"""One run of a tuning session: what was asked for, checked, and how far it is."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..measure.option_ranges import require_whole
from .tune_result import Progress

Callback = Callable[[Progress], Any]


@dataclass
class Run:
    """What one run of a session was asked for, and how far it is."""

    trials: int
    deadline: float
    callbacks: Sequence[Callback]
    start: float
    session: str | None = None
    before: int = 0  # records of earlier runs of the same session
    stop: bool = False
    began: tuple[float, int] | None = None  # when the first batch of chosen candidates began, and the trials before it
    seconds_each: float = math.inf  # what a trial took since then, by the batches that are finished

    def begins_batch(self, done: int) -> None:
        """Note that a batch of chosen candidates begins after ``done`` trials."""
        if self.began is None:
            self.began = (time.monotonic(), done)
        elif done > self.began[1]:
            self.seconds_each = (time.monotonic() - self.began[0]) / (done - self.began[1])

    def remaining_seconds(self, done: int) -> float:
        """Returns how long the other trials may take, at most until the deadline; infinity as long as it is unknown."""
        left = self.trials - done
        return min(self.seconds_each * left if left else 0.0, max(0.0, self.deadline - time.monotonic()))


def checked_limit(trials: int, time_limit: float | None) -> float:
    """Returns the limit in seconds, infinity for none; TypeError or ValueError for anything else."""
    require_whole("trials", trials, 1)
    if time_limit is None:
        return math.inf
    if not (isinstance(time_limit, (int, float)) and math.isfinite(time_limit) and time_limit >= 0):
        raise ValueError(f"time_limit is a number of seconds, not {time_limit!r}; None is no limit")
    return float(time_limit)


def takes(method: Callable[..., Any], parameter: str) -> bool:
    """Returns whether a runner's method takes the optional parameter."""
    found = inspect.signature(method).parameters.values()
    return any(p.name == parameter or p.kind is p.VAR_KEYWORD for p in found)
