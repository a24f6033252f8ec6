"""``tilewright db``: what the database holds, and keeping it in order."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from ..pages import seconds_text, size_text
from .options import (
    CommandGroup,
    WholeNumber,
    apply,
    arg_option,
    command_line,
    cores_option,
    database_path,
    db_option,
    output_file,
    target_option,
    target_text,
)
from .output import CommandError, column, echo_json, echo_table, json_option

if TYPE_CHECKING:
    from ..tuning_db import Database

common = apply(db_option, json_option)


def _open(flag: str | None, readonly: bool = True) -> Database:
    from ..tuning_db import Database

    path = database_path(flag)
    assert path is not None
    return Database(path, readonly=readonly)


@click.group("db", cls=CommandGroup)
def command() -> None:
    """Show and maintain a database of tuning records."""


@command.command("ls")
@common
@click.option("--sessions", is_flag=True, help="List tuning sessions instead of workloads.")
def ls(db_path: str | None, as_json: bool, sessions: bool) -> None:
    """List the workloads of the database with their best times."""
    with _open(db_path) as db:
        rows = db.query(_SESSIONS if sessions else _WORKLOADS)
        size = os.path.getsize(db.path)
        if as_json:
            echo_json(db=db.path, bytes=size, **{"sessions" if sessions else "workloads": rows})
        elif sessions:
            echo_table(rows, _SESSION_COLUMNS, "no sessions")
        else:
            echo_table(rows, _WORKLOAD_COLUMNS, "no records")
            records = sum(row["records"] for row in rows)
            click.echo(f"{db.path}: {records} records, {size_text(size)}", err=True)


_WORKLOADS = """
SELECT coalesce(nullif(w.spec, ''), nullif(w.name, ''), substr(w.key, 1, 12)) AS workload, t.text AS target,
       count(*) AS records, sum(r.status <> 'ok') AS failed,
       min(CASE WHEN r.status = 'ok' THEN r.run_seconds END) AS best_seconds,
       w.flops / min(CASE WHEN r.status = 'ok' THEN r.run_seconds END) / 1e9 AS best_gflops,
       max(r.created) AS last, w.key AS workload_key, t.key AS target_key
FROM records AS r JOIN workloads AS w ON w.key = r.workload JOIN targets AS t ON t.key = r.target
GROUP BY r.workload, r.target ORDER BY workload, target
"""
_WORKLOAD_COLUMNS = [
    column("workload", lambda r: r["workload"]),
    column("target", lambda r: r["target"]),
    column("records", lambda r: str(r["records"]), True),
    column("failed", lambda r: str(r["failed"]), True),
    column("best", lambda r: seconds_text(r["best_seconds"]), True),
    column("GFLOP/s", lambda r: f"{r['best_gflops']:.1f}" if r["best_gflops"] else "–", True),
    column("last", lambda r: r["last"][:16].replace("T", " ")),
]
_SESSIONS = "SELECT * FROM session_progress ORDER BY started"
_SESSION_COLUMNS = [
    column("session", lambda r: r["session"][:8]),
    column("workload", lambda r: r["spec"] or r["name"] or "–"),
    column("status", lambda r: r["status"]),
    column("trials", lambda r: f"{r['trials_done']}/{r['trials_asked'] or '?'}", True),
    column("ok", lambda r: str(r["trials_ok"]), True),
    column("best", lambda r: seconds_text(r["best_seconds"]), True),
    column("GFLOP/s", lambda r: f"{r['best_gflops']:.1f}" if r["best_gflops"] else "–", True),
    column("started", lambda r: r["started"][:16].replace("T", " ")),
]


@command.command("best")
@click.argument("spec")
@apply(arg_option, target_option, db_option, json_option)
@cores_option
def best(
    spec: str, args: tuple[str, ...], target: str | None, db_path: str | None, as_json: bool, num_cores: int | None
) -> None:
    """Print the best record of SPEC on the target. Exit code 3 when there is none."""
    from ..codegen import CODEGEN_VERSION, Target
    from ..driver import parse_spec
    from ..driver.building import other_targets

    case = parse_spec(spec, args)
    machine = Target(target_text(target, num_cores))
    with _open(db_path) as db:
        record = db.best(case.func, machine, codegen_version=CODEGEN_VERSION)
        if record is None:
            raise CommandError(
                f"{db.path} has no record of {case.spec} on {machine}{other_targets(db, case.func)}",
                command_line("tune", spec, args, target=target, num_cores=num_cores, db=db.path),
                3,
            )
        if as_json:
            echo_json(spec=case.spec, **_record(record))
            return
        _print_record(record, case.flops)


@command.command("show")
@click.argument("record_id", type=int, metavar="RECORD")
@common
def show(record_id: int, db_path: str | None, as_json: bool) -> None:
    """Print one record by its number: figures, decisions, and the schedule's steps."""
    with _open(db_path) as db:
        rows = db.query("SELECT workload FROM records WHERE id = ?", [record_id])
        if not rows:
            raise CommandError(f"{db.path} has no record {record_id}", "`tilewright db ls` lists workloads")
        record = next(r for r in db.records(rows[0]["workload"]) if r.id == record_id)
        workload = db.workload(rows[0]["workload"])
    if as_json:
        echo_json(spec=workload.spec if workload else "", **_record(record))
        return
    click.echo(workload.spec or workload.name if workload else record.workload)
    _print_record(record, workload.flops if workload else None)


@command.command("failures")
@common
def failures(db_path: str | None, as_json: bool) -> None:
    """List what failed, by reason."""
    with _open(db_path) as db:
        rows = db.query("SELECT * FROM failures_by_reason ORDER BY records DESC, name")
    if as_json:
        echo_json(failures=rows)
    else:
        echo_table(
            rows,
            [
                column("workload", lambda r: r["spec"] or r["name"]),
                column("status", lambda r: r["status"]),
                column("sketch", lambda r: r["sketch"]),
                column("records", lambda r: str(r["records"]), True),
                column("example", lambda r: r["example"].strip().split("\n")[0][:100]),
            ],
            "no failures",
        )


@command.command("export")
@click.argument("file")
@db_option
@click.option("--best", "best_only", is_flag=True, help="Only the best record of each workload and target.")
def export(file: str, db_path: str | None, best_only: bool) -> None:
    """Write the database as JSON lines to FILE."""
    output_file(file)
    with _open(db_path) as db:
        click.echo(f"{db.export_jsonl(file, best_only=best_only)} records -> {file}")


@command.command("import")
@click.argument("file")
@db_option
def import_(file: str, db_path: str | None) -> None:
    """Add the JSON lines of FILE to the database, all or nothing."""
    from ..tuning_db import Database

    path = database_path(db_path, create=True)
    assert path is not None
    with Database(path) as db:
        click.echo(f"{db.import_jsonl(file)} new records -> {path}")


@command.command("merge")
@click.argument("others", nargs=-1, required=True)
@db_option
def merge(others: tuple[str, ...], db_path: str | None) -> None:
    """Add the records of the databases OTHERS."""
    from ..tuning_db import Database

    path = database_path(db_path, create=True)
    assert path is not None
    with Database(path) as db:
        for other in others:
            if not os.path.exists(other):
                raise CommandError(f"there is no database {other}", code=2)
            click.echo(f"{other}: {db.merge(other)} new records -> {path}")


@command.command("prune")
@db_option
@click.option("--keep", default=10, show_default=True, type=WholeNumber(1), help="Fastest records to keep of each.")
@click.option("--keep-failures", is_flag=True, help="Keep the records of failures.")
@click.option("--before", metavar="DATE", help="Only records older than this, e.g. 2026-01-31 or 2026-01-31T18:00.")
@click.option("--dry-run", is_flag=True, help="Say what would go, and drop nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def prune(
    db_path: str | None, keep: int, keep_failures: bool, before: str | None, dry_run: bool, yes: bool
) -> None:  # fmt: skip
    """Drop records that are not among the fastest of their workload and target. Says what goes, and asks first."""
    if before is not None:
        from ..tuning_db import DatabaseError
        from ..tuning_db.upkeep import moment

        try:
            before = moment(before)
        except DatabaseError as error:
            raise CommandError(f"--before {error}", code=2) from error
    with _open(db_path, readonly=dry_run) as db:
        rows = db.prunable(keep=keep, failures=not keep_failures, before=before)
        echo_table(rows, _PRUNE_COLUMNS, "nothing to drop")
        count = sum(row["dropped"] for row in rows)
        if not rows:
            return
        if not dry_run and not yes:
            if not sys.stdin.isatty():
                raise CommandError(f"{count} records would be dropped, and nobody can be asked", "add --yes", code=2)
            click.confirm(f"drop {count} records from {db.path}?", abort=True)
        db.prune(keep=keep, failures=not keep_failures, before=before, dry_run=dry_run)
        click.echo(f"{count} records {'would be ' if dry_run else ''}dropped from {db.path}")


_PRUNE_COLUMNS = [
    column("workload", lambda r: r["workload"]),
    column("target", lambda r: r["target"]),
    column("dropped", lambda r: str(r["dropped"]), True),
    column("failed", lambda r: str(r["failed"]), True),
    column("kept", lambda r: str(r["kept"]), True),
]


@command.command("check")
@common
def check(db_path: str | None, as_json: bool) -> int:
    """Look for damage. Exit code 1 when there is some."""
    with _open(db_path) as db:
        problems = db.check()
        path, records = db.path, db.count() if not problems else 0
    if as_json:
        echo_json(db=path, problems=problems)
    elif not problems:
        click.echo(f"{path}: {records} records, no problems")
    for problem in problems if not as_json else ():
        click.echo(problem)
    return 1 if problems else 0


def _record(record: Any) -> dict[str, Any]:
    names = ("id", "status", "error", "run_seconds", "times", "sketch", "decisions", "trial", "session", "created",
             "compile_seconds", "predicted_seconds", "codegen_version", "workload", "target", "trace")  # fmt: skip
    return {name: getattr(record, name) for name in names}


def _print_record(record: Any, flops: float | None) -> None:
    from ..schedule import Trace

    head = f"record {record.id}: {record.status}, {seconds_text(record.run_seconds)}"
    if flops and record.run_seconds:
        head += f", {flops / record.run_seconds / 1e9:.1f} GFLOP/s"
    click.echo(f"{head}, {len(record.times)} timings, {record.created[:16].replace('T', ' ')}")
    if record.error:
        click.echo(record.error)
    if record.decisions:
        click.echo(f"{record.sketch}: " + ", ".join([f"{k}={v}" for k, v in record.decisions.items()]))
    if record.trace:
        click.echo(Trace.from_json(record.trace).as_python())
