"""Gives reduction blocks their start: the init of a block becomes statements of its own."""

from __future__ import annotations

from ...tir import op
from ...tir.expr import And, BufferLoad, Expr, IntImm, IterVar, Var
from ...tir.function import PrimFunc
from ...tir.node import Node
from ...tir.stmt import Block, BlockRealize, BufferStore, For, IfThenElse, Stmt, seq
from ...tir.walk import loads_and_stores, substitute, vars_in

__all__ = ["conjuncts", "place_init"]


def conjuncts(condition: Expr) -> list[Expr]:
    """The terms of a chain of ``And``, constants that hold left out."""
    if isinstance(condition, And):
        return conjuncts(condition.a) + conjuncts(condition.b)
    if isinstance(condition, IntImm) and condition.value:
        return []
    return [condition]


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

    Where a loop carries spatial and reduction axes at once, or makes what the init reads, the init stays in place under a
    condition instead.
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
            if id(node) in before:  # the init goes right here, guarded when need be
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


def _made_inside(block: Block, loop: For) -> bool:
    """Whether the init of ``block`` uses what its loop, or the block itself, holds: it cannot stand in front then."""
    assert block.init is not None
    loaded = {a.buffer for a in loads_and_stores(block.init) if isinstance(a, BufferLoad)}
    own = {*block.alloc_buffers, *[m.buffer for m in block.match_buffers]}
    if any(a.buffer in own for a in loads_and_stores(block.init)):
        return True
    stored = {a.buffer for a in loads_and_stores(block.init) if isinstance(a, BufferStore)}
    return any(isinstance(a, BufferStore) and a.buffer in loaded - stored for a in loads_and_stores(loop))


def _plan(realize: BlockRealize, path: tuple[Node, ...], before: dict[int, list[Stmt]]) -> None:
    """Decide where the init of ``realize`` goes: ``before`` maps the node in front of which it stands."""
    block = realize.block
    assert block.init is not None
    loops = [n for n in path if isinstance(n, For)]
    spatial = [(iv, v) for iv, v in zip(block.iter_vars, realize.iter_values, strict=True) if iv.kind != IterVar.REDUCE]
    reduce = [(iv, v) for iv, v in zip(block.iter_vars, realize.iter_values, strict=True) if iv.kind == IterVar.REDUCE]
    spatial_vars: set[Var] = set().union(*(vars_in(v) for _, v in spatial)) if spatial else set()
    reduce_vars: set[Var] = set().union(*(vars_in(v) for _, v in reduce)) if reduce else set()
    outermost = next((n for n, loop in enumerate(loops) if loop.loop_var in reduce_vars), None)
    starts = [iv.var.equal(iv.dom.min) for iv, _ in reduce]
    in_place: list[Stmt] = [IfThenElse(op.all_(*starts), block.init) if starts else block.init]
    if outermost is None:
        before[id(realize)] = in_place
        return
    inner = loops[outermost:]
    if _made_inside(block, inner[0]):
        before[id(realize)] = in_place
        return
    dropped = {loop.loop_var for loop in inner if loop.loop_var not in spatial_vars}
    copied = [loop for loop in inner if loop.loop_var in spatial_vars]
    mixed = spatial_vars & reduce_vars & {loop.loop_var for loop in inner}
    if mixed or any((vars_in(loop.min) | vars_in(loop.extent)) & dropped for loop in copied):
        before[id(realize)] = in_place
        return
    guards = []
    for term in conjuncts(realize.predicate):
        used = vars_in(term)
        if used & dropped:
            if used & spatial_vars:
                before[id(realize)] = in_place
                return
            continue
        guards.append(term)
    between = path[path.index(inner[0]) :]
    if any(isinstance(n, IfThenElse) for n in between):
        before[id(realize)] = in_place
        return
    fresh = {loop.loop_var: Var(loop.loop_var.name, loop.loop_var.dtype) for loop in copied}
    axes = {iv.var: Var(iv.var.name, iv.var.dtype) for iv, _ in spatial}
    block_init = Block(
        tuple([IterVar(iv.dom, axes[iv.var], iv.kind) for iv, _ in spatial]),
        (),
        tuple([substitute(w, axes) for w in block.writes]),
        f"{block.name}_init",
        substitute(block.init, axes),
    )
    stmt: Stmt = BlockRealize(
        tuple([substitute(v, fresh) for _, v in spatial]), op.all_(*[substitute(g, fresh) for g in guards]), block_init
    )
    for loop in reversed(copied):
        kind = "serial" if loop.kind == "parallel" else loop.kind
        stmt = For(
            fresh[loop.loop_var], substitute(loop.min, fresh), substitute(loop.extent, fresh), kind, stmt,
            loop.thread_binding,
        )  # fmt: skip
    before.setdefault(id(inner[0]), []).append(stmt)
