"""Finds the cache lines of a buffer that one iteration of a loop reads. It also finds the loops inside that may
prefetch them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...tir.analysis.access import Access, accesses_below
from ...tir.arith import Analyzer, linear_coefficients
from ...tir.expr import Expr, IntImm, Ramp, TruncDiv, const
from ...tir.expr.base.node import Node
from ...tir.stmt import Buffer, For, Stmt, While
from ...tir.walk import substitute, uses_var


@dataclass(frozen=True)
class Lines:
    """The lines of elements that one iteration of a loop reads.

    These are ``run`` contiguous elements from ``start``, repeated by ``rows``, which are pairs of a stride and a number,
    the shortest stride first. A line has ``per_line`` elements.
    """

    buffer: Buffer
    start: Expr
    run: int
    rows: tuple[tuple[int, int], ...]
    per_line: int

    @property
    def count(self) -> int:
        """The number of lines."""
        return -(-self.run // self.per_line) * math.prod(number for _, number in self.rows)

    def place(self, number: Expr) -> Expr:
        """Return the offset of the line ``number`` from the start."""
        lines_of_run = -(-self.run // self.per_line)
        row = divided(number, lines_of_run)
        place = (number - row * lines_of_run) * self.per_line if self.rows else number * self.per_line
        for n, (stride, extent) in enumerate(self.rows):
            outer = divided(row, extent)
            place = place + (row if n == len(self.rows) - 1 else row - outer * extent) * stride
            row = outer
        return place


def lines_read(loop: For, name: str, line: int) -> Lines | None:
    """Returns the lines of ``line`` bytes of the buffer ``name`` that one iteration reads, or None.

    None is returned where what it reads does not form a box, or does not change with the loop. Of several boxes, which
    loads in different loops read, it is the largest.
    """
    groups: dict[tuple[int, ...], list[_Load]] = {}
    for access in accesses_below(loop.body).elements:
        if access.buffer.name == name and not access.is_store and not access.around.in_while:
            load = _load(access)
            if load is not None:
                groups.setdefault(tuple(map(id, access.loops)), []).append(load)
    found = [part for part in [_lines(loads, line) for loads in groups.values()] if part is not None]
    moving = [part for part in found if uses_var(part.start, loop.loop_var)]
    return max(moving, key=lambda p: p.run * math.prod(number for _, number in p.rows), default=None)


@dataclass(frozen=True)
class _Load:
    """A load with the offset of its first lane, and the lanes as (stride, number)."""

    access: Access
    place: Expr
    lanes: tuple[tuple[int, int], ...]


def _load(access: Access) -> _Load | None:
    place: Expr = const(0)
    lanes = []
    for index, stride in zip(access.indices, access.buffer.element_strides(), strict=True):
        first = index
        if isinstance(index, Ramp):
            step = Analyzer().simplify(index.stride * stride)
            if not isinstance(step, IntImm):
                return None
            first = index.base
            lanes.append((step.value, index.lanes))
        if first.dtype not in ("int32", "int64"):
            return None
        place = place + first * stride
    return _Load(access, place, tuple(lanes))


def _lines(loads: Sequence[_Load], line: int) -> Lines | None:
    """Returns the lines that loads in the same loops read, or None where these do not form a box."""
    first, loops = loads[0], loads[0].access.loops
    analyzer = Analyzer()
    found = linear_coefficients(first.place, [loop.loop_var for loop in loops], analyzer)
    if found is None:
        return None
    dims = list(first.lanes)
    for loop, by in zip(loops, found[0], strict=True):
        if not (isinstance(by, IntImm) and by.value >= 0):
            return None
        if by.value:
            if not isinstance(loop.extent, IntImm):
                return None
            dims.append((by.value, loop.extent.value))
    apart = [analyzer.simplify(load.place - first.place) for load in loads]
    offsets = sorted({a.value for a in apart if isinstance(a, IntImm)})
    dims += _progression(offsets)
    run = 1
    rows: list[tuple[int, int]] = []
    for stride, number in sorted(d for d in dims if d[1] > 1):
        if stride <= run:
            run += stride * (number - 1)
        elif rows and rows[-1][0] * rows[-1][1] == stride:
            rows[-1] = (rows[-1][0], rows[-1][1] * number)
        else:
            rows.append((stride, number))
    start = analyzer.simplify(substitute(first.place, {loop.loop_var: loop.min for loop in loops}) + offsets[0])
    buffer = first.access.buffer
    return Lines(buffer, start, run, tuple(rows), max(1, line // buffer.dtype.element.bytes))


def _progression(offsets: Sequence[int]) -> list[tuple[int, int]]:
    """Returns sorted numbers as sums of steps, (stride, number) each. Numbers that do not fit are covered by additional
    steps.

    >>> _progression([0, 16, 768, 784])
    [(16, 2), (768, 2)]
    """
    if len(offsets) < 2:
        return []
    stride = offsets[1] - offsets[0]
    number = 1
    while number < len(offsets) and offsets[number] == offsets[0] + number * stride:
        number += 1
    heads = offsets[::number]
    whole = [head + n * stride for head in heads for n in range(number)]
    if whole != list(offsets):
        gap = min(b - a for a, b in zip(offsets, offsets[1:], strict=False))
        return [(gap, (offsets[-1] - offsets[0]) // gap + 1)]
    return [(stride, number), *_progression(heads)]


# -- the loops inside ----------------------------------------------------------------------------------------------------


def largest_nest(loop: For) -> tuple[For, ...] | None:
    """Returns the nest of serial loops of known extents inside ``loop`` with the most iterations, from outside in."""
    return max(_nests(loop), key=trip_count, default=None)


def _nests(s: Node, loops: tuple[For, ...] = ()) -> Iterator[tuple[For, ...]]:
    """Returns the nests below ``s``, from outside in, down to each innermost loop."""
    for child in s.children():
        if not isinstance(child, Stmt) or isinstance(child, While):
            continue
        if not isinstance(child, For):
            yield from _nests(child, loops)
        elif child.kind == "serial" and isinstance(child.extent, IntImm):
            inside = list(_nests(child, (*loops, child)))
            yield from inside or [(*loops, child)]


def trip_count(nest: Sequence[For]) -> int:
    """Returns the number of iterations of a nest in all."""
    return math.prod(loop.extent.value for loop in nest)  # type: ignore[attr-defined]


def iteration_number(nest: Sequence[For], dtype: str) -> Expr:
    """Returns how many iterations of a nest came before."""
    count: Expr = const(0, dtype)
    for loop in nest:
        count = count * loop.extent + (loop.loop_var - loop.min)
    return count


def divided(e: Expr, by: int) -> Expr:
    """Returns ``e``, which is not negative, divided by ``by``."""
    return e if by == 1 else TruncDiv(e, const(by, e.dtype))
