"""This module finds the stages of a row: blocks that share their leading axes, of which one reduces the others."""

from __future__ import annotations

from collections.abc import Sequence

from ..program import BlockInfo, Program


def row_group(program: Program, block: BlockInfo, free: Sequence[BlockInfo]) -> tuple[BlockInfo, ...] | None:
    """Returns the blocks among ``free`` that are computed with ``block``, a reduction, row by row, in program order.

    Only the last one may be read by others, or be a result. None when ``block`` is not such a reduction.
    """
    if not block.is_reduction or block.block.init is None or not _in_order(block):
        return None
    members = _grow(program, block, free)
    while members:
        last = members[-1]
        inner = [b for b in members if b is not last]
        stray = [b for b in inner if program.is_output(b) or not set(program.consumers(b)) <= set(members)]
        if not stray:
            return tuple(members)
        if block in stray:
            members = [block] if len(members) > 1 else []
        else:
            members = [b for b in members if b not in stray]
    return None


def rows_agree(members: Sequence[BlockInfo], last: BlockInfo, rank: int) -> bool:
    """Returns whether all of ``members`` have the first ``rank`` axes of ``last``, and read each other's rows alone."""
    rows = [last.extents[v] for v in last.spatial[:rank]]
    shared = all(_in_order(b) and [b.extents[v] for v in b.spatial[:rank]] == rows for b in members)
    return shared and _row_by_row(set(members), rank)


def _grow(program: Program, block: BlockInfo, free: Sequence[BlockInfo]) -> list[BlockInfo]:
    rows = [block.extents[v] for v in block.spatial]
    members = {block}
    grown = True
    while grown:
        grown = False
        for other in free:
            near = any(other in program.producers(m) or other in program.consumers(m) for m in members)
            if other not in members and near and _fits(other, rows) and _row_by_row(members | {other}, len(rows)):
                members.add(other)
                grown = True
    return [b for b in program.blocks if b in members]


def _in_order(block: BlockInfo) -> bool:
    """Returns whether every buffer it writes is written at its spatial axes, in order, and they stand before the
    others."""
    if block.axes != (*block.spatial, *block.reduce):
        return False
    return block.fills_in_order or all(use.is_at(block.spatial) for use in block.stores)


def _fits(block: BlockInfo, rows: Sequence[int]) -> bool:
    if not _in_order(block) or not block.axes:  # what follows one element has its own loops, and threads to share them
        return False
    extents = [block.extents[v] for v in block.spatial]
    if block.is_reduction:
        return extents == list(rows) and block.block.init is not None
    return extents[: len(rows)] == list(rows)


def _row_by_row(members: set[BlockInfo], rank: int) -> bool:
    """Returns whether what one member reads of another lies in the same row."""
    written = {use.buffer for b in members for use in b.stores}
    return all(
        [dict(d or {}) for d in use.dims[:rank]] == [{v: 1} for v in b.spatial[:rank]] and not any(use.offsets[:rank])
        for b in members for use in b.loads if use.buffer in written
    )  # fmt: skip
