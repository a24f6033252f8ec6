"""This module gives recursive functions a large stack for programs that nest deeply, such as sums of thousands of
terms.

A walk over a program calls itself once for each level, and Python's stack holds a thousand calls. When a function
decorated with :func:`with_room` exceeds the stack, it is called again on a thread whose stack holds a hundred times as
many calls. Programs of the usual depth cost nothing extra. Only functions without side effects may be called again; for
the others there is :func:`in_room`, which uses the large stack from the start.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from .node import Node
from .slot import Slot

HERE = threading.local()
"""Its attribute ``roomy`` is true on a thread with a large stack."""

F = TypeVar("F", bound=Callable[..., Any])

LARGE_STACK: Slot[Callable[[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]], Any] | None] = Slot(None)
"""Runs a function on a large stack; :mod:`.large_stack` sets it."""


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
            if LARGE_STACK.value is None or getattr(HERE, "roomy", False):
                raise
        return in_room(function, *args, **named)

    return roomy  # type: ignore[return-value]


def in_room(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Return ``function(*args, **named)``, computed on a thread with a large stack in this thread's context.

    Raises :class:`TooDeepError` when that stack is too small as well.
    """
    if LARGE_STACK.value is None or getattr(HERE, "roomy", False):
        return function(*args, **named)
    return LARGE_STACK.value(function, args, named)


def nesting(node: Node) -> int:
    """Return how many nodes stand inside one another at the deepest place."""
    deepest = 0
    stack = [(node, 1)]
    while stack:
        top, level = stack.pop()
        deepest = max(deepest, level)
        stack.extend([(child, level + 1) for child in top.children()])
    return deepest
