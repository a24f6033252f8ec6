"""This module gives recursive functions a large stack for programs that nest deeply, such as sums of thousands of
terms.

A walk over a program calls itself once for each level, and Python's stack holds a thousand calls. When a function
decorated with :func:`with_room` exceeds the stack, it is called again on a thread whose stack holds a hundred times as
many calls. Programs of the usual depth cost nothing extra. Only functions without side effects may be called again; for
the others there is :func:`in_room`, which uses the large stack from the start.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Mapping
from contextvars import copy_context
from typing import Any, TypeVar

from .node import IRNode

HERE = threading.local()
"""Its attribute ``roomy`` is true on a thread with a large stack."""

_STACK_BYTES = 512 << 20
_FRAMES = 150_000
"""The Python calls that the large stack holds: about three thousand bytes for each, twice what a call takes."""

_LOCK = threading.Lock()
_running = 0
_usual_limit = 0

F = TypeVar("F", bound=Callable[..., Any])


class TooDeepError(RecursionError):
    """Raised for a program that nests too deeply even for the large stack."""


def with_room(function: F) -> F:
    """Decorate a function without side effects: it is called again with :func:`in_room` when the usual stack is too
    small."""

    @functools.wraps(function)
    def roomy(*args: Any, **named: Any) -> Any:
        try:
            return function(*args, **named)
        except RecursionError:
            if getattr(HERE, "roomy", False):
                raise
        return in_room(function, *args, **named)

    return roomy  # type: ignore[return-value]


def in_room(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Return ``function(*args, **named)``, computed on a thread with a large stack in this thread's context.

    Raises :class:`TooDeepError` when that stack is too small as well.
    """
    if getattr(HERE, "roomy", False):
        return function(*args, **named)
    return _on_large_stack(function, args, named)


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


def nesting(node: IRNode) -> int:
    """Return how many nodes stand inside one another at the deepest place."""
    deepest = 0
    stack = [(node, 1)]
    while stack:
        top, level = stack.pop()
        deepest = max(deepest, level)
        stack.extend([(child, level + 1) for child in top.children()])
    return deepest
