"""A tuning session asks the search for candidates, measures them, tells the search the times and records them.

It stops when the trials or the time are used up, or when the search expects no further gain (:func:`early_end`). At the end
the best few candidates are timed once more, alternately, and the result of this race decides: the batches in which they
were timed first are minutes apart, and the speed of the machine drifts.
"""

from __future__ import annotations

import math
import os
import platform
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from ...codegen import CODEGEN_VERSION
from ...codegen.machine.target import Target
from ...pages.messages import short_repr
from ...schedule import Schedule, ScheduleError, Trace, TraceError
from ...tir.cost import count_flops
from ...tir.program_key import program_key
from ...tir.stmt import PrimFunc
from ...tuning_db import Database, TuningRecord, open_database, utc_now
from ..canonical_form import split_at_example
from ..cost.cost_model import XGBCostModel
from ..example_sizes import followed_in_whole_vectors
from ..measure import LocalRunner, MeasureResult, Runner
from ..measure.runner import TimeUp, estimate, interval
from ..remote import runner_for
from ..space.search_space import Space, choose_default
from .strategy import Candidate, ModelGuidedSearch
from .tune_result import (
    ENDS,
    BatchStarted,
    Callback,
    CandidateMeasured,
    FinalComparison,
    Progress,
    Run,
    SearchEnded,
    SearchStarted,
    Stopped,
    TuneOptions,
    TuneResult,
    TuningInterrupted,
    checked_limit,
    takes,
)
from .warm_start import in_own_names, nearest_candidates, other_workloads, own_records, replay, trace_on, training_data

_DEFAULT, _ENQUEUED = "default", "enqueued"
"""The sketches that records name for the default schedule (while none is known to make it) and for a caller's."""

_AGAIN = 4
"""The number of records of other code generators that are measured again."""

_FINAL_SHARE, _FINAL_SECONDS = 0.05, 2.0
"""The part of a time limit that is reserved for the final race: a share of it, and at most so many seconds."""


_LATE = 1.05
"""A session that takes longer than this many times its limit says why."""


class _Stop(Exception):
    """A callback asked for the end of the search."""


class TuningSession:
    """A session measures candidates for one workload on one target, batch by batch. The short way to use it is
    :func:`tune`.

    ``func``: the unscheduled function. Symbolic sizes have examples in its attribute ``example_sizes``: candidates are
    those of the function of these sizes, and run there, but it is the symbolic function that is compiled and timed. ``target``: what to tune for; it must be able to run here.
    ``db``: where records go, and where those of earlier sessions come from. ``options`` are those of
    :class:`TuneOptions`, as one object or by name.
    """

    __repr__ = short_repr("func", "target", "records")

    def __init__(
        self, func: PrimFunc, target: Target | str, *, db: Database | None = None, options: TuneOptions | None = None,
        **named: Any,
    ) -> None:  # fmt: skip
        target = Target.of(target)
        self.func, self.target, self.db = func, target, db
        self._split, fixed = split_at_example(func)  # the space is that of the second
        self._symbolic = fixed is not self._split.func
        self.options = chosen = replace(options or TuneOptions(), **named)
        rng = np.random.default_rng(chosen.seed)
        self.default = choose_default(
            Space(fixed, target, rules=chosen.rules, machine=chosen.machine, where=chosen.where)
        )
        self.space = self.default.space  # of rules whose candidates apply
        self.workload = program_key(func)
        self.flops = float(count_flops(fixed) or 0.0)
        self.ledger = Ledger(db)
        self.earlier: list[TuningRecord] = []
        self._idle_before = 0
        if chosen.strategy is not None:
            self.search = chosen.strategy(self.space, rng)
        else:
            self.search = ModelGuidedSearch(self.space, rng, chosen.model or XGBCostModel(chosen.seed))
        self._known: dict[str, float] = {}  # trace → seconds
        self._again: list[TuningRecord] = []
        self._nearest: list[Candidate] = []  # of workloads like this one
        self.runner: Runner = LocalRunner() if chosen.runner is None else runner_for(chosen.runner)
        self._run = Run(0, math.inf, (), 0.0)
        self._recall()
        self._default_trace = self._trace_of_default()
        if self._default_trace not in self._known and self._has_candidates():
            self._again.insert(
                0, TuningRecord(self.workload, target.key, self._default_trace, status="skipped", sketch=_DEFAULT)
            )
        for candidate in chosen.enqueue:
            self.enqueue(candidate)

    @property
    def records(self) -> list[TuningRecord]:
        """Returns the records of this session, in order."""
        return self.ledger.records

    def stop(self) -> None:
        """End the search when the candidate that runs has finished. Callbacks and other threads may call it."""
        self._run.stop = True

    def enqueue(self, candidate: Schedule | Trace | str) -> None:
        """Measure a schedule made by hand, a trace, or the JSON text of one, before the candidates of the search.

        ScheduleError or TraceError when its steps do not apply to the function.
        """
        trace = trace_on(self.func, candidate)
        if trace not in self._known:
            self._again.append(TuningRecord(self.workload, self.target.key, trace, status="skipped", sketch=_ENQUEUED))

    @property
    def best(self) -> TuningRecord | None:
        """Returns the fastest correct record, earlier sessions' included."""
        done = [r for r in (*self.earlier, *self.records) if r.ok and r.run_seconds]
        return min(done, key=lambda r: r.run_seconds or 0.0, default=None)

    def run(
        self, trials: int = 64, *, time_limit: float | None = None, callbacks: Sequence[Callback] = (),
        final_race: bool = True,
    ) -> TuneResult:  # fmt: skip
        """Measure up to ``trials`` candidates within ``time_limit`` seconds; the default schedule is the first.

        ``callbacks`` are called with each event, a :class:`Progress`. Ctrl-C raises :class:`TuningInterrupted`, a
        KeyboardInterrupt, which has the result so far. ``final_race`` False: no comparison of the best at the end.
        """
        start = time.monotonic()
        limit = checked_limit(trials, time_limit)
        self._run = run = Run(trials, start + limit, tuple(callbacks), start, self._start(trials), len(self.records))
        stopped: Stopped = "trials"
        status = "failed"
        late = broken = ""
        try:
            self._say(SearchStarted)
            kept = 0.0 if time_limit is None or not final_race else min(_FINAL_SHARE * time_limit, _FINAL_SECONDS)
            try:
                stopped = self._loop(run.deadline - kept)
            except TimeUp as reason:
                stopped, late = "time", str(reason)
            if final_race:
                self._final_race(run.deadline)
            status = "failed" if self.best is None and stopped in ("trials", "exhausted") else "done"
        except KeyboardInterrupt:
            stopped, status = "interrupted", "interrupted"
        except Exception as error:
            broken = f"{type(error).__name__}: {error}".split("\n")[0]
            raise
        finally:
            if self.runner is not self.options.runner:  # it was made here
                self.runner.close()
            if self.db is not None and run.session is not None:
                self.db.finish_session(run.session, status, broken or ENDS[stopped])
        result = self._result(stopped, time.monotonic() - start, limit, late)
        if stopped == "interrupted":
            raise TuningInterrupted(result)
        self._say(SearchEnded)
        return result

    # -- inside ----------------------------------------------------------------------------------------------------

    def _start(self, trials: int) -> str | None:
        if self.db is None:
            return None
        config = {
            "batch": self.options.batch,
            "verify": self.options.verify,
            "sketches": [s.name for s in self.space.sketches],
        }
        versions = {"python": platform.python_version(), "numpy": np.__version__, **self.options.versions}
        return self.db.start_session(
            self.func, self.target, config=config, seed=self.options.seed, trials=trials, versions=versions,
            limits=self.options.limits,
        )  # fmt: skip

    def _warn_of_refused_sketches(self) -> None:
        """Warn of sketches that no schedule applied of: their rule proposes what the primitives refuse."""
        mine = [] if self._symbolic else self.records[self._run.before :]  # symbolic sizes refuse some steps
        for sketch in dict.fromkeys(r.sketch for r in mine):
            own = [r for r in mine if r.sketch == sketch]
            if all(r.status == "schedule_error" for r in own):
                first = own[0].error.split("\n")[0]
                warnings.warn(
                    f"no candidate of the sketch {sketch} applies, {len(own)} were tried; the first: {first}",
                    RuntimeWarning,
                    stacklevel=3,
                )

    def _result(self, stopped: Stopped, elapsed: float, limit: float, late: str) -> TuneResult:
        self._warn_of_refused_sketches()
        failures: dict[str, int] = {}
        for record in self.records:
            if not record.ok:
                failures[record.status] = failures.get(record.status, 0) + 1
        problem = ""
        if self.best is None:
            left = None if self._has_candidates() else self.space.left
            problem = problem_of(self.records, left, stopped, limit, late)
        if elapsed <= _LATE * limit or stopped == "interrupted":
            late = ""
        elif not late:
            late = "what had begun before the limit took longer than expected: choosing candidates, or checking results"
        return TuneResult(
            self.func, self.target, self.best, tuple(self.records), stopped, elapsed, self.flops, self._run.session,
            failures, problem, late,
        )  # fmt: skip

    def _loop(self, deadline: float) -> Stopped:
        late = {"deadline": deadline} if takes(self.runner.open, "deadline") else {}
        self.runner.open(self.func, self.target, seed=self.options.seed, verify=self.options.verify, **late)
        gained = 0  # trials up to the last gain
        best = min([r.run_seconds or math.inf for r in self.earlier], default=math.inf)
        before = self._idle_before  # what earlier sessions tried in vain counts until there is a gain
        while (done := self._done()) < self._run.trials:
            if self._run.stop:
                return "stopped"
            if time.monotonic() >= deadline:
                return "time"
            reached = early_end(self.options, self.best, done - gained, self.search.promise, before)
            if reached is not None:
                return reached
            try:
                if not self._batch(self._run.trials - done, deadline):
                    return "exhausted"
            except _Stop:
                return "stopped"
            new = self.records[self._run.before + done :]
            now = min((r.run_seconds for r in new if r.ok and r.run_seconds), default=float("inf"))
            if now < (1 - GAIN) * best:
                best, gained, before = now, self._done(), 0
        return "trials"

    def _done(self) -> int:
        return len(self.records) - self._run.before

    def _batch(self, left: int, deadline: float) -> bool:
        """Measure the default schedule and old records, else candidates of the search; False when there are none."""
        if self._again:
            self._say(BatchStarted, batch=min(len(self._again), left))
            self._measure_again(left, deadline)
            return True
        count = min(self.options.batch, left)
        nearest, self._nearest = self._nearest[: count // 2], []
        candidates = [*nearest, *self.search.ask(count - len(nearest), left)]
        if candidates:
            self._run.begins_batch(self._done())
            self._say(BatchStarted, batch=len(candidates))
            self._measure(candidates, deadline)
        return bool(candidates)

    def _has_candidates(self) -> bool:
        return any(len(table.rows) for sketch in self.space.sketches for table in sketch.tables)

    def _final_race(self, deadline: float) -> None:
        """Time the best few candidates once more, alternately, and amend their records."""
        if self.options.final_race < 2 or not self.records:
            return
        entered = finalists([*self.earlier, *self.records], self.options.final_race, self._default_trace)
        if not entered or time.monotonic() >= deadline:
            return
        self._say(FinalComparison)
        results = self._measure_traces([r.trace for r in entered], deadline)
        amended = {r.trace: r for r in decide(entered, results)}
        changed = [(r, amended[r.trace]) for r in entered if r.trace in amended]
        self.ledger.amend(changed)
        chosen = {id(old): new for old, new in changed}
        self.earlier = [chosen.get(id(r), r) for r in self.earlier]

    def _measure(self, candidates: Sequence[Candidate], deadline: float) -> None:
        """Measure, store each result as it comes, tell the search. Candidates that the deadline cut off leave no
        record."""
        traces: dict[str, Candidate] = {}
        programs: list[str] = []
        told: list[tuple[Candidate, float]] = []
        alike: list[tuple[Candidate, str]] = []
        for candidate in candidates:
            try:
                schedule = self._scheduled(candidate)
            except (ScheduleError, TraceError) as error:
                result = MeasureResult("schedule_error", str(error)[:4000])
                told.append((candidate, result.run_seconds))
                self._store(self._record(candidate, "", result))
                continue
            trace = schedule.trace.dumps()
            if trace in self._known or trace in traces:  # another row makes the same schedule
                alike.append((candidate, trace))
                self._name_default(candidate, trace)
            else:
                traces[trace] = candidate
                programs.append(schedule.func.script())
        best = self.best
        best_seconds = best.run_seconds if best is not None and best.run_seconds else float("inf")
        items = list(traces.items())
        results = self._run_programs(
            programs, lambda n, result: self._record(items[n][1], items[n][0], result), deadline, best_seconds
        )
        for (trace, candidate), result in zip(items, results, strict=True):
            if result.status != "skipped":
                told.append((candidate, result.run_seconds))
                self._known[trace] = result.run_seconds
        told += [(candidate, self._known.get(trace, float("inf"))) for candidate, trace in alike]
        self.search.tell([c for c, _ in told], [s for _, s in told])

    def _scheduled(self, candidate: Candidate) -> Schedule:
        return self._of_all_sizes(self.space.schedule(candidate.sketch, candidate.row))

    def _of_all_sizes(self, schedule: Schedule) -> Schedule:
        """Returns the function scheduled as the function of example sizes is."""
        if not self._symbolic:
            return schedule
        made = self._split.copy()
        schedule.trace.apply_to_schedule(made)
        return followed_in_whole_vectors(schedule, self.space.func, self._split) or made

    def _trace_of_default(self) -> str:
        """Returns the steps of the default schedule; those for the example sizes alone where they do not apply to all."""
        try:
            return self._of_all_sizes(self.default.schedule).trace.dumps()
        except (ScheduleError, TraceError):
            return self.default.schedule.trace.dumps()

    def _name_default(self, candidate: Candidate, trace: str) -> None:
        """Note the sketch and the decisions of the default schedule, once a candidate turns out to be it."""
        for record in self.records if trace == self._default_trace else ():
            if record.trace == trace and record.sketch == _DEFAULT:
                decisions = candidate.sketch.decisions_of(candidate.row)
                self.ledger.amend([(record, replace(record, sketch=candidate.sketch.name, decisions=decisions))])
                return

    def _run_programs(
        self, programs: Sequence[str], record: Callable[[int, MeasureResult], TuningRecord], deadline: float,
        best_seconds: float = float("inf"),
    ) -> list[MeasureResult]:  # fmt: skip
        """Measure programs; ``record(number, result)`` makes the record of each, which is stored as soon as there is
        one."""
        places: dict[int, int] = {}

        def finished(number: int, result: MeasureResult) -> None:
            if result.status != "skipped" and number not in places:
                places[number] = len(self.records)
                self._store(record(number, result))

        also: dict[str, Any] = {"finished": finished} if takes(self.runner.measure, "finished") else {}
        results = self.runner.measure(programs, best_seconds=best_seconds, deadline=deadline, **also)
        for number, result in enumerate(results):
            if number in places:
                self.ledger.remeasured(places[number], record(number, result))
            finished(number, result)
        return results

    def _measure_again(self, trials: int, deadline: float) -> None:
        """Measure the default schedule, and the best records of other code generators, with this one."""
        old, self._again = self._again[:trials], []
        first = len(self.records)
        programs: list[str] = []
        runs: list[TuningRecord] = []
        for r in old:
            try:
                programs.append(replay(self.func, Trace.from_json(r.trace)).func.script())
                runs.append(r)
            except (ScheduleError, TraceError) as error:
                self._store(self._with_result(r, MeasureResult("schedule_error", str(error)[:4000])))
        self._run_programs(programs, lambda n, result: self._with_result(runs[n], result), deadline)
        records = self.records[first:]
        self._known.update({r.trace: r.run_seconds or float("inf") for r in records})
        known = own_records(self.space, records)
        self.search.tell([c for c, _ in known], [s for _, s in known])

    def _with_result(self, record: TuningRecord, result: MeasureResult) -> TuningRecord:
        return with_result(record, result, self._run.session, self._done())

    def _measure_traces(self, traces: Sequence[str], deadline: float) -> list[MeasureResult]:
        """Measure schedules of which only the traces are known; one that does not apply here fails."""
        programs: dict[int, str] = {}
        failed: dict[int, MeasureResult] = {}
        for number, trace in enumerate(traces):
            try:
                programs[number] = replay(self.func, Trace.from_json(trace)).func.script()
            except (ScheduleError, TraceError) as error:
                failed[number] = MeasureResult("schedule_error", str(error)[:4000])
        also: dict[str, Any] = {"equally": True} if takes(self.runner.measure, "equally") else {}
        measured = self.runner.measure(list(programs.values()), deadline=deadline, **also)
        results = {**failed, **dict(zip(programs, measured, strict=True))}
        return [results[number] for number in range(len(traces))]

    def _store(self, record: TuningRecord) -> None:
        place = self.ledger.add(record)
        self._say(CandidateMeasured, (self.records[place],))
        if self._run.stop:
            raise _Stop

    def _record(self, candidate: Candidate, trace: str, result: MeasureResult) -> TuningRecord:
        predicted = candidate.predicted_seconds
        planned = TuningRecord(
            self.workload, self.target.key, trace, status="skipped", sketch=candidate.sketch.name,
            decisions=candidate.sketch.decisions_of(candidate.row),
            predicted_seconds=predicted if np.isfinite(predicted) else None,
        )  # fmt: skip
        return self._with_result(planned, result)

    def _say(self, event: type[Progress], records: tuple[TuningRecord, ...] = (), batch: int = 0) -> None:
        """Call the callbacks with an event."""
        if not self._run.callbacks:
            return
        best = self.best
        seconds = best.run_seconds if best is not None and best.run_seconds else float("inf")
        done, elapsed = self._done(), time.monotonic() - self._run.start
        failures = sum(not r.ok for r in self.records)
        progress = event(
            done, self._run.trials, failures, seconds, self.flops / seconds / 1e9, elapsed,
            self._run.remaining_seconds(done), records, batch, self.stop, len(self.earlier),
        )  # fmt: skip
        for callback in self._run.callbacks:
            callback(progress)

    def _recall(self) -> None:
        """Use what earlier sessions measured: records of this workload are told to the search, those of others train
        its model. Times that another code generator measured are not comparable: they train the model too, and the best
        of those records are measured again first."""
        if self.db is None:
            return
        stored = in_own_names(
            self.db, self.space, self.func, self.db.records(self.func, self.target), self.options.final_race
        )
        own = [r for r in stored if r.codegen_version == CODEGEN_VERSION]
        other = [r for r in stored if r.codegen_version != CODEGEN_VERSION]
        self.earlier = [r for r in own if r.ok and r.run_seconds and r.trace]
        times = [r.run_seconds if r.ok and r.run_seconds else math.inf for r in own]
        self._idle_before = len(times) - 1 - times.index(min(times)) if self.earlier else 0
        self._known = {r.trace: r.run_seconds if r.ok and r.run_seconds else float("inf") for r in own if r.trace}
        known = own_records(self.space, own)
        self.search.tell([c for c, _ in known], [s for _, s in known])
        fastest = sorted((r for r in other if r.ok and r.run_seconds), key=lambda r: r.run_seconds or 0.0)
        again = {r.trace: r for r in reversed(fastest) if r.trace and r.trace not in self._known}
        self._again = list(reversed(again.values()))[:_AGAIN]
        if not self.earlier:
            self._nearest = nearest_candidates(self.db, self.space, self.options.batch // 2)
        if isinstance(self.search, ModelGuidedSearch):
            found = other_workloads(self.db, self.space) + training_data(own_records(self.space, other))
            if found:
                self.search.warm_start(*(np.concatenate(columns) for columns in zip(*found, strict=True)))


def tune(
    func: PrimFunc, target: Target | str, *, trials: int = 64, time_limit: float | None = None, db: Database | str | os.PathLike[str] | None = None,
    callbacks: Sequence[Callback] = (), **options: Any,
) -> TuneResult:  # fmt: skip
    """Find a fast schedule for ``func`` on ``target`` by measuring up to ``trials`` candidates.

    Records go to ``db``, a database or its path; the search uses those that are there already. ``callbacks`` are called with each event, a
    :class:`Progress`. ``options``: those of :class:`TuneOptions` by name, or ``options`` with all of
    them. ValueError for symbolic shapes; ``ReferenceFailed`` when the unscheduled function itself does not run.
    """
    with open_database(db) if db is not None else nullcontext() as opened:
        return TuningSession(func, target, db=opened, **options).run(trials, time_limit=time_limit, callbacks=callbacks)


class Ledger:
    """The records of a session in order, in memory and in ``db`` (None: in memory only)."""

    def __init__(self, db: Database | None) -> None:
        self.db = db
        self.records: list[TuningRecord] = []

    def add(self, record: TuningRecord) -> int:
        """Store a record and return its place in ``records``."""
        if self.db is not None:
            record = replace(record, id=self.db.add_record(record))
        self.records.append(record)
        return len(self.records) - 1

    def remeasured(self, place: int, record: TuningRecord) -> None:
        """Put a new measurement of the same candidate in the place of its record, whose number it keeps."""
        old = self.records[place]
        if record.times == old.times and record.status == old.status:
            return
        self.records[place] = replace(record, id=old.id, created=old.created, trial=old.trial)
        if self.db is not None:
            self.db.amend([self.records[place]])

    def amend(self, changed: Iterable[tuple[TuningRecord, TuningRecord]]) -> None:
        """Put the second of each pair in the place of the first, here and in the database."""
        pairs = {id(old): new for old, new in changed}
        self.records = [pairs.get(id(r), r) for r in self.records]
        if self.db is not None:
            self.db.amend(pairs.values())


GAIN = 0.01
"""A gain smaller than this share of the time counts as none."""

_PATIENCE = 24
"""Trials without a gain after which the search may stop."""


def early_end(
    options: TuneOptions, best: TuningRecord | None, idle: int, promise: Callable[[], float | None], before: int = 0
) -> Stopped | None:  # fmt: skip
    """Returns why the search is over, None when it goes on. ``idle`` trials brought no gain, nor ``before`` ones of
    earlier sessions; ``promise`` returns the seconds that the search expects of the best candidate that is left."""
    seconds = math.inf if best is None or not best.run_seconds else best.run_seconds
    if options.enough_seconds is not None and seconds <= options.enough_seconds:
        return "enough"
    if options.patience is not None and idle >= options.patience:
        return "patience"
    if not options.stop_early or idle + before < _PATIENCE or seconds == math.inf:
        return None
    expected = promise()
    return "converged" if expected is not None and expected > (1 - GAIN) * seconds else None


_NEAR = 1.05
"""A candidate this close to the best may be the best, however small the spread of its own timings: the speed of the
machine drifts."""

_FEW = 3
"""With so many timings one disturbance does not count."""

_DISQUALIFIED = ("wrong_result", "memory_damaged")


def finalists(records: Sequence[TuningRecord], count: int, default: str | None = None) -> list[TuningRecord]:
    """Returns the best records that noise could have put in the wrong order, at most ``count``, best first. The record
    of the trace ``default`` is among them in any case, so that the winner is not slower. The list is empty when there
    is only one. Of records of the same trace only the fastest."""
    ranked = sorted((r for r in records if r.ok and r.run_seconds), key=lambda r: r.run_seconds or 0.0)
    fastest: dict[str | None, TuningRecord] = {}
    for record in ranked:
        fastest.setdefault(record.trace, record)
    unique = list(fastest.values())
    if not unique:
        return []
    best = unique[0]
    limit = max(_NEAR * (best.run_seconds or 0.0), interval(best.times).high)
    near = [r for r in unique if min(r.run_seconds or 0.0, interval(r.times).low) <= limit][:count]
    if default in fastest and fastest[default] not in near:
        near.append(fastest[default])
    return near if len(near) > 1 else []


def decide(records: Sequence[TuningRecord], results: Sequence[MeasureResult]) -> list[TuningRecord]:
    """Returns the finalists' records after the race, those that could not be run left out.

    The records of the losers get the times of the race, where it took at least as many as the record has or three; where
    the time was up before, they keep all. The winner keeps all of its times and the better of its two
    figures, so that a race on a busy machine does not put it behind candidates that were not in the race. A candidate
    whose result is wrong this time is disqualified.
    """
    ran = [(a, b) for a, b in zip(records, results, strict=True) if b.ok or b.status in _DISQUALIFIED]
    fastest = min((result.run_seconds for _, result in ran if result.ok), default=None)
    out: list[TuningRecord] = []
    for record, result in ran:
        if not result.ok:
            out.append(replace(record, status=result.status, error=result.error, times=(), run_seconds=None))
        elif result.run_seconds == fastest:
            fastest = None  # one winner
            better = min(record.run_seconds or float("inf"), result.run_seconds)
            out.append(replace(record, times=(*record.times, *result.times), run_seconds=better))
        else:
            enough = len(result.times) >= min(_FEW, len(record.times))
            times = result.times if enough else (*record.times, *result.times)
            out.append(replace(record, times=times, run_seconds=estimate(times)))
    return out


def problem_of(
    records: Sequence[TuningRecord], left: Sequence[str] | None, stopped: Stopped, limit: float, late: str
) -> str:  # fmt: skip
    """Returns why no record is the best. ``left``: the blocks that no rule takes, where there is no candidate at all."""
    if left is not None and not records:
        return "no schedule rule has a candidate" + "".join(f"; {reason}" for reason in left[:3])
    if not records:
        if stopped == "time":
            return f"no candidate was measured within {limit:g} s" + (f": {late}" if late else "")
        return "every candidate failed in an earlier session" if stopped == "exhausted" else ENDS[stopped]
    failures = Counter(record.status for record in records if not record.ok)
    counts = ", ".join([f"{count} {status}" for status, count in sorted(failures.items())])
    first = next((r for r in records if not r.ok), records[0])
    return f"{counts}; the first: {first.error}".split("\n")[0]


def with_result(record: TuningRecord, result: MeasureResult, session: str | None, trial: int) -> TuningRecord:
    """Returns the record with what was just measured, as this trial of this session."""
    return replace(
        record, id=None, session=session, trial=trial, status=result.status, error=result.error, times=result.times,
        run_seconds=result.run_seconds if result.ok else None, compile_seconds=result.compile_seconds or None,
        codegen_version=CODEGEN_VERSION, created=utc_now(), machine=result.machine,
    )  # fmt: skip
