"""This module finds the regions of buffers that a block reads and writes.

The result is what TVM declares for a block without ``T.reads`` and ``T.writes``: one region per buffer, in the order
in which the buffers are met (a store's value before its indices); several accesses of a buffer give the bounding
box; a reduction's own output is not among the reads when there is an init.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

from ..arith import Analyzer, Ends
from ..arith.normal_form.linear import difference
from ..expr import (
    INDEX_TYPES,
    Add,
    Broadcast,
    BufferLoad,
    Call,
    Cast,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Ramp,
    Range,
    Select,
    Sub,
    Var,
    const,
    max_,
    min_,
)
from ..expr.traversal import pre_order, uses_var
from ..stmt import Block, Buffer, BufferRegion, For, Stmt
from .access import Access, Accesses, accesses_below

Env = Mapping[Var, "Ends | None"]
"""The ranges of the loop variables inside the block; None where the ends are not known."""

_UNDECIDED = 8
"""The most minima and maxima that the bounds of a region may hold; each of them slows down every later use of the
region."""

_SHORT = 64
"""The most nodes that an index which reads memory may have to be compared with another index."""


def access_regions(body: Stmt, init: Stmt | None = None) -> tuple[tuple[BufferRegion, ...], tuple[BufferRegion, ...]]:
    """Return the regions that a block with this body and init reads and writes. They cover all iterations of loops
    inside it.

    An index without known bounds (a load inside a loop of the block) takes the whole dimension. So does an index that is
    read from memory which the block itself writes, such as the middle in a binary search. So do more than a few indices
    that cannot be compared with each other, such as the loads in gathers of gathers.
    """
    parts = [accesses_below(s) for s in (init, body) if s is not None]
    found = _Boxes(parts)
    for part in parts:
        for access in part.outside_of(lambda realize: _declares(realize.block)):
            found.add(access)
    reads = {b: box for b, box in found.reads.items() if init is None or b not in found.writes}
    return _regions(reads), _regions(found.writes)


def regions_of(block: Block) -> tuple[tuple[BufferRegion, ...], tuple[BufferRegion, ...]]:
    """Return the regions that a block declares to read and to write; where it declares none, those of its accesses."""
    if _declares(block):
        return block.reads, block.writes
    reads, writes = access_regions(block.body, block.init)
    own = set(block.alloc_buffers)
    return tuple([r for r in reads if r.buffer not in own]), tuple([r for r in writes if r.buffer not in own])


def _declares(block: Block) -> bool:
    """Return whether the declared regions of a block stand for what is inside it."""
    return bool(block.iter_vars or block.reads or block.writes)


def _regions(boxes: Mapping[Buffer, list[Ends]]) -> tuple[BufferRegion, ...]:
    return tuple([BufferRegion(b, tuple([_range(lo, hi) for lo, hi in box])) for b, box in boxes.items()])


def _range(lo: Expr, hi: Expr) -> Range:
    if lo is hi:
        return Range(lo, const(1, lo.dtype))
    apart = difference(hi, lo)
    if apart is not None and isinstance(lo, (IntImm, Var)):
        return Range(lo, const(apart + 1, lo.dtype))
    analyzer = Analyzer()
    extent = const(apart + 1, lo.dtype) if apart is not None else analyzer.simplify(hi - lo + 1)
    return Range(analyzer.simplify(lo), extent)


class _Boxes:
    """Joins the boxes of accesses to each buffer, in the order in which the buffers are met."""

    def __init__(self, parts: Sequence[Accesses]) -> None:
        self.reads: dict[Buffer, list[Ends]] = {}
        self.writes: dict[Buffer, list[Ends]] = {}
        self.own = {b for part in parts for b in part.allocated}
        self.parts = parts
        self.ranges: dict[For, Ends | None] = {}
        self.undecided: Counter[tuple[Buffer, int]] = Counter()  # undecided minima and maxima, by dimension

    def add(self, access: Access) -> None:
        """Widen the box of an access over the loops around it. Then join it with the boxes of its buffer so far."""
        buffer = access.buffer
        if buffer in self.own or (access.is_declared and buffer in _matched(access)):
            return
        env = self.env(access.loops)
        wide: list[Ends] = []
        for (lo, hi), extent in zip(_ends_of(access), buffer.shape, strict=True):
            low = None if lo is None else ends_over(lo, env)
            high = low if lo is hi or hi is None else ends_over(hi, env)
            ends = None if low is None or high is None else (low[0], high[1])
            wide.append((const(0, extent.dtype), extent - 1) if ends is None or self.changes(ends) else ends)
        into = self.writes if access.is_store else self.reads
        old = into.get(buffer)
        if old is not None:
            wide = [self.join(buffer, d, a, b) for d, (a, b) in enumerate(zip(old, wide, strict=True))]
        into[buffer] = wide

    def env(self, loops: Sequence[For]) -> Env:
        """Return the ranges of loops, each over all iterations of the loops around it."""
        env: dict[Var, Ends | None] = {}
        for loop in loops:
            if loop not in self.ranges:
                lo, hi = ends_over(loop.min, env), ends_over(loop.min + loop.extent - 1, env)
                self.ranges[loop] = None if lo is None or hi is None else (lo[0], hi[1])
            env[loop.loop_var] = self.ranges[loop]
        return env

    def changes(self, ends: Ends) -> bool:
        """Return whether the ends are read from memory that the block writes, so that they have no single value."""
        read = {n.buffer for e in ends for n in pre_order(e) if isinstance(n, BufferLoad)}
        return bool(read) and not read.isdisjoint(self.own_stores)

    @cached_property
    def own_stores(self) -> set[Buffer]:
        """Return the buffers that the block, or a block in it, stores to or allocates."""
        return self.own | {a.buffer for part in self.parts for a in part.all if a.is_store}

    def join(self, buffer: Buffer, dimension: int, a: Ends, b: Ends) -> Ends:
        """Return the interval around both; the whole dimension once too many ends could not be compared."""
        extent = buffer.shape[dimension]
        place = (buffer, dimension)
        if any(map(_is_long_gather, (*a, *b))):
            self.undecided[place] = _UNDECIDED + 1
        if self.undecided[place] <= _UNDECIDED:
            lo, hi = joined = _join(a, b)
            self.undecided[place] += lo is not hi and not ((lo is a[0] or lo is b[0]) and (hi is a[1] or hi is b[1]))
            if self.undecided[place] <= _UNDECIDED:
                return joined
        return const(0, extent.dtype), extent - 1


def _matched(access: Access) -> list[Buffer]:
    return [m.buffer for m in access.blocks[-1].block.match_buffers]


def _ends_of(access: Access) -> list[tuple[Expr | None, Expr | None]]:
    """Return the first and the last index of an access in each dimension, over its lanes or its region."""
    if access.is_declared:
        return [(i, i + e - 1) for i, e in zip(access.indices, access.extents, strict=True)]
    return [lanes_ends(i) for i in access.indices]


def lanes_ends(index: Expr) -> tuple[Expr | None, Expr | None]:
    """Return the least and the greatest lane of an index; None where it is not known which lane that is."""
    if isinstance(index, Broadcast):
        return index.value, index.value
    if isinstance(index, Ramp) and isinstance(index.stride, IntImm):
        last = index.base + index.stride * const(index.lanes - 1, index.base.dtype)
        return (last, index.base) if index.stride.value < 0 else (index.base, last)
    return (index, index) if index.dtype.lanes == 1 else (None, None)


def _is_long_gather(e: Expr) -> bool:
    """Return whether ``e`` reads memory and is too long to be compared: comparing it is slow and proves nothing."""
    first = list(islice(pre_order(e), _SHORT + 1))
    return len(first) > _SHORT and any(isinstance(n, BufferLoad) for n in first)


def _join(a: Ends, b: Ends) -> Ends:
    if a[0] is a[1] and b[0] is b[1] and difference(a[0], b[0]) == 0:
        point = a[0] if isinstance(a[0], (IntImm, Var)) else Analyzer().simplify(a[0])
        return point, point
    return _end(a[0], b[0], min_, -1), _end(a[1], b[1], max_, 1)


def _end(a: Expr, b: Expr, otherwise: Callable[[Any, Any], Expr], sign: int) -> Expr:
    if a is b:
        return a
    apart = difference(b, a)
    if apart is None:
        return otherwise(a, b)
    return b if apart * sign > 0 else a


def ends_over(e: Expr, env: Env) -> Ends | None:
    """Return the ends of ``e`` over the variables in ``env``; None when unknown. They are exact for linear
    expressions."""
    if not env or not uses_var(e, lambda v: v in env):
        return (e, e)
    if isinstance(e, Var):
        return env[e]
    if isinstance(e, Cast):
        ends = ends_over(e.value, env) if {e.dtype, e.value.dtype} <= INDEX_TYPES else None  # others change values
        return None if ends is None else (ends[0].astype(e.dtype), ends[1].astype(e.dtype))
    if isinstance(e, (Select, Call)):
        if isinstance(e, Call) and e.op != "tir.if_then_else":
            return None
        sides = [e.true_value, e.false_value] if isinstance(e, Select) else list(e.args[1:])
        one, two = (ends_over(s, env) for s in sides)
        return None if one is None or two is None else _join(one, two)
    if not isinstance(e, (Add, Sub, Mul, FloorDiv, FloorMod, Min, Max)):
        return None
    a, b = ends_over(e.a, env), ends_over(e.b, env)
    if a is None or b is None:
        return None
    if isinstance(e, Add):
        return _sum(a[0], b[0], 1), _sum(a[1], b[1], 1)
    if isinstance(e, Sub):
        return _sum(a[0], b[1], -1), _sum(a[1], b[0], -1)
    if isinstance(e, Min):
        return min_(a[0], b[0]), min_(a[1], b[1])
    if isinstance(e, Max):
        return max_(a[0], b[0]), max_(a[1], b[1])
    if isinstance(e, Mul) and isinstance(e.a, IntImm):
        a, b = b, a
    by = b[0]
    if b[0] is not b[1] or not isinstance(by, IntImm):
        return None  # only constant factors and divisors are followed
    if isinstance(e, Mul):
        return (a[0] * by, a[1] * by) if by.value >= 0 else (a[1] * by, a[0] * by)
    if by.value <= 0:
        return None
    if isinstance(e, FloorDiv):
        return a[0] // by, a[1] // by
    return const(0, e.dtype), const(by.value - 1, e.dtype)


def _sum(a: Expr, b: Expr, sign: int) -> Expr:
    """Return ``a + sign * b`` with the constants at the end added up."""
    if isinstance(b, IntImm) and isinstance(a, (Add, Sub)) and isinstance(a.b, IntImm):
        shift = sign * b.value + (a.b.value if isinstance(a, Add) else -a.b.value)
        return a.a + shift if shift >= 0 else a.a - -shift
    return a + b if sign > 0 else a - b
