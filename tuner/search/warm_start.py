"""This module turns the records of earlier sessions into candidates and training data for a new session.

Where the database has none of the same workload, it takes those of the nearest shapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...pages.messages import short_repr
from ...schedule import Schedule, ScheduleError, Trace, TraceError, retarget
from ...tir.parser import ParseError, parse
from ...tir.program_key import program_key
from ...tir.stmt import PrimFunc
from ...tuning_db import Database, TuningRecord, WorkloadRecord
from ..canonical_form import split_at_example
from ..space.search_space import Space
from ..space.sketch import Sketch
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
    return None if stored is None else parsed_workload(stored)


def parsed_workload(stored: WorkloadRecord) -> PrimFunc | None:
    """Returns the program of a stored workload; None stands for a text that is none."""
    try:
        program = parse(stored.text)
    except ParseError:
        return None
    return program if isinstance(program, PrimFunc) else None


def trace_for(db: Database, record: TuningRecord, func: PrimFunc) -> Trace:
    """Returns the schedule of a record of ``func``'s workload, in the names that ``func`` has; see
    :func:`~...schedule.trace_renaming.retarget`."""
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


def in_own_names(
    db: Database, space: Space, func: PrimFunc, records: Sequence[TuningRecord], traces: int
) -> list[TuningRecord]:
    """Returns ``records`` of the workload ``func``, whose space is ``space``, in the names of ``func``. Those of programs with other
    names are translated.

    The sketch of such a record is translated by its position: programs that differ in names only have the same sketches
    in the same order. The traces of the ``traces`` fastest records are translated, which takes a replay each; those of
    the others become empty.
    """
    own = program_key(func)
    foreign = {r.workload: program_of(db, r) for r in records if r.workload != own}
    spaces = {
        key: Space(split_at_example(p)[1], space.target, rules=space.rules, machine=space.machine)
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
                trace = retarget(Trace.from_json(record.trace), foreign[record.workload] or func, func).dumps()
            except (ScheduleError, TraceError):
                continue
        out.append(replace(record, workload=own, sketch=sketch, trace=trace))
    return out


_MOST_RECORDS = 2000
"""The number of records of other workloads that a model learns from."""


def other_workloads(db: Database, space: Space) -> list[Measured]:
    """Returns measurements of workloads other than that of ``space``, on its target, as training data.

    The label is the error of the prior, which is similar for different workloads.
    """
    stored = db.records(not_workload=space.func, target=space.target, status="ok", limit=_MOST_RECORDS)
    records = [r for r in stored if r.run_seconds]
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
            fresh = None if other is None else Space(split_at_example(other)[1], space.target, machine=space.machine)
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


_TRIED = 4
"""The number of near shapes whose best candidates a build tries."""

_FAR = 4.0
"""How far, in powers of two over all sizes, a shape may be whose best candidate a build takes."""

_ALIKE = 3.0
"""How far, in powers of two over all decisions, a candidate may be that shows the error of the prior for another."""

_GAIN, _SLOWER = 0.95, 1.5
"""A build takes a candidate of a near shape when it is expected to need this share of the default's time at most, and
when the prior by itself does not predict more than so many times the default's."""


@dataclass(frozen=True)
class NearShape:
    """A workload of the same kind with other sizes, ``distance`` powers of two away, with its records that ran."""

    distance: float
    program: PrimFunc
    records: tuple[TuningRecord, ...]

    @property
    def fastest(self) -> TuningRecord:
        """Returns the record of the least time."""
        return min(self.records, key=_seconds)


@dataclass(frozen=True)
class Transferred:
    """The schedule of a near shape's best candidate on a new shape, and the record that it comes from. The part of the
    default schedule's time that it is expected to need is ``share``."""

    schedule: Schedule
    record: TuningRecord
    program: PrimFunc
    share: float

    __repr__ = short_repr("program", "share", "record")


def _seconds(record: TuningRecord) -> float:
    return record.run_seconds or float("inf")


def nearest_shapes(db: Database, space: Space) -> list[NearShape]:
    """Returns the workloads most like that of ``space``, nearest first. They are programs whose buffers have the same
    ranks and types, and of which a sketch goes by the same name."""
    names = {sketch.name for sketch in space.sketches}
    found: dict[str, list[TuningRecord]] = {}
    for record in db.records(not_workload=space.func, target=space.target, status="ok", limit=2000):
        if record.run_seconds and record.sketch in names:
            found.setdefault(record.workload, []).append(record)
    shapes = []
    for key, records in found.items():
        stored = program_of(db, records[0])
        program = None if stored is None else split_at_example(stored)[1]
        distance = None if program is None else _distance(program, space.func)
        if program is not None and distance is not None:
            shapes.append((distance, key, NearShape(distance, program, tuple(records))))
    return [shape for _, _, shape in sorted(shapes, key=lambda item: item[:2])]


def nearest_candidates(db: Database, space: Space, count: int) -> list[Candidate]:
    """Returns what was the fastest for the nearest shapes on record, at most ``count``."""
    found = [_nearest_row(space, shape.fastest) for shape in nearest_shapes(db, space)]
    return list({c.key: c for c in found if c is not None}.values())[:count]


def transferred(db: Database, space: Space) -> Transferred | None:
    """Returns the best candidate of a near shape, re-applied to the program of ``space``. None stands for one that is
    not expected to be faster than the default.

    What is expected of a candidate is the prior's time for this shape, corrected by how far the prior was off for the
    candidate's likeness at the near shape.
    """
    best = [Candidate(s, tuple(map(int, row))) for s in space.sketches for row in s.best_rows(1)]
    if not best:
        return None
    default = min(best, key=_prior)
    for shape in nearest_shapes(db, space)[:_TRIED]:
        if shape.distance > _FAR:
            break
        candidate = _nearest_row(space, shape.fastest)
        if candidate is None or candidate.key == default.key:
            continue
        share = _expected_share(candidate, default, shape, space)
        if share > _GAIN or _prior(candidate) > _SLOWER * _prior(default):
            continue
        try:
            schedule = space.schedule(candidate.sketch, candidate.row)
        except ScheduleError:
            continue
        return Transferred(schedule, shape.fastest, shape.program, share)
    return None


def _prior(candidate: Candidate) -> float:
    return float(candidate.sketch.score(np.array([candidate.row], np.int64))[1][0])


def _expected_share(candidate: Candidate, default: Candidate, shape: NearShape, space: Space) -> float:
    """Returns the time expected of ``candidate`` as a part of the default's."""
    there = Space(shape.program, space.target, rules=space.rules, machine=space.machine)
    known = [(c, seconds / _prior(c)) for c, seconds in own_records(there, shape.records)]
    usual = float(np.median([error for _, error in known])) if known else 1.0
    mine, other = (_prior(c) * _likely_error(c, known, usual) for c in (candidate, default))
    return mine / other


def _likely_error(candidate: Candidate, known: Sequence[tuple[Candidate, float]], usual: float) -> float:
    """Returns the measured over the predicted time of the candidate most like this one, else the usual one."""
    row = np.array(candidate.row, float)
    alike = [(_apart(np.array(c.row, float), row), e) for c, e in known if c.sketch.name == candidate.sketch.name]
    distance, error = min(alike, default=(float("inf"), usual))
    return error if distance <= _ALIKE else usual


def _apart(rows: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Returns how far rows of decisions are from ``wanted``, in powers of two."""
    return np.asarray(np.abs(np.log2(1.0 + rows) - np.log2(1.0 + wanted)).sum(axis=-1))


def _distance(a: PrimFunc, b: PrimFunc) -> float | None:
    """Returns how far the sizes of two programs are apart, in powers of two; None for programs of other kinds."""
    kinds = [[(x.dtype, len(x.shape)) for x in f.buffers] for f in (a, b)]
    if kinds[0] != kinds[1]:
        return None
    sizes = [[float(getattr(e, "value", 1)) for x in f.buffers for e in x.shape] for f in (a, b)]
    return float(_apart(np.array(sizes[0]), np.array(sizes[1])))


def _nearest_row(space: Space, record: TuningRecord) -> Candidate | None:
    """Returns the candidate whose decisions are those of the record, or next to them where sizes do not allow these."""
    sketch = space.sketch(record.sketch)
    if sketch is None or set(sketch.column_names) != set(record.decisions):
        return None
    row = sketch.row_of(record.decisions)
    if row is None or not sketch.mask(np.array([row], np.int64).reshape(1, -1))[0]:
        row = _nearest_sensible(sketch, record)
    return None if row is None else Candidate(sketch, row)


def _nearest_sensible(sketch: Sketch, record: TuningRecord) -> tuple[int, ...] | None:
    if not sketch.listable or not len(rows := sketch.all_rows()):
        return None
    wanted = np.array([float(record.decisions[name]) for name in sketch.column_names])
    return tuple(map(int, rows[int(np.argmin(_apart(rows, wanted)))]))
