"""Shrinks allocations to the part that is in use at the place where they stand."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from ...tir.analysis.access import Accesses, accesses_below
from ...tir.analysis.simplify import loop_values
from ...tir.annotations import ALIGN, alignment_wishes
from ...tir.arith import Analyzer, Ends, eval_interval
from ...tir.expr import BufferLoad, Call, Expr, IntImm, IterVar, Var, const
from ...tir.expr.node import IRNode
from ...tir.stmt import Allocate, Block, BlockRealize, Buffer, BufferStore, For, PrimFunc, Stmt, While
from ...tir.walk import all_nodes, blocks_of, reads_memory, transform, vars_in
from ..lane_offsets import value_in_lane
from .scoped_transform import ScopedTransform
from .tile_accesses import restrided, tile_access, tile_spans

_NO_BARRIER = 1 << 30


class Allocation(NamedTuple):
    """A buffer to allocate, and the annotations of its allocation."""

    buffer: Buffer
    annotations: Mapping[str, Any]


Places = Mapping[IRNode, list[Allocation]]


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


def _innermost(func: PrimFunc) -> Mapping[IRNode, list[Buffer]]:
    """Returns the buffers of ``alloc_buffers`` by the innermost statement that holds all their accesses.

    An access in a block that reduces counts as an access at the outermost loop of the reduction, because the partial
    result must be kept between iterations. An access below a ``while`` counts as an access at that loop, because an
    iteration may read what the one before left in memory; buffers that belong to a block in the loop are not concerned.
    """
    walk = _AllocationWalk(func)
    walk.visit(func.body, (), _NO_BARRIER)
    places: dict[IRNode, list[Buffer]] = {}
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
        self.common: dict[Buffer, tuple[IRNode, ...]] = {}
        self.aliases: dict[Buffer, Buffer] = {}
        self.homes: dict[Buffer, int] = {}

    def visit(self, node: IRNode, path: tuple[IRNode, ...], barrier: int) -> None:
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

    def block(self, node: BlockRealize, path: tuple[IRNode, ...], barrier: int) -> None:
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

    def record(self, buffer: Buffer, path: tuple[IRNode, ...]) -> None:
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


Inner = set[Var | Buffer]
"""The loop variables that are defined inside an allocation, and the buffers that are stored to there."""


def compact_buffers(func: PrimFunc) -> PrimFunc:
    """Give each allocated buffer the shape of the box that its accesses span inside the allocation.

    Before::

        for i in range(128):
            Y = T.decl_buffer((128, 64))
            for j in range(64): Y[i, j] = ...

    After::

        for i in range(128):
            Y = T.decl_buffer((1, 64))
            for j in range(64): Y[0, j] = ...

    A dimension whose lower end or size is unknown keeps its whole extent. Strides follow the new shape and the request
    of ``storage_align``.
    """
    return ScopedTransform({Allocate: _compacted}).function(func)


def _compacted(outer: Allocate, scope: ScopedTransform) -> Stmt:
    """Returns allocations that stand one directly inside the other with their new shapes."""
    chain = [outer]
    while isinstance(chain[-1].body, Allocate):
        chain.append(chain[-1].body)
    body = chain[-1].body
    moves = _moves(chain, body, scope.analyzer)
    out: Stmt = scope.visit(_shift(body, moves, scope.analyzer) if moves else body)
    for alloc in reversed(chain):
        if out is alloc.body and alloc.buffer not in moves:
            out = alloc
            continue
        buffer = moves[alloc.buffer][0] if alloc.buffer in moves else alloc.buffer
        out = Allocate(buffer, out, {k: v for k, v in alloc.annotations.items() if k != ALIGN})
    return out


Move = tuple[Buffer, tuple[Expr, ...]]
"""A buffer in its new shape, and the lower ends to subtract from its indices."""


_LARGEST = 1 << 24
"""The most elements that stand for a symbolic extent; a larger bound is the end of a type, and no bound of the program."""


def _moves(chain: Sequence[Allocate], body: Stmt, analyzer: Analyzer) -> dict[Buffer, Move]:
    """Returns those allocations of ``chain`` that change. The allocations stand one directly inside the other around
    ``body``."""
    found = accesses_below(body)
    taken = _address_taken(found, [alloc.buffer for alloc in chain])
    wanted = [alloc.buffer for alloc in chain if alloc.buffer not in taken]
    boxes = _boxes(wanted, found, analyzer)
    inner: Inner = {loop.loop_var for access in found.elements for loop in access.loops}
    inner |= {access.buffer for access in found.elements if access.is_store}
    out: dict[Buffer, Move] = {}
    for alloc in chain:
        old = alloc.buffer
        if old not in wanted:
            continue
        new, low = _compact(old, boxes[old], inner, analyzer)
        new = aligned(new, alloc.annotations.get(ALIGN, ()))
        if new is not old:
            out[old] = (new, low or tuple([const(0, e.dtype) for e in old.shape]))
    return out


def _address_taken(found: Accesses, buffers: Collection[Buffer]) -> set[Buffer]:
    """Returns the buffers of which a pointer is used as a value, so that their layout must not change. Tiles whose rows
    lie along a dimension do not count."""
    owner = {buffer.data: buffer for buffer in buffers}
    out: set[Buffer] = set()
    for p in found.pointers:
        buffer = None if p.data is None else owner.get(p.data)
        if buffer is not None and (tile_access(p.user) is None or tile_spans(p.user, buffer) is None):  # type: ignore[arg-type]
            out.add(buffer)
    return out


def _boxes(buffers: Collection[Buffer], found: Accesses, analyzer: Analyzer) -> dict[Buffer, list[list[Ends | None]]]:
    """Returns, for each buffer, the range of every index of each access. The analyzer learns the loops around them."""
    boxes: dict[Buffer, list[list[Ends | None]]] = {buffer: [] for buffer in buffers}
    values: dict[For, Ends | None] = {}
    for access in found.elements:
        if access.buffer not in boxes or any(_never_runs(loop) for loop in access.loops):
            continue
        dom: dict[Var, Ends] = {}
        for loop in access.loops:
            if loop not in values:
                low, high = eval_interval(loop.min, dom), eval_interval(loop.min + loop.extent - 1, dom)
                values[loop] = None if low is None or high is None else (low[0], high[1])
                analyzer.bind(loop.loop_var, loop_values(loop))
            ends = values[loop]
            if ends is not None:
                dom[loop.loop_var] = ends
        spans = [None if reads_memory(index) else _ends(index, dom) for index in access.indices]
        tile = access.around.address
        if tile is not None and tile_access(tile) is not None:
            for d, count in (tile_spans(tile, access.buffer) or {}).items():
                span = spans[d]
                if span is not None:
                    spans[d] = (span[0], span[1] + (count - 1))
        boxes[access.buffer].append(spans)
    return boxes


def _never_runs(loop: For) -> bool:
    """Returns whether the loop has no iterations, in which indices mean nothing: ``fuse`` of an empty axis divides by
    0."""
    return isinstance(loop.extent, IntImm) and loop.extent.value < 1


def _compact(
    buffer: Buffer, boxes: list[list[Ends | None]], inner: Inner, analyzer: Analyzer
) -> tuple[Buffer, tuple[Expr, ...]]:
    """Returns the buffer with its compact shape and the lower ends to subtract, or the buffer itself."""
    rank = len(buffer.shape)
    shape, lows = list(buffer.shape), []
    changed = False
    for d in range(rank):
        full = buffer.shape[d]
        lows.append(const(0, full.dtype))
        ends = _union([box[d] for box in boxes], inner, analyzer)
        if ends is None:
            continue
        low, high = ends
        extent = analyzer.simplify(high - low + 1)
        if not isinstance(extent, IntImm):
            bound = analyzer.const_int_bound(extent)[1]
            if bound is None or (bound > _LARGEST and not isinstance(full, IntImm)):
                if _uses(extent, inner) or not isinstance(full, IntImm):
                    continue
                bound = full.value
            extent = const(bound, full.dtype)
        if isinstance(extent, IntImm) and (
            extent.value < 1 or (isinstance(full, IntImm) and extent.value >= full.value)
        ):
            continue
        shape[d], lows[d] = extent, low
        changed = True
    if not changed:
        return buffer, ()
    return buffer.with_(shape=tuple(shape), strides=()), tuple(lows)


def _ends(index: Expr, dom: dict[Var, Ends]) -> Ends | None:
    """Returns the least and the greatest value of an index over all of its lanes."""
    lanes = index.dtype.lanes
    if lanes == 1:
        return eval_interval(index, dom)
    lane = Var("lane", index.dtype.element)
    one = value_in_lane(index, lane)
    inside = {**dom, lane: (const(0, lane.dtype), const(lanes - 1, lane.dtype))}
    return None if one is None else eval_interval(one, inside)


def _union(spans: list[Ends | None], inner: Inner, analyzer: Analyzer) -> Ends | None:
    """Returns the range that covers all ranges, or None.

    None is returned when an end is unknown, uses a value that is only known inside, or cannot be compared.
    """
    out: Ends | None = None
    for span in spans:
        if span is None:
            return None
        low, high = analyzer.simplify(span[0]), analyzer.simplify(span[1])
        if _uses(low, inner) or _uses(high, inner):
            return None
        if out is None:
            out = (low, high)
            continue
        lows = _ordered(out[0], low, analyzer)
        highs = _ordered(out[1], high, analyzer)
        if lows is None or highs is None:
            return None
        out = (lows[0], highs[1])
    return out


def _uses(e: Expr, inner: Inner) -> bool:
    found = all_nodes(e)
    return any([n in inner if type(n) is Var else type(n) is BufferLoad and n.buffer in inner for n in found])


def _ordered(a: Expr, b: Expr, analyzer: Analyzer) -> Ends | None:
    """Returns the smaller and the larger of two expressions, when their order is certain."""
    if a is b or analyzer.can_prove(a <= b):
        return a, b
    return (b, a) if analyzer.can_prove(b <= a) else None


def _shift(body: Stmt, moves: Mapping[Buffer, Move], analyzer: Analyzer) -> Stmt:
    before = {new: old for old, (new, _) in moves.items()}

    def move(indices: tuple[Expr, ...], low: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple([analyzer.simplify(i - b) for i, b in zip(indices, low, strict=True)])

    def post(n: IRNode) -> IRNode | None:
        if type(n) is BufferLoad and n.buffer in moves:
            new, low = moves[n.buffer]
            return BufferLoad(new, move(n.indices, low), n.predicate)
        if type(n) is BufferStore and n.buffer in moves:
            new, low = moves[n.buffer]
            return BufferStore(new, n.value, move(n.indices, low), n.predicate)
        first = tile_access(n) if type(n) is Call else None
        if first is not None and first.buffer in before:
            assert isinstance(n, Call)
            return restrided(n, before[first.buffer], first.buffer)
        return None

    return transform(body, post=post)
