"""This module computes the regions that a block declares after its body has changed, and finds accesses outside of them.

A declared region may be larger than the accesses, and conditions may prevent an access, so not every wrong declaration
can be found. :func:`undeclared_access` finds accesses without a condition, in loops of at least one iteration, whose
index is a sum of the loop variables, each used once, and which lie a known number of elements outside the region.
Accesses through pointers are not examined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..arith import Ends
from ..arith.analyzer import Analyzer
from ..arith.normal_form.floor_division import join_splits, minimum
from ..arith.normal_form.linear import difference
from ..arith.normal_form.polynomial import Poly, add
from ..expr import Add, DType, Expr, FloorDiv, IntImm, IterVar, Mul, Range, Sub, Var, match_types, pre_order
from ..stmt import Block, BlockRealize, Buffer, BufferRegion
from .access import Access, accesses_below, opaque_buffers
from .access_regions import access_regions, ends_over, lanes_ends


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


_LINEAR = (Var, IntImm, Add, Sub, Mul, FloorDiv)


def undeclared_access(block: Block) -> tuple[Buffer, str] | None:
    """Return a buffer that the block accesses outside its declared region, and "reads" or "writes"; None if none is
    found.

    Only buffers with one declared region are examined. A block may read what it writes without declaring that.
    """
    reads, writes = _single(block.reads), _single(block.writes)
    for written in block.writes:
        reads.pop(written.buffer, None)
    if not reads and not writes:
        return None
    for access in _certain(block):
        verb = "writes" if access.is_store else "reads"
        region = (writes if access.is_store else reads).get(access.buffer)
        if region is not None and _outside(access, region):
            return access.buffer, verb
    return None


def _certain(block: Block) -> Iterator[Access]:
    """Return the accesses that the block makes whenever it runs."""
    init = None if any(iv.kind == IterVar.REDUCE for iv in block.iter_vars) else block.init
    for part in (init, block.body):
        for access in accesses_below(part).elements if part is not None else ():
            around = access.around
            if access.guards or around.in_attribute or around.address is not None or any(map(_unclear, access.blocks)):
                continue  # an attribute may change the meaning of its body
            if all(isinstance(lp.extent, IntImm) and lp.extent.value > 0 for lp in access.loops):
                yield access


def _unclear(realize: BlockRealize) -> bool:
    block = realize.block
    return bool(block.match_buffers) or (
        block.init is not None and any(iv.kind == IterVar.REDUCE for iv in block.iter_vars)
    )


def _single(regions: tuple[BufferRegion, ...]) -> dict[Buffer, BufferRegion]:
    buffers = [r.buffer for r in regions]
    return {r.buffer: r for r in regions if buffers.count(r.buffer) == 1}


def _outside(access: Access, region: BufferRegion) -> bool:
    loops: dict[Var, Ends | None] = {}
    for lp in access.loops:
        if any(n in loops for n in pre_order(lp.min)):
            return False
        loops[lp.loop_var] = (lp.min, lp.min + (lp.extent - 1))
    for index, r in zip(access.indices, region.region, strict=True):
        low, high = (_accessed_ends(e, loops) for e in lanes_ends(index))
        if low is not None and high is not None:
            before, behind = difference(low[0], r.min), difference(high[1], r.min + r.extent)
            if before is not None and before < 0 or behind is not None and behind >= 0:
                return True
    return False


def _accessed_ends(e: Expr | None, loops: Mapping[Var, Ends | None]) -> Ends | None:
    """Return the least and the greatest value, both of which occur; None when unknown."""
    if e is None:
        return None
    nodes = list(pre_order(e))
    used = [n for n in nodes if n in loops]
    if used and (len(set(used)) < len(used) or not all(isinstance(n, _LINEAR) for n in nodes)):
        return None
    return ends_over(e, loops)
