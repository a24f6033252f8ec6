"""Finds the statements at which the buffers that blocks allocate are to be allocated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ...tir.annotations import ALIGN
from ...tir.expr import BufferLoad, IterVar, Var
from ...tir.expr.base.node import Node
from ...tir.stmt import BlockRealize, Buffer, BufferStore, For, PrimFunc, Stmt, While
from ...tir.walk import blocks_of, vars_in
from .stride_alignment import Wish, alignments_of

_NO_BARRIER = 1 << 30


class Allocation(NamedTuple):
    """A buffer to allocate, and the annotations of its allocation."""

    buffer: Buffer
    annotations: Mapping[str, Any]


Places = Mapping[Node, list[Allocation]]


def allocation_places(func: PrimFunc) -> Places:
    """Returns the allocations of a function: each buffer at the innermost statement that holds all its accesses. An
    allocation includes what blocks request of the buffer's strides."""
    wishes: dict[Buffer, list[Wish]] = {}
    for realize in blocks_of(func):
        for buffer, found in alignments_of(realize.block).items():
            wishes.setdefault(buffer, []).extend(found)
    return {
        node: [Allocation(buffer, {ALIGN: wishes[buffer]} if buffer in wishes else {}) for buffer in buffers]
        for node, buffers in _innermost(func).items()
    }


def _innermost(func: PrimFunc) -> Mapping[Node, list[Buffer]]:
    """Returns the buffers of ``alloc_buffers`` by the innermost statement that holds all their accesses.

    An access in a block that reduces counts as an access at the outermost loop of the reduction, because the partial
    result must be kept between iterations. An access below a ``while`` counts as an access at that loop, because an
    iteration may read what the one before left in memory; buffers that belong to a block in the loop are not concerned.
    """
    walk = _Walk(func)
    walk.visit(func.body, (), _NO_BARRIER)
    places: dict[Node, list[Buffer]] = {}
    for buffer in walk.pointers.values():
        path = walk.common.get(buffer)
        if path is not None:
            places.setdefault(path[-1] if path else func.body, []).append(buffer)
    return places


class _Walk:
    """The walk that finds the statements which hold all accesses of a buffer, outermost first (``common``).

    ``aliases``: the buffers behind matched ones; ``homes``: how many statements stand around the block that allocates.
    """

    def __init__(self, func: PrimFunc) -> None:
        self.pointers = {b.data: b for realize in blocks_of(func) for b in realize.block.alloc_buffers}
        self.common: dict[Buffer, tuple[Node, ...]] = {}
        self.aliases: dict[Buffer, Buffer] = {}
        self.homes: dict[Buffer, int] = {}

    def visit(self, node: Node, path: tuple[Node, ...], barrier: int) -> None:
        """Record the accesses below ``node``.

        ``path`` holds the statements from the root; ``barrier`` says how many of them may enclose the allocation of a
        written buffer.
        """
        if isinstance(node, BlockRealize):
            self.block(node, path, barrier)
            return
        if isinstance(node, (BufferLoad, BufferStore)):
            self.record(node.buffer, path if isinstance(node, BufferLoad) else path[:barrier])
        elif isinstance(node, Var) and node in self.pointers:
            self.record(self.pointers[node], path[:barrier])
        elif isinstance(node, Stmt):
            path = (*path, node)
        for child in node.children():
            self.visit(child, path, barrier)

    def block(self, node: BlockRealize, path: tuple[Node, ...], barrier: int) -> None:
        block = node.block
        carried: set[Var] = set()
        for iv, value in zip(block.iter_vars, node.iter_values, strict=True):
            if iv.kind != IterVar.SPATIAL:
                carried |= vars_in(value)
        reducing = (n for n, above in enumerate(path) if isinstance(above, For) and above.loop_var in carried)
        barrier = min(barrier, next(reducing, barrier))
        written = {region.buffer for region in block.writes}
        for m in block.match_buffers:
            self.aliases[m.buffer] = self.aliases.get(m.source.buffer, m.source.buffer)
            self.record(m.source.buffer, path[:barrier] if m.source.buffer in written else path)
        matched = [e for m in block.match_buffers for r in m.source.region for e in (r.min, r.extent)]
        for e in (*node.iter_values, node.predicate, *matched):
            self.visit(e, path, barrier)
        self.homes.update(dict.fromkeys(block.alloc_buffers, len(path)))
        for part in (block.init, block.body):
            if part is not None:
                self.visit(part, (*path, node), barrier)

    def record(self, buffer: Buffer, path: tuple[Node, ...]) -> None:
        """Keep of the path of a buffer what holds this access, too."""
        buffer = self.aliases.get(buffer, buffer)
        if self.pointers.get(buffer.data) is not buffer:
            return
        repeats = (n for n in range(self.homes.get(buffer, 0), len(path)) if isinstance(path[n], While))
        path = path[: next(repeats, len(path))]
        old = self.common.get(buffer, path)
        n = 0
        while n < min(len(old), len(path)) and old[n] is path[n]:
            n += 1
        self.common[buffer] = old[:n]
