"""This module tunes the kernels of a model: the time goes where the model is expected to gain most.

Each distinct kernel counts with its calls times its time. All get a few trials first, the heaviest before others; then
the kernel of the largest expected gain per second gets the next slice (compare Zheng et al., "Ansor", OSDI 2020, section
6). Records belong to kernels, not to models, so that a second model begins with what the first one left.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ...codegen import Target
from ...codegen.packing import LAYOUT_FREE
from ...graph.fuse import fuse
from ...graph.graph import Graph
from ...graph.kernels import Kernel
from ...graph.memory_plan import order_kernels
from ...pages.short_repr import short_repr
from ...tir.cost import count_bytes, count_flops
from ...tir.program_key import workload_key
from ...tir.stmt import PrimFunc
from ...tuner import LocalRunner, Progress, TuneOptions
from ...tuner.measure.option_ranges import require_share
from ...tuner.remote import runner_for
from ...tuner.search.run_request import checked_limit
from ...tuner.search.tune_result import ENDS, Stopped
from ...tuning_db import Database, open_database
from ..example_sizes import example_of
from ..graph_services import prepared
from ..library_versions import library_versions
from ..machine_report import known_report, model_of
from ..planning import TuneError
from ..request import require_known
from ..roofline import limits_of
from .kernel_task import KernelTask
from .model_building import representatives
from .model_files import READING, load_model

_COMPARED, _COMPARED_SECONDS = 0.1, 20.0
"""The part of a time limit that is kept for comparing the best schedules once more, and the most of it in seconds."""

_NEGLIGIBLE = 0.002
"""A kernel whose part of the model's time is smaller is not searched further after its first trials."""


@dataclass(frozen=True)
class TunedKernel:
    """A distinct kernel of a tuned model, with its times and its search. It has its ``calls`` in one run, seconds of
    one call by the default schedule (by the best one where the default did not run) and by the best one on record
    (infinity: not measured), the share of the roofline, the trials of this search and how many failed, the best record,
    why the search ended, and the shapes of its arguments, the results last."""

    name: str
    calls: int
    default_seconds: float
    seconds: float
    share: float | None
    trials: int
    failures: int
    record: int | None
    why: str
    shapes: str = ""

    @property
    def whole_seconds(self) -> float:
        """Returns the seconds of all calls."""
        return self.calls * self.seconds


@dataclass(frozen=True)
class ModelProgress:
    """The progress of a model's search. It has the kernel that is searched, how many of the distinct ones are done,
    trials so far, the predicted seconds of a run by default schedules and by the best ones (of ``measured`` kernels),
    the time spent, and ``stop``, which ends the search."""

    model: str
    kernel: str
    kernels_done: int
    kernels: int
    measured: int
    trials: int
    default_seconds: float
    seconds: float
    elapsed_seconds: float
    stop: Callable[[], None] = field(default=lambda: None, repr=False, compare=False)

    __repr__ = short_repr()


@dataclass(frozen=True)
class ModelTuneResult:
    """The result of tuning a model: its distinct kernels, those with the longest time first, and why it ended."""

    model: str
    target: Target
    kernels: Sequence[TunedKernel]
    stopped: Stopped
    elapsed_seconds: float

    __repr__ = short_repr("model", "target", "kernels", "why")

    @property
    def why(self) -> str:
        """Returns a clause that says why the search ended."""
        return ENDS[self.stopped]

    @property
    def trials(self) -> int:
        """Returns how many candidates were measured."""
        return sum(k.trials for k in self.kernels)

    @property
    def seconds(self) -> float:
        """Returns the predicted seconds of a run: of the kernels that were measured, all calls together."""
        return sum(k.whole_seconds for k in self.kernels if math.isfinite(k.seconds))

    @property
    def default_seconds(self) -> float:
        """Returns the same for default schedules."""
        return sum(k.calls * k.default_seconds for k in self.kernels if math.isfinite(k.seconds))

    def as_dict(self) -> dict[str, Any]:
        """Returns plain values, for JSON; None for what was not measured."""
        kernels = [
            {key: None if isinstance(value, float) and math.isinf(value) else value for key, value in vars(k).items()}
            for k in self.kernels
        ]
        return {
            "model": self.model, "target": str(self.target), "kernels": kernels, "trials": self.trials,
            "seconds": self.seconds, "default_seconds": self.default_seconds, "stopped": self.stopped,
            "elapsed_seconds": self.elapsed_seconds,
        }  # fmt: skip


class ModelTuningInterrupted(KeyboardInterrupt):
    """Ctrl-C ended the tuning of a model; ``result`` has what was measured, which is in the database as well."""

    def __init__(self, result: ModelTuneResult) -> None:
        super().__init__(f"{result.trials} candidates were measured")
        self.result = result


@dataclass(frozen=True)
class ModelTuneOptions:
    """The options for tuning a model. ``trials`` is for one kernel at most, the seconds are for all, ``until`` is the
    share of the roofline at which a kernel is done, ``accuracy`` that of :class:`.model_building.GraphOptions`, callbacks receive each :class:`ModelProgress`, and options of
    :class:`~tilewright.tuner.TuneOptions` go by name."""

    trials: int = 64
    time_limit: float | None = None
    until: float | None = None
    callbacks: Sequence[Callable[[ModelProgress], Any]] = ()
    search: Mapping[str, Any] = field(default_factory=dict)
    accuracy: float | None = None

    def __post_init__(self) -> None:
        if self.until is not None:
            require_share("until", self.until, "the roofline")


def tune_model(
    what: Any, target: Target, db: Database | str | os.PathLike[str] | None, asked: ModelTuneOptions
) -> ModelTuneResult:
    """Tune a graph, or a model that a front end reads. ``asked.search`` holds the options of the front end as well."""
    reading = {key: value for key, value in asked.search.items() if key in READING}
    search = {key: value for key, value in asked.search.items() if key not in READING}
    require_known(
        search, TuneOptions, ("trials", "db", "time_limit", "until", "callbacks", "accuracy", *READING), "tune"
    )
    missing = target.missing_here()
    if missing:
        raise TuneError(f"tuning: this machine cannot run code for {target}: no {', '.join(missing[:3])}")
    return tune_graph(load_model(what, **reading), target, db, replace(asked, search=search))


def tune_graph(
    graph: Graph,
    target: Target,
    db: Database | str | os.PathLike[str] | None = None,
    options: ModelTuneOptions | None = None,
) -> ModelTuneResult:
    """Search for fast schedules of the graph's kernels; records go to ``db``, and those that are there are used.

    Ctrl-C raises :class:`ModelTuningInterrupted`, which has the result so far.
    """
    chosen = options or ModelTuneOptions()
    with open_database(db) if db is not None else nullcontext() as opened, ExitStack() as made:
        given = chosen.search.get("runner")
        runner = LocalRunner() if given is None else runner_for(given)
        if runner is not given:
            made.enter_context(runner)
        search = {**chosen.search, "runner": runner}
        search.setdefault("machine", model_of(known_report(target), target))
        search.setdefault("versions", library_versions())
        tuning = _Tuning(graph, target, opened, replace(chosen, search=search))
        return tuning.run()


def kernel_tasks(graph: Graph, target: Target, trials: int, accuracy: float | None = None) -> list[KernelTask]:
    """Returns the distinct kernels of a graph, those first that are expected to take the longest."""
    division = order_kernels(fuse(prepared(graph, target, accuracy)))
    report = known_report(target)
    calls: Counter[Any] = Counter()
    firsts: dict[Any, Kernel] = {}
    same, counts = representatives(division), Counter[Kernel]()
    for kernel, _, count in division.leaves():
        counts[same[kernel]] += count
    for first, count in counts.items():
        key = (workload_key(first.func), str(first.func.attrs.get(LAYOUT_FREE)))
        calls[key] += count
        firsts.setdefault(key, first)
    tasks = []
    for key, kernel in firsts.items():
        limits = limits_of(report, example_of(kernel.func) or kernel.func, target) if report is not None else {}
        tasks.append(KernelTask(kernel, calls[key], target, limits, trials))
    return sorted(tasks, key=lambda t: -t.calls * (t.floor or _rough_seconds(t.func)))


def _rough_seconds(func: PrimFunc) -> float:
    return (count_flops(func) or 0.0) / 1e11 + (count_bytes(func) or 0.0) / 1e10


class _Tuning:
    """The tuning of one graph: the tasks, and what was spent."""

    def __init__(self, graph: Graph, target: Target, db: Database | None, options: ModelTuneOptions) -> None:
        self.model, self.target, self.db, self.options = graph.name, target, db, options
        self.start = time.monotonic()
        limit = checked_limit(options.trials, options.time_limit)
        self.deadline = self.start + limit
        self.kept = min(_COMPARED * limit, _COMPARED_SECONDS)
        self.tasks = kernel_tasks(graph, target, options.trials, options.accuracy)
        self.stopping = False

    def run(self) -> ModelTuneResult:
        """Returns the result when nothing is left to do or the time is up."""
        try:
            stopped = self._spend()
            self._compare()
        except KeyboardInterrupt as interrupted:
            raise ModelTuningInterrupted(self._result("interrupted")) from interrupted
        return self._result(stopped)

    def _spend(self) -> Stopped:
        while (task := self._next()) is not None:
            if self.stopping:
                return "stopped"
            left = self.deadline - self.kept - time.monotonic()
            if left <= 0:
                return "time"
            if not task.started:
                task.start(self.db, self.options.search)
            elif not task.done:
                task.search(left if math.isfinite(left) else None, [partial(self._heard, task)])
            task.finish(self.options.until)
            self._say(task)
        return "trials" if any(t.done == ENDS["trials"] for t in self.tasks) else "converged"

    def _next(self) -> KernelTask | None:
        """Returns a kernel that was not measured yet, else the one of the largest expected gain per second."""
        fresh = (t for t in self.tasks if not t.started or (not t.done and math.isinf(t.seconds)))
        first = next(fresh, None)
        if first is not None:
            return first
        least = _NEGLIGIBLE * sum(t.calls * t.seconds for t in self.tasks if math.isfinite(t.seconds))
        open_ones = [t for t in self.tasks if not t.done and t.calls * t.seconds >= least]
        return max(open_ones, key=lambda t: t.expected_gain, default=None)

    def _compare(self) -> None:
        """Time the best schedules of the heaviest kernels once more, as long as there is time for it."""
        for task in sorted(self.tasks, key=lambda t: -t.calls * min(t.seconds, 1e30)):
            left = self.deadline - time.monotonic()
            if left <= 0:
                return
            task.compare(left if math.isfinite(left) else None)

    def _heard(self, task: KernelTask, event: Progress) -> None:
        self._say(task, event.stop)

    def _say(self, task: KernelTask, stop: Callable[[], None] | None = None) -> None:
        def stop_all() -> None:
            self.stopping = True
            if stop is not None:
                stop()

        known = [t for t in self.tasks if math.isfinite(t.seconds)]
        progress = ModelProgress(
            self.model, task.name, sum(bool(t.done) for t in self.tasks), len(self.tasks), len(known),
            sum(t.trials for t in self.tasks), sum(t.calls * t.default_seconds for t in known),
            sum(t.calls * t.seconds for t in known), time.monotonic() - self.start, stop_all,
        )  # fmt: skip
        for callback in self.options.callbacks:
            callback(progress)

    def _result(self, stopped: Stopped) -> ModelTuneResult:
        kernels = [
            TunedKernel(
                t.name, t.calls, t.default_seconds, t.seconds, t.share, t.trials, t.failures, t.record, t.done, t.shapes
            )
            for t in self.tasks
        ]
        kernels.sort(key=lambda k: -k.whole_seconds if math.isfinite(k.seconds) else 0.0)
        return ModelTuneResult(self.model, self.target, kernels, stopped, time.monotonic() - self.start)
