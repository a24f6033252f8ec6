"""This module keeps databases in order: it drops slow records, checks for damage, exports, imports and merges.

Records are written as JSON lines. The first one says what the file is:
``{"format": "tilewright-records", "schema": 1}``. Each other line is an object with ``"type"``: workload, target, session or record, whose fields are the columns of
that table (a record's keys come as they are, so lines may be filtered with any tool as long as what they refer to
stays).
"""

from __future__ import annotations

import datetime
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..pages.written_files import draft_of
from .records import DatabaseError, SessionRecord, TargetRecord, TuningRecord, WorkloadRecord, check_fields, to_json

if TYPE_CHECKING:
    from .database import Database


def moment(text: str) -> str:
    """Returns a date or a moment in ISO 8601 as the database writes moments, in UTC; DatabaseError for other text. A
    date is its first moment, and a moment without a zone is in UTC."""
    try:
        found = datetime.datetime.fromisoformat(text.strip().removesuffix("Z"))
    except ValueError:
        raise DatabaseError(
            f"{text!r} is not a date such as 2026-01-31, or a moment such as 2026-01-31T18:00"
        ) from None
    zone = datetime.timezone.utc
    return (found.replace(tzinfo=zone) if found.tzinfo is None else found.astimezone(zone)).isoformat(
        timespec="microseconds"
    )


def prune(
    db: Database, *, keep: int = 10, failures: bool = True, before: str | None = None, dry_run: bool = False
) -> int:
    """Drop records and return how many.

    Of each workload and target the ``keep`` fastest correct records stay; failed ones go when ``failures``. With
    ``before`` (ISO 8601, e.g. ``2026-01-31``) only records older than that go. ``dry_run`` counts and drops nothing.
    """
    doomed, params = _doomed(keep, failures, before)
    if dry_run:
        return int(db.query(f"SELECT count(*) AS n FROM ({doomed})", params)[0]["n"])
    with db.writing() as tables:
        count = tables.execute(f"DELETE FROM records WHERE id IN ({doomed})", params).rowcount
    return int(count)


def prunable(db: Database, *, keep: int = 10, failures: bool = True, before: str | None = None) -> list[dict[str, Any]]:
    """Returns what :func:`prune` would drop: workload, target, and how many records go, failed ones among them, and
    stay."""
    doomed, params = _doomed(keep, failures, before)
    return db.query(
        "SELECT coalesce(nullif(w.spec, ''), nullif(w.name, ''), substr(w.key, 1, 12)) AS workload, t.text AS target, "
        "sum(d.id IS NOT NULL) AS dropped, sum(d.id IS NOT NULL AND r.status <> 'ok') AS failed, "
        "sum(d.id IS NULL) AS kept FROM records AS r JOIN workloads AS w ON w.key = r.workload "
        f"JOIN targets AS t ON t.key = r.target LEFT JOIN ({doomed}) AS d ON d.id = r.id "
        "GROUP BY r.workload, r.target HAVING dropped > 0 ORDER BY workload, target",
        params,
    )


def _doomed(keep: int, failures: bool, before: str | None) -> tuple[str, dict[str, Any]]:
    """Returns the query of the ids that a prune drops, and its parameters."""
    if keep < 1:
        raise ValueError(f"keep is at least 1, not {keep}: a prune never drops the best record")
    doomed = (
        "SELECT id FROM (SELECT id, status, created, row_number() OVER "
        "(PARTITION BY workload, target, status ORDER BY run_seconds, id) AS place FROM records) "
        "WHERE ((status = 'ok' AND place > :keep) OR (status <> 'ok' AND :failures)) "
        "AND (:before IS NULL OR created < :before)"
    )
    before = None if before is None else moment(before)
    return doomed, {"keep": keep, "failures": int(failures), "before": before}


def check(db: Database) -> list[str]:
    """Returns the problems, a line each: pages, foreign keys, JSON, figures that do not fit their timings, keys and
    digests."""
    try:
        return (
            [
                f"file: {row['integrity_check']}"
                for row in db.query("PRAGMA integrity_check(20)")
                if set(row.values()) != {"ok"}
            ]
            or [*_row_problems(db)]
            or [*_record_problems(db)]
        )
    except DatabaseError as error:  # a page or a table that cannot be read at all
        return [f"file: {error}"]


def _row_problems(db: Database) -> list[str]:
    problems = [
        f"{row['table']} {row['rowid']}: refers to a row of {row['parent']} that is not there"
        for row in db.query("PRAGMA foreign_key_check")
    ]
    for table, columns in (
        ("workloads", ("shapes",)),
        ("targets", ("versions",)),
        ("sessions", ("config", "versions")),
        ("records", ("times", "decisions", "trace", "machine")),
    ):
        for row in db.query(f"SELECT rowid AS n, {', '.join(columns)} FROM {table}"):
            for column in columns:
                problem = _json_problem(row[column], column)
                if problem:
                    problems.append(f"{table} {row['n']}: {column}: {problem}")
    return problems


def _json_problem(text: object, column: str) -> str:
    try:
        value = json.loads(text if isinstance(text, str) else "?")
    except (ValueError, RecursionError) as error:
        return f"no JSON ({error})"
    if column in ("shapes", "times"):
        wanted, fits = "list", isinstance(value, list)
    else:
        wanted, fits = "object", isinstance(value, dict)
    if not fits:
        return f"not a JSON {wanted}"
    if column == "times" and not all(isinstance(item, (int, float)) for item in value):
        return "timings that are no numbers"
    return ""


def _record_problems(db: Database) -> list[str]:
    problems = []
    for row in db.query("SELECT id, digest, min_seconds, num_times, times FROM records ORDER BY id"):
        times = json.loads(row["times"])
        if row["num_times"] != len(times) or (times and row["min_seconds"] != min(times)):
            problems.append(f"records {row['id']}: the figures do not fit the timings")
    digests = {row["id"]: row["digest"] for row in db.query("SELECT id, digest FROM records")}
    record: TuningRecord
    for record in db.records():
        if record.id is not None and record.digest() != digests[record.id]:
            problems.append(f"records {record.id}: changed since it was written")
    return problems


_SILENT_HOURS = 24
"""A session on another host, or without a process number, that has been silent for so long is taken for lost."""


def host_name() -> str:
    """Returns the name of this machine."""
    return os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "")


def is_lost(session: Mapping[str, Any], now: str) -> bool:
    """Returns whether a session that is called running cannot go on. Its process is gone, or it has been silent for a
    day. ``session`` has host, pid, heartbeat and started."""
    if session["pid"] is not None and session["host"] == host_name() and sys.platform != "win32":
        return not _runs(int(session["pid"]))
    moments = [datetime.datetime.fromisoformat(text) for text in (session["heartbeat"] or session["started"], now)]
    return moments[1] - moments[0] > datetime.timedelta(hours=_SILENT_HOURS)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is somebody else's
        return True
    return True


FORMAT = "tilewright-records"
SCHEMA = 1
_MAX_LINE = 32 << 20

_TYPES: dict[str, Any] = {
    "workload": WorkloadRecord,
    "target": TargetRecord,
    "session": SessionRecord,
    "record": TuningRecord,
}


def export_jsonl(db: Database, path: str | os.PathLike[str], *, best_only: bool = False) -> int:
    """Write ``db`` to ``path``; with ``best_only`` only the best record of each workload and target."""
    count = 0
    try:
        with draft_of(Path(path)) as draft, open(draft, "w", encoding="utf-8", newline="\n") as file:
            file.write(to_json({"format": FORMAT, "schema": SCHEMA}) + "\n")
            for kind, value in _everything(db, best_only):
                content = asdict(value)
                content.pop("id", None) if kind == "record" else None
                file.write(to_json({"type": kind, **content}) + "\n")
                count += kind == "record"
    except OSError as error:
        raise DatabaseError(f"cannot write {os.fspath(path)}: {error.strerror}") from error
    return count


def import_jsonl(db: Database, path: str | os.PathLike[str]) -> int:
    """Add what ``path`` holds to ``db``, all or nothing; the number of records that were new."""
    return _add(db, _read(os.fspath(path)))


def merge(db: Database, other: Database | str | os.PathLike[str]) -> int:
    """Add what ``other`` holds to ``db``; the number of records that were new."""
    if isinstance(other, (str, os.PathLike)):
        from_path = os.path.realpath(other) == os.path.realpath(db.path)
        if from_path:
            raise DatabaseError(f"{os.fspath(other)} cannot be merged into itself")
        with type(db)(other, readonly=True) as opened:
            return _add(db, _everything(opened, False))
    return _add(db, _everything(other, False))


def _everything(db: Database, best_only: bool) -> Iterator[tuple[str, Any]]:
    for workload in db.workloads():
        yield "workload", workload
    for target in db.targets():
        yield "target", target
    for session in db.sessions():
        yield "session", session
    wanted = {row["record"] for row in db.query("SELECT record FROM best_records")} if best_only else None
    for record in db.records():
        if wanted is None or record.id in wanted:
            yield "record", record


def _add(db: Database, items: Iterable[tuple[str, Any]]) -> int:
    with db.writing() as tables:
        before = db.count()
        for kind, value in items:
            if kind == "workload":
                db.add_workload(value)
            elif kind == "target":
                db.add_target(value)
            elif kind == "session":
                row = {k: to_json(v) if k in ("config", "versions") else v for k, v in asdict(value).items()}
                tables.table("sessions").insert(row, pk="id", ignore=True)
            else:
                db.add_record(value)
        return db.count() - before


def _read(path: str) -> Iterator[tuple[str, Any]]:
    try:
        file = open(path, encoding="utf-8")
    except OSError as error:
        raise DatabaseError(f"cannot read {path}: {error.strerror}") from error
    with file:
        for number, line in enumerate(_lines(file, path), 1):
            try:
                content = json.loads(line)
                if not isinstance(content, dict):
                    raise ValueError("not an object")
                if number > 1:
                    yield _item(content)
                else:
                    _check_header(content)
            except (ValueError, TypeError, RecursionError) as error:
                raise DatabaseError(f"{path}, line {number}: {error}; nothing was imported") from error


def _check_header(content: Mapping[str, Any]) -> None:
    if content.get("format") != FORMAT:
        raise ValueError(f"the first line does not say {FORMAT!r}")
    if content.get("schema") != SCHEMA:
        raise ValueError(f"schema {content.get('schema')!r}; this version reads {SCHEMA}")


def _lines(file: Any, path: str) -> Iterator[str]:
    try:
        while line := file.readline(_MAX_LINE):
            if len(line) >= _MAX_LINE:
                raise DatabaseError(f"{path} has a line of more than {_MAX_LINE >> 20} MiB; nothing was imported")
            if line.strip():
                yield line
    except UnicodeDecodeError as error:
        raise DatabaseError(f"{path} is not UTF-8 text; nothing was imported") from error


def _item(content: dict[str, Any]) -> tuple[str, Any]:
    kind = content.pop("type", None)
    cls = _TYPES.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise ValueError(f"type is {kind!r}, not one of {', '.join(_TYPES)}")
    allowed = {f.name: f for f in fields(cls)}
    allowed.pop("id", None) if kind == "record" else None
    unknown = sorted(content.keys() - allowed.keys())
    if unknown:
        raise ValueError(f"{kind} has no field {unknown[0]!r}")
    check_fields(content)
    if "shapes" in content:
        content["shapes"] = tuple(content["shapes"])
    return str(kind), cls(**content)
