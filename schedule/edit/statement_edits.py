"""This module replaces statements of a function, and inserts new ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...tir.analysis.tree import Tree
from ...tir.buffer import Buffer
from ...tir.expr import IntImm
from ...tir.function import PrimFunc
from ...tir.stmt import Block, Evaluate, For, SeqStmt, Stmt, seq


def rebuild(
    tree: Tree,
    changes: Mapping[Stmt, Stmt | None],
    after: Mapping[Stmt, Callable[[Any], Stmt]],
) -> PrimFunc:
    """Return the function with each key of ``changes`` replaced, then with each key of ``after``.

    A key of ``after`` may lie above those of ``changes``; its function gets the statement as it is by then. A sequence
    keeps its positions until its own key is processed.
    """
    dirty: set[Stmt] = set()
    for key in (*changes, *after):
        for up in (key, *tree.above(key)):
            if up in dirty:
                break
            dirty.add(up)

    def walk(n: Any) -> Any:
        if not isinstance(n, Stmt) or n not in dirty:
            return n
        if n in changes:
            return changes[n]
        out: Any
        if isinstance(n, SeqStmt) and n in after:
            kept = [walk(s) for s in n.seq]
            return after[n](SeqStmt(tuple([Evaluate(IntImm(0)) if s is None else s for s in kept])))
        if isinstance(n, SeqStmt):
            out = seq(*[walk(s) for s in n.seq])
        elif isinstance(n, For):
            out = n.with_(body=walk(n.body))
        elif isinstance(n, Block):
            out = n.with_(body=walk(n.body), init=walk(n.init))
        else:
            out = n.map_children(walk)
        return after[n](out) if n in after else out

    return tree.func.with_body(walk(tree.func.body))


def children_of(stmt: Stmt) -> tuple[Stmt, ...]:
    """Return the statements of a sequence, or the single statement."""
    return stmt.seq if isinstance(stmt, SeqStmt) else (stmt,)


def insert_in(body: Stmt, position: int, new: Stmt) -> SeqStmt:
    """Return ``body`` as a sequence with ``new`` inserted before statement number ``position``."""
    old = children_of(body)
    return SeqStmt((*old[:position], *children_of(new), *old[position:]))


def allocating(*buffers: Buffer) -> Callable[[Block], Stmt]:
    """Return the change of a block that lets it allocate ``buffers`` as well; for :func:`rebuild`."""
    return lambda block: block.with_(alloc_buffers=(*block.alloc_buffers, *buffers))
