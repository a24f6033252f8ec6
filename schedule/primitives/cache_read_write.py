"""This module defines cache_read and cache_write, which copy a buffer between its producer and its consumers."""

from __future__ import annotations

from collections.abc import Sequence

from ...tir.analysis.known_ranges import analyzer_at
from ...tir.analysis.region_cover import why_not_covered
from ...tir.analysis.scope import Scope, is_output_block
from ...tir.analysis.tree import Tree, tree_of
from ...tir.arith import Ends
from ...tir.expr import Range, const, structural_equal
from ...tir.expr.base.node import Node
from ...tir.expr.base.node_methods import map_tuple
from ...tir.stmt import Block, BlockRealize, Buffer, BufferRegion, PrimFunc
from ...tir.walk import transform_statements
from ..edit.copied_box import cached_part, copied_buffer, copy_nest, read_part, redirect, written_box
from ..edit.copy_place import dependents, place_between
from ..edit.copy_stage import CopyRequest
from ..errors import ScheduleError, require
from ..handles import BlockRV
from ..primitive import primitive
from ..require.block_preconditions import check_only_writer, check_plain_path, check_writes_first
from ..require.copied_values import (
    check_apart,
    check_no_carried_reader,
    check_pointers_declared,
    check_starts_fresh,
    repeated_loops,
    uses_pointer,
)
from ..require.lookup import find_block, root_of


def _named(tree: Tree, scope: Scope, wanted: Sequence[str] | str | None) -> list[BlockRealize] | None:
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
) -> tuple[PrimFunc, BlockRV]:
    """Copy a buffer that ``block`` reads into a new one of ``storage_scope``, and let the consumers read the copy.

    ``read_buffer_index`` is the buffer's number among the block's reads, or its name. All blocks of the scope that
    read the buffer use the copy, or those in ``consumer_blocks`` only. Returns the copying block.

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
    stage = copy_nest(analyzer, request.name, buffer, copy, copy, box, part)
    new = request.inserted(place, stage, {c: redirect(tree, c, buffer, copy, part) for c in consumers}, copy)
    whole = part is None and writer is None
    return _declare_whole_read(new, request.name, buffer) if whole else new, BlockRV(request.name)


def _declare_whole_read(func: PrimFunc, name: str, buffer: Buffer) -> PrimFunc:
    """Return the function with the blocks around block ``name`` reading the whole ``buffer``, as far as they read it."""
    tree = tree_of(func)
    around = {s.block.name_hint for s in tree.path(find_block(tree, name)) if isinstance(s, BlockRealize)} - {name}
    whole = BufferRegion(buffer, tuple([Range(const(0, e.dtype), e) for e in buffer.shape]))

    def widen(region: BufferRegion) -> BufferRegion:
        return whole if region.buffer is buffer and not structural_equal(region, whole) else region

    def post(n: Node) -> Node | None:
        if not isinstance(n, Block) or n.name_hint not in around:
            return None
        reads = map_tuple(n.reads, widen)
        return None if reads is n.reads else n.with_(reads=reads)

    return transform_statements(func, post)


def _all_before(tree: Tree, scope: Scope, consumers: Sequence[BlockRealize], writer: BlockRealize) -> bool:
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
