"""This module finds the buffer of a block that an argument names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...tir.analysis.tree import Tree
from ...tir.stmt import Block, BlockRealize, Buffer, BufferRegion
from ..errors import ScheduleError, unknown_handle


def pick_buffer(realize: BlockRealize, which: Any, kind: str, others: Sequence[BufferRegion] = ()) -> Buffer:
    """Return the buffer that a block reads or writes, given by its number in its declarations or by its name.

    No other buffer of that side, nor one among ``others``, may have that name.
    """
    block = realize.block
    regions = block.reads if kind == "read" else block.writes
    names = ", ".join(f"{i}: {r.buffer.name}" for i, r in enumerate(regions)) or "none"
    if isinstance(which, str):
        found = {r.buffer: None for r in (*regions, *others) if r.buffer.name == which}
        if len(found) > 1:
            raise ScheduleError(
                f"block {block.name_hint!r} touches {len(found)} buffers named {which!r}",
                where=realize,
                hint=f"say which by its number; what it {kind}s: {names}",
            )
        if found:
            return next(iter(found))
    elif isinstance(which, int) and 0 <= which < len(regions):
        return regions[which].buffer
    raise unknown_handle(
        f"block {block.name_hint!r} has no {kind} buffer {which!r}",
        where=realize,
        hint=f"what it {kind}s: {names}",
    )


def named_buffer(realize: BlockRealize, buffer: Any) -> Buffer:
    """Return the buffer of a block that an argument names. The argument is ``("read", i)``, ``("write", i)``, a number
    among its writes, or a name."""
    if isinstance(buffer, (list, tuple)) and len(buffer) == 2 and buffer[0] in ("read", "write"):
        return pick_buffer(realize, buffer[1], buffer[0])
    if isinstance(buffer, int):
        return pick_buffer(realize, buffer, "write")
    if isinstance(buffer, str):
        for kind, regions in (("write", realize.block.writes), ("read", realize.block.reads)):
            if any(r.buffer.name == buffer for r in regions):
                return pick_buffer(realize, buffer, kind, others=realize.block.reads)
    raise ScheduleError(
        f"block {realize.block.name_hint!r} has no buffer {buffer!r}",
        where=realize,
        hint='say ("read", 0), ("write", 0), or a name of '
        + ", ".join(repr(r.buffer.name) for r in (*realize.block.reads, *realize.block.writes)),
    )


def home_of(tree: Tree, realize: BlockRealize, buffer: Buffer) -> Block | None:
    """Return the block that allocates the buffer; None for a parameter."""
    if any(b is buffer for b in tree.func.buffer_map.values()):
        return None
    for up in (realize.block, *tree.above(realize)):
        if isinstance(up, Block) and any(b is buffer for b in up.alloc_buffers):
            return up
    raise ScheduleError(
        f"buffer {buffer.name} is neither allocated here nor a parameter",
        where=realize,
        hint="choose a buffer that the function allocates or takes",
    )
