"""This module makes names for the printed text, which are unique within their scope."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_NOT_IN_NAMES = re.compile(r"\W")
_RESERVED = frozenset(keyword.kwlist) | {"T", "I", "range"}


class Names:
    """Holds the names of all variables and buffers in scope.

    A name that is in use gets a number: ``i``, ``i_1``, ``i_2``. Leaving a scope frees the names made in it, so that
    two consecutive loops may both be ``i``.
    """

    def __init__(self) -> None:
        self.texts: dict[Any, str] = {}
        self._live: set[str] = set()
        self._next: dict[str, int] = {}
        self._scopes: list[list[tuple[Any, str | None, str, str, int | None]]] = [[]]
        self._into = -1

    @property
    def depth(self) -> int:
        """The number of the innermost scope, for :meth:`within`."""
        return len(self._scopes) - 1

    @contextmanager
    def within(self, depth: int) -> Iterator[None]:
        """Make names in the outer scope of this number inside the ``with``; they live as long as that scope."""
        before, self._into = self._into, depth
        try:
            yield
        finally:
            self._into = before

    def enter(self) -> None:
        """Open a scope."""
        self._scopes.append([])

    def leave(self) -> None:
        """Close the innermost scope and free its names."""
        for key, before, text, base, old in reversed(self._scopes.pop()):
            if before is None:
                del self.texts[key]
            else:  # defined twice, so the program is not well-formed
                self.texts[key] = before
            if base:
                self._live.discard(text)
                if old is None:
                    self._next.pop(base, None)
                else:
                    self._next[base] = old

    def define(self, key: Any, hint: str) -> str:
        """Give ``key`` a unique name that begins with ``hint``, and return it."""
        base = _NOT_IN_NAMES.sub("_", hint) or "v"
        if base[0].isdigit() or not base.isidentifier():
            base = "v_" + (base if base.isascii() else "x")
        text, old = base, self._next.get(base)
        if base in self._live or base in _RESERVED:
            number = 1 if old is None else old
            while f"{base}_{number}" in self._live:
                number += 1
            text = f"{base}_{number}"
            self._next[base] = number + 1
        self._live.add(text)
        self._scopes[self._into].append((key, self.texts.get(key), text, base, old))
        self.texts[key] = text
        return text

    def alias(self, key: Any, text: str) -> None:
        """Let ``key`` print as ``text`` in this scope, e.g. a data pointer as ``A.data``."""
        self._scopes[self._into].append((key, self.texts.get(key), text, "", None))
        self.texts[key] = text
