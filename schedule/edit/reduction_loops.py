"""This module checks the loops around a reduction block, and that a reduction over nothing keeps its init."""

from __future__ import annotations

from collections.abc import Sequence

from ...tir.analysis.footprint import exact_box
from ...tir.analysis.known_ranges import analyzer_at
from ...tir.analysis.reductions import start_in_front
from ...tir.analysis.tree import Tree, blocks_below, tree_of
from ...tir.expr import Expr, IntImm, IterVar, Range, conjuncts
from ...tir.stmt import BlockRealize, For, PrimFunc, Stmt
from ...tir.walk import substitute, uses_var
from ..errors import ScheduleError
from ..require.lookup import find_block


def mentions(e: Expr, loops: Sequence[For]) -> bool:
    """Return whether an expression uses one of the loops."""
    names = {lp.loop_var for lp in loops}
    return uses_var(e, lambda v: v in names)


def check_sweep(tree: Tree, realize: BlockRealize, inner: Sequence[For], outer: Sequence[For]) -> None:
    """Raise ScheduleError unless the loops ``inner`` run the whole reduction, each point once, from the start of its
    axes."""
    block = realize.block
    for iv, value in zip(block.iter_vars, realize.iter_values, strict=True):
        if iv.kind == IterVar.REDUCE and mentions(value, outer):
            carrier = next(lp for lp in outer if uses_var(value, lp.loop_var))
            raise ScheduleError(
                f"loop {carrier.loop_var.name} carries the reduction over {iv.var.name} and lies outside",
                where=(carrier, realize),
                hint=f"name loop {carrier.loop_var.name} or one around it",
            )
    for lp in inner:
        if is_reduce_loop(realize, lp) and is_spatial_loop(realize, lp):
            raise ScheduleError(
                f"loop {lp.loop_var.name} runs over spatial and reduce axes at once",
                where=(lp, realize),
                hint="fuse spatial loops with spatial ones, reduction loops with reduction ones",
            )
    analyzer = analyzer_at(tree, realize)
    ranges = {lp.loop_var: Range(lp.min, lp.extent) for lp in inner}
    box = exact_box(analyzer, realize.iter_values, ranges, once=True)
    if box is None:  # a condition ends a fused loop that was split unevenly
        box = exact_box(analyzer, realize.iter_values, ranges, conjuncts(realize.predicate), once=True)
    if box is None:
        raise ScheduleError(
            f"the loops are not known to run block {block.name_hint!r} once on each point of its axes",
            where=(*inner[:1], realize),
            hint="bindings must be splits and fusions of loops, each loop used by one axis",
        )
    above = list(tree.above(realize))[::-1]
    for iv, (first, last) in zip(block.iter_vars, box.ends, strict=True):
        if iv.kind != IterVar.REDUCE:
            continue
        # without iterations the block gives its init only if that already runs in front of the loops
        if analyzer.can_prove_equal(first, iv.dom.min) and not analyzer.can_prove(last >= first):
            if start_in_front(realize, above) is None:
                raise ScheduleError(
                    f"reduce axis {iv.var.name} may have no iterations, and the init would run all the same",
                    where=realize,
                    hint="let no loop run over spatial and reduce axes at once",
                )
        elif not analyzer.can_prove_equal(first, iv.dom.min):
            raise ScheduleError(
                f"reduce axis {iv.var.name} starts at {first}, not at the start {iv.dom.min} of its domain where the "
                "init runs",
                where=realize,
                hint="split the reduction evenly, or choose an outer loop",
            )
    reduced = [lp for lp in inner if is_reduce_loop(realize, lp)]
    start = {lp.loop_var: lp.min for lp in reduced}
    mixed = [c for c in conjuncts(realize.predicate) if uses_var(c, lambda v: v in start)]
    for c in mixed:
        # where one has no iterations, the init that stands in front is all
        with analyzer.nonempty(*[lp.extent for lp in reduced]):
            first_kept = analyzer.can_prove(substitute(c, start))
        if not first_kept:
            raise ScheduleError(
                f"under {c} the reduction may leave out its first element, where the init runs",
                where=realize,
                hint="each iteration of the spatial loops must have an element to reduce",
            )


def is_reduce_loop(realize: BlockRealize, loop: For) -> bool:
    """Return whether a reduce axis of the block is bound to the loop."""
    return any(
        uses_var(value, loop.loop_var)
        for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)
        if iv.kind == IterVar.REDUCE
    )


def is_spatial_loop(realize: BlockRealize, loop: For) -> bool:
    """Return whether an axis of the block other than a reduce axis is bound to the loop."""
    return any(
        uses_var(value, loop.loop_var)
        for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)
        if iv.kind != IterVar.REDUCE
    )


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
