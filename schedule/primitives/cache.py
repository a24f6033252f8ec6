"""cache_read and cache_write: a copy of a buffer between its producer and its consumers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...tir.arith import Analyzer
from ...tir.buffer import Buffer
from ...tir.expr import Range, Var, is_const_int
from ...tir.function import PrimFunc
from ...tir.stmt import BlockRealize, For, SeqStmt, Stmt
from ...tir.walk import pre_order
from ..analysis import (
    Scope,
    accesses,
    check_only_writer,
    check_plain_path,
    is_output_block,
    opaque_buffers,
    scope_of,
)
from ..boxes import Ends, analyzer_at, bind_loops, bounding_box, exact_box
from ..errors import ScheduleError
from ..handles import BlockRV
from ..primitive import primitive
from ..regions import check_cover
from ..scopes import check_storage_scope
from ..solve import join_ends
from ..tree import Tree, blocks_below, tree_of, unique_block_name
from ._moving import children_of, insert_in, rebuild
from ._staging import Part, copy_nest, part_of, read_part, redirect
from .kinds import check_loops_above

__all__ = [
    "cache_read",
    "cache_write",
    "check_no_carried_reader",
    "check_not_opaque",
    "insert_stage",
    "meeting_place",
    "pick_buffer",
]


def pick_buffer(realize: BlockRealize, which: Any, kind: str) -> Buffer:
    """The buffer that a block reads or writes, named by its number among ``reads`` or ``writes``, or by its name."""
    block = realize.block
    regions = block.reads if kind == "read" else block.writes
    names = ", ".join(f"{i}: {r.buffer.name}" for i, r in enumerate(regions)) or "none"
    if isinstance(which, Buffer):
        which = which.name
    if isinstance(which, str):
        found = [r.buffer for r in regions if r.buffer.name == which]
        if found:
            return found[0]
    elif isinstance(which, int) and 0 <= which < len(regions):
        return regions[which].buffer
    raise ScheduleError(
        f"block {block.name_hint!r} has no {kind} buffer {which!r}",
        where=realize,
        hint=f"what it {kind}s: {names}",
    )


def check_not_opaque(tree: Tree, scope: Scope, buffer: Buffer) -> None:
    if buffer.data in opaque_buffers(scope.root.block):
        raise ScheduleError(
            f"buffer {buffer.name} is also accessed through a pointer or a match_buffer, which a copy would miss",
            where=scope.root,
            hint="make the copy before tensorize or blockize",
        )


def check_no_carried_reader(tree: Tree, scope: Scope, writer: BlockRealize, buffer: Buffer) -> None:
    """ScheduleError when an earlier block reads, in the next turn of a loop, what ``writer`` writes: a copy made behind
    that loop would come too late."""
    around = _repeating(tree, writer)
    for reader in scope.readers.get(buffer, []):
        if reader is writer or scope.order[reader] > scope.order[writer]:
            continue
        shared = [loop for loop in tree.loops_above(reader) if loop.loop_var in around]
        if shared:
            raise ScheduleError(
                f"block {reader.block.name_hint!r} reads buffer {buffer.name} in the next turns of loop "
                f"{shared[-1].loop_var.name}, before block {writer.block.name_hint!r} would have written it back",
                where=(shared[-1], reader, writer),
            )


def meeting_place(tree: Tree, writer: BlockRealize, users: Sequence[BlockRealize]) -> tuple[SeqStmt, Stmt] | None:
    """The innermost sequence that holds the writer and one of the users, and its child with the writer."""
    above = list(tree.above(writer))
    best: tuple[int, SeqStmt] | None = None
    for user in users:
        theirs = set(tree.above(user))
        depth, meet = next((i, s) for i, s in enumerate(above) if s in theirs)
        if isinstance(meet, SeqStmt) and (best is None or depth < best[0]):
            best = (depth, meet)
    return None if best is None else (best[1], tree.child_of(best[1], writer))


def _written_box(
    tree: Tree, writer: BlockRealize, buffer: Buffer, place: Stmt | None, exactly: bool
) -> tuple[Analyzer, list[Ends | None]]:
    """What ``writer`` stores into ``buffer`` while the loops inside ``place`` (its whole scope when None) run."""
    loops = tree.loops_above(writer)
    outside: list[For] = [] if place is None else tree.loops_above(place)
    inner = loops[len(outside) :]
    stores = [a for a in accesses(writer, buffer) if a.is_store]
    total: list[Ends | None] | None = None
    for store in stores:
        analyzer = analyzer_at(tree, writer)
        bind_loops(analyzer, store.loops)
        ranges = {lp.loop_var: Range(lp.min, lp.extent) for lp in (*inner, *store.loops)}
        exact = exact_box(analyzer, store.indices, ranges, store.guards)
        if exactly and (
            exact is None or not exact.complete or not all(analyzer.can_prove(c) for c in exact.conditions)
        ):
            raise ScheduleError(
                f"the elements of {buffer.name} that block {writer.block.name_hint!r} writes are not known to be a box "
                "without holes, so copying them back could overwrite others",
                where=writer,
            )
        box: list[Ends | None] = bounding_box(analyzer, store, inner, {})
        if exactly and exact is not None:
            box = list(exact.ends)
        total = box if total is None else [join_ends(analyzer, a, b) for a, b in zip(total, box, strict=True)]
    fresh = analyzer_at(tree, writer if place is None else place)
    if total is None:
        return fresh, [None] * buffer.ndim
    return fresh, total


def _names(
    scope: Scope, tree: Tree, wanted: Sequence[str] | str | None, readers: Sequence[BlockRealize], buffer: Buffer
) -> list[BlockRealize]:
    if not wanted:
        return list(readers)
    out = []
    for name in [wanted] if isinstance(wanted, str) else wanted:
        realize = tree.block(name)
        if realize not in readers:
            raise ScheduleError(
                f"block {name!r} does not read buffer {buffer.name} in this scope",
                where=realize,
                hint=f"its readers: {', '.join(repr(r.block.name_hint) for r in readers) or 'none'}",
            )
        out.append(realize)
    return out


@primitive
def cache_read(
    func: PrimFunc,
    block: str,
    read_buffer_index: int | str,
    storage_scope: str,
    consumer_blocks: list[str] | None = None,
) -> tuple[PrimFunc, BlockRV]:
    """Copy a buffer that ``block`` reads into a new one of ``storage_scope``, and let the consumers read the copy.

    ``read_buffer_index`` is the buffer's number among the block's reads, or its name. All blocks of the scope that
    read the buffer use the copy, or those in ``consumer_blocks`` only. Returns the copying block.

    Applies when at most one block of the scope writes the buffer, and stands before the consumers. The copy is made
    right after the writer, in the innermost loop that holds both, or at the start of the scope.

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
    check_storage_scope(storage_scope)
    tree = tree_of(func)
    realize = tree.block(block)
    scope = scope_of(tree, realize)
    buffer = pick_buffer(realize, read_buffer_index, "read")
    writers = scope.writers.get(buffer, [])
    if len(writers) > 1:
        raise ScheduleError(
            f"buffer {buffer.name} is written by {len(writers)} blocks "
            f"({', '.join(repr(w.block.name_hint) for w in writers)}), so there is no one place for the copy",
            where=writers,
            hint="make the copy before decompose_reduction",
        )
    if writers or scope.root is not tree.root:  # a copy of the whole buffer serves pointers as well
        check_not_opaque(tree, scope, buffer)
    readers = [r for r in scope.readers.get(buffer, []) if r not in writers]
    consumers = _names(scope, tree, consumer_blocks, readers, buffer)
    if realize in writers:
        raise ScheduleError(
            f"block {block!r} reads buffer {buffer.name} and writes it as well", where=realize,
            hint="use cache_write, or name a block that only reads it",
        )  # fmt: skip
    name = unique_block_name(func, f"{buffer.name}_{storage_scope}")
    place: tuple[Stmt, int]
    if writers and not _all_before(tree, scope, consumers, writers[0]):
        writer = writers[0]
        for consumer in consumers:
            if scope.order[consumer] < scope.order[writer]:
                raise ScheduleError(
                    f"block {consumer.block.name_hint!r} reads buffer {buffer.name} before block "
                    f"{writer.block.name_hint!r} writes it",
                    where=(consumer, writer),
                    hint="name the later consumers in consumer_blocks",
                )
            check_cover(tree, writer, consumer, buffer)
        check_plain_path(tree, writer)
        meet = meeting_place(tree, writer, consumers)
        assert meet is not None
        analyzer, box = _written_box(tree, writer, buffer, meet[1], exactly=False)
        place = (meet[0], meet[0].seq.index(meet[1]) + 1)
        part = part_of(tree, meet[0], buffer, box, analyzer)
    else:
        body = scope.root.block.body
        place = (body, 0)
        analyzer = analyzer_at(tree, body)
        box = [None] * buffer.ndim
        part = read_part(tree, scope, body, buffer, consumers)
    copy = _holder(name, buffer, storage_scope, part)
    stage = copy_nest(analyzer, name, buffer, copy, box, part)
    changed: dict[Stmt, Stmt | None] = {c: redirect(tree, c, buffer, copy, part) for c in consumers}
    return insert_stage(func, scope, place, stage, changed, copy), BlockRV(name)


def _holder(name: str, buffer: Buffer, storage_scope: str, part: Part | None) -> Buffer:
    return Buffer(name, buffer.shape if part is None else tuple([r.extent for r in part]), buffer.dtype, storage_scope)


def _repeating(tree: Tree, realize: BlockRealize) -> set[Var]:
    """The loops above a block that have, or may have, more than one turn."""
    return {loop.loop_var for loop in tree.loops_above(realize) if not is_const_int(loop.extent, 1)}


def _all_before(tree: Tree, scope: Scope, consumers: Sequence[BlockRealize], writer: BlockRealize) -> bool:
    """Whether all consumers are done when the writer starts, so that they read what was there before."""
    around = _repeating(tree, writer)
    return all(
        scope.order[c] < scope.order[writer] and not any(lp.loop_var in around for lp in tree.loops_above(c))
        for c in consumers
    )


def _check_own_axes(func: PrimFunc, stmt: Stmt | None) -> None:
    """ScheduleError when a block with axes uses loops around it: those of an outer scope that the region moves with."""
    loops = tree_of(func).loops
    for realize in () if stmt is None else blocks_below(stmt):
        if not realize.block.iter_vars:
            continue
        inside = {n.loop_var for n in pre_order(realize.block) if isinstance(n, For)}
        for n in pre_order(realize.block):
            if isinstance(n, Var) and n in loops and n not in inside:
                raise ScheduleError(
                    f"the copied part moves with loop {n.name} outside the scope, which a copy in it cannot follow",
                    where=loops[n],
                    hint="make the copy in the outer scope, before blockize or loop_partition",
                )


def insert_stage(
    func: PrimFunc,
    scope: Scope,
    place: tuple[Stmt, int],
    stage: Stmt,
    changed: dict[Stmt, Stmt | None],
    copy: Buffer,
) -> PrimFunc:
    """The function with ``changed`` blocks, ``stage`` put into the statement ``place[0]``, and ``copy`` allocated."""
    where, position = place
    root = scope.root.block
    for changed_or_new in (stage, *changed.values()):
        _check_own_axes(func, changed_or_new)
    new = rebuild(
        tree_of(func),
        changed,
        {
            where: lambda s: insert_in(s, position, stage),
            root: lambda b: b.with_(alloc_buffers=(*b.alloc_buffers, copy)),
        },
    )
    after = tree_of(new)
    check_loops_above(after, after.block(copy.name))
    return new


@primitive
def cache_write(
    func: PrimFunc,
    block: str,
    write_buffer_index: int | str,
    storage_scope: str,
    consumer_blocks: list[str] | None = None,
) -> tuple[PrimFunc, BlockRV]:
    """Let ``block`` write into a new buffer of ``storage_scope``, and copy that to the buffer it wrote before.

    ``write_buffer_index`` is the buffer's number among the block's writes, or its name. Later readers go on reading
    the buffer, but those in ``consumer_blocks`` read the new one. Returns the copying block.

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
    check_storage_scope(storage_scope)
    tree = tree_of(func)
    realize = tree.block(block)
    scope = scope_of(tree, realize)
    buffer = pick_buffer(realize, write_buffer_index, "write")
    check_only_writer(tree, realize)
    check_plain_path(tree, realize)
    check_not_opaque(tree, scope, buffer)
    if realize.block.init is None and any(not a.is_store for a in accesses(realize.block.body, buffer)):
        raise ScheduleError(
            f"block {block!r} reads buffer {buffer.name}, which it writes, and has no init: the new buffer would lack "
            "what it starts from",
            where=realize,
            hint="do this before decompose_reduction",
        )
    readers = [r for r in scope.readers.get(buffer, []) if r is not realize]
    redirected = _names(scope, tree, consumer_blocks, readers, buffer) if consumer_blocks else []
    for reader in redirected:
        if scope.order[reader] < scope.order[realize]:
            raise ScheduleError(
                f"block {reader.block.name_hint!r} reads buffer {buffer.name} before block {block!r} writes it",
                where=(reader, realize),
            )
        check_cover(tree, realize, reader, buffer)
    check_no_carried_reader(tree, scope, realize, buffer)
    name = unique_block_name(func, f"{buffer.name}_{storage_scope}")
    related = [r for r in readers if r not in redirected and scope.order[r] > scope.order[realize]]
    meet = meeting_place(tree, realize, related) if related else None
    exactly = is_output_block(tree, realize)
    place: tuple[Stmt, int]
    if meet is None:
        analyzer, box = _written_box(tree, realize, buffer, None, exactly)
        body = scope.root.block.body
        place = (body, len(children_of(body)))
    else:
        analyzer, box = _written_box(tree, realize, buffer, meet[1], exactly)
        place = (meet[0], meet[0].seq.index(meet[1]) + 1)
    part = part_of(tree, place[0], buffer, box, analyzer)
    copy = _holder(name, buffer, storage_scope, part)
    stage = copy_nest(analyzer, name, copy, buffer, box, part)
    changed: dict[Stmt, Stmt | None] = {b: redirect(tree, b, buffer, copy, part) for b in (realize, *redirected)}
    return insert_stage(func, scope, place, stage, changed, copy), BlockRV(name)
