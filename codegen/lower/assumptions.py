"""Removes ``T.assume``, which states a fact without computing anything, and the loops and blocks that hold nothing
else."""

from __future__ import annotations

from ...tir.expr import Call, IntImm
from ...tir.expr.node import Node
from ...tir.stmt import BlockRealize, Evaluate, For, PrimFunc, SeqStmt, Stmt, seq
from ...tir.walk import transform_statements

_NOTHING = Evaluate(IntImm(0))


def drop_assumptions(func: PrimFunc) -> PrimFunc:
    """Return the function without its assumptions, or the very same function when it has none."""

    def post(n: Node) -> Node | None:
        if isinstance(n, Evaluate) and isinstance(n.value, Call) and n.value.op == "tir.assume":
            return _NOTHING
        if isinstance(n, For) and n.body is _NOTHING:
            return _NOTHING
        if isinstance(n, BlockRealize) and n.block.iter_vars and n.block.body is _NOTHING and n.block.init is None:
            return _NOTHING
        if isinstance(n, SeqStmt) and any(s is _NOTHING for s in n.seq):
            kept: list[Stmt] = [s for s in n.seq if s is not _NOTHING]
            return seq(*kept) if kept else _NOTHING
        return None

    return func.with_body(transform_statements(func.body, post))
