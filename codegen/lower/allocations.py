"""Finds the statements at which buffers are allocated, and the strides that their rows have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...tir.annotations import ALIGN, alignment_wishes
from ...tir.expr import BufferLoad, Expr, IntImm, IterVar, Var, const
from ...tir.expr.node import Node
from ...tir.stmt import Block, BlockRealize, Buffer, BufferStore, For, PrimFunc, Stmt, While
from ...tir.walk import blocks_of, vars_in

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
    walk = _AllocationWalk(func)
    walk.visit(func.body, (), _NO_BARRIER)
    places: dict[Node, list[Buffer]] = {}
    for buffer in walk.pointers.values():
        path = walk.common.get(buffer)
        if path is not None:
            places.setdefault(path[-1] if path else func.body, []).append(buffer)
    return places


class _AllocationWalk:
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


# Strides of allocations whose rows must not start at multiples of a power of two (``storage_align``).

Wish = tuple[int, int, int]
"""Axis, factor and offset."""


def alignments_of(block: Block) -> Mapping[Buffer, list[Wish]]:
    """Returns the requests of a block on the strides of the buffers that it writes: (axis, factor, offset) each. Raises
    ValueError for an annotation with an invalid value."""
    out: dict[Buffer, list[Wish]] = {}
    wishes = alignment_wishes(block.annotations.get(ALIGN, ()))
    if isinstance(wishes, str):
        raise ValueError(f"the annotation {ALIGN} of block {block.name!r} is not followed: {wishes}")
    for index, *wish in wishes:
        if index < len(block.writes):
            axis, factor, offset = wish
            out.setdefault(block.writes[index].buffer, []).append((axis, factor, offset))
    return out


def aligned(buffer: Buffer, wishes: Sequence[Wish]) -> Buffer:
    """Returns ``buffer`` with strides ``k * factor + offset`` where requested, or without strides where these are the
    default ones.

    >>> from tilewright.tir.stmt import decl_buffer
    >>> aligned(decl_buffer((8, 16)), [(0, 16, 1)]).strides
    (17, 1)
    """
    strides: list[Expr] = []
    plain: list[Expr] = []
    stride: Expr = const(1, "int64")
    dense: Expr = const(1, "int64")
    for axis in reversed(range(buffer.ndim)):
        for at, factor, offset in wishes:
            if at == axis:
                stride = stride + (factor + offset - stride % factor) % factor
        strides.insert(0, stride)
        plain.insert(0, dense)
        stride, dense = stride * buffer.shape[axis], dense * buffer.shape[axis]
    if wishes and not _same(strides, plain):
        return buffer.with_(strides=tuple([_narrow(s) for s in strides]))
    if not wishes and buffer.strides and not _same(buffer.strides, plain):
        return buffer
    return buffer.with_(strides=()) if buffer.strides else buffer


def _narrow(stride: Expr) -> Expr:
    """Returns a constant as int32 where that type holds it."""
    return const(stride.value) if isinstance(stride, IntImm) and stride.value < 1 << 31 else stride


def _same(a: Sequence[Expr], b: Sequence[Expr]) -> bool:
    return all(
        isinstance(x, IntImm) and isinstance(y, IntImm) and x.value == y.value for x, y in zip(a, b, strict=True)
    )
