"""What harmless conflicts look like: accumulation of a block's own, and scratch that every turn fills anew."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..tir.buffer import Buffer
from ..tir.expr import IterVar, Var
from ..tir.stmt import BlockRealize, For, Stmt
from ..tir.walk import pre_order
from .errors import ScheduleError
from .regions import check_cover
from .touches import Touch, all_touches
from .tree import Tree

__all__ = ["binding_block", "local_to_turns", "only_reduced"]


def binding_block(store: Touch, other: Touch, variables: Iterable[Var]) -> BlockRealize | None:
    """The block that both accesses are in and that binds the variables; None when there is no such one."""
    for a, b in zip(store.blocks, other.blocks, strict=False):
        if a is not b:
            return None
        if a.iter_values:
            used = {n for value in a.iter_values for n in pre_order(value) if isinstance(n, Var)}
            return a if all(v in used for v in variables) else None
    return None


def only_reduced(realize: BlockRealize, variables: Iterable[Var]) -> bool:
    """Whether the block binds each of the variables, and to reduce axes alone."""
    spatial: set[Any] = set()
    reduced: set[Any] = set()
    for axis, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
        (reduced if axis.kind == IterVar.REDUCE else spatial).update(n for n in pre_order(value) if isinstance(n, Var))
    return all(v in reduced and v not in spatial for v in variables)


def local_to_turns(tree: Tree, loop: For, buffer: Buffer, touches: Sequence[Touch]) -> str | None:
    """None when each turn of ``loop`` might as well have a copy of ``buffer`` of its own, else the reason why not.

    That is so when nothing outside the loop touches the buffer and everything a turn reads was written in that turn.
    """
    if any(buffer is b for b in tree.func.buffer_map.values()):
        return f"{buffer.name} is a parameter"
    mine = [t for t in touches if t.buffer is buffer]
    everywhere = all_touches(tree.func)
    if everywhere is None:
        return "pointers are used elsewhere in the function"
    if len(mine) != sum(t.buffer is buffer for t in everywhere):
        return f"{buffer.name} is used outside loop {loop.loop_var.name} too"
    writers: dict[BlockRealize, None] = {}
    readers: dict[BlockRealize, None] = {}
    for t in mine:
        if not t.blocks:
            return f"{buffer.name} is used outside blocks"
        (writers if t.is_store else readers)[t.blocks[0]] = None
    for reader in readers:
        if reader in writers and reader.block.init is not None:
            if any(
                axis.kind == IterVar.REDUCE and any(n is loop.loop_var for n in pre_order(value))
                for axis, value in zip(reader.block.iter_vars, reader.iter_values, strict=True)
            ):
                return f"loop {loop.loop_var.name} carries the reduction of block {reader.block.name_hint!r}"
            continue
        problem = f"block {reader.block.name_hint!r} reads {buffer.name} before it is written"
        for writer in writers:
            if writer is reader or not _before(tree, writer, reader):
                continue
            try:
                check_cover(tree, writer, reader, buffer)
                break
            except ScheduleError as error:
                problem = error.problem
        else:
            return problem
    return None


def _before(tree: Tree, a: Stmt, b: Stmt) -> bool:
    """Whether ``a`` stands before ``b`` in the program; neither holds the other."""
    fork: Stmt | None = None
    for x, y in zip(tree.path(a), tree.path(b), strict=False):
        if x is not y:
            return fork is not None and any(s is x for s in _until(fork, y))
        fork = x
    return False


def _until(stmt: Stmt, stop: Stmt) -> Iterator[Any]:
    for child in stmt.children():
        if child is stop:
            return
        yield child
