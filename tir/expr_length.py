"""This module computes how long an expression becomes by inlining, without building the inlined expression."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from .expr import BufferLoad, Expr, Var
from .stmt import Buffer

Length = tuple[int, int]
"""The number of nodes of an element's expression: ``(own, per)`` means ``own + per * (nodes of the index that is
read)``."""


def inlined_length(e: Expr, axes: Collection[Var], known: Mapping[Buffer, Length]) -> Length:
    """Return a bound of the length of ``e`` after each load of a ``known`` buffer is replaced by an expression. These
    expressions have the lengths given there.

    The result depends on the lengths of the indices that take the place of ``axes``.
    """
    if isinstance(e, Var):
        return (0, 1) if e in axes else (1, 0)
    parts = [inlined_length(child, axes, known) for child in e.children() if isinstance(child, Expr)]
    if isinstance(e, BufferLoad) and e.buffer in known:
        base, factor = known[e.buffer]
        own, per = (max((p[n] for p in parts), default=0) for n in range(2))  # of the longest index, for each axis
        return base + factor * own, factor * per
    return sum(p[0] for p in parts) + 1, sum(p[1] for p in parts)
