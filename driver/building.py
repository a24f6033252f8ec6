"""Building: the best record of a database replayed, or a good default, compiled."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .. import tuner
from ..codegen import Module, Target, compile
from ..schedule import Schedule, ScheduleError, Trace, TraceError
from ..tir.equal import workload_key
from ..tir.function import PrimFunc
from ..tuning_db import Database, TuningRecord
from .request import Request, is_symbolic, request

__all__ = ["BuildError", "NoRecordError", "Plan", "build", "open_database", "plan"]

log = logging.getLogger("tilewright")


class BuildError(RuntimeError):
    """What was asked for cannot be built."""


class NoRecordError(BuildError):
    """``require_tuned`` was asked for, and the database has no record of the workload on the target."""


@dataclass(frozen=True)
class Plan:
    """How a function will be computed, before it is compiled.

    ``kind``: ``tuned`` (a record's trace), ``default`` (the best sketch by the analytic model, nothing measured) or
    ``given`` (as the caller scheduled it). ``origin`` says so in words; ``scheduled`` is the function to compile.
    """

    request: Request
    target: Target
    kind: str
    origin: str
    scheduled: PrimFunc
    record: TuningRecord | None = None
    trace: Trace | None = None

    def compile(self, name: str | None = None) -> Module:
        """The machine code; its ``origin`` is the plan's."""
        module = compile(self.scheduled, self.target, name or self.request.func.name)
        module.origin = self.origin
        return module


def build(
    inputs: Any,
    args: Sequence[Any] | Mapping[str, Any] | None = None,
    target: str | Target = "native",
    name: str | None = None,
    *,
    db: Database | str | os.PathLike[str] | None = None,
    require_tuned: bool = False,
) -> Module:
    """Compile ``inputs`` for ``target``; the result is callable on NumPy arrays, outputs last.

    ``inputs``: what :func:`.request.request` takes; with a te schedule or a spec ``args`` are its tensors or
    parameters. A function that is not scheduled gets the best schedule that ``db`` has for it, else the analytic
    model's best, and ``module.origin`` says which. ``require_tuned``: :class:`NoRecordError` instead of the latter.
    ``name`` is the symbol of the compiled function.

    >>> import numpy as np
    >>> f = build("relu:M=1,N=4")
    >>> x, y = np.array([[-1, 2, -3, 4]], np.float32), np.empty((1, 4), np.float32)
    >>> f(x, y)
    >>> y.tolist()
    [[0.0, 2.0, 0.0, 4.0]]
    """
    made = plan(inputs, args, target, db=db, require_tuned=require_tuned, name=name)
    log.info("%s: %s", made.request.func.name, made.origin)
    return made.compile()


def plan(
    inputs: Any,
    args: Sequence[Any] | Mapping[str, Any] | None = None,
    target: str | Target = "native",
    *,
    db: Database | str | os.PathLike[str] | None = None,
    require_tuned: bool = False,
    name: str | None = None,
) -> Plan:
    """What :func:`build` would compile, and why."""
    machine = target if isinstance(target, Target) else Target(target)
    asked = request(inputs, args, name)
    elsewhere = ""
    if db is not None:
        with open_database(db, readonly=True) as opened:
            record = opened.best(asked.func, machine)
            place = opened.path
            if record is None:
                elsewhere = _other_targets(opened, asked.func)
            else:
                try:
                    trace = tuner.trace_for(opened, record, asked.func)
                    scheduled = replay(asked.func, trace)
                except (ScheduleError, TraceError) as error:
                    if require_tuned:
                        raise BuildError(
                            f"record {record.id} of {place} does not apply to {asked.func.name}: {error}"
                        ) from error
                    log.warning("record %s of %s does not apply to %s: %s", record.id, place, asked.func.name, error)
                else:
                    return Plan(asked, machine, "tuned", f"record {record.id} of {place}", scheduled, record, trace)
    if require_tuned:
        where = "no database was given" if db is None else f"{getattr(db, 'path', db)} has no record of it"
        raise NoRecordError(f"{asked.spec or asked.func.name} on {machine}: {where}{elsewhere}; tune it first")
    if asked.scheduled:
        return Plan(asked, machine, "given", "scheduled by the caller", asked.func)
    if is_symbolic(asked.func):
        return Plan(asked, machine, "given", "not scheduled: its shapes are symbolic", asked.func)
    default = tuner.default_schedule(asked.func, machine)
    origin = f"the analytic model's best schedule, not tuned{elsewhere}"
    return Plan(asked, machine, "default", origin, default.func, None, default.trace)


def _other_targets(db: Database, func: PrimFunc) -> str:
    """`` (but for native -num-cores=1)``: the targets that have records of ``func``, or nothing."""
    rows = db.query(
        "SELECT DISTINCT t.text AS text FROM records AS r JOIN targets AS t ON t.key = r.target "
        "JOIN workloads AS w ON w.key = r.workload "
        "WHERE w.structure = ? AND r.status = 'ok' ORDER BY text LIMIT 4",
        [workload_key(func)],
    )
    return f" (but for {', '.join([row['text'] for row in rows])})" if rows else ""


def replay(func: PrimFunc, trace: Trace) -> PrimFunc:
    """``func`` scheduled as ``trace`` says. A trace can do nothing but schedule; TraceError when it holds more."""
    schedule = Schedule(func)
    trace.apply_to_schedule(schedule)
    return schedule.func


@contextmanager
def open_database(db: Database | str | os.PathLike[str], readonly: bool = False) -> Iterator[Database]:
    """An open database as it is, or a path opened, and closed in the end."""
    if isinstance(db, Database):
        yield db
        return
    with Database(db, readonly=readonly) as opened:
        yield opened
