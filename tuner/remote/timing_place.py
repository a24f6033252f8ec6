"""A machine has one place where candidates are timed, whoever sent them; meanwhile others are built on other cores."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from ...codegen.machine.cpu import available_cores
from ...tuning_db.lock import FileLock

_MOST = 8
_WAIT_SECONDS = 600.0


def _lock_path() -> str:
    user = os.getuid() if hasattr(os, "getuid") else 0
    return os.path.join(tempfile.gettempdir(), f"tilewright-timing-{user}.lock")


_PLACE = FileLock(_lock_path(), _WAIT_SECONDS)


def places() -> int:
    """Returns how many candidates are in hand at a time: one is timed, the others are built."""
    return min(_MOST, available_cores())


def split_cores(needed: int) -> tuple[list[int], list[int]]:
    """Returns the cores to build on, and the last ``needed`` ones, to time on. The first list is empty when candidates
    need all cores: then nothing is built while one is timed. Both are empty where processes cannot be pinned."""
    if not hasattr(os, "sched_getaffinity"):
        return [], []
    cores = sorted(os.sched_getaffinity(0))[: available_cores()]
    if needed >= len(cores):
        return [], []
    return cores[:-needed], cores[-needed:]


@contextmanager
def alone(processes: Sequence[int], building: Sequence[int], timing: Sequence[int]) -> Iterator[None]:
    """Holds this machine's place for timing, and keeps ``processes`` on the cores for it meanwhile."""
    with _PLACE:
        _pin(processes, timing)
        try:
            yield
        finally:
            _pin(processes, building)


def _pin(processes: Sequence[int], cores: Sequence[int]) -> None:
    for process in processes if cores else ():
        with suppress(OSError):  # it has ended
            os.sched_setaffinity(process, cores)
