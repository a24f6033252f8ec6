"""This module checks what primitives require of loops that change, and of the loops around a reduction.

A reduction over nothing has to keep its init.

Their iterations are independent of each other, and the blocks below them allow it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import gcd
from typing import Any

from ...tir.analysis.dependence import (
    accessed_boxes_below,
    binding_block,
    conflicts,
    only_reduced,
    why_not_privatizable,
)
from ...tir.analysis.footprint import exact_box
from ...tir.analysis.known_ranges import analyzer_at
from ...tir.analysis.reductions import start_in_front
from ...tir.analysis.scope import is_output_block
from ...tir.analysis.tree import Tree, blocks_below, tree_of
from ...tir.annotations import ATOMIC
from ...tir.arith import Analyzer, detect_iter_map, linear_coefficients
from ...tir.arith.affine import as_difference
from ...tir.arith.itermap import constant_form
from ...tir.expr import Expr, IntImm, IterVar, Mul, Range, Var, all_, conjuncts, is_const_int
from ...tir.stmt import BlockRealize, Buffer, For, PrimFunc, Stmt
from ...tir.walk import pre_order, substitute, uses_var
from ..errors import ScheduleError, require
from .block_preconditions import find_block


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


def check_blocks_of_nest(
    tree: Tree, nest: Sequence[For], kinds: Collection[str], predicates: bool = False, *, bound: bool = False
) -> None:
    """Raise ScheduleError unless the axes of the outermost blocks below have these kinds and quasi-affine bindings.

    Products of loops are not quasi-affine. A block that writes a buffer which lives on after its scope may not skip
    values of an axis (``l * 16``). With ``predicates``, a predicate must limit the axes digit by digit, as the
    predicates from ``split`` do. With ``bound``, only the kinds of axes that are bound to loops of the nest are
    checked.
    """
    analyzer: Analyzer | None = None
    for realize in blocks_below(nest[-1].body):
        if predicates and not isinstance(realize.predicate, IntImm):
            _check_predicate(tree, nest, realize)
        for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
            if axis.kind not in kinds and not (bound and not _mentions(value, [loop.loop_var for loop in nest])):
                raise ScheduleError(
                    f"axis {axis.var.name} of block {realize.block.name_hint!r} is {axis.kind}; here axes are "
                    f"{' or '.join(sorted(kinds))}",
                    where=realize,
                    hint="declare the axis with T.axis.spatial where its iterations are independent, or leave these loops",
                )
            if isinstance(value, (Var, IntImm)):
                continue
            above = tree.loops_above(realize)
            # loops outside the nest are constant here
            loops = [loop.loop_var for loop in (above[above.index(nest[0]) :] if nest[0] in above else above)]
            why = _not_affine(value, loops)
            if why is None and axis.dom.extent is not value and is_output_block(tree, realize):
                analyzer = analyzer or analyzer_at(tree, realize)
                why = _holes(analyzer, value, loops)
            if why is not None:
                raise ScheduleError(
                    f"axis {axis.var.name} of block {realize.block.name_hint!r} is bound to {value}, {why}",
                    where=realize,
                    hint="bindings are sums of loops times constants, or quotients and remainders of those",
                )


def _check_predicate(tree: Tree, nest: Sequence[For], realize: BlockRealize) -> None:
    """Raise ScheduleError when the predicate does not leave a box of the spatial axes.

    A predicate that limits reduce axes too is not checked: the elements that the block writes are the same.
    """
    for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        if axis.kind != IterVar.SPATIAL and any(
            isinstance(n, Var) and uses_var(realize.predicate, n) for n in pre_order(value)
        ):
            return
    above = tree.loops_above(realize)
    inside = above[above.index(nest[0]) :]
    ranges = {loop.loop_var: Range(loop.min, loop.extent) for loop in inside}
    if constant_form(realize.iter_values, ranges, realize.predicate, False) is not None:
        return
    outer = analyzer_at(tree, nest[0])
    limits = [c for c in conjuncts(realize.predicate) if not _is_lower_end(c, realize.iter_values, ranges, outer)]
    found = detect_iter_map(realize.iter_values, ranges, all_(*limits), outer)
    if found.errors and not detect_iter_map(realize.iter_values, ranges, None, outer).errors:
        raise ScheduleError(
            f"the predicate {realize.predicate} of block {realize.block.name_hint!r} limits loops in a way that its "
            f"bindings do not take apart: {found.errors[0]}",
            where=realize,
            hint="predicates are ends of what a block's axes are bound to",
        )


def _is_lower_end(condition: Expr, values: Sequence[Expr], ranges: Mapping[Var, Range], analyzer: Analyzer) -> bool:
    """Returns whether a condition says where one axis begins: what it leaves of a box is a box."""
    gap = as_difference(condition)
    ends = [] if gap is None else [analyzer.simplify(gap + value) for value in values]
    return any(not any(uses_var(end, v) for v in ranges) for end in ends)


def _not_affine(value: Expr, loops: Sequence[Var]) -> str | None:
    for n in pre_order(value):
        if isinstance(n, Mul) and _mentions(n.a, loops) and _mentions(n.b, loops):
            return "which multiplies loops and so is not quasi-affine"
    return None


def _mentions(e: Any, loops: Sequence[Var]) -> bool:
    return any(isinstance(n, Var) and any(n is v for v in loops) for n in pre_order(e))


def _holes(analyzer: Analyzer, value: Expr, loops: Sequence[Var]) -> str | None:
    line = linear_coefficients(value, loops, analyzer)
    if line is None:
        return None
    factors = [c.value for c in line[0] if isinstance(c, IntImm) and c.value]
    if len(factors) != sum(not (isinstance(c, IntImm) and not c.value) for c in line[0]) or not factors:
        return None
    step = gcd(*factors)
    return f"which only takes every {step}th value" if step > 1 else None


def check_plain(loop: For, doing: str) -> None:
    """Raise ScheduleError when the loop has annotations or a thread binding, which ``doing`` would lose."""
    name = loop.loop_var.name
    if loop.annotations:
        raise ScheduleError(
            f"loop {name} has annotations ({', '.join(loop.annotations)}), which would be lost by {doing}",
            where=loop,
            hint="unannotate it first, and annotate the new loops",
        )
    if loop.thread_binding is not None:
        raise ScheduleError(
            f"loop {name} is bound to {loop.thread_binding}, which would be lost by {doing}",
            where=loop,
            hint="bind after this step",
        )


def check_at_zero(loop: For, analyzer: Analyzer) -> None:
    """Raise ScheduleError when the loop does not start at zero."""
    if not is_const_int(loop.min, 0) and not analyzer.can_prove_equal(loop.min, 0):
        raise ScheduleError(
            f"loop {loop.loop_var.name} starts at {loop.min}, only loops that start at 0 are supported",
            where=loop,
            hint="let the loop start at 0 and add the start where its variable is used",
        )


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
