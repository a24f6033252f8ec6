"""This module makes blocks that store one element for each value of their axes, and the loops that run them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...tir.analysis.regions import access_regions
from ...tir.analysis.tree import Tree, tree_of
from ...tir.arith import Analyzer, Ends
from ...tir.arith.itermap import without_low_digits
from ...tir.expr import BufferLoad, Expr, IntImm, IterVar, Range, Var, all_, conjuncts, const, is_const_int
from ...tir.stmt import (
    Block,
    BlockRealize,
    Buffer,
    BufferRegion,
    BufferStore,
    For,
    PrimFunc,
    SeqStmt,
    Stmt,
    children_of,
)
from ...tir.walk import loads_and_stores, pre_order, substitute
from ..require.block_preconditions import find_block, find_loop


def insert_in(body: Stmt, position: int, new: Stmt) -> SeqStmt:
    """Return ``body`` as a sequence with ``new`` inserted before statement number ``position``."""
    old = children_of(body)
    return SeqStmt((*old[:position], *children_of(new), *old[position:]))


def allocating(*buffers: Buffer) -> Callable[[Block], Stmt]:
    """Return the change of a block that lets it allocate ``buffers`` as well; for :meth:`Tree.replace`."""
    return lambda block: block.with_(alloc_buffers=(*block.alloc_buffers, *buffers))


def freeing(buffers: Collection[Buffer]) -> Callable[[Block], Stmt]:
    """Return the change of a block that no longer allocates ``buffers``; for :meth:`Tree.replace`."""
    return lambda block: block.with_(alloc_buffers=tuple([b for b in block.alloc_buffers if b not in buffers]))


def with_annotation(func: PrimFunc, block_or_loop: str | Var, ann_key: str, ann_val: Any) -> PrimFunc:
    """Return the function with an annotation of a block or loop, replacing an earlier one of that name."""
    tree, node = annotation_target(func, block_or_loop)
    return with_annotations(tree, node, {**node.annotations, str(ann_key): ann_val})


def annotation_target(func: PrimFunc, which: str | Var) -> tuple[Tree, For | Block]:
    """Return the index of the function, and the loop or block that is annotated."""
    tree = tree_of(func)
    return tree, find_loop(tree, which) if isinstance(which, Var) else find_block(tree, which).block


def with_annotations(tree: Tree, node: For | Block, annotations: Mapping[str, Any]) -> PrimFunc:
    """Return the function with these annotations of a loop or block in place of all it had."""
    if isinstance(node, For):
        return tree.replace({node: node.with_(annotations=annotations)})
    realize = tree.parent[node]
    assert isinstance(realize, BlockRealize)
    block = node.with_(annotations=annotations)
    return tree.replace({realize: BlockRealize(realize.iter_values, realize.predicate, block)})


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


def fresh_variables(loops: Sequence[For], suffix: str = "") -> dict[Var, Expr]:
    """Return a new variable for the variable of each loop."""
    return {lp.loop_var: Var(lp.loop_var.name + suffix, lp.loop_var.dtype) for lp in loops}


def in_loops_like(loops: Sequence[For], fresh: Mapping[Var, Expr], body: Stmt, serial: bool = False) -> Stmt:
    """Return ``body`` in loops like the given ones, or ``serial`` ones, whose variables are the ``fresh`` ones."""
    for lp in reversed(loops):
        var, lo, extent = fresh[lp.loop_var], substitute(lp.min, fresh), substitute(lp.extent, fresh)
        assert isinstance(var, Var)
        if serial:
            body = For(var, lo, extent, "serial", body)
        else:
            body = lp.with_(loop_var=var, min=lo, extent=extent, body=body)
    return body


def in_loops(loops: Sequence[For], body: Stmt) -> Stmt:
    """Return ``body`` inside the loops, given outermost first."""
    for lp in reversed(loops):
        body = lp.with_(body=body)
    return body


_ALWAYS = const(True, "bool")


def point(buffer: Buffer, indices: Sequence[Expr]) -> BufferRegion:
    """Return the region of one element."""
    return BufferRegion(buffer, tuple([Range(i, const(1, i.dtype)) for i in indices]))


def element_block(
    name: str,
    axes: Sequence[IterVar],
    store: BufferStore,
    reads: Sequence[BufferRegion] | None = None,
    init: Stmt | None = None,
) -> Block:
    """Return the block that runs ``store``; it declares to read the elements that the value loads, or ``reads``."""
    if reads is None:
        loads = list(loads_and_stores(store.value))
        indirect = any(isinstance(n, BufferLoad) for a in (store, *loads) for i in a.indices for n in pre_order(i))
        reads = access_regions(store)[0] if indirect else [point(a.buffer, a.indices) for a in loads]
    return Block(tuple(axes), tuple(reads), (point(store.buffer, store.indices),), name, store, init)


def copying_block(name: str, axes: Sequence[IterVar], source: BufferLoad, target: BufferLoad, names: str = "") -> Block:
    """Return the block that copies the element ``source`` to the place of ``target``, over copies of ``axes``.

    Their names stay, or are ``names`` and a number.
    """
    mine = [IterVar(iv.dom, Var(f"{names}{n}" if names else iv.var.name, iv.var.dtype)) for n, iv in enumerate(axes)]
    at: dict[Var, Expr] = {iv.var: new.var for iv, new in zip(axes, mine, strict=True)}
    there = tuple([substitute(i, at) for i in target.indices])
    return element_block(name, mine, BufferStore(target.buffer, substitute(source, at), there))


def in_own_loops(block: Block, condition: Expr = _ALWAYS, prefix: str = "ax") -> Stmt:
    """Return serial loops over the domains of the block's axes, one for each.

    The block runs where the ``condition`` on its axes holds.
    """
    loops = [Var(f"{prefix}{n}", iv.var.dtype) for n, iv in enumerate(block.iter_vars)]
    at: dict[Var, Expr] = {iv.var: loop for iv, loop in zip(block.iter_vars, loops, strict=True)}
    body: Stmt = BlockRealize(tuple(loops), substitute(condition, at), block)
    for var, iv in zip(reversed(loops), reversed(block.iter_vars), strict=True):
        body = For(var, iv.dom.min, iv.dom.extent, "serial", body)
    return body
