"""The part of a buffer that a tile (:mod:`tilewright.tir.tiles`) covers: its rows along one dimension, its columns
along the last."""

from __future__ import annotations

from ...tir.arith import Analyzer
from ...tir.expr import BufferLoad, Call, Expr, IntImm
from ...tir.expr.base.node import Node
from ...tir.expr.intrinsics.tile_operations import TILE_ROWS
from ...tir.stmt import Buffer

TILE_ACCESSES = ("tir.tile_load", "tir.tile_store", "tir.wmma_load_a", "tir.wmma_load_b", "tir.wmma_store")
"""The operations that load or store 16 rows from an address on: of processors, and of the warps of a GPU."""


def tile_access(n: Node) -> BufferLoad | None:
    """Returns the first element of the tile that ``n`` loads or stores, or None for other nodes."""
    if not isinstance(n, Call) or n.op not in TILE_ACCESSES:
        return None
    address = n.args[0]
    first = address.args[0] if isinstance(address, Call) else None
    return first if isinstance(first, BufferLoad) else None


def tile_columns(n: Call) -> int:
    """Returns the number of elements in a row of the tile."""
    return (n.args[2].dtype if n.op.endswith("_store") else n.dtype).lanes // TILE_ROWS


def tile_rows_along(n: Call, buffer: Buffer) -> int | None:
    """Returns the dimension of ``buffer`` along which the rows of the tile lie, one index apart, or None."""
    columns, last = tile_columns(n), buffer.shape[-1] if buffer.shape else None
    if not isinstance(last, IntImm) or last.value < columns:
        return None
    strides = buffer.element_strides()
    for d in reversed(range(len(buffer.shape) - 1)):
        extent = buffer.shape[d]
        wide = not isinstance(extent, IntImm) or extent.value >= TILE_ROWS
        if wide and _equal(strides[d], n.args[1]) and _equal(strides[-1], IntImm(1)):
            return d
    return None


def _equal(a: Expr, b: Expr) -> bool:
    return Analyzer().can_prove_equal(a, b.astype(a.dtype))
