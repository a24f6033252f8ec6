"""This module walks statements: it finds the accesses and the blocks of programs, and replaces buffers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from ..expr import BufferLoad, Call, FloatImm, IntImm, Var, distinct, pre_order
from ..expr.base.node import Mapper, Node
from .buffer import Buffer
from .function import PrimFunc
from .stmt import Block, BlockRealize, BufferStore, Stmt, statements_in

N = TypeVar("N", bound=Node)


def statements(node: PrimFunc | Stmt) -> Iterator[Stmt]:
    """Yield all statements, parents first; expressions are not walked."""
    stack: list[Stmt] = [node.body if isinstance(node, PrimFunc) else node]
    while stack:
        top = stack.pop()
        yield top
        stack += statements_in(top)[::-1]


def loads_and_stores(node: Node) -> Iterator[BufferLoad | BufferStore]:
    """Yield every access in bodies and inits; the regions that blocks declare do not count."""
    for n in pre_order(node):
        if type(n) is BufferLoad or type(n) is BufferStore:
            yield n


def needs_root(body: Stmt, allocs: bool) -> bool:
    """Return whether the parser puts a root block around ``body`` (with ``allocs`` when buffers are allocated at the
    top)."""
    if allocs:
        return True
    has_block = any(type(n) is BlockRealize for n in statements(body))
    return has_block and not (type(body) is BlockRealize and not body.block.iter_vars)


def blocks_of(node: PrimFunc | Stmt) -> Iterator[BlockRealize]:
    """Yield every block realization, outermost first, in program order."""
    for n in statements(node):
        if type(n) is BlockRealize:
            yield n


def replace_buffers(node: N, mapping: Mapping[Buffer, Buffer]) -> Any:
    """Return ``node`` with buffers replaced, in loads, stores, regions, allocations and match_buffers."""
    return _BufferReplacement(mapping).visit(node) if mapping else node


def memory_in(stmt: Stmt) -> frozenset[Any]:
    """Return the buffers and the pointers that ``stmt`` names, in accesses, regions and declarations."""
    return memory_of(stmt)[0]


@lru_cache(maxsize=8192)
def memory_of(stmt: Stmt) -> tuple[frozenset[Any], frozenset[Var]]:
    """Return what :func:`memory_in` does, and the pointers that are used other than by plain loads and stores.

    Results are kept for each statement, because a step of a schedule leaves most of them as they are.
    """
    named: set[Any] = {*stmt.used_buffers(), *stmt.declared_buffers()}
    opaque: set[Var] = set()
    if isinstance(stmt, Block):
        opaque.update([b.data for m in stmt.match_buffers for b in (m.source.buffer, m.buffer)])
    for part in stmt.children():
        if isinstance(part, Stmt):
            below = memory_of(part)
            named |= below[0]
            opaque |= below[1]
        elif type(part) is not IntImm:
            _add_memory_of(part, named, opaque)
    return frozenset(named), frozenset(opaque)


def _add_memory_of(e: Node, named: set[Any], opaque: set[Var]) -> None:
    for n in distinct(e):
        if type(n) is not Var:
            named.update(n.used_buffers())
            if type(n) is Call and n.op == "tir.address_of" and isinstance(n.args[0], BufferLoad):
                opaque.add(n.args[0].buffer.data)
        elif n.dtype == "handle":
            named.add(n)
            opaque.add(n)


class _BufferReplacement(Mapper):
    def __init__(self, mapping: Mapping[Buffer, Buffer]) -> None:
        self.mapping = mapping
        self.data: dict[Var, Var] = {old.data: new.data for old, new in mapping.items()}
        self.names = {*self.data, *mapping}

    def visit(self, n: Any) -> Any:
        kind = type(n)
        if kind is Var:
            return self.data.get(n, n)
        if kind is IntImm or kind is FloatImm or (isinstance(n, Stmt) and self.names.isdisjoint(memory_in(n))):
            return n
        return n.map_parts(self)

    def use(self, buffer: Any) -> Any:
        return self.mapping.get(buffer, buffer)
