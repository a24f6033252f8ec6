"""This module turns the loops around one block into a block."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...tir.analysis.access_regions import regions_of
from ...tir.analysis.tree import Tree, blocks_below, unique_block_name
from ...tir.expr.base.node import Node
from ...tir.stmt import Block, BlockRealize, BufferRegion, For, Stmt
from ...tir.walk import uses_var
from ..errors import ScheduleError
from .block_division import DividedBlock, divide_block, init_nest, outer_regions
from .loop_nests import in_loops


def blockized(tree: Tree, loop: For, preserve_unit_iters: bool) -> BlockRealize:
    """Return the block that replaces ``loop``, the loops in it and their only block."""
    realize = _only_block(tree, loop)
    loops = tree.loops_above(realize)
    cut = loops.index(loop)
    outer, inner = loops[:cut], loops[cut:]
    check_direct(tree, realize, loop)
    halves = divide_block(tree, realize, outer, inner, preserve_unit_iters, loop)
    block = halves.inner.block
    name = block.name_hint
    init_name = unique_block_name(tree.func, f"{name}_init")
    new = Block(
        halves.axes,
        outer_regions(_own_reads(halves, realize), halves.domains(inner), halves.analyzer),
        outer_regions(regions_of(block)[1], halves.domains(inner), halves.analyzer),
        unique_block_name(tree.func, f"{name}_o", [init_name]),
        in_loops(inner, halves.inner),
        None if halves.init is None else init_nest(halves, inner, init_name),
    )
    check_closed(new, tree.all_loops_above(loop), inner, place_name(loop), [loop])
    return BlockRealize(halves.values, halves.predicate, new)


def check_closed(new: Block, outside: Iterable[For], inside: Iterable[For], what: str, where: Sequence[Node]) -> None:
    """Raise ScheduleError when a new block depends on a loop outside it. The regions that it declares may not depend on
    a loop inside it either.

    ``what`` are the words for the place of the new block.
    """
    regions = [e for region in (*new.reads, *new.writes) for r in region.region for e in (r.min, r.extent)]
    hint = "only loops whose bounds are the same in every iteration can become a block"
    for lp in outside:
        if uses_var(new, lp.loop_var):
            name = lp.loop_var.name
            problem = f"the bounds of the loops in {what} depend on loop {name}, which the new block could not see"
            raise ScheduleError(problem, where=(lp, *where), hint=hint)
    for lp in inside:
        if any(uses_var(e, lp.loop_var) for e in regions):
            raise ScheduleError(
                f"what one iteration of {what} touches depends on loop {lp.loop_var.name} in it, through the bounds of "
                "another loop",
                where=(lp, *where),
                hint=hint,
            )


def _own_reads(halves: DividedBlock, realize: BlockRealize) -> tuple[BufferRegion, ...]:
    """Return what the outer block reads; with an init, the elements that it accumulates into are left out."""
    reads, _ = regions_of(halves.inner.block)
    if realize.block.init is None:
        return reads
    declared = {r.buffer for r in realize.block.reads}
    return tuple([r for r in reads if r.buffer in declared])


def _only_block(tree: Tree, loop: For) -> BlockRealize:
    found = list(blocks_below(loop.body))
    name = loop.loop_var.name
    if len(found) != 1:
        what = ", ".join(repr(r.block.name_hint) for r in found)
        raise ScheduleError(
            f"loop {name} holds {len(found)} blocks ({what}); one is needed"
            if found
            else f"loop {name} holds no block",
            where=(loop, *found),
            hint="give the blocks as a list to make one block of several" if found else "",
        )
    return found[0]


def check_direct(tree: Tree, realize: BlockRealize, top: Stmt) -> None:
    """Raise ScheduleError when something other than loops stands between ``top`` and the block."""
    for up in tree.above(realize):
        if not isinstance(up, For):
            raise ScheduleError(
                f"between {place_name(top)} and block {realize.block.name_hint!r} stands a {type(up).__name__}; only "
                "loops may",
                where=(top, realize),
                hint="move the other statements out first, or choose a loop inside",
            )
        if up is top:
            return


def place_name(stmt: Stmt) -> str:
    """Return the words for a place in messages."""
    return f"loop {stmt.loop_var.name}" if isinstance(stmt, For) else "the block around"
