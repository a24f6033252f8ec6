"""This module determines where a statement is inserted: between a writer and its users, or beside a loop nest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...tir.analysis.scope import Scope, buffers_of
from ...tir.analysis.tree import Tree
from ...tir.stmt import BlockRealize, SeqStmt, Stmt, below_assertions, children_of


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A ``Place`` is the one before statement ``number`` of ``where``.

    ``behind`` is the statement of ``where`` that holds the writer, for a place between a writer and its users.
    """

    where: Stmt
    number: int
    behind: Stmt | None = None


def place_beside(tree: Tree, nest: Stmt, after: bool) -> Place:
    """Return the place directly before or after a statement."""
    above = tree.parent[nest]
    return Place(above, above.seq.index(nest) + after) if isinstance(above, SeqStmt) else Place(nest, int(after))


def place_between(tree: Tree, scope: Scope, writer: BlockRealize, users: Sequence[BlockRealize]) -> Place:
    """Return the place between the writer and its later users. It is in the innermost sequence that holds the writer
    and one of them.

    Without users it is the end of the scope.
    """
    above = list(tree.above(writer))
    best: tuple[int, SeqStmt] | None = None
    for user in users:
        theirs = set(tree.above(user))
        depth, meet = next((i, s) for i, s in enumerate(above) if s in theirs)
        if isinstance(meet, SeqStmt) and (best is None or depth < best[0]):
            best = (depth, meet)
    if best is None:
        body = below_assertions(scope.root.block.body)
        return Place(body, len(children_of(body)))
    meet = best[1]
    held = [tree.child_of(meet, user) for user in users if meet in set(tree.above(user))]
    return Place(meet, min(meet.seq.index(child) for child in held), tree.child_of(meet, writer))


def dependents(scope: Scope, writer: BlockRealize) -> list[BlockRealize]:
    """Return the later blocks that read a buffer which ``writer`` writes."""
    users = {r for b in buffers_of(writer.block)[1] for r in scope.readers.get(b, ())}
    return sorted((r for r in users if scope.order[r] > scope.order[writer]), key=scope.order.__getitem__)
