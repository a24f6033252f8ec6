"""This module makes a loop nest over a block, and inserts it into a function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...tir.analysis.footprint import Ends
from ...tir.analysis.tree import Tree
from ...tir.arith import Analyzer, conjuncts
from ...tir.arith.itermap import without_low_digits
from ...tir.expr import Expr, IntImm, IterVar, Range, Var, const, is_const_int
from ...tir.function import PrimFunc
from ...tir.op import all_
from ...tir.stmt import Block, BlockRealize, Evaluate, For, SeqStmt, Stmt, seq
from ...tir.walk import pre_order, substitute
from ..errors import ScheduleError


@dataclass(frozen=True, slots=True)
class Span:
    """A ``Span`` is the interval ``[start, start + extent)``, limited by ``at_least`` and ``at_most`` where given.

    Values outside these limits do not exist.
    """

    start: Expr
    extent: Expr
    at_least: Expr | None = None
    at_most: Expr | None = None


def span_within(analyzer: Analyzer, wanted: Ends | None, dom: Range) -> Span:
    """Return the span of ``wanted`` limited to the domain; the whole domain when ``wanted`` is None.

    The extent stays constant where possible; values outside the domain are then excluded by a condition, as in TVM.
    Where the limits change between iterations, the extents of the new loops change too.
    """
    first, last = dom.min, analyzer.simplify(dom.min + dom.extent - 1)
    if wanted is None:
        return Span(first, dom.extent)
    lo, hi = wanted
    lo_in, hi_in = analyzer.can_prove(lo >= first), analyzer.can_prove(hi <= last)
    extent = analyzer.simplify(hi - lo + 1)
    if not (lo_in and hi_in):
        cut_lo = first if not lo_in and analyzer.can_prove(lo <= first) else lo
        cut_hi = last if not hi_in and analyzer.can_prove(hi >= last) else hi
        cut = analyzer.simplify(cut_hi - cut_lo + 1)
        if (cut_lo is first and cut_hi is last) or (isinstance(cut, IntImm) or not isinstance(extent, IntImm)):
            lo, hi, extent = cut_lo, cut_hi, cut
            lo_in, hi_in = lo_in or cut_lo is first, hi_in or cut_hi is last
    above = None if lo_in else first
    below = None if hi_in else last
    return Span(lo, extent, above, below)


def realize_over(
    analyzer: Analyzer,
    block: Block,
    spans: Sequence[Span],
    keep_unit_loops: bool,
    conditions: Sequence[Expr] = (),
) -> tuple[BlockRealize, list[tuple[Var, Expr]]]:
    """Return the realization of ``block`` with each axis over its span, and the new loops, outermost first.

    ``conditions`` on the axes are added to those of the spans. ``analyzer`` learns the ranges of the new loops.
    """
    loops: list[tuple[Var, Expr]] = []
    values: list[Expr] = []
    tests: list[Expr] = []
    for span in spans:
        if keep_unit_loops or not is_const_int(span.extent, 1):
            var = Var(f"ax{len(loops)}", span.extent.dtype)
            loops.append((var, span.extent))
            analyzer.bind(var, Range.from_extent(span.extent))
            value = span.start + var
        else:
            value = span.start
        values.append(value)
        if span.at_least is not None:
            tests.append(span.at_least <= value)
        if span.at_most is not None:
            tests.append(value < analyzer.simplify(span.at_most + 1))
    at = {iv.var: value for iv, value in zip(block.iter_vars, values, strict=True)}
    kept: list[Expr] = []
    for test in (*tests, *[substitute(c, at) for c in conditions]):
        kept.extend([without_low_digits(analyzer, c) for c in conjuncts(analyzer.simplify(test))])
    return BlockRealize(tuple(values), all_(*kept), block), loops


def nest(loops: Sequence[tuple[Var, Expr]], body: Stmt) -> Stmt:
    """Return serial loops from zero around ``body``."""
    for var, extent in reversed(loops):
        body = For(var, const(0, var.dtype), extent, "serial", body)
    return body


def rebuild(
    tree: Tree,
    changes: Mapping[Stmt, Stmt | None],
    after: Mapping[Stmt, Callable[[Any], Stmt]],
) -> PrimFunc:
    """Return the function with each key of ``changes`` replaced, then with each key of ``after``.

    A key of ``after`` may lie above those of ``changes``; its function gets the statement as it is by then. A sequence
    keeps its positions until its own key is processed.
    """
    dirty: set[Stmt] = set()
    for key in (*changes, *after):
        for up in (key, *tree.above(key)):
            if up in dirty:
                break
            dirty.add(up)

    def walk(n: Any) -> Any:
        if not isinstance(n, Stmt) or n not in dirty:
            return n
        if n in changes:
            return changes[n]
        out: Any
        if isinstance(n, SeqStmt) and n in after:
            kept = [walk(s) for s in n.seq]
            return after[n](SeqStmt(tuple([Evaluate(IntImm(0)) if s is None else s for s in kept])))
        if isinstance(n, SeqStmt):
            out = seq(*[walk(s) for s in n.seq])
        elif isinstance(n, For):
            out = n.with_(body=walk(n.body))
        elif isinstance(n, Block):
            out = n.with_(body=walk(n.body), init=walk(n.init))
        else:
            out = n.map_children(walk)
        return after[n](out) if n in after else out

    return tree.func.with_body(walk(tree.func.body))


def children_of(stmt: Stmt) -> tuple[Stmt, ...]:
    """Return the statements of a sequence, or the single statement."""
    return stmt.seq if isinstance(stmt, SeqStmt) else (stmt,)


def insert_in(body: Stmt, position: int, new: Stmt) -> SeqStmt:
    """Return ``body`` as a sequence with ``new`` inserted before statement number ``position``."""
    old = children_of(body)
    return SeqStmt((*old[:position], *children_of(new), *old[position:]))


def check_kinds_for(tree: Tree, realize: BlockRealize, loops: Sequence[For]) -> None:
    """Raise ScheduleError when a reduce axis of the block would run on a parallel, vectorized or thread-bound loop."""
    for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        if iv.kind == IterVar.SPATIAL:
            continue
        for loop in loops:
            if loop.kind in ("serial", "unrolled") or (loop.thread_binding or "").startswith("threadIdx"):
                continue  # on threadIdx it becomes a reduction across threads, as with bind
            if any(n is loop.loop_var for n in pre_order(value)):
                raise ScheduleError(
                    f"the {iv.kind} axis {iv.var.name} of block {realize.block.name_hint!r} would run on the "
                    f"{loop.kind} loop {loop.loop_var.name}",
                    where=tree.loops.get(loop.loop_var, loop),
                    hint="choose a serial loop, or do this before parallel, vectorize and bind",
                )
