"""This module replaces statements of a function, and inserts new ones."""

from __future__ import annotations

from collections.abc import Callable, Collection

from ...tir.stmt import Block, Buffer, SeqStmt, Stmt, children_of


def insert_in(body: Stmt, position: int, new: Stmt) -> SeqStmt:
    """Return ``body`` as a sequence with ``new`` inserted before statement number ``position``."""
    old = children_of(body)
    return SeqStmt((*old[:position], *children_of(new), *old[position:]))


def allocating(*buffers: Buffer) -> Callable[[Block], Stmt]:
    """Return the change of a block that lets it allocate ``buffers`` as well; for :meth:`Tree.replace`."""
    return lambda block: block.with_(alloc_buffers=(*block.alloc_buffers, *buffers))


def freeing(buffers: Collection[Buffer]) -> Callable[[Block], Stmt]:
    """Return the change of a block that no longer allocates ``buffers``; for :meth:`Tree.replace`."""
    return lambda block: block.with_(alloc_buffers=tuple([b for b in block.alloc_buffers if b not in buffers]))
