"""Places the init of reduction blocks: it becomes statements of its own in front of the reduction."""

from __future__ import annotations

from ...tir.analysis.reductions import start_in_front
from ...tir.expr import IterVar, op
from ...tir.stmt import BlockRealize, For, IfThenElse, PrimFunc, Stmt, seq
from .scoped_transform import ScopedTransform


def place_init(func: PrimFunc) -> PrimFunc:
    """Move each block's init in front of the outermost loop that it reduces over.

    Before::

        for i, j, k in T.grid(4, 4, 4):
            with T.block("C"):
                ...
                with T.init(): C[vi, vj] = 0
                C[vi, vj] = C[vi, vj] + A[vi, vk]

    After::

        for i, j in T.grid(4, 4):
            with T.block("C_init"): C[vi, vj] = 0
            for k in range(4):
                with T.block("C"): C[vi, vj] = C[vi, vj] + A[vi, vk]

    Where a loop carries spatial and reduction axes at once, or computes values that the init reads, the init stays in
    place under a condition instead.
    """
    in_front: dict[Stmt, list[Stmt]] = {}

    def block(realize: BlockRealize, scope: ScopedTransform) -> BlockRealize | None:
        init = realize.block.init
        if init is None:
            return None
        here: list[Stmt] = []
        found = start_in_front(realize, scope.path)
        if found is not None:
            in_front.setdefault(found[0], []).append(found[1])
        else:  # the init stays here, under a condition where one is needed
            starts = [iv.var.equal(iv.dom.min) for iv in realize.block.iter_vars if iv.kind == IterVar.REDUCE]
            here.append(IfThenElse(op.all_(*starts), init) if starts else init)
        new = scope.below(realize)
        return new.with_(block=new.block.with_(init=None, body=seq(*here, new.block.body)))

    def loop(s: For, scope: ScopedTransform) -> Stmt:
        new = scope.below(s)
        return seq(*in_front[s], new) if s in in_front else new

    return ScopedTransform({BlockRealize: block, For: loop}).function(func)
