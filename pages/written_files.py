"""Files are written beside their place and renamed, so that a file is whole or not there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def utf8_text(text: str) -> str:
    """Returns ``text`` as UTF-8 can hold it. Names of files may have bytes that are no text; each is shown as U+FFFD."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file at once; OSError names it, also when the disk is full. Text is UTF-8 with plain newlines."""
    with draft_of(path) as draft:
        draft.write_bytes(utf8_text(content).encode() if isinstance(content, str) else content)


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """Yield the place of a draft, which becomes the file ``path`` at the end; OSError names that file.

    A link to a file stays, and the file that it leads to is replaced. What is no file, such as /dev/stdout or a named pipe,
    is written itself.
    """
    place = Path(os.path.realpath(path))
    direct = path.exists() and not path.is_file()
    draft = path if direct else place.with_name(f".{place.name}.{os.getpid()}.partial")
    try:
        yield draft
        if not direct:
            os.replace(draft, place)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from error
    finally:
        if not direct:
            draft.unlink(missing_ok=True)
