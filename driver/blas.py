"""This module sets the number of threads of NumPy's matrix products, for comparisons with equal numbers of threads."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np

_NAMES = ("scipy_openblas_{}_num_threads64_", "openblas_{}_num_threads64_", "openblas_{}_num_threads")
_FOLDERS = ("../numpy.libs", ".dylibs", "../../..")


@contextlib.contextmanager
def numpy_threads(count: int) -> Iterator[bool]:
    """Let NumPy's OpenBLAS use ``count`` threads inside the ``with`` block. Yields whether that was possible."""
    found = _openblas()
    if found is None:
        yield False
        return
    get, set_ = found
    before = get()
    set_(count)
    try:
        yield True
    finally:
        set_(before)


@lru_cache(maxsize=1)
def _openblas() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """Returns the getter and setter of the OpenBLAS that NumPy's wheel brings, or of the one NumPy was linked to."""
    here = Path(np.__file__).parent
    paths = [p for folder in _FOLDERS for p in sorted((here / folder).glob("*openblas*")) if p.is_file()]
    for path in [*paths, None]:
        with contextlib.suppress(OSError):
            library = ctypes.CDLL(None if path is None else str(path))
            for name in _NAMES:
                get = getattr(library, name.format("get"), None)
                set_ = getattr(library, name.format("set"), None)
                if get is not None and set_ is not None:
                    get.restype, set_.argtypes = ctypes.c_int, [ctypes.c_int]
                    return get, set_
    return None
