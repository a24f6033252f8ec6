"""This module defines cache_read, cache_write and cache_inplace, which let blocks use a copy of a buffer.

Inside a loop of the scope the new buffer has the shape of the old one, so that the copy can be moved. Directly in the
block of the scope it holds only the box that is copied, and the indices of accesses are shifted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...tir.analysis.access import Access, Around, accesses
from ...tir.analysis.footprint import bounding_box, first_outside, whole_box
from ...tir.analysis.known_ranges import analyzer_at, bind_loops
from ...tir.analysis.region_cover import join_boxes, why_not_covered
from ...tir.analysis.scope import BlockScope, bindings, is_output_block, region_of
from ...tir.analysis.tree import Tree, symbols_of, tree_of, unique_block_name
from ...tir.arith import Analyzer, Ends
from ...tir.expr import (
    BufferLoad,
    Cast,
    DType,
    Expr,
    IntImm,
    IterVar,
    Range,
    Var,
    cast,
    conjuncts,
    const,
    is_const_int,
    max_,
    structural_equal,
)
from ...tir.expr.node import IRNode, map_tuple
from ...tir.expr.op import holds_all
from ...tir.stmt import Block, BlockRealize, Buffer, BufferRegion, BufferStore, Evaluate, For, PrimFunc, Stmt, seq
from ...tir.walk import pre_order, substitute, transform, transform_statements
from ..edit.buffers import CopyRequest, dependents, moved_accesses, place_between, renewed_buffers
from ..edit.loop_nests import Span, allocating, element_block, nest, realize_over, span_within
from ..errors import ScheduleError, require
from ..handles import BlockRV
from ..index_map import simplify_unless_constant
from ..primitive import primitive
from ..require.block_preconditions import (
    check_apart,
    check_no_carried_reader,
    check_only_writer,
    check_plain_path,
    check_pointers_declared,
    check_starts_fresh,
    check_writes_first,
    find_block,
    repeated_loops,
    root_of,
    uses_pointer,
)
from ..require.loop_preconditions import check_loops_above


def _named(tree: Tree, scope: BlockScope, wanted: Sequence[str] | str | None) -> list[BlockRealize] | None:
    """Return the blocks that are to use a copy; None when all blocks are."""
    if not wanted:
        return None
    found = [find_block(tree, name) for name in ([wanted] if isinstance(wanted, str) else wanted)]
    for realize in found:
        if realize not in scope.order:
            raise ScheduleError(
                f"block {realize.block.name_hint!r} stands in another scope than the buffer's copy would",
                where=(realize, scope.root),
                hint="name consumers of one scope",
            )
    return found


@primitive
def cache_read(
    func: PrimFunc,
    block: str,
    read_buffer_index: int | str,
    storage_scope: str,
    consumer_blocks: list[str] | str | None = None,
    dtype: str | None = None,
) -> tuple[PrimFunc, BlockRV]:
    """Copy a buffer that ``block`` reads into a new one of ``storage_scope``, and let the consumers read the copy.

    ``read_buffer_index`` is the buffer's number among the block's reads, or its name. All blocks of the scope that
    read the buffer use the copy, or those in ``consumer_blocks`` only. Returns the copying block.

    ``dtype``: the type of the copy, to which the consumers convert each element that they read. Each is then converted
    once, when it is copied. Where the type holds all numbers of the buffer's type, as float16 holds those of float8, the
    consumers may convert elements to any type, and go on to do so.

    Applies when at most one block of the scope writes the buffer, and comes before the consumers. The copy is made
    directly after the writer, in the innermost loop that holds both, or at the start of the scope.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((8, 8)), B: T.Buffer((8, 8))):
    ...     for i, j in T.grid(8, 8):
    ...         with T.block("B"):
    ...             vi, vj = T.axis.remap("SS", [i, j])
    ...             B[vi, vj] = A[vi, vj] * T.float32(2)
    ... '''))
    >>> copy = sch.cache_read("B", 0, "local")
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
        # with T.block("root"):
        A_local = T.alloc_buffer((8, 8), scope="local")
        for ax0, ax1 in T.grid(8, 8):
            with T.block("A_local"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                T.reads(A[v0, v1])
                T.writes(A_local[v0, v1])
                A_local[v0, v1] = A[v0, v1]
        for i, j in T.grid(8, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(A_local[vi, vj])
                T.writes(B[vi, vj])
                B[vi, vj] = A_local[vi, vj] * T.float32(2.0)
    """
    request = CopyRequest.of(func, block, ("read", read_buffer_index), storage_scope)
    tree, scope, buffer, body = request.tree, request.scope, request.old, request.start.where
    writer = request.writer()
    if writer is not None or scope.root is not root_of(tree):  # a copy of the whole buffer serves pointers as well
        check_pointers_declared(scope, buffer)
    named = _named(tree, scope, consumer_blocks)
    readers = [r for r in scope.readers.get(buffer, []) if r is not writer]
    consumers = readers if named is None else [r for r in readers if r in named]
    pointers = any(uses_pointer(b, buffer) for b in (*consumers, *(() if writer is None else (writer,))))
    if writer is None or (consumers and _all_before(tree, scope, consumers, writer)):
        place, analyzer = request.start, analyzer_at(tree, body)
        box: list[Ends | None] = [None] * buffer.ndim
        part = None if pointers else read_part(tree, scope, body, buffer, consumers)
    else:
        check_writes_first(scope, writer, consumers, buffer, "name the later consumers in consumer_blocks")
        for consumer in consumers:
            if pointers:
                check_apart(tree, writer, consumer, buffer)
            else:
                require(why_not_covered(tree, writer, consumer, buffer))
        check_plain_path(tree, writer)
        later = dependents(scope, writer) if named is None else named
        place = place_between(tree, scope, writer, [b for b in later if scope.order[b] > scope.order[writer]])
        analyzer, box = written_box(tree, writer, buffer, place.behind, exactly=False)
        if pointers:
            box = [None] * buffer.ndim
        part = cached_part(tree, place.where, buffer, box, analyzer)
    copy = copied_buffer(request, box, part)
    if dtype is not None:
        copy = copy.with_(dtype=DType(dtype))
        for consumer in consumers:
            _check_converts(consumer, buffer, copy.dtype)
    stage = copy_nest(analyzer, request.name, buffer, copy, copy, box, part)
    changed = {c: redirect(tree, c, buffer, copy, part) for c in consumers}
    if dtype is not None:
        changed = {c: _without_conversions(node, copy) for c, node in changed.items()}
    new = request.inserted(place, stage, changed, copy)
    whole = part is None and writer is None
    return _declare_whole_read(new, request.name, buffer) if whole else new, BlockRV(request.name)


def _check_converts(consumer: BlockRealize, buffer: Buffer, dtype: DType) -> None:
    """Raise ScheduleError unless the consumer converts each element of ``buffer`` where it reads it.

    It converts them to ``dtype``, or to any type where ``dtype`` holds all numbers of the buffer's.
    """
    loads = [n for n in pre_order(consumer) if isinstance(n, BufferLoad) and n.buffer is buffer]
    wide = holds_all(dtype, buffer.dtype)
    converted = {
        n.value for n in pre_order(consumer) if isinstance(n, Cast) and (wide or n.dtype == _of_lanes(dtype, n.dtype))
    }
    other = next((n for n in loads if n not in converted), None)
    matched = any(
        m.source.buffer is buffer for n in pre_order(consumer) if isinstance(n, Block) for m in n.match_buffers
    )
    if other is not None or matched or uses_pointer(consumer, buffer):
        raise ScheduleError(
            f"block {consumer.block.name_hint!r} does not convert all that it reads of {buffer.name} to {dtype}",
            where=consumer if other is None else (other, consumer),
            hint="leave out dtype, so that the copy has the type of the buffer",
        )


def _of_lanes(dtype: DType, like: DType) -> DType:
    return dtype.with_lanes(like.lanes)


def _without_conversions(node: Any, copy: Buffer) -> Any:
    """Return ``node`` with elements of ``copy`` that are converted to their own type as they are."""

    def post(n: Any) -> Any:
        own = isinstance(n, Cast) and isinstance(n.value, BufferLoad) and n.value.buffer is copy
        return n.value if own and n.dtype == n.value.dtype else None

    return transform(node, post=post)


def _declare_whole_read(func: PrimFunc, name: str, buffer: Buffer) -> PrimFunc:
    """Return the function with the blocks around block ``name`` reading the whole ``buffer``, as far as they read it."""
    tree = tree_of(func)
    around = {s.block.name_hint for s in tree.path(find_block(tree, name)) if isinstance(s, BlockRealize)} - {name}
    whole = BufferRegion(buffer, tuple([Range(const(0, e.dtype), e) for e in buffer.shape]))

    def widen(region: BufferRegion) -> BufferRegion:
        return whole if region.buffer is buffer and not structural_equal(region, whole) else region

    def post(n: IRNode) -> IRNode | None:
        if not isinstance(n, Block) or n.name_hint not in around:
            return None
        reads = map_tuple(n.reads, widen)
        return None if reads is n.reads else n.with_(reads=reads)

    return transform_statements(func, post)


def _all_before(tree: Tree, scope: BlockScope, consumers: Sequence[BlockRealize], writer: BlockRealize) -> bool:
    """Return whether all consumers are complete before the writer starts, so that they read the old contents."""
    around = repeated_loops(tree, writer)
    return all(
        scope.order[c] < scope.order[writer] and not any(lp.loop_var in around for lp in tree.loops_above(c))
        for c in consumers
    )


@primitive
def cache_write(
    func: PrimFunc,
    block: str,
    write_buffer_index: int | str,
    storage_scope: str,
    consumer_blocks: list[str] | str | None = None,
) -> tuple[PrimFunc, BlockRV]:
    """Let ``block`` write into a new buffer of ``storage_scope``, and copy that to the buffer it wrote before.

    ``write_buffer_index`` is the buffer's number among the block's writes, or its name. Later readers still read the
    old buffer, except those in ``consumer_blocks``, which read the new one. Returns the copying block.

    Applies when the block is the only writer of the buffer in its scope and does not need what the buffer held before.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((8, 8)), B: T.Buffer((8, 8))):
    ...     for i, j in T.grid(8, 8):
    ...         with T.block("B"):
    ...             vi, vj = T.axis.remap("SS", [i, j])
    ...             B[vi, vj] = A[vi, vj] * T.float32(2)
    ... '''))
    >>> copy = sch.cache_write("B", 0, "local")
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
        # with T.block("root"):
        B_local = T.alloc_buffer((8, 8), scope="local")
        for i, j in T.grid(8, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(A[vi, vj])
                T.writes(B_local[vi, vj])
                B_local[vi, vj] = A[vi, vj] * T.float32(2.0)
        for ax0, ax1 in T.grid(8, 8):
            with T.block("B_local"):
                v0, v1 = T.axis.remap("SS", [ax0, ax1])
                T.reads(B_local[v0, v1])
                T.writes(B[v0, v1])
                B[v0, v1] = B_local[v0, v1]
    """
    request = CopyRequest.of(func, block, ("write", write_buffer_index), storage_scope)
    tree, realize, scope, buffer = request.tree, request.realize, request.scope, request.old
    check_only_writer(tree, realize)
    check_plain_path(tree, realize)
    check_pointers_declared(scope, buffer)
    check_starts_fresh(tree, realize, buffer)
    named = _named(tree, scope, consumer_blocks) or []
    redirected = [r for r in scope.readers.get(buffer, []) if r is not realize and r in named]
    check_writes_first(scope, realize, redirected, buffer)
    for reader in redirected:
        require(why_not_covered(tree, realize, reader, buffer))
    check_no_carried_reader(tree, scope, realize, buffer)
    place = place_between(tree, scope, realize, [r for r in dependents(scope, realize) if r not in named])
    analyzer, box = written_box(tree, realize, buffer, place.behind, exactly=is_output_block(tree, realize))
    part = None if uses_pointer(realize, buffer) else cached_part(tree, place.where, buffer, box, analyzer)
    copy = copied_buffer(request, box, part)
    stage = copy_nest(analyzer, request.name, copy, buffer, copy, box, part)
    changed = {b: redirect(tree, b, buffer, copy, part) for b in (realize, *redirected)}
    return request.inserted(place, stage, changed, copy), BlockRV(request.name)


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


def read_part(
    tree: Tree, scope: BlockScope, place: Stmt, buffer: Buffer, consumers: Sequence[BlockRealize]
) -> Part | None:
    """Return the part of a buffer that a block declares to read, or None when its consumers inside leave it."""
    region = next((r.region for r in scope.root.block.reads if r.buffer is buffer), None)
    if region is None:
        return _used_part(tree, place, buffer, consumers)
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


def _used_part(tree: Tree, place: Stmt, buffer: Buffer, consumers: Sequence[BlockRealize]) -> Part | None:
    """Return the part of a buffer that consumers read up to a size known at the call.

    None where there is no such size, or where the copy is not made at the start of the function.
    """
    if not consumers or tree.loops_above(place) or not all(isinstance(e, IntImm) for e in buffer.shape):
        return None
    sizes = symbols_of(tree.func)
    boxes = []
    for consumer in consumers:
        analyzer, loops = analyzer_at(tree, consumer), tree.loops_above(consumer)
        for access in accesses(consumer, buffer):
            bind_loops(analyzer, access.loops)
            boxes.append(bounding_box(analyzer, access, loops, {}))
    outside = analyzer_at(tree, place)
    part = []
    for n, (ends, extent) in enumerate(zip(join_boxes(outside, boxes, buffer.ndim), buffer.shape, strict=True)):
        each = [box[n] for box in boxes]
        varies = ends is not None and all(e is not None and _names_one(e[1], sizes) for e in each)
        end = outside.simplify(ends[1] + 1) if ends is not None and varies else extent
        part.append(Range(const(0, extent.dtype), end))
    return tuple(part) if any(not isinstance(r.extent, IntImm) for r in part) else None


def _names_one(e: Expr, variables: Sequence[Var]) -> bool:
    return any(n is v for n in pre_order(e) for v in variables)


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
    """Return the loops and the block ``name`` that copy: ``target[v0, ...] = source[v0, ...]``, in the target's type.

    Of the two buffers, ``copy`` holds ``part`` of the other.
    """
    axes = [IterVar(Range.from_extent(e), Var(f"v{i}", e.dtype)) for i, e in enumerate(copy.shape)]
    here: tuple[Expr, ...] = tuple([iv.var for iv in axes])
    shifted = here if part is None else tuple([r.min + v for r, v in zip(part, here, strict=True)])
    at_source, at_target = (shifted, here) if copy is target else (here, shifted)
    block = element_block(name, axes, BufferStore(target, cast(target.dtype, BufferLoad(source, at_source)), at_target))
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


@primitive
def cache_inplace(
    func: PrimFunc, block: str, read_buffer_index: int | str, storage_scope: str
) -> tuple[PrimFunc, list[BlockRV]]:
    """Let a block that reads and writes a buffer work on a copy of the declared region.

    The region is copied directly before the block, and back directly after it; pointers that the block passes on then
    point into the copy. ``read_buffer_index`` is the buffer's number among the block's reads, or its name. Returns the
    block that copies in and the one that copies back.

    Applies when what the block declares to write is part of what it declares to read, all inside the buffer.

    >>> from tilewright.schedule import Schedule
    >>> from tilewright.tir.parser import parse
    >>> sch = Schedule(parse('''
    ... @T.prim_func
    ... def main(A: T.Buffer((8,), "int32")):
    ...     for i in range(1):
    ...         with T.block("call"):
    ...             T.reads(A[0:8])
    ...             T.writes(A[0:8])
    ...             T.evaluate(T.call_extern("int32", "work", A.data))
    ... '''))
    >>> copies = sch.cache_inplace("call", 0, "local")
    >>> sch.func.show()
    # from tilewright.tir import script as T
    <BLANKLINE>
    @T.prim_func
    def main(A: T.Buffer((8,), "int32")):
        # with T.block("root"):
        A_local = T.alloc_buffer((8,), "int32", scope="local")
        for i in range(1):
            for ax0 in range(8):
                with T.block("A_local"):
                    v0 = T.axis.spatial(8, ax0)
                    T.reads(A[v0])
                    T.writes(A_local[v0])
                    A_local[v0] = A[v0]
            with T.block("call"):
                T.reads(A_local[0:8])
                T.writes(A_local[0:8])
                T.evaluate(T.call_extern("int32", "work", A_local.data))
            for ax0 in range(8):
                with T.block("A_local_1"):
                    v0 = T.axis.spatial(8, ax0)
                    T.reads(A_local[v0])
                    T.writes(A[v0])
                    A[v0] = A_local[v0]
    """
    request = CopyRequest.of(func, block, ("read", read_buffer_index), storage_scope)
    tree, realize, buffer = request.tree, request.realize, request.old
    read = region_of(realize.block.reads, buffer)
    write = region_of(realize.block.writes, buffer)
    if read is None or write is None:
        raise ScheduleError(
            f"block {block!r} reads buffer {buffer.name} and does not write it", where=realize, hint="use cache_read"
        )
    check_plain_path(tree, realize)
    bound = bindings(realize)
    analyzer = analyzer_at(tree, realize)
    taken, given = [
        _inside(r.map_children(lambda e: simplify_unless_constant(analyzer, substitute(e, bound))), realize, analyzer)
        for r in (read, write)
    ]
    for a, b in zip(given.region, taken.region, strict=True):
        if not (analyzer.can_prove(b.min <= a.min) and analyzer.can_prove(a.min + a.extent <= b.min + b.extent)):
            raise ScheduleError(
                f"block {block!r} writes {write}, which is not known to be part of what it reads, {read}: elements that "
                "it leaves alone would be lost",
                where=realize,
                hint="declare in T.reads all of what may be written",
            )
    second = unique_block_name(func, f"{buffer.name}_{request.storage_scope}", (request.name,))
    copy = request.new_buffer(strides=buffer.strides)
    into = _copies(request.name, buffer, copy, taken, realize.predicate)
    back = _copies(second, copy, buffer, given, realize.predicate)
    there = renewed_buffers(realize, {buffer: copy}, lambda b: b.with_(scope=request.storage_scope))
    new = tree.replace({realize: seq(into, there, back)}, {request.scope.root.block: allocating(copy)})
    check_loops_above(tree_of(new), find_block(tree_of(new), request.name))
    return new, [BlockRV(request.name), BlockRV(second)]


def _inside(region: BufferRegion, realize: BlockRealize, analyzer: Analyzer) -> BufferRegion:
    buffer = region.buffer
    for r, extent in zip(region.region, buffer.shape, strict=True):
        if not (analyzer.can_prove(r.min >= 0) and analyzer.can_prove(r.min + r.extent <= extent)):
            raise ScheduleError(
                f"block {realize.block.name_hint!r} touches {region}, which is not known to lie inside buffer {buffer.name}",
                where=realize,
                hint="pad the buffer, or split so that the tile fits",
            )
    return region


def _copies(name: str, source: Buffer, target: Buffer, region: BufferRegion, predicate: Expr) -> Stmt:
    """Return loops that copy a region: ``target[v0, ...] = source[v0, ...]``."""
    axes = [IterVar(Range.from_extent(e), Var(f"v{n}", e.dtype)) for n, e in enumerate(source.shape)]
    at = tuple([iv.var for iv in axes])
    loops = [
        (Var(f"ax{n}", e.dtype), cast(e.dtype, r.extent))
        for n, (r, e) in enumerate(zip(region.region, source.shape, strict=True))
    ]
    values = tuple([cast(v.dtype, r.min) + v for r, (v, _) in zip(region.region, loops, strict=True)])
    block = element_block(name, axes, BufferStore(target, BufferLoad(source, at), at))
    return nest(loops, BlockRealize(values, predicate, block))
