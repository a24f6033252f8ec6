"""JSON lines and merging."""

from __future__ import annotations

import json

import pytest

from tilewright.tuning_db import Database, DatabaseError, TargetRecord, TuningRecord, WorkloadRecord


@pytest.fixture
def db():
    with Database(":memory:") as db:
        db.add_workload(WorkloadRecord(key="w", text="def f():\n    pass", name="relu", shapes=({"name": "A"},)))
        db.add_target(TargetRecord(key="t", text="native", versions={"llvm": "22"}))
        for t in (3, 1, 2):
            db.add_record(TuningRecord("w", "t", trace="{}", times=(t * 1e-3,), trial=t))
        db.add_record(TuningRecord("w", "t", trace="{}", status="crash", error="signal 11"))
        yield db


def test_export_and_import_give_the_same_records(db, tmp_path):
    path = tmp_path / "records.jsonl"
    assert db.export_jsonl(path) == 4
    with Database(":memory:") as other:
        assert other.import_jsonl(path) == 4
        assert other.import_jsonl(path) == 0
        assert [r.digest() for r in other.records()] == [r.digest() for r in db.records()]
        assert other.workloads() == db.workloads() and other.targets() == db.targets()
        again = tmp_path / "again.jsonl"
        other.export_jsonl(again)
    assert again.read_text() == path.read_text()


def test_the_best_only(db, tmp_path):
    path = tmp_path / "best.jsonl"
    assert db.export_jsonl(path, best_only=True) == 1
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[0] == {"format": "tilewright-records", "schema": 1}
    assert [line["times"] for line in lines if line.get("type") == "record"] == [[1e-3]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 3: Expecting property name"),
        ("[]", "line 3: not an object"),
        ('{"type": "pickle"}', "line 3: type is 'pickle', not one of workload, target, session, record"),
        ('{"type": "target", "key": "k", "text": "t", "colour": "red"}', "target has no field 'colour'"),
        ('{"type": "target", "key": "k"}', "line 3: .*missing"),
        ('{"type": "record", "workload": "w", "target": "t", "trace": "{}", "times": "now"}', "times cannot be 'now'"),
        ('{"type": "record", "workload": "w", "target": "t", "trace": 5, "times": [1.0]}', "trace cannot be '5'"),
        ('{"type": "record", "workload": "w", "target": "t", "trace": "", "times": [-1]}', "above zero"),
        ('{"type": "record", "workload": "other", "target": "t", "trace": "{}", "times": [1]}', "add its workload"),
    ],
)
def test_a_bad_line_imports_nothing(tmp_path, line, message):
    path = tmp_path / "records.jsonl"
    good = '{"type": "workload", "key": "w", "text": "text"}'
    path.write_text("\n".join(['{"format": "tilewright-records", "schema": 1}', good, line]) + "\n")
    with Database(":memory:") as db:
        with pytest.raises(DatabaseError, match=message):
            db.import_jsonl(path)
        assert db.count("workloads") == 0


def test_other_files_are_told_apart(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text("{}\n")
    with Database(":memory:") as db:
        with pytest.raises(DatabaseError, match="first line does not say 'tilewright-records'"):
            db.import_jsonl(path)
        path.write_bytes(b"\xff\xfe\x00")
        with pytest.raises(DatabaseError, match="not UTF-8"):
            db.import_jsonl(path)
        with pytest.raises(DatabaseError, match="cannot read .*nothing.jsonl"):
            db.import_jsonl(tmp_path / "nothing.jsonl")


def test_merge_adds_what_is_new(db, tmp_path):
    path = tmp_path / "other.db"
    with Database(path) as other:
        assert other.merge(db) == 4
        other.add_record(TuningRecord("w", "t", trace="{}", times=(5e-4,)))
        with pytest.raises(DatabaseError, match="merged into itself"):
            other.merge(path)
    assert db.merge(path) == 1
    assert db.best("w", "t").run_seconds == 5e-4


def test_sessions_come_along(db, tmp_path):
    session = db.start_session(seed=7, config={"trials": 2}, host="here")
    db.finish_session(session, "interrupted")
    path = tmp_path / "records.jsonl"
    db.export_jsonl(path)
    with Database(":memory:") as other:
        other.import_jsonl(path)
        assert other.sessions() == db.sessions()
