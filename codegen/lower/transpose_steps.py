"""Transposes what steps along rows read and write, where the rows are lanes.

Memory is then read and written in whole vectors, not lane by lane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...tir.arith import Analyzer, constant_coefficients
from ...tir.expr import LT, BufferLoad, Call, Expr, IntImm, Var, conjuncts, const, is_const_int, op, structural_equal
from ...tir.expr.node import IRNode
from ...tir.stmt import Allocate, Buffer, BufferStore, For, IfThenElse, PrimFunc, Stmt, children_of, seq
from ...tir.walk import fresh_copy, pre_order, substitute, transform, uses_var
from ..machine.target import Target
from .scoped_transform import ScopedTransform
from .transpose_in_registers import transposes

_FEWEST_STEPS = 4
_MOST_STEPS = 16
_FARTHEST = 4
"""How many steps back a recurrence may look."""


def transpose_steps(func: PrimFunc, target: Target) -> PrimFunc:
    """Go through rows in chunks of steps, which are transposed in registers before and after.

    Before::

        for t in range(1, 33):
            for r in T.vectorized(16): S[r, t] = S[r, t - 1] + X[r, t]

    After::

        for r in T.vectorized(16): S_steps[0, r] = S[r, 0]
        for c in range(2):
            for r in range(16):
                for t in T.vectorized(16): X_steps[t, r] = X[r, c * 16 + t + 1]
            for t in T.unroll(16):
                for r in T.vectorized(16): S_steps[t + 1, r] = S_steps[t, r] + X_steps[t, r]
            for r in range(16):
                for t in T.vectorized(16): S[r, c * 16 + t + 1] = S_steps[t + 1, r]
            for r in T.vectorized(16): S_steps[0, r] = S_steps[16, r]

    It applies to loops around one vector loop of stores, in functions whose arrays do not
    overlap, where the loop's variable runs through the last dimension of an array and the lanes through another one. Of
    what the steps store there, they may read what earlier ones stored. Otherwise each lane would be loaded and stored by
    itself.
    """
    if not func.attrs.get("tir.noalias"):
        return func

    def rewritten(loop: For, _: ScopedTransform) -> Stmt | None:
        first, others = _first_steps(loop)
        found = _steps_of(others)
        if found is None or transposes(loop, target):
            return None
        made = found.stmt(target)
        return None if made is None else seq(*first, made)

    return ScopedTransform({For: rewritten}).function(func)


def _first_steps(loop: For) -> tuple[list[Stmt], For]:
    """Returns the first steps, which ``if_then_else(t < 1, x, y)`` sets apart, and the loop over the others.

    Recurrences of a symbolic number of steps, which may be 0, are written so.
    """
    t = loop.loop_var
    if not is_const_int(loop.min, 0):
        return [], loop
    choices = [n for n in pre_order(loop.body) if isinstance(n, Call) and n.op == "tir.if_then_else"]
    ends = [_first_end(n.args[0], t) for n in choices]
    count = max(ends, default=0)
    if not 0 < count <= _FARTHEST:
        return [], loop

    def of(step: int) -> Stmt:
        def post(n: IRNode) -> IRNode | None:
            if isinstance(n, Call) and n.op == "tir.if_then_else" and (end := _first_end(n.args[0], t)):
                return n.args[1] if step < end else n.args[2]
            return None

        return transform(loop.body, post=post)

    at = [const(step, t.dtype) for step in range(count)]
    first = [IfThenElse(n < loop.extent, fresh_copy(of(step), {t: n})) for step, n in enumerate(at)]
    simplify = Analyzer().simplify
    return list(first), loop.with_(min=const(count, t.dtype), extent=simplify(loop.extent - count), body=of(count))


def _first_end(condition: Expr, t: Var) -> int:
    """Returns before which step a condition on the first steps holds; 0 for other conditions."""
    if isinstance(condition, LT) and condition.a is t and isinstance(condition.b, IntImm):
        return int(condition.b.value)
    return 0


@dataclass(frozen=True)
class _Array:
    """An array whose last dimension the steps run through, and the ``tile`` for a chunk of them.

    ``indices``: those of a step, in the loop's variable; ``store``: the steps store it, and read up to ``back`` steps
    before, so that the first step of a chunk is number ``back`` of the tile.
    """

    buffer: Buffer
    indices: tuple[Expr, ...]
    tile: Buffer
    back: int = 0
    store: bool = False

    def at(self, var: Var, step: Expr, row: Var, lane: Expr) -> tuple[Expr, ...]:
        """Return the indices at a step for a row."""
        return tuple([substitute(i, {var: step, row: lane}) for i in self.indices])


def _steps_of(loop: For) -> _Steps | None:
    """Returns what to rewrite in ``loop``, or None."""
    inner = loop.body
    if loop.kind != "serial" or loop.annotations:
        return None
    if not isinstance(inner, For) or inner.kind != "vectorized" or inner.annotations:
        return None
    width = inner.extent.value if isinstance(inner.extent, IntImm) else 0
    if not (isinstance(inner.min, IntImm) and inner.min.value == 0) or width < _FEWEST_STEPS:
        return None
    few = isinstance(loop.extent, IntImm) and loop.extent.value < _FEWEST_STEPS
    if few or not isinstance(loop.min, IntImm):
        return None
    terms: list[Expr] = []
    body: Stmt = inner.body
    while isinstance(body, IfThenElse) and body.else_case is None:
        terms += conjuncts(body.condition)
        body = body.then_case
    stores = [s for s in children_of(body) if isinstance(s, BufferStore)]
    if len(stores) != len(children_of(body)):
        return None
    if any(uses_var(t, loop.loop_var) or any(isinstance(n, BufferLoad) for n in pre_order(t)) for t in terms):
        return None
    if any(
        isinstance(n, Call) and (n.op == "tir.if_then_else" or n.op.startswith("tir.call")) for n in pre_order(body)
    ):
        return None
    arrays = _arrays(loop, inner, stores)
    return None if arrays is None else _Steps(loop, inner, tuple(terms), tuple(stores), tuple(arrays))


def _arrays(loop: For, inner: For, stores: Sequence[BufferStore]) -> list[_Array] | None:
    """Returns the arrays to transpose; None where there are none, or where the steps may not be told apart."""
    t, r = loop.loop_var, inner.loop_var
    loads = [n for s in stores for n in pre_order(s) if isinstance(n, BufferLoad)]
    accesses: list[BufferLoad | BufferStore] = [*stores, *loads]
    if any(n.predicate is not None for n in accesses):
        return None
    found: list[_Array] = []
    for store in stores:
        if not _any_uses(store.indices, t):
            continue
        same = [n for n in accesses if n.buffer.data is store.buffer.data]
        if not _runs_along(store.indices, t, r) or sum(isinstance(n, BufferStore) for n in same) > 1:
            return None
        ago = [_steps_back(store.indices, n.indices, t) for n in same if n.buffer is store.buffer]
        steps = [n for n in ago if n is not None and 0 <= n <= _FARTHEST]
        if len(steps) != len(same) or max(steps) > loop.min.value:  # type: ignore[attr-defined]
            return None
        if any(_reads(other, store.indices, store.buffer, t) for other in stores[: stores.index(store) + 1]):
            return None  # what the array held before these steps
        found.append(
            _Array(store.buffer, store.indices, _tile(store.buffer, inner, max(steps)), max(steps), store=True)
        )
    stored = {s.buffer.data for s in stores}
    for load in loads:
        if load.buffer.data in stored or not _runs_along(load.indices, t, r):
            continue
        if not any(a.buffer is load.buffer and _steps_back(a.indices, load.indices, t) == 0 for a in found):
            found.append(_Array(load.buffer, load.indices, _tile(load.buffer, inner, 0)))
    return found or None


def _reads(store: BufferStore, indices: Sequence[Expr], buffer: Buffer, t: Var) -> bool:
    """Returns whether a store reads the place of ``buffer`` at ``indices``."""
    loads = [n for n in pre_order(store) if isinstance(n, BufferLoad) and n.buffer is buffer]
    return any(_steps_back(indices, n.indices, t) == 0 for n in loads)


def _any_uses(indices: Sequence[Expr], var: Var) -> bool:
    """Returns whether an index uses the variable."""
    return any(uses_var(i, var) for i in indices)


def _tile(buffer: Buffer, inner: For, back: int) -> Buffer:
    """Returns scratch memory for a chunk of steps."""
    return Buffer(f"{buffer.name}_steps", (const(_MOST_STEPS + back), inner.extent), buffer.dtype, "local")


def _runs_along(indices: Sequence[Expr], t: Var, r: Var) -> bool:
    """Returns whether ``t`` runs through the last dimension, and ``r`` through another one."""
    rows = [constant_coefficients(i, [t, r]) for i in indices]
    if (
        not rows
        or any(row is None for row in rows)
        or any(isinstance(n, BufferLoad) for i in indices for n in pre_order(i))
    ):
        return False
    *others, last = [tuple(row or ()) for row in rows]
    lanes = [row for row in others if row != (0, 0)]
    return last == (1, 0) and len(lanes) == 1 and lanes[0][0] == 0 and lanes[0][1] > 0


def _steps_back(indices: Sequence[Expr], others: Sequence[Expr], t: Var) -> int | None:
    """Returns how many steps before ``indices`` the ``others`` are; None where they are no earlier steps."""
    *rows, last = indices
    *other_rows, other = others
    if len(indices) != len(others) or not all(map(structural_equal, rows, other_rows)):
        return None
    difference = Analyzer().simplify(last - other)
    return difference.value if isinstance(difference, IntImm) else None


@dataclass(frozen=True)
class _Steps:
    """A loop of steps around a vector loop, the conditions in it, its stores, and the arrays to transpose."""

    loop: For
    inner: For
    terms: tuple[Expr, ...]
    stores: tuple[BufferStore, ...]
    arrays: tuple[_Array, ...]

    def stmt(self, target: Target) -> Stmt | None:
        """Return the chunks of steps; None where the copies could not be transposed in registers."""
        bits = max(a.buffer.dtype.bits for a in self.arrays)
        size = min(_MOST_STEPS, target.vector_bits // bits)
        extent, first = self.loop.extent, self.loop.min.value  # type: ignore[attr-defined]
        if self.inner.extent.value != size:  # type: ignore[attr-defined]
            return None
        dtype = self.loop.loop_var.dtype
        parts: list[Stmt] = [self.start(const(first, dtype))]
        var = Var(f"{self.loop.loop_var.name}_chunk", dtype)
        chunks, rest = Analyzer().simplify(extent // size), Analyzer().simplify(extent % size)
        if not is_const_int(chunks, 0):
            made = self.chunk(var * size + first, const(size, dtype), size, target)
            if made is None:
                return None
            parts.append(For(var, const(0, dtype), chunks, "serial", made))
        at = chunks * size + first
        if isinstance(rest, IntImm) and rest.value < _FEWEST_STEPS:
            parts += [self.single(at + n) for n in range(rest.value)]
        else:
            made = self.chunk(at, rest, size, target)
            if made is None:
                return None
            parts.append(made if isinstance(rest, IntImm) else IfThenElse(rest > 0, made))
        body = seq(*parts)
        if not isinstance(extent, IntImm):
            body = IfThenElse(extent > 0, body)
        for array in self.arrays:
            body = Allocate(array.tile, body)
        return body

    def lanes(self, body: Stmt, row: Var, kind: str = "vectorized") -> Stmt:
        """Return a loop over the rows, under the conditions."""
        if self.terms:
            body = IfThenElse(op.all_(*[substitute(t, {self.inner.loop_var: row}) for t in self.terms]), body)
        return For(row, self.inner.min, self.inner.extent, kind, body)

    def row(self) -> Var:
        """Return a new variable for the number of a row."""
        return Var(self.inner.loop_var.name, self.inner.loop_var.dtype)

    def start(self, first: Expr) -> Stmt:
        """Return loads of what the first steps look back to."""
        out: list[Stmt] = []
        for array in self.arrays:
            for n in range(array.back):
                row = self.row()
                there = array.at(self.loop.loop_var, first - (array.back - n), self.inner.loop_var, row)
                out.append(self.lanes(BufferStore(array.tile, BufferLoad(array.buffer, there), (const(n), row)), row))
        return seq(*out)

    def copied(self, array: _Array, start: Expr, steps: Expr, size: int) -> For:
        """Return a copy of a chunk from or to an array, as squares of ``size`` steps."""
        row, step = self.row(), Var(self.loop.loop_var.name, self.loop.loop_var.dtype)
        there = array.at(self.loop.loop_var, start + step, self.inner.loop_var, row)
        here: tuple[Expr, ...] = (step + array.back, row)
        if array.store:
            copy = BufferStore(array.buffer, BufferLoad(array.tile, here), there)
        else:
            copy = BufferStore(array.tile, BufferLoad(array.buffer, there), here)
        some: Stmt = copy if is_const_int(steps, size) else IfThenElse(step < steps, copy)
        body: Stmt = For(step, const(0, step.dtype), const(size, step.dtype), "vectorized", some)
        made = self.lanes(body, row, "serial")
        assert isinstance(made, For)
        return made

    def chunk(self, start: Expr, steps: Expr, size: int, target: Target) -> Stmt | None:
        """Return so many ``steps`` from ``start`` on, transposed in squares of ``size``. Registers hold the squares where
        the number of steps is known."""
        before = [self.copied(a, start, steps, size) for a in self.arrays if not a.store]
        after = [self.copied(a, start, steps, size) for a in self.arrays if a.store]
        if not all(transposes(copy, target) for copy in (*before, *after)):
            return None
        step = Var(self.loop.loop_var.name, self.loop.loop_var.dtype)
        body = self.computed(start + step, step)
        kept: list[Stmt] = []
        for array in self.arrays:
            for n in range(array.back):
                row = self.row()
                last = BufferLoad(array.tile, (steps + n, row))
                kept.append(self.lanes(BufferStore(array.tile, last, (const(n), row)), row))
        known = isinstance(steps, IntImm)
        made = For(step, const(0, step.dtype), steps, "unrolled" if known else "serial", body)
        return seq(*before, made, *after, *kept)

    def computed(self, at: Expr, step: Expr) -> Stmt:
        """Return the stores of a step, into and from the scratch memory."""
        row, t = self.row(), self.loop.loop_var

        def post(n: IRNode) -> IRNode | None:
            for array in self.arrays:
                if isinstance(n, (BufferLoad, BufferStore)) and n.buffer is array.buffer:
                    ago = _steps_back(array.indices, n.indices, t)
                    if ago is not None and 0 <= ago <= array.back:
                        here = (step + (array.back - ago), row)
                        return (
                            BufferLoad(array.tile, here)
                            if isinstance(n, BufferLoad)
                            else BufferStore(array.tile, n.value, here)
                        )
            return None

        stores = [transform(s, post=post) for s in self.stores]
        return self.lanes(substitute(seq(*stores), {t: at, self.inner.loop_var: row}), row)

    def single(self, at: Expr) -> Stmt:
        """Return one step as it was."""
        row = self.row()
        body = seq(*self.stores)
        return self.lanes(substitute(body, {self.loop.loop_var: at, self.inner.loop_var: row}), row)
