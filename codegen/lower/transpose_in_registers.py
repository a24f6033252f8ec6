"""Rewrites copies that transpose: square blocks go through registers, so that memory is read and written in whole
vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ...tir.arith import Analyzer, constant_coefficients
from ...tir.expr import (
    And,
    Broadcast,
    BufferLoad,
    Call,
    Expr,
    FloatImm,
    IntImm,
    Not,
    Ramp,
    Shuffle,
    Var,
    conjuncts,
    const,
    op,
)
from ...tir.stmt import BufferStore, For, IfThenElse, LetStmt, PrimFunc, Stmt, seq
from ...tir.walk import pre_order, substitute, vars_in
from ..machine.target import Target
from .lanes import NotVectorizable, widen
from .scoped_transform import ScopedTransform
from .vectorize_loops import vectorize_expr

_LANE_BITS = 128
_MOST_ROWS = 16
_FEWEST_ROWS = 4
_REGISTERS = ("local", "register")
_FEW_SQUARES = 4
"""The number of squares of scratch memory up to which they are written out."""


def transpose_in_registers(func: PrimFunc, target: Target) -> PrimFunc:
    """Rewrite loops that copy with two axes exchanged, one of them vectorized.

    Before::

        for i in range(32):
            for j in T.vectorized(16): P[i, j] = A[j, i]

    After (with four lanes)::

        for i_t in range(8):
            for j_t in range(4):
                row0: T.float32x4 = A[j_t * 4, i_t * 4:i_t * 4 + 4]
                …
                row3: T.float32x4 = A[j_t * 4 + 3, i_t * 4:i_t * 4 + 4]
                P[i_t * 4, j_t * 4:j_t * 4 + 4] = T.Shuffle(…)
                …

    It applies to perfect nests over one store of one element, where each of the two axes runs through one of the arrays
    without gaps and no element is written twice. Conditions on one axis, and the bounds of incomplete squares, become
    masks of the loads and the stores; zeros around the source come from masked loads. Without the rewrite each vector
    would be gathered element by element.
    """

    def rewritten(loop: For, _: ScopedTransform) -> Stmt | None:
        nest = _nest(loop)
        found = None if nest is None else _plan(nest, target)
        with suppress(NotVectorizable):
            return None if found is None else found.stmt()
        return None

    return ScopedTransform({For: rewritten}).function(func)


@dataclass(frozen=True)
class _Nest:
    """A perfect nest: loops from outside to inside, the conditions between them, one store of one element. ``inside``:
    further conditions, of the load alone; where they do not hold, zero is stored."""

    loops: tuple[For, ...]
    terms: tuple[Expr, ...]
    store: BufferStore
    load: BufferLoad
    inside: tuple[Expr, ...] = ()


def _nest(outer: For) -> _Nest | None:
    loops: list[For] = []
    terms: list[Expr] = []
    fixed: dict[Var, Expr] = {}
    body: Stmt = outer
    while not isinstance(body, BufferStore):
        if isinstance(body, For) and body.kind in ("serial", "unrolled", "vectorized"):
            if not (_is(body.min, 0) and isinstance(body.extent, IntImm)):
                return None
            if body.annotations or (loops and loops[-1].kind == "vectorized"):
                return None
            if body.extent.value == 1:
                fixed[body.loop_var] = body.min
            else:
                loops.append(body)
            body = body.body
        elif isinstance(body, IfThenElse) and body.else_case is None:
            terms += conjuncts(substitute(body.condition, fixed))
            body = body.then_case
        else:
            return None
    if len(loops) < 2 or loops[-1].kind != "vectorized" or body.predicate is not None:
        return None
    store = substitute(body, fixed)
    load, inside = _padded(store.value)
    if load is None or load.predicate is not None:
        return None
    return _Nest(tuple(loops), tuple(terms), store, load, tuple(inside))


def _padded(value: Expr) -> tuple[BufferLoad | None, list[Expr]]:
    """Returns the load that is stored and the conditions under which it is stored; elsewhere zero is stored."""
    if isinstance(value, BufferLoad):
        return value, []
    if isinstance(value, Call) and value.op == "tir.if_then_else":
        condition, usual, other = value.args
        if _is_zero(other) and isinstance(usual, BufferLoad):
            return usual, conjuncts(condition)
        if _is_zero(usual) and isinstance(other, BufferLoad):
            return other, [Not(condition)]
    return None, []


def _is_zero(e: Expr) -> bool:
    return isinstance(e, (IntImm, FloatImm)) and e.value == 0 and math.copysign(1.0, e.value) > 0


def _plan(nest: _Nest, target: Target) -> _Transpose | None:
    """Returns how to rewrite ``nest``, or None when it does not transpose."""
    store, load = nest.store, nest.load
    dtype = store.buffer.dtype
    if dtype.is_bool or dtype.lanes > 1 or load.buffer.dtype != dtype or load.buffer.data is store.buffer.data:
        return None
    variables = [loop.loop_var for loop in nest.loops]
    places = _coefficients(store.indices, variables)
    sources = _coefficients(load.indices, variables)
    if places is None or sources is None or not _writes_each_once(places, nest.loops):
        return None
    if any(b.strides and not _is(b.strides[-1], 1) for b in (store.buffer, load.buffer)):
        return None
    if any(
        isinstance(n, BufferLoad)
        for t in (*nest.terms, *nest.inside, *store.indices, *load.indices)
        for n in pre_order(t)
    ):
        return None

    def walks(rows: list[list[int]], n: int) -> bool:  # through memory, without gaps
        return bool(rows) and rows[-1][n] == 1 and all(row[n] == 0 for row in rows[:-1])

    last = len(variables) - 1
    for n in range(last - 1, -1, -1):
        for i, j in ((n, last), (last, n)):
            if walks(sources, i) and walks(places, j) and not walks(sources, j) and not walks(places, i):
                return _build(nest, i, j, target)
    return None


def _build(nest: _Nest, i: int, j: int, target: Target) -> _Transpose | None:
    column, row = nest.loops[i], nest.loops[j]
    bits = nest.store.buffer.dtype.bits
    shorter = min(column.extent.value, row.extent.value)  # type: ignore[attr-defined]
    size = min(target.vector_bits // bits, _MOST_ROWS, 1 << (shorter - 1).bit_length())
    if shorter < _FEWEST_ROWS or size < 2:
        return None
    if any({column.loop_var, row.loop_var} <= vars_in(t) for t in (*nest.terms, *nest.inside)):
        return None
    return _Transpose(nest, column, row, size, _LANE_BITS // bits, Analyzer())


def _coefficients(indices: Sequence[Expr], variables: list[Var]) -> list[list[int]] | None:
    """Returns the increase of each index per step of each variable, or None where one is not constant."""
    rows = [constant_coefficients(index, variables) for index in indices]
    out = [row for row in rows if row is not None]
    return out if len(out) == len(rows) else None


def _writes_each_once(places: list[list[int]], loops: Sequence[For]) -> bool:
    """Returns whether every iteration writes another element.

    Each variable must occur in one index, and the variables of an index must not overlap.
    """
    seen = [sum(1 for row in places if row[n]) for n in range(len(loops))]
    if any(count != 1 for count in seen):
        return False
    for row in places:
        reach = 0
        for step, extent in sorted((abs(c), loops[n].extent.value) for n, c in enumerate(row) if c):  # type: ignore[attr-defined]
            if step <= reach:
                return False
            reach += step * (extent - 1)
    return True


def _is(e: Expr, value: int) -> bool:
    return isinstance(e, IntImm) and e.value == value


@dataclass(frozen=True)
class _Transpose:
    """One transposing copy. ``column`` runs through the source, ``row`` through the destination; squares have ``size``
    rows."""

    nest: _Nest
    column: For
    row: For
    size: int
    block: int
    analyzer: Analyzer

    def stmt(self) -> Stmt:
        """Return the loops over squares, in the order of the loops that they replace.

        Squares of memory are long enough to be left in loops: LLVM would mix the loads of copies that are written out,
        so that lines are evicted before all of their square is read.
        """
        inner = self.nest.loops[-1]
        outer = self.row if inner is self.column else self.column

        def both(start: Expr, over: bool) -> Stmt:
            return self.along(
                inner, lambda at, beyond: self.square({outer: start, inner: at}, {outer: over, inner: beyond})
            )

        body = self.along(outer, both)
        around = [t for t in self.nest.terms if not vars_in(t) & {self.column.loop_var, self.row.loop_var}]
        if around:
            body = IfThenElse(op.all_(*around), body)
        for loop in reversed(self.nest.loops):
            if loop is not self.column and loop is not self.row:
                body = loop.with_(body=body, kind=loop.kind if self.in_registers else "serial")
        return body

    @property
    def in_registers(self) -> bool:
        """Returns whether one of the arrays is scratch memory, which may become registers where its indices are numbers."""
        return self.nest.load.buffer.scope in _REGISTERS or self.nest.store.buffer.scope in _REGISTERS

    def along(self, loop: For, square: Callable[[Expr, bool], Stmt]) -> Stmt:
        """Return a loop over the whole squares, and the incomplete square after it."""
        extent, dtype = loop.extent.value, loop.loop_var.dtype  # type: ignore[attr-defined]
        whole, parts = extent // self.size, []
        if whole == 1:
            parts.append(square(const(0, dtype), False))
        elif whole:
            var = Var(f"{loop.loop_var.name}_t", dtype)
            kind = "unrolled" if self.in_registers and whole <= _FEW_SQUARES else "serial"
            parts.append(For(var, const(0, dtype), const(whole, dtype), kind, square(var * self.size, False)))
        if extent % self.size:
            parts.append(square(const(whole * self.size, dtype), True))
        return seq(*parts)

    def square(self, start: dict[For, Expr], over: dict[For, bool]) -> Stmt:
        """Return one square: its rows are loaded, then transposed and stored."""
        nest, dtype = self.nest, self.nest.store.buffer.dtype.with_lanes(self.size)
        names: list[Expr] = []
        loads: list[tuple[Var, Expr]] = []
        for n in range(self.rows(self.row, start, over)):
            indices = self.moved(nest.load.indices, self.row, self.column, start, n)
            mask = self.mask(self.row, self.column, start, over, n, nest.inside)
            loads.append((Var(f"row{n}", dtype), BufferLoad(nest.load.buffer, indices, mask)))
            names.append(loads[-1][0])
        nothing = Broadcast(const(0, nest.store.buffer.dtype), self.size)
        names += [nothing] * (self.size - len(names))
        stores = []
        for n, value in enumerate(transposed(names, self.block)[: self.rows(self.column, start, over)]):
            indices = self.moved(nest.store.indices, self.column, self.row, start, n)
            mask = self.mask(self.column, self.row, start, over, n)
            stores.append(BufferStore(nest.store.buffer, value, indices, mask))
        body = seq(*stores)
        for var, value in reversed(loads):
            body = LetStmt(var, value, body)
        return body

    def rows(self, loop: For, start: dict[For, Expr], over: dict[For, bool]) -> int:
        """Return the number of rows of the square along ``loop``."""
        return loop.extent.value - start[loop].value if over[loop] else self.size  # type: ignore[attr-defined]

    def moved(
        self, indices: tuple[Expr, ...], fixed: For, lanes: For, start: dict[For, Expr], n: int
    ) -> tuple[Expr, ...]:
        """Return the indices of row ``n`` along ``fixed``, a vector along ``lanes``."""
        at = {fixed.loop_var: start[fixed] + n, lanes.loop_var: start[lanes]}
        *others, last = [self.analyzer.simplify(substitute(i, at)) for i in indices]
        return (*others, Ramp(last, const(1, last.dtype), self.size))

    def mask(
        self,
        fixed: For,
        lanes: For,
        start: dict[For, Expr],
        over: dict[For, bool],
        n: int,
        inside: tuple[Expr, ...] = (),
    ) -> Expr | None:
        """Return the active lanes of that row, None for all."""
        parts: list[Expr] = []
        limits = [lanes.loop_var < lanes.extent] if over[lanes] else []
        for term in (*self.nest.terms, *limits, *inside):
            if lanes.loop_var in vars_in(term):
                parts.append(widen(vectorize_expr(term, lanes.loop_var, start[lanes], self.size), self.size))
        own = [t for t in self.nest.terms if fixed.loop_var in vars_in(t)]
        for term in (*own, *[t for t in inside if lanes.loop_var not in vars_in(t)]):
            held = self.analyzer.simplify(substitute(term, {fixed.loop_var: start[fixed] + n}))
            if not (isinstance(held, IntImm) and held.value):
                parts.append(Broadcast(held, self.size))
        out: Expr | None = None
        for part in parts:
            out = part if out is None else And(out, part)
        return out


# Transposes a square of vectors by shuffles, as hand-written register transposes do.
#
# First every group of rows that fills a 128-bit lane is transposed within the lanes by interleaving halves (a perfect
# shuffle repeated log2 times is a transpose; each step is one unpack instruction per row), then blocks of that size
# change places between the groups: exchanging blocks at distances 1, 2, 4 … (J. O. Eklundh, "A fast computer method for
# matrix transposing", IEEE Transactions on Computers C-21(7), 1972).


def transposed(rows: Sequence[Expr], block: int) -> list[Expr]:
    """Returns the columns of a square of ``len(rows)`` vectors of as many lanes. ``block``: the elements of a 128-bit
    lane.

    >>> from tilewright.tir.expr import Var
    >>> [str(row) for row in transposed([Var("a", "float32x2"), Var("b", "float32x2")], 4)]
    ['T.Shuffle([a, b], [0, 2])', 'T.Shuffle([a, b], [1, 3])']
    """
    size = len(rows)
    block = min(block, size)
    groups = [_within_lanes(rows[g : g + block], size) for g in range(0, size, block)]
    out: list[Expr] = []
    columns = [_exchanged([group[r] for group in groups], block, size) for r in range(block)]
    for place in range(size // block):
        out += [columns[r][place] for r in range(block)]
    return out


def _within_lanes(rows: Sequence[Expr], lanes: int) -> list[Expr]:
    """Returns ``rows`` (as many as a lane has elements) with each lane's square transposed."""
    block, now = len(rows), list(rows)
    half = block // 2
    low, high = [], []
    for start in range(0, lanes, block):
        low += [x for n in range(half) for x in (start + n, lanes + start + n)]
        high += [x for n in range(half, block) for x in (start + n, lanes + start + n)]
    for _ in range(block.bit_length() - 1):
        now = [Shuffle((now[r], now[r + half]), tuple(order)) for r in range(half) for order in (low, high)]
    return now


def _exchanged(rows: list[Expr], block: int, lanes: int) -> list[Expr]:
    """Returns a square of blocks transposed."""
    now, distance = list(rows), 1
    while distance < len(now):
        first = [n if not (n // block) & distance else lanes + n - distance * block for n in range(lanes)]
        second = [n + distance * block if not (n // block) & distance else lanes + n for n in range(lanes)]
        after = list(now)
        for r in range(len(now)):
            if not r & distance:
                pair = (now[r], now[r + distance])
                after[r], after[r + distance] = Shuffle(pair, tuple(first)), Shuffle(pair, tuple(second))
        now, distance = after, distance * 2
    return now
