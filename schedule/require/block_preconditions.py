"""This module checks what primitives require of blocks: their kind and scope, body, axes, and the loops around them.

It raises ScheduleError with the reasons of the analyses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...tir.analysis.access import Access, opaque_buffers
from ...tir.analysis.region_cover import covers_domain
from ...tir.analysis.scope import BlockScope, scope_at, why_not_complete, why_not_only_writer, why_not_reduction
from ...tir.analysis.tree import Tree, blocks_below
from ...tir.expr import IterVar, Reason, is_const_int
from ...tir.expr.node import Node
from ...tir.stmt import (
    AssertStmt,
    Block,
    BlockRealize,
    Buffer,
    BufferRegion,
    BufferStore,
    For,
    SeqStmt,
    Stmt,
    below_assertions,
)
from ...tir.walk import uses_var
from ..errors import ScheduleError
from .lookup import scope_around


def scope_of(tree: Tree, realize: BlockRealize) -> BlockScope:
    """Return the scope that directly contains ``realize``; ScheduleError for the root block."""
    return scope_at(scope_around(tree, realize))


def ordered_scope(tree: Tree, realize: BlockRealize) -> BlockScope:
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


def check_read_by_blocks_alone(scope: BlockScope, buffer: Buffer) -> None:
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
    """Return :meth:`BlockScope.producers` of the block in its scope."""
    return scope_of(tree, realize).producers(realize)


def consumers_of(tree: Tree, realize: BlockRealize) -> list[BlockRealize]:
    """Return :meth:`BlockScope.consumers` of the block in its scope."""
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
    scope: BlockScope, writer: BlockRealize, readers: Iterable[BlockRealize], buffer: Buffer, hint: str = ""
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
    scope: BlockScope, realize: BlockRealize, last: int, hint: str, reads: Sequence[BufferRegion] | None = None
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


def check_leaf(realize: BlockRealize) -> None:
    """Raise ScheduleError when the block holds other blocks."""
    if next(blocks_below(realize.block.body), None) is not None:
        raise ScheduleError(
            f"block {realize.block.name_hint!r} is not a leaf: it holds blocks of its own",
            where=realize,
            hint="choose a block inside it",
        )


def check_no_pointers(inside: Stmt, buffers: Iterable[Buffer], so: str, where: Node) -> None:
    """Raise ScheduleError when one of the buffers is accessed ``inside`` by other means than loads and stores.

    ``so`` says what that means for the step.
    """
    pointers = opaque_buffers(inside)
    for buffer in buffers:
        if buffer.data in pointers:
            raise ScheduleError(
                f"buffer {buffer.name} is accessed through a pointer or a match_buffer, {so}",
                where=where,
                hint="do this before tensorize and other steps that bring in pointers",
            )


def the_store(
    realize: BlockRealize, stmt: Stmt | None, hint: str = "its body must be a single B[...] = value"
) -> BufferStore:
    """Return the statement, the body or init of a block, if it is one store; ScheduleError otherwise."""
    if not isinstance(stmt, BufferStore) or stmt.predicate is not None:
        said = f"block {realize.block.name_hint!r} does more than store one value"
        if stmt is None and realize.block.init is not None:
            said += ": it is a reduction"
            hint = "compute_at moves it into the loops of its reader, reverse_compute_at moves a reader into its loops"
        raise ScheduleError(said, where=realize, hint=hint)
    return stmt


def check_not_accumulating(realize: BlockRealize, buffer: Buffer, found: Iterable[Access]) -> None:
    """Raise ScheduleError when a block without init reads the buffer that it writes, given its accesses to it."""
    if realize.block.init is None and any(not a.is_store for a in found):
        raise ScheduleError(
            f"block {realize.block.name_hint!r} reads buffer {buffer.name}, which it writes, and has no init: the new "
            "buffer would lack what it starts from",
            where=realize,
            hint="do this before decompose_reduction",
        )


def check_from_zero(realize: BlockRealize, axes: Iterable[IterVar]) -> None:
    """Raise ScheduleError unless the axes start at 0."""
    for iv in axes:
        if not is_const_int(iv.dom.min, 0):
            raise ScheduleError(
                f"axis {iv.var.name} of block {realize.block.name_hint!r} starts at {iv.dom.min}, not at 0",
                where=realize,
                hint="let the axes start at 0, and do this before loop_partition",
            )


def check_box(tree: Tree, realize: BlockRealize) -> None:
    """Raise ScheduleError when the domain of an axis depends on a loop of the block. New loops would lack its size."""
    loops = {lp.loop_var for lp in tree.loops_above(realize)}
    for iv in realize.block.iter_vars:
        if uses_var(iv.dom.min, lambda v: v in loops) or uses_var(iv.dom.extent, lambda v: v in loops):
            raise ScheduleError(
                f"axis {iv.var.name} of block {realize.block.name_hint!r} runs over {iv.dom.extent} values, which depends "
                "on a loop of the block",
                where=realize,
                hint="choose a block whose axes have sizes that do not depend on its loops",
            )


def check_spatial_output(realize: BlockRealize, axes: Iterable[IterVar]) -> None:
    """Raise ScheduleError unless the axes, which address the block's output, are spatial."""
    for iv in axes:
        if iv.kind != IterVar.SPATIAL:
            raise ScheduleError(
                f"axis {iv.var.name}, which addresses the output of block {realize.block.name_hint!r}, is {iv.kind}",
                where=realize,
                hint="decompose or rfactor the reduction first",
            )


def check_whole_domain(tree: Tree, realize: BlockRealize, so: str, hint: str, once: bool = False) -> None:
    """Raise ScheduleError unless its loops run the block on all values of its axes (with ``once``: on each once)."""
    if not covers_domain(tree, realize, once=once):
        raise ScheduleError(
            f"block {realize.block.name_hint!r} is not known to run on the whole domain of its axes{so}",
            where=realize,
            hint=hint,
        )


def loops_of(tree: Tree, realize: BlockRealize, loop: For) -> tuple[list[For], list[For]]:
    """Return the loops of a block outside of ``loop``, and those from it on. Raise ScheduleError when it is not one of
    them."""
    loops = tree.loops_above(realize)
    if loop not in loops:
        raise ScheduleError(
            f"loop {loop.loop_var.name} is not around block {realize.block.name_hint!r}",
            where=(loop, realize),
            hint=f"its loops: {', '.join(lp.loop_var.name for lp in loops) or 'none'}",
        )
    return loops[: loops.index(loop)], loops[loops.index(loop) :]


def innermost_own_loops(loops: Sequence[For], realize: BlockRealize) -> list[For]:
    """Return the innermost of a block's loops that hold nothing but the block, outermost first."""
    out: list[For] = []
    here: Stmt = realize
    for loop in reversed(loops):
        if loop.body is not here:
            break
        out.insert(0, loop)
        here = loop
    return out


def own_nest(tree: Tree, realize: BlockRealize) -> Stmt | None:
    """Return the outermost loop over the block if the loops up to its scope hold nothing else; else None."""
    loops = tree.loops_above(realize)
    own = innermost_own_loops(loops, realize)
    return (own[0] if own else realize) if len(own) == len(loops) else None


def nest_of_its_own(tree: Tree, realize: BlockRealize) -> Stmt:
    """Return the outermost loop of a block that is alone in its loops, which run once on each point. Raise
    ScheduleError for others."""
    top = own_nest(tree, realize)
    if top is None or not covers_domain(tree, realize, once=True):
        raise ScheduleError(
            f"block {realize.block.name_hint!r} is not alone in a loop nest of its own that runs once on each point of "
            "its axes",
            where=realize,
            hint="do this before splitting its loops unevenly and moving other blocks in",
        )
    return top


def has_trivial_bindings(tree: Tree, realize: BlockRealize) -> bool:
    """Return whether the axes of a block are bound to the loops of its scope one to one, in order."""
    loops = tree.loops_above(realize)
    return len(loops) == len(realize.iter_values) and all(
        value is loop.loop_var for value, loop in zip(realize.iter_values, loops, strict=True)
    )
