"""This module finds the buffer that an argument names, replaces buffers, and inserts copies of buffers.

It knows the names of storage scopes, which say in which memory a buffer lives.

It says which buffer is copied, who uses the copy, and where it is made: between a writer and its users, or beside a loop nest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...tir.analysis.scope import BlockScope, buffers_of
from ...tir.analysis.tree import Tree, blocks_below, tree_of, unique_block_name
from ...tir.expr import BufferLoad, Expr, Var
from ...tir.expr.node import map_tuple
from ...tir.stmt import (
    Block,
    BlockRealize,
    Buffer,
    BufferRegion,
    BufferStore,
    For,
    PrimFunc,
    SeqStmt,
    Stmt,
    below_assertions,
    children_of,
)
from ...tir.walk import pre_order, replace_buffers, statements, transform
from ..errors import ScheduleError, bad_argument, unknown_handle
from ..require.block_preconditions import find_block, ordered_scope
from ..require.loop_preconditions import check_loops_above
from .loop_nests import allocating, insert_in


def pick_buffer(realize: BlockRealize, which: Any, kind: str, others: Sequence[BufferRegion] = ()) -> Buffer:
    """Return the buffer that a block reads or writes, given by its number in its declarations or by its name.

    No other buffer of that side, nor one among ``others``, may have that name.
    """
    block = realize.block
    regions = block.reads if kind == "read" else block.writes
    names = ", ".join(f"{i}: {r.buffer.name}" for i, r in enumerate(regions)) or "none"
    if isinstance(which, str):
        found = {r.buffer: None for r in (*regions, *others) if r.buffer.name == which}
        if len(found) > 1:
            raise ScheduleError(
                f"block {block.name_hint!r} touches {len(found)} buffers named {which!r}",
                where=realize,
                hint=f"say which by its number; what it {kind}s: {names}",
            )
        if found:
            return next(iter(found))
    elif isinstance(which, int) and 0 <= which < len(regions):
        return regions[which].buffer
    raise unknown_handle(
        f"block {block.name_hint!r} has no {kind} buffer {which!r}",
        where=realize,
        hint=f"what it {kind}s: {names}",
    )


def named_buffer(realize: BlockRealize, buffer: Any) -> Buffer:
    """Return the buffer of a block that an argument names. The argument is ``("read", i)``, ``("write", i)``, a number
    among its writes, or a name."""
    if isinstance(buffer, (list, tuple)) and len(buffer) == 2 and buffer[0] in ("read", "write"):
        return pick_buffer(realize, buffer[1], buffer[0])
    if isinstance(buffer, int):
        return pick_buffer(realize, buffer, "write")
    if isinstance(buffer, str):
        for kind, regions in (("write", realize.block.writes), ("read", realize.block.reads)):
            if any(r.buffer.name == buffer for r in regions):
                return pick_buffer(realize, buffer, kind, others=realize.block.reads)
    raise ScheduleError(
        f"block {realize.block.name_hint!r} has no buffer {buffer!r}",
        where=realize,
        hint='say ("read", 0), ("write", 0), or a name of '
        + ", ".join(repr(r.buffer.name) for r in (*realize.block.reads, *realize.block.writes)),
    )


def home_of(tree: Tree, realize: BlockRealize, buffer: Buffer) -> Block | None:
    """Return the block that allocates the buffer; None for a parameter."""
    if any(b is buffer for b in tree.func.buffer_map.values()):
        return None
    for up in (realize.block, *tree.above(realize)):
        if isinstance(up, Block) and any(b is buffer for b in up.alloc_buffers):
            return up
    raise ScheduleError(
        f"buffer {buffer.name} is neither allocated here nor a parameter",
        where=realize,
        hint="choose a buffer that the function allocates or takes",
    )


def matched_buffers(
    node: PrimFunc | Stmt, buffers: Mapping[Buffer, Buffer], change: Callable[[Buffer], Buffer]
) -> dict[Buffer, Buffer]:
    """Return ``buffers`` extended by each match_buffer below ``node`` of one of them, with its ``change``.

    Match_buffers of match_buffers are included.
    """
    out = dict(buffers)
    for n in statements(node):
        if isinstance(n, Block):
            for m in n.match_buffers:
                if m.source.buffer in out:
                    out[m.buffer] = change(m.buffer)
    return out


def renewed_buffers(node: Any, buffers: Mapping[Buffer, Buffer], change: Callable[[Buffer], Buffer]) -> Any:
    """Return ``node`` with ``buffers`` replaced, and their match_buffers changed by ``change``."""
    return replace_buffers(node, matched_buffers(node, buffers, change))


def changed_buffer(func: PrimFunc, buffer: Buffer, change: Callable[[Buffer], Buffer]) -> PrimFunc:
    """Return the function with a buffer and its match_buffers changed."""
    names = matched_buffers(func, {buffer: change(buffer)}, change)
    parameters = {p: names.get(b, b) for p, b in func.buffer_map.items()}
    return PrimFunc(func.params, replace_buffers(func.body, names), parameters, func.attrs)


def separated(func: PrimFunc, buffer: Buffer, separators: tuple[int, ...]) -> PrimFunc:
    """Return the function with other axis separators of a buffer.

    The dimensions of a match_buffer are the last ones of the buffer.
    """
    ndim = buffer.ndim
    return changed_buffer(
        func, buffer, lambda b: b.with_(axis_separators=tuple([max(0, s - (ndim - b.ndim)) for s in separators]))
    )


def moved_accesses(
    node: Any,
    old: Buffer,
    new: Buffer,
    there: Callable[[tuple[Expr, ...]], tuple[Expr, ...]],
    region: Callable[[BufferRegion], BufferRegion] | None = None,
) -> Any:
    """Return ``node`` with each load and store of ``old`` made from ``new``, at the indices that ``there`` returns.

    With ``region``, the regions of ``old`` that blocks declare are replaced by its results.
    """

    def renewed(r: BufferRegion) -> BufferRegion:
        return region(r) if r.buffer is old and region is not None else r

    def post(n: Any) -> Any:
        if isinstance(n, BufferLoad) and n.buffer is old:
            return BufferLoad(new, there(n.indices), n.predicate)
        if isinstance(n, BufferStore) and n.buffer is old:
            return BufferStore(new, n.value, there(n.indices), n.predicate)
        if isinstance(n, Block) and region is not None:
            reads, writes = map_tuple(n.reads, renewed), map_tuple(n.writes, renewed)
            if reads is not n.reads or writes is not n.writes:
                return n.with_(reads=reads, writes=writes)
        return None

    return transform(node, post=post)


_RANKS = {"global": 0, "shared": 1, "warp": 2, "local": 3}
_SCOPE = re.compile(
    r"(global|shared|warp|local|texture|wmma\.(?:matrix_a|matrix_b|accumulator)|wgmma\.(?:accumulator|rows)|m16n8k8\.matrix[ABC]|amx\.tmm)"
    r"((?:\.[A-Za-z_][\w-]*)*)"
)


def check_storage_scope(scope: Any) -> str:
    """Return ``scope`` if it is the name of a storage scope; ScheduleError otherwise.

    The names are ``global`` (or an empty text), ``shared``, ``warp``, ``local`` and their like, optionally with the tag
    of a special memory (``global.scratchpad``, ``shared.dyn``).
    """
    if scope == "":
        return "global"
    if not isinstance(scope, str) or _SCOPE.fullmatch(scope) is None:
        raise bad_argument(
            f"{scope!r} is not a storage scope",
            hint="there are 'global', 'shared', 'warp', 'local', each with a tag of your own after a dot if need be "
            "('global.scratchpad')",
        )
    return scope


def rank_of_scope(scope: str) -> int:
    """Return who shares the memory. The numbers are 0 for all threads (global), 1 for a block of threads, 2 for a warp,
    3 for one thread."""
    return _RANKS.get(scope.split(".")[0], 3)


def shared_by_thread(scope: str, thread: str) -> bool:
    """Return whether the threads of the axis ``thread`` (``threadIdx.x``) share one copy of a buffer in ``scope``."""
    rank = rank_of_scope(scope)
    if rank == 0:
        return False  # one copy for all: each iteration of a thread's loop copies its own part
    if rank == 2:
        return thread == "threadIdx.x"
    return rank <= (0 if thread.startswith("blockIdx") else 1)


@dataclass(frozen=True, slots=True, eq=False)
class CopyRequest:
    """A ``CopyRequest`` says what to copy: a buffer ``old`` that a block accesses, for the blocks of ``scope``.

    The copy lives in ``storage_scope``. Its buffer, and the block that fills or empties it, have the name ``name``.
    """

    tree: Tree
    realize: BlockRealize
    scope: BlockScope
    old: Buffer
    storage_scope: str
    name: str

    @staticmethod
    def of(func: PrimFunc, block: str, buffer: Any, storage_scope: str | None, suffix: str = "") -> CopyRequest:
        """Return the request for ``buffer`` (see :func:`named_buffer`) of a block, named with the storage scope or a
        suffix.

        Without a storage scope the copy lives where the buffer does.
        """
        wanted = None if storage_scope is None else check_storage_scope(storage_scope)
        tree = tree_of(func)
        realize = find_block(tree, block)
        scope = ordered_scope(tree, realize)
        old = named_buffer(realize, buffer)
        name = unique_block_name(func, f"{old.name}_{suffix or wanted}")
        return CopyRequest(tree, realize, scope, old, old.scope if wanted is None else wanted, name)

    @property
    def start(self) -> CopyPlace:
        """Return the place before all statements of the scope."""
        return CopyPlace(below_assertions(self.scope.root.block.body), 0)

    def writer(self) -> BlockRealize | None:
        """Return the block of the scope that writes the buffer, or None; ScheduleError when there are several."""
        writers = self.scope.writers.get(self.old, [])
        if len(writers) > 1:
            raise ScheduleError(
                f"buffer {self.old.name} is written by {len(writers)} blocks "
                f"({', '.join(repr(w.block.name_hint) for w in writers)}), so there is no one place for the copy",
                where=writers,
                hint="make the copy before decompose_reduction, or merge the writers first",
            )
        return writers[0] if writers else None

    def new_buffer(self, shape: tuple[Expr, ...] | None = None, **more: Any) -> Buffer:
        """Return the buffer of the copy, of this shape or that of the old one."""
        return Buffer(
            self.name,
            self.old.shape if shape is None else shape,
            self.old.dtype,
            self.storage_scope,
            data_alignment=self.old.data_alignment,
            **more,
        )

    def inserted(self, place: CopyPlace, stage: Stmt, changed: Mapping[Any, Any], copy: Buffer) -> PrimFunc:
        """Return the function with ``changed`` blocks, ``stage`` inserted at ``place``, and ``copy`` allocated."""
        root = self.scope.root.block
        early = [] if root.init is None else [b for b in blocks_below(root.init) if b in changed]
        if early:
            raise ScheduleError(
                f"block {early[0].block.name_hint!r} stands in the init of block {root.name_hint!r}, which runs before "
                "the place of the copy",
                where=early,
                hint="name other blocks in consumer_blocks, or decompose_reduction first",
            )
        for changed_or_new in (stage, *changed.values()):
            _check_own_axes(self.tree, changed_or_new)
        after = {place.where: lambda s: insert_in(s, place.number, stage), root: allocating(copy)}
        new = self.tree.replace(changed, after)
        check_loops_above(tree_of(new), find_block(tree_of(new), copy.name))
        return new


def _check_own_axes(tree: Tree, stmt: Stmt | None) -> None:
    """Raise ScheduleError when a block with axes uses loops of an outer scope, with which a copied region changes."""
    for realize in () if stmt is None else blocks_below(stmt):
        if not realize.block.iter_vars:
            continue
        inside = {n.loop_var for n in pre_order(realize.block) if isinstance(n, For)}
        for n in pre_order(realize.block):
            if isinstance(n, Var) and n in tree.loops and n not in inside:
                raise ScheduleError(
                    f"the copied part moves with loop {n.name} outside the scope, which a copy in it cannot follow",
                    where=tree.loops[n],
                    hint="make the copy in the outer scope, before blockize or loop_partition",
                )


@dataclass(frozen=True, slots=True, eq=False)
class CopyPlace:
    """A ``CopyPlace`` is the one before statement ``number`` of ``where``.

    ``behind`` is the statement of ``where`` that holds the writer, for a place between a writer and its users.
    """

    where: Stmt
    number: int
    behind: Stmt | None = None


def place_beside(tree: Tree, nest: Stmt, after: bool) -> CopyPlace:
    """Return the place directly before or after a statement."""
    above = tree.parent[nest]
    return (
        CopyPlace(above, above.seq.index(nest) + after) if isinstance(above, SeqStmt) else CopyPlace(nest, int(after))
    )


def place_between(tree: Tree, scope: BlockScope, writer: BlockRealize, users: Sequence[BlockRealize]) -> CopyPlace:
    """Return the place between the writer and its later users. It is in the innermost sequence that holds the writer
    and one of them.

    Without users it is the end of the scope.
    """
    above = list(tree.above(writer))
    best: tuple[int, SeqStmt] | None = None
    for user in users:
        theirs = set(tree.above(user))
        depth, meet = next((i, s) for i, s in enumerate(above) if s in theirs)
        if isinstance(meet, SeqStmt) and (best is None or depth < best[0]):
            best = (depth, meet)
    if best is None:
        body = below_assertions(scope.root.block.body)
        return CopyPlace(body, len(children_of(body)))
    meet = best[1]
    held = [tree.child_of(meet, user) for user in users if meet in set(tree.above(user))]
    return CopyPlace(meet, min(meet.seq.index(child) for child in held), tree.child_of(meet, writer))


def dependents(scope: BlockScope, writer: BlockRealize) -> list[BlockRealize]:
    """Return the later blocks that read a buffer which ``writer`` writes."""
    users = {r for b in buffers_of(writer.block)[1] for r in scope.readers.get(b, ())}
    return sorted((r for r in users if scope.order[r] > scope.order[writer]), key=scope.order.__getitem__)
