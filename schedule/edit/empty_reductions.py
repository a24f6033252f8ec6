"""This module checks that a reduction over nothing keeps its init when the loops around it change."""

from __future__ import annotations

from ...tir.analysis.known_ranges import analyzer_at
from ...tir.analysis.reduction_init import start_in_front
from ...tir.analysis.tree import Tree, blocks_below, tree_of
from ...tir.expr import IntImm, IterVar
from ...tir.stmt import BlockRealize, For, PrimFunc, Stmt
from ..errors import ScheduleError
from ..require.lookup import find_block


def check_starts_kept(old: Tree, new: PrimFunc, loop: For) -> None:
    """ScheduleError when a reduction below ``loop`` that may be over nothing loses the init in front of its loops.

    The elements of a reduction over nothing are its init, which nothing runs where it stands in the loops. ``new`` is the
    function with other loops in the place of ``loop``.
    """
    for realize in blocks_below(loop.body):
        if realize.block.init is None or not may_be_empty(old, realize):
            continue
        after = tree_of(new)
        moved = find_block(after, realize.block.name_hint)
        kept = start_in_front(moved, _path(after, moved)) is not None
        if not kept and start_in_front(realize, _path(old, realize)) is not None:
            raise ScheduleError(
                f"the reduction of block {realize.block.name_hint!r} may be over no elements, and its init would run in none "
                "of the new loops",
                where=(loop, realize),
                hint="let no loop run over spatial and reduce axes at once, and no factor depend on other loops; or "
                "decompose_reduction first",
            )


def may_be_empty(tree: Tree, realize: BlockRealize) -> bool:
    """Returns whether a reduce axis may have no values. A symbolic size may be 0 at the call."""
    extents = [iv.dom.extent for iv in realize.block.iter_vars if iv.kind == IterVar.REDUCE]
    if all(isinstance(e, IntImm) and e.value > 0 for e in extents):
        return False
    analyzer = analyzer_at(tree, realize, maybe_empty=tree.loops_above(realize))
    return not all(analyzer.can_prove(e >= 1) for e in extents)


def _path(tree: Tree, realize: BlockRealize) -> list[Stmt]:
    """The statements around a block, outermost first."""
    return list(tree.above(realize))[::-1]
