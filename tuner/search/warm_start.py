"""This module turns the records of earlier sessions into candidates and training data for a new session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...schedule import Schedule, ScheduleError, Trace, TraceError, retarget
from ...tir.parser import ParseError, parse
from ...tir.program_key import program_key
from ...tir.stmt import PrimFunc
from ...tuning_db import Database, TuningRecord
from ..space.search_space import Space
from .strategy import Candidate

Measured = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Features, the prior's seconds, measured seconds."""


def own_records(space: Space, records: Sequence[TuningRecord]) -> list[tuple[Candidate, float]]:
    """Returns the records that are candidates of ``space``, with their seconds (infinity for failures)."""
    out: list[tuple[Candidate, float]] = []
    sketches = {sketch.name: sketch for sketch in space.sketches}
    for record in records:
        sketch = sketches.get(record.sketch)
        row = None if sketch is None else sketch.row_of(record.decisions)
        if sketch is not None and row is not None:
            out.append(
                (Candidate(sketch, row), record.run_seconds if record.ok and record.run_seconds else float("inf"))
            )
    return out


def program_of(db: Database, record: TuningRecord) -> PrimFunc | None:
    """Returns the program that a record was made for, with its own names. None stands for one that the database does
    not have."""
    stored = db.workload(record.workload)
    try:
        program = None if stored is None else parse(stored.text)
    except ParseError:
        return None
    return program if isinstance(program, PrimFunc) else None


def trace_for(db: Database, record: TuningRecord, func: PrimFunc) -> Trace:
    """Returns the schedule of a record of ``func``'s workload, in the names that ``func`` has; see
    :func:`.retarget`."""
    trace = Trace.from_json(record.trace)
    recorded = program_of(db, record)
    return trace if recorded is None else retarget(trace, recorded, func)


def trace_on(func: PrimFunc, candidate: Schedule | Trace | str) -> str:
    """Returns the trace of a schedule, replayed on ``func``, as JSON. The schedule is a trace or its JSON text;
    ScheduleError or TraceError when it does not apply."""
    if isinstance(candidate, Schedule):
        candidate = candidate.trace
    return replay(func, Trace.from_json(candidate) if isinstance(candidate, str) else candidate).trace.dumps()


def replay(func: PrimFunc, trace: Trace) -> Schedule:
    """Returns ``func`` scheduled as ``trace`` says. A trace can do nothing but schedule; TraceError when it holds more."""
    schedule = Schedule(func)
    trace.apply_to_schedule(schedule)
    return schedule


def in_own_names(db: Database, space: Space, records: Sequence[TuningRecord], traces: int) -> list[TuningRecord]:
    """Returns ``records`` of the workload of ``space`` in the names of ``space.func``. Those of programs with other
    names are translated.

    The sketch of such a record is translated by its position: programs that differ in names only have the same sketches
    in the same order. The traces of the ``traces`` fastest records are translated, which takes a replay each; those of
    the others become empty.
    """
    own = program_key(space.func)
    foreign = {r.workload: program_of(db, r) for r in records if r.workload != own}
    spaces = {
        key: Space(p, space.target, rules=space.rules, machine=space.machine)
        for key, p in foreign.items()
        if p is not None
    }
    ranked = sorted((r for r in records if r.ok and r.run_seconds), key=lambda r: r.run_seconds or 0.0)
    fastest = {id(r) for r in ranked[: max(traces, 1)]}
    out: list[TuningRecord] = []
    for record in records:
        if record.workload == own:
            out.append(record)
            continue
        theirs = spaces.get(record.workload)
        if theirs is None or len(theirs.sketches) != len(space.sketches):
            continue
        pairs = zip(theirs.sketches, space.sketches, strict=True)
        sketch = next((mine.name for other, mine in pairs if other.name == record.sketch), record.sketch)
        trace = ""
        if id(record) in fastest:
            try:
                trace = retarget(Trace.from_json(record.trace), theirs.func, space.func).dumps()
            except (ScheduleError, TraceError):
                continue
        out.append(replace(record, workload=own, sketch=sketch, trace=trace))
    return out


def other_workloads(db: Database, space: Space, *, limit: int = 2000) -> list[Measured]:
    """Measurements of workloads other than that of ``space``, on its target, as training data.

    The label is the error of the prior, which is similar for different workloads.
    """
    records = [
        r for r in db.records(not_workload=space.func, target=space.target, status="ok", limit=limit) if r.run_seconds
    ]
    by_workload: dict[str, list[TuningRecord]] = {}
    for record in records:
        by_workload.setdefault(record.workload, []).append(record)
    found: list[Measured] = []
    for key, group in by_workload.items():
        state = (
            key,
            space.target.key,
            space.machine,
            *[(r.sketch, str(r.decisions), r.run_seconds) for r in group],
        )
        if state not in _known:
            other = program_of(db, group[0])
            fresh = None if other is None else Space(other, space.target, machine=space.machine)
            while len(_known) >= _KEPT:
                del _known[next(iter(_known))]
            _known[state] = [] if fresh is None else training_data(own_records(fresh, group))
        found += _known[state]
    return found


_KEPT = 256
_known: dict[tuple[object, ...], list[Measured]] = {}
"""Training data by the records that it was made of: whoever tunes many workloads in one process asks for it each time."""


def training_data(candidates: Sequence[tuple[Candidate, float]]) -> list[Measured]:
    """Returns the training data of measured candidates, without the failed ones."""
    out: list[Measured] = []
    for sketch in dict.fromkeys(c.sketch for c, _ in candidates):
        mine = [(c.row, s) for c, s in candidates if c.sketch is sketch and np.isfinite(s)]
        if mine:
            features, prior = sketch.score(np.array([row for row, _ in mine], dtype=np.int64).reshape(len(mine), -1))
            out.append((features, prior, np.array([s for _, s in mine])))
    return out
