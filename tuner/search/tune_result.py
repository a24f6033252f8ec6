"""A tuning session reports its progress and returns a result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from ...codegen.machine.target import Target
from ...pages import card, code_html, folded, rate_text, search_chart, seconds_text, table
from ...pages.short_repr import short_repr
from ...schedule import Schedule, Trace
from ...tir.stmt import PrimFunc
from ...tuning_db import TuningRecord
from . import result_plots
from .warm_start import replay

Stopped = Literal["trials", "time", "exhausted", "converged", "patience", "enough", "stopped", "interrupted"]

ENDS: dict[str, str] = {
    "trials": "all trials were used",
    "time": "the time was up",
    "exhausted": "every candidate was tried",
    "converged": "no further gain was expected",
    "patience": "as many trials as were asked for brought no gain",
    "enough": "it is as fast as was asked for",
    "stopped": "a callback, or stop(), asked for the end",
    "interrupted": "it was interrupted",
}


@dataclass(frozen=True)
class Progress:
    """The progress of a session, which callbacks receive as one of the classes below. It says what happens, and how far
    it is.

    ``trials_done`` of ``trials_total``; ``failures`` among them; ``best_seconds`` (infinity before the first success)
    and ``best_gflops``; ``elapsed_seconds`` and the estimated ``remaining_seconds`` (infinity as long as it is unknown);
    ``records`` are new ones; ``batch`` is the number of candidates in the batch that a :class:`BatchStarted` begins.
    ``stop()`` ends the search after this event; the best so far is the result. ``on_record``: schedules that earlier
    sessions measured, the best of which counts.
    """

    trials_done: int
    trials_total: int
    failures: int
    best_seconds: float
    best_gflops: float
    elapsed_seconds: float
    remaining_seconds: float
    records: tuple[TuningRecord, ...] = ()
    batch: int = 0
    stop: Callable[[], None] = field(default=lambda: None, repr=False, compare=False)
    on_record: int = 0

    __repr__ = short_repr()


class SearchStarted(Progress):
    """The workers start, and the result that candidates are compared with is computed."""


class BatchStarted(Progress):
    """Candidates were chosen; they are compiled and run."""


class CandidateMeasured(Progress):
    """A candidate has run or failed: ``records`` holds its record."""

    @property
    def record(self) -> TuningRecord:
        """Returns the record of the candidate."""
        return self.records[0]


class FinalComparison(Progress):
    """The best candidates are timed once more, alternately."""


class SearchEnded(Progress):
    """The search is over."""


@dataclass(frozen=True, repr=False)
class TuneResult:
    """A ``TuneResult`` is the result of a session.

    ``best`` is the fastest correct record (of this session, or of an earlier one on the same workload and target); None
    when nothing could be measured. ``records`` are this session's, in order. ``stopped``: ``trials`` (budget used),
    ``time``, ``exhausted`` (every candidate tried), ``converged`` (no further gain expected), ``patience`` (as many trials
    without a gain as were asked for), ``enough`` (as fast as was asked for), ``stopped`` (by a callback
    or :meth:`~tilewright.tuner.TuningSession.stop`) or ``interrupted``; ``why`` says it in words. ``problem`` says why
    there is no ``best``, and is empty when there is one. ``late`` says why the time limit was exceeded by more than 5 %.
    """

    func: PrimFunc
    target: Target
    best: TuningRecord | None
    records: tuple[TuningRecord, ...]
    stopped: Stopped
    elapsed_seconds: float
    flops: float
    session: str | None = None
    failures: dict[str, int] = field(default_factory=dict)
    problem: str = ""
    late: str = ""

    def __repr__(self) -> str:
        took = f"best {seconds_text(self.best_seconds)}" if self.best is not None else "nothing measured"
        return f"TuneResult({self.func.name} on {self.target}: {took}, {len(self.records)} trials; {self.why})"

    def _repr_html_(self) -> str:
        return result_html(self)

    @property
    def why(self) -> str:
        """Returns a clause that says why the search ended."""
        return ENDS[self.stopped]

    @property
    def best_seconds(self) -> float:
        """Returns the best time, infinity without one."""
        seconds = None if self.best is None else self.best.run_seconds
        return float("inf") if seconds is None else seconds

    @property
    def best_gflops(self) -> float:
        """Returns billions of operations per second at the best time; 0 without one."""
        return self.flops / self.best_seconds / 1e9

    @property
    def best_schedule(self) -> Schedule | None:
        """Returns the schedule of the best record, None without one."""
        if self.best is None:
            return None
        return replay(self.func, Trace.from_json(self.best.trace))

    def history(self) -> list[tuple[int, float]]:
        """Returns ``(trial, best seconds so far)`` after each trial of the session."""
        out, best = [], float("inf")
        for number, record in enumerate(self.records, start=1):
            best = min(best, record.run_seconds if record.ok and record.run_seconds else best)
            out.append((number, best))
        return out

    records_dataframe = result_plots.records_dataframe
    plot_optimization_history = result_plots.plot_optimization_history
    plot_timeline = result_plots.plot_timeline
    plot_edf = result_plots.plot_edf
    plot_slice = result_plots.plot_slice
    plot_parallel_coordinate = result_plots.plot_parallel_coordinate
    plot_param_importances = result_plots.plot_param_importances
    plot_predicted_against_measured = result_plots.plot_predicted_against_measured


class TuningInterrupted(KeyboardInterrupt):
    """Ctrl-C ended a search; ``result`` has what was measured, which is in the database as well."""

    def __init__(self, result: TuneResult) -> None:
        best = f", the best took {result.best_seconds:.3g} s" if result.best is not None else ""
        super().__init__(f"{len(result.records)} candidates were measured{best}")
        self.result = result


def result_html(result: TuneResult) -> str:
    """Returns the figures, the curve, what failed and the steps of the best schedule as HTML."""
    rows = [("best", f"{seconds_text(result.best_seconds)}" if result.best else result.problem)]
    if result.best and result.flops:
        rows.append(("rate", rate_text(result.flops / result.best_seconds, "FLOP/s")))
    rows += [("trials", f"{len(result.records)} in {result.elapsed_seconds:.1f} s"), ("ended", result.why)]
    if result.failures:
        rows.append(("failed", ", ".join([f"{count} {status}" for status, count in sorted(result.failures.items())])))
    times = [r.run_seconds if r.ok else None for r in result.records]
    schedule = result.best_schedule
    steps = code_html(schedule.trace.as_python(), fold=False) if schedule is not None else ""
    return card(
        result.func.name, table(("", ""), rows), search_chart(times, lambda n: f"trial {n + 1}: {seconds_text(times[n])} {result.records[n].sketch}"), folded("the best schedule", steps),
        note=f"tuned for {result.target}",
    )  # fmt: skip
