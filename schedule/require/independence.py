"""This module requires that the iterations of loops are independent of each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...tir.analysis.accessed_boxes import accessed_boxes_below
from ...tir.analysis.dependence import conflicts
from ...tir.analysis.harmless_conflicts import binding_block, only_reduced, why_not_privatizable
from ...tir.analysis.known_ranges import analyzer_at
from ...tir.analysis.tree import Tree
from ...tir.annotations import ATOMIC
from ...tir.expr import IterVar, Var
from ...tir.stmt import BlockRealize, Buffer, For, Stmt
from ...tir.walk import pre_order, uses_var
from ..errors import ScheduleError, require
from .nest_preconditions import check_blocks_of_nest


def check_independent(
    tree: Tree,
    loop: For,
    doing: str,
    private: bool = False,
    reducing: bool = False,
    atomic: bool = False,
) -> None:
    """Raise ScheduleError unless the iterations of ``loop`` are independent of each other.

    With ``private``, a buffer does not count when each iteration can have a copy of its own. With ``reducing``,
    iterations may accumulate into the same elements; with ``atomic``, those of blocks that add atomically may.

    Only those axes below that are bound to the loop are checked: spatial axes stay independent beside an axis that must
    run in order (a scan).
    """
    var = loop.loop_var
    check_blocks_of_nest(tree, [loop], {IterVar.SPATIAL, IterVar.REDUCE}, bound=True)
    touches = require(accessed_boxes_below(loop.body))
    why_shared: dict[Buffer, str | None] = {}

    def is_private(buffer: Buffer) -> bool:
        if private and buffer not in why_shared:
            why_shared[buffer] = why_not_privatizable(tree, loop, buffer, touches)
        return private and why_shared[buffer] is None

    for conflict in conflicts(analyzer_at(tree, loop), [loop], touches, harmless=is_private):
        buffer = conflict.store.buffer
        block = binding_block(conflict.store, conflict.other, [var])
        carries = block is not None and only_reduced(block, [var])
        if carries and (reducing or (atomic and is_atomic(block))):
            continue
        if carries:
            assert block is not None
            raise ScheduleError(
                f"loop {var.name} carries the reduction of block {block.block.name_hint!r} (axis {_axis(block, var)}): "
                f"its iterations all accumulate into the same elements of {buffer.name} and cannot {doing} "
                f"(all {loop.extent} of them add to {conflict.place()})",
                where=(loop, block),
                hint="choose a spatial loop, or rfactor the reduction first",
            )
        why = why_shared.get(buffer) or "they are not proven to be different elements"
        raise ScheduleError(
            f"iterations of loop {var.name} share elements of buffer {buffer.name}: {conflict.text()}; they cannot "
            f"{doing} ({why})",
            where=[loop, *[t.realize for t in (conflict.store, conflict.other) if t.realize is not None]],
            hint="choose another loop, or give each iteration elements of its own",
        )


def is_atomic(realize: BlockRealize | None) -> bool:
    """Return whether a block adds to its result atomically. A loop of its reduction may then run on blocks of a GPU."""
    return realize is not None and ATOMIC in realize.block.annotations and realize.block.init is None


def check_loops_above(tree: Tree, stmt: Stmt, which: Callable[[For], bool] = lambda loop: True) -> None:
    """Raise ScheduleError unless the iterations of loops around ``stmt`` that run in no order are still independent.

    ``which`` selects the loops to check.
    """
    for loop in filter(which, tree.loops_above(stmt)):
        if loop.kind == "parallel":
            check_independent(tree, loop, "run in parallel", private=True)
        elif loop.kind == "vectorized":
            check_independent(tree, loop, "be the lanes of vectors")
        elif loop.kind == "thread_binding":
            reducing = (loop.thread_binding or "").startswith("threadIdx")
            doing = f"run on {loop.thread_binding}"
            check_independent(tree, loop, doing, private=True, reducing=reducing, atomic=True)


def _axis(realize: BlockRealize, var: Var) -> str:
    for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        if axis.kind == IterVar.REDUCE and uses_var(value, var):
            return axis.var.name
    return "?"


def check_kinds_for(tree: Tree, realize: BlockRealize, loops: Sequence[For]) -> None:
    """Raise ScheduleError when a reduce axis of the block would run on a parallel, vectorized or thread-bound loop."""
    for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        if iv.kind == IterVar.SPATIAL:
            continue
        for loop in loops:
            bound = loop.thread_binding or ""
            if loop.kind in ("serial", "unrolled") or bound.startswith("threadIdx") or (bound and is_atomic(realize)):
                continue  # on threadIdx it becomes a reduction across threads, as with bind
            if any(n is loop.loop_var for n in pre_order(value)):
                raise ScheduleError(
                    f"the {iv.kind} axis {iv.var.name} of block {realize.block.name_hint!r} would run on the "
                    f"{loop.kind} loop {loop.loop_var.name}",
                    where=tree.loops.get(loop.loop_var, loop),
                    hint="choose a serial loop, or do this before parallel, vectorize and bind",
                )
