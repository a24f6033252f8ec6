"""A tuning session asks the search for candidates, measures them, tells the search the times and records them.  It
stops when the trials or the time are used up, or when the search expects no further gain."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..codegen import CODEGEN_VERSION
from ..codegen.machine.target import Target
from ..schedule import ScheduleError, Trace, TraceError
from ..tir.cost import count_flops
from ..tir.program_key import program_key
from ..tir.stmt import PrimFunc
from ..tuning_db import Database, TuningRecord, utc_now
from .cost.cost_model import CostModel, XGBCostModel
from .cost.machine_model import MachineModel
from .measure import LocalRunner, MeasureResult, Runner
from .measure.inputs import require_constant_shapes
from .rules import ScheduleRule
from .search import Candidate, ModelGuidedSearch, SearchStrategy
from .search.final_race import decide, finalists
from .search.warm_start import in_own_names, other_workloads, own_records, replay, training_data
from .space.default_choice import choose_default
from .space.search_space import Space
from .tune_result import Progress, TuneResult

Callback = Callable[[Progress], Any]

_GAIN = 0.01
"""A gain smaller than this share of the time counts as none."""

_PATIENCE = 24
"""Trials without a gain after which the search may stop."""

_AGAIN = 4
"""The number of records of other code generators that are measured again."""

_FINAL_SHARE, _FINAL_SECONDS = 0.05, 2.0
"""The part of a time limit that is reserved for the final race: a share of it, and at most so many seconds."""


@dataclass(frozen=True)
class TuneOptions:
    """How a session searches. ``seed`` fixes the order of everything but the measured times.

    ``verify``: compare each candidate's outputs with the unscheduled function's. ``batch``: candidates measured between
    two decisions. ``final_race``: how many of the best are timed once more, alternately, at the end, to find the winner;
    0 for none. ``stop_early``: stop when 24 trials brought no gain and the model expects a gain below 1 % from the
    remaining candidates. ``machine``: the figures of the analytic prior, by default those of the target. ``runner``,
    ``strategy``, ``rules`` and ``model`` replace parts of the tuner; ``strategy(space, rng)`` makes a search strategy.
    """

    seed: int = 0
    verify: bool = True
    batch: int = 8
    final_race: int = 4
    stop_early: bool = True
    machine: MachineModel | None = None
    runner: Runner | None = None
    strategy: Callable[[Space, np.random.Generator], SearchStrategy] | None = None
    rules: Sequence[ScheduleRule] | None = None
    model: CostModel | None = None


class TuningSession:
    """One workload on one target, measured batch by batch. :func:`tune` is the short way to use it.

    ``func``: the unscheduled function; every extent a number. ``target``: what to tune for; it must be able to run here.
    ``db``: where records go, and where those of earlier sessions come from. ``options`` are those of
    :class:`TuneOptions`, as one object or by name.
    """

    def __init__(
        self, func: PrimFunc, target: Target, *, db: Database | None = None, options: TuneOptions | None = None,
        **named: Any,
    ) -> None:  # fmt: skip
        require_constant_shapes(func)
        self.func, self.target, self.db = func, target, db
        self.options = chosen = replace(options or TuneOptions(), **named)
        rng = np.random.default_rng(chosen.seed)
        space = Space(func, target, rules=chosen.rules, machine=chosen.machine)
        self.space = choose_default(space).space  # of rules whose candidates apply
        self.workload = program_key(func)
        self.flops = float(count_flops(func) or 0.0)
        self.records: list[TuningRecord] = []
        self.earlier: list[TuningRecord] = []
        if chosen.strategy is not None:
            self.search = chosen.strategy(self.space, rng)
        else:
            self.search = ModelGuidedSearch(self.space, rng, chosen.model or XGBCostModel(chosen.seed))
        self._known: dict[str, float] = {}  # trace → seconds
        self._again: list[TuningRecord] = []
        self.runner: Runner = chosen.runner if chosen.runner is not None else LocalRunner()
        self._recall()

    @property
    def best(self) -> TuningRecord | None:
        """Returns the fastest correct record, earlier sessions' included."""
        done = [r for r in (*self.earlier, *self.records) if r.ok and r.run_seconds]
        return min(done, key=lambda r: r.run_seconds or 0.0, default=None)

    def run(
        self, trials: int = 64, *, time_limit: float | None = None, callbacks: Sequence[Callback] = ()
    ) -> TuneResult:
        """Measure up to ``trials`` candidates within ``time_limit`` seconds. Ctrl-C ends the session, which returns
        what it found."""
        start = time.monotonic()
        deadline = float("inf") if time_limit is None else start + time_limit
        session = None
        if self.db is not None:
            config = {
                "batch": self.options.batch,
                "verify": self.options.verify,
                "sketches": [s.name for s in self.space.sketches],
            }
            versions = {"python": platform.python_version(), "numpy": np.__version__}
            session = self.db.start_session(
                self.func, self.target, config=config, seed=self.options.seed, trials=trials, versions=versions
            )
        stopped = "trials"
        status = "failed"
        try:
            kept = 0.0 if time_limit is None else min(_FINAL_SHARE * time_limit, _FINAL_SECONDS)
            stopped = self._loop(trials, start, deadline - kept, session, callbacks)
            self._final_race(deadline)
            status = "failed" if self.best is None and stopped in ("trials", "exhausted") else "done"
        except KeyboardInterrupt:
            stopped = status = "interrupted"
        finally:
            if self.options.runner is None:
                self.runner.close()
            if self.db is not None and session is not None:
                self.db.finish_session(session, status)
        failures: dict[str, int] = {}
        for record in self.records:
            if not record.ok:
                failures[record.status] = failures.get(record.status, 0) + 1
        elapsed = time.monotonic() - start
        return TuneResult(
            self.func, self.target, self.best, tuple(self.records), stopped, elapsed, self.flops, session, failures,
            "" if self.best is not None else self._problem(failures, stopped),
        )  # fmt: skip

    # -- inside ----------------------------------------------------------------------------------------------------

    def _loop(
        self, trials: int, start: float, deadline: float, session: str | None, callbacks: Sequence[Callback]
    ) -> str:
        self.runner.open(self.func, self.target, seed=self.options.seed, verify=self.options.verify)
        done = gained = 0  # trials; and those up to the last gain
        best = float("inf")
        while done < trials:
            if time.monotonic() >= deadline:
                return "time"
            if self._converged(done - gained):
                return "converged"
            if self._again:
                records = self._measure_again(trials, session, deadline)
            else:
                candidates = self.search.ask(min(self.options.batch, trials - done), trials - done)
                if not candidates:
                    return "exhausted"
                records = self._measure(candidates, session, done, deadline)
            done += len(records)
            if records:
                self._report(done, trials, start, records, callbacks)
            now = min((r.run_seconds for r in records if r.ok and r.run_seconds), default=float("inf"))
            if now < (1 - _GAIN) * best:
                best, gained = now, done
        return "trials"

    def _problem(self, failures: Mapping[str, int], stopped: str) -> str:
        """Why there is no best record, in words."""
        if not any(len(table.rows) for sketch in self.space.sketches for table in sketch.tables):
            return "no schedule rule has a candidate" + "".join(f"; {reason}" for reason in self.space.left[:3])
        if not self.records:
            return "every candidate failed in an earlier session" if stopped == "exhausted" else f"stopped: {stopped}"
        counts = ", ".join([f"{n} {status}" for status, n in sorted(failures.items())])
        first = next((r for r in self.records if not r.ok), self.records[0])
        return f"{counts}; the first: {first.error}".split("\n")[0]

    def _converged(self, idle: int) -> bool:
        """Returns whether ``idle`` trials without a gain were enough, and the search expects no gain of the rest."""
        best = self.best
        if not self.options.stop_early or idle < _PATIENCE or best is None or not best.run_seconds:
            return False
        promise = self.search.promise()
        return promise is not None and promise > (1 - _GAIN) * best.run_seconds

    def _final_race(self, deadline: float) -> None:
        """Time the best few candidates once more, alternately, and amend their records."""
        if self.options.final_race < 2 or not self.records:
            return
        entered = finalists([*self.earlier, *self.records], self.options.final_race)
        if not entered or time.monotonic() >= deadline:
            return
        results = self._measure_traces([r.trace for r in entered], deadline)
        amended = {r.trace: r for r in decide(entered, results)}
        chosen = {id(r): amended[r.trace] for r in entered if r.trace in amended}
        self.earlier = [chosen.get(id(r), r) for r in self.earlier]
        self.records = [chosen.get(id(r), r) for r in self.records]
        if self.db is not None:
            self.db.amend(chosen.values())

    def _measure(
        self, candidates: Sequence[Candidate], session: str | None, done: int, deadline: float
    ) -> list[TuningRecord]:
        """Measure, tell the search, store. Candidates that the deadline cut off leave no record."""
        traces: dict[str, Candidate] = {}
        programs: list[str] = []
        results: list[tuple[Candidate, str, MeasureResult]] = []
        told: list[tuple[Candidate, float]] = []
        alike: list[tuple[Candidate, str]] = []
        for candidate in candidates:
            try:
                schedule = self.space.schedule(candidate.sketch, candidate.row)
            except ScheduleError as error:
                results.append((candidate, "", MeasureResult("schedule_error", str(error)[:4000])))
                continue
            trace = schedule.trace.dumps()
            if trace in self._known or trace in traces:  # another row makes the same schedule
                alike.append((candidate, trace))
            else:
                traces[trace] = candidate
                programs.append(schedule.func.script())
        best = self.best
        best_seconds = best.run_seconds if best is not None and best.run_seconds else float("inf")
        measured = self.runner.measure(programs, best_seconds=best_seconds, deadline=deadline)
        results += [(c, t, r) for (t, c), r in zip(traces.items(), measured, strict=True) if r.status != "skipped"]
        records: list[TuningRecord] = []
        for candidate, trace, result in results:
            records.append(self._record(candidate, trace, result, session, done + len(records)))
            told.append((candidate, result.run_seconds))
            self._known[trace] = result.run_seconds
        told += [(candidate, self._known.get(trace, float("inf"))) for candidate, trace in alike]
        self.search.tell([c for c, _ in told], [s for _, s in told])
        return self._store(records)

    def _measure_again(self, trials: int, session: str | None, deadline: float) -> list[TuningRecord]:
        """Measure the best records of other code generators with this one."""
        old, self._again = self._again[:trials], []
        measured = self._measure_traces([r.trace for r in old], deadline)
        records = [
            replace(
                r, id=None, session=session, trial=number, status=result.status, error=result.error, times=result.times,
                run_seconds=result.run_seconds if result.ok else None, compile_seconds=result.compile_seconds or None,
                codegen_version=CODEGEN_VERSION, created=utc_now(),
            )
            for number, (r, result) in enumerate(zip(old, measured, strict=True)) if result.status != "skipped"
        ]  # fmt: skip
        self._known.update({r.trace: r.run_seconds or float("inf") for r in records})
        known = own_records(self.space, records)
        self.search.tell([c for c, _ in known], [s for _, s in known])
        return self._store(records)

    def _measure_traces(self, traces: Sequence[str], deadline: float) -> list[MeasureResult]:
        """Measure schedules of which only the traces are known; one that does not apply here fails."""
        programs: dict[int, str] = {}
        failed: dict[int, MeasureResult] = {}
        for number, trace in enumerate(traces):
            try:
                programs[number] = replay(self.func, Trace.from_json(trace)).func.script()
            except (ScheduleError, TraceError) as error:
                failed[number] = MeasureResult("schedule_error", str(error)[:4000])
        measured = self.runner.measure(list(programs.values()), deadline=deadline)
        results = {**failed, **dict(zip(programs, measured, strict=True))}
        return [results[number] for number in range(len(traces))]

    def _store(self, records: list[TuningRecord]) -> list[TuningRecord]:
        if self.db is not None:
            records = [replace(r, id=n) for r, n in zip(records, self.db.add_records(records), strict=True)]
        self.records.extend(records)
        return records

    def _record(
        self, candidate: Candidate, trace: str, result: MeasureResult, session: str | None, trial: int
    ) -> TuningRecord:
        predicted = candidate.predicted_seconds
        return TuningRecord(
            self.workload,
            self.target.key,
            trace,
            times=result.times,
            status=result.status,
            error=result.error,
            decisions=candidate.sketch.decisions_of(candidate.row),
            sketch=candidate.sketch.name,
            session=session,
            trial=trial,
            run_seconds=result.run_seconds if result.ok else None,
            compile_seconds=result.compile_seconds or None,
            predicted_seconds=predicted if np.isfinite(predicted) else None,
            codegen_version=CODEGEN_VERSION,
        )

    def _report(
        self, done: int, trials: int, start: float, records: Sequence[TuningRecord], callbacks: Sequence[Callback]
    ) -> None:
        best = self.best
        seconds = best.run_seconds if best is not None and best.run_seconds else float("inf")
        elapsed = time.monotonic() - start
        failures = sum(not r.ok for r in self.records)
        progress = Progress(
            done, trials, failures, seconds, self.flops / seconds / 1e9, elapsed, elapsed / done * (trials - done),
            tuple(records),
        )  # fmt: skip
        for callback in callbacks:
            callback(progress)

    def _recall(self) -> None:
        """Use what earlier sessions measured: records of this workload are told to the search, those of others train
        its model. Times that another code generator measured are not comparable: they train the model too, and the best
        of those records are measured again first."""
        if self.db is None:
            return
        stored = in_own_names(self.db, self.space, self.db.records(self.func, self.target), self.options.final_race)
        own = [r for r in stored if r.codegen_version == CODEGEN_VERSION]
        other = [r for r in stored if r.codegen_version != CODEGEN_VERSION]
        self.earlier = [r for r in own if r.ok and r.run_seconds and r.trace]
        self._known = {r.trace: r.run_seconds if r.ok and r.run_seconds else float("inf") for r in own if r.trace}
        known = own_records(self.space, own)
        self.search.tell([c for c, _ in known], [s for _, s in known])
        fastest = sorted((r for r in other if r.ok and r.run_seconds), key=lambda r: r.run_seconds or 0.0)
        again = {r.trace: r for r in reversed(fastest) if r.trace and r.trace not in self._known}
        self._again = list(reversed(again.values()))[:_AGAIN]
        if isinstance(self.search, ModelGuidedSearch):
            found = other_workloads(self.db, self.space) + training_data(own_records(self.space, other))
            if found:
                self.search.warm_start(*(np.concatenate(columns) for columns in zip(*found, strict=True)))


def tune(
    func: PrimFunc, target: Target, *, trials: int = 64, time_limit: float | None = None, db: Database | None = None,
    callbacks: Sequence[Callback] = (), **options: Any,
) -> TuneResult:  # fmt: skip
    """Find a fast schedule for ``func`` on ``target`` by measuring up to ``trials`` candidates.

    Records go to ``db``; the search uses those that are there already. ``callbacks`` are called with a
    :class:`Progress` after each batch. ``options``: those of :class:`TuneOptions` by name, or ``options`` with all of
    them. ValueError for symbolic shapes; ``ReferenceFailed`` when the unscheduled function itself does not run.
    """
    return TuningSession(func, target, db=db, **options).run(trials, time_limit=time_limit, callbacks=callbacks)
