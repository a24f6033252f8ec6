"""What a block touches: the regions it reads and writes, found in its body.

The result is what TVM declares for a block without ``T.reads`` and ``T.writes``: one region per buffer, in the order
in which the buffers are met (a store's value before its indices); several accesses of a buffer give the bounding
box; a reduction's own output is not among the reads when there is an init.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .buffer import Buffer, BufferRegion
from .expr import (
    Add,
    BufferLoad,
    Call,
    Cast,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mul,
    Ramp,
    Range,
    Select,
    Sub,
    Var,
    const,
    is_const_int,
)
from .node import Node
from .op import max_, min_
from .stmt import BlockRealize, BufferStore, For, LetStmt, Stmt
from .walk import pre_order, substitute, uses_var

__all__ = ["access_regions", "linear_key"]

Interval = tuple[Expr, Expr]
"""Both ends included."""


def access_regions(body: Stmt, init: Stmt | None = None) -> tuple[tuple[BufferRegion, ...], tuple[BufferRegion, ...]]:
    """The reads and the writes of a block with this body and init; loops inside it are taken over their ranges.

    An index that no interval bounds (a load, inside a loop of the block) takes the whole dimension.
    """
    found = _Accesses()
    if init is not None:
        found.statement(init, {})
    found.statement(body, {})
    writes = found.writes
    reads = {b: box for b, box in found.reads.items() if init is None or b not in writes}
    return _regions(reads), _regions(writes)


def _regions(boxes: Mapping[Buffer, list[Interval]]) -> tuple[BufferRegion, ...]:
    return tuple([BufferRegion(b, tuple([_range(lo, hi) for lo, hi in box])) for b, box in boxes.items()])


def _range(lo: Expr, hi: Expr) -> Range:
    if lo is hi:
        return Range(lo, const(1, lo.dtype))
    apart = _difference(hi, lo)
    return Range(lo, const(apart + 1, lo.dtype) if apart is not None else _plus_one(hi, lo))


def _plus_one(hi: Expr, lo: Expr) -> Expr:
    if isinstance(hi, Sub) and is_const_int(hi.b, 1) and is_const_int(lo, 0):
        return hi.a
    return hi + 1 if is_const_int(lo, 0) else hi - lo + 1


class _Accesses:
    def __init__(self) -> None:
        self.reads: dict[Buffer, list[Interval]] = {}
        self.writes: dict[Buffer, list[Interval]] = {}

    def statement(self, stmt: Any, env: Mapping[Var, Interval]) -> None:
        """Collect from a statement; ``env`` holds the loops of the block around it."""
        if isinstance(stmt, For):
            self.expression(stmt.min, env)
            self.expression(stmt.extent, env)
            last = stmt.min + stmt.extent - 1
            lo, hi = _interval(stmt.min, env), _interval(last, env)
            inner = dict(env)
            inner[stmt.loop_var] = (lo[0] if lo else stmt.min, hi[1] if hi else last)
            self.statement(stmt.body, inner)
        elif isinstance(stmt, BufferStore):
            self.access(self.writes, stmt.buffer, stmt.indices, env)
            self.expression(stmt.value, env)
            for index in stmt.indices:
                self.expression(index, env)
        elif isinstance(stmt, LetStmt):
            self.expression(stmt.value, env)
            self.statement(substitute(stmt.body, {stmt.var: stmt.value}) if _indexes(stmt) else stmt.body, env)
        elif isinstance(stmt, BlockRealize):
            values = dict(zip([iv.var for iv in stmt.block.iter_vars], stmt.iter_values, strict=True))
            inside = {m.buffer for m in stmt.block.match_buffers} | set(stmt.block.alloc_buffers)
            for value in stmt.iter_values:
                self.expression(value, env)
            for into, regions in ((self.reads, stmt.block.reads), (self.writes, stmt.block.writes)):
                for region in regions:
                    if region.buffer not in inside:
                        box = [(substitute(r.min, values), substitute(r.min + r.extent - 1, values))
                               for r in region.region]  # fmt: skip
                        self.box(into, region.buffer, box, env)
        elif isinstance(stmt, Expr):
            self.expression(stmt, env)
        else:
            for child in stmt.children():
                self.statement(child, env)

    def expression(self, expr: Node, env: Mapping[Var, Interval]) -> None:
        """Collect the loads of an expression, an outer load before the loads in its indices."""
        if isinstance(expr, Let) and any(isinstance(n, BufferLoad) for n in pre_order(expr.body)):
            self.expression(expr.value, env)
            self.expression(substitute(expr.body, {expr.var: expr.value}), env)
            return
        if isinstance(expr, BufferLoad):
            self.access(self.reads, expr.buffer, expr.indices, env)
        for child in expr.children():
            self.expression(child, env)

    def access(self, into: dict[Buffer, list[Interval]], buffer: Buffer, indices: Any, env: Any) -> None:
        """One element, or one vector of them."""
        box = []
        for index in indices:
            ends = (index, index)
            if isinstance(index, Ramp):
                last = index.base + index.stride * const(index.lanes - 1, index.base.dtype)
                backwards = isinstance(index.stride, IntImm) and index.stride.value < 0
                ends = (last, index.base) if backwards else (index.base, last)
            box.append(ends)
        self.box(into, buffer, box, env)

    def box(self, into: dict[Buffer, list[Interval]], buffer: Buffer, box: list[Any], env: Any) -> None:
        """The box, widened over the loops of ``env``, joined to what is known of ``buffer``."""
        wide: list[Interval] = []
        for (lo, hi), extent in zip(box, buffer.shape, strict=True):
            low = _interval(lo, env)
            high = low if lo is hi else _interval(hi, env)
            whole = (const(0, extent.dtype), extent - 1)
            wide.append(whole if low is None or high is None else (low[0], high[1]))
        old = into.get(buffer)
        into[buffer] = wide if old is None else [_join(a, b) for a, b in zip(old, wide, strict=True)]


def _indexes(stmt: LetStmt) -> bool:
    return any(
        uses_var(index, stmt.var)
        for n in pre_order(stmt.body)
        if isinstance(n, (BufferLoad, BufferStore))
        for index in n.indices
    ) or any(isinstance(n, BlockRealize) for n in pre_order(stmt.body, lambda n: not isinstance(n, Expr)))


def _join(a: Interval, b: Interval) -> Interval:
    return _end(a[0], b[0], min_, -1), _end(a[1], b[1], max_, 1)


def _end(a: Expr, b: Expr, otherwise: Any, sign: int) -> Expr:
    if a is b:
        return a
    apart = _difference(b, a)
    if apart is None:
        return otherwise(a, b)
    return b if apart * sign > 0 else a


def _interval(e: Expr, env: Mapping[Var, Interval]) -> Interval | None:
    """The ends of ``e`` over the variables in ``env``; None when unknown. Exact for what is linear in them."""
    if not env or not uses_var(e, lambda v: v in env):
        return (e, e)
    if isinstance(e, Var):
        return env[e]
    if isinstance(e, Cast):
        ends = _interval(e.value, env)
        return None if ends is None else (ends[0].astype(e.dtype), ends[1].astype(e.dtype))
    if isinstance(e, (Select, Call)):
        if isinstance(e, Call) and e.op != "tir.if_then_else":
            return None
        sides = [e.true_value, e.false_value] if isinstance(e, Select) else list(e.args[1:])
        one, two = (_interval(s, env) for s in sides)
        return None if one is None or two is None else _join(one, two)
    if not isinstance(e, (Add, Sub, Mul, FloorDiv, FloorMod, Min, Max)):
        return None
    a, b = _interval(e.a, env), _interval(e.b, env)
    if a is None or b is None:
        return None
    if isinstance(e, Add):
        return a[0] + b[0], a[1] + b[1]
    if isinstance(e, Sub):
        return a[0] - b[1], a[1] - b[0]
    if isinstance(e, Min):
        return min_(a[0], b[0]), min_(a[1], b[1])
    if isinstance(e, Max):
        return max_(a[0], b[0]), max_(a[1], b[1])
    if isinstance(e, Mul) and isinstance(e.a, IntImm):
        a, b = b, a
    if b[0] is not b[1] or not isinstance(b[0], IntImm) or b[0].value <= 0:
        return None  # only positive constant factors and divisors
    by = b[0]
    if isinstance(e, Mul):
        return a[0] * by, a[1] * by
    if isinstance(e, FloorDiv):
        return a[0] // by, a[1] // by
    return const(0, e.dtype), const(by.value - 1, e.dtype)


def _difference(a: Expr, b: Expr) -> int | None:
    """``a - b`` when it is a constant for sure."""
    left, right = linear_key(a), linear_key(b)
    return left[1] - right[1] if left[0] == right[0] else None


def linear_key(e: Expr) -> tuple[frozenset[Any], int]:
    """An integer expression as (its terms with coefficients, its constant), equal for equal sums of products."""
    terms: dict[Any, int] = {}

    def add(n: Expr, factor: int) -> int:
        if isinstance(n, IntImm):
            return n.value * factor
        if isinstance(n, Add):
            return add(n.a, factor) + add(n.b, factor)
        if isinstance(n, Sub):
            return add(n.a, factor) + add(n.b, -factor)
        if isinstance(n, Mul) and isinstance(n.b, IntImm):
            return add(n.a, factor * n.b.value)
        if isinstance(n, Mul) and isinstance(n.a, IntImm):
            return add(n.b, factor * n.a.value)
        key = _key(n)
        terms[key] = terms.get(key, 0) + factor
        return 0

    constant = add(e, 1)
    return frozenset((k, c) for k, c in terms.items() if c), constant


def _key(n: Any) -> Any:
    if isinstance(n, Var):
        return id(n)
    if isinstance(n, (Add, Sub, Mul)):
        return linear_key(n) if not isinstance(n, Mul) else (Mul, _key(n.a), _key(n.b))
    label = getattr(n, "value", None) if not list(n.children()) else getattr(n, "op", None)
    if isinstance(n, BufferLoad):
        label = id(n.buffer)
    return (type(n), n.dtype, label, *[_key(c) for c in n.children()])
