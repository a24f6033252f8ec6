"""This module lists the boxes of buffers that a statement reads and writes, in terms of the loops around it."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from ..expr import BufferLoad, Call, Expr, IntImm, Range, Reason, Var, reads_memory, transform
from ..stmt import BufferRegion, PrimFunc, Stmt
from .access import Access, Accesses, Around, accesses_below


def accessed_boxes_below(stmt: Stmt) -> list[Access] | Reason:
    """Return all boxes that are read or written below ``stmt``. Buffers allocated below it are left out.

    A block that uses pointers (calls, match_buffers) contributes the regions that it declares. A reason is returned when
    a pointer or an external call stands outside such a block, because what it accesses is not known.
    """
    found = accesses_below(stmt)
    unknown = _unknown(found)
    if unknown is not None:
        return Reason(
            f"`{unknown}` may touch anything, so iterations are not known to be independent",
            (stmt,),
            hint="put it into a block of its own that declares its reads and writes",
        )
    boxes = list(found.outside_of(found.opaque.__contains__))
    stored = {a.buffer.data for a in boxes if a.is_store}
    return [_with_moving(a, stored) for a in boxes if a.buffer not in found.allocated]


def all_accessed_boxes(func: PrimFunc) -> list[Access] | None:
    """Return all boxes that a function reads or writes, its own buffers included; None when they are not known."""
    found = accesses_below(func.body)
    return None if _unknown(found) is not None else list(found.outside_of(found.opaque.__contains__))


def _unknown(found: Accesses) -> Expr | None:
    """Return a use of memory that no block declares; None when there is none."""
    loose = [p for p in found.pointers if found.opaque.isdisjoint(p.around.blocks)]
    calls = [p.node for p in loose if isinstance(p.node, Call) and not (p.around.blocks and p.data is None)]
    return next((p.node for p in reversed(loose) if isinstance(p.node, Var)), calls[0] if calls else None)


def _with_moving(a: Access, stored: Set[Var]) -> Access:
    """Return ``a`` with a new variable in place of each load through one of the pointers ``stored``.

    The variables (``moving``) differ from iteration to iteration.
    """
    used = (*a.indices, *a.extents, *[e for lp in a.loops for e in (lp.min, lp.extent)])
    if not any([reads_memory(e) for e in used if type(e) is not IntImm and type(e) is not Var]):
        return a
    moving: list[Var] = []

    def pre(n: Any) -> Any:
        if isinstance(n, BufferLoad) and n.buffer.data in stored:
            moving.append(Var(n.buffer.name, n.dtype))
            return moving[-1]
        return None

    first, extents = (tuple([transform(e, pre) for e in part]) for part in (a.indices, a.extents))
    loops = tuple([lp.with_(min=transform(lp.min, pre), extent=transform(lp.extent, pre)) for lp in a.loops])
    if not moving:
        return a
    box = BufferRegion(a.buffer, tuple([Range(f, e) for f, e in zip(first, extents, strict=True)]))
    return Access(box, a.is_store, Around(loops, a.blocks), tuple(moving))
