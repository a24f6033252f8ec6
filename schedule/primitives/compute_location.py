"""This module defines sample_compute_location, which chooses where a block is computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import numpy as np

from ...tir.analysis.tree import Tree, blocks_below, tree_of
from ...tir.arith.smt import is_solving
from ...tir.expr import IterVar, Var, is_const_int
from ...tir.stmt import BlockRealize, For, PrimFunc
from ...tir.walk import uses_var
from ..edit.inlined_block import inlined
from ..edit.moved_block import moved_block
from ..errors import ScheduleError
from ..handles import COMPUTE_INLINE, COMPUTE_ROOT
from ..primitive import primitive
from ..require.block_preconditions import consumers_of
from ..require.lookup import find_block

ROOT, INLINE = -1, -2


@primitive(kind="sample")
def sample_compute_location(
    func: PrimFunc, block: str, decision: int | None = None, *, rng: np.random.Generator
) -> tuple[int, Var]:
    """Choose a place for :func:`compute_at` among the legal ones, all with equal probability.

    The decision is the position of a loop above the block's first consumer, -1 for the present place of the block, or
    -2 for inlining it. The output can be passed to ``compute_at`` as the loop.

    As in TVM, some places are not drawn: loops of one iteration, data-parallel loops inside a loop that reduces, and
    reducing loops without a data-parallel one inside. The last two would only repeat the work of another place.
    """
    tree = tree_of(func)
    realize = find_block(tree, block)
    consumers = consumers_of(tree, realize)
    loops = tree.loops_above(consumers[0]) if consumers else []
    if decision is None:
        legal = _legal_places(func, block, is_solving())
        decision = legal[int(rng.integers(len(legal)))]
    if isinstance(decision, bool) or not isinstance(decision, int) or not INLINE <= decision < len(loops):
        raise ScheduleError(
            f"the decision {decision!r} is not a place for block {block!r}: its consumer has {len(loops)} loops",
            where=[realize, *[loop for loop in loops if isinstance(loop, For)]],
            hint="-2 inlines, -1 leaves the block where it is, others count loops from outside",
        )
    if decision == ROOT:
        return decision, COMPUTE_ROOT
    return decision, COMPUTE_INLINE if decision == INLINE else loops[decision].loop_var


@lru_cache(maxsize=64)
def _legal_places(func: PrimFunc, block: str, with_solver: bool) -> tuple[int, ...]:
    """Return the decisions that may be drawn, in order.

    A function never changes, so that its result is cached for all draws (separately with and without the solver, which
    accepts more).
    """
    tree = tree_of(func)
    consumers = consumers_of(tree, find_block(tree, block))
    places = [INLINE] if consumers and _applies(partial(inlined, func, block)) else []
    places.append(ROOT)
    for number, loop in _candidates(tree, consumers):
        if _applies(partial(moved_block, func, block, loop.loop_var, False, -1, True)):
            places.append(number)
    return tuple(places)


def _candidates(tree: Tree, consumers: Sequence[BlockRealize]) -> list[tuple[int, For]]:
    """Return the loops around all consumers that may be drawn, with their positions."""
    if not consumers:
        return []
    loops = tree.loops_above(consumers[0])
    shared = [lp for lp in loops if all(tree.is_below(c, lp) for c in consumers)]
    parallel = [_is_data_parallel(lp) for lp in shared]
    last = max([n for n, p in enumerate(parallel) if p], default=-1)
    out: list[tuple[int, For]] = []
    reduces = False
    for number, loop in enumerate(shared[: last + 1]):
        if is_const_int(loop.extent, 1):
            continue
        if parallel[number] and reduces:
            break
        reduces = reduces or not parallel[number]
        out.append((number, loop))
    return out


def _is_data_parallel(loop: For) -> bool:
    """Return whether all axes below that are bound to the loop are spatial."""
    return all(
        iv.kind == IterVar.SPATIAL or not uses_var(value, loop.loop_var)
        for inner in blocks_below(loop.body)
        for iv, value in zip(inner.block.iter_vars, inner.iter_values, strict=True)
    )


def _applies(step: Callable[[], object]) -> bool:
    try:
        step()
    except ScheduleError:
        return False
    return True
