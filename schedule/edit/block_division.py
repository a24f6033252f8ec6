"""This module turns the loops around a block into a block, for blockize and tensorize.

The axes of the block are divided into those of an outer and of an inner block.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...tir.analysis.footprint import exact_box
from ...tir.analysis.known_ranges import analyzer_at
from ...tir.analysis.regions import access_regions, regions_of
from ...tir.analysis.tree import Tree, blocks_below, unique_block_name
from ...tir.arith import Analyzer, DivisionForm, detect_iter_map, divide_subspace, eval_interval
from ...tir.expr import BufferLoad, Expr, IntImm, IterVar, Range, Reason, Var, conjuncts, const, is_const_int, max_value
from ...tir.expr.node import IRNode
from ...tir.stmt import Block, BlockRealize, Buffer, BufferRegion, BufferStore, For, Stmt
from ...tir.walk import loads_and_stores, pre_order, reads_memory, substitute, uses_var
from ..errors import ScheduleError
from ..require.block_preconditions import scope_around
from .loop_nests import in_loops


def blockized(tree: Tree, loop: For, preserve_unit_iters: bool) -> BlockRealize:
    """Return the block that replaces ``loop``, the loops in it and their only block."""
    realize = _only_block(loop)
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


def check_closed(new: Block, outside: Iterable[For], inside: Iterable[For], what: str, where: Sequence[IRNode]) -> None:
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
    """Return the regions that the outer block reads. With an init, those that it accumulates into are left out."""
    reads, _ = regions_of(halves.inner.block)
    if realize.block.init is None:
        return reads
    declared = {r.buffer for r in realize.block.reads}
    return tuple([r for r in reads if r.buffer in declared])


def _only_block(loop: For) -> BlockRealize:
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


@dataclass(frozen=True, slots=True, eq=False)
class DividedBlock:
    """A ``DividedBlock`` holds axes, values and predicate of the outer block, and the realization of the inner
    block."""

    axes: tuple[IterVar, ...]
    values: tuple[Expr, ...]
    predicate: Expr
    inner: BlockRealize
    init: Stmt | None
    analyzer: Analyzer

    def domains(self, inner: Sequence[For]) -> dict[Var, Range]:
        """Return the domain of each axis of the inner block, and of the loops around it. A block without axes uses
        these loops."""
        loops = {lp.loop_var: Range(lp.min, lp.extent) for lp in inner}
        return {**loops, **{iv.var: iv.dom for iv in self.inner.block.iter_vars}}


def divide_block(
    tree: Tree,
    realize: BlockRealize,
    outer: Sequence[For],
    inner: Sequence[For],
    preserve_unit_iters: bool,
    where: Stmt,
) -> DividedBlock:
    """Divide the axes of the block: ``outer`` loops stay around the outer block, ``inner`` loops are inside it.

    The inner block has no init; ``init`` is the old one in terms of the new axes. ScheduleError is raised when a
    binding mixes the two kinds of loops so that it is not a sum of an outer and an inner part.
    """
    block = realize.block
    ranges = {lp.loop_var: Range(lp.min, lp.extent) for lp in (*outer, *inner)}
    inside = [lp.loop_var for lp in inner]
    divisions, outer_predicate, inner_predicate = _divide(tree, realize, ranges, inside, preserve_unit_iters, where)
    analyzer = analyzer_at(tree, scope_around(tree, realize).block.body)
    axes: list[IterVar] = []
    values: list[Expr] = []
    inner_axes: list[IterVar] = []
    inner_values: list[Expr] = []
    mapping: dict[Var, Expr] = {}
    for iv, d in zip(block.iter_vars, divisions, strict=True):
        dtype = iv.var.dtype
        axis = IterVar(Range(const(0, dtype), d.outer_extent), Var(f"{iv.var.name}_o", dtype), iv.kind, iv.thread_tag)
        base: Expr = d.base
        value = d.outer
        if is_const_int(d.outer_extent, 1) and is_const_int(d.inner_extent, 1) and not _settled(base):
            axis = IterVar(iv.dom, axis.var, iv.kind, iv.thread_tag)  # the value does not depend on the loops
            value, base = base, const(0, dtype)
            new: Expr = axis.var
        elif is_const_int(d.inner_extent, 1):
            unit = is_const_int(d.outer_extent, 1)
            new = const(0, dtype) if unit and not preserve_unit_iters else axis.var
        else:
            inside_axis = IterVar(
                Range(const(0, dtype), d.inner_extent), Var(f"{iv.var.name}_i", dtype), iv.kind, iv.thread_tag
            )
            inner_axes.append(inside_axis)
            inner_values.append(d.inner)
            analyzer.bind(inside_axis.var, inside_axis.dom)
            new = inside_axis.var
            if not is_const_int(d.outer_extent, 1):
                new = axis.var * d.inner_extent + new
        axes.append(axis)
        values.append(value)
        if not is_const_int(d.outer_extent, 1):
            analyzer.bind(axis.var, axis.dom)
        mapping[iv.var] = base + new if isinstance(new, IntImm) else new + base
    _check_empty(realize, axes, outer)
    body = simplified(block, mapping, analyzer)
    reads = body.reads
    if block.init is not None:
        _check_init(realize, divisions, inner, inner_predicate, analyzer)
        written = {r.buffer for r in body.writes}
        reads = (*body.writes, *[r for r in reads if r.buffer not in written])
    new_block = body.with_(iter_vars=tuple(inner_axes), init=None, reads=reads)
    realized = BlockRealize(tuple(inner_values), inner_predicate, new_block)
    return DividedBlock(tuple(axes), tuple(values), outer_predicate, realized, body.init, analyzer)


def _check_empty(realize: BlockRealize, axes: Sequence[IterVar], outer: Sequence[For]) -> None:
    """Raise ScheduleError when the outer block, or its init, would run although an axis of the block has no values."""
    block = realize.block
    runs = not any(is_const_int(lp.extent, 0) for lp in outer)
    for iv, axis in zip(block.iter_vars, axes, strict=True):
        starts = block.init is not None and iv.kind != IterVar.REDUCE
        if is_const_int(iv.dom.extent, 0) and (starts or (runs and is_const_int(axis.dom.extent, 0))):
            raise ScheduleError(
                f"axis {iv.var.name} of block {block.name_hint!r} has no values, and the outer block would run all the same",
                where=realize,
            )


def _settled(base: Expr) -> bool:
    """Return whether the constant part of a binding is a number. The body then contains that number."""
    return isinstance(base, IntImm)


def _divide(
    tree: Tree,
    realize: BlockRealize,
    ranges: Mapping[Var, Range],
    inside: Sequence[Var],
    preserve_unit_iters: bool,
    where: Stmt,
) -> tuple[tuple[DivisionForm, ...], Expr, Expr]:
    true = IntImm(1, "bool")
    scope = scope_around(tree, realize)
    why = "the extent of an inner loop depends on an outer one"
    if not any(uses_var(e, lambda v: v in ranges) for r in ranges.values() for e in (r.min, r.extent)):
        for keep in (True, False) if preserve_unit_iters else (False,):
            analyzer = analyzer_at(tree, scope.block.body)
            found = divide_subspace(realize.iter_values, ranges, inside, realize.predicate, analyzer, keep_unit=keep)
            if not isinstance(found, Reason):
                parts = [
                    e for d in found.divisions for e in (d.base, d.outer, d.inner, d.outer_extent, d.inner_extent)
                ] + ([] if found.inner_predicate is None else [found.inner_predicate])
                bad = next((e for e in parts if _foreign_loops(tree, e, ranges)), None)
                if bad is None:
                    high, low = found.outer_predicate, found.inner_predicate
                    return found.divisions, true if high is None else high, true if low is None else low
                found = Reason(f"{bad} uses a loop outside the block around")
            why = found.text
    trivial = _trivial(tree, realize, ranges, inside) if is_const_int(realize.predicate, 1) else None
    if trivial is None:
        raise ScheduleError(
            f"the bindings of block {realize.block.name_hint!r} cannot be divided into outer and inner loops at loop "
            f"{where.loop_var.name if isinstance(where, For) else 'level'}: {why}",
            where=(where, realize),
            hint="split with factors that divide the extents, and put the loops of each axis outermost digit first",
        )
    return trivial, true, true


def _foreign_loops(tree: Tree, e: Expr, own: Mapping[Var, Range]) -> bool:
    return any(isinstance(n, Var) and n in tree.loops and n not in own for n in pre_order(e))


def _trivial(
    tree: Tree, realize: BlockRealize, ranges: Mapping[Var, Range], inside: Sequence[Var]
) -> tuple[DivisionForm, ...] | None:
    """Return the division when each binding uses only outer or only inner loops, which need not be affine."""
    out: list[DivisionForm] = []
    for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        zero, one = const(0, iv.var.dtype), const(1, iv.var.dtype)
        is_inner = uses_var(value, lambda v: v in inside)
        is_outer = uses_var(value, lambda v: v in ranges and v not in inside)
        foreign = _foreign_loops(tree, value, ranges)
        if (is_inner and (is_outer or foreign)) or not is_const_int(iv.dom.min, 0):
            return None
        if is_inner:
            out.append(DivisionForm(zero, one, value, iv.dom.extent, zero))
        elif is_outer:
            out.append(DivisionForm(value, iv.dom.extent, zero, one, zero))
        else:
            out.append(DivisionForm(zero, one, zero, one, value))
    return tuple(out)


def _check_init(
    realize: BlockRealize,
    divisions: Sequence[DivisionForm],
    inner: Sequence[For],
    predicate: Expr,
    analyzer: Analyzer,
) -> None:
    """Raise ScheduleError unless the result is the same when all elements of the inner loops are initialized before."""
    block, name = realize.block, realize.block.name_hint
    assert block.init is not None
    held = {access.buffer for access in loads_and_stores(block.init)} & set(block.alloc_buffers)
    if held:
        raise _refused(realize, f"the init of block {name!r} uses {next(iter(held)).name}, which the block allocates")
    addressed = [i for s in loads_and_stores(block.init) for i in s.indices]
    for iv, d in zip(block.iter_vars, divisions, strict=True):
        if iv.kind == IterVar.REDUCE and not analyzer.can_prove_equal(d.base, iv.dom.min):
            raise _refused(
                realize,
                f"reduce axis {iv.var.name} of block {name!r} starts at {d.base}, not at the start {iv.dom.min} of its "
                "domain where the init runs",
            )
        used = any(uses_var(i, iv.var) for i in addressed)
        if iv.kind != IterVar.REDUCE and not used and not is_const_int(d.inner_extent, 1):
            raise _refused(
                realize,
                f"the init of block {name!r} does not use axis {iv.var.name}, so it runs again for each of its values",
            )
    _check_reduces_once(realize, divisions, inner, predicate, analyzer)
    stores = {s.buffer: s for s in reversed(list(loads_and_stores(block.body))) if isinstance(s, BufferStore)}
    for load in loads_and_stores(block.body):
        own = stores.get(load.buffer)
        if isinstance(load, BufferLoad) and own and not all(map(analyzer.can_prove_equal, load.indices, own.indices)):
            raise _refused(
                realize,
                f"block {name!r} reads {load} beside the element that it accumulates, which would be initialized too "
                "early",
            )


def _check_reduces_once(
    realize: BlockRealize,
    divisions: Sequence[DivisionForm],
    inner: Sequence[For],
    predicate: Expr,
    analyzer: Analyzer,
) -> None:
    """Raise ScheduleError unless the inner loops run the reduction once for each element, from its first element on."""
    name = realize.block.name_hint
    for lp in inner:
        if is_const_int(lp.extent, 0):
            raise _refused(realize, f"loop {lp.loop_var.name} never runs block {name!r}, whose init would", lp)
        if not is_const_int(lp.extent, 1) and not any(uses_var(v, lp.loop_var) for v in realize.iter_values):
            raise ScheduleError(
                f"loop {lp.loop_var.name} repeats the reduction of block {name!r}, whose init would run once only",
                where=(lp, realize),
                hint=f"blockize inside loop {lp.loop_var.name}",
            )
    ranges = {lp.loop_var: Range(lp.min, lp.extent) for lp in inner}
    parts = [d.inner for d in divisions if not is_const_int(d.inner_extent, 1)]
    if not detect_iter_map(parts, ranges, predicate, analyzer).injective and (
        exact_box(analyzer, parts, ranges, conjuncts(predicate), once=True) is None
    ):
        raise _refused(
            realize,
            f"the loops may run the reduction of block {name!r} several times for one element, and its init would run "
            "once only",
            *inner,
        )
    spatial = [
        v for iv, v in zip(realize.block.iter_vars, realize.iter_values, strict=True) if iv.kind != IterVar.REDUCE
    ]
    for lp in inner:
        if uses_var(predicate, lp.loop_var) and not any(uses_var(v, lp.loop_var) for v in spatial):
            raise _refused(
                realize, f"under {predicate} the reduction of block {name!r} may leave out its first element"
            )


def _refused(realize: BlockRealize, problem: str, *loops: For) -> ScheduleError:
    return ScheduleError(problem, where=(*loops, realize), hint="decompose_reduction first")


def simplified(stmt: Any, mapping: Mapping[Var, Expr], analyzer: Analyzer) -> Any:
    """Return ``stmt`` with variables replaced, and the index arithmetic around them simplified."""

    def walk(n: Any) -> Any:
        if isinstance(n, Var):
            return mapping.get(n, n)
        if isinstance(n, Expr) and n.dtype.is_int and n.dtype.lanes == 1 and not reads_memory(n):
            new = substitute(n, mapping)
            return n if new is n else analyzer.simplify(new)
        new = n.map_children(walk)
        return analyzer.simplify(new) if new is not n and isinstance(n, Expr) and n.dtype == "bool" else new

    return walk(stmt)


def outer_regions(
    regions: Iterable[BufferRegion], domains: Mapping[Var, Range], analyzer: Analyzer
) -> tuple[BufferRegion, ...]:
    """Return the regions widened over the inner block's axes; a dimension without known bounds is taken as a whole."""
    out: list[BufferRegion] = []
    for region in regions:
        ranges: list[Range] = []
        for r, size in zip(region.region, region.buffer.shape, strict=True):
            if not any(uses_var(e, lambda v: v in domains) for e in (r.min, r.extent)):
                ranges.append(r)
                continue
            ends = [eval_interval(e, domains, analyzer) for e in (r.min, r.min + r.extent - 1)]
            if ends[0] is None or ends[1] is None or not _countable(ends[0][0], ends[1][1]):
                ranges.append(Range.from_extent(size))
            else:
                low, high = ends[0][0], ends[1][1]
                ranges.append(Range(low, analyzer.simplify(high - low + 1)))
        out.append(BufferRegion(region.buffer, tuple(ranges)))
    return tuple(out)


def _countable(low: Expr, high: Expr) -> bool:
    """Return whether the type of the ends holds their distance; bounds of data may be those of its whole type."""
    if not (isinstance(low, IntImm) and isinstance(high, IntImm)):
        return True
    return high.value - low.value < max_value(high.dtype)


def init_nest(halves: DividedBlock, inner: Sequence[For], name: str) -> Stmt:
    """Return the init of the outer block: a block with those axes of the inner block that the init uses."""
    block, init = halves.inner.block, halves.init
    assert init is not None
    fresh: dict[Var, Expr] = {}
    axes: list[IterVar] = []
    values: list[Expr] = []
    for iv, value in zip(block.iter_vars, halves.inner.iter_values, strict=True):
        if iv.kind == IterVar.SPATIAL and uses_var(init, iv.var):
            var = Var(f"{iv.var.name}_init", iv.var.dtype)
            fresh[iv.var] = var
            axes.append(IterVar(iv.dom, var, iv.kind, iv.thread_tag))
            values.append(value)
    body = substitute(init, fresh)
    writes = tuple([substitute(r, fresh) for r in block.writes])
    out: Stmt = BlockRealize(
        tuple(values), halves.inner.predicate, Block(tuple(axes), access_regions(body)[0], writes, name, body)
    )
    loops: dict[Var, Expr] = {}
    for lp in reversed(inner):
        if any(uses_var(v, lp.loop_var) for v in (*values, halves.inner.predicate)):
            var = Var(f"{lp.loop_var.name}_init", lp.loop_var.dtype)
            loops[lp.loop_var] = var
            out = lp.with_(loop_var=var, body=out)
    return substitute(out, loops)


def union_regions(regions: Iterable[BufferRegion], analyzer: Analyzer) -> tuple[BufferRegion, ...]:
    """Return one region per buffer, in order of first occurrence: the bounding box of all its regions."""
    boxes: dict[Buffer, list[Range]] = {}
    for region in regions:
        old = boxes.get(region.buffer)
        boxes[region.buffer] = (
            list(region.region)
            if old is None
            else [
                _around(a, b, size, analyzer)
                for a, b, size in zip(old, region.region, region.buffer.shape, strict=True)
            ]
        )
    return tuple([BufferRegion(b, tuple(box)) for b, box in boxes.items()])


def _around(a: Range, b: Range, size: Expr, analyzer: Analyzer) -> Range:
    low = a.min if analyzer.can_prove(a.min <= b.min) else b.min if analyzer.can_prove(b.min <= a.min) else None
    last_a, last_b = a.min + a.extent, b.min + b.extent
    high = last_a if analyzer.can_prove(last_a >= last_b) else last_b if analyzer.can_prove(last_b >= last_a) else None
    if low is None or high is None:
        return Range.from_extent(size)
    return Range(low, analyzer.simplify(high - low))
