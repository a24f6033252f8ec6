"""This module answers which block reads and writes which buffer, in which order and under which conditions.

A *scope* is a block that holds other blocks; these pass data through buffers. Dependencies are derived from the regions
that blocks declare; whether a rewrite is legal is derived from the accesses in their bodies. A block is

- *complete* when its axes are all spatial, it is the only block of its scope that writes its outputs, and it reads
  none of them;
- a *reduction block* when it has an init, its axes are spatial or reduce, it is the only writer, and its outputs are
  addressed by spatial axes alone;
- an *output block* when it writes a buffer that lives on after its scope.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from ..expr import BufferLoad, Expr, IntImm, IterVar, Reason, Var, pre_order
from ..expr.deep_recursion import with_room
from ..stmt import (
    Block,
    BlockRealize,
    Buffer,
    BufferRegion,
    BufferStore,
    For,
    SeqStmt,
    Stmt,
    While,
    loads_and_stores,
    statements,
    statements_in,
)
from .tree import Tree, blocks_below


def bindings(realize: BlockRealize) -> dict[Var, Expr]:
    """Return the value of each axis of a block, by the axis's variable."""
    return {iv.var: value for iv, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)}


def region_of(regions: Iterable[BufferRegion], buffer: Buffer) -> BufferRegion | None:
    """Return the first region of ``buffer`` among ``regions``."""
    return next((r for r in regions if r.buffer is buffer), None)


def buffers_of(block: Block) -> tuple[tuple[Buffer, ...], tuple[Buffer, ...]]:
    """Return the buffers that a block reads and those that it writes.

    These are the buffers of its declared regions. A block without axes need not declare regions, so that the buffers
    which blocks inside it access are added. Buffers that the block allocates are left out.
    """
    return _leaf_buffers(block) if block.iter_vars else _buffers_of(block)


@lru_cache(maxsize=8192)
def _leaf_buffers(block: Block) -> tuple[tuple[Buffer, ...], tuple[Buffer, ...]]:
    """Return the buffers of a block with axes; a step of a schedule leaves most blocks as they are."""
    return _buffers_of(block)


def _buffers_of(block: Block) -> tuple[tuple[Buffer, ...], tuple[Buffer, ...]]:
    reads = {r.buffer: None for r in block.reads}
    writes = {r.buffer: None for r in block.writes}
    if not block.iter_vars:
        for inner in blocks_below(block.body):
            more = buffers_of(inner.block)
            reads.update(dict.fromkeys(more[0]))
            writes.update(dict.fromkeys(more[1]))
        names = {m.buffer: m.source.buffer for m in block.match_buffers}
        own = set(block.alloc_buffers)
        reads = {names.get(b, b): None for b in reads if b not in own}
        writes = {names.get(b, b): None for b in writes if b not in own}
    return tuple(reads), tuple(writes)


# -- scopes --------------------------------------------------------------------------------------------------------------


class BlockScope:
    """A ``BlockScope`` holds the blocks directly in one block, in program order, with the readers and writers of each
    buffer.

    ``bare_readers`` holds what the bounds of loops and conditions outside of blocks read, with the statements that do.
    ``repeats`` is a ``while`` around some of the blocks, which may then run in another order than that of the text.
    """

    __slots__ = ("bare_readers", "blocks", "order", "readers", "repeats", "root", "writers")

    def __init__(self, root: BlockRealize) -> None:
        self.root = root
        init = root.block.init
        body = root.block.body
        parts = body.seq if isinstance(body, SeqStmt) else (body,)
        self.blocks = [*(() if init is None else blocks_below(init)), *[b for part in parts for b in _outermost(part)]]
        self.order = {b: i for i, b in enumerate(self.blocks)}
        self.writers: dict[Buffer, list[BlockRealize]] = {}
        self.readers: dict[Buffer, list[BlockRealize]] = {}
        self.bare_readers: dict[Buffer, Stmt] = {}
        loads, loops = _outside_blocks(root.block.body)
        for stmt, load in loads:
            self.bare_readers.setdefault(load.buffer, stmt)
        self.repeats = next((n for n in loops if next(blocks_below(n.body), None) is not None), None)
        for b in self.blocks:
            reads, writes = buffers_of(b.block)
            for buffer in writes:
                self.writers.setdefault(buffer, []).append(b)
            for buffer in reads:
                self.readers.setdefault(buffer, []).append(b)

    def producers(self, realize: BlockRealize) -> list[BlockRealize]:
        """Return the earlier blocks that write what ``realize`` reads or writes (TVM's RAW and WAW dependencies), in
        order."""
        here = self.order[realize]
        reads, writes = buffers_of(realize.block)
        touched = {*reads, *writes}
        found = {w for b in touched for w in self.writers.get(b, ()) if self.order[w] < here}
        return sorted(found, key=self.order.__getitem__)

    def consumers(self, realize: BlockRealize) -> list[BlockRealize]:
        """Return the later blocks that read or overwrite what ``realize`` writes, in order."""
        here = self.order[realize]
        written = buffers_of(realize.block)[1]
        found = {
            user
            for b in written
            for user in (*self.readers.get(b, ()), *self.writers.get(b, ()))
            if self.order[user] > here
        }
        return sorted(found, key=self.order.__getitem__)


@lru_cache(maxsize=8192)
def _outermost(stmt: Stmt) -> tuple[BlockRealize, ...]:
    """Return :func:`blocks_below` the statement; a step of a schedule leaves most statements of a scope as they are."""
    return tuple(blocks_below(stmt))


@lru_cache(maxsize=64)
def scope_at(root: BlockRealize) -> BlockScope:
    """Return the scope of the blocks directly in ``root``."""
    return BlockScope(root)


def bare_loads(stmt: Stmt) -> Sequence[tuple[Stmt, BufferLoad]]:
    """Return each load below ``stmt`` outside of blocks (in loop bounds, conditions and bindings) with its
    statement."""
    return _outside_blocks(stmt)[0]


@lru_cache(maxsize=4096)
@with_room
def _outside_blocks(stmt: Stmt) -> tuple[tuple[tuple[Stmt, BufferLoad], ...], tuple[While, ...]]:
    """Return :func:`bare_loads` and the ``while`` loops outside of blocks, both in program order."""
    loads: list[tuple[Stmt, BufferLoad]] = []
    whiles: list[While] = [stmt] if isinstance(stmt, While) else []
    for e in stmt.children():
        if type(e) not in _WITHOUT_LOADS and isinstance(e, Expr):
            loads += [(stmt, load) for load in loads_and_stores(e) if isinstance(load, BufferLoad)]
    for below in () if isinstance(stmt, BlockRealize) else statements_in(stmt):
        more = _outside_blocks(below)
        loads += more[0]
        whiles += more[1]
    return tuple(loads), tuple(whiles)


_WITHOUT_LOADS = frozenset((Var, IntImm, Block, BlockRealize, For))


# -- classes of blocks ---------------------------------------------------------------------------------------------------


def why_not_only_writer(scope: BlockScope, block: Block) -> Reason | None:
    """Return the reason why ``block`` is not the only writer of its outputs in its scope; None when it is."""
    for region in block.writes:
        others = [w for w in scope.writers[region.buffer] if w.block is not block]
        if others:
            names = ", ".join([repr(w.block.name_hint) for w in others])
            return Reason(f"buffer {region.buffer.name} is written by {names} too", tuple(others))
    return None


def _hides(block: Block) -> Reason | None:
    """Return why the regions of a block may not name all that it accesses. A block without axes need not declare
    them."""
    declared = {r.buffer for r in block.reads}, {r.buffer for r in block.writes}
    if not block.iter_vars and any(not set(found) <= d for found, d in zip(buffers_of(block), declared, strict=True)):
        return Reason("it holds blocks that touch more than it declares", (block,))
    return None


def _kinds(block: Block, allowed: Sequence[str]) -> Reason | None:
    for iv in block.iter_vars:
        if iv.kind not in allowed:
            return Reason(f"its axis {iv.var.name} is {iv.kind}", (block,))
    return None


def why_not_complete(scope: BlockScope, block: Block) -> Reason | None:
    """Return the reason why ``block`` is not a complete block; None when it is one."""
    if block.init is not None:
        return Reason("it has an init, so it accumulates", (block,))
    found = _hides(block) or _kinds(block, (IterVar.SPATIAL,)) or why_not_only_writer(scope, block)
    if found is None:
        both = {r.buffer for r in block.reads} & {r.buffer for r in block.writes}
        if both:
            return Reason(f"it reads and writes buffer {next(iter(both)).name}", (block,))
    return found


def why_not_reduction(scope: BlockScope, block: Block) -> Reason | None:
    """Return the reason why ``block`` is not a reduction block; None when it is one."""
    if block.init is None:
        return Reason("it has no init", (block,))
    found = _kinds(block, (IterVar.SPATIAL, IterVar.REDUCE)) or why_not_only_writer(scope, block)
    if found is not None:
        return found
    reduce_axes = {iv.var for iv in block.iter_vars if iv.kind == IterVar.REDUCE}
    for store in statements(block.body):
        if isinstance(store, BufferStore):
            axis = next((n for index in store.indices for n in pre_order(index) if n in reduce_axes), None)
            if axis is not None:
                return Reason(f"its reduce axis {axis} addresses the output {store.buffer.name}", (store,))
    return None


def is_output_block(tree: Tree, realize: BlockRealize) -> bool:
    """Return whether the block writes a buffer that lives on after its scope."""
    allocated = set(tree.scope(realize).block.alloc_buffers)
    return any(b not in allocated for b in buffers_of(realize.block)[1])
