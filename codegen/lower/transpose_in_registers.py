"""Rewrites copies that transpose: square blocks go through registers, so that memory is read and written in whole
vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from ...tir.analysis.simplify import loop_values
from ...tir.arith import Analyzer, constant_coefficients
from ...tir.arith.affine import as_difference
from ...tir.expr import (
    And,
    Broadcast,
    BufferLoad,
    Call,
    DType,
    Expr,
    FloatImm,
    IntImm,
    Max,
    Min,
    Not,
    Ramp,
    Shuffle,
    Var,
    conjuncts,
    const,
    op,
    reads_memory,
)
from ...tir.stmt import Allocate, Buffer, BufferStore, For, IfThenElse, LetStmt, PrimFunc, Stmt, seq
from ...tir.walk import fresh_copy, pre_order, substitute, vars_in
from ..lowered import ALIGNED_ARRAYS
from ..machine.target import Target
from .join_split_indices import joined_access
from .lanes import NotVectorizable, widen
from .scoped_transform import ScopedTransform
from .vectorize_loops import vectorize_expr

_LANE_BITS = 128
_BYTE = DType("uint8")
_MOST_ROWS = 16
_FEWEST_ROWS = 4
_REGISTERS = ("local", "register")
_FEWEST_LINES = 4
"""The lines of a row from which on its squares are shifted to where lines begin."""
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

    In copies from argument to argument, squares begin where lines of memory begin (see :class:`_Shift`).
    """
    own = frozenset([n.buffer.data for n in pre_order(func.body) if isinstance(n, Allocate)])
    if func.attrs.get(ALIGNED_ARRAYS):
        own |= {b.data for b in func.buffers}

    def rewritten(loop: For, _: ScopedTransform) -> Stmt | None:
        nest = _nest(loop)
        found = None if nest is None else _plan(nest, target, own)
        with suppress(NotVectorizable):
            return None if found is None else found.stmt()
        return None

    return ScopedTransform({For: rewritten}).function(func)


def begins_with_lines(loop: For, target: Target, own: frozenset[Var]) -> bool:
    """Returns whether ``loop`` will become squares that begin with lines. ``own``: the function's scratch memory."""
    nest = _nest(loop)
    found = None if nest is None else _plan(nest, target, own)
    return found is not None and bool(found.shifts)


def transposes(loop: For, target: Target) -> bool:
    """Returns whether ``loop`` is a copy that becomes squares."""
    nest = _nest(loop)
    return nest is not None and _plan(nest, target, frozenset()) is not None


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


def _plan(nest: _Nest, target: Target, own: frozenset[Var]) -> _Transpose | None:
    """Returns how to rewrite ``nest``, or None when it does not transpose. ``own``: the function's scratch memory."""
    nest = _of_bytes(_flat(nest))
    store, load = nest.store, nest.load
    dtype = store.buffer.dtype
    if dtype.lanes > 1 or load.buffer.dtype != dtype or load.buffer.data is store.buffer.data:
        return None
    variables = [loop.loop_var for loop in nest.loops]
    places = _coefficients(store.indices, variables)
    tables = [index for index in load.indices if reads_memory(index)]
    sources = _coefficients([const(0) if reads_memory(index) else index for index in load.indices], variables)
    looked_up = {v for index in tables for v in vars_in(index)}
    if places is None or sources is None or not _writes_each_once(places, nest.loops):
        return None
    if any(b.strides and not _is(b.strides[-1], 1) for b in (store.buffer, load.buffer)):
        return None
    if any(reads_memory(t) for t in (*nest.terms, *nest.inside, *store.indices)):
        return None
    if any(isinstance(n, BufferLoad) and n.buffer.data is store.buffer.data for t in tables for n in pre_order(t)):
        return None

    def walks(rows: list[list[int]], n: int) -> bool:  # through memory, without gaps
        return bool(rows) and rows[-1][n] == 1 and all(row[n] == 0 for row in rows[:-1])

    last = len(variables) - 1
    for n in range(last - 1, -1, -1):
        if looked_up & {variables[n], variables[last]}:
            continue  # places that a table says are apart
        for i, j in ((n, last), (last, n)):
            if walks(sources, i) and walks(places, j) and not walks(sources, j) and not walks(places, i):
                found = _build(nest, i, j, target)
                if found is None or tables or own & {store.buffer.data, load.buffer.data}:
                    return found
                shifts = [_shift(found, load, sources, places, target)]
                if _rows_evict_each_other(store.buffer, [row[i] for row in places], found.size, target):
                    shifts.append(_shift(found, store, places, sources, target))
                return replace(found, shifts=tuple([s for s in shifts if s is not None]))
    return None


def _flat(nest: _Nest) -> _Nest:
    """Returns the nest with views of its arrays in which dimensions that one loop goes through are one."""
    analyzer = Analyzer()
    for loop in nest.loops:
        analyzer.bind(loop.loop_var, loop_values(loop))
    for loop in nest.loops:
        store = joined_access(nest.store, loop.loop_var, analyzer.simplify)
        load = joined_access(nest.load, loop.loop_var, analyzer.simplify)
        if isinstance(store, BufferStore):
            nest = replace(nest, store=store)
        if isinstance(load, BufferLoad):
            nest = replace(nest, load=load)
    return nest


def _of_bytes(nest: _Nest) -> _Nest:
    """Returns the nest with views of bytes of arrays of bool, whose lanes would be bits in registers."""
    store, load = nest.store, nest.load
    if not store.buffer.dtype.is_bool or not load.buffer.dtype.is_bool:
        return nest
    source, target = (b.with_(name=f"{b.name}_bytes", dtype=_BYTE, data=b.data) for b in (load.buffer, store.buffer))
    load = replace(load, buffer=source)
    return replace(nest, load=load, store=replace(store, buffer=target, value=load))


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


def _ends(term: Expr, loop: For) -> bool:
    """Returns whether a condition on a loop's variable holds up to some value and never after it."""
    gap = as_difference(term)
    steps = None if gap is None else constant_coefficients(gap, [loop.loop_var])
    return steps is not None and steps[0] > 0


def _is(e: Expr, value: int) -> bool:
    return isinstance(e, IntImm) and e.value == value


@dataclass(frozen=True)
class _Shift:
    """An axis whose squares begin where lines of memory begin.

    Arrays of callers need not begin with a line. Then each row of a square would lie in two lines, and each line would be
    needed by two squares, between which it is often evicted. So squares are shifted to the left by ``by`` elements, the
    distance of the first element from the beginning of its line, and there is one square more; what the first and the last
    one have outside the axis is left out. All rows must begin at the same place in a line.

    ``loops`` are the loops of the axis from the outside to the inside, ``steps`` the elements by which each advances, and
    ``value`` is what ``by`` stands for.
    """

    by: Var
    value: Expr
    loops: tuple[For, ...]
    steps: tuple[int, ...]

    @property
    def extent(self) -> int:
        """Returns the number of elements of the axis."""
        return self.steps[0] * self.loops[0].extent.value  # type: ignore[attr-defined]

    def before(self, loop: For) -> Expr:
        """Return the number of elements in front of those that ``loop`` runs through."""
        out: Expr = const(0, self.by.dtype)
        for outer, step in zip(self.loops[: self.loops.index(loop)], self.steps, strict=False):
            out += outer.loop_var * step
        return out

    def trips(self, loop: For, step: int) -> Expr:
        """Return how often ``loop`` runs when each iteration takes ``step`` elements."""
        whole = loop.extent.value * self.steps[self.loops.index(loop)] // step  # type: ignore[attr-defined]
        if loop is not self.loops[0] and whole == 1:
            return const(1, self.by.dtype)
        trips = (self.extent + self.by - self.before(loop) + (step - 1)) // step
        return trips if loop is self.loops[0] else Min(trips, const(whole, trips.dtype))

    def within(self, value: Expr, after: int = 1) -> list[Expr]:
        """Return the conditions under which ``after`` elements from ``value`` of the innermost variable on exist."""
        first = self.before(self.loops[-1]) + value
        return [first >= 0, first <= self.extent - after]

    def nearest(self, value: Expr) -> Expr:
        """Return the value of the innermost variable for the element of the axis that is nearest to that at ``value``."""
        before = self.before(self.loops[-1])
        return Max(Min(before + value, const(self.extent - 1, value.dtype)), const(0, value.dtype)) - before


def _shift(
    found: _Transpose, access: BufferLoad | BufferStore, rows: list[list[int]], others: list[list[int]], target: Target
) -> _Shift | None:
    """Returns how to shift the axis that runs through the rows of ``access``, or None where that does not help.

    ``rows``: the increase of each of its indices per step of each loop; ``others``: of those of the other array.
    """
    nest, buffer, line_bytes = found.nest, access.buffer, target.caches.line
    line = line_bytes // buffer.dtype.bytes
    of = [n for n, step in enumerate(rows[-1]) if step]
    loops, steps = [nest.loops[n] for n in of], [rows[-1][n] for n in of]
    extents = [loop.extent.value for loop in loops]  # type: ignore[attr-defined]
    if steps != [math.prod(extents[n + 1 :]) for n in range(len(of))] or math.prod(extents) < _FEWEST_LINES * line:
        return None
    if 2 * found.size < line or extents[-1] < line or (len(loops) > 1 and extents[-1] % found.size):
        return None
    variables = {loop.loop_var for loop in loops}
    if any(vars_in(t) & variables for t in (*nest.terms, *nest.inside)):
        return None
    for index, stride in zip(rows[:-1], buffer.element_strides(), strict=False):
        if any(index) and not (isinstance(stride, IntImm) and stride.value % line == 0):
            return None
    if any(index[of[-1]] * step != index[n] for index in others for n, step in zip(of, steps, strict=True)):
        return None  # only the number of the element may count
    zero: dict[Var, Expr] = {loop.loop_var: loop.min for loop in nest.loops}
    first = BufferLoad(buffer, tuple([found.analyzer.simplify(substitute(e, zero)) for e in access.indices]))
    by = Var(f"{loops[-1].loop_var.name}_shift", loops[-1].loop_var.dtype)
    away = Call("tir.misaligned", (Call("tir.address_of", (first,), "handle"), const(line_bytes)), by.dtype)
    return _Shift(by, away // buffer.dtype.bytes, tuple(loops), tuple(steps))


def _rows_evict_each_other(buffer: Buffer, steps: list[int], rows: int, target: Target) -> bool:
    """Returns whether ``rows`` lines that are these ``steps`` of the indices apart fill a set of the first-level cache.

    Otherwise a line that is written by two squares one after the other remains there between them.
    """
    caches, pitch = target.caches, 0
    for step, stride in zip(steps, buffer.element_strides(), strict=True):
        if step and not isinstance(stride, IntImm):
            return False
        pitch += step * int(stride) * buffer.dtype.bytes if step else 0  # type: ignore[call-overload]
    sets = caches.l1 // caches.l1_ways
    return rows * math.gcd(pitch, sets) >= caches.l1_ways * sets


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
    shifts: tuple[_Shift, ...] = ()

    def stmt(self) -> Stmt:
        """Return the loops over squares, in the order of the loops that they replace.

        Squares of memory are long enough to be left in loops: LLVM would mix the loads of copies that are written out,
        so that lines are evicted before all of their square is read.
        """
        if not self.shifts:
            return self.squares()
        plain = fresh_copy(replace(self, shifts=()).squares())
        body: Stmt = IfThenElse(op.any_(*[s.by > 0 for s in self.shifts]), self.squares(), plain)
        for shift in self.shifts:
            body = LetStmt(shift.by, shift.value, body)
        return body

    def squares(self) -> Stmt:
        """Return the loops over squares, shifted ones as far as there are shifts."""
        inner = self.nest.loops[-1]
        outer = self.row if inner is self.column else self.column

        def both(start: Expr, over: bool) -> Stmt:
            return self.along(
                inner, lambda at, beyond: self.edged({outer: start, inner: at}, {outer: over, inner: beyond})
            )

        body = self.along(outer, both)
        around = [t for t in self.nest.terms if not vars_in(t) & {self.column.loop_var, self.row.loop_var}]
        if around:
            body = IfThenElse(op.all_(*around), body)
        for loop in reversed(self.nest.loops):
            if loop is not self.column and loop is not self.row:
                shift = self.shift(loop)
                extent = loop.extent if shift is None else shift.trips(loop, shift.steps[shift.loops.index(loop)])
                body = loop.with_(body=body, extent=extent, kind=loop.kind if self.in_registers else "serial")
        return body

    def shift(self, loop: For) -> _Shift | None:
        """Return the shift of the axis of which ``loop`` is a part."""
        return next((s for s in self.shifts if loop in s.loops), None)

    @property
    def in_registers(self) -> bool:
        """Returns whether one of the arrays is scratch memory, which may become registers where its indices are numbers."""
        return self.nest.load.buffer.scope in _REGISTERS or self.nest.store.buffer.scope in _REGISTERS

    def along(self, loop: For, square: Callable[[Expr, bool], Stmt]) -> Stmt:
        """Return a loop over the whole squares, and the incomplete square after it."""
        extent, dtype = loop.extent.value, loop.loop_var.dtype  # type: ignore[attr-defined]
        whole, parts = extent // self.size, []
        shift = self.shift(loop)
        if shift is not None:
            trips = shift.trips(loop, self.size)
            if _is(trips, 1):
                return square(-shift.by, False)
            var = Var(f"{loop.loop_var.name}_t", dtype)
            return For(var, const(0, dtype), trips, "serial", square(var * self.size - shift.by, False))
        if whole == 1:
            parts.append(square(const(0, dtype), False))
        elif whole:
            var = Var(f"{loop.loop_var.name}_t", dtype)
            kind = "unrolled" if self.in_registers and whole <= _FEW_SQUARES else "serial"
            parts.append(For(var, const(0, dtype), const(whole, dtype), kind, square(var * self.size, False)))
        if extent % self.size:
            parts.append(square(const(whole * self.size, dtype), True))
        return seq(*parts)

    def edged(self, start: dict[For, Expr], over: dict[For, bool]) -> Stmt:
        """Return one square, with checks where it reaches over the ends of a shifted axis."""
        if not self.shifts:
            holds = self.begun(start)
            return IfThenElse(op.all_(*holds), self.square(start, over)) if holds else self.square(start, over)
        inside = [t for s in self.shifts for t in s.within(start[s.loops[-1]], self.size)]
        return IfThenElse(op.all_(*inside), self.square(start, over), self.square(start, over, at_end=True))

    def begun(self, start: dict[For, Expr]) -> list[Expr]:
        """Return the conditions under which a square that is not the first one has elements to store."""
        return [
            substitute(term, {loop.loop_var: start[loop]})
            for term in self.nest.terms
            for loop in (self.column, self.row)
            if not _is(start[loop], 0) and _ends(term, loop)
        ]

    def square(self, start: dict[For, Expr], over: dict[For, bool], at_end: bool = False) -> Stmt:
        """Return one square: its rows are loaded, then transposed and stored.

        ``at_end``: it may reach over the ends of shifted axes. No memory there is touched, not even with an empty mask: a
        page without memory costs an interrupt each time. A row outside is the nearest one inside where it is loaded (its
        lanes are not stored), and is left out where it is stored.
        """
        shifts = {s.loops[-1]: s for s in self.shifts} if at_end else {}
        nest, dtype = self.nest, self.nest.store.buffer.dtype.with_lanes(self.size)
        names: list[Expr] = []
        loads: list[tuple[Var, Expr]] = []
        own = [t for t in nest.terms if self.row.loop_var in vars_in(t)]
        outside = [t for t in nest.inside if self.column.loop_var not in vars_in(t)]
        for n in range(self.rows(self.row, start, over)):
            row = start[self.row] + n
            if self.row in shifts:
                row = shifts[self.row].nearest(row)
            indices = self.moved(nest.load.indices, {self.row: row, self.column: start[self.column]}, self.column)
            held = self.held([*own, *outside], self.row, start[self.row] + n)
            mask = self.mask(self.column, start, over, nest.inside, shifts.get(self.column), held)
            loads.append((Var(f"row{n}", dtype), BufferLoad(nest.load.buffer, indices, mask)))
            names.append(loads[-1][0])
        nothing = Broadcast(const(0, nest.store.buffer.dtype), self.size)
        names += [nothing] * (self.size - len(names))
        columns = transposed(names, self.block)[: self.rows(self.column, start, over)]
        own = [t for t in nest.terms if self.column.loop_var in vars_in(t)]
        ends = all(_ends(term, self.column) for term in own)
        body = seq()
        for n, value in reversed([*enumerate(columns)]):
            column = start[self.column] + n
            indices = self.moved(nest.store.indices, {self.column: column, self.row: start[self.row]}, self.row)
            mask = self.mask(self.row, start, over, shift=shifts.get(self.row))
            store: Stmt = BufferStore(nest.store.buffer, value, indices, mask)
            held = self.held(own, self.column, column)
            if self.column in shifts:
                held += shifts[self.column].within(column)
            elif held and ends:
                store, body = seq(store, body), seq()
            body = seq(IfThenElse(op.all_(*held), store) if held else store, body)
        for var, value in reversed(loads):
            body = LetStmt(var, value, body)
        return body

    def rows(self, loop: For, start: dict[For, Expr], over: dict[For, bool]) -> int:
        """Return the number of rows of the square along ``loop``."""
        return loop.extent.value - start[loop].value if over[loop] else self.size  # type: ignore[attr-defined]

    def moved(self, indices: tuple[Expr, ...], at: dict[For, Expr], lanes: For) -> tuple[Expr, ...]:
        """Return the indices of the row ``at`` these values of the two variables, a vector along ``lanes``."""
        values = {loop.loop_var: value for loop, value in at.items()}
        *others, last = [self.analyzer.simplify(substitute(i, values)) for i in indices]
        return (*others, Ramp(last, const(1, last.dtype), self.size))

    def held(self, terms: Sequence[Expr], fixed: For, value: Expr) -> list[Expr]:
        """Return conditions for the row at ``value`` of a variable, without those that always hold."""
        found = [self.analyzer.simplify(substitute(t, {fixed.loop_var: value})) for t in terms]
        return [t for t in found if not (isinstance(t, IntImm) and t.value)]

    def mask(
        self, lanes: For, start: dict[For, Expr], over: dict[For, bool], inside: Sequence[Expr] = (),
        shift: _Shift | None = None, held: Sequence[Expr] = (),
    ) -> Expr | None:  # fmt: skip
        """Return the active lanes of a row, None for all. Of each ``inside`` holds as well; where ``held`` does not, none is
        active. ``shift``: of the lanes, where they may be outside."""
        limits = [lanes.loop_var < lanes.extent] if over[lanes] else []
        limits += [] if shift is None else shift.within(lanes.loop_var)
        parts: list[Expr] = [
            widen(vectorize_expr(term, lanes.loop_var, start[lanes], self.size), self.size)
            for term in (*self.nest.terms, *limits, *inside)
            if lanes.loop_var in vars_in(term)
        ]
        out: Expr | None = None
        for part in (*parts, *[Broadcast(term, self.size) for term in held]):
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
