"""This module sets the number of threads of NumPy's matrix products, for comparisons with equal numbers of threads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any


@contextlib.contextmanager
def numpy_threads(count: int) -> Iterator[bool]:
    """Let the BLAS of NumPy use ``count`` threads inside the ``with`` block. Yields whether that was possible."""
    libraries = _blas()
    with libraries.limit(limits=count):
        yield bool(libraries)


@lru_cache(maxsize=1)
def _blas() -> Any:
    """Returns the libraries for linear algebra in this process; looking for them takes a millisecond."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
