"""This module exports and imports records as JSON lines, and merges databases.

The first line says what the file is: ``{"format": "tilewright-records", "schema": 1}``. Each other line is an object
with ``"type"``: workload, target, session or record, whose fields are the columns of that table (a record's keys come
as they are, so lines may be filtered with any tool as long as what they refer to stays).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..pages.written_files import draft_of
from .database_errors import DatabaseError
from .records import SessionRecord, TargetRecord, TuningRecord, WorkloadRecord, check_fields, to_json

if TYPE_CHECKING:
    from .database import Database

FORMAT = "tilewright-records"
SCHEMA = 1
_MAX_LINE = 32 << 20

_TYPES: dict[str, Any] = {
    "workload": WorkloadRecord,
    "target": TargetRecord,
    "session": SessionRecord,
    "record": TuningRecord,
}


def export_jsonl(db: Database, path: str | os.PathLike[str], *, best_only: bool = False) -> int:
    """Write ``db`` to ``path``; with ``best_only`` only the best record of each workload and target."""
    count = 0
    try:
        with draft_of(Path(path)) as draft, open(draft, "w", encoding="utf-8", newline="\n") as file:
            file.write(to_json({"format": FORMAT, "schema": SCHEMA}) + "\n")
            for kind, value in _everything(db, best_only):
                content = asdict(value)
                content.pop("id", None) if kind == "record" else None
                file.write(to_json({"type": kind, **content}) + "\n")
                count += kind == "record"
    except OSError as error:
        raise DatabaseError(f"cannot write {os.fspath(path)}: {error.strerror}") from error
    return count


def import_jsonl(db: Database, path: str | os.PathLike[str]) -> int:
    """Add what ``path`` holds to ``db``, all or nothing; the number of records that were new."""
    return _add(db, _read(os.fspath(path)))


def merge(db: Database, other: Database | str | os.PathLike[str]) -> int:
    """Add what ``other`` holds to ``db``; the number of records that were new."""
    if isinstance(other, (str, os.PathLike)):
        from_path = os.path.realpath(other) == os.path.realpath(db.path)
        if from_path:
            raise DatabaseError(f"{os.fspath(other)} cannot be merged into itself")
        with type(db)(other, readonly=True) as opened:
            return _add(db, _everything(opened, False))
    return _add(db, _everything(other, False))


def _everything(db: Database, best_only: bool) -> Iterator[tuple[str, Any]]:
    for workload in db.workloads():
        yield "workload", workload
    for target in db.targets():
        yield "target", target
    for session in db.sessions():
        yield "session", session
    wanted = {row["record"] for row in db.query("SELECT record FROM best_records")} if best_only else None
    for record in db.records():
        if wanted is None or record.id in wanted:
            yield "record", record


def _add(db: Database, items: Iterable[tuple[str, Any]]) -> int:
    with db.writing() as tables:
        before = db.count()
        for kind, value in items:
            if kind == "workload":
                db.add_workload(value)
            elif kind == "target":
                db.add_target(value)
            elif kind == "session":
                row = {k: to_json(v) if k in ("config", "versions") else v for k, v in asdict(value).items()}
                tables.table("sessions").insert(row, pk="id", ignore=True)
            else:
                db.add_record(value)
        return db.count() - before


def _read(path: str) -> Iterator[tuple[str, Any]]:
    try:
        file = open(path, encoding="utf-8")
    except OSError as error:
        raise DatabaseError(f"cannot read {path}: {error.strerror}") from error
    with file:
        for number, line in enumerate(_lines(file, path), 1):
            try:
                content = json.loads(line)
                if not isinstance(content, dict):
                    raise ValueError("not an object")
                if number > 1:
                    yield _item(content)
                else:
                    _check_header(content)
            except (ValueError, TypeError, RecursionError) as error:
                raise DatabaseError(f"{path}, line {number}: {error}; nothing was imported") from error


def _check_header(content: Mapping[str, Any]) -> None:
    if content.get("format") != FORMAT:
        raise ValueError(f"the first line does not say {FORMAT!r}")
    if content.get("schema") != SCHEMA:
        raise ValueError(f"schema {content.get('schema')!r}; this version reads {SCHEMA}")


def _lines(file: Any, path: str) -> Iterator[str]:
    try:
        while line := file.readline(_MAX_LINE):
            if len(line) >= _MAX_LINE:
                raise DatabaseError(f"{path} has a line of more than {_MAX_LINE >> 20} MiB; nothing was imported")
            if line.strip():
                yield line
    except UnicodeDecodeError as error:
        raise DatabaseError(f"{path} is not UTF-8 text; nothing was imported") from error


def _item(content: dict[str, Any]) -> tuple[str, Any]:
    kind = content.pop("type", None)
    cls = _TYPES.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise ValueError(f"type is {kind!r}, not one of {', '.join(_TYPES)}")
    allowed = {f.name: f for f in fields(cls)}
    allowed.pop("id", None) if kind == "record" else None
    unknown = sorted(content.keys() - allowed.keys())
    if unknown:
        raise ValueError(f"{kind} has no field {unknown[0]!r}")
    check_fields(content)
    if "shapes" in content:
        content["shapes"] = tuple(content["shapes"])
    return str(kind), cls(**content)
