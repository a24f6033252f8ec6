"""A lock file beside the database is held during every write.

SQLite before 3.51.3 can lose committed pages when a write races a checkpoint of the write-ahead log, so writers and
checkpoints exclude each other. The kernel releases the lock when its process ends, for whatever reason.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from types import TracebackType

from .database_errors import DatabaseError

log = logging.getLogger("tilewright")

_SILENT_SECONDS = 1.0
"""A wait for the lock that takes longer is said."""

if sys.platform == "win32":
    import msvcrt

    def _try_lock(fd: int) -> None:
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)

    def _unlock(fd: int) -> None:
        os.lseek(fd, 0, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)
else:
    import fcntl

    def _try_lock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)


class FileLock:
    """A lock among processes, and among the threads of this one; the same thread may take it again.

    ``timeout`` is in seconds; :class:`DatabaseError` when another process holds the lock for longer. ``path`` None
    locks among threads only.
    """

    def __init__(self, path: str | None, timeout: float = 60.0) -> None:
        self.path = path
        self.timeout = timeout
        self._threads = threading.RLock()
        self._fd = -1
        self._depth = 0

    def __enter__(self) -> FileLock:
        self._threads.acquire()
        try:
            if self._depth == 0 and self.path is not None:
                self._take(self.path)
            self._depth += 1
        except BaseException:
            self._threads.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth == 0 and self._fd >= 0:
            fd, self._fd = self._fd, -1
            _unlock(fd)
            os.close(fd)
        self._threads.release()

    def _take(self, path: str) -> None:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
        except OSError as error:
            raise DatabaseError(f"cannot write beside the database: {path}: {error.strerror}") from error
        start = time.monotonic()
        deadline = start + self.timeout
        pause = 0.001
        said = False
        try:
            while True:
                try:
                    _try_lock(fd)
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise DatabaseError(
                            f"another process has held {path} for {self.timeout:g} s; "
                            "wait for it to finish, or end it if it hangs"
                        ) from None
                    if not said and time.monotonic() - start > _SILENT_SECONDS:
                        said = True
                        log.warning("waiting for another process that writes (%s), at most %g s", path, self.timeout)
                    time.sleep(pause)
                    pause = min(2 * pause, 0.05)
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd
