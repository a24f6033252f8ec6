"""Vector indices whose lanes are constant distances apart, such as those of neighbouring rows in memory."""

from __future__ import annotations

from collections.abc import Sequence

from ...tir.dtype import element_of, is_int, lanes_of
from ...tir.expr import Add, Broadcast, Cast, Expr, FloorDiv, FloorMod, IntImm, Mul, Ramp, Sub


def constant_lane_offsets(e: Expr) -> tuple[Expr, list[int]] | None:
    """Returns a vector index as one scalar plus a constant per lane, when these are known: ``i + (T.Ramp(0, 1, 8) //
    4)``."""
    if isinstance(e, Broadcast):
        return e.value, [0] * e.lanes
    if isinstance(e, Ramp):
        return (e.base, [n * e.stride.value for n in range(e.lanes)]) if isinstance(e.stride, IntImm) else None
    if isinstance(e, Cast) and is_int(e.dtype) and lanes_of(e.dtype) > 1:
        inner = constant_lane_offsets(e.value)
        return None if inner is None else (inner[0].astype(element_of(e.dtype)), inner[1])
    if not isinstance(e, (Add, Sub, Mul, FloorDiv, FloorMod)) or lanes_of(e.dtype) == 1:
        return None
    a, b = constant_lane_offsets(e.a), constant_lane_offsets(e.b)
    if a is None or b is None:
        return None
    if isinstance(e, Add):
        return a[0] + b[0], [x + y for x, y in zip(a[1], b[1], strict=True)]
    if isinstance(e, Sub):
        return a[0] - b[0], [x - y for x, y in zip(a[1], b[1], strict=True)]
    if any(b[1]) or not isinstance(b[0], IntImm):
        return None
    by = b[0].value
    if isinstance(e, Mul):
        return a[0] * b[0], [x * by for x in a[1]]
    if not isinstance(a[0], IntImm) or by == 0:
        return None
    start, zero = a[0].value, IntImm(0, element_of(e.dtype))
    return zero, [(start + x) // by if isinstance(e, FloorDiv) else (start + x) % by for x in a[1]]


def flat_lanes(indices: Sequence[Expr], strides: Sequence[Expr]) -> tuple[list[tuple[Expr, Expr]], list[int]] | None:
    """Returns the offset of an access as products of scalars and strides, plus a known constant per lane, or None.

    Rows that follow one another in memory are one contiguous range.
    """
    scalars: list[tuple[Expr, Expr]] = []
    total: list[int] = []
    for index, step in zip(indices, strides, strict=True):
        if lanes_of(index.dtype) == 1:
            scalars.append((index, step))
            continue
        found = constant_lane_offsets(index)
        if found is None or (any(found[1]) and not isinstance(step, IntImm)):
            return None
        scalars.append((found[0], step))
        by = step.value if isinstance(step, IntImm) else 0
        total = [t + n * by for t, n in zip(total or [0] * len(found[1]), found[1], strict=True)]
    return scalars, total


def contiguous_start(indices: Sequence[Expr], strides: Sequence[Expr]) -> list[tuple[Expr, Expr]] | None:
    """Returns the start of an access as products of indices and strides when its lanes are contiguous, else None.

    >>> contiguous_start([IntImm(2), Ramp(IntImm(3), IntImm(1), 4)], [IntImm(8), IntImm(1)])
    [(2, 8), (3, 1)]
    """
    flat = flat_lanes(indices, strides)
    if flat is None:
        return None
    places, lanes = flat
    if not lanes or lanes != list(range(lanes[0], lanes[0] + len(lanes))):
        return None
    return [*places, (IntImm(lanes[0]), IntImm(1))] if lanes[0] else places
