"""This module converts index maps in arguments to recorded form, and checks the loop nest of a single block."""

from __future__ import annotations

from typing import Any

from ...tir.analysis.tree import Tree, symbols_of, tree_of
from ...tir.arith import Analyzer, bind_sizes
from ...tir.expr import BufferLoad
from ...tir.function import PrimFunc
from ...tir.stmt import BlockRealize, BufferStore
from ...tir.walk import transform
from ..handles import BlockRV
from ..index_map import IndexMap, simplify_unless_constant


def as_recorded(func: PrimFunc, index_map: Any, ndim: int | None) -> Any:
    """Return the recorded form of an index map over ``ndim`` indices; it may use scalar parameters and sizes of
    ``func``."""
    return index_map if isinstance(index_map, str) else IndexMap.of(index_map, ndim, symbols_of(func)).recorded()


def map_of_axes(func: PrimFunc, block: Any, index_map: Any) -> Any:
    """Return the recorded form of a map over the axes of ``block``, which may be a function of ``*axes``."""
    found = tree_of(func).blocks.get(block_name(block))
    return as_recorded(func, index_map, len(found[0].block.iter_vars) if found else None)


def prepared_map(func: PrimFunc, block: Any, index_map: Any, **_: Any) -> dict[str, Any]:
    """Return the argument ``index_map``, a map over the axes of ``block``, in recorded form; for ``prepare``."""
    return {"index_map": map_of_axes(func, block, index_map)}


def block_name(block: Any) -> str:
    return block.name if isinstance(block, BlockRV) else str(block)


def sized_analyzer(func: PrimFunc) -> Analyzer:
    analyzer = Analyzer()
    bind_sizes(analyzer, func.buffer_map.values())
    return analyzer


def has_trivial_bindings(tree: Tree, realize: BlockRealize) -> bool:
    """Return whether the axes of a block are bound to the loops of its scope one to one, in order."""
    loops = tree.loops_above(realize)
    return len(loops) == len(realize.iter_values) and all(
        value is loop.loop_var for value, loop in zip(realize.iter_values, loops, strict=True)
    )


def tidy(stmt: Any, analyzer: Analyzer) -> Any:
    """Return a body with simplified indices."""

    def post(n: Any) -> Any:
        if isinstance(n, BufferLoad):
            return BufferLoad(n.buffer, tuple([simplify_unless_constant(analyzer, i) for i in n.indices]), n.predicate)
        if isinstance(n, BufferStore):
            indices = tuple([simplify_unless_constant(analyzer, i) for i in n.indices])
            return BufferStore(n.buffer, n.value, indices, n.predicate)
        return None

    return transform(stmt, post=post)
