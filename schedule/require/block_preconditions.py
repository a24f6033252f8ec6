"""This module finds the blocks and loops that handles name, and checks what primitives require of blocks.

What is not there is a ScheduleError, and so is a block whose kind, scope, body, axes or loops do not allow a step. A copy
of a buffer has to hold the values that its readers would have read without it.

It raises ScheduleError with the reasons of the analyses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...tir.analysis.access import Access, accesses, opaque_buffers
from ...tir.analysis.region_cover import covers_domain, why_not_covered
from ...tir.analysis.scope import (
    BlockScope,
    region_of,
    scope_at,
    why_not_complete,
    why_not_only_writer,
    why_not_reduction,
)
from ...tir.analysis.tree import Tree, blocks_below
from ...tir.arith import Analyzer
from ...tir.expr import BufferLoad, IterVar, Reason, Var, is_const_int
from ...tir.expr.node import IRNode
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
from ...tir.walk import pre_order, uses_var
from ..errors import ScheduleError, near_names, nearest, unknown_handle


def root_of(tree: Tree) -> BlockRealize:
    """Return the realization of the root block; an error for a lowered function, which has none."""
    if not isinstance(tree.func.body, BlockRealize):
        raise ScheduleError(
            f"function {tree.func.name} has no root block, so there is nothing to schedule",
            hint="schedule the function before it is lowered; T.prim_func gives functions a root block",
        )
    return tree.func.body


def find_block(tree: Tree, name: str) -> BlockRealize:
    """Return the realization of the block of this name; ScheduleError with similar names when there is none."""
    found = tree.blocks.get(name)
    if found is None:
        near = [b for other in near_names(name, tree.blocks) for b in tree.blocks[other] if b is not tree.func.body]
        raise unknown_handle(
            f"there is no block {name!r} in function {tree.func.name}",
            where=near,
            hint=nearest(name, Tree(tree.func).blocks),
        )
    if len(found) > 1:
        raise ScheduleError(f"there are {len(found)} blocks named {name!r}", where=found, hint="give each its own name")
    return found[0]


def find_loop(tree: Tree, var: Var) -> For:
    """Return the loop over ``var``; ScheduleError when it no longer exists."""
    found = tree.loops.get(var)
    if found is None:
        raise unknown_handle(
            f"loop {getattr(var, 'name', repr(var))} is not in function {tree.func.name} (any more)",
            hint=f"split, fuse and compute_at make new loops; ask get_loops again{_loops_there(tree)}",
        )
    return found


def _loops_there(tree: Tree) -> str:
    """Returns the loops around each block, the outermost first: ``. The loops are i_0, i_1, r of block 'C'``."""
    said, tree = [], Tree(tree.func)
    for name, found in tree.blocks.items():
        loops = [v.name for v, loop in tree.loops.items() if any(b is found[0] for b in blocks_below(loop.body))]
        if loops:
            said.append(f"{', '.join(loops)} of block {name!r}")
    more = ", …" if len(said) > _MOST_BLOCKS else ""
    return f". The loops are {'; '.join(said[:_MOST_BLOCKS])}{more}" if said else ""


_MOST_BLOCKS = 6
"""The number of blocks that a message lists."""


def scope_around(tree: Tree, stmt: Stmt) -> BlockRealize:
    """Return the realization of the nearest block around ``stmt``; ScheduleError for the root block."""
    if stmt is tree.func.body:
        raise ScheduleError("the root block has no scope around it", where=stmt, hint="name a block inside it")
    return tree.scope(stmt)


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


def check_no_pointers(inside: Stmt, buffers: Iterable[Buffer], so: str, where: IRNode) -> None:
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
