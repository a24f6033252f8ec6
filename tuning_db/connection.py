"""This module opens a database file, and checks what the file is before it writes to it.

The schema and its migrations come first: numbered steps, each of which runs once.

A database carries ``PRAGMA application_id`` = :data:`APPLICATION_ID` and, in ``PRAGMA user_version``, the number of
steps that it has seen. docs/reference/database.md describes the tables; the columns beside the JSON are there so that any SQLite
tool can sort and plot them.

A lock file beside the database is held during every write (:class:`FileLock`). SQLite before 3.51.3 can lose committed pages
when a write races a checkpoint of the write-ahead log, so writers and checkpoints exclude each other. The kernel releases the
lock when its process ends, for whatever reason.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from ..tir.parser import ParseError, parse
from ..tir.program_key import EXAMPLE, family_key, workload_key
from .records import DatabaseError

APPLICATION_ID = 0x54574442
"""The letters TWDB; ``file`` and SQLite tools show it."""

TABLES = ("workloads", "targets", "sessions", "records", "baselines")
VIEWS = ("best_records", "session_progress", "failures_by_reason")

_VERSION_1 = (
    """
CREATE TABLE workloads (
    key TEXT PRIMARY KEY NOT NULL,     -- SHA-256 (hex) of the canonical text
    name TEXT NOT NULL DEFAULT '',
    spec TEXT NOT NULL DEFAULT '',     -- as on the command line, e.g. matmul:M=512,N=512,K=512
    text TEXT NOT NULL,                -- the PrimFunc, as TVMScript
    shapes TEXT NOT NULL DEFAULT '[]', -- JSON: the arguments' name, dtype, shape
    dtype TEXT NOT NULL DEFAULT '',
    flops REAL,                        -- operations of one run
    bytes REAL,                        -- bytes that one run must at least move
    created TEXT NOT NULL
)""",
    """
CREATE TABLE targets (
    key TEXT PRIMARY KEY NOT NULL,     -- fingerprint of hardware and options
    text TEXT NOT NULL,                -- what Target(...) accepts
    cpu TEXT NOT NULL DEFAULT '',
    features TEXT NOT NULL DEFAULT '',
    vector_bits INTEGER,
    num_cores INTEGER,
    versions TEXT NOT NULL DEFAULT '{}',
    created TEXT NOT NULL
)""",
    """
CREATE TABLE sessions (
    id TEXT PRIMARY KEY NOT NULL,
    workload TEXT REFERENCES workloads(key) ON DELETE CASCADE,
    target TEXT REFERENCES targets(key) ON DELETE CASCADE,
    config TEXT NOT NULL DEFAULT '{}', -- JSON: what the tuner was asked
    seed INTEGER,
    trials INTEGER,                    -- how many were asked for
    versions TEXT NOT NULL DEFAULT '{}',
    host TEXT NOT NULL DEFAULT '',
    status TEXT NOT NULL DEFAULT 'running',
    started TEXT NOT NULL,
    finished TEXT
)""",
    """
CREATE TABLE records (
    id INTEGER PRIMARY KEY NOT NULL,
    digest TEXT NOT NULL UNIQUE,       -- SHA-256 (hex) of the content: the same record in every database
    workload TEXT NOT NULL REFERENCES workloads(key) ON DELETE CASCADE,
    target TEXT NOT NULL REFERENCES targets(key) ON DELETE CASCADE,
    session TEXT REFERENCES sessions(id) ON DELETE SET NULL,
    trial INTEGER,                     -- its number in the session
    sketch TEXT NOT NULL DEFAULT '',
    status TEXT NOT NULL,
    error TEXT NOT NULL DEFAULT '',
    run_seconds REAL,                  -- the figure that counts
    min_seconds REAL,
    max_seconds REAL,
    num_times INTEGER NOT NULL DEFAULT 0,
    compile_seconds REAL,
    predicted_seconds REAL,
    codegen_version INTEGER NOT NULL DEFAULT 0,
    times TEXT NOT NULL DEFAULT '[]',  -- JSON: every timing in seconds
    decisions TEXT NOT NULL DEFAULT '{}',
    trace TEXT NOT NULL,               -- JSON: the schedule's trace
    created TEXT NOT NULL,
    CHECK (status <> 'ok' OR run_seconds > 0)
)""",
    "CREATE INDEX records_best ON records (workload, target, status, run_seconds)",
    "CREATE INDEX records_session ON records (session)",
    """
CREATE VIEW best_records AS
SELECT w.name AS name, w.spec AS spec, t.text AS target_text, r.run_seconds AS run_seconds,
       w.flops / r.run_seconds / 1e9 AS gflops, w.bytes / r.run_seconds / 1e9 AS gbytes_per_second,
       r.sketch AS sketch, r.num_times AS num_times, r.created AS created,
       r.id AS record, r.workload AS workload, r.target AS target
FROM records AS r JOIN workloads AS w ON w.key = r.workload JOIN targets AS t ON t.key = r.target
WHERE r.id = (SELECT b.id FROM records AS b
              WHERE b.workload = r.workload AND b.target = r.target AND b.status = 'ok'
              ORDER BY b.run_seconds, b.id LIMIT 1)""",
    """
CREATE VIEW session_progress AS
SELECT s.id AS session, w.name AS name, w.spec AS spec, s.status AS status, s.trials AS trials_asked,
       count(r.id) AS trials_done, count(CASE WHEN r.status = 'ok' THEN 1 END) AS trials_ok,
       min(CASE WHEN r.status = 'ok' THEN r.run_seconds END) AS best_seconds,
       w.flops / min(CASE WHEN r.status = 'ok' THEN r.run_seconds END) / 1e9 AS best_gflops,
       s.host AS host, s.started AS started, s.finished AS finished
FROM sessions AS s LEFT JOIN workloads AS w ON w.key = s.workload LEFT JOIN records AS r ON r.session = s.id
GROUP BY s.id""",
    """
CREATE VIEW failures_by_reason AS
SELECT w.name AS name, w.spec AS spec, r.status AS status, r.sketch AS sketch, count(*) AS records,
       min(r.error) AS example, max(r.created) AS last, r.workload AS workload, r.target AS target
FROM records AS r JOIN workloads AS w ON w.key = r.workload
WHERE r.status <> 'ok'
GROUP BY r.workload, r.target, r.status, r.sketch""",
)


def _first_schema(conn: sqlite3.Connection) -> None:
    for statement in _VERSION_1:
        conn.execute(statement.strip())


def _add_structure(conn: sqlite3.Connection) -> None:
    """Version 2: workloads are looked up by their structure, so that the names in a program do not matter."""
    conn.execute("ALTER TABLE workloads ADD COLUMN structure TEXT NOT NULL DEFAULT ''")
    conn.execute("CREATE INDEX workloads_structure ON workloads (structure)")
    for row in conn.execute("SELECT key, text FROM workloads").fetchall():
        conn.execute("UPDATE workloads SET structure = ? WHERE key = ?", [keys_of(row[1])["structure"], row[0]])


def _add_liveness(conn: sqlite3.Connection) -> None:
    """Version 3: a session says which process runs it, and when it last wrote. A killed one can thus be told."""
    conn.execute("ALTER TABLE sessions ADD COLUMN pid INTEGER")
    conn.execute("ALTER TABLE sessions ADD COLUMN heartbeat TEXT")


_MACHINE_VIEWS = (
    """
CREATE VIEW best_records AS
SELECT w.name AS name, w.spec AS spec, t.text AS target_text, r.run_seconds AS run_seconds,
       w.flops / r.run_seconds / 1e9 AS gflops, w.bytes / r.run_seconds / 1e9 AS gbytes_per_second,
       r.sketch AS sketch, r.num_times AS num_times, r.created AS created,
       r.id AS record, r.workload AS workload, r.target AS target,
       (SELECT s.roofline_seconds FROM sessions AS s WHERE s.workload = r.workload AND s.target = r.target
        AND s.roofline_seconds IS NOT NULL ORDER BY s.started DESC LIMIT 1) / r.run_seconds AS share_of_roofline
FROM records AS r JOIN workloads AS w ON w.key = r.workload JOIN targets AS t ON t.key = r.target
WHERE r.id = (SELECT b.id FROM records AS b
              WHERE b.workload = r.workload AND b.target = r.target AND b.status = 'ok'
              ORDER BY b.run_seconds, b.id LIMIT 1)""",
    """
CREATE VIEW session_progress AS
SELECT s.id AS session, w.name AS name, w.spec AS spec, s.status AS status, s.trials AS trials_asked,
       count(r.id) AS trials_done, count(CASE WHEN r.status = 'ok' THEN 1 END) AS trials_ok,
       min(CASE WHEN r.status = 'ok' THEN r.run_seconds END) AS best_seconds,
       w.flops / min(CASE WHEN r.status = 'ok' THEN r.run_seconds END) / 1e9 AS best_gflops,
       s.roofline_seconds / min(CASE WHEN r.status = 'ok' THEN r.run_seconds END) AS share_of_roofline,
       s.ended AS ended, s.host AS host, s.started AS started, s.finished AS finished
FROM sessions AS s LEFT JOIN workloads AS w ON w.key = s.workload LEFT JOIN records AS r ON r.session = s.id
GROUP BY s.id""",
)


def _add_machine(conn: sqlite3.Connection) -> None:
    """Version 4: the tables keep why a session ended, the machine's limits, and other contenders' times. A target has
    the name that LLVM has for its CPU, and contenders' times stand beside the records."""
    for column in ("ended TEXT NOT NULL DEFAULT ''", "peak_flops REAL", "bandwidth REAL", "roofline_seconds REAL",
                   "limited_by TEXT NOT NULL DEFAULT ''"):  # fmt: skip
        conn.execute(f"ALTER TABLE sessions ADD COLUMN {column}")
    conn.execute("ALTER TABLE targets ADD COLUMN llvm_cpu TEXT NOT NULL DEFAULT ''")
    conn.execute(
        "CREATE TABLE baselines (workload TEXT NOT NULL REFERENCES workloads(key) ON DELETE CASCADE, "
        "target TEXT NOT NULL REFERENCES targets(key) ON DELETE CASCADE, name TEXT NOT NULL, seconds REAL NOT NULL, "
        "created TEXT NOT NULL, PRIMARY KEY (workload, target, name))"
    )
    conn.execute("CREATE INDEX sessions_workload ON sessions (workload, target)")
    for view in ("best_records", "session_progress"):
        conn.execute(f"DROP VIEW {view}")
    for statement in _MACHINE_VIEWS:
        conn.execute(statement.strip())


def _add_place(conn: sqlite3.Connection) -> None:
    """Version 5: a record says on which machine it was measured, when that was not the one of its session."""
    conn.execute("ALTER TABLE records ADD COLUMN machine TEXT NOT NULL DEFAULT '{}'")


def _add_versions_index(conn: sqlite3.Connection) -> None:
    """Version 6: the fastest record of one code generator is found without reading the others."""
    conn.execute("CREATE INDEX records_version ON records (workload, target, status, codegen_version, run_seconds)")


def _add_family(conn: sqlite3.Connection) -> None:
    """Version 7: what was measured of a function at several examples of its symbolic sizes is found by the function."""
    conn.execute("ALTER TABLE workloads ADD COLUMN family TEXT NOT NULL DEFAULT ''")
    conn.execute("CREATE INDEX workloads_family ON workloads (family)")
    for key, text in conn.execute("SELECT key, text FROM workloads WHERE text LIKE ?", [f"%{EXAMPLE}%"]).fetchall():
        conn.execute("UPDATE workloads SET family = ? WHERE key = ?", [keys_of(text)["family"], key])


def keys_of(text: str) -> dict[str, str]:
    """Returns the keys by which a program given as text is looked up. They are empty when the text is none.

    ``structure``: its :func:`workload_key`; ``family``: its :func:`family_key`.
    """
    try:
        func = parse(text)
    except ParseError:
        return {"structure": "", "family": ""}
    return {"structure": workload_key(func), "family": family_key(func)}


MIGRATIONS = (
    _first_schema, _add_structure, _add_liveness, _add_machine, _add_place, _add_versions_index, _add_family,
)  # fmt: skip
"""Step ``i`` takes a database from version ``i`` to ``i + 1``. Steps are never edited once released."""

SCHEMA_VERSION = len(MIGRATIONS)


def migrate(conn: sqlite3.Connection) -> bool:
    """Run the steps that ``conn`` has not seen; whether there were any. The caller holds a write transaction."""
    version = conn.execute("PRAGMA user_version").fetchone()[0]
    for number in range(version, SCHEMA_VERSION):
        MIGRATIONS[number](conn)
    if version == SCHEMA_VERSION:
        return False
    conn.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    conn.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    return True


try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None  # type: ignore[assignment]


log = logging.getLogger("tilewright")

_SILENT_SECONDS = 1.0
"""A wait for the lock that takes longer is said."""

if sys.platform == "win32":
    import msvcrt

    def _try_lock(fd: int) -> None:
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)

    def _unlock(fd: int) -> None:
        os.lseek(fd, 0, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)
else:
    import fcntl

    def _try_lock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)


class FileLock:
    """A lock among processes, and among the threads of this one; the same thread may take it again.

    ``timeout`` is in seconds; :class:`DatabaseError` when another process holds the lock for longer. ``path`` None
    locks among threads only.
    """

    def __init__(self, path: str | None, timeout: float = 60.0) -> None:
        self.path = path
        self.timeout = timeout
        self._threads = threading.RLock()
        self._fd = -1
        self._depth = 0

    def __enter__(self) -> FileLock:
        self._threads.acquire()
        try:
            if self._depth == 0 and self.path is not None:
                self._take(self.path)
            self._depth += 1
        except BaseException:
            self._threads.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth == 0 and self._fd >= 0:
            fd, self._fd = self._fd, -1
            _unlock(fd)
            os.close(fd)
        self._threads.release()

    def _take(self, path: str) -> None:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
        except OSError as error:
            raise DatabaseError(f"cannot write beside the database: {path}: {error.strerror}") from error
        start = time.monotonic()
        deadline = start + self.timeout
        pause = 0.001
        said = False
        try:
            while True:
                try:
                    _try_lock(fd)
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise DatabaseError(
                            f"another process has held {path} for {self.timeout:g} s; "
                            "wait for it to finish, or end it if it hangs"
                        ) from None
                    if not said and time.monotonic() - start > _SILENT_SECONDS:
                        said = True
                        log.warning("waiting for another process that writes (%s), at most %g s", path, self.timeout)
                    time.sleep(pause)
                    pause = min(2 * pause, 0.05)
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd


BUSY_SECONDS = 30.0
_NEAR_BYTES = 256 << 10
"""Less room than this counts as none: a transaction and the index of the log need about as much."""
_QUICK_CHECK_BYTES = 4 << 20
"""Larger files are not read as a whole when they are opened; what is damaged there shows when it is read, and
``Database.check`` reads everything."""
_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "lustre", "gpfs", "ceph", "afs"}


@contextlib.contextmanager
def say_what(path: str) -> Iterator[None]:
    """Turn SQLite's errors into :class:`DatabaseError` with the file's name and what to try."""
    try:
        yield
    except UnicodeDecodeError as error:  # SQLite's own message quotes the bytes that it could not read
        raise DatabaseError(_damaged(path, "its tables cannot be read")) from error
    except sqlite3.Error as error:
        text = str(error)
        if "malformed" in text or "not a database" in text or "disk image" in text or "corrupt" in text:
            raise DatabaseError(_damaged(path, text)) from error
        if "locked" in text or "busy" in text:
            raise DatabaseError(f"{path} is locked by another program ({text}); try again when it is done") from error
        if "readonly" in text:
            raise DatabaseError(f"{path} cannot be written: {text}") from error
        if "full" in text or "disk I/O" in text:
            raise DatabaseError(f"{path}: {text}: {_why_not_written(path)}. {_KEPT}") from error
        raise DatabaseError(f"{path}: {text}") from error


_KEPT = "Records that were stored before are kept"


def _why_not_written(path: str) -> str:
    """Returns what keeps SQLite from writing: the limit on sizes of files, a full disk, or a failure."""
    sizes = [os.path.getsize(name) for name in (path, f"{path}-wal", f"{path}-journal") if os.path.exists(name)]
    limit = resource.RLIM_INFINITY if resource is None else resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if resource is not None and limit != resource.RLIM_INFINITY and max(sizes, default=0) + _NEAR_BYTES >= limit:
        return f"files of this process may have at most {limit} bytes (ulimit -f)"
    with contextlib.suppress(OSError):
        if shutil.disk_usage(Path(path).absolute().parent).free < _NEAR_BYTES:
            return "the disk has no room left"
    return "the disk or its file system failed"


def _damaged(path: str, what: str) -> str:
    return (
        f"{path} is damaged ({what}); nothing was changed. Keep the file: `sqlite3 {path} .recover` may save its "
        "records; start a new database meanwhile"
    )


def connect(path: str, readonly: bool, lock: FileLock) -> sqlite3.Connection:
    """Returns a connection to ``path`` whose schema is ours and of our version.

    A new or empty file gets the schema; an older one is migrated (``readonly``: a copy of it in memory). Raises
    :class:`DatabaseError`, and leaves the file as it is, when it is something else or damaged.
    """
    with say_what(path):
        if path == ":memory:":
            conn = _settle(sqlite3.connect(path, isolation_level=None, check_same_thread=False))
            conn.execute("PRAGMA foreign_keys=ON")
            migrate(conn)
            return conn
        fresh = _look(path)
        if readonly:
            if fresh:
                raise DatabaseError(
                    f"{path} is empty: no database to read" if os.path.exists(path) else f"there is no database {path}"
                )
            return _open_readonly(path)
        parent = Path(path).absolute().parent
        if not parent.is_dir():
            raise DatabaseError(f"cannot create {path}: there is no folder {parent}")
        with lock:
            if not _look(path):
                with contextlib.closing(_open_readonly(path, migrating=True)):
                    pass  # damage and foreign schemas show before the first write
            return _open_writable(path)


def _look(path: str) -> bool:
    """Read the file's header. True for a file that is not there or empty; an error when it is not ours."""
    try:
        with open(path, "rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        return True
    except OSError as error:
        raise DatabaseError(f"cannot read {path}: {error.strerror}") from error
    if not header:
        return True
    if len(header) < 100 or not header.startswith(b"SQLite format 3\0"):
        raise DatabaseError(f"{path} is not a SQLite database, or its first page is damaged; nothing was changed")
    if os.path.exists(path + "-journal"):
        return False  # killed while it was being created: SQLite rolls it back when it opens the file
    application, version = int.from_bytes(header[68:72], "big"), int.from_bytes(header[60:64], "big")
    if application != APPLICATION_ID:
        raise DatabaseError(f"{path} is a SQLite database, but not one of Tilewright's; nothing was changed")
    if version > SCHEMA_VERSION:
        raise DatabaseError(
            f"{path} was written by a newer Tilewright (schema {version}; this one knows {SCHEMA_VERSION}); upgrade "
            "with `pip install -U tilewright`"
        )
    return False


def _open_readonly(path: str, migrating: bool = False) -> sqlite3.Connection:
    if not os.path.exists(path):
        raise DatabaseError(f"there is no database {path}")
    uri = Path(path).absolute().as_uri() + "?mode=ro"
    conn = _settle(sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False))
    try:
        try:
            conn.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.OperationalError:
            wal = path + "-wal"
            if os.access(Path(path).absolute().parent, os.W_OK) or (os.path.exists(wal) and os.path.getsize(wal)):
                raise
            conn.close()  # a folder that cannot be written has no room for the log's index; no other process can write either
            conn = _settle(sqlite3.connect(uri + "&immutable=1", uri=True, isolation_level=None))
        try:
            _inspect(conn, path, migrating)
        except _OlderSchema:
            conn = _brought_up(conn)
    except BaseException:
        conn.close()
        raise
    return conn


class _OlderSchema(Exception):
    """The file has an older schema, and it was opened readonly, so it may not be changed."""


def _brought_up(old: sqlite3.Connection) -> sqlite3.Connection:
    """Returns a copy of ``old`` in memory with today's schema; the file stays as it is."""
    conn = _settle(sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False))
    with contextlib.closing(old):
        old.backup(conn)
    migrate(conn)
    conn.execute("PRAGMA query_only=ON")
    return conn


def _open_writable(path: str) -> sqlite3.Connection:
    conn = _settle(sqlite3.connect(path, isolation_level=None, check_same_thread=False))
    try:
        conn.execute("PRAGMA foreign_keys=ON")
        conn.execute("PRAGMA wal_autocheckpoint=0")
        conn.execute("BEGIN IMMEDIATE")
        try:
            migrate(conn)
        except BaseException:
            conn.execute("ROLLBACK")
            raise
        conn.execute("COMMIT")
        # Only now: the header of a database made in WAL mode from the start would sit in the log until a checkpoint.
        mode = "DELETE" if _on_network(path) else "WAL"
        conn.execute(f"PRAGMA journal_mode={mode}").fetchone()
        conn.execute("PRAGMA synchronous=NORMAL" if mode == "WAL" else "PRAGMA synchronous=FULL")
        _inspect(conn, path, migrating=False, check_pages=False)
    except BaseException:
        conn.close()
        raise
    return conn


def _settle(conn: sqlite3.Connection) -> sqlite3.Connection:
    """Returns the connection after the settings that all connections have: rows by name, a timeout, and an untrusted
    schema."""
    conn.row_factory = sqlite3.Row
    for pragma in (f"busy_timeout={int(BUSY_SECONDS * 1000)}", "trusted_schema=OFF", "cell_size_check=ON",
                   "mmap_size=0", "recursive_triggers=OFF"):  # fmt: skip
        conn.execute(f"PRAGMA {pragma}")
    if sys.version_info >= (3, 11):
        conn.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 64 << 20)
        conn.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    return conn


def _inspect(conn: sqlite3.Connection, path: str, migrating: bool, check_pages: bool = True) -> None:
    """Refuse a damaged file, a schema that is not ours, and triggers, which would run on our writes."""
    conn.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if check_pages and os.path.getsize(path) <= _QUICK_CHECK_BYTES:
        verdict = conn.execute("PRAGMA quick_check(1)").fetchone()[0]
        if verdict != "ok":
            raise DatabaseError(_damaged(path, " ".join(verdict.split())))
    triggers = [row[0] for row in conn.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")]
    if triggers:
        raise DatabaseError(f"{path} has triggers ({', '.join(triggers)}), which no database of Tilewright's has")
    version = conn.execute("PRAGMA user_version").fetchone()[0]
    if version < SCHEMA_VERSION:
        if migrating:
            return
        raise _OlderSchema
    found = shape_of(conn)
    for name, columns in _expected().items():
        if found.get(name) != columns:
            raise DatabaseError(f"{path}: table or view {name!r} is not what Tilewright makes it; nothing was changed")


def shape_of(conn: sqlite3.Connection) -> dict[str, tuple[tuple[str, str], ...]]:
    """Returns the tables and views of ours that exist, each with the names and types of its columns."""
    shapes = {}
    for name in (*TABLES, *VIEWS):
        rows = conn.execute(f"PRAGMA table_info({name})").fetchall()
        shapes[name] = tuple([(row[1], row[2]) for row in rows])
    return shapes


def _expected() -> dict[str, tuple[tuple[str, str], ...]]:
    if not _EXPECTED:
        with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as conn:
            migrate(conn)
            _EXPECTED.update(shape_of(conn))
    return _EXPECTED


_EXPECTED: dict[str, tuple[tuple[str, str], ...]] = {}


def _on_network(path: str) -> bool:
    """Returns whether the file lies on a network file system, where write-ahead logging does not work (Linux only)."""
    try:
        with open("/proc/mounts", encoding="utf-8") as file:
            mounts = [line.split()[1:3] for line in file]
    except OSError:
        return False
    place = str(Path(path).resolve())
    best = max((m for m in mounts if place.startswith(m[0].rstrip("/") + "/")), key=lambda m: len(m[0]), default=None)
    return best is not None and best[1] in _NETWORK
