"""This module recognizes conflicts between iterations that do no harm: reductions, and buffers that each iteration
fills."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ..expr import BufferLoad, Expr, IterVar, Var, pre_order, vars_in
from ..stmt import Block, BlockRealize, Buffer, For, While, loads_and_stores
from .access import Access, opaque_buffers
from .dependence import Conflict, all_accessed_boxes
from .reductions import find_reducer, updates_of
from .region_cover import why_not_covered
from .scope import scope_at
from .tree import Tree, blocks_below


def binding_block(store: Access, other: Access, variables: Iterable[Var]) -> BlockRealize | None:
    """Return the outermost block with axes around both accesses, if it binds all the variables; else None."""
    for a, b in zip(store.blocks, other.blocks, strict=False):
        if a is not b:
            return None
        if a.iter_values:
            return a if (bound_variables(a, True) | bound_variables(a, False)).issuperset(variables) else None
    return None


def bound_variables(realize: BlockRealize, reduced: bool) -> set[Var]:
    """Return the variables to which the reduce axes of a block, or else its other axes, are bound."""
    pairs = zip(realize.block.iter_vars, realize.iter_values, strict=True)
    return {v for axis, value in pairs if (axis.kind == IterVar.REDUCE) == reduced for v in vars_in(value)}


def only_reduced(realize: BlockRealize, variables: Iterable[Var]) -> bool:
    """Return whether the block binds each of the variables, and binds them to reduce axes only."""
    wanted = set(variables)
    return wanted.isdisjoint(bound_variables(realize, False)) and wanted <= bound_variables(realize, True)


def same_instance(conflict: Conflict, realize: BlockRealize, variables: Iterable[Var]) -> bool:
    """Return whether conflicting iterations of the variables run the block with equal axes, storing the same value
    again.

    The block's axes that are bound to the variables are spatial, its stores to the buffer have exactly such axes as
    indices, and it does not read the buffer. A block that uses pointers is trusted to have independent spatial axes.
    """
    block, buffer = realize.block, conflict.store.buffer
    pairs = zip(block.iter_vars, realize.iter_values, strict=True)
    touched = [axis for axis, value in pairs if not vars_in(value).isdisjoint(variables)]
    if any(axis.kind != IterVar.SPATIAL for axis in touched) or next(blocks_below(block.body), None) is not None:
        return False
    if opaque_buffers(block):
        return True
    if conflict.other.realize is not realize or block.init is not None:
        return False
    for access in loads_and_stores(block.body):
        if access.buffer is not buffer:
            continue
        if isinstance(access, BufferLoad) or any(all(i is not axis.var for i in access.indices) for axis in touched):
            return False
    return True


def accumulates(block: Block) -> bool:
    """Return whether every leaf of the block combines its stored value with the old one by a known reducer.

    Then the order of its reduce axes does not matter, but for the rounding of floats and for which of equal elements an
    argmax names. Blocks that use pointers are trusted.
    """
    inner = list(blocks_below(block.body))
    if inner:  # a while around them may ask for what they have summed so far
        around = pre_order(block.body, lambda n: not isinstance(n, (Expr, Block)))
        return not any(isinstance(n, While) for n in around) and all(accumulates(r.block) for r in inner)
    if opaque_buffers(block):
        return True
    updates = updates_of(block.body)
    if isinstance(updates, str):
        return False
    left = [BufferLoad(store.buffer, store.indices) for store in updates.stores]
    found = find_reducer(None, left, [store.value for store in updates.stores])
    written = {store.buffer for store in updates.stores}
    return found is not None and not any(_reads(e, written) for e in (*found[1], *updates.conditions))


def _reads(e: Expr, buffers: Collection[Buffer]) -> bool:
    return any(a.buffer in buffers for a in loads_and_stores(e))


def why_not_privatizable(tree: Tree, loop: For, buffer: Buffer, touches: Sequence[Access]) -> str | None:
    """Return why iterations of ``loop`` cannot each have a private copy of ``buffer``; None when they can.

    ``touches`` are the accesses below the loop. A private copy is possible when nothing outside the loop accesses the buffer, and each iteration writes everything
    that it reads.
    """
    if any(buffer is b for b in tree.func.buffer_map.values()):
        return f"{buffer.name} is a parameter"
    mine = [t for t in touches if t.buffer is buffer]
    everywhere = all_accessed_boxes(tree.func)
    if everywhere is None:
        return "pointers are used elsewhere in the function"
    if len(mine) != sum(t.buffer is buffer for t in everywhere):
        return f"{buffer.name} is used outside loop {loop.loop_var.name} too"
    writers: dict[BlockRealize, None] = {}
    readers: dict[BlockRealize, None] = {}
    for t in mine:
        if not t.blocks:
            return f"{buffer.name} is used outside blocks"
        (writers if t.is_store else readers)[t.blocks[0]] = None
    order = scope_at(tree.scope(loop)).order
    for reader in readers:
        if reader in writers and reader.block.init is not None:
            # the reduction starts again in every iteration, unless a loop further outside carries it
            reduced = bound_variables(reader, True)
            outside = (up for up in tree.loops_above(reader) if tree.is_below(loop, up))
            carrier = next((up.loop_var for up in outside if up.loop_var in reduced), None)
            if carrier is not None:
                return f"loop {carrier.name} carries the reduction of block {reader.block.name_hint!r}"
            continue
        problem = f"block {reader.block.name_hint!r} reads {buffer.name} before it is written"
        for writer in writers:
            if order[writer] >= order[reader]:
                continue
            why = why_not_covered(tree, writer, reader, buffer)
            if why is None:
                break
            problem = why.text
        else:
            return problem
    return None
