"""This module walks statements: it finds the accesses and the blocks of programs, and replaces buffers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from ..expr import BufferLoad, FloatImm, IntImm, Var, distinct, pre_order
from ..expr.base.node import Mapper, Node
from .buffer import Buffer
from .function import PrimFunc
from .stmt import BlockRealize, BufferStore, Stmt, statements_in

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


@lru_cache(maxsize=8192)
def memory_in(stmt: Stmt) -> frozenset[Any]:
    """Return the buffers and the pointers that ``stmt`` names, in accesses, regions and declarations.

    Results are kept for each statement, because a step of a schedule leaves most of them as they are.
    """
    found: set[Any] = {*stmt.used_buffers(), *stmt.declared_buffers()}
    for part in stmt.children():
        if isinstance(part, Stmt):
            found |= memory_in(part)
        elif type(part) is not IntImm:
            for n in distinct(part):
                if type(n) is not Var:
                    found.update(n.used_buffers())
                elif n.dtype == "handle":
                    found.add(n)
    return frozenset(found)


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
