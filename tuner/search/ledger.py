"""A ledger holds the records of a session; it writes each to the database as soon as it is known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...tuning_db import Database, TuningRecord


class Ledger:
    """The records of a session in order, in memory and in ``db`` (None: in memory only)."""

    def __init__(self, db: Database | None) -> None:
        self.db = db
        self.records: list[TuningRecord] = []

    def add(self, record: TuningRecord) -> int:
        """Store a record and return its place in ``records``."""
        if self.db is not None:
            record = replace(record, id=self.db.add_record(record))
        self.records.append(record)
        return len(self.records) - 1

    def remeasured(self, place: int, record: TuningRecord) -> None:
        """Put a new measurement of the same candidate in the place of its record, whose number it keeps."""
        old = self.records[place]
        if record.times == old.times and record.status == old.status:
            return
        self.records[place] = replace(record, id=old.id, created=old.created, trial=old.trial)
        if self.db is not None:
            self.db.amend([self.records[place]])

    def amend(self, changed: Iterable[tuple[TuningRecord, TuningRecord]]) -> None:
        """Put the second of each pair in the place of the first, here and in the database."""
        pairs = {id(old): new for old, new in changed}
        self.records = [pairs.get(id(r), r) for r in self.records]
        if self.db is not None:
            self.db.amend(pairs.values())
