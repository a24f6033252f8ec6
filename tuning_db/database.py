"""Where a record is stored and looked up: workloads, targets, sessions, records and baselines in one SQLite file.

A workload is a program. Its key (``tir/program_key.py``) depends on the names of its blocks, which traces use, but on no other
names; ``structure`` is the key of the same program whatever the names of its blocks are, and ``family`` that of a function of
symbolic sizes, whose examples have programs of their own. A record is a measured schedule of a workload on a target: its status,
the seconds of a run, all timings, the trace. :mod:`.connection` has the tables with all their columns and makes the file,
:mod:`.records` the dataclasses that are their rows.

How a record is stored (a tuning session does this, ``tuner/search/session.py``):

1. :meth:`Database.add_workload` and :meth:`Database.add_target` store what the record names, and return their keys: that
   of a target is made of its architecture, the processor's model and features, its vectors and the number of cores.
   :meth:`Database.start_session` notes the search.
2. :meth:`Database.add_record` writes each record when it was measured, in one transaction; one that is there, by its digest
   (of all that it says but its ``id``), is not written twice.
3. :meth:`Database.amend` replaces records that change later, as those of the best few, which are measured again at the end; they
   keep their ``id``. :meth:`Database.finish_session` notes how the search ended.

How it is looked up (``driver/building.py`` does this before it compiles, and ``driver/models/model_building.py: _recorded`` for
the kernels of a model, where they are given a database; only the command line
has a default, ``cli/options.py: database_path``: --db, TILEWRIGHT_DB, ``tilewright.toml``, else ``tuning.db`` in the working
folder): :meth:`Database.fastest` takes a program and a target,

1. finds the stored programs of its structure, so that names do not matter (of a key, the program of that key), and the stored
   target;
2. takes their records on that target whose status is ``ok``, by seconds; with ``codegen_version`` those of that code generator
   come first;
3. returns the first few. A trace uses the names of the program that it was made for, and ``tuner/search/warm_start.py``
   translates them.

For a function of symbolic sizes :meth:`Database.at_examples` finds, by its family, the examples that were measured, and
``driver/any_size.py`` takes the records of each. Where a function has no record, ``tuner.transferred`` looks among all workloads
for records of near sizes.

Every write is one transaction under a lock that all processes share (:meth:`Database.writing`): it is stored as a whole or not at
all, whenever a process is killed. :meth:`Database.start_session` and :meth:`Database.add_baseline` make up to three: they store the
workload and the target first.

:class:`DatabaseError` for a file that is damaged, foreign, from a newer version or locked for too long, and for rows that make no
record; the file is then unchanged.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sqlite3
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..pages.written_files import utf8_text
from ..tir.program_key import family_key, program_key
from ..tir.stmt import PrimFunc
from . import upkeep
from .connection import FileLock, connect, keys_of, say_what
from .records import (
    DatabaseError,
    SessionRecord,
    Target,
    TargetRecord,
    TuningRecord,
    Workload,
    WorkloadRecord,
    check_fields,
    from_json,
    target_key,
    target_record,
    to_json,
    utc_now,
    workload_key_of,
    workload_record,
)
from .upkeep import host_name, is_lost

if TYPE_CHECKING:
    import pandas as pd
    import sqlite_utils

_CHECKPOINT_BYTES = 4 << 20
"""The log of writes is moved into the file when it is longer than so many bytes."""

_PROGRAMS = "(SELECT key FROM workloads WHERE key = :workload OR structure = :workload)"
"""The stored programs that match a workload: the one of its key, or all of its structure."""


class Database:
    """A database has tuning records in a SQLite file. It is safe for several processes at once and for a kill at any
    moment.

    ``path`` is created when it is not there, unless ``readonly``; ``":memory:"`` keeps everything in this process.
    Raises :class:`DatabaseError` when the file is damaged, is something else, or comes from a newer version; the
    file is then unchanged.

    >>> with Database(":memory:") as db:
    ...     key = db.add_workload(WorkloadRecord(key="w", text="...", name="relu", flops=1e6))
    ...     cpu = db.add_target(TargetRecord(key="t", text="native"))
    ...     _ = db.add_record(TuningRecord(key, cpu, trace="{}", times=(2e-3, 1e-3, 1e-3)))
    ...     db.best("w", "t").run_seconds
    0.001
    """

    def __init__(self, path: str | os.PathLike[str], readonly: bool = False, *, timeout: float = 60.0) -> None:
        self.path = os.fspath(path)
        self.readonly = readonly
        memory = self.path == ":memory:"
        self._lock = FileLock(None if memory or readonly else self.path + ".lock", timeout)
        self._conn: sqlite3.Connection | None = connect(self.path, readonly, self._lock)
        self._tables: sqlite_utils.Database | None = None
        self._pid = os.getpid()

    def __repr__(self) -> str:
        return f"Database({self.path!r}{', readonly=True' if self.readonly else ''})"

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    def close(self) -> None:
        """Write the log back into the file and close it. Closing twice has no effect."""
        conn = self.__dict__.get("_conn")
        self._conn = self._tables = None
        if conn is None or self._pid != os.getpid():
            return  # a forked child must not close its parent's connection
        if self.readonly or self.path == ":memory:":
            conn.close()
            return
        with self._lock, say_what(self.path):
            with contextlib.suppress(sqlite3.Error):
                conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            conn.close()

    # --- what the other methods stand on

    @property
    def connection(self) -> sqlite3.Connection:
        """Returns the open connection; DatabaseError after :meth:`close`."""
        if self._conn is None:
            raise DatabaseError(f"{self.path} is closed")
        if self._pid != os.getpid():
            raise DatabaseError(f"{self.path} was opened by another process; open it again in this one")
        return self._conn

    @property
    def tables(self) -> sqlite_utils.Database:
        """Returns the same connection as sqlite-utils sees it."""
        import sqlite_utils  # heavy: half a start-up

        conn = self.connection
        if self._tables is None:
            self._tables = sqlite_utils.Database(conn, execute_plugins=False, recursive_triggers=False)
        return self._tables

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite_utils.Database]:
        """Makes one write transaction: all of it is stored, or nothing. Holds the lock; blocks of the same thread nest."""
        if self.readonly:
            raise DatabaseError(f"{self.path} was opened for reading only")
        conn = self.connection
        with self._lock, say_what(self.path):
            if conn.in_transaction:
                yield self.tables
                return
            tables = self.tables
            conn.execute("BEGIN IMMEDIATE")
            try:
                yield tables
                conn.execute("COMMIT")
            except BaseException:
                if conn.in_transaction:
                    conn.execute("ROLLBACK")
                raise
            self._checkpoint_when_long(conn)

    def _checkpoint_when_long(self, conn: sqlite3.Connection) -> None:
        with contextlib.suppress(OSError):
            if os.path.getsize(self.path + "-wal") > _CHECKPOINT_BYTES:
                conn.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def query(self, sql: str, params: Iterable[Any] | Mapping[str, Any] = ()) -> list[dict[str, Any]]:
        """Returns the rows of a SELECT over the documented tables and views (docs/reference/database.md), as dicts."""
        with say_what(self.path):
            cursor = self.connection.execute(sql, params if isinstance(params, Mapping) else tuple(params))
            return [dict(row) for row in cursor.fetchall()]

    # --- workloads, targets, sessions

    def add_workload(self, workload: Workload, *, name: str = "", spec: str = "") -> str:
        """Make a workload known and return the key of its program. ``workload``: a PrimFunc, its text, or a
        WorkloadRecord. A program of the same structure with other names of blocks is stored beside it.

        One that is known already keeps what is stored; where it has no ``spec`` and one is given, that and the name are
        stored.
        """
        record = workload_record(workload)
        record = replace(record, name=utf8_text(name or record.name), spec=utf8_text(spec or record.spec))
        known = self.query("SELECT name, spec FROM workloads WHERE key = ?", [record.key])
        if known and (known[0]["spec"] or not record.spec):
            return record.key
        with self.writing() as tables:
            row = {**_row(record), **keys_of(record.text)}
            if known:
                tables.table("workloads").update(record.key, {"spec": record.spec, "name": record.name})
            else:
                tables.table("workloads").insert(row, pk="key", ignore=True)
        return record.key

    def add_target(self, target: Target) -> str:
        """Make a target known and return its key. ``target``: a codegen Target or a TargetRecord."""
        record = target_record(target)
        if not self.query("SELECT 1 FROM targets WHERE key = ?", [record.key]):
            with self.writing() as tables:
                tables.table("targets").insert(_row(record), pk="key", ignore=True)
        return record.key

    def start_session(
        self,
        workload: Workload | None = None,
        target: Target | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        seed: int | None = None,
        trials: int | None = None,
        versions: Mapping[str, str] | None = None,
        host: str | None = None,
        limits: Mapping[str, Any] | None = None,
    ) -> str:
        """Note the start of a tuning session and return its id. Sessions whose process is gone are called killed from
        now on. ``limits``: peak_flops, bandwidth, roofline_seconds and limited_by, as far as they are known."""
        session = SessionRecord(
            uuid.uuid4().hex,
            None if workload is None else self.add_workload(workload),
            None if target is None else self.add_target(target),
            dict(config or {}),
            seed,
            trials,
            dict(versions or {}),
            host_name() if host is None else host,
            pid=os.getpid() if host is None else None,
            **(limits or {}),
        )
        with self.writing() as tables:
            for row in self.query("SELECT id, host, pid, heartbeat, started FROM sessions WHERE status = 'running'"):
                if is_lost(row, session.started):
                    ended = "its process was killed"
                    last = {"status": "killed", "finished": row["heartbeat"] or row["started"], "ended": ended}
                    tables.table("sessions").update(row["id"], last)
            tables.table("sessions").insert(_row(session), pk="id")
        return session.id

    def finish_session(self, session: str, status: str = "done", ended: str = "") -> None:
        """Note the end of a session; ``status``: done, interrupted or failed; ``ended``: why, in words."""
        with self.writing() as tables:
            tables.table("sessions").update(session, {"status": status, "finished": utc_now(), "ended": ended})

    def add_baseline(self, workload: Workload, target: Target, name: str, seconds: float) -> None:
        """Note what another contender, as ``numpy``, took for a workload; a report draws it. It replaces an older one."""
        row = {
            "workload": self.add_workload(workload), "target": self.add_target(target), "name": name,
            "seconds": float(seconds), "created": utc_now(),
        }  # fmt: skip
        with self.writing() as tables:
            tables.table("baselines").insert(row, pk=("workload", "target", "name"), replace=True)

    def workload(self, workload: Workload) -> WorkloadRecord | None:
        """Returns the stored workload, else one that differs only in names, else None."""
        key = program_key(workload) if isinstance(workload, PrimFunc) else workload_key_of(workload)
        rows = self.query(
            "SELECT * FROM workloads WHERE key = :key OR structure = :structure "
            "ORDER BY key <> :key, created, key LIMIT 1",
            {"key": key, "structure": workload_key_of(workload)},
        )
        return _value(WorkloadRecord, rows[0]) if rows else None

    def at_examples(self, func: PrimFunc) -> list[WorkloadRecord]:
        """Returns what was measured of a function of symbolic sizes: a workload for each example of the sizes."""
        key = family_key(func) or workload_key_of(func)
        rows = self.query("SELECT * FROM workloads WHERE family = :key ORDER BY created, key", {"key": key})
        return [_value(WorkloadRecord, row) for row in rows]

    def workloads(self) -> list[WorkloadRecord]:
        """Returns all workloads, oldest first."""
        return [_value(WorkloadRecord, row) for row in self.query("SELECT * FROM workloads ORDER BY created, key")]

    def targets(self) -> list[TargetRecord]:
        """Returns all targets, oldest first."""
        return [_value(TargetRecord, row) for row in self.query("SELECT * FROM targets ORDER BY created, key")]

    def targets_of(self, workload: Workload) -> list[str]:
        """Returns the texts of targets that have correct records of ``workload``, whatever its names are: at most four."""
        rows = self.query(
            "SELECT DISTINCT t.text AS text FROM records AS r JOIN targets AS t ON t.key = r.target "
            f"WHERE r.workload IN {_PROGRAMS} AND r.status = 'ok' ORDER BY text LIMIT 4",
            {"workload": workload_key_of(workload)},
        )
        return [row["text"] for row in rows]

    def sessions(self) -> list[SessionRecord]:
        """Returns all sessions, oldest first."""
        return [_value(SessionRecord, row) for row in self.query("SELECT * FROM sessions ORDER BY started, id")]

    # --- records

    def add_record(self, record: TuningRecord) -> int:
        """Store one record and return its ``id``; one that is stored already is not stored twice."""
        return self.add_records([record])[0]

    def add_records(self, records: Iterable[TuningRecord]) -> list[int]:
        """Store several records in one transaction and return their ids."""
        rows = [record_row(record) for record in records]
        ids = []
        with self.writing() as tables:
            for row in rows:
                known = tables.execute("SELECT id FROM records WHERE digest = ?", [row["digest"]]).fetchone()
                try:
                    if known is None:
                        tables.table("records").insert(row, pk="id")
                        known = tables.execute("SELECT last_insert_rowid()").fetchone()
                    ids.append(int(known[0]))
                    if row["session"] is not None:
                        tables.execute(
                            "UPDATE sessions SET heartbeat = ? WHERE id = ?", [row["created"], row["session"]]
                        )
                except sqlite3.IntegrityError as error:
                    raise DatabaseError(
                        f"record refused ({error}): add its workload, target and session first"
                    ) from error
        return ids

    def amend(self, records: Iterable[TuningRecord]) -> None:
        """Replace stored records by new measurements of them (each record has the ``id`` that it has in this
        database)."""
        rows = [(record.id, record_row(record)) for record in records]
        with self.writing() as tables:
            for number, row in rows:
                if number is None or tables.execute("SELECT 1 FROM records WHERE id = ?", [number]).fetchone() is None:
                    raise DatabaseError(f"there is no record {number} to amend")
                tables.table("records").update(number, row)

    def best(self, workload: Workload, target: Target, *, codegen_version: int | None = None) -> TuningRecord | None:
        """Returns the first of :meth:`fastest`, or None."""
        return next(iter(self.fastest(workload, target, codegen_version=codegen_version)), None)

    def fastest(
        self, workload: Workload, target: Target, *, codegen_version: int | None = None, limit: int = 1
    ) -> list[TuningRecord]:
        """Returns the fastest correct records of ``workload`` on ``target``, best first, at most ``limit``. With
        ``codegen_version`` the records of that code generator come before those of others, whose times are not its own.

        ``workload``: a PrimFunc or its text (the names in it do not matter), a key, or a WorkloadRecord. A record's trace
        uses the names of the program that it was made for, ``workload(record.workload)``. ``target``: a codegen Target,
        its key, a TargetRecord, or the text of a target; LookupError when several machines go by that text.
        """
        keys = [row["key"] for row in self.query(_PROGRAMS[1:-1], {"workload": workload_key_of(workload)})]
        machine = self.stored_target(target)
        if codegen_version is None:
            return self._fastest_of(keys, machine, limit)
        found = self._fastest_of(keys, machine, limit, "AND codegen_version = :version", codegen_version)
        if len(found) < limit:
            others = "AND codegen_version <> :version"
            found += self._fastest_of(keys, machine, limit - len(found), others, codegen_version)
        return found

    def _fastest_of(
        self, programs: Sequence[str], target: str, limit: int, clause: str = "", version: int | None = None
    ) -> list[TuningRecord]:
        """Return the fastest correct records of stored programs. Each query follows an index and ends at ``limit``."""
        rows = []
        for program in programs:
            rows += self.query(
                f"SELECT * FROM records WHERE workload = :program AND target = :target AND status = 'ok' {clause} "
                "ORDER BY run_seconds, id LIMIT :limit",
                {"program": program, "target": target, "version": version, "limit": limit},
            )
        rows.sort(key=lambda row: (row["run_seconds"], row["id"]))
        return [_value(TuningRecord, row) for row in rows[:limit]]

    def records(
        self,
        workload: Workload | None = None,
        target: Target | None = None,
        *,
        status: str | None = None,
        session: str | None = None,
        not_workload: Workload | None = None,
        order: str = "id",
        limit: int | None = None,
    ) -> list[TuningRecord]:
        """Returns the records that match everything given, in the order of ``order`` (``id`` or ``run_seconds``).

        ``not_workload`` leaves one workload out (a cost model warm-starts from the others).
        """
        if order not in ("id", "run_seconds"):
            raise ValueError(f"order is 'id' or 'run_seconds', not {order!r}")
        params = {
            "workload": None if workload is None else workload_key_of(workload),
            "other": None if not_workload is None else workload_key_of(not_workload),
            "target": None if target is None else self.stored_target(target),
            "status": status,
            "session": session,
            "limit": limit,
        }
        clauses = {
            "workload": f"workload IN {_PROGRAMS}",
            "other": f"workload NOT IN {_PROGRAMS.replace(':workload', ':other')}",
            "target": "target = :target",
            "status": "status = :status",
            "session": "session = :session",
        }
        where = [clause for name, clause in clauses.items() if params[name] is not None]
        sql = "SELECT * FROM records" + (" WHERE " + " AND ".join(where) if where else "")
        sql += " ORDER BY id" if order == "id" else " ORDER BY run_seconds IS NULL, run_seconds, id"
        if limit is not None:
            sql += " LIMIT :limit"
        return [_value(TuningRecord, row) for row in self.query(sql, params)]

    def records_dataframe(self, workload: Workload | None = None, target: Target | None = None) -> pd.DataFrame:
        """Returns the records of a workload and target (None: all) as a table of pandas, which must be installed."""
        names = ", ".join([f"r.{name}" for name in (*COLUMNS, "decisions")])
        rows = _tuples(
            self,
            f"SELECT {names}, w.flops FROM records AS r JOIN workloads AS w ON w.key = r.workload "
            "WHERE (:key IS NULL OR r.workload = :key OR w.structure = :key) AND (:target IS NULL OR r.target = :target) "
            "ORDER BY r.id",
            {
                "key": None if workload is None else workload_key_of(workload),
                "target": None if target is None else self.stored_target(target),
            },
        )
        found = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(len(COLUMNS) + 2)]
        decisions = json.loads(f"[{','.join(found[-2])}]")  # one text is read much faster than each row's
        return _frame(dict(zip(COLUMNS, found, strict=False)), decisions, found[-1])

    def count(self, table: str = "records") -> int:
        """Returns the number of rows of a table."""
        if table not in ("workloads", "targets", "sessions", "records"):
            raise ValueError(f"no table {table!r}")
        return int(self.query(f"SELECT count(*) AS n FROM {table}")[0]["n"])

    def stored_target(self, target: Target) -> str:
        """Returns the key of a target. A text is looked up among those stored, and stays as it is where none has it."""
        key = target_key(target)
        if not isinstance(target, str) or self.query("SELECT 1 FROM targets WHERE key = ?", [key]):
            return key
        rows = self.query("SELECT key FROM targets WHERE text = :t OR text LIKE :t || ' -num-cores=%'", {"t": key})
        keys = [row["key"] for row in rows]
        if len(keys) > 1:
            raise LookupError(f"{len(keys)} machines in {self.path} go by {target!r}; pass Target({target!r})")
        return str(keys[0]) if keys else key

    # --- exchange and upkeep

    def export_jsonl(self, path: str | os.PathLike[str], *, best_only: bool = False) -> int:
        """Write everything as JSON lines and return the number of records; see :mod:`.upkeep`."""
        return upkeep.export_jsonl(self, path, best_only=best_only)

    def import_jsonl(self, path: str | os.PathLike[str]) -> int:
        """Add what a file of JSON lines holds, all or nothing, and return the number of records that were new."""
        return upkeep.import_jsonl(self, path)

    def merge(self, other: Database | str | os.PathLike[str]) -> int:
        """Add what another database holds, and return the number of records that were new."""
        return upkeep.merge(self, other)

    def prune(self, *, keep: int = 10, failures: bool = True, before: str | None = None, dry_run: bool = False) -> int:
        """Drop all but the ``keep`` fastest records of each workload and target, and return how many went.

        With ``failures`` the failed ones go, too; ``before`` leaves younger records alone. See :mod:`.upkeep`.
        """
        return upkeep.prune(self, keep=keep, failures=failures, before=before, dry_run=dry_run)

    def prunable(self, *, keep: int = 10, failures: bool = True, before: str | None = None) -> list[dict[str, Any]]:
        """Returns what :meth:`prune` would drop, by workload and target."""
        return upkeep.prunable(self, keep=keep, failures=failures, before=before)

    def check(self) -> list[str]:
        """Returns the problems found in the file and in what it holds, a line each; empty when there are none."""
        return upkeep.check(self)


# rows and objects

_JSON = {"shapes", "versions", "config", "times", "decisions", "machine"}
"""The columns that hold JSON."""


def _row(value: WorkloadRecord | TargetRecord | SessionRecord) -> dict[str, Any]:
    """Returns the columns of a workload, a target or a session."""
    items = ((f.name, getattr(value, f.name)) for f in fields(value))
    return {name: to_json(item) if name in _JSON else item for name, item in items}


def record_row(record: TuningRecord) -> dict[str, Any]:
    """Returns the columns of the table ``records``."""
    row = {f.name: getattr(record, f.name) for f in fields(record) if f.name != "id"}
    row.update(
        digest=record.digest(),
        times=to_json(record.times),
        decisions=to_json(record.decisions),
        machine=to_json(record.machine),
        min_seconds=min(record.times, default=None),
        max_seconds=max(record.times, default=None),
        num_times=len(record.times),
    )
    if record.predicted_seconds is not None and not math.isfinite(record.predicted_seconds):
        row["predicted_seconds"] = None
    return row


def _value(cls: Any, row: Mapping[str, Any]) -> Any:
    """Returns the object of class ``cls`` that a row holds; DatabaseError when the row is damaged."""
    values = {f.name: row[f.name] for f in fields(cls)}
    try:
        for name in _JSON & values.keys():
            values[name] = from_json(values[name])
        check_fields(values)
        if cls is WorkloadRecord:
            values["shapes"] = tuple(values["shapes"])
        return cls(**values)
    except (ValueError, TypeError, RecursionError) as error:
        raise DatabaseError(f"a row of {cls.__name__} is damaged: {error}; `tilewright db check` lists all") from error


@contextmanager
def open_database(db: Database | str | os.PathLike[str], readonly: bool = False) -> Iterator[Database]:
    """Yields an open database as it is; a path is opened, and closed in the end."""
    if isinstance(db, Database):
        yield db
        return
    with Database(db, readonly=readonly) as opened:
        yield opened


# tables of records, for pandas

COLUMNS = (
    "id", "trial", "status", "run_seconds", "predicted_seconds", "compile_seconds", "sketch", "session", "created",
    "codegen_version", "error", "workload", "target",
)  # fmt: skip
"""The columns that every table of records has; ``gflops`` and one ``decision_…`` for each decision follow."""


def records_frame(records: Sequence[TuningRecord], flops: float | None = None) -> pd.DataFrame:
    """Returns a row for each record in order; ``flops``, the operations of one run, give a column ``gflops``.

    ImportError when pandas is not installed.
    """
    columns = {name: [getattr(r, name) for r in records] for name in COLUMNS}
    return _frame(columns, [r.decisions for r in records], [flops or None] * len(records))


def _tuples(db: Database, sql: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Returns the rows of a SELECT as plain tuples, which take less time than dicts where there are many."""
    with say_what(db.path):
        cursor = db.connection.cursor()
        cursor.row_factory = None
        return cursor.execute(sql, params).fetchall()


def _frame(
    columns: dict[str, list[Any]], decisions: Sequence[Mapping[str, Any]], flops: Sequence[float | None]
) -> pd.DataFrame:  # fmt: skip
    try:
        import pandas
    except ImportError as error:
        raise ImportError("a table of records needs pandas: pip install 'tilewright[viz]'") from error
    seconds = columns["run_seconds"]
    columns["gflops"] = [None if f is None or not s else f / s / 1e9 for f, s in zip(flops, seconds, strict=True)]
    names = dict.fromkeys(name for row in decisions for name in row)
    for name in names:
        columns[f"decision_{name}"] = [row.get(name) for row in decisions]
    frame = pandas.DataFrame(columns)
    numbers = ("run_seconds", "predicted_seconds", "compile_seconds", "gflops")
    frame[list(numbers)] = frame[list(numbers)].astype(float)
    frame["created"] = pandas.to_datetime(frame["created"], format="ISO8601", utc=True)
    return frame
