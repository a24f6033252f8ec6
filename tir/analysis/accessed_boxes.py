"""This module lists the boxes of buffers that a statement reads and writes, in terms of the loops around it."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ..buffer import Buffer, BufferRegion
from ..expr import BufferLoad, Call, Expr, IntImm, Let, Var, const
from ..function import PrimFunc
from ..reason import Reason
from ..stmt import BlockRealize, BufferStore, For, LetStmt, Stmt
from ..walk import substitute, transform
from .access import opaque_buffers
from .tree import blocks_below


@dataclass(frozen=True, slots=True, eq=False)
class AccessedBox:
    """An ``AccessedBox`` is a box of a buffer that one access reads or writes.

    ``first`` holds the first element and ``extents`` the lengths per dimension, as expressions of the loops. ``loops``
    are those between the statement that was asked about and the access. ``realize`` is the innermost block around the
    access (None outside blocks), and ``blocks`` are all blocks around it, outermost first. The
    variables ``moving`` stand for values that are read from memory which is written below the same statement, so that
    they differ from iteration to iteration.
    """

    buffer: Buffer
    first: tuple[Expr, ...]
    extents: tuple[Expr, ...]
    is_store: bool
    loops: tuple[For, ...]
    realize: BlockRealize | None
    blocks: tuple[BlockRealize, ...]
    moving: tuple[Var, ...] = ()


def accessed_boxes_below(stmt: Stmt) -> list[AccessedBox] | Reason:
    """Return all boxes that are read or written below ``stmt``. Buffers allocated below it are left out.

    A block that uses pointers (calls, match_buffers) contributes the regions that it declares. A reason is returned when
    a pointer or an external call stands outside such a block, because what it accesses is not known.
    """
    walker = _Walker()
    walker.visit(stmt, {}, (), ())
    if walker.unknown is not None:
        return Reason(
            f"`{walker.unknown}` may touch anything, so iterations are not known to be independent",
            (stmt,),
            hint="put it into a block of its own that declares its reads and writes",
        )
    stored = {t.buffer.data for t in walker.found if t.is_store}
    return [_with_moving(t, stored) for t in walker.found if t.buffer not in walker.private]


def _with_moving(t: AccessedBox, stored: Set[Var]) -> AccessedBox:
    """Return ``t`` with a new variable in place of each load through one of the pointers ``stored``."""
    moving: list[Var] = []

    def pre(n: Any) -> Any:
        if isinstance(n, BufferLoad) and n.buffer.data in stored:
            moving.append(Var(n.buffer.name, n.dtype))
            return moving[-1]
        return None

    first, extents = (tuple([transform(e, pre) for e in part]) for part in (t.first, t.extents))
    loops = tuple([lp.with_(min=transform(lp.min, pre), extent=transform(lp.extent, pre)) for lp in t.loops])
    return replace(t, first=first, extents=extents, loops=loops, moving=tuple(moving)) if moving else t


class _Walker:
    def __init__(self) -> None:
        self.found: list[AccessedBox] = []
        self.private: set[Buffer] = set()
        self.unknown: Expr | None = None

    def visit(self, n: Any, env: dict[Var, Expr], loops: tuple[For, ...], blocks: tuple[BlockRealize, ...]) -> None:
        if isinstance(n, IntImm):
            return
        if isinstance(n, Var):
            if n.dtype == "handle":
                self.unknown = n
            return
        if isinstance(n, For):
            self.visit(n.min, env, loops, blocks)
            self.visit(n.extent, env, loops, blocks)
            if env:
                n = n.with_(min=substitute(n.min, env), extent=substitute(n.extent, env))
            self.visit(n.body, env, (*loops, n), blocks)
        elif isinstance(n, BlockRealize):
            for value in (*n.iter_values, n.predicate):
                self.visit(value, env, loops, blocks)
            block = n.block
            inner = dict(env)
            for axis, value in zip(block.iter_vars, n.iter_values, strict=True):
                inner[axis.var] = substitute(value, env) if env else value
            self.private.update(block.alloc_buffers)
            blocks = (*blocks, n)
            leaf = next(blocks_below(block.body), None) is None
            if block.match_buffers or (leaf and opaque_buffers(block)):
                for region in block.reads:
                    self.region(region, False, inner, loops, blocks)
                for region in block.writes:
                    self.region(region, True, inner, loops, blocks)
                return
            if block.init is not None:
                self.visit(block.init, inner, loops, blocks)
            self.visit(block.body, inner, loops, blocks)
        elif isinstance(n, (LetStmt, Let)):
            self.visit(n.value, env, loops, blocks)
            self.visit(n.body, {**env, n.var: substitute(n.value, env)}, loops, blocks)
        else:
            if isinstance(n, (BufferLoad, BufferStore)):
                indices = tuple([substitute(i, env) for i in n.indices]) if env else n.indices
                ones = tuple([const(1, i.dtype) for i in indices])
                self.add(n.buffer, indices, ones, isinstance(n, BufferStore), loops, blocks)
            elif isinstance(n, Call) and n.op in ("tir.address_of", "tir.call_extern") and self.unknown is None:
                self.unknown = None if blocks and n.op == "tir.call_extern" else n
            for child in n.children():
                self.visit(child, env, loops, blocks)

    def region(
        self, r: BufferRegion, store: bool, env: dict[Var, Expr], loops: tuple[For, ...], blocks: tuple[Any, ...]
    ) -> None:
        first = tuple([substitute(d.min, env) for d in r.region])
        self.add(r.buffer, first, tuple([substitute(d.extent, env) for d in r.region]), store, loops, blocks)

    def add(self, buffer: Buffer, first: Any, extents: Any, store: bool, loops: Any, blocks: tuple[Any, ...]) -> None:
        self.found.append(AccessedBox(buffer, first, extents, store, loops, blocks[-1] if blocks else None, blocks))


@lru_cache(maxsize=4)
def all_accessed_boxes(func: PrimFunc) -> list[AccessedBox] | None:
    """Return all boxes that a function reads or writes, its own buffers included; None when they are not known."""
    walker = _Walker()
    walker.visit(func.body, {}, (), ())
    return walker.found if walker.unknown is None else None
