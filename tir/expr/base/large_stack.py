"""This module runs functions on a thread with a large stack, and registers itself with :mod:`.deep_recursion`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from contextvars import copy_context
from typing import Any

from .deep_recursion import HERE, LARGE_STACK, TooDeepError

_STACK_BYTES = 512 << 20
_FRAMES = 150_000
"""The Python calls that the large stack holds: about three thousand bytes for each, twice what a call takes."""

_LOCK = threading.Lock()
_running = 0
_usual_limit = 0


def _on_large_stack(function: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """Return ``function(*args, **named)``, computed in this thread's context; TooDeepError when this stack is too small."""
    context = copy_context()
    outcome: list[Any] = []

    def run() -> None:
        HERE.roomy = True
        try:
            outcome.extend((True, context.run(function, *args, **named)))
        except BaseException as error:
            outcome.extend((False, error))

    _widen(threading.Thread(target=run, name="tilewright-deep", daemon=True))
    done, value = outcome
    if done:
        return value
    if isinstance(value, RecursionError):
        raise TooDeepError(
            f"the program nests too deeply: more than {_FRAMES} calls inside one another would be needed to walk it; "
            "compute parts of it in stages of their own"
        ) from None
    raise value


def _widen(thread: threading.Thread) -> None:
    """Run ``thread`` to its end with a raised recursion limit. The limit holds for all threads of Python, so it is
    restored when the last of these threads ends."""
    global _running, _usual_limit
    with _LOCK:
        if not _running:
            _usual_limit = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_FRAMES, _usual_limit))
        _running += 1
        before = threading.stack_size(_STACK_BYTES)
        try:
            thread.start()
        except RuntimeError:
            _running -= 1
            raise TooDeepError("the program nests too deeply, and there is no memory for a larger stack") from None
        finally:
            threading.stack_size(before)
    try:
        thread.join()
    finally:
        with _LOCK:
            _running -= 1
            if not _running:
                sys.setrecursionlimit(_usual_limit)


LARGE_STACK.set(_on_large_stack)
