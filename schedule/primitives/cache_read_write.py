"""This module defines cache_read and cache_write, which copy a buffer between its producer and its consumers."""

from __future__ import annotations

from collections.abc import Sequence

from ...tir.analysis.footprint import analyzer_at
from ...tir.analysis.region_cover import why_not_covered
from ...tir.analysis.scope import Scope, is_output_block
from ...tir.analysis.tree import Tree, tree_of, unique_block_name
from ...tir.buffer import Buffer, BufferRegion
from ...tir.equal import structural_equal
from ...tir.expr import Range, const
from ...tir.function import PrimFunc
from ...tir.node import Node
from ...tir.node_methods import map_tuple
from ...tir.stmt import Block, BlockRealize, Stmt
from ...tir.walk import transform
from ..edit.buffer_arguments import pick_buffer
from ..edit.copied_box import cache_buffer, cached_part, copy_nest, read_part, redirect
from ..edit.copy_place import (
    check_apart,
    check_no_carried_reader,
    check_pointers_declared,
    check_starts_fresh,
    copy_place,
    dependents,
    named_after,
    repeated_loops,
    uses_pointer,
    written_box,
)
from ..edit.copy_stage import insert_stage
from ..edit.statement_edits import children_of
from ..errors import ScheduleError, require
from ..handles import BlockRV
from ..lookup import find_block, root_of
from ..primitive import primitive
from ..require.block_preconditions import check_only_writer, check_plain_path, ordered_scope
from ..storage_scopes import check_storage_scope


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
    storage_scope = check_storage_scope(storage_scope)
    tree = tree_of(func)
    realize = find_block(tree, block)
    scope = ordered_scope(tree, realize)
    buffer = pick_buffer(realize, read_buffer_index, "read")
    writers = scope.writers.get(buffer, [])
    if len(writers) > 1:
        raise ScheduleError(
            f"buffer {buffer.name} is written by {len(writers)} blocks "
            f"({', '.join(repr(w.block.name_hint) for w in writers)}), so there is no one place for the copy",
            where=writers,
            hint="make the copy before decompose_reduction",
        )
    if writers or scope.root is not root_of(tree):  # a copy of the whole buffer serves pointers as well
        check_pointers_declared(scope, buffer)
    named = _named(tree, scope, consumer_blocks)
    readers = [r for r in scope.readers.get(buffer, []) if r not in writers]
    consumers = readers if named is None else [r for r in readers if r in named]
    name = unique_block_name(func, f"{buffer.name}_{storage_scope}")
    body = scope.root.block.body
    place: tuple[Stmt, int] = (body, 0)
    pointers = any(uses_pointer(b, buffer) for b in (*consumers, *writers))
    if writers and not (consumers and _all_before(tree, scope, consumers, writers[0])):
        writer = writers[0]
        for consumer in consumers:
            if scope.order[consumer] < scope.order[writer]:
                raise ScheduleError(
                    f"block {consumer.block.name_hint!r} reads buffer {buffer.name} before block "
                    f"{writer.block.name_hint!r} writes it",
                    where=(consumer, writer),
                    hint="name the later consumers in consumer_blocks",
                )
            if pointers:
                check_apart(tree, writer, consumer, buffer)
            else:
                require(why_not_covered(tree, writer, consumer, buffer))
        check_plain_path(tree, writer)
        later = dependents(scope, writer)
        meet = copy_place(tree, writer, later if named is None else named_after(scope, writer, named))
        place = (body, len(children_of(body))) if meet is None else (meet[0], meet[1])
        analyzer, box = written_box(tree, writer, buffer, None if meet is None else meet[2], exactly=False)
        if pointers:
            box = [None] * buffer.ndim
        part = cached_part(tree, place[0], buffer, box, analyzer)
    else:
        analyzer = analyzer_at(tree, body)
        box = [None] * buffer.ndim
        part = None if pointers else read_part(tree, scope, body, buffer, consumers)
    copy = cache_buffer(name, buffer, storage_scope, box, part)
    stage = copy_nest(analyzer, name, buffer, copy, copy, box, part)
    changed: dict[Stmt, Stmt | None] = {c: redirect(tree, c, buffer, copy, part) for c in consumers}
    new = insert_stage(func, scope, place, stage, changed, copy)
    return new if part is not None or writers else _declare_whole_read(new, name, buffer), BlockRV(name)


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

    return transform(func, post=post)  # type: ignore[no-any-return]


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
    storage_scope = check_storage_scope(storage_scope)
    tree = tree_of(func)
    realize = find_block(tree, block)
    scope = ordered_scope(tree, realize)
    buffer = pick_buffer(realize, write_buffer_index, "write")
    check_only_writer(tree, realize)
    check_plain_path(tree, realize)
    check_pointers_declared(scope, buffer)
    check_starts_fresh(tree, realize, buffer)
    named = _named(tree, scope, consumer_blocks) or []
    redirected = [r for r in scope.readers.get(buffer, []) if r is not realize and r in named]
    for reader in redirected:
        if scope.order[reader] < scope.order[realize]:
            raise ScheduleError(
                f"block {reader.block.name_hint!r} reads buffer {buffer.name} before block {block!r} writes it",
                where=(reader, realize),
                hint="only what comes after the block can take its value",
            )
        require(why_not_covered(tree, realize, reader, buffer))
    check_no_carried_reader(tree, scope, realize, buffer)
    name = unique_block_name(func, f"{buffer.name}_{storage_scope}")
    meet = copy_place(tree, realize, [r for r in dependents(scope, realize) if r not in named])
    body = scope.root.block.body
    place: tuple[Stmt, int] = (body, len(children_of(body))) if meet is None else (meet[0], meet[1])
    exactly = is_output_block(tree, realize)
    analyzer, box = written_box(tree, realize, buffer, None if meet is None else meet[2], exactly)
    part = None if uses_pointer(realize, buffer) else cached_part(tree, place[0], buffer, box, analyzer)
    copy = cache_buffer(name, buffer, storage_scope, box, part)
    stage = copy_nest(analyzer, name, copy, buffer, copy, box, part)
    changed: dict[Stmt, Stmt | None] = {b: redirect(tree, b, buffer, copy, part) for b in (realize, *redirected)}
    return insert_stage(func, scope, place, stage, changed, copy), BlockRV(name)
