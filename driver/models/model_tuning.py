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

from ...codegen import CODEGEN_VERSION, Target
from ...codegen.packing import LAYOUT_FREE
from ...graph.graph import Graph
from ...graph.kernels import Kernel, fuse
from ...graph.memory_plan import order_kernels
from ...pages.messages import require_share, short_repr
from ...schedule import ScheduleError
from ...tir.cost import count_bytes, count_flops
from ...tir.program_key import workload_key
from ...tir.stmt import PrimFunc
from ...tuner import LocalRunner, Progress, ReferenceFailed, TuneOptions, TuningSession
from ...tuner.example_sizes import Bounds, ends_of, example_of, examples_of, unknown_sizes, with_example
from ...tuner.remote import runner_for
from ...tuner.search.tune_result import ENDS, Stopped, checked_limit
from ...tuning_db import Database, open_database
from ..building import TuneError, require_known
from ..graph_services import prepared
from ..machine_report import known_report, library_versions, limits_of, model_of
from .model_building import READING, bounds_of, load_model, representatives

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
    share of the roofline at which a kernel is done, ``accuracy`` that of :class:`.model_building.GraphOptions`, callbacks receive each
    :class:`ModelProgress`, and options of :class:`~tilewright.tuner.TuneOptions` go by name. ``sizes``: examples of symbolic
    sizes, by name; kernels are tuned at each combination, at one typical size where it is empty."""

    trials: int = 64
    time_limit: float | None = None
    until: float | None = None
    callbacks: Sequence[Callable[[ModelProgress], Any]] = ()
    search: Mapping[str, Any] = field(default_factory=dict)
    accuracy: float | None = None
    sizes: Bounds = field(default_factory=dict)

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


def kernel_tasks(
    graph: Graph, target: Target, trials: int, accuracy: float | None = None, sizes: Bounds | None = None
) -> list[KernelTask]:  # fmt: skip
    """Returns the distinct kernels of a graph, those first that are expected to take the longest.

    ``sizes``: examples of symbolic sizes; a kernel is a task for each combination of those that it has.
    """
    bounds_of(graph, sizes or {}, "sizes")
    division = order_kernels(fuse(prepared(graph, target, accuracy)))
    examples = examples_of({name: ends_of(ends) for name, ends in (sizes or {}).items()})
    report = known_report(target)
    calls: Counter[Any] = Counter()
    firsts: dict[Any, tuple[Kernel, PrimFunc]] = {}
    same, counts = representatives(division), Counter[Kernel]()
    for kernel, _, count in division.leaves():
        counts[same[kernel]] += count
    for first, count in counts.items():
        for func in _at_sizes(first.func, examples):
            key = (workload_key(func), str(func.attrs.get(LAYOUT_FREE)))
            calls[key] += count
            firsts.setdefault(key, (first, func))
    tasks = []
    for key, (kernel, func) in firsts.items():
        limits = limits_of(report, func, target) if report is not None else {}
        tasks.append(KernelTask(kernel, func, calls[key], target, limits, trials))
    return sorted(tasks, key=lambda t: -t.calls * (t.floor or _rough_seconds(t.func)))


def _at_sizes(func: PrimFunc, examples: Sequence[Mapping[str, int]]) -> list[PrimFunc]:
    """Returns the function at each example of its symbolic sizes; itself where it has none."""
    made = [example_of(with_example(func, one)) or func for one in examples]
    return list({workload_key(one): one for one in made}.values())


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
        self.tasks = kernel_tasks(graph, target, options.trials, options.accuracy, options.sizes)
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
    """A distinct kernel of a model: ``func``, with examples of symbolic sizes. ``calls``: how often a run calls it; ``limits``: those
    of the machine, as a session keeps them; ``floor``: the least seconds that they allow for one call (0: not known);
    ``trials``: the most of this search; ``done`` says why no more are of use.

    ``expected_gain``: by how many seconds a run of the model is expected to become faster, per second of searching on.
    The last gain is expected to come again by half, and the search's own prediction by a part that falls with the trials
    that brought nothing."""

    def __init__(
        self, kernel: Kernel, func: PrimFunc, calls: int, target: Target, limits: Mapping[str, Any], trials: int
    ) -> None:  # fmt: skip
        self.name, self.func, self.calls = kernel.name, func, calls
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
