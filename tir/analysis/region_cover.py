"""This module proves that a block runs on the domain of its axes, and that its inputs are written before.

:func:`covers_domain` and :func:`domain_conditions` compare the loops around a block with the domain of its axes.
:func:`why_not_covered` proves that where a consumer runs, everything that it reads has been written and is final.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from ..arith import Analyzer, eval_interval
from ..arith.itermap import invert
from ..expr import Add, Expr, FloorDiv, IntImm, IterVar, Max, Min, Range, Reason, Sub, Var, conjuncts
from ..expr.traversal import pre_order, substitute, uses_var
from ..stmt import BlockRealize, Buffer, For, IfThenElse, While
from .access import Access, accesses, opaque_buffers
from .footprint import Box, all_run, exact_box, only_reduces
from .known_ranges import analyzer_at, bind_loops
from .scope import scope_at
from .tree import Tree


def covers_domain(tree: Tree, realize: BlockRealize, once: bool = False, loops: Sequence[For] | None = None) -> bool:
    """Return whether the loops of its scope run the block on the whole domain of its axes. With ``once`` they must run
    it once on each point."""
    block = realize.block
    if loops is None:
        loops = tree.loops_above(realize)
    analyzer = analyzer_at(tree, realize)
    outside = analyzer_at(tree, realize, maybe_empty=loops)
    if not all_run(outside, loops, [iv.dom.extent for iv in block.iter_vars]):
        return False  # the block may not run although there are points
    box = exact_box(
        analyzer,
        realize.iter_values,
        {loop.loop_var: Range(loop.min, loop.extent) for loop in loops},
        conjuncts(realize.predicate),
        once,
    )
    if box is None:
        return False
    return all(analyzer.can_prove(c) for c in box.conditions) and all(
        analyzer.can_prove(lo <= iv.dom.min) and analyzer.can_prove(iv.dom.min + iv.dom.extent - 1 <= hi)
        for (lo, hi), iv in zip(box.ends, block.iter_vars, strict=True)
    )


def domain_text(realize: BlockRealize) -> str:
    """Return a text for messages about a domain, such as ``it runs with vi = i where i < 13, and vi goes over [0,
    17)``."""
    pairs = list(zip(realize.block.iter_vars, realize.iter_values, strict=True))
    values = ", ".join([f"{iv.var.name} = {value}" for iv, value in pairs])
    domains = ", ".join([f"{iv.var.name} goes over [{iv.dom.min}, {iv.dom.min + iv.dom.extent})" for iv, _ in pairs])
    where = "" if isinstance(realize.predicate, IntImm) else f" where {realize.predicate}"
    return f"it runs with {values}{where}, and {domains}"


def reduces_once(tree: Tree, realize: BlockRealize) -> bool:
    """Return whether its loops run a reduction block at most once on each point. Only then are init and updates
    meaningful.

    Loops outside all loops that carry the reduction may repeat it as a whole. Conditions are not considered, since they
    only exclude points.
    """
    loops = tree.loops_above(realize)
    carried = [
        value
        for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)
        if iv.kind != IterVar.SPATIAL
    ]
    first = next((i for i, lp in enumerate(loops) if any(uses_var(e, lp.loop_var) for e in carried)), len(loops))
    ranges = {lp.loop_var: Range(lp.min, lp.extent) for lp in loops[first:]}
    analyzer = analyzer_at(tree, realize)
    return any(
        exact_box(analyzer, realize.iter_values, ranges, conditions, once=True) is not None
        for conditions in ((), conjuncts(realize.predicate))
    )


def domain_conditions(tree: Tree, realize: BlockRealize) -> list[Expr] | None:
    """Return the conditions under which the loops of its scope run the block on a point of its domain.

    The conditions are expressions of the axes. There are none when the block runs on the whole domain; the result is
    None when they cannot be derived.
    """
    if covers_domain(tree, realize):
        return []
    loops = {lp.loop_var: Range(lp.min, lp.extent) for lp in tree.loops_above(realize)}
    axes = [iv.var for iv in realize.block.iter_vars]
    analyzer = analyzer_at(tree, realize.block.body)
    used = {v: r for v, r in loops.items() if any(uses_var(e, v) for e in realize.iter_values)}
    found = invert(analyzer, used, realize.iter_values, axes)
    if isinstance(found, Reason):
        return None
    solved, tests = found
    out: list[Expr] = []
    for test in (*tests, *[substitute(c, solved) for c in conjuncts(realize.predicate)]):
        left = analyzer.simplify(test)
        if uses_var(left, lambda v: v in loops):
            return None
        out.extend(conjuncts(left))
    return out


# -- cover ---------------------------------------------------------------------------------------------------------------


def why_not_covered(tree: Tree, writer: BlockRealize, reader: BlockRealize, buffer: Buffer) -> Reason | None:
    """Return why ``writer`` may not have written all that ``reader`` reads of ``buffer``, in its final state, or None.

    It must be written in the same iteration of the loops that both share, and no shared loop may carry the writer's
    reduction.
    """
    above = {loop.loop_var: None for loop in tree.loops_above(reader)}
    writer_loops = tree.loops_above(writer)
    shared = [loop for loop in writer_loops if loop.loop_var in above]
    shared_vars = {loop.loop_var for loop in shared}
    for iv, value in zip(writer.block.iter_vars, writer.iter_values, strict=True):
        if iv.kind == IterVar.REDUCE and uses_var(value, lambda v: v in shared_vars):
            loop = next(lp for lp in shared if uses_var(value, lp.loop_var))
            return Reason(
                f"loop {loop.loop_var.name} carries the reduction of block {writer.block.name_hint!r}, so inside it "
                f"buffer {buffer.name} is not final for block {reader.block.name_hint!r}",
                (loop, writer, reader),
                hint=f"choose a loop outside {loop.loop_var.name}",
            )
    skipped = _why_skipped(tree, writer, reader, buffer)
    if skipped is not None:
        return skipped
    writes = accesses(writer, buffer)
    if buffer.data in opaque_buffers(writer.block) or buffer.data in opaque_buffers(reader.block):
        return Reason(
            f"buffer {buffer.name} is accessed through a pointer or a match_buffer, which cannot be followed",
            (writer, reader),
            hint="do this before tensorize and other steps that bring in pointers",
        )
    boxes = []
    for store in writes:
        if store.is_store and not store.around.in_init:
            analyzer = analyzer_at(tree, writer)
            bind_loops(analyzer, store.loops)
            mine = [lp for lp in (*writer_loops, *store.loops) if lp.loop_var not in shared_vars]
            ranges = {lp.loop_var: Range(lp.min, lp.extent) for lp in mine}
            box = exact_box(analyzer, store.indices, ranges, store.guards)
            if box is not None:
                needed = [lp for lp in mine if not isinstance(lp.extent, IntImm) and not only_reduces(writer, lp)]
                runs = [lp.extent >= 1 for lp in needed]
                boxes.append(replace(box, conditions=(*box.conditions, *runs)))
    if not boxes:
        return Reason(
            f"the elements of {buffer.name} that block {writer.block.name_hint!r} writes in one iteration of the shared "
            "loops are not known to be a box without holes",
            (writer,),
            hint="choose an outer loop or another block, where whole boxes are written",
        )
    for load in accesses(reader, buffer):
        if load.is_store:
            continue
        if not any(_inside(tree, reader, load, box) for box in boxes):
            text = ", ".join(f"{lo}..{hi}" for lo, hi in boxes[0].ends)
            return Reason(
                f"block {reader.block.name_hint!r} reads {load.node}, and it is not shown that this lies in what "
                f"block {writer.block.name_hint!r} has written by then: {buffer.name}[{text}]",
                (writer, reader),
                hint="choose an outer loop, where the writer covers more",
            )
    return None


def _why_skipped(tree: Tree, writer: BlockRealize, reader: BlockRealize, buffer: Buffer) -> Reason | None:
    """Return the condition that decides whether the writer runs where the reader does; None when there is none."""
    around = set(tree.above(reader))
    for up in tree.above(writer):
        if isinstance(up, IfThenElse) or (isinstance(up, While) and up not in around):
            if up in around and tree.child_of(up, writer) is tree.child_of(up, reader):
                return None
            what = f"{'if' if isinstance(up, IfThenElse) else 'while'} {up.condition}"
            return Reason(
                f"block {writer.block.name_hint!r}, which writes {buffer.name} for block {reader.block.name_hint!r}, "
                f"stands under `{what}`, so it may not run",
                (writer, reader, up),
                hint="let the condition be part of the block, with T.where or T.if_then_else",
            )
        if up in around:
            return None
    return None


def _inside(tree: Tree, reader: BlockRealize, load: Access, box: Box) -> bool:
    analyzer = analyzer_at(tree, reader)
    bind_loops(analyzer, load.loops)
    with ExitStack() as known:
        known.enter_context(analyzer.nonempty(*load.buffer.shape))  # it has the element that is read
        for guard in load.guards:
            known.enter_context(analyzer.constraint(guard))
        if not all(analyzer.can_prove(c) for c in box.conditions):
            return False
        outside = {n for ends in box.ends for e in ends for n in pre_order(e) if isinstance(n, Var)}
        mine = [lp for lp in (*tree.loops_above(reader), *load.loops) if lp.loop_var not in outside]
        ranges = {lp.loop_var: (lp.min, lp.min + lp.extent - 1) for lp in mine}
        return all(
            _at_most(analyzer, lo, i, ranges) and _at_most(analyzer, i, hi, ranges)
            for i, (lo, hi) in zip(load.indices, box.ends, strict=True)
        )


def _at_most(analyzer: Analyzer, a: Expr, b: Expr, ranges: Mapping[Var, tuple[Expr, Expr]]) -> bool:
    """Return whether ``a <= b`` is proven.

    It is tried directly, for each operand of a minimum or maximum, and at the bounds of the loops in ``ranges``.
    """
    if analyzer.can_prove(a <= b):
        return True
    if isinstance(b, Min):
        return _at_most(analyzer, a, b.a, ranges) and _at_most(analyzer, a, b.b, ranges)
    if isinstance(a, Max):
        return _at_most(analyzer, a.a, b, ranges) and _at_most(analyzer, a.b, b, ranges)
    quotient = _quotient(analyzer.simplify(a))
    if quotient is not None:  # n // c + k <= b is n < (b - k + 1) * c
        n, c, k = quotient
        if analyzer.can_prove(n < (b - k + 1) * c):
            return True
    most = eval_interval(a, ranges) if uses_var(a, ranges.__contains__) else (a, a)
    least = eval_interval(b, ranges) if uses_var(b, ranges.__contains__) else (b, b)
    if most is None or least is None or (most[1] is a and least[0] is b):
        return False
    return analyzer.can_prove(most[1] <= least[0])


def _quotient(e: Expr) -> tuple[Expr, int, int] | None:
    """Return (n, c, k) when ``e`` is ``n // c + k``."""
    k = 0
    if isinstance(e, (Add, Sub)) and isinstance(e.b, IntImm):
        k = e.b.value if isinstance(e, Add) else -e.b.value
        e = e.a
    if isinstance(e, FloorDiv) and isinstance(e.b, IntImm) and e.b.value > 0:
        return e.a, e.b.value, k
    return None


def why_neighbours_not_covered(tree: Tree, realize: BlockRealize) -> Reason | None:
    """Return :func:`why_not_covered` for ``realize`` and the blocks of its scope that it exchanges data with.

    Blocks that share no loop with it are not considered, since one of the two is complete before the other starts.
    """
    scope = scope_at(tree.scope(realize))
    pairs = [(realize, buffer) for buffer in {r.buffer: None for r in realize.block.reads}]
    pairs += [
        (b, buffer) for buffer in {r.buffer: None for r in realize.block.writes} for b in scope.readers.get(buffer, ())
    ]
    reasons = (_why_reader_not_covered(tree, scope.writers.get(b, []), reader, b) for reader, b in pairs)
    return next((why for why in reasons if why is not None), None)


def _why_reader_not_covered(
    tree: Tree, writers: Sequence[BlockRealize], reader: BlockRealize, buffer: Buffer
) -> Reason | None:
    """Return why none of the writers covers the reader in each iteration of the loops that they share.

    Writers that share no loop with the reader are complete before it.
    """
    others = [w for w in writers if w is not reader]
    if not others or reader in writers:
        return None  # an accumulating block reads its own results
    around = {loop.loop_var for loop in tree.loops_above(reader)}
    if any(loop.loop_var in around for w in others for loop in tree.loops_above(w)):
        return why_none_covers(tree, others, reader, buffer)
    return None


def why_none_covers(tree: Tree, writers: Sequence[BlockRealize], reader: BlockRealize, buffer: Buffer) -> Reason | None:
    """Return why none of the writers covers the reader, or None when one does. The reason is that of the last
    writer."""
    last: Reason | None = None
    for writer in reversed(writers):
        why = why_not_covered(tree, writer, reader, buffer)
        if why is None:
            return None
        last = last or why
    return last
