"""Reads all lanes of a vector, in place of those that a condition chooses, where that is allowed and faster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from ...tir.expr import GE, GT, LE, LT, Broadcast, BufferLoad, Expr, Ramp, all_, conjuncts, is_const_int, reads_memory
from ...tir.expr.node import IRNode
from ...tir.stmt import PrimFunc
from ...tir.walk import nodes_around, nodes_by_type
from ..lane_offsets import known_mask, lanes_are_near
from .lanes import all_inside
from .scoped_transform import ScopedTransform, rewrite_values


def read_all_lanes(func: PrimFunc) -> PrimFunc:
    """Drop masks of loads that lie inside of their buffers without them.

    Before (``A`` has 64 elements)::

        for i in range(2):
            B[i * 16:i * 16 + 16] = T.Select(m, A.vload([T.Ramp(i * 32, 2, 16)], predicate=m), T.Broadcast(0, 16))
            # where m = A[T.Ramp(i * 32, 2, 16)] > T.Broadcast(0, 16)

    After::

        for i in range(2):
            B[i * 16:i * 16 + 16] = T.Select(m, A[T.Ramp(i * 32, 2, 16)], T.Broadcast(0, 16))

    Lanes near one another are picked out of whole vectors, where no mask is in the way. Contiguous lanes wait for no
    mask from memory. Lanes far apart keep their mask, and read nothing where it does not hold. Where a part of the mask
    says which lanes lie inside, such as those of a short row, that part remains.
    """

    masked = [n for n in nodes_by_type(func.body).get(BufferLoad, ()) if _is_masked(n)]
    if not masked:
        return func  # so it is where all masks are of stores
    around = nodes_around(func.body, _is_masked)
    strides = {n.buffer: n.buffer.element_strides() for n in masked}

    def post(n: IRNode, scope: ScopedTransform) -> IRNode | None:
        if not _is_masked(n) or not _is_faster(n, strides[n.buffer]):
            return None
        if all_inside(n.indices, n.buffer.shape, scope.analyzer):
            return BufferLoad(n.buffer, n.indices)
        part = _known_part(n)
        if part is not None and all_inside(_of_lanes(n, part), n.buffer.shape, scope.analyzer):
            return BufferLoad(n.buffer, n.indices, part)
        return None

    return rewrite_values(func, around, post)


def _is_masked(n: IRNode) -> TypeGuard[BufferLoad]:
    """Returns whether the node is a load with a mask."""
    return type(n) is BufferLoad and n.predicate is not None


def _known_part(e: BufferLoad) -> Expr | None:
    """Returns the part of a mask whose lanes are known and neighbours, where there are others that it excludes."""
    tests = [] if e.predicate is None else conjuncts(e.predicate)
    known = [test for test in tests if test.dtype.lanes > 1 and known_mask(test) is not None]
    others = [test for test in tests if all(test is not one for one in known)]
    if not known or all(map(_ends, others)):
        return None
    part = all_(*known)
    lanes = known_mask(part)
    if lanes is None or not any(lanes):
        return None
    first, last = lanes.index(True), len(lanes) - lanes[::-1].index(True)
    return part if all(lanes[first:last]) else None


def _ends(test: Expr) -> bool:
    """Returns whether a test holds for lanes up to one of them, or for all: masked loads read no others."""
    if isinstance(test, Broadcast):
        return True
    return isinstance(test, (LT, LE, GT, GE)) and isinstance(test.a, Ramp) and isinstance(test.b, Broadcast)


def _of_lanes(e: BufferLoad, part: Expr) -> list[Expr]:
    """Returns the indices of the lanes that are known to be read."""
    lanes = known_mask(part) or []
    first, count = lanes.index(True), sum(lanes)
    return [
        Ramp(i.base + i.stride * first, i.stride, count) if isinstance(i, Ramp) and count > 1
        else i.base + i.stride * first if isinstance(i, Ramp) else i
        for i in e.indices
    ]  # fmt: skip


def _is_faster(e: BufferLoad, strides: Sequence[Expr]) -> bool:
    """Returns whether a masked load from a buffer of these strides is faster without its mask."""
    if not lanes_are_near(e.indices, strides):
        return False
    contiguous = all([isinstance(i, Ramp) and is_const_int(i.stride, 1) for i in e.indices if i.dtype.lanes > 1])
    return not contiguous or (e.predicate is not None and reads_memory(e.predicate))
