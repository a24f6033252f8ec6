"""Who makes and who uses what: producers, consumers, outputs."""

from __future__ import annotations

from ...tir.function import PrimFunc
from ..analysis import consumers_of, is_output_block, producers_of
from ..handles import BlockRV
from ..primitive import primitive
from ..tree import blocks_below, tree_of

__all__ = ["get_consumers", "get_output_blocks", "get_producers"]


@primitive(kind="query")
def get_producers(func: PrimFunc, block: str) -> list[BlockRV]:
    """The earlier blocks of the scope that write what the block reads, or write it as well, in program order."""
    tree = tree_of(func)
    return [BlockRV(r.block.name_hint) for r in producers_of(tree, tree.block(block))]


@primitive(kind="query")
def get_consumers(func: PrimFunc, block: str) -> list[BlockRV]:
    """The later blocks of the scope that read or overwrite what the block writes, in program order."""
    tree = tree_of(func)
    return [BlockRV(r.block.name_hint) for r in consumers_of(tree, tree.block(block))]


@primitive(kind="query")
def get_output_blocks(func: PrimFunc, scope_block: str) -> list[BlockRV]:
    """The blocks inside a block that write what it does not allocate itself."""
    tree = tree_of(func)
    inside = blocks_below(tree.block(scope_block).block.body)
    return [BlockRV(r.block.name_hint) for r in inside if is_output_block(tree, r)]
