"""This module requires that a copy of a buffer holds the values that its readers would have read without it."""

from __future__ import annotations

from collections.abc import Sequence

from ...tir.analysis.access import Access, accesses, opaque_buffers
from ...tir.analysis.region_cover import why_not_covered
from ...tir.analysis.scope import BlockScope, region_of
from ...tir.analysis.tree import Tree
from ...tir.arith import Analyzer
from ...tir.expr import BufferLoad, Var, is_const_int
from ...tir.stmt import Block, BlockRealize, Buffer, BufferStore, SeqStmt
from ...tir.walk import pre_order
from ..errors import ScheduleError


def uses_pointer(realize: BlockRealize, buffer: Buffer) -> bool:
    """Return whether a block accesses the buffer in other ways than by plain loads and stores."""
    return buffer.data in opaque_buffers(realize.block)


def check_pointers_declared(scope: BlockScope, buffer: Buffer) -> None:
    """Raise ScheduleError when the buffer is accessed through a pointer or match_buffer that no block declares.

    A copy would miss such accesses.
    """
    root = scope.root.block
    if buffer.data not in opaque_buffers(root):
        return
    users = {*scope.readers.get(buffer, ()), *scope.writers.get(buffer, ())}
    hidden = [b for b in scope.blocks if b not in users and uses_pointer(b, buffer)]
    own = [m for m in root.match_buffers if buffer.data in (m.buffer.data, m.source.buffer.data)]
    loose = [n for n in pre_order(root.body, lambda n: not isinstance(n, BlockRealize)) if n is buffer.data]
    if hidden or own or loose:
        raise ScheduleError(
            f"buffer {buffer.name} is also accessed through a pointer or a match_buffer, which a copy would miss",
            where=hidden or scope.root,
            hint="make the copy before tensorize or blockize, or declare in T.reads and T.writes what blocks touch",
        )


def check_apart(tree: Tree, writer: BlockRealize, reader: BlockRealize, buffer: Buffer) -> None:
    """Raise ScheduleError unless the writer has written all of the buffer before the reader starts."""
    around = repeated_loops(tree, writer)
    shared = [loop for loop in tree.loops_above(reader) if loop.loop_var in around]
    if shared:
        raise ScheduleError(
            f"buffer {buffer.name} is accessed through a pointer or a match_buffer, and blocks "
            f"{writer.block.name_hint!r} and {reader.block.name_hint!r} share loop {shared[-1].loop_var.name}",
            where=(shared[-1], writer, reader),
            hint="do this before tensorize and other steps that bring in pointers",
        )


def check_starts_fresh(tree: Tree, realize: BlockRealize, buffer: Buffer) -> None:
    """Raise ScheduleError when a block reads old contents of the buffer that it writes."""
    block = realize.block
    if block.init is not None:
        return
    if uses_pointer(realize, buffer) and region_of(block.reads, buffer) is None:
        return
    loads = [a for a in accesses(block.body, buffer) if not a.is_store]
    if not loads and not uses_pointer(realize, buffer):
        return
    if not uses_pointer(realize, buffer) and _stores_first(block, loads):
        return
    inside = BlockScope(realize)
    readers = inside.readers.get(buffer, [])
    if not uses_pointer(realize, buffer) and len(loads) == sum(
        not a.is_store for b in inside.blocks for a in accesses(b, buffer)
    ):
        if all(_written_before(tree, inside, reader, buffer) for reader in readers):
            return
    raise ScheduleError(
        f"block {block.name_hint!r} reads buffer {buffer.name}, which it writes, and has no init: the new buffer would "
        "lack what it starts from",
        where=realize,
        hint="do this before decompose_reduction",
    )


def _stores_first(block: Block, loads: Sequence[Access]) -> bool:
    """Return whether a block begins by storing the one element that all ``loads`` read."""
    first = block.body.seq[0] if isinstance(block.body, SeqStmt) else None
    if not isinstance(first, BufferStore) or first.predicate is not None or first.buffer is not loads[0].buffer:
        return False
    if any(isinstance(n, BufferLoad) for i in first.indices for n in pre_order(i)):
        return False
    if any(isinstance(n, BufferLoad) and n.buffer is first.buffer for n in pre_order(first.value)):
        return False
    return all(
        len(a.indices) == len(first.indices) and all(map(Analyzer().can_prove_equal, a.indices, first.indices))
        for a in loads
    )


def _written_before(tree: Tree, inside: BlockScope, reader: BlockRealize, buffer: Buffer) -> bool:
    writers = inside.writers.get(buffer, [])
    if reader.block.init is not None and writers == [reader]:
        return True
    earlier = [w for w in writers if inside.order[w] < inside.order[reader]]
    return any(why_not_covered(tree, writer, reader, buffer) is None for writer in earlier)


def check_no_carried_reader(tree: Tree, scope: BlockScope, writer: BlockRealize, buffer: Buffer) -> None:
    """Raise ScheduleError when an earlier block reads in a later iteration what ``writer`` writes.

    A copy made after that loop would come too late.
    """
    around = repeated_loops(tree, writer)
    for reader in scope.readers.get(buffer, []):
        if reader is writer or scope.order[reader] > scope.order[writer]:
            continue
        shared = [loop for loop in tree.loops_above(reader) if loop.loop_var in around]
        if shared:
            raise ScheduleError(
                f"block {reader.block.name_hint!r} reads buffer {buffer.name} in later iterations of loop "
                f"{shared[-1].loop_var.name}, before block {writer.block.name_hint!r} would have written it back",
                where=(shared[-1], reader, writer),
                hint="do this before the blocks share that loop, or let the other block read a copy made in front of it",
            )


def repeated_loops(tree: Tree, realize: BlockRealize) -> set[Var]:
    """Return the variables of the loops above a block that are not known to have one iteration."""
    return {loop.loop_var for loop in tree.loops_above(realize) if not is_const_int(loop.extent, 1)}
