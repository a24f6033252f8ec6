"""This module defines the schema and its migrations: numbered steps, each of which runs once.

A database carries ``PRAGMA application_id`` = :data:`APPLICATION_ID` and, in ``PRAGMA user_version``, the number of
steps that it has seen. docs/reference/database.md describes the tables; the columns beside the JSON are there so that any SQLite
tool can sort and plot them.
"""

from __future__ import annotations

import sqlite3

from ..tir.parser import ParseError, parse
from ..tir.program_key import workload_key

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
        conn.execute("UPDATE workloads SET structure = ? WHERE key = ?", [structure_of(row[1]), row[0]])


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


def structure_of(text: str) -> str:
    """Returns the :func:`workload_key` of a program given as text; empty when the text is not a program."""
    try:
        return workload_key(parse(text))
    except ParseError:
        return ""


MIGRATIONS = (_first_schema, _add_structure, _add_liveness, _add_machine, _add_place, _add_versions_index)
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
