"""This module inserts the copy of a buffer into a function.

It says which buffer is copied, who uses the copy, and where it is made: between a writer and its users, or beside a loop nest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...tir.analysis.scope import BlockScope, buffers_of
from ...tir.analysis.tree import Tree, blocks_below, tree_of, unique_block_name
from ...tir.expr import Expr, Var
from ...tir.stmt import BlockRealize, Buffer, For, PrimFunc, SeqStmt, Stmt, below_assertions, children_of
from ...tir.walk import pre_order
from ..errors import ScheduleError
from ..require.block_preconditions import ordered_scope
from ..require.lookup import find_block
from ..require.loop_preconditions import check_loops_above
from .buffers import check_storage_scope, named_buffer
from .loop_nests import allocating, insert_in


@dataclass(frozen=True, slots=True, eq=False)
class CopyRequest:
    """A ``CopyRequest`` says what to copy: a buffer ``old`` that a block accesses, for the blocks of ``scope``.

    The copy lives in ``storage_scope``. Its buffer, and the block that fills or empties it, have the name ``name``.
    """

    tree: Tree
    realize: BlockRealize
    scope: BlockScope
    old: Buffer
    storage_scope: str
    name: str

    @staticmethod
    def of(func: PrimFunc, block: str, buffer: Any, storage_scope: str | None, suffix: str = "") -> CopyRequest:
        """Return the request for ``buffer`` (see :func:`named_buffer`) of a block, named with the storage scope or a
        suffix.

        Without a storage scope the copy lives where the buffer does.
        """
        wanted = None if storage_scope is None else check_storage_scope(storage_scope)
        tree = tree_of(func)
        realize = find_block(tree, block)
        scope = ordered_scope(tree, realize)
        old = named_buffer(realize, buffer)
        name = unique_block_name(func, f"{old.name}_{suffix or wanted}")
        return CopyRequest(tree, realize, scope, old, old.scope if wanted is None else wanted, name)

    @property
    def start(self) -> CopyPlace:
        """Return the place before all statements of the scope."""
        return CopyPlace(below_assertions(self.scope.root.block.body), 0)

    def writer(self) -> BlockRealize | None:
        """Return the block of the scope that writes the buffer, or None; ScheduleError when there are several."""
        writers = self.scope.writers.get(self.old, [])
        if len(writers) > 1:
            raise ScheduleError(
                f"buffer {self.old.name} is written by {len(writers)} blocks "
                f"({', '.join(repr(w.block.name_hint) for w in writers)}), so there is no one place for the copy",
                where=writers,
                hint="make the copy before decompose_reduction, or merge the writers first",
            )
        return writers[0] if writers else None

    def new_buffer(self, shape: tuple[Expr, ...] | None = None, **more: Any) -> Buffer:
        """Return the buffer of the copy, of this shape or that of the old one."""
        return Buffer(
            self.name,
            self.old.shape if shape is None else shape,
            self.old.dtype,
            self.storage_scope,
            data_alignment=self.old.data_alignment,
            **more,
        )

    def inserted(self, place: CopyPlace, stage: Stmt, changed: Mapping[Any, Any], copy: Buffer) -> PrimFunc:
        """Return the function with ``changed`` blocks, ``stage`` inserted at ``place``, and ``copy`` allocated."""
        root = self.scope.root.block
        early = [] if root.init is None else [b for b in blocks_below(root.init) if b in changed]
        if early:
            raise ScheduleError(
                f"block {early[0].block.name_hint!r} stands in the init of block {root.name_hint!r}, which runs before "
                "the place of the copy",
                where=early,
                hint="name other blocks in consumer_blocks, or decompose_reduction first",
            )
        for changed_or_new in (stage, *changed.values()):
            _check_own_axes(self.tree, changed_or_new)
        after = {place.where: lambda s: insert_in(s, place.number, stage), root: allocating(copy)}
        new = self.tree.replace(changed, after)
        check_loops_above(tree_of(new), find_block(tree_of(new), copy.name))
        return new


def _check_own_axes(tree: Tree, stmt: Stmt | None) -> None:
    """Raise ScheduleError when a block with axes uses loops of an outer scope, with which a copied region changes."""
    for realize in () if stmt is None else blocks_below(stmt):
        if not realize.block.iter_vars:
            continue
        inside = {n.loop_var for n in pre_order(realize.block) if isinstance(n, For)}
        for n in pre_order(realize.block):
            if isinstance(n, Var) and n in tree.loops and n not in inside:
                raise ScheduleError(
                    f"the copied part moves with loop {n.name} outside the scope, which a copy in it cannot follow",
                    where=tree.loops[n],
                    hint="make the copy in the outer scope, before blockize or loop_partition",
                )


@dataclass(frozen=True, slots=True, eq=False)
class CopyPlace:
    """A ``CopyPlace`` is the one before statement ``number`` of ``where``.

    ``behind`` is the statement of ``where`` that holds the writer, for a place between a writer and its users.
    """

    where: Stmt
    number: int
    behind: Stmt | None = None


def place_beside(tree: Tree, nest: Stmt, after: bool) -> CopyPlace:
    """Return the place directly before or after a statement."""
    above = tree.parent[nest]
    return (
        CopyPlace(above, above.seq.index(nest) + after) if isinstance(above, SeqStmt) else CopyPlace(nest, int(after))
    )


def place_between(tree: Tree, scope: BlockScope, writer: BlockRealize, users: Sequence[BlockRealize]) -> CopyPlace:
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
        return CopyPlace(body, len(children_of(body)))
    meet = best[1]
    held = [tree.child_of(meet, user) for user in users if meet in set(tree.above(user))]
    return CopyPlace(meet, min(meet.seq.index(child) for child in held), tree.child_of(meet, writer))


def dependents(scope: BlockScope, writer: BlockRealize) -> list[BlockRealize]:
    """Return the later blocks that read a buffer which ``writer`` writes."""
    users = {r for b in buffers_of(writer.block)[1] for r in scope.readers.get(b, ())}
    return sorted((r for r in users if scope.order[r] > scope.order[writer]), key=scope.order.__getitem__)
