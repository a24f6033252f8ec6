"""Prefetches data for the next iteration of an outer loop, in small parts during the inner loops."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...tir.analysis.access import Access, accesses_below
from ...tir.arith import Analyzer, linear_coefficients
from ...tir.buffer import Buffer
from ...tir.expr import BufferLoad, Call, Expr, IntImm, Min, Ramp, TruncDiv, Var, const
from ...tir.function import PrimFunc
from ...tir.node import Node
from ...tir.stmt import Evaluate, For, Stmt, While, seq
from ...tir.walk import replace_node, substitute, uses_var
from ..machine.target import Target

NEXT = "pragma_prefetch_next"
_MOST_LINES = 64


def interleave_prefetches(func: PrimFunc, target: Target) -> PrimFunc:
    """Insert prefetches for the next iteration of loops with ``pragma_prefetch_next = ["B"]``.

    While one iteration computes, the part of ``B`` that the next one reads is brought into the second-level cache,
    evenly spread over the inner loops. This is meant for an operand that comes from beyond that cache and is read or
    copied in one go: otherwise its first use waits for memory, and memory is idle during all other work. The part may
    be contiguous, or consist of rows that lie apart. After the last iteration comes the first one of the next iteration
    of the enclosing loop, if that loop is serial.

    Before (``B`` has 64 floats, 4 cache lines, per iteration of ``p``)::

        for p in T.serial(8, annotations={"pragma_prefetch_next": ["B"]}):
            for i in range(4):
                for k in range(4): ... B[p, k, 0:16] ...

    After::

        for p in range(8):
            for i in range(4):
                for k in range(4):
                    T.prefetch(T.address_of(B_flat[(p + 1) * 64 + T.min((i * 4 + k) // 4, 3) * 16]), 0, 2)
                    ... B[p, k, 0:16] ...

    The nest of inner loops with the most iterations holds the prefetches, whether it reads ``B`` or not. Where the
    address does not change with the loop, or not evenly with the loops inside, nothing is prefetched.
    """
    return func.with_body(_visit(func.body, None, target.caches.line, {}))


def _visit(s: Stmt, around: For | None, line: int, views: dict[Buffer, Buffer]) -> Stmt:
    """Returns ``s``, which stands in the loop ``around``, with its prefetches. ``views`` are the flat buffers made so
    far."""
    if isinstance(s, For):
        loop = s.with_(body=_visit(s.body, s, line, views))
        if NEXT not in s.annotations:
            return loop
        names = [str(getattr(name, "value", name)) for name in s.annotations[NEXT]]
        loop = loop.with_(annotations={k: v for k, v in s.annotations.items() if k != NEXT})
        for name in names:
            loop = _spread(loop, name, around, line, views)
        return loop
    rest: Stmt = s.map_children(lambda c: _visit(c, around, line, views) if isinstance(c, Stmt) else c)
    return rest


@dataclass(frozen=True)
class _Read:
    """A load below the annotated loop. It holds the loops between, from outside in, the offset in elements, and the
    lanes as (stride, number)."""

    buffer: Buffer
    loops: tuple[For, ...]
    place: Expr
    lanes: tuple[tuple[int, int], ...]


def _reads(loop: For, name: str) -> list[_Read]:
    """Returns the loads of the buffer ``name`` in a loop; how much a ``while`` reads is unknown."""
    found = accesses_below(loop.body).elements
    mine = [a for a in found if a.buffer.name == name and not a.is_store and not a.around.in_while]
    return [read for read in map(_read, mine) if read is not None]


def _read(load: Access) -> _Read | None:
    place: Expr = const(0)
    lanes = []
    for index, stride in zip(load.indices, load.buffer.element_strides(), strict=True):
        first = index
        if isinstance(index, Ramp):
            step = index.stride * stride
            step = Analyzer().simplify(step)
            if not isinstance(step, IntImm):
                return None
            first = index.base
            lanes.append((step.value, index.lanes))
        if first.dtype not in ("int32", "int64"):
            return None
        place = place + first * stride
    return _Read(load.buffer, load.loops, place, tuple(lanes))


@dataclass(frozen=True)
class _Part:
    """The elements that one iteration of the annotated loop reads: ``run`` contiguous elements from ``start``, repeated
    by ``rows``, which are pairs of a stride and a number, the shortest stride first."""

    buffer: Buffer
    start: Expr
    run: int
    rows: tuple[tuple[int, int], ...]

    @property
    def elements(self) -> int:
        """The number of elements."""
        return self.run * math.prod(number for _, number in self.rows)


def _part(reads: Sequence[_Read]) -> _Part | None:
    """Returns the elements that loads in the same loops read, or None where these do not form a box."""
    first = reads[0]
    analyzer = Analyzer()
    found = linear_coefficients(first.place, [loop.loop_var for loop in first.loops], analyzer)
    if found is None:
        return None
    dims = list(first.lanes)
    for loop, by in zip(first.loops, found[0], strict=True):
        by = analyzer.simplify(by)
        if not (isinstance(by, IntImm) and by.value >= 0):
            return None
        if by.value and not isinstance(loop.extent, IntImm):
            return None
        if by.value:
            dims.append((by.value, loop.extent.value))  # type: ignore[attr-defined]
    apart = [analyzer.simplify(read.place - first.place) for read in reads]
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
    start = substitute(first.place, {loop.loop_var: loop.min for loop in first.loops})
    return _Part(first.buffer, analyzer.simplify(start + offsets[0]), run, tuple(rows))


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


def _nests(s: Node, loops: tuple[For, ...] = ()) -> Iterator[tuple[For, ...]]:
    """Returns the nests of serial loops of known extents below ``s``, from outside in, down to each innermost loop."""
    for child in s.children():
        if not isinstance(child, Stmt) or isinstance(child, While):
            continue
        if not isinstance(child, For):
            yield from _nests(child, loops)
        elif child.kind == "serial" and isinstance(child.extent, IntImm):
            inside = list(_nests(child, (*loops, child)))
            yield from inside or [(*loops, child)]


def _spread(loop: For, name: str, around: For | None, line: int, views: dict[Buffer, Buffer]) -> For:
    groups: dict[tuple[int, ...], list[_Read]] = {}
    for read in _reads(loop, name):
        groups.setdefault(tuple(id(inner) for inner in read.loops), []).append(read)
    parts = [part for part in map(_part, groups.values()) if part is not None and uses_var(part.start, loop.loop_var)]
    nests = list(_nests(loop))
    if not parts or not nests:
        return loop
    part = max(parts, key=lambda p: p.elements)
    nest = max(nests, key=_trip_count)
    total = _elements(part.buffer)
    size = part.buffer.dtype.element.bytes
    per_line = max(1, line // size)
    lines_of_run = -(-part.run // per_line)
    lines = lines_of_run * math.prod(number for _, number in part.rows)
    trip_count = _trip_count(nest)
    share = -(-lines // trip_count)
    if total is None or share > _MOST_LINES:
        return loop
    count: Expr = const(0, loop.loop_var.dtype)
    for inner in nest:
        count = count * inner.extent + (inner.loop_var - inner.min)
    every = max(1, trip_count // lines)  # iterations for the same lines, where there are more iterations than lines
    count = _over(count, every) * share
    most = ((trip_count - 1) // every + 1) * share - 1
    flat = part.buffer.with_(name=f"{part.buffer.name}_flat", shape=(IntImm(total),), data=part.buffer.data)
    view = views.setdefault(part.buffer, flat)
    following = substitute(part.start, _next_iteration(loop, around))
    analyzer = Analyzer()
    asked = []
    for n in range(share):
        at = analyzer.simplify(count + n)
        if most > lines - 1:
            at = Min(at, const(lines - 1, at.dtype))
        place = following + _place(at, lines_of_run, per_line, part.rows)
        asked.append(
            Evaluate(Call("tir.prefetch", (_address(view, analyzer.simplify(place)), const(0), const(2)), "int32"))
        )
    innermost = nest[-1]
    return replace_node(loop, innermost, innermost.with_(body=seq(*asked, innermost.body)))  # type: ignore[no-any-return]


def _trip_count(nest: Sequence[For]) -> int:
    return math.prod(loop.extent.value for loop in nest)  # type: ignore[attr-defined]


def _over(e: Expr, by: int) -> Expr:
    """Returns ``e``, which is not negative, divided by ``by``."""
    return e if by == 1 else TruncDiv(e, const(by, e.dtype))


def _next_iteration(loop: For, around: For | None) -> dict[Var, Expr]:
    """Returns the values of the loop variables in the following iteration."""
    after = loop.loop_var + 1
    if around is None or around.kind != "serial" or not isinstance(loop.extent, IntImm):
        return {loop.loop_var: after}
    wrapped = _over(after - loop.min, loop.extent.value)
    return {loop.loop_var: after - wrapped * loop.extent, around.loop_var: around.loop_var + wrapped}


def _place(number: Expr, lines_of_run: int, per_line: int, rows: Sequence[tuple[int, int]]) -> Expr:
    """Returns the offset, from the start of a part, of its cache line ``number``."""
    row = _over(number, lines_of_run)
    place = (number - row * lines_of_run) * per_line if rows else number * per_line
    for n, (stride, extent) in enumerate(rows):
        outer = _over(row, extent)
        place = place + (row if n == len(rows) - 1 else row - outer * extent) * stride
        row = outer
    return place


def _address(view: Buffer, place: Expr) -> Expr:
    return Call("tir.address_of", (BufferLoad(view, (place,)),), "handle")


def _elements(buffer: Buffer) -> int | None:
    if buffer.strides or not all(isinstance(e, IntImm) for e in buffer.shape):
        return None
    return math.prod(e.value for e in buffer.shape)  # type: ignore[attr-defined]
