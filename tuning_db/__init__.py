"""The records of tuning, in SQLite: what was tried for which workload on which target, and how it went.

Texts and traces only: nothing here knows the tuner, and a trace from a database that somebody else wrote can do
nothing but schedule. :class:`Database` opens a file; docs/schema.md describes its tables, which any SQLite tool shows.
"""

from .database import Database
from .database_error import DatabaseError
from .records import STATUSES, SessionRecord, TargetRecord, TuningRecord, WorkloadRecord, utc_now
from .schema import SCHEMA_VERSION

__all__ = [
    "SCHEMA_VERSION",
    "STATUSES",
    "Database",
    "DatabaseError",
    "SessionRecord",
    "TargetRecord",
    "TuningRecord",
    "WorkloadRecord",
    "utc_now",
]
