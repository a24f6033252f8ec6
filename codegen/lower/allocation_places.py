"""Finds the statements at which the buffers that blocks allocate are to be allocated."""

from __future__ import annotations

from collections.abc import Mapping

from ...tir.buffer import Buffer
from ...tir.expr import BufferLoad, Var
from ...tir.function import PrimFunc
from ...tir.node import Node
from ...tir.ranges import IterVar
from ...tir.stmt import BlockRealize, BufferStore, For, Stmt, While
from ...tir.walk import blocks_of, vars_in

_NO_BARRIER = 1 << 30


def allocation_places(func: PrimFunc) -> Mapping[Node, list[Buffer]]:
    """Returns the buffers of ``alloc_buffers`` by the innermost statement that holds all their accesses.

    An access in a block that reduces counts as an access at the outermost loop of the reduction, because the partial
    result must be kept between iterations. An access below a ``while`` counts as an access at that loop, because an
    iteration may read what the one before left in memory; buffers that belong to a block in the loop are not concerned.
    """
    allocated = [b for realize in blocks_of(func) for b in realize.block.alloc_buffers]
    wanted = set(allocated)
    pointers = {b.data: b for b in allocated}
    common: dict[Buffer, tuple[Node, ...]] = {}
    aliases: dict[Buffer, Buffer] = {}
    homes: dict[Buffer, int] = {}  # the depth of the blocks that allocate

    def record(buffer: Buffer, path: tuple[Node, ...]) -> None:
        buffer = aliases.get(buffer, buffer)
        if buffer not in wanted:
            return
        depth = homes.get(buffer, 0)
        path = path[: next((n for n in range(depth, len(path)) if isinstance(path[n], While)), len(path))]
        if buffer not in common:
            common[buffer] = path
            return
        old = common[buffer]
        n = 0
        while n < min(len(old), len(path)) and old[n] is path[n]:
            n += 1
        common[buffer] = old[:n]

    def visit(node: Node, path: tuple[Node, ...], barrier: int) -> None:
        """``path`` holds the statements from the root; ``barrier`` says how many of them may enclose the allocation of
        a written buffer."""
        if isinstance(node, BlockRealize):
            carried: set[Var] = set()
            for iv, value in zip(node.block.iter_vars, node.iter_values, strict=True):
                if iv.kind != IterVar.SPATIAL:
                    carried |= vars_in(value)
            for n, above in enumerate(path):
                if isinstance(above, For) and above.loop_var in carried:
                    barrier = min(barrier, n)
            for m in node.block.match_buffers:
                aliases[m.buffer] = aliases.get(m.source.buffer, m.source.buffer)
                record(m.source.buffer, path[:barrier])
            matched = [e for m in node.block.match_buffers for r in m.source.region for e in (r.min, r.extent)]
            for e in (*node.iter_values, node.predicate, *matched):
                visit(e, path, barrier)
            homes.update(dict.fromkeys(node.block.alloc_buffers, len(path)))
            path = (*path, node)
            for part in (node.block.init, node.block.body):
                if part is not None:
                    visit(part, path, barrier)
            return
        if isinstance(node, BufferStore):
            record(node.buffer, path[:barrier])
        elif isinstance(node, BufferLoad):
            record(node.buffer, path)
        elif isinstance(node, Var) and node in pointers:
            record(pointers[node], path[:barrier])
        elif isinstance(node, Stmt):
            path = (*path, node)
        for child in node.children():
            visit(child, path, barrier)

    visit(func.body, (), _NO_BARRIER)
    places: dict[Node, list[Buffer]] = {}
    for buffer in allocated:
        path = common.get(buffer)
        if path is not None:
            places.setdefault(path[-1] if path else func.body, []).append(buffer)
    return places
