"""This module builds a function: it compiles the best recorded schedule, or the analytic model's."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, overload

from .. import te, tuner
from ..codegen import CODEGEN_VERSION, Module, Target, compile
from ..schedule import ScheduleError, Trace, TraceError
from ..tir.expr import Var
from ..tir.program_key import workload_key
from ..tir.stmt import PrimFunc
from ..tuner.measure.inputs import unknown_sizes
from ..tuning_db import Database, TuningRecord
from .request import Request, in_order, request, requests

log = logging.getLogger("tilewright")

_RECORDS = 4
"""The number of records that are tried before the analytic model is asked."""


class BuildError(RuntimeError):
    """The request cannot be built."""


class NoRecordError(BuildError):
    """``require_tuned`` was asked for, and the database has no record of the workload on the target."""


@dataclass(frozen=True)
class Plan:
    """A plan says how a function will be computed; it is made before compiling.

    ``kind``: ``tuned`` (a record's trace), ``default`` (the analytic model's choice, nothing measured) or ``given`` (as the
    caller has it). ``origin`` says in words which, what stays as written, which records do not apply, and which were
    measured with another code generator; ``scheduled`` is the function to compile.
    """

    request: Request
    target: Target
    kind: str
    origin: str
    scheduled: PrimFunc
    record: TuningRecord | None = None
    trace: Trace | None = None

    def compile(self) -> Module:
        """Returns the machine code; its ``origin`` is the plan's."""
        module = compile(self.scheduled, self.target, self.request.func.name)
        module.origin = self.origin
        return module


@overload
def build(
    inputs: Any,
    target: str | Target = "native",
    *,
    args: Sequence[Any] | Mapping[str, Any] | None = None,
    name: str | None = None,
    db: Database | str | os.PathLike[str] | None = None,
    require_tuned: bool = False,
) -> Module: ...


@overload
def build(
    inputs: te.Schedule,
    args: Sequence[te.Tensor | Var],
    target: str | Target = "native",
    *,
    name: str | None = None,
) -> Module: ...


def build(
    inputs: Any,
    *where: Any,
    target: str | Target | None = None,
    args: Sequence[Any] | Mapping[str, Any] | None = None,
    name: str | None = None,
    db: Database | str | os.PathLike[str] | None = None,
    require_tuned: bool = False,
) -> Module:
    """Compile ``inputs`` for ``target``; the result is callable on NumPy arrays, outputs last.

    ``build(inputs, target)``, and for a te schedule ``build(s, [A, B, C], target)``. ``inputs``: what
    :func:`.request.request` takes; with a te schedule or a spec ``args`` are its tensors or parameters. Of a module of several functions, or a mapping of such inputs by name, all are built, and the result has
    them by name. A function that is not scheduled gets the best schedule that ``db`` has for it, else the analytic
    model's best, and ``module.origin`` says which. Records that this code generator measured come before those of other
    versions. ``require_tuned``: :class:`NoRecordError` instead of the analytic model's schedule. ``name`` is the symbol
    of the compiled function.

    >>> import numpy as np
    >>> f = build("relu:M=1,N=4")
    >>> x, y = np.array([[-1, 2, -3, 4]], np.float32), np.empty((1, 4), np.float32)
    >>> f(x, y)
    >>> y.tolist()
    [[0.0, 2.0, 0.0, 4.0]]
    """
    machine, args = in_order(where, target, args)
    several = requests(inputs)
    if several is not None:
        if name is not None:
            raise ValueError(f"a name for {len(several)} functions; they keep their own")
        if args is not None:
            raise TypeError(f"args for {len(several)} functions, which take none")
        return _compile_together({key: plan_request(one, machine, db, require_tuned) for key, one in several.items()})
    made = plan_request(request(inputs, args, name), machine, db, require_tuned)
    log.info("%s: %s", made.request.func.name, made.origin)
    return made.compile()


def _compile_together(plans: Mapping[str, Plan]) -> Module:
    """Returns one module of several functions; its ``origin`` says where the schedule of each came from."""
    for name, made in plans.items():
        log.info("%s: %s", name, made.origin)
    target = next((made.target for made in plans.values()), "native")
    module = compile({name: made.scheduled for name, made in plans.items()}, target)
    module.origin = "; ".join([f"{name}: {made.origin}" for name, made in plans.items()])
    return module


def plan(
    inputs: Any,
    *where: Any,
    target: str | Target | None = None,
    args: Sequence[Any] | Mapping[str, Any] | None = None,
    db: Database | str | os.PathLike[str] | None = None,
    require_tuned: bool = False,
    name: str | None = None,
) -> Plan:
    """Returns the function that :func:`build` would compile, and why."""
    machine, args = in_order(where, target, args)
    return plan_request(request(inputs, args, name), machine, db, require_tuned)


def plan_request(
    asked: Request, machine: Target, db: Database | str | os.PathLike[str] | None = None, require_tuned: bool = False
) -> Plan:
    """Returns how ``asked`` is computed on ``machine``: by a record, by the analytic model, or as the caller has it."""
    failed, elsewhere = "", ""
    if db is not None:
        with open_database(db, readonly=True) as opened:
            made, failed = _tuned(opened, asked, machine)
            if made is not None:
                return made
            if not failed:
                elsewhere = _other_targets(opened, asked.func)
    if require_tuned and failed:
        raise BuildError(failed)
    if require_tuned:
        where = "no database was given" if db is None else f"{getattr(db, 'path', db)} has no record of it"
        raise NoRecordError(f"{asked.spec or asked.func.name} on {machine}: {where}{elsewhere}; tune it first")
    return _untuned(asked, machine, f"{failed}; " if failed else "", elsewhere)


def _tuned(db: Database, asked: Request, machine: Target) -> tuple[Plan | None, str]:
    """Returns the fastest record that applies, or a sentence that says why the first does not. Records of this code
    generator come before others."""
    failed = ""
    for record in db.fastest(asked.func, machine, codegen_version=CODEGEN_VERSION, limit=_RECORDS):
        origin = f"record {record.id} of {db.path}"
        try:
            trace = tuner.trace_for(db, record, asked.func)
            scheduled = tuner.replay(asked.func, trace).func
        except (ScheduleError, TraceError) as error:
            failed = failed or f"{origin} does not apply to {asked.func.name}: {error}".split("\n")[0]
            log.warning("%s does not apply to %s: %s", origin, asked.func.name, error)
            continue
        if record.codegen_version != CODEGEN_VERSION:
            other = (
                f"code generator {record.codegen_version}" if record.codegen_version else "an unknown code generator"
            )
            origin += f", measured with {other}, not {CODEGEN_VERSION}: tune it again"
        return Plan(asked, machine, "tuned", origin, scheduled, record, trace), ""
    return None, failed


def _untuned(asked: Request, machine: Target, before: str, elsewhere: str) -> Plan:
    """As the caller scheduled it, or with the analytic model's schedule. ``before`` and ``elsewhere`` go into the
    origin."""
    if asked.scheduled:
        return Plan(asked, machine, "given", f"{before}scheduled by the caller", asked.func)
    unknown = unknown_sizes(asked.func)
    if unknown is not None:
        return Plan(asked, machine, "given", f"{before}not scheduled: {unknown}", asked.func)
    default = tuner.choose_default(tuner.Space(asked.func, machine))
    origin = before + default.origin.replace("not tuned", f"not tuned{elsewhere}", 1)
    return Plan(asked, machine, "default", origin, default.schedule.func, None, default.schedule.trace)


def _other_targets(db: Database, func: PrimFunc) -> str:
    """`` (but for native -num-cores=1)``: the targets that have records of ``func``, or nothing."""
    rows = db.query(
        "SELECT DISTINCT t.text AS text FROM records AS r JOIN targets AS t ON t.key = r.target "
        "JOIN workloads AS w ON w.key = r.workload "
        "WHERE w.structure = ? AND r.status = 'ok' ORDER BY text LIMIT 4",
        [workload_key(func)],
    )
    return f" (but for {', '.join([row['text'] for row in rows])})" if rows else ""


@contextmanager
def open_database(db: Database | str | os.PathLike[str], readonly: bool = False) -> Iterator[Database]:
    """An open database as it is, or a path opened, and closed in the end."""
    if isinstance(db, Database):
        yield db
        return
    with Database(db, readonly=readonly) as opened:
        yield opened
