"""This module defines queries: blocks, loops, children, sizes, producers, consumers and output blocks.

A query changes nothing; unused ones are dropped from traces.
"""

from __future__ import annotations

from ...tir.analysis.tree import blocks_below, symbols_of, tree_of
from ...tir.expr import Var
from ...tir.stmt import PrimFunc
from ...tir.walk import blocks_of
from ..errors import ScheduleError, nearest, unknown_handle
from ..handles import BlockRV
from ..primitive import primitive
from ..require.block_preconditions import consumers_of, producers_of
from ..require.lookup import find_block, find_loop, root_of


@primitive(kind="query")
def get_block(func: PrimFunc, name: str, func_name: str | None = None) -> BlockRV:
    """Return the block of this name; the outermost one is called ``root``."""
    tree = tree_of(func)
    if name == "root" and name not in tree.blocks:
        return BlockRV(root_of(tree).block.name_hint)
    find_block(tree, name)
    return BlockRV(name)


@primitive
def work_on(func: PrimFunc, func_name: str) -> PrimFunc:
    """Let ``get_block`` and block names refer to this function of the module from now on."""
    return func


@primitive(kind="query")
def get_loops(func: PrimFunc, block: str) -> list[Var]:
    """Return the loops above a block within its scope, outermost first."""
    tree = tree_of(func)
    return [loop.loop_var for loop in tree.loops_above(find_block(tree, block))]


@primitive(kind="query")
def get_child_blocks(func: PrimFunc, block_or_loop: str | Var) -> list[BlockRV]:
    """Return the outermost blocks inside a block, or under a loop, in program order."""
    tree = tree_of(func)
    body = (
        find_loop(tree, block_or_loop).body
        if isinstance(block_or_loop, Var)
        else find_block(tree, block_or_loop).block.body
    )
    return [BlockRV(realize.block.name_hint) for realize in blocks_below(body)]


@primitive(kind="query")
def get_symbol(func: PrimFunc, name: str | int) -> Var:
    """Return the size variable or scalar parameter ``name``, for use in factors and index maps.

    A number counts the scalar parameters and then the sizes, for functions in which several have one name.
    """
    symbols = symbols_of(func)
    if isinstance(name, int) and 0 <= name < len(symbols):
        return symbols[name]
    found = [v for v in symbols if v.name == name]
    if not found:
        raise unknown_handle(
            f"function {func.name} has no size {name!r}", hint=nearest(str(name), [v.name for v in symbols])
        )
    if len(found) > 1:
        places = [n for n, v in enumerate(symbols) if v.name == name]
        raise ScheduleError(
            f"function {func.name} has {len(found)} sizes named {name!r}",
            hint=f"give the number of one: {', '.join(map(str, places))}, or use the variable of a buffer's shape",
        )
    return found[0]


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
