"""This module has the loop of a worker process: it reads requests, and writes an answer to each."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from .process import become_child
from .protocol import Message, read_message, write_message

try:
    import resource
except ImportError:  # Windows has no such limits
    resource = None  # type: ignore[assignment]


def serve(
    answer: Callable[[Message], tuple[dict[str, Any], list[Any]]], *, warm: Callable[[], object] | None = None
) -> None:
    """Answer requests until stdin ends. The arguments of the process are its parent's id, a limit of memory, and for a fork
    server, whose children answer, the number of its socket; it calls ``warm`` before.

    It ignores Ctrl-C, and ends when its parent has ended.
    """
    parent, memory_bytes = int(sys.argv[1]), int(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if len(sys.argv) > 3:
        if warm is not None:
            warm()
        parent, memory_bytes = become_child(int(sys.argv[3]), parent)
    _limit_memory(memory_bytes)
    threading.Thread(target=_watch_parent, args=(parent,), daemon=True).start()
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of other code to stdout, native code included, must not mix with the messages
    requests = sys.stdin.buffer
    while (message := read_message(requests)) is not None:
        header, blobs = answer(message)
        write_message(replies, header, blobs)


def _limit_memory(memory_bytes: int) -> None:
    if resource is None:
        return
    if memory_bytes > 0:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _watch_parent(parent: int) -> None:
    """End this process when its parent has ended, even while generated code runs."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)
