"""The database: storing, finding the best, transactions, what is refused."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.tir import parse, workload_key
from tilewright.tuning_db import (
    SCHEMA_VERSION,
    Database,
    DatabaseError,
    TargetRecord,
    TuningRecord,
    WorkloadRecord,
    connection,
)
from tilewright.tuning_db.connection import APPLICATION_ID

W = WorkloadRecord(key="a" * 64, text="text", name="matmul", spec="matmul:M=7", flops=2e6, bytes=3e6, dtype="float32")
T = TargetRecord(key="cpu-1", text="native", vector_bits=512, num_cores=1)


def record(seconds=None, **kw):
    kw = {"workload": W.key, "target": T.key, "trace": '{"format":1,"insts":[]}', "created": "2026-01-01", **kw}
    if seconds is not None:
        kw["times"] = (seconds,)
    return TuningRecord(**kw)


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "tuning.db")


@pytest.fixture
def db(path):
    with Database(path) as db:
        db.add_workload(W)
        db.add_target(T)
        yield db


def test_round_trip_keeps_every_field(db):
    session = db.start_session(W, T, config={"trials": 8}, seed=3, trials=8, host="h")
    one = record(
        times=(3e-3, 1e-3, 2e-3), decisions={"m": 14, "tile": [2, 7]}, sketch="tiling", session=session, trial=4,
        compile_seconds=0.05, predicted_seconds=1.5e-3, codegen_version=7,
    )  # fmt: skip
    number = db.add_record(one)
    (back,) = db.records(W)
    assert back.id == number and back.run_seconds == 2e-3
    assert back.digest() == one.digest()
    assert (back.times, back.decisions, back.session) == (one.times, {"m": 14, "tile": [2, 7]}, session)
    assert db.workload(W) == W and db.targets() == [T]


def test_a_record_measured_anew_takes_its_place(db):
    slow, fast = db.add_records([record(3e-3), record(1e-3)])
    first, second = db.records()
    db.amend([replace(second, times=(5e-3, 4e-3), run_seconds=4e-3)])
    assert db.count() == 2 and db.best(W, T).id == slow
    again = db.records()[1]
    assert (again.id, again.times, again.run_seconds) == (fast, (5e-3, 4e-3), 4e-3)
    assert not db.check()
    with pytest.raises(DatabaseError, match="no record 77 to amend"):
        db.amend([replace(first, id=77)])


def test_best_is_the_fastest_correct_one(db):
    db.add_records([record(3e-3), record(1e-3), record(1e-4, status="wrong_result", error="off by 2"), record(2e-3)])
    assert db.best(W, T).run_seconds == 1e-3
    assert db.best(W.key, "cpu-1").run_seconds == 1e-3
    assert db.best(W.key, "native").run_seconds == 1e-3
    assert db.best("b" * 64, T) is None
    assert db.best(W, "somewhere else") is None


def test_a_text_that_names_two_machines_is_ambiguous(db):
    db.add_target(TargetRecord(key="cpu-2", text="native"))
    with pytest.raises(LookupError, match=r"2 machines .* go by 'native'; pass Target\('native'\)"):
        db.best(W, "native")


def test_the_same_record_is_stored_once(db):
    assert db.add_record(record(1e-3)) == db.add_record(record(1e-3))
    assert db.count() == 1


def test_failures_have_a_reason_and_no_figure(db):
    db.add_record(record(status="timeout", error="ran longer than 2 s"))
    (back,) = db.records(status="timeout")
    assert not back.ok and back.run_seconds is None and back.error == "ran longer than 2 s"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"status": "ok"}, "has at least one time"),
        ({"times": (float("nan"),)}, "finite and above zero"),
        ({"times": (-1.0,)}, "finite and above zero"),
        ({"times": (1.0,), "status": "Not A Word"}, "is not a status; write one of ok, schedule_error"),
    ],
)
def test_records_that_make_no_sense_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        record(**fields)


def test_numpy_numbers_become_plain_ones(db):
    import numpy as np

    db.add_record(record(times=tuple(np.array([1e-3, 2e-3])), decisions={"m": np.int64(3)}))
    assert db.records()[0].decisions == {"m": 3}


def test_anything_but_text_and_numbers_is_refused(db):
    with pytest.raises(TypeError, match="object does not go into a record"):
        db.add_record(record(1e-3, decisions={"m": object()}))
    assert db.count() == 0


def test_a_record_needs_its_workload(db):
    with pytest.raises(DatabaseError, match="add its workload, target and session first"):
        db.add_record(record(1e-3, workload="c" * 64))


def test_a_transaction_is_all_or_nothing(db):
    with pytest.raises(KeyError), db.writing():
        db.add_record(record(1e-3))
        raise KeyError
    assert db.count() == 0
    db.add_record(record(1e-3))
    assert db.count() == 1


def test_views_show_what_the_tables_hold(db):
    session = db.start_session(W, T, trials=3)
    db.add_records([record(2e-3, session=session), record(1e-3, session=session, trial=1)])
    db.add_record(record(status="crash", error="signal 11", session=session))
    db.finish_session(session)
    (best,) = db.query("SELECT * FROM best_records")
    assert best["run_seconds"] == 1e-3 and best["gflops"] == pytest.approx(2.0) and best["target_text"] == "native"
    (progress,) = db.query("SELECT * FROM session_progress")
    assert (progress["trials_done"], progress["trials_ok"], progress["best_seconds"]) == (3, 2, 1e-3)
    assert progress["status"] == "done" and progress["finished"]
    (failure,) = db.query("SELECT * FROM failures_by_reason")
    assert (failure["status"], failure["records"], failure["example"]) == ("crash", 1, "signal 11")


def test_any_sqlite_tool_can_read_it(db, path):
    db.add_record(record(1e-3))
    db.close()
    with sqlite3.connect(path) as conn:
        assert conn.execute("PRAGMA application_id").fetchone()[0] == APPLICATION_ID
        assert conn.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION
        assert conn.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        assert conn.execute("SELECT run_seconds FROM best_records").fetchall() == [(1e-3,)]


def test_readers_do_not_write(db, path):
    db.add_record(record(1e-3))
    with Database(path, readonly=True) as reader:
        assert reader.best(W, T).run_seconds == 1e-3
        with pytest.raises(DatabaseError, match="opened for reading only"):
            reader.add_record(record(2e-3))
        db.add_record(record(5e-4))
        assert reader.best(W, T).run_seconds == 5e-4


def test_reading_what_is_not_there(path):
    with pytest.raises(DatabaseError, match="there is no database"):
        Database(path, readonly=True)
    open(path, "w").close()
    with pytest.raises(DatabaseError, match="is empty: no database to read"):
        Database(path, readonly=True)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(DatabaseError, match="there is no folder"):
        Database(tmp_path / "nowhere" / "tuning.db")


def test_after_close(db):
    db.close()
    db.close()
    with pytest.raises(DatabaseError, match="is closed"):
        db.records()


def test_memory_database_of_our_own():
    with Database(":memory:") as db:
        db.add_workload(W)
        db.add_target(T)
        db.add_record(record(1e-3))
        assert db.best(W, T) is not None
    with Database(":memory:") as other:
        assert other.count() == 0


def test_long_logs_are_folded_into_the_file(db, path):
    import os

    big = "x" * 300_000
    for i in range(30):
        db.add_record(record(1e-3, error=big, trial=i))
    assert os.path.getsize(path + "-wal") < 8 << 20
    assert os.path.getsize(path) > 1 << 20


def test_prune_keeps_the_best(db):
    db.add_records([record(t * 1e-3) for t in range(1, 14)])
    db.add_record(record(status="crash"))
    assert db.prune(keep=7, dry_run=True) == 7 and db.count() == 14
    assert db.prune(keep=7) == 7
    assert [r.run_seconds for r in db.records(order="run_seconds")] == [t * 1e-3 for t in range(1, 8)]
    with pytest.raises(ValueError, match="never drops the best record"):
        db.prune(keep=0)


def test_check_finds_what_was_changed_behind_our_back(db, path):
    db.add_records([record(1e-3), record(2e-3, trial=1)])
    assert db.check() == []
    with sqlite3.connect(path) as conn:
        conn.execute("UPDATE records SET times = '[0.5]' WHERE id = 2")
    assert [re.sub(r"\d+", "N", p) for p in db.check()] == [
        "records N: the figures do not fit the timings",
        "records N: changed since it was written",
    ]
    with sqlite3.connect(path) as conn:
        conn.execute("UPDATE records SET trace = '[' WHERE id = 1")
        conn.execute("DELETE FROM targets")
    problems = db.check()
    assert any("trace: no JSON" in p for p in problems) and any("that is not there" in p for p in problems)


@pytest.mark.parametrize("column", ["times", "decisions", "machine", "trace"])
@pytest.mark.parametrize("value", ["null", "7", '"text"', '["a"]', '{"a": 1}', "[[1]]"])
def test_check_names_json_of_another_kind(db, path, column, value):
    db.add_records([record(1e-3)])
    with sqlite3.connect(path) as conn:
        conn.execute(f"UPDATE records SET {column} = ?", [value])
    found = db.check()
    if value.startswith("{") and column != "times":
        assert found == [] or "changed since it was written" in found[0]
    else:
        assert len(found) == 1 and re.match(rf"records 1: {column}: (not a JSON|timings that are)", found[0])


@pytest.mark.parametrize("table, column, value", [
    ("workloads", "text", b"def"), ("workloads", "created", b"7"), ("records", "trace", b"[]"), ("records", "trial", "x"),
])  # fmt: skip
def test_values_of_another_type_are_damage(db, path, table, column, value):
    db.add_records([record(1e-3)])
    with sqlite3.connect(path) as conn:
        conn.execute(f"UPDATE {table} SET {column} = ?", [value])
    read = db.workloads if table == "workloads" else db.records
    with pytest.raises(DatabaseError, match=f"damaged: {column} cannot be"):
        read()


@pytest.mark.parametrize("change", ["compile_seconds = 9e999", "times = '[Infinity]'", "decisions = '{\"x\": NaN}'"])
def test_numbers_that_are_not_finite_are_damage(db, path, tmp_path, change):
    db.add_records([record(1e-3)])
    with sqlite3.connect(path) as conn:
        conn.execute(f"UPDATE records SET {change}")
    for use in (lambda: db.export_jsonl(tmp_path / "out.jsonl"), lambda: Database(tmp_path / "new.db").merge(path)):
        with pytest.raises(DatabaseError, match="a row of TuningRecord is damaged"):
            use()


def test_a_damaged_name_that_is_no_text(db, path):
    """SQLite's message quotes the bytes of the name, which are no UTF-8."""
    db.close()
    with contextlib.closing(sqlite3.connect(path)) as conn:
        conn.execute("PRAGMA writable_schema = ON")
        conn.execute(r"UPDATE sqlite_master SET name = CAST(X'C42E' AS TEXT), sql = 'CREATE' WHERE name = 'sessions'")
        conn.commit()
    for readonly in (True, False):
        with pytest.raises(DatabaseError, match="is damaged"):
            Database(path, readonly=readonly)


def old_file(path):
    """A database as version 1 of the schema had it: one matmul, whose blocks are called C and D, and one record."""
    with contextlib.closing(sqlite3.connect(path)) as conn:
        connection._first_schema(conn)
        conn.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        conn.execute("PRAGMA user_version = 1")
        conn.execute("INSERT INTO workloads (key, text, created) VALUES ('p', ?, '2026')", [program("C").script()])
        conn.execute("INSERT INTO workloads (key, text, created) VALUES ('q', 'no program', '2026')")
        conn.execute("INSERT INTO targets (key, text, created) VALUES ('cpu-1', 'native', '2026')")
        conn.execute(
            "INSERT INTO records (digest, workload, target, status, run_seconds, min_seconds, num_times, times, "
            "trace, created) VALUES ('d', 'p', 'cpu-1', 'ok', 1e-3, 1e-3, 1, '[1e-3]', '{}', '2026')"
        )
        conn.commit()


def program(name):
    return parse(
        f"@T.prim_func\ndef main({name}: T.Buffer((16,), 'float32')):\n    for i in range(16):\n"
        f"        with T.block('{name}'):\n            v = T.axis.spatial(16, i)\n            {name}[v] = 0.0\n"
    )


def test_an_older_file_is_read_and_brought_up(path):
    old_file(path)
    before = Path(path).read_bytes()
    with Database(path, readonly=True) as db:  # a copy in memory has today's schema
        assert db.best(program("C"), "cpu-1").run_seconds == 1e-3
        assert db.best(program("Z"), "cpu-1").workload == "p"
        with pytest.raises(DatabaseError, match="opened for reading only"):
            db.add_workload(program("Z"))
    assert Path(path).read_bytes() == before
    with Database(path) as db:
        assert db.query("PRAGMA user_version") == [{"user_version": SCHEMA_VERSION}]
        assert db.best(program("Z"), "cpu-1").workload == "p"
        assert db.best(workload_key(program("Z")), "cpu-1").workload == "p"
        assert db.check() == ["records 1: changed since it was written"]  # its digest is made up
    with Database(path, readonly=True) as db:
        assert db.best("p", "cpu-1").run_seconds == 1e-3 and db.best("q", "cpu-1") is None


def test_names_do_not_matter_to_what_is_found(db):
    first, second = db.add_workload(program("C")), db.add_workload(program("Z"))
    assert first != second and db.workload(program("Z")).key == second and db.workload(program("Y")).key == first
    db.add_records([record(2e-3, workload=first), record(1e-3, workload=second), record(5e-4)])
    assert db.best(program("Y"), T).run_seconds == db.best(program("C"), T).run_seconds == 1e-3
    assert db.best(first, T).run_seconds == 2e-3  # a key is that of one program
    assert [r.run_seconds for r in db.records(program("C"))] == [2e-3, 1e-3]
    assert [r.run_seconds for r in db.records(not_workload=program("Y"))] == [5e-4]


def test_sessions_that_were_killed_are_marked_at_the_next_start(tmp_path):
    code = """
import os, sys
from tilewright.tuning_db import Database
db = Database(sys.argv[1])
db.start_session()
os._exit(9)
"""
    path = tmp_path / "t.db"
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    with Database(path) as db:
        (lost,) = db.sessions()
        assert (lost.status, lost.finished) == ("running", None) and lost.pid != os.getpid()
        own, far, old = db.start_session(), db.start_session(host="far"), db.start_session(host="old")
        with db.writing() as tables:
            tables.table("sessions").update(old, {"started": "2020-01-01T00:00:00+00:00"})
        db.start_session()
        status = {s.id: s.status for s in db.sessions()}
        assert [status[s] for s in (lost.id, own, far, old)] == ["killed", "running", "running", "killed"]


# -- work that does not grow with the records


def steps_of(db, call) -> int:
    """How many hundred steps SQLite's machine makes in a call."""
    counted = [0]

    def count():
        counted[0] += 1
        return 0

    db.connection.set_progress_handler(count, 100)
    call()
    db.connection.set_progress_handler(None, 100)
    return counted[0]


BEST = [
    ("best", lambda db: db.best(W, T)),
    ("of this code generator", lambda db: db.best(W, T, codegen_version=2)),
    ("of a code generator without records", lambda db: db.best(W, T, codegen_version=9)),
    ("the fastest four", lambda db: db.fastest(W, T, codegen_version=2, limit=4)),
    ("a view's row", lambda db: db.query("SELECT * FROM best_records WHERE record = 1")),
]


@pytest.mark.parametrize("name, call", BEST, ids=[name for name, _ in BEST])
def test_the_best_is_found_without_reading_the_others(db, name, call):
    db.add_records([record(1e-3 + n * 1e-6, codegen_version=1 + n % 2, trial=n) for n in range(40)])
    few = steps_of(db, lambda: call(db))
    db.add_records([record(2e-3 + n * 1e-6, codegen_version=1 + n % 2, trial=n) for n in range(4000)])
    assert steps_of(db, lambda: call(db)) <= few + 2
    assert steps_of(db, lambda: db.records(W)) > 100  # reading them all takes many more


def test_the_order_of_the_fastest(db):
    """Those of the asked code generator first, then by time, then by number."""
    db.add_records(
        [
            record(s, codegen_version=v, trial=n)
            for n, (s, v) in enumerate(((5e-3, 1), (1e-3, 1), (4e-3, 2), (3e-3, 2), (3e-3, 2)))
        ]
    )
    assert [r.id for r in db.fastest(W, T, limit=9)] == [2, 4, 5, 3, 1]
    assert [r.id for r in db.fastest(W, T, codegen_version=2, limit=9)] == [4, 5, 3, 2, 1]
    assert [r.id for r in db.fastest(W, T, codegen_version=1, limit=3)] == [2, 1, 4]


def test_opening_does_not_read_a_large_file(path, monkeypatch):
    """The pages of a small one are checked; statements that would read all records are not there."""
    seen = []
    monkeypatch.setattr(connection, "_QUICK_CHECK_BYTES", 1000)
    real = sqlite3.connect

    def traced(*args, **options):
        made = real(*args, **options)
        made.set_trace_callback(seen.append)
        return made

    with Database(path) as db:
        db.add_workload(W)
        db.add_target(T)
        db.add_records([record(1e-3, trial=n) for n in range(10)])
    monkeypatch.setattr(sqlite3, "connect", traced)
    for readonly in (True, False):
        with Database(path, readonly=readonly) as db:
            assert steps_of(db, lambda: None) == 0
    assert seen and not [text for text in seen if "quick_check" in text or "FROM records" in text]
