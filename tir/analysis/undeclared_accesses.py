"""This module finds accesses that a block always makes and that lie outside its declared regions.

A declared region may be larger than the accesses, and conditions may prevent an access, so not every wrong declaration
can be found. :func:`undeclared_access` finds accesses without a condition, in loops of at least one iteration, whose
index is a sum of the loop variables, each used once, and which lie a known number of elements outside the region.
Accesses through pointers are not examined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..buffer import Buffer, BufferRegion
from ..expr import Add, And, BufferLoad, Call, Expr, FloorDiv, IntImm, Let, Mul, Or, Sub, Var, is_const_int
from ..stmt import AttrStmt, Block, BlockRealize, BufferStore, For, IfThenElse, LetStmt, While
from ..walk import pre_order, substitute
from .access_regions import Interval, difference, interval, lanes_ends

_LINEAR = (Var, IntImm, Add, Sub, Mul, FloorDiv)
_POINTERS = ("tir.address_of", "tir.tvm_access_ptr")


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
    for buffer, box, verb in _Accesses().of(block):
        region = (reads if verb == "reads" else writes).get(buffer)
        if region is not None and _outside(box, region):
            return buffer, verb
    return None


def _single(regions: tuple[BufferRegion, ...]) -> dict[Buffer, BufferRegion]:
    buffers = [r.buffer for r in regions]
    return {r.buffer: r for r in regions if buffers.count(r.buffer) == 1}


def _outside(box: list[Interval | None], region: BufferRegion) -> bool:
    for ends, r in zip(box, region.region, strict=True):
        if ends is not None:
            before, behind = difference(ends[0], r.min), difference(ends[1], r.min + r.extent)
            if before is not None and before < 0 or behind is not None and behind >= 0:
                return True
    return False


Found = Iterator[tuple[Buffer, "list[Interval | None]", str]]


class _Accesses:
    """Walks over a block. ``loops`` holds the ranges of loops inside it, ``values`` the values of axes and lets."""

    def __init__(self) -> None:
        self.loops: dict[Var, Interval] = {}
        self.values: dict[Var, Expr] = {}

    def of(self, block: Block) -> Found:
        if block.init is not None and not any(iv.kind == "reduce" for iv in block.iter_vars):
            yield from self.statement(block.init)
        yield from self.statement(block.body)

    def statement(self, s: Any) -> Found:
        kind = type(s)
        if kind is For:
            yield from self.loop(s)
        elif kind is IfThenElse or kind is While:
            yield from self.expression(s.condition)
        elif kind is BufferStore:
            if s.predicate is None:
                yield s.buffer, self.box(s.indices), "writes"
            for child in s.children():
                yield from self.expression(child)
        elif kind is LetStmt:
            yield from self.expression(s.value)
            self.values[s.var] = substitute(s.value, self.values)
            yield from self.statement(s.body)
        elif kind is BlockRealize:
            for value in s.iter_values:
                yield from self.expression(value)
            if is_const_int(s.predicate, 1) and not s.block.match_buffers:
                values = [substitute(value, self.values) for value in s.iter_values]
                self.values.update(zip([iv.var for iv in s.block.iter_vars], values, strict=True))
                yield from self.of(s.block)
        elif isinstance(s, Expr):
            yield from self.expression(s)
        elif kind is not AttrStmt:  # an attribute may change the meaning of its body
            for child in s.children():
                yield from self.statement(child)

    def loop(self, s: For) -> Found:
        lo, extent = substitute(s.min, self.values), s.extent
        if isinstance(extent, IntImm) and extent.value > 0 and not any(n in self.loops for n in pre_order(lo)):
            self.loops[s.loop_var] = (lo, lo + (extent - 1))
            yield from self.statement(s.body)

    def expression(self, e: Any) -> Found:
        kind = type(e)
        if kind is BufferLoad:
            if e.predicate is None:
                yield e.buffer, self.box(e.indices), "reads"
        elif kind is Call and e.op == "tir.if_then_else" or kind in (And, Or):
            yield from self.expression(e.children()[0])
            return
        elif kind is Call and e.op in _POINTERS:
            return
        elif kind is Let:
            self.values[e.var] = substitute(e.value, self.values)
        for child in e.children():
            yield from self.expression(child)

    def box(self, indices: tuple[Expr, ...]) -> list[Interval | None]:
        out: list[Interval | None] = []
        for index in indices:
            low, high = lanes_ends(index)
            one, two = self.ends(low), self.ends(high)
            out.append(None if one is None or two is None else (one[0], two[1]))
        return out

    def ends(self, e: Expr | None) -> Interval | None:
        """Return the least and the greatest value, both of which occur; None when unknown."""
        if e is None:
            return None
        e = substitute(e, self.values)
        nodes = list(pre_order(e))
        used = [n for n in nodes if n in self.loops]
        if used and (len(set(used)) < len(used) or not all(isinstance(n, _LINEAR) for n in nodes)):
            return None
        env: Mapping[Var, Interval | None] = self.loops
        return interval(e, env)
