"""This module finds the regions that a block reads and writes, and compares them with those that it declares.

The result is what TVM declares for a block without ``T.reads`` and ``T.writes``: one region per buffer, in the order
in which the buffers are met (a store's value before its indices); several accesses of a buffer give the bounding
box; a reduction's own output is not among the reads when there is an init.

A declared region may be larger than the accesses, and conditions may prevent an access, so not every wrong declaration
can be found. :func:`undeclared_access` finds accesses without a condition, in loops of at least one iteration, whose
index is a sum of the loop variables, each used once, and which lie a known number of elements outside the region.
Accesses through pointers are not examined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

from ..arith import Ends
from ..arith.analyzer import Analyzer
from ..arith.normal_form.canonical import join_splits, minimum
from ..arith.normal_form.forms import Poly, add, difference
from ..expr import (
    INDEX_TYPES,
    Add,
    Broadcast,
    BufferLoad,
    Call,
    Cast,
    DType,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    IterVar,
    Max,
    Min,
    Mul,
    Ramp,
    Range,
    Select,
    Sub,
    Var,
    const,
    match_types,
    max_,
    min_,
)
from ..expr.traversal import pre_order, uses_var
from ..stmt import Block, BlockRealize, Buffer, BufferRegion, For, Stmt
from .access import Access, Accesses, accesses_below, opaque_buffers

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


def hidden_reads(block: Block) -> list[BufferRegion]:
    """Return the declared reads of buffers that the block accesses through pointers or match_buffers.

    No load in the block shows these reads.
    """
    pointers = opaque_buffers(block)
    return [r for r in block.reads if r.buffer.data in pointers]


def redeclared(block: Block, more: Sequence[BufferRegion] = ()) -> Block:
    """Return ``block``, whose body or init has changed, with regions computed from the accesses in it.

    Accesses through a pointer or a match_buffer do not appear as loads or stores, so the old regions of such buffers
    are kept. ``more`` is added to the reads.
    """
    own = {*block.alloc_buffers, *[m.buffer for m in block.match_buffers]}
    reads, writes = access_regions(block.body, block.init)
    pointers = opaque_buffers(block)
    hidden = [r for r in block.writes if r.buffer.data in pointers and r.buffer not in own]
    return block.with_(
        reads=_joined(
            [r for r in reads if r.buffer not in own],
            [r for r in (*hidden_reads(block), *more) if r.buffer not in own],
        ),
        writes=_joined([r for r in writes if r.buffer not in own], hidden),
    )


def _joined(found: Sequence[BufferRegion], declared: Sequence[BufferRegion]) -> tuple[BufferRegion, ...]:
    """Return one region per buffer: first those that were computed, then those that are only declared."""
    out = {r.buffer: r for r in found}
    for r in declared:
        out[r.buffer] = region_union([out[r.buffer], r]) if r.buffer in out else r
    return tuple(out.values())


def region_union(regions: Sequence[BufferRegion]) -> BufferRegion:
    """Return the least box that holds all ``regions`` of one buffer. Unknown minima and maxima remain in it.

    >>> from tilewright.tir import decl_buffer
    >>> A = decl_buffer((16, 16), name="A")
    >>> box = region_union([A[0:4, 2:3], A[2:8, 3:5]])
    >>> [(int(r.min), int(r.extent)) for r in box.region]
    [(0, 8), (2, 3)]
    """
    if not regions:
        raise ValueError("region_union needs at least one region")
    buffer = regions[0].buffer
    if any(r.buffer is not buffer for r in regions):
        raise ValueError(f"region_union of different buffers: {sorted({r.buffer.name for r in regions})}")
    if len(regions) == 1:
        return regions[0]
    an = Analyzer()
    out = []
    for ranges in zip(*[r.region for r in regions], strict=True):
        dtype = ranges[0].min.dtype
        lo, end = _ends(an, ranges[0])
        for r in ranges[1:]:
            other_lo, other_end = _ends(an, r)
            lo = minimum(an, lo, other_lo, dtype, "min")
            end = minimum(an, end, other_end, dtype, "max")
        out.append(_declared_range(an, lo, join_splits(an, add(end, lo, -1)), dtype))
    return BufferRegion(buffer, tuple(out))


def _declared_range(an: Analyzer, low: Poly, size: Poly, dtype: DType) -> Range:
    return Range(*match_types(an.to_expr(low, dtype), an.to_expr(size, dtype)))


def _ends(an: Analyzer, r: Range) -> tuple[Poly, Poly]:
    lo = an.poly(r.min)
    return lo, add(lo, an.poly(r.extent))


_LINEAR = (Var, IntImm, Add, Sub, Mul, FloorDiv)


def undeclared_access(block: Block) -> tuple[Buffer, str] | None:
    """Return a buffer that the block accesses outside its declared region, and "reads" or "writes"; None if none is
    found.

    Only buffers with one declared region are examined. A block may read what it writes without declaring that.
    """
    reads, writes = _single(block.reads), _single(block.writes)
    for written in block.writes:
        reads.pop(written.buffer, None)
    if not reads and not writes:
        return None
    for access in _certain(block):
        verb = "writes" if access.is_store else "reads"
        region = (writes if access.is_store else reads).get(access.buffer)
        if region is not None and _outside(access, region):
            return access.buffer, verb
    return None


def _certain(block: Block) -> Iterator[Access]:
    """Return the accesses that the block makes whenever it runs."""
    init = None if any(iv.kind == IterVar.REDUCE for iv in block.iter_vars) else block.init
    for part in (init, block.body):
        for access in accesses_below(part).elements if part is not None else ():
            around = access.around
            if access.guards or around.in_attribute or around.address is not None or any(map(_unclear, access.blocks)):
                continue  # an attribute may change the meaning of its body
            if all(isinstance(lp.extent, IntImm) and lp.extent.value > 0 for lp in access.loops):
                yield access


def _unclear(realize: BlockRealize) -> bool:
    block = realize.block
    return bool(block.match_buffers) or (
        block.init is not None and any(iv.kind == IterVar.REDUCE for iv in block.iter_vars)
    )


def _single(regions: tuple[BufferRegion, ...]) -> dict[Buffer, BufferRegion]:
    buffers = [r.buffer for r in regions]
    return {r.buffer: r for r in regions if buffers.count(r.buffer) == 1}


def _outside(access: Access, region: BufferRegion) -> bool:
    loops: dict[Var, Ends | None] = {}
    for lp in access.loops:
        if any(n in loops for n in pre_order(lp.min)):
            return False
        loops[lp.loop_var] = (lp.min, lp.min + (lp.extent - 1))
    for index, r in zip(access.indices, region.region, strict=True):
        low, high = (_accessed_ends(e, loops) for e in lanes_ends(index))
        if low is not None and high is not None:
            before, behind = difference(low[0], r.min), difference(high[1], r.min + r.extent)
            if before is not None and before < 0 or behind is not None and behind >= 0:
                return True
    return False


def _accessed_ends(e: Expr | None, loops: Mapping[Var, Ends | None]) -> Ends | None:
    """Return the least and the greatest value, both of which occur; None when unknown."""
    if e is None:
        return None
    nodes = list(pre_order(e))
    used = [n for n in nodes if n in loops]
    if used and (len(set(used)) < len(used) or not all(isinstance(n, _LINEAR) for n in nodes)):
        return None
    return ends_over(e, loops)
