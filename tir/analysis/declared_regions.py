"""This module computes the regions that a block declares after its body has changed, and the least box around several."""

from __future__ import annotations

from collections.abc import Sequence

from ..arith.analyzer import Analyzer
from ..arith.normal_form.floor_division import join_splits, minimum
from ..arith.normal_form.polynomial import Poly, add
from ..expr import DType, Range, match_types
from ..stmt import Block, BufferRegion
from .access import opaque_buffers
from .access_regions import access_regions


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


def region_union(regions: Sequence[BufferRegion], analyzer: Analyzer | None = None) -> BufferRegion:
    """Return the least box that holds all ``regions`` of one buffer. Unknown minima and maxima remain in it.

    >>> from tilewright.tir import decl_buffer
    >>> A = decl_buffer((16, 16), name="A")
    >>> box = region_union([A[0:4, 2:3], A[2:8, 3:5]])
    >>> [(int(r.min), int(r.extent)) for r in box.region]
    [(0, 8), (2, 3)]
    """
    if not regions:
        raise ValueError("region_union needs at least one region")
    buffer = regions[0].buffer
    if any(r.buffer is not buffer for r in regions):
        raise ValueError(f"region_union of different buffers: {sorted({r.buffer.name for r in regions})}")
    if len(regions) == 1:
        return regions[0]
    an = Analyzer() if analyzer is None else analyzer
    out = []
    for ranges in zip(*[r.region for r in regions], strict=True):
        dtype = ranges[0].min.dtype
        lo, end = _ends(an, ranges[0])
        for r in ranges[1:]:
            other_lo, other_end = _ends(an, r)
            lo = minimum(an, lo, other_lo, dtype, "min")
            end = minimum(an, end, other_end, dtype, "max")
        out.append(_range(an, lo, join_splits(an, add(end, lo, -1)), dtype))
    return BufferRegion(buffer, tuple(out))


def _range(an: Analyzer, low: Poly, size: Poly, dtype: DType) -> Range:
    return Range(*match_types(an.to_expr(low, dtype), an.to_expr(size, dtype)))


def _ends(an: Analyzer, r: Range) -> tuple[Poly, Poly]:
    lo = an.poly(r.min)
    return lo, add(lo, an.poly(r.extent))
