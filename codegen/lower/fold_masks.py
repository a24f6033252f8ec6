"""Folds masks whose lanes are known: a mask that holds everywhere is removed, one that holds nowhere removes its
statement."""

from __future__ import annotations

from ...tir.arith import Analyzer
from ...tir.dtype import lanes_of
from ...tir.expr import EQ, NE, And, Broadcast, BufferLoad, Call, CmpOp, Expr, IntImm, Ramp, const
from ...tir.function import PrimFunc
from ...tir.node import Node
from ...tir.stmt import BufferStore, Stmt, seq
from ...tir.walk import transform


def fold_masks(func: PrimFunc) -> PrimFunc:
    """Remove masks that hold in every lane, and statements whose mask holds in none.

    Before::

        C.vstore([T.Ramp(0, 1, 8)], x, predicate=T.Ramp(0, 1, 8) < T.Broadcast(13, 8))
        C.vstore([T.Ramp(8, 1, 8)], x, predicate=T.Ramp(8, 1, 8) < T.Broadcast(13, 8))

    After::

        C[0:8] = x
        C.vstore([T.Ramp(8, 1, 8)], x, predicate=T.Ramp(8, 1, 8) < T.Broadcast(13, 8))
    """
    analyzer = Analyzer()
    known: dict[int, tuple[Expr, bool | None]] = {}

    def decide(mask: Expr) -> bool | None:
        found = known.get(id(mask))
        if found is None:
            found = known[id(mask)] = (mask, all_lanes(mask, analyzer))
        return found[1]

    def post(n: Node) -> Node | None:
        if isinstance(n, BufferLoad) and n.predicate is not None:
            held = decide(n.predicate)
            if held is True:
                return BufferLoad(n.buffer, n.indices)
            if held is False:
                return const(0, n.dtype)
        if isinstance(n, BufferStore) and n.predicate is not None:
            held = decide(n.predicate)
            if held is True:
                return BufferStore(n.buffer, n.value, n.indices)
            if held is False:
                return _nothing()
        if isinstance(n, Call) and n.op == "tir.if_then_else" and isinstance(n.args[0], IntImm):
            return n.args[1] if n.args[0].value else n.args[2]
        return None

    return transform(func, post=post, shared=True)  # type: ignore[no-any-return]


def _nothing() -> Stmt:
    return seq()


def all_lanes(mask: Expr, analyzer: Analyzer) -> bool | None:
    """Returns True when a condition holds in all lanes, False when it holds in none, else None."""
    if isinstance(mask, And):
        a, b = all_lanes(mask.a, analyzer), all_lanes(mask.b, analyzer)
        if a is False or b is False:
            return False
        return True if a and b else None
    if isinstance(mask, Broadcast):
        return all_lanes(mask.value, analyzer)
    if isinstance(mask, IntImm):
        return bool(mask.value)
    if not isinstance(mask, CmpOp) or isinstance(mask, (EQ, NE)):
        return None
    a_ends, b_ends = first_and_last_lane(mask.a), first_and_last_lane(mask.b)
    if a_ends is None or b_ends is None:
        return None
    corners = [analyzer.simplify(type(mask)(a, b)) for a, b in zip(a_ends, b_ends, strict=True)]
    if not all(isinstance(c, IntImm) for c in corners):
        return None
    first, last = (bool(c.value) for c in corners)  # type: ignore[attr-defined]
    return first if first is last else None


def first_and_last_lane(e: Expr) -> tuple[Expr, Expr] | None:
    """Returns the first and the last lane of a vector whose lanes are evenly spaced."""
    if isinstance(e, Ramp):
        return e.base, e.base + e.stride * (e.lanes - 1)
    if isinstance(e, Broadcast):
        return e.value, e.value
    return (e, e) if lanes_of(e.dtype) == 1 else None
