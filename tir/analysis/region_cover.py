"""This module proves that a block runs on the domain of its axes, and that its inputs are written before.

:func:`required_domains` derives the values of a block's axes that access given elements.

:func:`covers_domain` and :func:`domain_conditions` compare the loops around a block with the domain of its axes.
:func:`why_not_covered` proves that where a consumer runs, everything that it reads has been written and is final.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from ..arith import Analyzer, Ends, eval_interval, linear_coefficients
from ..arith.itermap import digit_of, invert
from ..expr import (
    Add,
    Expr,
    FloorDiv,
    IntImm,
    IterVar,
    Max,
    Min,
    Range,
    Reason,
    Sub,
    Var,
    cast,
    conjuncts,
    is_const_int,
    max_,
    min_,
)
from ..expr.traversal import pre_order, substitute, uses_var
from ..stmt import BlockRealize, Buffer, IfThenElse, While
from .access import Access, accesses, opaque_buffers
from .footprint import Box, all_run, exact_box, only_reduces
from .known_ranges import analyzer_at, bind_loops
from .scope import scope_at
from .tree import Tree

Required = list[tuple[Access, list["Ends | None"]]]
"""Accesses of the moved block, with the bounds of the elements that are required from each."""


def join_ends(analyzer: Analyzer, a: Ends | None, b: Ends | None) -> Ends | None:
    """Return the interval around two intervals; None stands for an unbounded one."""
    if a is None or b is None:
        return None
    return analyzer.simplify(min_(a[0], b[0])), analyzer.simplify(max_(a[1], b[1]))


def join_boxes(analyzer: Analyzer, boxes: Iterable[Sequence[Ends | None]], ndim: int) -> list[Ends | None]:
    """Return the box around boxes of ``ndim`` dimensions; unbounded when there are none."""
    total: list[Ends | None] | None = None
    for box in boxes:
        total = list(box) if total is None else [join_ends(analyzer, a, b) for a, b in zip(total, box, strict=True)]
    return [None] * ndim if total is None else total


def required_domains(analyzer: Analyzer, axes: Sequence[IterVar], required: Required) -> dict[Var, Ends | None]:
    """Return bounds of each axis that include all values which access a required element; None for the whole domain."""
    names = [iv.var for iv in axes]
    out: dict[Var, Ends | None] = {}
    known: set[Var] = set()
    for access, box in required:
        found = _solve_one(analyzer, axes, access, box)
        for v in names:
            if v in known:
                out[v] = join_ends(analyzer, out[v], found.get(v))
            else:
                known.add(v)
                out[v] = found.get(v)
    return {v: out.get(v) for v in names}


def _solve_one(
    analyzer: Analyzer, axes: Sequence[IterVar], access: Access, box: Sequence[Ends | None]
) -> dict[Var, Ends]:
    doms = {iv.var: iv.dom for iv in axes}
    inner = {lp.loop_var: Range(lp.min, lp.extent) for lp in access.loops}
    out: dict[Var, Ends] = {}
    local = Analyzer()
    for v, r in (*doms.items(), *inner.items()):
        unit = v in doms and is_const_int(r.extent, 1)
        local.bind(v, (r.min, r.min + 1) if unit else r)  # treated as longer, so that simplification keeps the axis
    digits: dict[Var, dict[tuple[int, int | None], Ends]] = {}
    for index, ends in zip(access.indices, box, strict=True):
        if ends is None:
            continue
        e = local.simplify(index)
        digit = digit_of(e, doms)
        if digit is not None and digit[1:] != (1, None):
            digits.setdefault(digit[0], {}).setdefault(digit[1:], ends)
            continue
        for v, found in _solve_linear(analyzer, e, ends, doms, inner).items():
            old = out.get(v)
            out[v] = found if old is None else _meet(analyzer, old, found)
    for v, parts in digits.items():
        joined = _join_digits(analyzer, parts, doms[v])
        if joined is not None:
            old = out.get(v)
            out[v] = joined if old is None else _meet(analyzer, old, joined)
    return {v: (cast(v.dtype, lo), cast(v.dtype, hi)) for v, (lo, hi) in out.items()}


def _meet(analyzer: Analyzer, a: Ends, b: Ends) -> Ends:
    """Return one of two intervals that both contain the values.

    It is the one that is known to lie inside the other, else the first.
    """
    if analyzer.can_prove(b[0] >= a[0]) and analyzer.can_prove(b[1] <= a[1]):
        return b
    return a


def _solve_linear(
    analyzer: Analyzer, e: Expr, ends: Ends, doms: Mapping[Var, Range], inner: Mapping[Var, Range]
) -> dict[Var, Ends]:
    """Return bounds of each axis v in ``c*v + rest``, given that the sum lies between ``ends``."""
    movers = {v: r for v, r in {**doms, **inner}.items() if uses_var(e, v)}
    line = linear_coefficients(e, list(movers))
    if line is None:
        return {}
    out: dict[Var, Ends] = {}
    for v, c in zip(movers, line[0], strict=True):
        if v not in doms or not isinstance(c, IntImm) or c.value == 0:
            continue
        others = {w: r for w, r in movers.items() if w is not v}
        rest = eval_interval(e - v * c, others) if others else (line[1], line[1])
        if rest is None:
            continue
        lo, hi = ends[0] - rest[1], ends[1] - rest[0]
        k = c.value
        if k < 0:
            lo, hi, k = 0 - hi, 0 - lo, -k
        if k > 1:
            lo, hi = (lo + (k - 1)) // k, hi // k
        out[v] = (analyzer.simplify(lo), analyzer.simplify(hi))
    return out


def _join_digits(analyzer: Analyzer, parts: Mapping[tuple[int, int | None], Ends], dom: Range) -> Ends | None:
    """Return bounds of the values whose digits lie between the given ends."""
    lo: Expr = IntImm(0)
    hi: Expr = IntImm(0)
    expected = 1
    for (lower, upper), (first, last) in sorted(parts.items(), key=lambda p: p[0][0]):
        if lower > expected and expected == 1:  # the lowest digits are unknown: they may have any value
            hi = hi + (lower - 1)
        elif lower != expected:
            return None
        lo, hi = lo + first * lower, hi + last * lower
        expected = upper if upper is not None else 0
    if expected != 0 and not (is_const_int(dom.extent) and analyzer.can_prove(dom.extent <= expected)):
        return None
    return analyzer.simplify(lo), analyzer.simplify(hi)


def covers_domain(tree: Tree, realize: BlockRealize, once: bool = False) -> bool:
    """Return whether the loops of its scope run the block on the whole domain of its axes. With ``once`` they must run
    it once on each point."""
    block, loops = realize.block, tree.loops_above(realize)
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
