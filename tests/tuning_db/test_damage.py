"""Files that are damaged, foreign, newer, or meant to hurt: said so, and left as they are."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import subprocess
import sys

import pytest

from tilewright.tuning_db import Database, DatabaseError, TargetRecord, TuningRecord, WorkloadRecord


@pytest.fixture
def path(tmp_path):
    path = str(tmp_path / "tuning.db")
    with Database(path) as db:
        key = db.add_workload(WorkloadRecord(key="w", text="text"))
        target = db.add_target(TargetRecord(key="t", text="native"))
        db.add_records(
            [TuningRecord(key, target, trace='{"pad":"%s"}' % ("x" * 500), times=(1e-3,), trial=i) for i in range(200)]
        )
    return path


def digest(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def refused(path, message, readonly):
    before = digest(path)
    with pytest.raises(DatabaseError, match=message):
        Database(path, readonly=readonly)
    assert digest(path) == before
    assert not os.path.exists(path + "-wal") or os.path.getsize(path + "-wal") == 0


@pytest.mark.parametrize("readonly", [False, True])
def test_not_a_database(tmp_path, readonly):
    path = str(tmp_path / "notes.txt")
    with open(path, "w") as file:
        file.write("shopping list\n" * 50)
    refused(path, r"notes.txt is not a SQLite database, or its first page is damaged; nothing was changed", readonly)


@pytest.mark.parametrize("readonly", [False, True])
def test_another_programs_database(tmp_path, readonly):
    path = str(tmp_path / "history.db")
    with sqlite3.connect(path) as conn:
        conn.execute("CREATE TABLE visits (url)")
    conn.close()
    refused(path, "not one of Tilewright's; nothing was changed", readonly)


@pytest.mark.parametrize("readonly", [False, True])
@pytest.mark.parametrize("where", [100, 4096, 20 * 4096])
def test_overwritten_pages(path, where, readonly):
    with open(path, "r+b") as file:
        file.seek(where)
        file.write(b"\xa5" * 3000)
    refused(path, r"tuning.db is damaged \(.*\); nothing was changed", readonly)


@pytest.mark.parametrize("readonly", [False, True])
def test_cut_short(path, readonly):
    os.truncate(path, os.path.getsize(path) // 2)
    refused(path, r"is damaged|not a database", readonly)


def test_from_a_newer_version(path):
    with sqlite3.connect(path) as conn:
        conn.execute("PRAGMA user_version = 99")
        conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    conn.close()
    refused(path, r"written by a newer Tilewright \(schema 99; this one knows \d+\)", False)


def test_triggers_are_refused(path):
    with sqlite3.connect(path) as conn:
        conn.execute("CREATE TRIGGER spy AFTER INSERT ON records BEGIN DELETE FROM workloads; END")
    conn.close()
    refused(path, r"has triggers \(spy\)", False)


def test_a_changed_table_is_refused(path):
    with sqlite3.connect(path) as conn:
        conn.execute("ALTER TABLE targets RENAME COLUMN text TO words")
    conn.close()
    refused(path, "table or view 'targets' is not what Tilewright makes it", False)


def test_damage_in_a_row_is_named(path):
    with sqlite3.connect(path) as conn:
        conn.execute("UPDATE records SET times = 'soon'")
    conn.close()
    with Database(path) as db, pytest.raises(DatabaseError, match="a row of TuningRecord is damaged"):
        db.records()


def test_an_unwritable_folder_can_be_read(path):
    folder = os.path.dirname(path)
    os.chmod(folder, 0o555)
    try:
        with Database(path, readonly=True) as db:
            assert db.count() == 200
        if os.getuid() != 0:
            with pytest.raises(DatabaseError, match="cannot write beside the database"):
                Database(path)
    finally:
        os.chmod(folder, 0o755)


@pytest.mark.parametrize("table", ["workloads", "targets", "records"])
def test_a_check_of_a_file_whose_table_goes(path, table):
    with Database(path, readonly=True) as db:
        with sqlite3.connect(path) as conn:
            conn.execute(f"DROP TABLE {table}")
        conn.close()
        problems = db.check()
    assert any(table in p and p.startswith("file: ") for p in problems)


WRITER = """
import resource, sys
from tilewright.tuning_db import Database, DatabaseError, TuningRecord
path, limit = sys.argv[1], int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
stored = 0
try:
    with Database(path) as db:
        for trial in range(100_000):
            db.add_record(TuningRecord("w", "t", trace='{"pad":"%s"}' % ("x" * 20_000), times=(1e-3,), trial=trial))
            stored += 1
except DatabaseError as error:
    print(stored, error)
"""


def test_a_limit_on_the_size_of_files_is_named_and_no_record_is_lost(path):
    pytest.importorskip("resource")
    limit = os.path.getsize(path) + (1 << 20)
    done = subprocess.run([sys.executable, "-c", WRITER, path, str(limit)], capture_output=True, text=True, timeout=120)
    stored, _, message = done.stdout.partition(" ")
    assert f"{path}: disk I/O error: files of this process may have at most {limit} bytes (ulimit -f)" in message
    assert "stored before are kept" in message and int(stored) > 10
    with Database(path) as db:
        assert db.count() == 200 + int(stored) and db.check() == []


def test_a_disk_without_room_is_named(path, monkeypatch):
    """SQLite says "disk I/O error" as well when there is no room for the index of its log."""
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(1 << 30, 1 << 30, 0))
    with (
        Database(path) as db,
        pytest.raises(DatabaseError, match=r"tuning.db: disk I/O error: the disk has no room left"),
    ):
        with db.writing():
            raise sqlite3.OperationalError("disk I/O error")
