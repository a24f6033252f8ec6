"""This module drops slow records and checks a database for damage."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .records import TuningRecord

if TYPE_CHECKING:
    from .database import Database


def prune(
    db: Database, *, keep: int = 10, failures: bool = True, before: str | None = None, dry_run: bool = False
) -> int:
    """Drop records and return how many.

    Of each workload and target the ``keep`` fastest correct records stay; failed ones go when ``failures``. With
    ``before`` (ISO 8601, e.g. ``2026-01-31``) only records older than that go. ``dry_run`` counts and drops nothing.
    """
    if keep < 1:
        raise ValueError(f"keep is at least 1, not {keep}: a prune never drops the best record")
    doomed = (
        "SELECT id FROM (SELECT id, status, created, row_number() OVER "
        "(PARTITION BY workload, target, status ORDER BY run_seconds, id) AS place FROM records) "
        "WHERE ((status = 'ok' AND place > :keep) OR (status <> 'ok' AND :failures)) "
        "AND (:before IS NULL OR created < :before)"
    )
    params: dict[str, Any] = {"keep": keep, "failures": int(failures), "before": before}
    if dry_run:
        return int(db.query(f"SELECT count(*) AS n FROM ({doomed})", params)[0]["n"])
    with db.writing() as tables:
        count = tables.execute(f"DELETE FROM records WHERE id IN ({doomed})", params).rowcount
    return int(count)


def check(db: Database) -> list[str]:
    """Problems, a line each: pages, foreign keys, JSON, figures that do not fit their timings, keys and digests."""
    problems = []
    for row in db.connection.execute("PRAGMA integrity_check(20)").fetchall():
        if row[0] != "ok":
            problems.append(f"file: {row[0]}")
    if problems:
        return problems
    for row in db.connection.execute("PRAGMA foreign_key_check").fetchall():
        problems.append(f"{row[0]} {row[1]}: refers to a row of {row[2]} that is not there")
    for table, columns in (
        ("workloads", ("shapes",)),
        ("targets", ("versions",)),
        ("sessions", ("config", "versions")),
        ("records", ("times", "decisions", "trace")),
    ):
        for row in db.connection.execute(f"SELECT rowid AS n, {', '.join(columns)} FROM {table}"):
            for column in columns:
                problem = _json_problem(row[column])
                if problem:
                    problems.append(f"{table} {row['n']}: {column}: {problem}")
    return problems or [*_record_problems(db)]


def _json_problem(text: object) -> str:
    try:
        json.loads(text if isinstance(text, str) else "?")
    except (ValueError, RecursionError) as error:
        return f"no JSON ({error})"
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
