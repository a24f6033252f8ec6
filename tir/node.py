"""The base of every IR node: immutable, compared by identity, walked through two methods.

``children()`` yields the nodes directly below (expressions and statements), ``map_children(f)`` rebuilds the
node with ``f`` applied to each and returns the very same object when nothing changed. All walks in
:mod:`tilewright.tir.walk` stand on these two, so a new node type (te adds two of its own) walks like the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

N = TypeVar("N", bound="Node")
_render: list[Callable[..., str]] = []


def set_renderer(render: Callable[..., str]) -> None:
    """Called once by the printer, so that ``str(node)`` is the printed text."""
    _render[:] = [render]


class Node:
    """What every expression and statement is."""

    __slots__ = ()

    def children(self) -> Iterator[Node]:
        """The nodes directly below, in the order in which they are evaluated."""
        return iter(())

    def map_children(self: N, f: Callable[[Any], Any]) -> N:
        """The node with ``f`` applied to each child; the very same object when no child changed."""
        return self

    def same_as(self, other: object) -> bool:
        """Whether both are the same object."""
        return self is other

    def script(self, *, words: str | None = None) -> str:
        """The node as TVMScript text; a PrimFunc's text parses back to an equal function. ``words="sblock"`` spells
        blocks as TVM 0.27 does, see :func:`tilewright.tir.printer.script`."""
        return _render[0](self, words)

    def show(self, *, words: str | None = None) -> None:
        """Print :meth:`script`."""
        print(self.script(words=words))

    def __repr__(self) -> str:
        return _render[0](self) if _render else object.__repr__(self)

    __str__ = __repr__


def map_tuple(items: tuple[Any, ...], f: Callable[[Any], Any]) -> tuple[Any, ...]:
    """``f`` over a tuple; the very same tuple when nothing changed."""
    out = tuple([f(item) for item in items])
    for new, old in zip(out, items, strict=True):
        if new is not old:
            return out
    return items
