"""Copies of the tree in which mutants are planted, and the environment in which tests run there."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .draw import Mutant

__all__ = ["copy_tree", "environment", "planted"]

_last = 0


def copy_tree(root: Path, to: Path) -> None:
    """Copies the checkout without what is built or hidden."""

    def ignored(folder: str, names: list[str]) -> set[str]:
        return {n for n in names if n.startswith(".") or n in ("__pycache__", "build", "dist")}

    shutil.copytree(root, to, ignore=ignored)


def environment(home: Path) -> dict[str, str]:
    """The environment of tests of the copy ``home/tilewright``: no cache, and hashes that are the same each time."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return kept | {
        "PYTHONPATH": str(home),
        "TILEWRIGHT_CACHE_DIR": str(home / "cache"),
        "TILEWRIGHT_CACHE": "0",
        "PYTHONHASHSEED": "0",
    }


@contextmanager
def planted(home: Path, mutant: Mutant) -> Iterator[None]:
    """The copy ``home/tilewright`` has the mutant within the context."""
    path = home / "tilewright" / mutant.file
    source = path.read_bytes()
    _write(path, mutant.planted(source))
    try:
        yield
    finally:
        _write(path, source)


def _write(path: Path, source: bytes) -> None:
    """Every change gets a second of its own, so that compiled files are made anew."""
    global _last
    _last = max(_last + 2, int(time.time()))
    path.write_bytes(source)
    os.utime(path, (_last, _last))
