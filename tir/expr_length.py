"""How long an expression becomes when loads are replaced by what was stored, without making it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from .buffer import Buffer
from .expr import BufferLoad, Expr, Var

Length = tuple[int, int]
"""The nodes of an element's expression: ``(own, per)`` for ``own + per * (nodes of the place that is read)``."""


def inlined_length(e: Expr, axes: Collection[Var], known: Mapping[Buffer, Length]) -> Length:
    """The length of ``e``, as a function of that of what ``axes`` stand for, with loads of the ``known`` buffers replaced by
    expressions of these lengths."""
    if isinstance(e, Var):
        return (0, 1) if e in axes else (1, 0)
    parts = [inlined_length(child, axes, known) for child in e.children() if isinstance(child, Expr)]
    own, per = sum(p[0] for p in parts), sum(p[1] for p in parts)
    if isinstance(e, BufferLoad) and e.buffer in known:
        base, factor = known[e.buffer]
        return base + factor * own, factor * per
    return own + 1, per
