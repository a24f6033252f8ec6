"""Folds masks whose lanes are known: a mask that holds everywhere is removed, one that holds nowhere removes its
statement."""

from __future__ import annotations

from ...tir.arith import Analyzer
from ...tir.expr import BufferLoad, Call, Expr, IntImm, const
from ...tir.function import PrimFunc
from ...tir.node import Node
from ...tir.stmt import BufferStore, seq
from ...tir.walk import transform
from .masks import all_lanes


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
                return seq()
        if isinstance(n, Call) and n.op == "tir.if_then_else" and isinstance(n.args[0], IntImm):
            return n.args[1] if n.args[0].value else n.args[2]
        return None

    return transform(func, post=post, shared=True)  # type: ignore[no-any-return]
