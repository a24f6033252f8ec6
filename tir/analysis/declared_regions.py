"""This module computes the regions that a block declares, after its body has changed."""

from __future__ import annotations

from collections.abc import Sequence

from ..stmt import Block, BufferRegion
from .access import opaque_buffers
from .access_regions import access_regions
from .region_union import region_union


def hidden_reads(block: Block) -> list[BufferRegion]:
    """Return the declared reads of buffers that the block accesses through pointers or match_buffers.

    No load in the block shows these reads.
    """
    pointers = opaque_buffers(block)
    return [r for r in block.reads if r.buffer.data in pointers]


def redeclared(block: Block, more: Sequence[BufferRegion] = ()) -> Block:
    """Return ``block``, whose body or init has changed, with regions computed from the accesses in it.

    Accesses through a pointer or a match_buffer do not appear as loads or stores, so the old regions of such buffers
    are kept. ``more`` is added to the reads.
    """
    own = {*block.alloc_buffers, *[m.buffer for m in block.match_buffers]}
    reads, writes = access_regions(block.body, block.init)
    pointers = opaque_buffers(block)
    hidden = [r for r in block.writes if r.buffer.data in pointers and r.buffer not in own]
    return block.with_(
        reads=_joined(
            [r for r in reads if r.buffer not in own],
            [r for r in (*hidden_reads(block), *more) if r.buffer not in own],
        ),
        writes=_joined([r for r in writes if r.buffer not in own], hidden),
    )


def _joined(found: Sequence[BufferRegion], declared: Sequence[BufferRegion]) -> tuple[BufferRegion, ...]:
    """Return one region per buffer: first those that were computed, then those that are only declared."""
    out = {r.buffer: r for r in found}
    for r in declared:
        out[r.buffer] = region_union([out[r.buffer], r]) if r.buffer in out else r
    return tuple(out.values())
