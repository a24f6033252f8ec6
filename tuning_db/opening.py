"""This module opens a database where a caller gives its path."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from .database import Database


@contextmanager
def open_database(db: Database | str | os.PathLike[str], readonly: bool = False) -> Iterator[Database]:
    """Yields an open database as it is; a path is opened, and closed in the end."""
    if isinstance(db, Database):
        yield db
        return
    with Database(db, readonly=readonly) as opened:
        yield opened
