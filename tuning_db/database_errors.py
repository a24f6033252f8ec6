"""This module defines the error that all operations on a database raise."""

from __future__ import annotations


class DatabaseError(Exception):
    """The database cannot be used as asked: damaged, foreign, from a newer version, locked, or read-only.

    The message names the file and what to try. A file for which this is raised has not been changed.
    """
