"""The directory for files that may be deleted at any time: ``TILEWRIGHT_CACHE_DIR``, else the system's cache
directory."""

from __future__ import annotations

import os
import tempfile
import warnings
from functools import lru_cache
from pathlib import Path

import platformdirs

from ..version import CODEGEN_VERSION


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
