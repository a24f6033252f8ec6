"""Reads vectors that begin again within a row, as of ``A[i % 100]``, in two parts."""

from __future__ import annotations

from ...tir.expr import (
    GE,
    LT,
    Add,
    Broadcast,
    BufferLoad,
    Expr,
    FloorMod,
    IntImm,
    Let,
    Ramp,
    Select,
    Var,
    const,
    is_const_int,
)
from ...tir.expr.node import IRNode
from ...tir.stmt import PrimFunc
from ...tir.walk import nodes_around, nodes_by_type
from .lanes import both_masks, widen
from .scoped_transform import ScopedTransform, rewrite_values


def read_around_ends(func: PrimFunc) -> PrimFunc:
    """Load lanes that begin again, at a place known at run time alone, by two masked loads.

    Before (``A`` has 100 elements)::

        B[i * 16:i * 16 + 16] = A[T.Ramp(i * 16, 1, 16) % T.Broadcast(100, 16)]

    After, where ``at`` is ``i * 16 % 100``, the place of the first lane::

        T.Select(T.Ramp(at, 1, 16) < T.Broadcast(100, 16),
            A.vload([T.Ramp(at, 1, 16)], predicate=T.Ramp(at, 1, 16) < T.Broadcast(100, 16)),
            A.vload([T.Ramp(at - 100, 1, 16)], predicate=T.Ramp(at, 1, 16) >= T.Broadcast(100, 16)))

    Lanes at known places are picked out of whole vectors when code is written. Without this each lane would be gathered.
    """

    if all([n.dtype.lanes == 1 for n in nodes_by_type(func.body).get(FloorMod, ())]):
        return func
    around = nodes_around(func.body, lambda n: type(n) is FloorMod and n.dtype.lanes > 1)

    def post(n: IRNode, _: ScopedTransform) -> IRNode | None:
        return _in_two_parts(n) if isinstance(n, BufferLoad) else None

    return rewrite_values(func, around, post)


def _in_two_parts(load: BufferLoad) -> Expr | None:
    """Returns a load of contiguous lanes that begin again once, as two; None for other loads."""
    if not load.indices:
        return None
    *outer, last = load.indices
    if any(i.dtype.lanes > 1 for i in outer) or load.buffer.strides:
        return None
    moved: Expr = const(0, last.dtype.element)
    if isinstance(last, Add) and isinstance(last.b, Broadcast):
        moved, last = last.b.value, last.a
    if not isinstance(last, FloorMod) or not isinstance(last.a, Ramp) or not isinstance(last.b, Broadcast):
        return None
    ramp, period = last.a, last.b.value
    known = isinstance(ramp.base, IntImm)
    if known or not is_const_int(ramp.stride, 1) or not isinstance(period, IntImm) or period.value < ramp.lanes:
        return None
    at, one = Var("at", ramp.base.dtype), const(1, ramp.base.dtype)
    lanes = ramp.lanes

    def part(compare: type[LT] | type[GE], start: Expr) -> tuple[Expr, BufferLoad]:
        mask = compare(Ramp(at, one, lanes), widen(period, lanes))
        own = both_masks(load.predicate, mask)
        return mask, BufferLoad(load.buffer, (*outer, Ramp(start + moved, one, lanes)), own)

    here, first = part(LT, at)
    _, second = part(GE, at - period)
    return Let(at, ramp.base % period, Select(here, first, second))
