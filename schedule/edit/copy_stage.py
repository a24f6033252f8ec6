"""This module inserts the copy of a buffer into a function."""

from __future__ import annotations

from ...tir.analysis.scope import Scope
from ...tir.analysis.tree import blocks_below, tree_of
from ...tir.buffer import Buffer
from ...tir.expr import Var
from ...tir.function import PrimFunc
from ...tir.stmt import For, Stmt
from ...tir.walk import pre_order
from ..errors import ScheduleError
from ..lookup import find_block
from ..require.independence import check_loops_above
from .statement_edits import allocating, insert_in, rebuild


def _check_own_axes(func: PrimFunc, stmt: Stmt | None) -> None:
    """Raise ScheduleError when a block with axes uses loops of an outer scope, with which a copied region changes."""
    loops = tree_of(func).loops
    for realize in () if stmt is None else blocks_below(stmt):
        if not realize.block.iter_vars:
            continue
        inside = {n.loop_var for n in pre_order(realize.block) if isinstance(n, For)}
        for n in pre_order(realize.block):
            if isinstance(n, Var) and n in loops and n not in inside:
                raise ScheduleError(
                    f"the copied part moves with loop {n.name} outside the scope, which a copy in it cannot follow",
                    where=loops[n],
                    hint="make the copy in the outer scope, before blockize or loop_partition",
                )


def insert_stage(
    func: PrimFunc,
    scope: Scope,
    place: tuple[Stmt, int],
    stage: Stmt,
    changed: dict[Stmt, Stmt | None],
    copy: Buffer,
) -> PrimFunc:
    """Return the function with ``changed`` blocks, ``stage`` inserted at ``place[0]``, and ``copy`` allocated."""
    where, position = place
    root = scope.root.block
    early = [] if root.init is None else [b for b in blocks_below(root.init) if b in changed]
    if early:
        raise ScheduleError(
            f"block {early[0].block.name_hint!r} stands in the init of block {root.name_hint!r}, which runs before the "
            "place of the copy",
            where=early,
            hint="name other blocks in consumer_blocks, or decompose_reduction first",
        )
    for changed_or_new in (stage, *changed.values()):
        _check_own_axes(func, changed_or_new)
    new = rebuild(
        tree_of(func),
        changed,
        {
            where: lambda s: insert_in(s, position, stage),
            root: allocating(copy),
        },
    )
    after = tree_of(new)
    check_loops_above(after, find_block(after, copy.name))
    return new
