"""Finds the part of a buffer that a tile (:mod:`tilewright.tir.expr.intrinsics.matrix_operations`) covers. Its rows lie along one dimension, its
columns along the last, and the panels into which columns are cut along a third one. Rows and columns are those of memory; operands that
lie there transposed have them the other way around."""

from __future__ import annotations

from ...tir.arith import Analyzer
from ...tir.expr import BufferLoad, Call, Expr, IntImm
from ...tir.expr.intrinsics.matrix_operations import GROUP_ROWS, GROUP_STEPS, PANEL, TILE_ROWS, WARP_LOADS
from ...tir.expr.node import IRNode
from ...tir.stmt import Buffer

_ROWS = {
    **dict.fromkeys(("tir.tile_load", "tir.tile_store", *WARP_LOADS, "tir.wmma_store"), TILE_ROWS),
    "tir.wgmma_left": GROUP_ROWS, "tir.wgmma_left_t": GROUP_STEPS, "tir.wgmma_right": GROUP_STEPS, "tir.wgmma_right_t": 0,
    "tir.wgmma_store": GROUP_ROWS,
}  # fmt: skip
"""The operations that load or store rows of memory from an address on, and how many: of processors, of warps and of warp groups. 0: as
many as the tile has numbers for, 16 in each."""


def tile_access(n: IRNode) -> BufferLoad | None:
    """Returns the first element of the tile that ``n`` loads or stores, or None for other nodes."""
    if not isinstance(n, Call) or n.op not in _ROWS:
        return None
    address = n.args[0]
    first = address.args[0] if isinstance(address, Call) else None
    return first if isinstance(first, BufferLoad) else None


def stores_tile(n: Call) -> bool:
    """Returns whether an operation on a tile writes it."""
    return n.op.endswith("_store")


def tile_rows(n: Call) -> int:
    """Returns the rows in memory of the tile that ``n`` loads or stores."""
    return _ROWS[n.op] or _lanes(n) // GROUP_STEPS


def tile_spans(n: Call, buffer: Buffer) -> dict[int, int] | None:
    """Returns how many indices of ``buffer`` the tile covers along each dimension in which it lies. Columns lie along
    the last dimension, and each stride of ``n`` has a dimension of its own; None for a tile that lies otherwise."""
    strides = buffer.element_strides()
    if not strides or not _equal(strides[-1], IntImm(1)):
        return None
    out: dict[int, int] = {}
    for stride, count in _counts(n):
        d = _dimension(buffer, strides, stride, count)
        if d is None:
            return None
        out[d] = count
    return out


def restrided(n: Call, before: Buffer, after: Buffer) -> Call:
    """Returns an operation on a tile of ``before`` with the strides of ``after``, which has the same dimensions."""
    new, args = after.element_strides(), list(n.args)
    for position, (stride, count) in enumerate(_counts(n)[1:], start=1):
        d = _dimension(before, before.element_strides(), stride, count)
        assert d is not None
        args[position] = new[d].astype(n.args[position].dtype)
    return Call(n.op, tuple(args), n.dtype)


def _counts(n: Call) -> list[tuple[Expr | None, int]]:
    """Returns the columns, then the rows and the panels, each with its stride; None for the columns'."""
    rows = tile_rows(n)
    columns = _lanes(n) // rows
    if n.op != "tir.wgmma_right":
        return [(None, columns), (n.args[1], rows)]
    return [(None, PANEL), (n.args[1], rows), (n.args[2], columns // PANEL)]


def _lanes(n: Call) -> int:
    return (n.args[2].dtype if stores_tile(n) else n.dtype).lanes


def _dimension(buffer: Buffer, strides: tuple[Expr, ...], stride: Expr | None, count: int) -> int | None:
    last = len(strides) - 1
    for d in [last] if stride is None else reversed(range(last)):
        extent = buffer.shape[d]
        if stride is None:
            return d if isinstance(extent, IntImm) and extent.value >= count else None
        wide = not isinstance(extent, IntImm) or extent.value >= count
        if wide and _equal(strides[d], stride):
            return d
    return None


def _equal(a: Expr, b: Expr) -> bool:
    return Analyzer().can_prove_equal(a, b.astype(a.dtype))
