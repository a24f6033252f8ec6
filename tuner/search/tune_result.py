"""What a tuning session is asked for, how it reports its progress, and the result that it returns.

A result draws plots under the names that users of Optuna know. Plots and tables need the extra ``viz``.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ...codegen.machine.target import Target
from ...pages import card, code_html, folded, improvements, rate_text, search_chart, seconds_text, table
from ...pages.messages import require_seconds, require_whole, short_repr
from ...schedule import Schedule, Trace
from ...tir.stmt import PrimFunc
from ...tuning_db import TuningRecord
from ...tuning_db.database import records_frame
from ..cost.cost_model import CostModel
from ..cost.machine_model import MachineModel
from ..measure import Runner
from ..rules import ScheduleRule
from ..space.search_space import Space, Where
from .strategy import SearchStrategy
from .warm_start import replay

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


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

    def records_dataframe(self) -> pd.DataFrame:
        """Returns the records of the session as a table of pandas."""
        return records_frame(self.records, self.flops)

    def plot_optimization_history(self) -> go.Figure:
        """Returns the seconds of each trial, and of the best so far."""
        records = self.records
        seconds = [r.run_seconds if r.ok else None for r in records]
        best = improvements(seconds)
        places, values = [n + 1 for n, _ in best], [s for _, s in best]
        if best:
            places, values = [*places, len(records)], [*values, values[-1]]
        trials = {
            "type": "scatter",
            "mode": "markers",
            "name": "trial",
            "x": _numbers(records),
            "y": seconds,
            "text": _words(records),
        }
        line = {
            "type": "scatter",
            "mode": "lines",
            "name": "best so far",
            "x": places,
            "y": values,
            "line": {"shape": "hv"},
        }
        return _figure([trials, line], "Optimization history", "trial", "seconds", log=True)

    def plot_timeline(self) -> go.Figure:
        """Returns when each trial was recorded; colours are statuses."""
        records = self.records
        data = []
        for status in dict.fromkeys(r.status for r in records):
            mine = [(n, r) for n, r in enumerate(records, start=1) if r.status == status]
            data.append({
                "type": "scatter", "mode": "markers", "name": status, "x": [r.created for _, r in mine],
                "y": [n for n, _ in mine], "text": _words([r for _, r in mine]), "marker": {"symbol": "square"},
            })  # fmt: skip
        return _figure(data, "Timeline", "", "trial")

    def plot_edf(self) -> go.Figure:
        """Returns the share of trials that are at least as fast as each time (the empirical distribution)."""
        records = self.records
        seconds = sorted(_seconds(records))
        share = [n / max(len(seconds), 1) for n in range(1, len(seconds) + 1)]
        data = {"type": "scatter", "mode": "lines", "x": seconds, "y": share, "line": {"shape": "hv"}}
        return _figure([data], "Empirical distribution", "seconds", "share of trials")

    def plot_slice(self, params: Sequence[str] | None = None) -> go.Figure:
        """Returns the seconds over the values of each decision in ``params`` (default: all)."""
        records = self.records
        data, layout = [], {}
        names = _decisions(records, params)
        for number, name in enumerate(names, start=1):
            mine = [r for r in records if r.ok and name in r.decisions]
            axis = "" if number == 1 else str(number)
            data.append({
                "type": "scatter", "mode": "markers", "name": name, "x": [str(r.decisions[name]) for r in mine],
                "y": [r.run_seconds for r in mine], "xaxis": f"x{axis}", "yaxis": "y", "text": _words(mine),
            })  # fmt: skip
            width = 1 / len(names)
            layout[f"xaxis{axis}"] = {
                "title": name, "type": "category", "domain": [(number - 1) * width, number * width - 0.1 * width],
            }  # fmt: skip
        return _figure(data, "Slices", None, "seconds", log=True, **layout)

    def plot_parallel_coordinate(self, params: Sequence[str] | None = None) -> go.Figure:
        """Returns a line for each trial through its seconds and its decisions."""
        records = self.records
        names = _decisions(records, params)
        mine = [r for r in records if r.ok and all(name in r.decisions for name in names)]
        seconds = [r.run_seconds for r in mine]
        dimensions: list[dict[str, Any]] = [{"label": "seconds", "values": seconds}]
        for name in names:
            values = sorted({r.decisions[name] for r in mine}, key=lambda v: (str(type(v)), v))
            places = [values.index(r.decisions[name]) for r in mine]
            dimensions.append(
                {
                    "label": name,
                    "values": places,
                    "tickvals": list(range(len(values))),
                    "ticktext": [str(v) for v in values],
                }
            )
        data = {"type": "parcoords", "dimensions": dimensions, "line": {"color": seconds, "showscale": True}}
        return _figure([data], "Parallel coordinates")

    def plot_param_importances(self) -> go.Figure:
        """Returns how much of the variance of the logarithm of the seconds each decision explains alone."""
        records = self.records
        shares = sorted(importances(records).items(), key=lambda item: item[1])
        data = {
            "type": "bar",
            "orientation": "h",
            "x": [share for _, share in shares],
            "y": [name for name, _ in shares],
        }
        return _figure([data], "Importance of the decisions", "share of the variance explained", "")

    def plot_predicted_against_measured(self) -> go.Figure:
        """Returns what the cost model expected beside what was measured."""
        records = self.records
        mine = [r for r in records if r.ok and r.predicted_seconds]
        data = {
            "type": "scatter", "mode": "markers", "x": [r.predicted_seconds for r in mine],
            "y": [r.run_seconds for r in mine], "text": _words(mine),
        }  # fmt: skip
        return _figure(
            [data],
            "Predicted against measured",
            "predicted seconds",
            "measured seconds",
            log=True,
            xaxis={"type": "log", "title": "predicted seconds"},
        )


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


def importances(records: Sequence[TuningRecord]) -> dict[str, float]:
    """Returns for each decision the share of the variance of log seconds between its values (eta squared), 0 to 1."""
    out = {}
    for name in _decisions(records, None):
        mine = [r for r in records if r.ok and name in r.decisions]
        logs = np.log([r.run_seconds or 1.0 for r in mine])
        total = float(((logs - logs.mean()) ** 2).sum()) if len(mine) else 0.0
        values = np.array([str(r.decisions[name]) for r in mine])
        between = sum((values == v).sum() * (logs[values == v].mean() - logs.mean()) ** 2 for v in set(values))
        out[name] = float(between) / total if total else 0.0
    return out


def _seconds(records: Sequence[TuningRecord]) -> list[float]:
    return [r.run_seconds for r in records if r.ok and r.run_seconds]


def _numbers(records: Sequence[TuningRecord]) -> list[int]:
    return list(range(1, len(records) + 1))


def _decisions(records: Sequence[TuningRecord], wanted: Sequence[str] | None) -> list[str]:
    """Returns the names of decisions that took several values, or those of ``wanted``; ValueError for one that no
    record has."""
    values: dict[str, list[Any]] = {}
    for record in records:
        for name, value in record.decisions.items() if record.ok else ():
            found = values.setdefault(name, [])
            found += [value] if value not in found else []
    for name in wanted or ():
        if name not in values:
            raise ValueError(f"no trial decided {name!r}; there are {', '.join(values) or 'none'}")
    return list(wanted) if wanted is not None else [name for name, found in values.items() if len(found) > 1]


def _words(records: Sequence[TuningRecord]) -> list[str]:
    return [
        f"{r.sketch or r.status}<br>{', '.join([f'{k}={v}' for k, v in r.decisions.items()])}{r.error[:120]}"
        for r in records
    ]


def _figure(
    data: Sequence[Mapping[str, Any]], title: str, x: str | None = "", y: str = "", log: bool = False, **layout: Any
) -> go.Figure:
    try:
        import plotly.graph_objects as graphs
    except ImportError as error:
        raise ImportError("plots need plotly: pip install 'tilewright[viz]'") from error
    described: dict[str, Any] = {"title": {"text": title}, "yaxis": {"title": y, "type": "log" if log else "-"}}
    if x is not None:
        described["xaxis"] = {"title": x}
    return graphs.Figure({"data": list(data), "layout": {**described, **layout}})
