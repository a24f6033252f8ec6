"""Places the init of reduction blocks: it becomes statements of its own in front of the reduction."""

from __future__ import annotations

from ...tir import op
from ...tir.expr import Expr
from ...tir.function import PrimFunc
from ...tir.node import Node
from ...tir.ranges import IterVar
from ...tir.reduction_init import start_in_front
from ...tir.stmt import BlockRealize, IfThenElse, Stmt, seq


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
    before: dict[int, list[Stmt]] = {}
    keep_alive: list[Node] = []

    def visit(node: Node, path: tuple[Node, ...]) -> None:
        if isinstance(node, BlockRealize):
            if node.block.init is not None:
                _plan(node, path, before)
                keep_alive.append(node)
            path = ()
        for child in node.children():
            if isinstance(child, Stmt):
                visit(child, (*path, node))

    visit(func.body, ())

    def rewrite(node: Node) -> Node:
        if isinstance(node, Expr):
            return node
        new = node.map_children(rewrite)
        if isinstance(node, BlockRealize) and node.block.init is not None:
            assert isinstance(new, BlockRealize)
            block = new.block
            if id(node) in before:  # the init stays here, under a condition where one is needed
                new = BlockRealize(
                    new.iter_values, new.predicate, block.with_(init=None, body=seq(*before[id(node)], block.body))
                )
            else:
                new = BlockRealize(new.iter_values, new.predicate, block.with_(init=None))
        elif id(node) in before:
            assert isinstance(new, Stmt)
            new = seq(*before[id(node)], new)
        return new

    return func.with_body(rewrite(func.body))  # type: ignore[arg-type]


def _plan(realize: BlockRealize, path: tuple[Node, ...], before: dict[int, list[Stmt]]) -> None:
    """Decides where the init of ``realize`` goes. ``before`` maps the node in front of which it stands."""
    block = realize.block
    assert block.init is not None
    found = start_in_front(realize, path)
    if found is not None:
        before.setdefault(id(found[0]), []).append(found[1])
        return
    starts = [iv.var.equal(iv.dom.min) for iv in block.iter_vars if iv.kind == IterVar.REDUCE]
    before[id(realize)] = [IfThenElse(op.all_(*starts), block.init) if starts else block.init]
