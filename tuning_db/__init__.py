"""This package stores tuning records in SQLite: what was tried for which workload on which target, with the result.

It handles programs and traces as text and does not import the tuner. A trace from somebody else's database can only
schedule. :class:`Database` opens a file; docs/reference/database.md describes its tables, which any SQLite tool shows.
"""

from .connection import SCHEMA_VERSION
from .database import Database, open_database
from .records import STATUSES, DatabaseError, SessionRecord, TargetRecord, TuningRecord, WorkloadRecord, utc_now

__all__ = [
    "SCHEMA_VERSION",
    "STATUSES",
    "Database",
    "DatabaseError",
    "SessionRecord",
    "TargetRecord",
    "TuningRecord",
    "WorkloadRecord",
    "open_database",
    "utc_now",
]
