"""Files are written beside their place and renamed, so that a file is whole or not there."""

from __future__ import annotations

import os
from pathlib import Path


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file at once; OSError names it, also when the disk is full. Text is UTF-8 with plain newlines."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(draft, path)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from error
    finally:
        draft.unlink(missing_ok=True)
