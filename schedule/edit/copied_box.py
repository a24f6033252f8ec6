"""This module makes the buffer and the copying block of cache_read and cache_write.

Inside a loop of the scope the new buffer has the shape of the old one, so that the copy can be moved. Directly in the
block of the scope it holds only the box that is copied, and the indices of accesses are shifted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...tir.analysis.access import Access, Around, accesses
from ...tir.analysis.footprint import bounding_box, first_outside, whole_box
from ...tir.analysis.known_ranges import analyzer_at, bind_loops
from ...tir.analysis.required_domain import join_boxes
from ...tir.analysis.scope import Scope, bindings
from ...tir.analysis.tree import Tree, symbols_of
from ...tir.arith import Analyzer, Ends
from ...tir.expr import BufferLoad, Expr, IntImm, IterVar, Range, Var, conjuncts, const, is_const_int, max_
from ...tir.stmt import Block, BlockRealize, Buffer, BufferRegion, BufferStore, Evaluate, For, Stmt
from ...tir.walk import pre_order, substitute
from ..errors import ScheduleError
from ..require.copied_values import uses_pointer
from .buffer_replacement import moved_accesses, renewed_buffers
from .copy_stage import CopyRequest
from .element_blocks import element_block
from .loop_nests import Span, nest, realize_over, span_within

Part = tuple[Range, ...]
"""The box of the old buffer that the new buffer holds."""


def cached_part(tree: Tree, place: Stmt, buffer: Buffer, box: Sequence[Ends | None], analyzer: Analyzer) -> Part | None:
    """Return the part that a copy of ``box`` holds when it is made in ``place``; None for the whole buffer."""
    if tree.loops_above(place):
        return None
    sizes = symbols_of(tree.func)
    out: list[Range] = []
    for ends, extent in zip(box, buffer.shape, strict=True):
        if ends is None:
            out.append(Range(const(0, extent.dtype), extent))
            continue
        span = span_within(analyzer, ends, Range(const(0, extent.dtype), extent))
        if not analyzer.can_prove(ends[0] >= 0) or not analyzer.can_prove(ends[1] < extent):
            return None
        if any(isinstance(n, Var) and not any(n is s for s in sizes) for n in pre_order(span.extent)):
            return None
        if span.at_least is not None or span.at_most is not None:
            return None  # an extent that changes is rounded up, so that the box may exceed the buffer
        out.append(Range(span.start, span.extent))
    whole = all(
        is_const_int(r.min, 0) and analyzer.can_prove_equal(r.extent, e) for r, e in zip(out, buffer.shape, strict=True)
    )
    return None if whole else tuple(out)


def read_part(tree: Tree, scope: Scope, place: Stmt, buffer: Buffer, consumers: Sequence[BlockRealize]) -> Part | None:
    """Return the part of a buffer that a block declares to read, or None when its consumers inside leave it."""
    region = next((r.region for r in scope.root.block.reads if r.buffer is buffer), None)
    if region is None:
        return None
    ends = [e for r in region for e in (r.min, r.extent)]
    if any(isinstance(n, BufferLoad) and scope.writers.get(n.buffer) for e in ends for n in pre_order(e)):
        return None  # where the part lies is not known before a block inside has run
    outside = analyzer_at(tree, place)
    box = [(r.min, outside.simplify(r.min + r.extent - 1)) for r in region]
    part = cached_part(tree, place, buffer, box, outside)
    if part is None:
        return None
    for consumer in consumers:
        analyzer = analyzer_at(tree, consumer)
        if any(first_outside(analyzer, access, box) is not None for access in accesses(consumer, buffer)):
            return None
    return part


def copied_buffer(request: CopyRequest, box: Sequence[Ends | None], part: Part | None) -> Buffer:
    """Return the new buffer, for all of the old one or a part. Its sizes have the type of the indices in use."""
    shape = [
        const(e.value, ends[0].dtype) if ends is not None and isinstance(e, IntImm) else e
        for e, ends in zip(request.old.shape, box, strict=True)
    ]
    sizes = tuple(shape) if part is None else tuple([r.extent for r in part])
    return request.new_buffer(sizes, strides=request.old.strides, axis_separators=request.old.axis_separators)


def copy_nest(
    analyzer: Analyzer,
    name: str,
    source: Buffer,
    target: Buffer,
    copy: Buffer,
    box: Sequence[Ends | None],
    part: Part | None,
) -> Stmt:
    """Return the loops and the block ``name`` that copy: ``target[v0, ...] = source[v0, ...]``.

    Of the two buffers, ``copy`` holds ``part`` of the other.
    """
    axes = [IterVar(Range.from_extent(e), Var(f"v{i}", e.dtype)) for i, e in enumerate(copy.shape)]
    here: tuple[Expr, ...] = tuple([iv.var for iv in axes])
    shifted = here if part is None else tuple([r.min + v for r, v in zip(part, here, strict=True)])
    at_source, at_target = (shifted, here) if copy is target else (here, shifted)
    block = element_block(name, axes, BufferStore(target, BufferLoad(source, at_source), at_target))
    spans = [
        _cut(span_within(analyzer, None if part is not None else ends, iv.dom))
        for ends, iv in zip(box, axes, strict=True)
    ]
    realize, loops = realize_over(analyzer, block, spans, keep_unit_loops=True)
    return nest(loops, realize)


def _cut(span: Span) -> Span:
    """Return a span that exceeds a constant bound with a shorter extent there. TVM does so as well, in place of a
    condition."""
    last, extent = span.at_most, span.extent
    if span.at_least is not None or not isinstance(last, IntImm) or not isinstance(extent, IntImm):
        return span
    return Span(span.start, last + 1 - max_(span.start, last - (extent - 1)))


def redirect(tree: Tree, realize: BlockRealize, old: Buffer, new: Buffer, part: Part | None) -> Any:
    """Return the block with its accesses to ``old`` replaced by accesses to ``new``, which holds ``part`` of it."""
    if part is None:
        return renewed_buffers(realize, {old: new}, lambda b: b.with_(scope=new.scope))
    analyzer = analyzer_at(tree, realize)
    for n in pre_order(realize):
        if isinstance(n, Block):
            for iv in n.iter_vars:
                analyzer.bind(iv.var, iv.dom)

    def less(index: Expr, r: Range) -> Expr:
        return index if isinstance(r.min, IntImm) and not r.min.value else analyzer.simplify(index - r.min)

    def shift(indices: Sequence[Expr]) -> tuple[Expr, ...]:
        return tuple([less(i, r) for i, r in zip(indices, part, strict=True)])

    def region(b: BufferRegion) -> BufferRegion:
        mins = shift([r.min for r in b.region])
        return BufferRegion(new, tuple([Range(lo, r.extent) for lo, r in zip(mins, b.region, strict=True)]))

    return moved_accesses(realize, old, new, shift, region)


def written_box(
    tree: Tree, writer: BlockRealize, buffer: Buffer, place: Stmt | None, exactly: bool
) -> tuple[Analyzer, list[Ends | None]]:
    """Return the box of ``buffer`` that ``writer`` stores while the loops inside ``place`` run (all loops when it is
    None)."""
    loops = tree.loops_above(writer)
    outside: list[For] = [] if place is None else tree.loops_above(place)
    inner = loops[len(outside) :]
    never = next((lp for lp in inner if is_const_int(lp.extent, 0)), None)
    if never is not None and any(isinstance(up, Block) and up.iter_vars for up in tree.above(inner[0])):
        raise ScheduleError(  # the block around declares nothing of what a copy would write
            f"loop {never.loop_var.name} never runs block {writer.block.name_hint!r}, so there is nothing to copy",
            where=(never, writer),
        )
    stores = [a for a in accesses(writer, buffer) if a.is_store]
    if uses_pointer(writer, buffer):
        stores += _declared(writer, buffer)
    boxes: list[list[Ends | None]] = []
    for store in stores:
        analyzer = analyzer_at(tree, writer)
        bind_loops(analyzer, store.loops)
        bare = analyzer_at(tree, writer, maybe_empty=inner)
        bind_loops(bare, store.loops, nonempty=False)
        whole = whole_box(analyzer, bare, store, inner, [writer]) if exactly else None
        if exactly and whole is None:
            raise ScheduleError(
                f"the elements of {buffer.name} that block {writer.block.name_hint!r} writes are not known to be a box "
                "without holes, so copying them back could overwrite others",
                where=writer,
                hint="choose an outer loop or another block, where whole boxes are written",
            )
        boxes.append(bounding_box(analyzer, store, inner, {}) if whole is None else [*whole])
    box = join_boxes(analyzer_at(tree, writer), boxes, buffer.ndim)
    return analyzer_at(tree, writer if place is None else place), box


def _declared(realize: BlockRealize, buffer: Buffer) -> list[Access]:
    """Return the declared write regions of a block, each as one access with loops over the region."""
    out = []
    bound = bindings(realize)
    for region in realize.block.writes:
        if region.buffer is buffer:
            own: list[For] = []
            indices: list[Expr] = []
            for n, r in enumerate(region.region):
                var = Var(f"u{n}", r.extent.dtype)
                own.append(For(var, r.extent - r.extent, substitute(r.extent, bound), "serial", Evaluate(r.extent)))
                indices.append(substitute(r.min, bound) + var)
            guards = tuple(conjuncts(realize.predicate))
            out.append(Access(BufferLoad(buffer, tuple(indices)), True, Around(tuple(own), guards=guards)))
    return out
