"""This module defines the base class of IR nodes, which are immutable and compared by identity.

``children()`` yields the nodes directly below (expressions and statements), ``map_children(f)`` rebuilds the
node with ``f`` applied to each and returns the same object when nothing changed. All walks in
:mod:`tilewright.tir.walk` use these two methods, so that a new node type (te adds two) is walked like the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

N = TypeVar("N", bound="Node")
_render: list[Callable[..., str]] = []


def set_renderer(render: Callable[..., str]) -> None:
    """Set the function that ``str(node)`` calls; the printer does this once."""
    _render[:] = [render]


class Node:
    """The base class of expressions, statements and functions."""

    __slots__ = ()

    def children(self) -> Iterator[Node]:
        """Yield the nodes directly below, in the order in which they are evaluated."""
        return iter(())

    def map_children(self: N, f: Callable[[Any], Any]) -> N:
        """Return the node with ``f`` applied to each child; the same object when no child changed."""
        return self

    def same_as(self, other: object) -> bool:
        """Return whether both are the same object."""
        return self is other

    def script(self, *, words: str | None = None) -> str:
        """Return the node as TVMScript text; a PrimFunc's text parses back to an equal function. ``words="sblock"``
        spells blocks as TVM 0.27 does, see :func:`tilewright.tir.printer.script`."""
        return _render[0](self, words)

    def show(self, *, words: str | None = None) -> None:
        """Print :meth:`script`."""
        print(self.script(words=words))

    def __repr__(self) -> str:
        return _render[0](self) if _render else object.__repr__(self)

    __str__ = __repr__


def map_tuple(items: tuple[Any, ...], f: Callable[[Any], Any]) -> tuple[Any, ...]:
    """Apply ``f`` to each item of a tuple; return the same tuple when nothing changed."""
    out = tuple([f(item) for item in items])
    for new, old in zip(out, items, strict=True):
        if new is not old:
            return out
    return items
