"""This module converts index maps in arguments to the form that a trace keeps."""

from __future__ import annotations

from typing import Any

from ...tir.analysis.tree import symbols_of, tree_of
from ...tir.stmt import PrimFunc
from ..handles import BlockRV
from ..index_map import IndexMap


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
    """Return the name of a block that is given by name or handle."""
    return block.name if isinstance(block, BlockRV) else str(block)
