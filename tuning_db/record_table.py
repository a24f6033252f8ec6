"""Records as a table of pandas."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .connection import say_what
from .database import Database
from .records import Target, TuningRecord, Workload, workload_key_of

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "id", "trial", "status", "run_seconds", "predicted_seconds", "compile_seconds", "sketch", "session", "created",
    "codegen_version", "error", "workload", "target",
)  # fmt: skip
"""The columns that every table of records has; ``gflops`` and one ``decision_…`` for each decision follow."""


def records_dataframe(records: Sequence[TuningRecord], flops: float | None = None) -> pd.DataFrame:
    """Returns a row for each record in order; ``flops``, the operations of one run, give a column ``gflops``.

    ImportError when pandas is not installed.
    """
    columns = {name: [getattr(r, name) for r in records] for name in COLUMNS}
    return _frame(columns, [r.decisions for r in records], [flops or None] * len(records))


def _database_frame(db: Database, workload: Workload | None = None, target: Target | None = None) -> pd.DataFrame:
    """Returns the records of a workload and target (None: all) as a table of pandas, which must be installed."""
    names = ", ".join([f"r.{name}" for name in (*COLUMNS, "decisions")])
    rows = _tuples(
        db,
        f"SELECT {names}, w.flops FROM records AS r JOIN workloads AS w ON w.key = r.workload "
        "WHERE (:key IS NULL OR r.workload = :key OR w.structure = :key) AND (:target IS NULL OR r.target = :target) "
        "ORDER BY r.id",
        {
            "key": None if workload is None else workload_key_of(workload),
            "target": None if target is None else db.stored_target(target),
        },
    )
    found = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(len(COLUMNS) + 2)]
    decisions = json.loads(f"[{','.join(found[-2])}]")  # one text is read much faster than each row's
    return _frame(dict(zip(COLUMNS, found, strict=False)), decisions, found[-1])


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


Database.records_dataframe = _database_frame  # type: ignore[method-assign,assignment]
