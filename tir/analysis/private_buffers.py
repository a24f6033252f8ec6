"""This module proves that each iteration of a loop fills a buffer before it reads it. It registers itself for that."""

from __future__ import annotations

from collections.abc import Sequence

from ..stmt import BlockRealize, Buffer, For
from .access import Access
from .accessed_boxes import all_accessed_boxes
from .harmless_conflicts import PRIVACY, bound_variables
from .region_cover import why_not_covered
from .scope import scope_at
from .tree import Tree


def _why_not_private(tree: Tree, loop: For, buffer: Buffer, touches: Sequence[Access]) -> str | None:
    """Return why iterations of ``loop`` cannot each have a private copy of ``buffer``; None when they can.

    A private copy is possible when nothing outside the loop accesses the buffer, and each iteration writes everything
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


PRIVACY.set(_why_not_private)
