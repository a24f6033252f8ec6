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

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..tir.arith import conjuncts
from ..tir.buffer import Buffer, BufferRegion
from ..tir.expr import BufferLoad, Call, Expr, IntImm, IterVar, Let, Not, Var
from ..tir.node import Node
from ..tir.op import all_
from ..tir.stmt import Block, BlockRealize, BufferStore, For, IfThenElse, LetStmt, SeqStmt, Stmt, While
from ..tir.walk import loads_and_stores, pre_order, substitute
from .errors import ScheduleError
from .tree import Tree, blocks_below

# -- conditions ----------------------------------------------------------------------------------------------------------


def all_of(conditions: Iterable[Expr]) -> Expr:
    """Return the conjunction of the conditions; the constant true when there are none."""
    return all_(*conditions)


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


class Scope:
    """A ``Scope`` holds the blocks directly in one block, in program order, with the readers and writers of each
    buffer.

    ``bare_readers`` holds what the bounds of loops and conditions outside of blocks read, with the statements that do.
    ``repeats`` is a ``while`` around some of the blocks, which may then run in another order than that of the text.
    """

    __slots__ = ("bare_readers", "blocks", "order", "readers", "repeats", "root", "writers")

    def __init__(self, root: BlockRealize) -> None:
        self.root = root
        init = root.block.init
        self.blocks = [*(() if init is None else blocks_below(init)), *blocks_below(root.block.body)]
        self.order = {b: i for i, b in enumerate(self.blocks)}
        self.writers: dict[Buffer, list[BlockRealize]] = {}
        self.readers: dict[Buffer, list[BlockRealize]] = {}
        self.bare_readers: dict[Buffer, Stmt] = {}
        for stmt, load in bare_loads(root.block.body):
            self.bare_readers.setdefault(load.buffer, stmt)
        loops = [n for n in pre_order(root.block.body, _in_scope) if isinstance(n, While)]
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


def _in_scope(n: Node) -> bool:
    """Return whether the statements below ``n`` belong to the same scope as ``n``."""
    return not isinstance(n, (Expr, Block))


@lru_cache(maxsize=64)
def _scope(root: BlockRealize) -> Scope:
    return Scope(root)


def scope_of(tree: Tree, realize: BlockRealize) -> Scope:
    """Return the scope that directly contains ``realize``."""
    return _scope(tree.scope(realize))


def ordered_scope(tree: Tree, realize: BlockRealize) -> Scope:
    """Return the scope that ``realize`` is a block of; ScheduleError when a ``while`` stands around blocks of it.

    The body of such a loop may run any number of times, or not at all, and a block that stands later in the text may
    run before an earlier one. So it is not known which value of a buffer a block reads there.
    """
    scope = scope_of(tree, realize)
    if scope.repeats is not None:
        names = ", ".join([repr(b.block.name_hint) for b in blocks_below(scope.repeats.body)])
        raise ScheduleError(
            f"`while {scope.repeats.condition}` stands around {names} in the scope of block {realize.block.name_hint!r}: "
            "how often these blocks run, and what they read each time, is not known",
            where=(realize, scope.repeats),
            hint="only what stays inside one block can be scheduled beside a while loop; put the loop into a block",
        )
    return scope


def bare_loads(stmt: Stmt) -> Iterator[tuple[Stmt, BufferLoad]]:
    """Return each load below ``stmt`` outside of blocks (in loop bounds, conditions and bindings) with its
    statement."""
    for n in pre_order(stmt, lambda n: not isinstance(n, (Expr, Block))):
        if isinstance(n, Stmt) and not isinstance(n, Block):
            for e in n.children():
                if isinstance(e, Expr):
                    for load in loads_and_stores(e):
                        if isinstance(load, BufferLoad):
                            yield n, load


def check_read_by_blocks_alone(scope: Scope, buffer: Buffer) -> None:
    """Raise ScheduleError when the bounds of a loop, or a condition outside of blocks, read the buffer."""
    found = scope.bare_readers.get(buffer)
    if found is not None:
        what = f"the bounds of loop {found.loop_var.name}" if isinstance(found, For) else "a condition or a binding"
        raise ScheduleError(
            f"buffer {buffer.name} is read outside of blocks, by {what}, so it has to be computed before",
            where=found,
            hint="leave the block that computes it where it is",
        )


def producers_of(tree: Tree, realize: BlockRealize) -> list[BlockRealize]:
    """Return :meth:`Scope.producers` of the block in its scope."""
    return scope_of(tree, realize).producers(realize)


def consumers_of(tree: Tree, realize: BlockRealize) -> list[BlockRealize]:
    """Return :meth:`Scope.consumers` of the block in its scope."""
    return scope_of(tree, realize).consumers(realize)


# -- classes of blocks ---------------------------------------------------------------------------------------------------


def _why_not_only_writer(scope: Scope, block: Block) -> str | None:
    for region in block.writes:
        others = [w.block.name_hint for w in scope.writers[region.buffer] if w.block is not block]
        if others:
            return f"buffer {region.buffer.name} is written by {', '.join(map(repr, others))} too"
    return None


def _hides(block: Block) -> str | None:
    """Return why the regions of a block may not name all that it accesses; a block without axes need not declare
    them."""
    declared = {r.buffer for r in block.reads}, {r.buffer for r in block.writes}
    if not block.iter_vars and any(not set(found) <= d for found, d in zip(buffers_of(block), declared, strict=True)):
        return "it holds blocks that touch more than it declares"
    return None


def _kinds(block: Block, allowed: Sequence[str]) -> str | None:
    for iv in block.iter_vars:
        if iv.kind not in allowed:
            return f"its axis {iv.var.name} is {iv.kind}"
    return None


def why_not_complete(scope: Scope, block: Block) -> str | None:
    """Return the reason why ``block`` is not a complete block; None when it is one."""
    if block.init is not None:
        return "it has an init, so it accumulates"
    found = _hides(block) or _kinds(block, (IterVar.SPATIAL,)) or _why_not_only_writer(scope, block)
    if found is None:
        both = {r.buffer for r in block.reads} & {r.buffer for r in block.writes}
        if both:
            return f"it reads and writes buffer {next(iter(both)).name}"
    return found


def why_not_reduction(scope: Scope, block: Block) -> str | None:
    """Return the reason why ``block`` is not a reduction block; None when it is one."""
    if block.init is None:
        return "it has no init"
    found = _kinds(block, (IterVar.SPATIAL, IterVar.REDUCE)) or _why_not_only_writer(scope, block)
    if found is not None:
        return found
    reduce_axes = {iv.var for iv in block.iter_vars if iv.kind == IterVar.REDUCE}
    for node in pre_order(block.body, lambda n: not isinstance(n, Expr)):
        if isinstance(node, BufferStore):
            for index in node.indices:
                for n in pre_order(index):
                    if isinstance(n, Var) and n in reduce_axes:
                        return f"its reduce axis {n.name} addresses the output {node.buffer.name}"
    return None


def check_complete(tree: Tree, realize: BlockRealize) -> None:
    """Raise ScheduleError unless the block is complete."""
    why = why_not_complete(scope_of(tree, realize), realize.block)
    if why is not None:
        raise ScheduleError(
            f"block {realize.block.name_hint!r} is not a complete block: {why}",
            where=realize,
            hint="a complete block has spatial axes only, is the only writer of its outputs and reads none of them",
        )


def check_reduction(tree: Tree, realize: BlockRealize) -> None:
    """Raise ScheduleError unless the block is a reduction block."""
    why = why_not_reduction(scope_of(tree, realize), realize.block)
    if why is not None:
        raise ScheduleError(
            f"block {realize.block.name_hint!r} is not a reduction block: {why}",
            where=realize,
            hint="a reduction block has an init, spatial and reduce axes, and is the only writer of its outputs",
        )


def check_complete_or_reduction(tree: Tree, realize: BlockRealize) -> None:
    """Raise ScheduleError unless the block is complete or a reduction block."""
    scope = scope_of(tree, realize)
    block = realize.block
    why = why_not_reduction(scope, block) if block.init is not None else why_not_complete(scope, block)
    if why is not None:
        raise ScheduleError(
            f"block {block.name_hint!r} is neither a complete nor a reduction block: {why}",
            where=realize,
            hint="do this step before decompose_reduction, and on blocks that are the only writer of their outputs",
        )


def check_only_writer(tree: Tree, realize: BlockRealize) -> None:
    """Raise ScheduleError when another block of the scope writes one of the block's outputs."""
    why = _why_not_only_writer(scope_of(tree, realize), realize.block)
    if why is not None:
        raise ScheduleError(
            f"block {realize.block.name_hint!r} is not the only writer: {why}",
            where=realize,
            hint="merge or inline the other writers first",
        )


def is_output_block(tree: Tree, realize: BlockRealize) -> bool:
    """Return whether the block writes a buffer that lives on after its scope."""
    allocated = set(tree.scope(realize).block.alloc_buffers)
    return any(b not in allocated for b in buffers_of(realize.block)[1])


def check_plain_path(tree: Tree, realize: BlockRealize) -> None:
    """Raise ScheduleError when something other than loops and sequences stands between the block and its scope."""
    for up in tree.above(realize):
        if isinstance(up, Block):
            return
        if not isinstance(up, (For, SeqStmt)):
            raise ScheduleError(
                f"block {realize.block.name_hint!r} stands under a {type(up).__name__}, so it may run conditionally",
                where=realize,
                hint="do this before the condition is there, or move it into the block with T.where",
            )


# -- accesses ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """An ``Access`` is one load or store, with the loops around it and the conditions under which it happens.

    In its ``indices`` the axes of blocks are replaced by their values. ``loops`` are those between the statement that
    was asked about and the access, outermost first. Below a ``while`` (``in_while``) one of the conditions is a
    variable of which nothing is known.
    """

    node: BufferLoad | BufferStore
    indices: tuple[Expr, ...]
    loops: tuple[For, ...]
    guards: tuple[Expr, ...]
    in_init: bool = False
    in_while: bool = False

    @property
    def buffer(self) -> Buffer:
        """Return the buffer accessed."""
        return self.node.buffer

    @property
    def is_store(self) -> bool:
        """Return whether it is a store."""
        return isinstance(self.node, BufferStore)


def accesses(stmt: Stmt, buffer: Buffer | None = None) -> list[Access]:
    """Return every load and store below ``stmt`` (of ``buffer`` alone, when given), in program order.

    Those that say where a match_buffer lies are among them.

    Loads and stores through a block's match_buffers appear under the matched buffer's name. Accesses through pointers
    do not appear: see :func:`opaque_buffers`.
    """
    out: list[Access] = []
    _Collector(out, buffer).walk(stmt, {}, (), (), False)
    return out


class _Collector:
    def __init__(self, out: list[Access], buffer: Buffer | None) -> None:
        self.out = out
        self.buffer = buffer
        self.in_while = False

    def walk(self, n: Any, env: dict[Var, Expr], loops: tuple[For, ...], guards: tuple[Expr, ...], init: bool) -> None:
        if isinstance(n, (Var, IntImm)):
            return
        if isinstance(n, For):
            self.walk(n.min, env, loops, guards, init)
            self.walk(n.extent, env, loops, guards, init)
            if env:  # bounds may use axes, which have been replaced by values
                n = n.with_(min=substitute(n.min, env), extent=substitute(n.extent, env))
            self.walk(n.body, env, (*loops, n), guards, init)
        elif isinstance(n, BlockRealize):
            for value in n.iter_values:
                self.walk(value, env, loops, guards, init)
            inner = dict(env)
            for iv, value in zip(n.block.iter_vars, n.iter_values, strict=True):
                inner[iv.var] = substitute(value, env)
            self.walk(n.predicate, env, loops, guards, init)
            under = (*guards, *conjuncts(substitute(n.predicate, env)))
            for e in [e for m in n.block.match_buffers for r in m.source.region for e in (r.min, r.extent)]:
                self.walk(e, inner, loops, under, init)
            if n.block.init is not None:
                self.walk(n.block.init, inner, loops, under, True)
            self.walk(n.block.body, inner, loops, under, init)
        elif isinstance(n, IfThenElse):
            self.walk(n.condition, env, loops, guards, init)
            condition = substitute(n.condition, env)
            self.walk(n.then_case, env, loops, (*guards, *conjuncts(condition)), init)
            if n.else_case is not None:
                self.walk(n.else_case, env, loops, (*guards, Not(condition)), init)
        elif isinstance(n, While):
            outer, self.in_while = self.in_while, True
            self.walk(n.condition, env, loops, guards, init)
            self.walk(n.body, env, loops, (*guards, Var("runs", "bool")), init)
            self.in_while = outer
        elif isinstance(n, Call) and n.op == "tir.if_then_else":
            self.walk(n.args[0], env, loops, guards, init)
            condition = substitute(n.args[0], env)
            self.walk(n.args[1], env, loops, (*guards, *conjuncts(condition)), init)
            self.walk(n.args[2], env, loops, (*guards, Not(condition)), init)
        elif isinstance(n, (LetStmt, Let)):
            self.walk(n.value, env, loops, guards, init)
            self.walk(n.body, {**env, n.var: substitute(n.value, env)}, loops, guards, init)
        else:
            if isinstance(n, (BufferLoad, BufferStore)) and (self.buffer is None or n.buffer is self.buffer):
                indices = tuple([substitute(i, env) for i in n.indices]) if env else n.indices
                under = guards if n.predicate is None else (*guards, substitute(n.predicate, env))
                self.out.append(Access(n, indices, loops, under, init, self.in_while))
            for child in n.children():
                self.walk(child, env, loops, guards, init)


@lru_cache(maxsize=256)
def opaque_buffers(stmt: Stmt) -> frozenset[Var]:
    """Return the pointers (``Buffer.data``) used below ``stmt`` other than by plain loads and stores.

    Such uses are calls, address_of and match_buffers. :func:`accesses` does not see what happens through them.
    """
    found: set[Var] = set()
    for n in pre_order(stmt):
        if isinstance(n, Var) and n.dtype == "handle":
            found.add(n)
        elif isinstance(n, Block):
            for m in n.match_buffers:
                found.update((m.source.buffer.data, m.buffer.data))
        elif isinstance(n, Call) and n.op == "tir.address_of":
            found.update(a.buffer.data for a in n.args if isinstance(a, BufferLoad))
    return frozenset(found)
