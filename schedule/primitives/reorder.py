"""This module defines reorder and reorder_block_iter_var, which change the order of loops and of a block's axes."""

from __future__ import annotations

from collections.abc import Sequence

from ...tir.analysis.dependence import (
    accessed_boxes_below,
    accumulates,
    binding_block,
    conflicts,
    only_reduced,
    same_instance,
    why_not_privatizable,
)
from ...tir.analysis.known_ranges import analyzer_at
from ...tir.analysis.tree import Tree, tree_of
from ...tir.expr import IterVar, Var
from ...tir.stmt import Block, BlockRealize, For, PrimFunc, Stmt
from ...tir.walk import uses_var
from ..errors import ScheduleError, bad_argument, require
from ..primitive import primitive
from ..require.lookup import find_block, find_loop
from ..require.loop_preconditions import check_blocks_of_nest


@primitive
def reorder(func: PrimFunc, *ordered_loops: Var) -> PrimFunc:
    """Put loops of one nest into the given order; loops that are not named keep their places.

        for i, j, k in T.grid(16, 8, 4): ...   =>   reorder(k, i)   =>   for k, j, i in T.grid(4, 8, 16): ...

    The loops are nested directly, each the only statement of the one above. Extents must not depend on loops that come
    to be inside. Block axes below are spatial or reduce. It is proven that iterations which share an element keep their
    order, or run the same block with equal axes. The order in which a block's own reduce axes accumulate may change,
    and with it the rounding of floats. A block that uses pointers is trusted to have independent spatial axes.
    """
    tree = tree_of(func)
    chosen = [find_loop(tree, v) for v in ordered_loops]
    if not chosen:
        return func
    if len(set(chosen)) != len(chosen):
        twice = next(loop for n, loop in enumerate(chosen) if loop in chosen[:n])
        raise bad_argument(f"loop {twice.loop_var.name} is given twice", where=twice, hint="name each loop once")
    nest = _nest(tree, chosen)
    places = [n for n, loop in enumerate(nest) if loop in chosen]
    new = list(nest)
    for place, loop in zip(places, chosen, strict=True):
        new[place] = loop
    moved = [n for n, (a, b) in enumerate(zip(nest, new, strict=True)) if a is not b]
    if not moved:
        return func
    check_blocks_of_nest(tree, nest, {IterVar.SPATIAL, IterVar.REDUCE}, predicates=True)
    nest, new = nest[moved[0] : moved[-1] + 1], new[moved[0] : moved[-1] + 1]
    for n, loop in enumerate(new):
        for inner in new[n + 1 :]:
            if uses_var(loop.min, inner.loop_var) or uses_var(loop.extent, inner.loop_var):
                raise ScheduleError(
                    f"the bounds of loop {loop.loop_var.name} depend on loop {inner.loop_var.name}, which would come "
                    "to stand inside it",
                    where=(loop, inner),
                    hint="keep these two in this order",
                )
    _check_order(tree, nest, new)
    body: Stmt = nest[-1].body
    for loop in reversed(new):
        body = loop.with_(body=body)
    return tree.replace({nest[0]: body})


def _nest(tree: Tree, chosen: Sequence[For]) -> list[For]:
    """Return the loops from the outermost to the innermost of the chosen ones, each directly in the one before."""
    wanted = set(chosen)
    # the innermost loop is the one that has all others above it
    depth = {loop: len(tree.path(loop)) for loop in chosen}
    bottom = max(chosen, key=depth.__getitem__)
    nest: list[For] = [bottom]
    wanted.discard(bottom)
    here: Stmt = bottom
    while wanted:
        up = tree.parent[here]
        if not isinstance(up, For):
            missing = next(loop for loop in chosen if loop in wanted)
            raise ScheduleError(_why_no_nest(tree, missing, bottom, up), where=(missing, bottom), hint=_NEST_HINT)
        nest.append(up)
        wanted.discard(up)
        here = up
    nest.reverse()
    return nest


_NEST_HINT = "reorder works on loops nested directly, one in the other"


def _why_no_nest(tree: Tree, loop: For, bottom: For, stop: Stmt | None) -> str:
    a, b = loop.loop_var.name, bottom.loop_var.name
    if not tree.is_below(bottom, loop):
        return f"loop {a} is not above loop {b}"
    if isinstance(stop, (Block, BlockRealize)):
        return f"loops {a} and {b} are not in the same block"
    return f"between loop {a} and loop {b} stand other statements ({type(stop).__name__})"


def _check_order(tree: Tree, nest: Sequence[For], new: Sequence[For]) -> None:
    """Raise ScheduleError unless iterations that share an element keep their order."""
    touches = require(accessed_boxes_below(nest[-1].body))
    place = {loop.loop_var: n for n, loop in enumerate(new)}
    for conflict in conflicts(analyzer_at(tree, nest[0]), nest, touches):
        free = conflict.loops
        if [place[v] for v in free] == sorted(place[v] for v in free):
            continue
        block = binding_block(conflict.store, conflict.other, free)
        why: str | None
        if block is not None and same_instance(conflict, block, free):
            continue
        if block is not None and only_reduced(block, free):
            if accumulates(block.block):
                continue
            why = f"block {block.block.name_hint!r} is not a known reduction, so the order of its iterations matters"
        else:
            why = why_not_privatizable(tree, nest[-1], conflict.store.buffer, touches)
        if why is None:
            continue
        names = ", ".join(v.name for v in free)
        raise ScheduleError(
            f"iterations of {names} share elements of buffer {conflict.store.buffer.name}: {conflict.text()}, "
            f"and the new order would run them the other way round ({why})",
            where=[loop for loop in nest if loop.loop_var in free],
            hint=f"keep {names} in this order",
        )


@primitive
def reorder_block_iter_var(func: PrimFunc, block: str, new_order: Sequence[int]) -> PrimFunc:
    """Put the axes of a block into another order: axis ``new_order[n]`` becomes the n-th."""
    tree = tree_of(func)
    realize = find_block(tree, block)
    count = len(realize.block.iter_vars)
    if sorted(new_order) != list(range(count)):
        raise bad_argument(
            f"new_order {list(new_order)} is not a permutation of the {count} axes of block {block!r}",
            where=realize,
            hint=f"name each of 0..{count - 1} once",
        )
    axes = tuple([realize.block.iter_vars[n] for n in new_order])
    values = tuple([realize.iter_values[n] for n in new_order])
    return tree.replace({realize: BlockRealize(values, realize.predicate, realize.block.with_(iter_vars=axes))})
