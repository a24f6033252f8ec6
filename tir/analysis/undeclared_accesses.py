"""This module finds accesses that a block always makes and that lie outside its declared regions.

A declared region may be larger than the accesses, and conditions may prevent an access, so not every wrong declaration
can be found. :func:`undeclared_access` finds accesses without a condition, in loops of at least one iteration, whose
index is a sum of the loop variables, each used once, and which lie a known number of elements outside the region.
Accesses through pointers are not examined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..arith import Ends
from ..arith.normal_form.linear import difference
from ..expr import Add, Expr, FloorDiv, IntImm, IterVar, Mul, Sub, Var, pre_order
from ..stmt import Block, BlockRealize, Buffer, BufferRegion
from .access import Access, accesses_below
from .access_regions import ends_over, lanes_ends

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
        low, high = (_ends(e, loops) for e in lanes_ends(index))
        if low is not None and high is not None:
            before, behind = difference(low[0], r.min), difference(high[1], r.min + r.extent)
            if before is not None and before < 0 or behind is not None and behind >= 0:
                return True
    return False


def _ends(e: Expr | None, loops: Mapping[Var, Ends | None]) -> Ends | None:
    """Return the least and the greatest value, both of which occur; None when unknown."""
    if e is None:
        return None
    nodes = list(pre_order(e))
    used = [n for n in nodes if n in loops]
    if used and (len(set(used)) < len(used) or not all(isinstance(n, _LINEAR) for n in nodes)):
        return None
    return ends_over(e, loops)
