"""This module pauses the garbage collector while many nodes are built."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pause the search for cyclic garbage inside the ``with``.

    The collector would visit all nodes built so far each time their number has grown by a quarter, so that a function
    ten times as long would take more than ten times as long to parse.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
