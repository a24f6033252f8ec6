"""Says where the lanes of an access lie. That is the offset of the first one, and their distance where they are evenly
spaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...tir.expr import Broadcast, Expr, IntImm, Ramp
from ...tir.stmt import Buffer
from ..constant_lanes import flat_lanes

Products = tuple[tuple[Expr, Expr], ...]
"""Products of an index and a stride, whose sum is an offset in elements."""

NEAR = 4
"""The largest distance of lanes, in elements, at which code generation picks them out of whole vectors."""

_ONE = IntImm(1)


@dataclass(frozen=True, slots=True)
class LaneOffsets:
    """The offsets of an access from the buffer's data.

    The first lane is at the sum of ``start``, and the others are the sum of ``apart`` apart. Lanes that are not evenly
    spaced also lie at the sum of ``irregular``, products of vectors and strides. ``unit`` scales ``start``: it is the
    number of lanes in an element that is a vector itself.
    """

    start: Products
    apart: Products = ()
    irregular: Products = ()
    unit: int = 1

    @property
    def distance(self) -> int | None:
        """Return the distance of neighbouring lanes when it is a constant."""
        if self.irregular or not all(isinstance(e, IntImm) for product in self.apart for e in product):
            return None
        return sum([a.value * b.value for a, b in self.apart if isinstance(a, IntImm) and isinstance(b, IntImm)])


def lane_offsets(buffer: Buffer, indices: tuple[Expr, ...], strides: tuple[Expr, ...]) -> LaneOffsets:
    """Returns the offsets of an access to ``buffer``, whose strides in elements are given.

    ValueError for a vector index into a buffer of vectors.
    """
    wide, offset = buffer.dtype.lanes, buffer.elem_offset
    plain = isinstance(offset, IntImm) and offset.value == 0
    start: list[tuple[Expr, Expr]] = [] if plain else [(offset, _ONE)]
    apart: list[tuple[Expr, Expr]] = []
    irregular: list[tuple[Expr, Expr]] = []
    for index, step in zip(indices, strides, strict=True):
        if index.dtype.lanes == 1:
            start.append((index, step))
        elif wide > 1:
            raise ValueError(f"a vector index into {buffer.name}, whose elements are vectors ({buffer.dtype})")
        elif isinstance(index, Broadcast):
            start.append((index.value, step))
        elif isinstance(index, Ramp):
            start.append((index.base, step))
            apart.append((index.stride, step))
        else:
            irregular.append((index, step))
    if wide > 1:
        return LaneOffsets(tuple(start), ((_ONE, _ONE),), unit=wide)
    if irregular:
        even = _even_lanes(indices, strides)
        if even is not None:
            return LaneOffsets((*([] if plain else [(offset, _ONE)]), *even[0]), ((IntImm(even[1]), _ONE),))
    return LaneOffsets(tuple(start), tuple(apart), tuple(irregular))


def _even_lanes(indices: Sequence[Expr], strides: Sequence[Expr]) -> tuple[Products, int] | None:
    """Returns the offset of the first lane and the distance of neighbouring ones, or None unless they are evenly spaced."""
    flat = flat_lanes(indices, strides)
    gaps = [] if flat is None else [b - a for a, b in zip(flat[1], flat[1][1:], strict=False)]
    if flat is None or len(set(gaps)) != 1:
        return None
    return ((IntImm(flat[1][0]), IntImm(1)), *flat[0]), gaps[0]
