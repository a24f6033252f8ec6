"""This module inserts the copy of a buffer into a function. It says which buffer, where the copy is made, and who uses
it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...tir.analysis.scope import Scope
from ...tir.analysis.tree import Tree, blocks_below, tree_of, unique_block_name
from ...tir.expr import Expr, Var
from ...tir.stmt import BlockRealize, Buffer, For, PrimFunc, Stmt, below_assertions
from ...tir.walk import pre_order
from ..errors import ScheduleError
from ..require.block_preconditions import ordered_scope
from ..require.independence import check_loops_above
from ..require.lookup import find_block
from ..storage_scopes import check_storage_scope
from .buffer_arguments import named_buffer
from .copy_place import Place
from .statement_edits import allocating, insert_in


@dataclass(frozen=True, slots=True, eq=False)
class CopyRequest:
    """A ``CopyRequest`` says what to copy: a buffer ``old`` that a block accesses, for the blocks of ``scope``.

    The copy lives in ``storage_scope``. Its buffer, and the block that fills or empties it, have the name ``name``.
    """

    tree: Tree
    realize: BlockRealize
    scope: Scope
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
    def start(self) -> Place:
        """Return the place before all statements of the scope."""
        return Place(below_assertions(self.scope.root.block.body), 0)

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

    def inserted(self, place: Place, stage: Stmt, changed: Mapping[Any, Any], copy: Buffer) -> PrimFunc:
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
