"""This module finds the accesses and the blocks of programs."""

from __future__ import annotations

from collections.abc import Iterator

from ..expr import BufferLoad, Expr, pre_order
from ..expr.base.node import Node
from .function import PrimFunc
from .stmt import BlockRealize, BufferStore, Stmt


def loads_and_stores(node: Node) -> Iterator[BufferLoad | BufferStore]:
    """Yield every access in bodies and inits; the regions that blocks declare do not count."""
    for n in pre_order(node):
        if isinstance(n, (BufferLoad, BufferStore)):
            yield n


def blocks_of(node: PrimFunc | Stmt) -> Iterator[BlockRealize]:
    """Yield every block realization, outermost first, in program order."""
    for n in pre_order(node, lambda n: not isinstance(n, Expr)):
        if isinstance(n, BlockRealize):
            yield n
