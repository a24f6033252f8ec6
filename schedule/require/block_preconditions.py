"""This module checks what primitives require of blocks, and raises ScheduleError with the reasons of the analyses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...tir.analysis.scope import Scope, scope_at, why_not_complete, why_not_only_writer, why_not_reduction
from ...tir.analysis.tree import Tree, blocks_below
from ...tir.expr import Reason
from ...tir.stmt import AssertStmt, Block, BlockRealize, Buffer, BufferRegion, For, SeqStmt, below_assertions
from ..errors import ScheduleError
from .lookup import scope_around


def scope_of(tree: Tree, realize: BlockRealize) -> Scope:
    """Return the scope that directly contains ``realize``; ScheduleError for the root block."""
    return scope_at(scope_around(tree, realize))


def ordered_scope(tree: Tree, realize: BlockRealize) -> Scope:
    """Return the scope that ``realize`` is a block of; ScheduleError when a ``while`` stands around blocks of it.

    The body of such a loop may run any number of times, or not at all, and a block that stands later in the text may
    run before an earlier one. So it is not known which value of a buffer a block reads there.
    """
    scope = scope_of(tree, realize)
    if scope.repeats is not None:
        names = ", ".join([repr(b.block.name_hint) for b in blocks_below(scope.repeats.body)])
        raise ScheduleError(
            f"`while {scope.repeats.condition}` stands around {names} in the scope of block {realize.block.name_hint!r}: "
            "how often these blocks run, and what they read each time, is not known",
            where=(realize, scope.repeats),
            hint="only what stays inside one block can be scheduled beside a while loop; put the loop into a block",
        )
    return scope


def check_read_by_blocks_alone(scope: Scope, buffer: Buffer) -> None:
    """Raise ScheduleError when the bounds of a loop, or a condition outside of blocks, read the buffer."""
    found = scope.bare_readers.get(buffer)
    if found is not None:
        what = f"the bounds of loop {found.loop_var.name}" if isinstance(found, For) else "a condition or a binding"
        raise ScheduleError(
            f"buffer {buffer.name} is read outside of blocks, by {what}, so it has to be computed before",
            where=found,
            hint="leave the block that computes it where it is",
        )


def producers_of(tree: Tree, realize: BlockRealize) -> list[BlockRealize]:
    """Return :meth:`Scope.producers` of the block in its scope."""
    return scope_of(tree, realize).producers(realize)


def consumers_of(tree: Tree, realize: BlockRealize) -> list[BlockRealize]:
    """Return :meth:`Scope.consumers` of the block in its scope."""
    return scope_of(tree, realize).consumers(realize)


def check_complete(tree: Tree, realize: BlockRealize) -> None:
    """Raise ScheduleError unless the block is complete."""
    why = why_not_complete(scope_of(tree, realize), realize.block)
    hint = "a complete block has spatial axes only, is the only writer of its outputs and reads none of them"
    _check(realize, why, "is not a complete block", hint)


def check_reduction(tree: Tree, realize: BlockRealize) -> None:
    """Raise ScheduleError unless the block is a reduction block."""
    why = why_not_reduction(scope_of(tree, realize), realize.block)
    hint = "a reduction block has an init, spatial and reduce axes, and is the only writer of its outputs"
    _check(realize, why, "is not a reduction block", hint)


def check_complete_or_reduction(tree: Tree, realize: BlockRealize) -> None:
    """Raise ScheduleError unless the block is complete or a reduction block."""
    why_not = why_not_complete if realize.block.init is None else why_not_reduction
    hint = "do this step before decompose_reduction, and on blocks that are the only writer of their outputs"
    why = why_not(scope_of(tree, realize), realize.block)
    _check(realize, why, "is neither a complete nor a reduction block", hint)


def check_only_writer(tree: Tree, realize: BlockRealize) -> None:
    """Raise ScheduleError when another block of the scope writes one of the block's outputs."""
    why = why_not_only_writer(scope_of(tree, realize), realize.block)
    _check(realize, why, "is not the only writer", "merge or inline the other writers first")


def _check(realize: BlockRealize, why: Reason | None, what: str, hint: str) -> None:
    if why is not None:
        raise ScheduleError(f"block {realize.block.name_hint!r} {what}: {why}", where=realize, hint=hint)


def check_plain_path(tree: Tree, realize: BlockRealize) -> None:
    """Raise ScheduleError when something other than loops and sequences stands between the block and its scope.

    Assertions around the whole scope are no conditions: where one fails, the call ends before the scope runs.
    """
    inside = below_assertions(tree.scope(realize).block.body)
    for up in tree.above(realize):
        if isinstance(up, Block) or (isinstance(up, AssertStmt) and tree.is_below(inside, up)):
            return
        if not isinstance(up, (For, SeqStmt)):
            raise ScheduleError(
                f"block {realize.block.name_hint!r} stands under a {type(up).__name__}, so it may run conditionally",
                where=realize,
                hint="do this before the condition is there, or move it into the block with T.where",
            )


def check_writes_first(
    scope: Scope, writer: BlockRealize, readers: Iterable[BlockRealize], buffer: Buffer, hint: str = ""
) -> None:
    """Raise ScheduleError when one of the readers stands before the writer, and so reads an older value."""
    for reader in readers:
        if scope.order[reader] < scope.order[writer]:
            raise ScheduleError(
                f"block {reader.block.name_hint!r} reads buffer {buffer.name} before block {writer.block.name_hint!r} "
                "writes it",
                where=(reader, writer),
                hint=hint or "only what comes after the block can take its value",
            )


def check_reads_stay(
    scope: Scope, realize: BlockRealize, last: int, hint: str, reads: Sequence[BufferRegion] | None = None
) -> None:
    """Raise ScheduleError when a later block, up to number ``last`` of the scope, overwrites what the block reads.

    ``reads``: what it is about to read, where its declared regions are not that.
    """
    here = scope.order[realize]
    for region in realize.block.reads if reads is None else reads:
        for writer in scope.writers.get(region.buffer, ()):
            if here < scope.order[writer] <= last:
                raise ScheduleError(
                    f"block {realize.block.name_hint!r} reads {region.buffer.name}, which block "
                    f"{writer.block.name_hint!r} overwrites later",
                    where=(realize, writer),
                    hint=hint,
                )
