"""A kernel of a model and its search. They say how often it is called, how long it takes, and what more trials
promise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...codegen import CODEGEN_VERSION, Target
from ...graph.kernels import Kernel
from ...schedule import ScheduleError
from ...tir.stmt import PrimFunc
from ...tuner import ReferenceFailed, TuningSession
from ...tuner.measure.inputs import unknown_sizes
from ...tuning_db import Database
from ..example_sizes import example_of

FIRST, SLICE = 8, 16
"""The trials that each kernel gets first, and those that it gets at a time later."""

_PATIENCE = 24
"""Trials without a gain after which a kernel is done, once the search expects none of the rest."""

_GAIN = 0.01
"""A gain smaller than this share of the time counts as none."""

_COST_SECONDS = 3.0
"""What a slice is taken to cost before there was one."""


def shapes_text(func: PrimFunc) -> str:
    """Returns the shapes of a function's arrays, as ``1x56x56x64, 3x3x64x64, 1x56x56x64``."""
    return ", ".join(["x".join([str(extent) for extent in buffer.shape]) or "scalar" for buffer in func.buffers])


class KernelTask:
    """A distinct kernel of a model, with examples of symbolic sizes. ``calls``: how often a run calls it; ``limits``: those
    of the machine, as a session keeps them; ``floor``: the least seconds that they allow for one call (0: not known);
    ``trials``: the most of this search; ``done`` says why no more are of use.

    ``expected_gain``: by how many seconds a run of the model is expected to become faster, per second of searching on.
    The last gain is expected to come again by half, and the search's own prediction by a part that falls with the trials
    that brought nothing."""

    def __init__(self, kernel: Kernel, calls: int, target: Target, limits: Mapping[str, Any], trials: int) -> None:
        self.name, self.func, self.calls = kernel.name, example_of(kernel.func) or kernel.func, calls
        self.target, self.limits, self.limit = target, limits, trials
        self.floor: float = limits.get("roofline_seconds") or 0.0
        self.done = unknown_sizes(self.func) or ""
        self.expected_gain = 0.0
        self._session: TuningSession | None = None
        self._last_gain = 0.0
        self._default = ""
        self._idle = 0
        self._cost = _COST_SECONDS

    @property
    def shapes(self) -> str:
        """Returns the shapes of its arguments, the results last, as ``1x56x56x64, 3x3x64x64``."""
        return shapes_text(self.func)

    @property
    def started(self) -> bool:
        """Returns whether the search has begun, or cannot."""
        return self._session is not None or bool(self.done)

    @property
    def seconds(self) -> float:
        """Returns the best time of one call that is on record, infinity without one."""
        best = None if self._session is None else self._session.best
        return best.run_seconds if best is not None and best.run_seconds else math.inf

    @property
    def trials(self) -> int:
        """Returns how many candidates this search has measured."""
        return 0 if self._session is None else len(self._session.records)

    @property
    def failures(self) -> int:
        """Returns how many of them failed."""
        return 0 if self._session is None else sum(not r.ok for r in self._session.records)

    @property
    def default_seconds(self) -> float:
        """Returns the time of the default schedule, that of the best one where it is not known."""
        records = () if self._session is None else (*self._session.earlier, *self._session.records)
        times = [r.run_seconds for r in records if r.trace == self._default and r.ok and r.run_seconds]
        return min(times, default=self.seconds)

    @property
    def record(self) -> int | None:
        """Returns the number of the fastest record."""
        best = None if self._session is None else self._session.best
        return None if best is None else best.id

    @property
    def share(self) -> float | None:
        """Returns which share of the machine's limit the best schedule reaches; None when that is not known."""
        return self.floor / self.seconds if self.floor and math.isfinite(self.seconds) else None

    def start(self, db: Database | None, options: Mapping[str, Any]) -> None:
        """Prepare the search with what is on record; a kernel that cannot be tuned is done."""
        try:
            self._session = TuningSession(self.func, self.target, db=db, **{"limits": self.limits, **options})
        except ScheduleError as error:
            self.done = str(error).split("\n")[0]
            return
        self._default = self._session.default.schedule.trace.dumps()
        if db is not None:
            kept = [r for r in db.records(self.func, self.target) if r.codegen_version == CODEGEN_VERSION]
            times = [r.run_seconds if r.ok and r.run_seconds else math.inf for r in kept]
            self._idle = len(times) - 1 - times.index(min(times)) if times else 0
            self._settle()

    def search(self, seconds_left: float | None, callbacks: Sequence[Callable[[Any], Any]]) -> None:
        """Measure a slice of trials. TuningInterrupted at Ctrl-C."""
        assert self._session is not None
        best, before = self.seconds, self.trials
        trials = min(SLICE if math.isfinite(best) else FIRST, max(self.limit - 1, 1) - before)
        try:
            result = self._session.run(trials, time_limit=seconds_left, callbacks=callbacks, final_race=False)
        except ReferenceFailed as error:
            self.done = str(error)
            return
        self._cost = max(result.elapsed_seconds, 1e-3)
        self._last_gain = best - self.seconds if math.isfinite(best) else 0.0
        new = [r.run_seconds if r.ok and r.run_seconds else math.inf for r in result.records[before:]]
        gained = bool(new) and min(new) < (1 - _GAIN) * best
        self._idle = len(new) - 1 - new.index(min(new)) if gained else self._idle + len(new)
        if result.stopped == "exhausted" or result.stopped != "time" and math.isinf(self.seconds):
            self.done = result.problem or result.why
        elif self.trials >= self.limit - 1:  # one is left for the comparison
            self.done = "all trials were used"
        self._settle()

    def compare(self, seconds: float | None) -> None:
        """Time the best few schedules once more, in turns with one more candidate, within ``seconds``."""
        if self._session is None or not self.trials:
            return
        ran = {r.trace for r in (*self._session.earlier, *self._session.records) if r.ok}
        if len(ran) > 1 or self.trials < self.limit:
            self._session.run(1, time_limit=seconds)

    def finish(self, until: float | None) -> None:
        """Note that the kernel is done when it reaches the share ``until`` of what the machine allows."""
        if not self.done and until is not None and self.share is not None and self.share >= until:
            self.done = f"it reaches {self.share:.0%} of the roofline"

    def _settle(self) -> None:
        """Work out the expected gain. The kernel is done when trials brought nothing and the search expects nothing."""
        self.expected_gain = 0.0
        if self.done or self._session is None or not math.isfinite(self.seconds):
            return
        promise = self._session.search.promise()
        if self._idle >= _PATIENCE and (promise is None or promise > (1 - _GAIN) * self.seconds):
            self.done = "no further gain was expected"
            return
        hope = 0.0 if promise is None else max(0.0, self.seconds - max(self.floor, promise))
        expected = max(self._last_gain / 2, hope / (1 + self._idle / SLICE), 1e-6 * self.seconds)
        self.expected_gain = self.calls * expected / self._cost
