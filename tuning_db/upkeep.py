"""This module drops slow records and checks a database for damage."""

from __future__ import annotations

import datetime
import json
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .database_errors import DatabaseError
from .records import TuningRecord

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
