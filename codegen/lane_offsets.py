"""Says where the lanes of an access lie: the first one, and their distance where they are evenly spaced.

Vector indices may have lanes of known values or distances, such as those of neighbouring rows in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..tir.expr import (
    Add,
    And,
    Broadcast,
    Cast,
    CmpOp,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Mul,
    Not,
    Or,
    Ramp,
    Select,
    Sub,
    make_binary,
    structural_equal,
)
from ..tir.stmt import Buffer

Offsets = tuple[Expr, list[int]]
"""A scalar, and what each lane adds to it."""


def constant_lane_offsets(e: Expr) -> Offsets | None:
    """Returns a vector index as one scalar plus a constant per lane, or None when these are not known. An example is
    ``i + (T.Ramp(0, 1, 8) // 4)``."""
    rule = _OFFSETS.get(type(e))
    return None if rule is None or e.dtype.lanes == 1 else rule(e)


def _offsets_of_ramp(e: Ramp) -> Offsets | None:
    stride = e.stride
    return (e.base, [n * stride.value for n in range(e.lanes)]) if isinstance(stride, IntImm) else None


def _offsets_of_cast(e: Cast) -> Offsets | None:
    inner = constant_lane_offsets(e.value) if e.dtype.is_int else None
    return None if inner is None else (inner[0].astype(e.dtype.element), inner[1])


def _offsets_of_sum(e: Add | Sub) -> Offsets | None:
    a, b = constant_lane_offsets(e.a), constant_lane_offsets(e.b)
    if a is None or b is None:
        return None
    sign = 1 if isinstance(e, Add) else -1
    return make_binary(type(e), a[0], b[0]), [x + sign * y for x, y in zip(a[1], b[1], strict=True)]


def _offsets_by_constant(e: Mul | FloorDiv | FloorMod) -> Offsets | None:
    a, b = constant_lane_offsets(e.a), constant_lane_offsets(e.b)
    if a is None or b is None or any(b[1]) or not isinstance(b[0], IntImm):
        return None
    by = b[0].value
    if isinstance(e, Mul):
        return a[0] * b[0], [x * by for x in a[1]]
    if not isinstance(a[0], IntImm) or by == 0:
        return None
    start, zero = a[0].value, IntImm(0, e.dtype.element)
    return zero, [(start + x) // by if isinstance(e, FloorDiv) else (start + x) % by for x in a[1]]


def _offsets_of_choice(e: Select) -> Offsets | None:
    """Returns the offsets of a choice that is known for each lane, between two vectors from one place."""
    mask = known_mask(e.condition)
    a, b = constant_lane_offsets(e.true_value), constant_lane_offsets(e.false_value)
    if mask is None or a is None or b is None:
        return None
    apart = 0
    if isinstance(a[0], IntImm) and isinstance(b[0], IntImm):
        apart = b[0].value - a[0].value
    elif not structural_equal(a[0], b[0]):
        return None
    return a[0], [x if held else y + apart for held, x, y in zip(mask, a[1], b[1], strict=True)]


_OFFSETS: dict[type, Callable[[Any], Offsets | None]] = {
    Add: _offsets_of_sum,
    Broadcast: lambda e: (e.value, [0] * e.lanes),
    Cast: _offsets_of_cast,
    FloorDiv: _offsets_by_constant,
    FloorMod: _offsets_by_constant,
    Mul: _offsets_by_constant,
    Ramp: _offsets_of_ramp,
    Select: _offsets_of_choice,
    Sub: _offsets_of_sum,
}


def flat_lanes(indices: Sequence[Expr], strides: Sequence[Expr]) -> tuple[list[tuple[Expr, Expr]], list[int]] | None:
    """Returns the offset of an access as products of scalars and strides, plus a known constant per lane, or None.

    Rows that follow one another in memory are one contiguous range.
    """
    scalars: list[tuple[Expr, Expr]] = []
    total: list[int] = []
    for index, step in zip(indices, strides, strict=True):
        if index.dtype.lanes == 1:
            scalars.append((index, step))
            continue
        found = constant_lane_offsets(index)
        if found is None or (any(found[1]) and not isinstance(step, IntImm)):
            return None
        scalars.append((found[0], step))
        by = step.value if isinstance(step, IntImm) else 0
        total = [t + n * by for t, n in zip(total or [0] * len(found[1]), found[1], strict=True)]
    return scalars, total


def known_mask(e: Expr) -> list[bool] | None:
    """Returns which lanes of a condition hold, or None where that depends on more than the lane.

    >>> known_mask(Ramp(IntImm(0), IntImm(1), 4) % Broadcast(IntImm(2), 4) < Broadcast(IntImm(1), 4))
    [True, False, True, False]
    """
    if isinstance(e, (And, Or)):
        a, b = known_mask(e.a), known_mask(e.b)
        joined = all if isinstance(e, And) else any
        return None if a is None or b is None else [joined(pair) for pair in zip(a, b, strict=True)]
    if isinstance(e, Not):
        inner = known_mask(e.a)
        return None if inner is None else [not held for held in inner]
    if not isinstance(e, CmpOp):
        return None
    sides = [constant_lane_offsets(side) for side in (e.a, e.b)]
    numbers = [
        [found[0].value + n for n in found[1]] for found in sides if found is not None and isinstance(found[0], IntImm)
    ]
    return [bool(e.compute(a, b)) for a, b in zip(*numbers, strict=True)] if len(numbers) == 2 else None


def value_in_lane(e: Expr, lane: Expr) -> Expr | None:
    """Returns the value of a vector index in one lane, or None when it is not known.

    >>> value_in_lane(Ramp(IntImm(3), IntImm(2), 4) * Broadcast(IntImm(5), 4), IntImm(1))
    25
    """
    if isinstance(e, Ramp):
        return e.base + e.stride * lane
    if isinstance(e, Broadcast):
        return e.value
    if isinstance(e, (Add, Sub, Mul, FloorDiv, FloorMod)):
        a, b = value_in_lane(e.a, lane), value_in_lane(e.b, lane)
        return None if a is None or b is None else make_binary(type(e), a, b)
    return None


def constant_run(indices: Sequence[Expr], strides: Sequence[int]) -> tuple[int, int] | None:
    """Returns the first element of an access and its number of lanes, or None unless it is constant and contiguous.

    >>> constant_run([IntImm(2), Ramp(IntImm(3), IntImm(1), 4)], [8, 1])
    (19, 4)
    """
    first, lanes = 0, 1
    for index, step in zip(indices, strides, strict=True):
        if type(index) is Ramp and lanes == 1 and type(index.stride) is IntImm and index.stride.value * step == 1:
            lanes, index = index.lanes, index.base
        if type(index) is not IntImm:
            return _constant_rows(indices, strides)
        first += index.value * step
    return first, lanes


def _constant_rows(indices: Sequence[Expr], strides: Sequence[int]) -> tuple[int, int] | None:
    """Returns :func:`constant_run` for contiguous rows, written as ``T.Ramp(0, 1, 256) // 16`` and similarly."""
    flat = flat_lanes(indices, [IntImm(step) for step in strides])
    if flat is None:
        return None
    places, lanes = flat
    if not lanes or lanes != list(range(lanes[0], lanes[0] + len(lanes))):
        return None
    if not all(isinstance(place, IntImm) for place, _ in places):
        return None
    return lanes[0] + sum(place.value * step.value for place, step in places), len(lanes)  # type: ignore[attr-defined]


Products = tuple[tuple[Expr, Expr], ...]
"""Products of an index and a stride, whose sum is an offset in elements."""

NEAR = 4
"""The largest distance of lanes, in elements, at which code generation picks them out of whole vectors."""


def lanes_are_near(indices: Sequence[Expr], strides: Sequence[Expr]) -> bool:
    """Returns whether the lanes of an access lie at known places that are near one another.

    The stretch of memory that holds them is at most :data:`NEAR` times as long as the vector.
    """
    flat = flat_lanes(indices, strides)
    return flat is not None and bool(flat[1]) and max(flat[1]) - min(flat[1]) < NEAR * len(flat[1])


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
