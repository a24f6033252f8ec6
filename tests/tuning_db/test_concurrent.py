"""Several processes write at once, and some die at it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from tilewright.tuning_db import Database, DatabaseError, TargetRecord, TuningRecord, WorkloadRecord
from tilewright.tuning_db.connection import FileLock

WRITER = """
import sys
from tilewright.tuning_db import Database, TargetRecord, TuningRecord, WorkloadRecord
path, who, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with Database(path) as db:
    db.add_workload(WorkloadRecord(key="w", text="text"))
    db.add_target(TargetRecord(key="t", text="native"))
    for i in range(count):
        db.add_record(TuningRecord("w", "t", trace="{}", times=(1e-3,), trial=i, sketch=who))
        print(i, flush=True)
"""


def start(path, who, count):
    return subprocess.Popen(
        [sys.executable, "-P" if sys.version_info >= (3, 11) else "-B", "-c", WRITER, path, who, str(count)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=os.path.dirname(path),
    )


def test_writers_take_turns(tmp_path):
    path = str(tmp_path / "tuning.db")
    writers = [start(path, f"writer {i}", 40) for i in range(3)]
    for writer in writers:
        _, errors = writer.communicate(timeout=120)
        assert writer.returncode == 0, errors
    with Database(path) as db:
        assert db.count() == 120 and db.count("workloads") == 1
        assert db.check() == []
        rows = db.query("SELECT sketch, count(*) AS n FROM records GROUP BY sketch")
        assert [row["n"] for row in rows] == [40, 40, 40]


def test_a_kill_loses_at_most_what_was_in_flight(tmp_path):
    path = str(tmp_path / "tuning.db")
    for who in range(3):
        writer = start(path, str(who), 100_000)
        said = [writer.stdout.readline() for _ in range(7 * (who + 1))]
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read()
        writer.wait()
        acknowledged = len(said) + rest.count("\n")
        with Database(path) as db:
            assert db.check() == []
            stored = len([r for r in db.records() if r.sketch == str(who)])
            assert acknowledged <= stored <= acknowledged + 1


def test_a_lock_held_for_too_long_is_named(tmp_path):
    path = str(tmp_path / "tuning.db")
    with Database(path, timeout=0.05) as db:
        db.add_workload(WorkloadRecord(key="w", text="text"))
        with FileLock(path + ".lock"):
            with pytest.raises(DatabaseError, match=r"another process has held .*tuning.db.lock for 0.05 s"):
                db.add_target(TargetRecord(key="t", text="native"))
            assert db.count("workloads") == 1  # reading goes on
        db.add_target(TargetRecord(key="t", text="native"))


def test_threads_of_one_process_share_a_database(tmp_path):
    import threading

    with Database(tmp_path / "tuning.db") as db:
        db.add_workload(WorkloadRecord(key="w", text="text"))
        db.add_target(TargetRecord(key="t", text="native"))

        def write(who):
            for i in range(20):
                db.add_record(TuningRecord("w", "t", trace="{}", times=(1e-3,), trial=i, sketch=who))

        threads = [threading.Thread(target=write, args=(str(i),)) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert db.count() == 60


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_is_told_to_open_it_again(tmp_path):
    with Database(tmp_path / "tuning.db") as db:
        child = os.fork()
        if child == 0:
            try:
                db.count()
            except DatabaseError as error:
                os._exit(0 if "opened by another process" in str(error) else 2)
            os._exit(1)
        deadline = time.monotonic() + 30
        done = (0, 0)
        while done[0] == 0 and time.monotonic() < deadline:
            done = os.waitpid(child, os.WNOHANG)
            time.sleep(0.01)
        assert os.waitstatus_to_exitcode(done[1]) == 0
        assert db.count() == 0


def test_a_readers_view_outlives_a_writer(tmp_path):
    path = str(tmp_path / "tuning.db")
    first = Database(path)
    first.add_workload(WorkloadRecord(key="w", text="text"))
    with Database(path, readonly=True) as reader:
        first.close()
        assert reader.count("workloads") == 1


def test_a_wait_for_the_lock_is_said(tmp_path, caplog, monkeypatch):
    import threading

    from tilewright.tuning_db import connection

    monkeypatch.setattr(connection, "_SILENT_SECONDS", 0.01)
    path = str(tmp_path / "t.lock")
    held = connection.FileLock(path)
    with held:
        release = threading.Timer(0.2, lambda: connection._unlock(held._fd))
        release.start()
        with connection.FileLock(path):
            pass
    assert caplog.text.count("waiting for another process that writes") == 1
