"""Partitions a register tile into values, according to the elements at which it is read and written."""

from __future__ import annotations

from collections.abc import Iterable

Slot = tuple[int, int]
"""The first element of an access and its number of lanes."""
_MOST_PIECES = 8


def partition_accesses(slots: Iterable[Slot], stored: set[Slot]) -> dict[Slot, tuple[Slot, ...]] | None:
    """Returns, for each slot, the value that holds it or the values that it consists of, or None.

    A vector whose parts are only read is one value:

    >>> partition_accesses([(0, 16), (8, 4)], {(0, 16)})
    {(0, 16): ((0, 16),), (8, 4): ((0, 16),)}

    A vector that is written in parts is one value for each part, all of equal length:

    >>> partition_accesses([(0, 32), (0, 16), (16, 16)], {(0, 16), (16, 16)})
    {(0, 32): ((0, 16), (16, 16)), (0, 16): ((0, 16),), (16, 16): ((16, 16),)}

    The result is None when the parts have different lengths:

    >>> partition_accesses([(0, 32), (8, 16)], {(8, 16)}) is None
    True
    """
    ordered = sorted(slots, key=lambda s: (s[0], -s[1]))
    out: dict[Slot, tuple[Slot, ...]] = {}
    start = 0
    while start < len(ordered):
        end, reach = start + 1, ordered[start][0] + ordered[start][1]
        while end < len(ordered) and ordered[end][0] < reach:
            reach = max(reach, ordered[end][0] + ordered[end][1])
            end += 1
        found = _partition_overlapping(ordered[start:end], reach, stored)
        if found is None:
            return None
        out.update(found)
        start = end
    return out


def _partition_overlapping(slots: list[Slot], reach: int, stored: set[Slot]) -> dict[Slot, tuple[Slot, ...]] | None:
    """Returns :func:`partition_accesses` for slots that overlap one another."""
    whole = slots[0]  # the longest of the slots with the least start
    if whole[0] + whole[1] == reach and all(s == whole or s not in stored for s in slots):
        return dict.fromkeys(slots, (whole,))
    begin = whole[0]
    cuts = sorted({s[0] for s in slots} | {s[0] + s[1] for s in slots})
    step = cuts[1] - begin
    if cuts != list(range(begin, reach + 1, step)) or step & (step - 1):
        return None
    out: dict[Slot, tuple[Slot, ...]] = {}
    for first, lanes in slots:
        pieces = lanes // step
        if pieces > _MOST_PIECES or pieces & (pieces - 1):
            return None
        out[first, lanes] = tuple([(at, step) for at in range(first, first + lanes, step)])
    return out
