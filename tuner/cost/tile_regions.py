"""This module computes which part of each stage one tile of the last stage needs, in closed form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from ...tir.expr import Var
from ...tir.stmt import Buffer
from ..program import BlockInfo, Use


@dataclass(frozen=True)
class Span:
    """The values that an index takes for one tile. They are the sum of ``factors`` times the axes of the last stage,
    plus ``lo`` to ``hi``; of ``extent`` values at most."""

    factors: Mapping[Var, int]
    lo: int
    hi: int
    extent: int

    def size(self, tile: Mapping[Var, np.ndarray], rows: int) -> np.ndarray:
        """Returns how many values there are when each axis of the last stage covers ``tile`` values."""
        total = np.full(rows, 1.0 + self.hi - self.lo)
        for axis, factor in self.factors.items():
            total = total + abs(factor) * (tile[axis] - 1)
        return np.minimum(total, float(self.extent))

    def union(self, other: Span) -> Span:
        """Returns the span that holds both."""
        factors = {v: max(self.factors.get(v, 0), other.factors.get(v, 0), key=abs) for v in _both(self, other)}
        return Span(factors, min(self.lo, other.lo), max(self.hi, other.hi), self.extent)


def _both(a: Span, b: Span) -> Iterable[Var]:
    return dict.fromkeys((*a.factors, *b.factors))


Region = Mapping[Var, Span]
"""The spans of the axes of a block."""


def whole_region(block: BlockInfo) -> Region:
    """Returns the region of the last stage: its spatial axes are the tile's, a reduction goes through all values."""
    region = {v: Span({v: 1}, 0, 0, block.extents[v]) for v in block.spatial}
    return {**region, **_reduced_axes(block)}


def same_region(block: BlockInfo, root: BlockInfo) -> Region:
    """Returns the region of a result that has the extents of the last stage, ``root``: the same tile."""
    pairs = zip(block.spatial, root.spatial, strict=True)
    return {**{v: Span({axis: 1}, 0, 0, block.extents[v]) for v, axis in pairs}, **_reduced_axes(block)}


def _reduced_axes(block: BlockInfo) -> dict[Var, Span]:
    """Returns the spans of the axes that a block reduces: all values."""
    return {v: Span({}, 0, block.extents[v] - 1, block.extents[v]) for v in block.reduce}


def _read_spans(use: Use, region: Region) -> tuple[Span, ...] | None:
    """Returns the span of each dimension that a block of this region reads; None when an index is not affine."""
    spans = []
    for dim, offset, extent in zip(use.dims, use.offsets, use.buffer.shape, strict=True):
        size = getattr(extent, "value", None)
        if dim is None or size is None:
            return None
        factors: dict[Var, int] = {}
        lo = hi = offset
        for axis, factor in dim.items():
            span = region[axis]
            ends = sorted((factor * span.lo, factor * span.hi))
            lo, hi = lo + ends[0], hi + ends[1]
            for root, inner in span.factors.items():
                factors[root] = factors.get(root, 0) + factor * inner
        spans.append(Span({v: f for v, f in factors.items() if f}, lo, hi, size))
    return tuple(spans)


def spans_read(buffer: Buffer, regions: Mapping[BlockInfo, Region]) -> tuple[Span, ...] | None:
    """Returns the spans of what the blocks of ``regions`` read of ``buffer``. None stands for an index that is not
    affine, or for a buffer that none of them reads."""
    out: tuple[Span, ...] | None = None
    for block, region in regions.items():
        for use in block.loads:
            if use.buffer is buffer:
                found = _read_spans(use, region)
                if found is None:
                    return None
                out = found if out is None else tuple([a.union(b) for a, b in zip(out, found, strict=True)])
    return out


def needed_region(block: BlockInfo, readers: Mapping[BlockInfo, Region]) -> Region | None:
    """Returns the region of ``block`` that its readers need, or None when an index is not affine. The block writes one
    buffer at its spatial axes."""
    spans = spans_read(block.stores[0].buffer, readers)
    return None if spans is None else {**dict(zip(block.spatial, spans, strict=True)), **_reduced_axes(block)}
