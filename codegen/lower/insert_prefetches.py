"""Inserts prefetches into loops whose annotations ask for them, one for each cache line that an iteration reads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...tir.analysis.access import Access, accesses_below
from ...tir.arith import Analyzer, linear_coefficients
from ...tir.expr import Broadcast, BufferLoad, Call, Expr, IntImm, Min, Ramp, TruncDiv, Var, const
from ...tir.expr.node import IRNode
from ...tir.stmt import AssertStmt, Buffer, BufferStore, Evaluate, For, IfThenElse, LetStmt, PrimFunc, Stmt, While, seq
from ...tir.walk import post_order, pre_order, replace_node, substitute, uses_var, vars_in
from ..machine.target import Target
from .loop_annotations import PREFETCH_DISTANCE, PREFETCH_NEXT, plain_value, steps_number, without
from .scoped_transform import ScopedTransform

_NEAR = ("register", "local")
_MOST_LINES = 64


def insert_prefetches(func: PrimFunc, target: Target) -> PrimFunc:
    """Insert the prefetches that two annotations of loops ask for.

    With ``pragma_prefetch_distance = d`` each iteration prefetches for the d-th iteration after it. ``d`` is a number of
    iterations for every buffer read in the loop, or a dict of numbers by the buffers' names. Prefetches stand before
    the statement that reads, one per cache line and statement list. With one number for all, buffers in which the loop
    advances by less than a cache line per iteration are left to the hardware prefetcher, which recognizes such streams.

    Before::

        for k in T.serial(64, annotations={"pragma_prefetch_distance": 8}):
            ... B[k, 0:16] ...

    After::

        for k in range(64):
            T.prefetch(T.address_of(B[k + 8, 0]), 0, 3)
            ... B[k, 0:16] ...

    With ``pragma_prefetch_next = ["B"]``, while one iteration computes, the part of ``B`` that the next one reads is
    brought into the second-level cache, evenly spread over the inner loops. This is meant for an operand that comes
    from beyond that cache and is read or copied in one go: otherwise its first use waits for memory, and memory is idle
    during all other work. The part may be contiguous, or consist of rows that lie apart. After the last iteration comes
    the first one of the next iteration of the enclosing loop, if that loop is serial.

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

    The nest of inner loops with the most iterations holds these prefetches, whether it reads ``B`` or not. Where the
    address does not change with the loop, or not evenly with the loops inside, nothing is prefetched.
    """
    line = target.caches.line
    views: dict[Buffer, Buffer] = {}

    def annotated(loop: For, scope: ScopedTransform) -> For:
        if PREFETCH_DISTANCE in loop.annotations:
            body = _Distance(loop, line).stmt(loop.body)
            loop = without(loop, PREFETCH_DISTANCE).with_(body=body)
        if PREFETCH_NEXT in loop.annotations:
            names = _names_list(loop.annotations[PREFETCH_NEXT], PREFETCH_NEXT, f"loop {loop.loop_var.name}")
            around = scope.loops[-1] if scope.loops else None
            loop = without(loop, PREFETCH_NEXT)
            for name in names:
                loop = _interleaved(loop, name, around, line, views)
        return loop

    return ScopedTransform(after={For: annotated}).function(func)


def _prefetch(buffer: Buffer, indices: tuple[Expr, ...], locality: int) -> Stmt:
    """Returns the statement that brings the cache line of an element into the cache. ``locality`` 3 is the first level,
    2 the second."""
    address = Call("tir.address_of", (BufferLoad(buffer, indices),), "handle")
    return Evaluate(Call("tir.prefetch", (address, const(0), const(locality)), "int32"))


# -- a number of iterations ahead ----------------------------------------------------------------------------------------


class _Distance:
    """The insertion of prefetches some iterations ahead into one loop."""

    def __init__(self, loop: For, line: int) -> None:
        self.var, self.line = loop.loop_var, line
        self.wanted = loop.annotations[PREFETCH_DISTANCE]
        self.analyzer = Analyzer()
        self.asked: list[tuple[Buffer, Expr]] = []

    def stmt(self, s: Stmt) -> Stmt:
        """Return ``s`` with prefetches before the statements that read."""
        if isinstance(s, (For, IfThenElse, While)):
            outer, self.asked = self.asked, []
            inside = self.below(s)
            self.asked = outer
            return inside
        if isinstance(s, (BufferStore, Evaluate, LetStmt, AssertStmt)) and not _is_prefetch(s):
            ahead = [self.ahead(load) for part in s.children() if isinstance(part, Expr) for load in _loads(part)]
            return seq(*ahead, self.below(s))
        return self.below(s)

    def below(self, s: Stmt) -> Stmt:
        return s.map_children(lambda c: self.stmt(c) if isinstance(c, Stmt) else c)

    def ahead(self, load: BufferLoad) -> Stmt | None:
        """Return the prefetch for one load, or None when it is not wanted or an earlier one covers it."""
        buffer, simplify = load.buffer, self.analyzer.simplify
        distance = self.distance(buffer)
        if buffer.scope in _NEAR or distance <= 0:
            return None
        firsts = [_first(i) for i in load.indices]
        indices = [i for i in firsts if i is not None]
        if len(indices) < len(firsts) or not any(self.var in vars_in(i) for i in indices):
            return None
        place: Expr = const(0, self.var.dtype)
        for index, stride in zip(indices, buffer.element_strides(), strict=True):
            place = place + index * stride
        place = simplify(place)
        step = None if isinstance(self.wanted, dict) else linear_coefficients(place, [self.var])
        if step is not None and self.within_line(step[0][0], buffer):
            return None
        if any(other.data is buffer.data and self.within_line(place - at, buffer) for other, at in self.asked):
            return None
        self.asked.append((buffer, place))
        later = {self.var: self.var + const(distance, self.var.dtype)}
        return _prefetch(buffer, tuple([simplify(substitute(i, later)) for i in indices]), 3)

    def within_line(self, elements: Expr, buffer: Buffer) -> bool:
        """Return whether a number of elements is less than a cache line."""
        number = self.analyzer.simplify(elements)
        return isinstance(number, IntImm) and abs(number.value) * buffer.dtype.element.bytes < self.line

    def distance(self, buffer: Buffer) -> int:
        """Return the prefetch distance of a buffer in iterations."""
        wanted = self.wanted.get(buffer.name, 0) if isinstance(self.wanted, dict) else self.wanted
        return steps_number(wanted, PREFETCH_DISTANCE, f"a loop that reads {buffer.name}")


def _is_prefetch(s: Stmt) -> bool:
    return isinstance(s, Evaluate) and isinstance(s.value, Call) and s.value.op == "tir.prefetch"


def _loads(e: Expr) -> list[BufferLoad]:
    return [n for n in post_order(e) if isinstance(n, BufferLoad)]


def _first(index: Expr) -> Expr | None:
    """Returns the index of the first lane, or None for lanes that are irregular or read from memory."""
    if isinstance(index, Ramp):
        index = index.base
    elif isinstance(index, Broadcast):
        index = index.value
    elif index.dtype not in ("int32", "int64"):
        return None
    return None if any(isinstance(n, (BufferLoad, Call)) for n in pre_order(index)) else index


# -- during the iteration before -----------------------------------------------------------------------------------------


def _interleaved(loop: For, name: str, around: For | None, line: int, views: dict[Buffer, Buffer]) -> For:
    """Returns ``loop`` with prefetches of what its next iteration reads of the buffer ``name``. ``views`` are the flat
    buffers made so far."""
    lines, nest = lines_read(loop, name, line), largest_nest(loop)
    if lines is None or nest is None:
        return loop
    count = trip_count(nest)
    share = -(-lines.count // count)
    if lines.buffer.strides or not all(isinstance(e, IntImm) for e in lines.buffer.shape) or share > _MOST_LINES:
        return loop
    total = math.prod(e.value for e in lines.buffer.shape)  # type: ignore[attr-defined]
    every = max(1, count // lines.count)  # iterations for the same lines, where there are more iterations than lines
    first = divided(iteration_number(nest, loop.loop_var.dtype), every) * share
    most = ((count - 1) // every + 1) * share - 1
    flat = lines.buffer.with_(name=f"{lines.buffer.name}_flat", shape=(IntImm(total),), data=lines.buffer.data)
    view = views.setdefault(lines.buffer, flat)
    following = substitute(lines.start, _next_iteration(loop, around))
    analyzer = Analyzer()
    asked = []
    for n in range(share):
        at = analyzer.simplify(first + n)
        if most > lines.count - 1:
            at = Min(at, const(lines.count - 1, at.dtype))
        asked.append(_prefetch(view, (analyzer.simplify(following + lines.place(at)),), 2))
    innermost = nest[-1]
    return replace_node(loop, innermost, innermost.with_(body=seq(*asked, innermost.body)))


def _next_iteration(loop: For, around: For | None) -> dict[Var, Expr]:
    """Returns the values of the loop variables in the following iteration."""
    after = loop.loop_var + 1
    if around is None or around.kind != "serial" or not isinstance(loop.extent, IntImm):
        return {loop.loop_var: after}
    wrapped = divided(after - loop.min, loop.extent.value)
    return {loop.loop_var: after - wrapped * loop.extent, around.loop_var: around.loop_var + wrapped}


def _names_list(value: Any, key: str, place: str) -> list[str]:
    """Returns the names that a pragma lists. ValueError where it is not a list of texts."""
    names = [plain_value(name) for name in value] if isinstance(value, (list, tuple)) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{key} of {place} is {value!r}; it is a list of names of buffers")
    return names


# Finds the cache lines of a buffer that one iteration of a loop reads. It also finds the loops inside that may
# prefetch them.


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


def _nests(s: IRNode, loops: tuple[For, ...] = ()) -> Iterator[tuple[For, ...]]:
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
