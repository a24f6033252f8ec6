"""This module defines queries for producers, consumers and output blocks."""

from __future__ import annotations

from ...tir.analysis.tree import tree_of
from ...tir.stmt import PrimFunc
from ...tir.walk import blocks_of
from ..handles import BlockRV
from ..primitive import primitive
from ..require.block_preconditions import consumers_of, producers_of
from ..require.lookup import find_block


@primitive(kind="query")
def get_producers(func: PrimFunc, block: str) -> list[BlockRV]:
    """Return the earlier blocks of the scope that write a buffer which the block reads or writes, in program order."""
    tree = tree_of(func)
    return [BlockRV(r.block.name_hint) for r in producers_of(tree, find_block(tree, block))]


@primitive(kind="query")
def get_consumers(func: PrimFunc, block: str) -> list[BlockRV]:
    """Return the later blocks of the scope that read or overwrite what the block writes, in program order."""
    tree = tree_of(func)
    return [BlockRV(r.block.name_hint) for r in consumers_of(tree, find_block(tree, block))]


@primitive(kind="query")
def get_output_blocks(func: PrimFunc, scope_block: str) -> list[BlockRV]:
    """Return the blocks inside a block, at any depth, that write buffers not allocated there, in program order."""
    tree = tree_of(func)
    scope = find_block(tree, scope_block).block
    inside = [realize.block for realize in blocks_of(scope.body)]
    own = {buffer for block in (scope, *inside) for buffer in block.alloc_buffers}
    return [BlockRV(block.name_hint) for block in inside if any(r.buffer not in own for r in block.writes)]
