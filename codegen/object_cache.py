"""A cache on disk of compiled object files.

A file's name is the SHA-256 of everything that the object file depends on: the LLVM IR, the target, the options of
LLVM, and the versions. Entries are therefore never wrong, only unused, and the least recently used ones are deleted
first when the folder exceeds its limit. A file holds a checksum before its content, so that damaged or incomplete files
are ignored. Files are created by renaming, so that processes may write at the same time.

``TILEWRIGHT_CACHE=0`` turns it off, ``TILEWRIGHT_CACHE_MB`` sets the limit (256), ``TILEWRIGHT_CACHE_DIR`` the place.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import platformdirs

_MAGIC = b"tilewright object 1\n"
_DEFAULT_MB = 256
_SWEEP_EVERY = 64
_lock = threading.Lock()
_written: dict[Path, list[int]] = {}  # folder -> bytes in it at the last scan, files written since that scan


@dataclass(frozen=True, slots=True)
class CacheState:
    """The content of the folder. ``folder`` is None when the cache is off."""

    folder: Path | None
    files: int
    bytes: int
    limit_bytes: int


def object_key(parts: Sequence[str]) -> str:
    """Returns the name of the object file that these texts determine. No two lists of texts share a name."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def find_object(key: str) -> bytes | None:
    """Returns the object file kept under ``key``, or None when it is missing or damaged."""
    folder = _folder()
    if folder is None:
        return None
    path = folder / key
    try:
        data = path.read_bytes()
    except OSError:
        return None
    head = len(_MAGIC) + 32
    content = data[head:]
    if data[: len(_MAGIC)] != _MAGIC or data[len(_MAGIC) : head] != hashlib.sha256(content).digest():
        path.unlink(missing_ok=True)
        return None
    try:
        os.utime(path)
    except OSError:
        pass
    return content


def keep_object(key: str, made: bytes) -> None:
    """Keep an object file. When the disk is full or missing, only this entry is lost."""
    folder = _folder()
    if folder is None or len(made) > _limit() // 4:
        return
    try:
        handle, draft = tempfile.mkstemp(dir=folder, prefix="draft-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_MAGIC + hashlib.sha256(made).digest() + made)
            os.replace(draft, folder / key)
        except BaseException:
            os.unlink(draft)
            raise
    except OSError:
        return
    with _lock:
        known = _written.setdefault(folder, [_limit() + 1, 0])
        known[0] += len(made)
        known[1] += 1
        if known[0] > _limit() or known[1] >= _SWEEP_EVERY:
            _written[folder] = [_sweep(folder, _limit()), 0]


def cache_state() -> CacheState:
    """Returns the state of the cache, for display."""
    folder = _folder()
    entries = [] if folder is None else _entries(folder)
    return CacheState(folder, len(entries), sum([size for _, size, _ in entries]), _limit())


def _folder() -> Path | None:
    if os.environ.get("TILEWRIGHT_CACHE", "").strip().lower() in ("0", "off", "no", "false") or _limit() <= 0:
        return None
    folder = cache_directory() / "objects"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if os.name == "posix":  # its content will be executed, so no other user may write there
            status = folder.stat()
            if status.st_uid != os.getuid() or status.st_mode & 0o022:
                return None
    except OSError:
        return None
    return folder


def _limit() -> int:
    try:
        return int(float(os.environ.get("TILEWRIGHT_CACHE_MB", "")) * (1 << 20))
    except ValueError:
        return _DEFAULT_MB << 20


def _entries(folder: Path) -> list[tuple[float, int, str]]:
    """Yields time of last use, size and path of every file."""
    out = []
    try:
        with os.scandir(folder) as files:
            for file in files:
                try:
                    status = file.stat(follow_symlinks=False)
                except OSError:  # another process was faster
                    continue
                out.append((status.st_mtime, status.st_size, file.path))
    except OSError:
        pass
    return out


def _sweep(folder: Path, limit: int) -> int:
    """Remove the least recently used files until a tenth of the limit is free, if the limit is exceeded. Returns the
    bytes left."""
    entries = _entries(folder)
    total = sum([size for _, size, _ in entries])
    if total <= limit:
        return total
    for _, size, path in sorted(entries):
        try:
            os.unlink(path)
        except OSError:
            pass
        total -= size
        if total <= limit * 9 // 10:
            break
    return total


# The directory for files that may be deleted at any time: ``TILEWRIGHT_CACHE_DIR``, else the system's cache
# directory.


def cache_directory() -> Path:
    """Return the directory, which is created when needed and readable by its owner only.

    When it cannot be written to, a temporary directory is used, with a warning.
    """
    return _make(os.environ.get("TILEWRIGHT_CACHE_DIR", ""))


@lru_cache(maxsize=8)
def _make(chosen: str) -> Path:
    place = Path(chosen) if chosen else platformdirs.user_cache_path("tilewright", appauthor=False)
    folder = place / f"codegen-{CODEGEN_VERSION}"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder):
            pass
        return folder
    except OSError as error:
        warnings.warn(f"no cache in {folder} ({error}); using a temporary directory", stacklevel=3)
        return Path(tempfile.mkdtemp(prefix="tilewright-"))


CODEGEN_VERSION = 37
"""A number that changes when generated code becomes faster or slower, or when wrong code is mended. Times measured and
files cached before the change do not compare with those after it. Every tuning record carries it."""
