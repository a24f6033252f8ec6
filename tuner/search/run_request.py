"""This module has what a tuning session is asked for: its options, and one run with its progress."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...pages.short_repr import short_repr
from ...schedule import Schedule, Trace
from ..cost.cost_model import CostModel
from ..cost.machine_model import MachineModel
from ..measure import Runner
from ..measure.runner import require_seconds, require_whole
from ..rules import ScheduleRule
from ..space.search_space import Space, Where
from .strategy import SearchStrategy
from .tune_result import Progress


@dataclass(frozen=True)
class TuneOptions:
    """These options say how a session searches. ``seed`` fixes the order of everything but the measured times.

    ``verify``: compare each candidate's outputs with the unscheduled function's. ``batch``: candidates measured between
    two decisions. ``final_race``: how many of the best are timed once more, alternately, at the end, to find the winner;
    0 for none. ``stop_early``: stop when 24 trials brought no gain and the model expects a gain below 1 % from the
    remaining candidates. ``patience``: stop when so many trials brought no gain, whatever the model expects.
    ``enough_seconds``: stop when the best takes no longer. ``machine``: the figures of the analytic prior, by default those of the target. ``runner``,
    ``strategy``, ``rules`` and ``model`` replace parts of the tuner; the runner may be an address (``dask://host:8786``). ``strategy(space, rng)`` makes a search strategy.
    ``where``: the values that decisions may take, by name: ``{"vectors": 2, "tile_matmul_v1.rows": (4, 6)}``.
    ``enqueue``: schedules made by hand, or traces, that are measured first. ``limits`` (of the machine, see
    :class:`~tilewright.tuning_db.SessionRecord`) and ``versions`` of libraries are kept with the session.
    """

    seed: int = 0
    verify: bool = True
    batch: int = 8
    final_race: int = 4
    stop_early: bool = True
    patience: int | None = None
    enough_seconds: float | None = None
    machine: MachineModel | None = None
    runner: Runner | str | None = None
    strategy: Callable[[Space, np.random.Generator], SearchStrategy] | None = None
    rules: Sequence[ScheduleRule] | None = None
    model: CostModel | None = None
    enqueue: Sequence[Schedule | Trace | str] = ()
    where: Where | None = None
    limits: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    __repr__ = short_repr()

    def __post_init__(self) -> None:
        require_whole("seed", self.seed, 0)
        require_whole("batch", self.batch, 1)
        require_whole("final_race", self.final_race, 0)
        if self.patience is not None:
            require_whole("patience", self.patience, 1)
        if self.enough_seconds is not None:
            require_seconds("enough_seconds", self.enough_seconds)


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
