"""Places barriers where one thread of a block uses what another one wrote, or writes what another one uses.

Whether two accesses may touch one element from two threads is found by listing what each thread touches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import reduce
from math import prod
from operator import add
from typing import Any

import numpy as np

from ...codegen.lower.tile_accesses import stores_tile, tile_access, tile_spans
from ...tir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
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
    Or,
    Ramp,
    StringImm,
    Sub,
    Var,
    const,
    same,
    vars_in,
)
from ...tir.stmt import (
    Allocate,
    AttrStmt,
    Buffer,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    While,
    children_of,
    seq,
    statements_in,
)
from ...tir.walk import free_vars, loads_and_stores, pre_order, statements
from .launch_form import ATOMIC_CALLS, THREAD_TAGS, GpuError, inside_threads, is_private, is_shared, tag_of, with_body

BULK_SCOPE, BULK_WAIT = "bulk_scope", "tir.ptx_wait_barrier"
"""The attribute around a row that is copied in bulk, and the call that waits for it (:mod:`.bulk_copies`)."""

MOST = 1 << 21
"""Accesses with more combinations of threads and iterations than this are taken to overlap."""

_NUMPY: dict[type, Callable[..., np.ndarray]] = {
    Add: np.add, Sub: np.subtract, Mul: np.multiply, FloorDiv: np.floor_divide, FloorMod: np.mod,
    Min: np.minimum, Max: np.maximum, LT: np.less, LE: np.less_equal, GT: np.greater, GE: np.greater_equal,
    EQ: np.equal, NE: np.not_equal, And: np.logical_and, Or: np.logical_or,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class ThreadAccess:
    """An access of each thread to an element: its place, whether it writes, and what surrounds it. These are the loops
    inside the kernel and the conditions around the access."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    writes: bool
    loops: tuple[For, ...]
    conditions: tuple[Expr, ...] = ()


class Overlaps:
    """Answers questions about the accesses of one kernel. ``threads``: the extents of the variables of its threads.

    ``given``: variables that have one value in the whole block, such as ``blockIdx.x`` and sizes.
    """

    def __init__(self, threads: Mapping[Var, int], given: Set[Var] = frozenset()) -> None:
        self.threads, self.given = dict(threads), given
        self._tables: dict[tuple[Any, ...], _Touched | None] = {}
        self._reduced: dict[tuple[Any, ...], tuple[tuple[Expr, ...], tuple[Expr, ...]]] = {}

    def conflict(self, a: ThreadAccess, b: ThreadAccess, repeated: For | None = None) -> bool:
        """Return whether ``a`` and ``b`` may touch one element from two threads, and one of them writes it.

        ``repeated``: the loop around both that may be at different iterations, like those inside it; other common
        loops are at the same one.
        """
        if a.buffer.data is not b.buffer.data or not (a.writes or b.writes):
            return False
        outer = a.loops[: a.loops.index(repeated)] if repeated is not None else a.loops
        common = tuple([loop for loop in outer if loop in b.loops])
        if self._apart(a, b, common):
            return False
        key = (a.indices, b.indices, common)
        if key not in self._reduced:
            self._reduced[key] = _without_common_terms(
                a.indices, b.indices, {loop.loop_var for loop in common} | self.given
            )
        one, other = self._reduced[key]
        a, b = replace(a, indices=one), replace(b, indices=other)
        here = [loop for loop in common if any(loop.loop_var in vars_in(i) for i in (*a.indices, *b.indices))]
        first, second = self._table(a, here), self._table(b, here)
        if first is None or second is None:
            return True
        return first.meets(second)

    def _apart(self, a: ThreadAccess, b: ThreadAccess, common: Sequence[For]) -> bool:
        """Return whether an index of both differs in every iteration of the common loops, whichever the threads. Such
        an index chooses one of the versions of a buffer in a pipeline."""
        loops = {loop.loop_var: loop for loop in common}
        for i, j in zip(a.indices, b.indices, strict=False):
            used = list(vars_in(i) | vars_in(j))
            if i is j or not all(v in loops for v in used):
                continue
            extents = [_count(loops[v]) for v in used]
            if any(n is None for n in extents) or prod(n or 0 for n in extents) > MOST:
                continue
            grids = np.indices([n or 0 for n in extents], dtype=np.int64) if used else np.zeros((0, 1), np.int64)
            values = {v: grids[n].ravel() for n, v in enumerate(used)}
            first, second = values_of(i, values), values_of(j, values)
            if first is not None and second is not None and not np.any(first == second):
                return True
        return False

    def _table(self, access: ThreadAccess, common: Sequence[For]) -> _Touched | None:
        """Return what an access touches, where a place is an element with the iterations of the common loops."""
        key = (access.buffer.data, access.indices, access.loops, access.conditions, tuple(common))
        if key not in self._tables:
            self._tables[key] = self._listed(access, common)
        return self._tables[key]

    def _listed(self, access: ThreadAccess, common: Sequence[For]) -> _Touched | None:
        used: set[Var] = set().union(*[vars_in(e) for e in access.indices])
        asked = used.union(*[vars_in(c) for c in access.conditions])
        domain = {var: extent for var, extent in self.threads.items() if var in asked}
        for loop in (*common, *access.loops):
            if loop.loop_var in used or loop in common:
                extent = _count(loop)
                if extent is None:
                    return None
                domain[loop.loop_var] = extent
        shape = [e.value for e in access.buffer.shape if isinstance(e, IntImm)]
        known = domain.keys() | self.threads.keys()
        if prod(domain.values()) > MOST or used - known or len(shape) != len(access.buffer.shape):
            return None
        grids = np.indices(tuple(domain.values()), dtype=np.int64) if domain else np.zeros((0, 1), np.int64)
        values = {var: grids[n].ravel() for n, var in enumerate(domain)}
        count = prod(domain.values())
        place = np.zeros(count, np.int64)
        for index, extent in zip(access.indices, shape, strict=True):
            found = values_of(index, values)
            if found is None:
                return None
            place = place * (extent + 1) + found
        for loop in common:
            place = place * domain[loop.loop_var] + values[loop.loop_var]
        first, last = np.zeros(count, np.int64), np.zeros(count, np.int64)
        for var, extent in self.threads.items():  # a thread that nothing asks for does what all do
            first = first * extent + values.get(var, 0)
            last = last * extent + values.get(var, extent - 1)
        happens = np.ones(count, bool)
        for condition in access.conditions:
            holds = values_of(condition, values)  # one that is not known may hold
            happens &= True if holds is None else holds
        return _Touched.of(place[happens], first[happens], last[happens])


@dataclass(frozen=True)
class _Touched:
    """Sorted places, and of each the first and the last thread that touches it."""

    places: np.ndarray
    first: np.ndarray
    last: np.ndarray

    @staticmethod
    def of(place: np.ndarray, first: np.ndarray, last: np.ndarray) -> _Touched:
        """Return the table of touches in any order."""
        order = np.argsort(place, kind="stable")
        place = place[order]
        starts = np.flatnonzero(np.r_[True, place[1:] != place[:-1]]) if place.size else np.zeros(0, np.int64)
        if not place.size:
            return _Touched(place, first, last)
        return _Touched(
            place[starts], np.minimum.reduceat(first[order], starts), np.maximum.reduceat(last[order], starts)
        )

    def meets(self, other: _Touched) -> bool:
        """Return whether both touch some place that two threads touch."""
        if not self.places.size or not other.places.size:
            return False
        at = np.minimum(np.searchsorted(other.places, self.places), other.places.size - 1)
        both = other.places[at] == self.places
        return bool((both & (np.minimum(self.first, other.first[at]) != np.maximum(self.last, other.last[at]))).any())


def _without_common_terms(
    a: Sequence[Expr], b: Sequence[Expr], fixed: Set[Var]
) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """Return the indices of two accesses without the terms that both have.

    Those terms are of the variables ``fixed`` alone, which have one value in both.

    Whether two indices are equal does not change, and a loop of many iterations need not be listed.
    """
    first, second = [], []
    for i, j in zip(a, b, strict=True):
        mine, theirs = _terms(i), _terms(j)
        own = [t for t in mine if vars_in(t) and vars_in(t) <= fixed]
        others = [t for t in theirs if vars_in(t) and vars_in(t) <= fixed]
        if _equal_sums(own, others):
            i, j = _sum_of(mine, own, i), _sum_of(theirs, others, j)
        first.append(i)
        second.append(j)
    return tuple(first), tuple(second)


def _terms(e: Expr) -> list[Expr]:
    return [*_terms(e.a), *_terms(e.b)] if isinstance(e, Add) else [e]


def _equal_sums(a: Sequence[Expr], b: Sequence[Expr]) -> bool:
    """Return whether two sums have the same terms, in any order."""
    left = list(b)
    for term in a:
        at = next((n for n, other in enumerate(left) if same(term, other)), None)
        if at is None:
            return False
        del left[at]
    return not left


def _sum_of(terms: Sequence[Expr], dropped: Sequence[Expr], whole: Expr) -> Expr:
    """Return the sum of the terms that are not dropped; ``whole`` where none is."""
    if not dropped:
        return whole
    rest = [t for t in terms if not any(t is d for d in dropped)]
    return reduce(add, rest) if rest else const(0, whole.dtype)


def _count(loop: For) -> int | None:
    """Return how many iterations a loop has that begins at 0, or None where that is no constant."""
    fits = isinstance(loop.extent, IntImm) and isinstance(loop.min, IntImm) and loop.min.value == 0
    return loop.extent.value if fits else None  # type: ignore[attr-defined]


def values_of(e: Expr, values: Mapping[Var, np.ndarray]) -> np.ndarray | None:
    """Return the values of index arithmetic for all values of its variables, or None for other expressions."""
    if isinstance(e, IntImm):
        return np.asarray(e.value)
    if isinstance(e, Var):
        return values.get(e)
    if isinstance(e, Cast) and e.dtype.is_int and e.value.dtype.is_int:
        return values_of(e.value, values)
    apply = _NUMPY.get(type(e))
    if apply is None or isinstance(e, BufferLoad):
        return None
    a, b = values_of(e.a, values), values_of(e.b, values)  # type: ignore[attr-defined]
    return None if a is None or b is None else apply(a, b)


BARRIER = "tir.tvm_storage_sync"


def barrier() -> Stmt:
    """Returns the statement at which the threads of a block wait for each other."""
    return Evaluate(Call(BARRIER, (StringImm("shared"),), "int32"))


def is_barrier(s: object) -> bool:
    """Returns whether a statement is a barrier."""
    return isinstance(s, Evaluate) and isinstance(s.value, Call) and s.value.op == BARRIER


def place_barriers(func: PrimFunc) -> PrimFunc:
    """Return ``func``, whose kernels are in launch form, with the barriers that their threads need.

    Before::

        S[t] = A[t]
        B[t] = S[7 - t]

    After::

        S[t] = A[t]
        T.tvm_storage_sync("shared")
        B[t] = S[7 - t]

    Accesses of one element by one thread need none. GpuError where a barrier would stand under a condition that differs
    between threads.
    """

    def visit(s: Stmt) -> Stmt:
        if tag_of(s):
            loops, body = inside_threads(s)
            return with_body(s, _Placement(loops, body).run())
        return s.map_children(lambda c: visit(c) if isinstance(c, Stmt) else c)

    return func.with_body(visit(func.body))


class _Placement:
    """The placement in one kernel. ``pending``: the accesses since the last barrier; ``varying``: variables whose
    values may differ between threads; ``divergent``: the condition under which a barrier cannot stand."""

    def __init__(self, loops: Mapping[str, For], body: Stmt) -> None:
        self.body = body
        threads = {loops[tag].loop_var: int(loops[tag].extent) for tag in THREAD_TAGS if tag in loops}  # type: ignore[call-overload]
        self.overlaps = Overlaps(threads, free_vars(body) - set(threads))
        self.varying: set[Var] = set(threads)
        self.pending: list[ThreadAccess] = []
        self.divergent = ""
        self.conditions: tuple[Expr, ...] = ()
        self.alone = all(n <= 1 for n in threads.values())
        found = [a for a in loads_and_stores(body) if not is_private(a.buffer.scope)]
        tiles = [(n.op, tile_access(n)) for n in pre_order(body) if isinstance(n, Call)]
        self.firsts = {first for _, first in tiles if first is not None}
        stored = {a.buffer.data for a in found if isinstance(a, BufferStore)}
        stored |= {first.buffer.data for op, first in tiles if first is not None and op.endswith("_store")}
        read = {a.buffer.data for a in found if isinstance(a, BufferLoad) and a not in self.firsts}
        read |= {first.buffer.data for op, first in tiles if first is not None and not op.endswith("_store")}
        self.watched = stored & read
        self.uniform: frozenset[Var] = _uniform(self, body)
        bulk = [n for n in statements(body) if isinstance(n, AttrStmt) and n.attr_key == BULK_SCOPE]
        self.beside = {a.indices for n in bulk for a in loads_and_stores(n)}
        """The places of accesses of copies in bulk, which all threads await."""

    def run(self) -> Stmt:
        """Return the body with barriers."""
        return self.body if self.alone or not self.watched else self.visit(self.body, ())

    # -- accesses ----------------------------------------------------------------------------------------------------

    def accesses(self, s: Stmt | Expr, loops: tuple[For, ...]) -> list[ThreadAccess]:
        """Return all accesses in ``s`` that need watching."""
        if isinstance(s, For):
            return [*self._own(s, loops), *self.accesses(s.body, (*loops, s))]
        if isinstance(s, IfThenElse):
            outer, own = self.conditions, self._own(s, loops)
            self.conditions = (*outer, s.condition)
            then = self.accesses(s.then_case, loops)
            self.conditions = outer
            return [*own, *then, *([] if s.else_case is None else self.accesses(s.else_case, loops))]
        if isinstance(s, Stmt) and any(True for _ in statements(s) if _ is not s):
            below = [a for c in s.children() if isinstance(c, Stmt) for a in self.accesses(c, loops)]
            return [*self._own(s, loops), *below]
        return [*self._tiles(s, loops), *self._single(s, loops)]

    def _single(self, s: Stmt | Expr, loops: tuple[For, ...]) -> list[ThreadAccess]:
        """Return the accesses to single elements."""
        found = [a for a in loads_and_stores(s) if a.buffer.data in self.watched and a not in self.firsts]
        return [self._access(a, loops) for a in found]

    def _tiles(self, s: Stmt | Expr, loops: tuple[For, ...]) -> list[ThreadAccess]:
        """Return the accesses to tiles, each as one of all threads to all of its elements."""
        out = []
        for n in pre_order(s):
            first = tile_access(n)
            if first is None or first.buffer.data not in self.watched:
                continue
            assert isinstance(n, Call)
            at, inner = list(first.indices), []
            spans = tile_spans(n, first.buffer)
            if spans is None:  # somewhere in the buffer
                at, spans = [const(0, i.dtype) for i in at], dict.fromkeys(range(len(at)), 0)
            for d, count in spans.items():
                var = Var("tile", at[d].dtype)
                extent = const(count, var.dtype) if count else first.buffer.shape[d].astype(var.dtype)
                inner.append(For(var, const(0, var.dtype), extent, "serial", seq()))
                at[d] = at[d] + var
            out.append(ThreadAccess(first.buffer, tuple(at), stores_tile(n), (*loops, *inner), self.conditions))
        return out

    def _own(self, s: Stmt, loops: tuple[For, ...]) -> list[ThreadAccess]:
        """Return the accesses of a statement apart from those inside it."""
        parts = [c for c in s.children() if isinstance(c, Expr)]
        return [a for e in parts for a in (*self._tiles(e, loops), *self._single(e, loops))]

    def _access(self, a: BufferLoad | BufferStore, loops: tuple[For, ...]) -> ThreadAccess:
        """Return an access; one of a vector is as a loop over its lanes."""
        indices, lanes = a.indices, next((i.lanes for i in a.indices if isinstance(i, Ramp)), 1)
        if lanes > 1:
            lane = Var("lane", indices[-1].dtype.element)
            indices = tuple([i.base + i.stride * lane if isinstance(i, Ramp) else i for i in indices])
            loops = (*loops, For(lane, const(0, lane.dtype), const(lanes, lane.dtype), "serial", seq()))
        return ThreadAccess(a.buffer, indices, isinstance(a, BufferStore), loops, self.conditions)

    def conflict(
        self, earlier: Sequence[ThreadAccess], later: Sequence[ThreadAccess], repeated: For | None = None
    ) -> Buffer | None:
        """Return a buffer of which two threads may use one element, one of them to write it."""
        for a in earlier:
            for b in later:
                if self.overlaps.conflict(a, b, repeated):
                    return a.buffer
        return None

    # -- statements --------------------------------------------------------------------------------------------------

    def visit(self, s: Stmt, loops: tuple[For, ...]) -> Stmt:
        """Return ``s`` with barriers in it and, where it needs one, in front of it."""
        if is_barrier(s):
            self.pending = []
            return s
        if isinstance(s, (SeqStmt, Allocate, AttrStmt)):
            return self._within(s, loops)
        if isinstance(s, While):
            return self._while(s, loops)
        if isinstance(s, Evaluate) and isinstance(s.value, Call) and s.value.op == BULK_WAIT:
            self.pending = [a for a in self.pending if a.indices not in self.beside]
            return s
        first = self._own(s, loops) if isinstance(s, LetStmt) else self._first_accesses(s, loops)
        buffer = self.conflict(self.pending, first)
        if buffer is None:
            return self._within(s, loops)
        self._need(buffer)
        self.pending = []
        return seq(barrier(), self._within(s, loops))

    def _first_accesses(self, s: Stmt, loops: tuple[For, ...]) -> list[ThreadAccess]:
        """Return the accesses of ``s`` that a barrier in it does not separate from what comes before."""
        if isinstance(s, For) and any(is_barrier(child) for child in children_of(s.body)):
            return [*self._own(s, loops), *self._until_barrier(s.body, (*loops, s))]
        return self.accesses(s, loops)

    def _need(self, buffer: Buffer) -> None:
        if self.divergent:
            raise GpuError(
                f"threads exchange values through {buffer.name} under {self.divergent}, where not all of them arrive "
                "at a barrier; use sizes that divide, so that the condition goes"
            )

    def _within(self, s: Stmt, loops: tuple[For, ...]) -> Stmt:
        if isinstance(s, For):
            return self._loop(s, loops)
        if isinstance(s, IfThenElse):
            return self._branch(s, loops)
        if isinstance(s, LetStmt):
            self.pending.extend(self._own(s, loops))
            if self._varies(s.value):
                self.varying.add(s.var)
            return s.with_(body=self.visit(s.body, loops))
        if isinstance(s, (SeqStmt, Allocate, AttrStmt)):
            return s.map_children(lambda c: self.visit(c, loops) if isinstance(c, Stmt) else c)
        self.pending.extend(self.accesses(s, loops))
        return s

    def _loop(self, s: For, loops: tuple[For, ...]) -> Stmt:
        outer, inner = self.divergent, (*loops, s)
        if self._varies(s.min) or self._varies(s.extent):
            self.divergent = self.divergent or f"the loop {s.loop_var.name}"
        before, self.pending = self.pending, self._own(s, loops)
        body = self.visit(s.body, inner)
        one_iteration = isinstance(s.extent, IntImm) and s.extent.value <= 1
        if not one_iteration:
            head = self._until_barrier(body, inner)
            buffer = self.conflict(self.pending, head, s)
            if buffer is not None:
                self._need(buffer)
                body = seq(body, barrier())
                self.pending = []
        self.pending = [*before, *self.pending]
        self.divergent = outer
        return s if body is s.body else s.with_(body=body)

    def _while(self, s: While, loops: tuple[For, ...]) -> Stmt:
        """Return a loop whose iterations have no number. Its accesses are those of a loop that runs we do not know how often."""
        repeated = For(Var("iteration", "int32"), const(0), Var("iterations", "int32"), "serial", s.body)
        inner, outer = (*loops, repeated), self.divergent
        if self._varies(s.condition):
            self.divergent = self.divergent or f"the condition {s.condition}"
        head = [*self._own(s, inner), *self.accesses(s.body, inner)]
        before = self.conflict(self.pending, head)
        front = before is not None
        if before is not None:
            self._need(before)
            self.pending = []
        kept = self.pending
        self.pending = self._own(s, inner)
        body = self.visit(s.body, inner)
        buffer = self.conflict(self.pending, [*self._own(s, inner), *self._until_barrier(body, inner)], repeated)
        if buffer is not None:
            self._need(buffer)
            body = seq(body, barrier())
            self.pending = []
        self.pending = [*kept, *self.pending, *self._own(s, inner)]
        self.divergent = outer
        made = s if body is s.body else s.with_(body=body)
        return seq(barrier(), made) if front else made

    def _until_barrier(self, s: Stmt, loops: tuple[For, ...]) -> list[ThreadAccess]:
        """Return the accesses of ``s`` that may happen before its first barrier."""
        out: list[ThreadAccess] = []
        for child in children_of(s):
            if is_barrier(child):
                return out
            if isinstance(child, (Allocate, AttrStmt)) and child is not s:
                return [*out, *self._until_barrier(child.body, loops)]
            out.extend(self.accesses(child, loops))
        return out

    def _branch(self, s: IfThenElse, loops: tuple[For, ...]) -> Stmt:
        outer = self.divergent
        if self._varies(s.condition):
            self.divergent = self.divergent or f"the condition {s.condition}"
        self.pending.extend(self._own(s, loops))
        before, around = list(self.pending), self.conditions
        self.conditions = (*around, s.condition)
        then = self.visit(s.then_case, loops)
        self.conditions, after = around, self.pending
        other = s.else_case
        if other is not None:
            self.pending = before
            other = self.visit(other, loops)
            after = [*after, *self.pending]
        self.pending = [*before, *[a for a in after if a not in before]]
        self.divergent = outer
        if then is s.then_case and other is s.else_case:
            return s
        return IfThenElse(s.condition, then, other)

    def _varies(self, e: Expr) -> bool:
        """Return whether a value may differ between the threads of a block."""
        return _differs(e, self.varying, self.watched, self.uniform)


def _differs(e: Expr, varying: Set[Var], watched: Set[Var], uniform: Set[Var]) -> bool:
    """Returns whether a value may differ between the threads of a block.

    Threads that read one element of shared memory read one value: none of them writes it before the next barrier. Elements of
    global memory that the kernel writes may be written by other blocks.
    """
    if not vars_in(e).isdisjoint(varying):
        return True
    for n in pre_order(e):
        if isinstance(n, Call) and (n.op in ATOMIC_CALLS or n.op == "tir.call_llvm_pure_intrin"):
            return True
        if isinstance(n, BufferLoad):
            if is_private(n.buffer.scope):
                if n.buffer.data not in uniform:
                    return True
            elif n.buffer.data in watched and not is_shared(n.buffer.scope):
                return True
    return False


def _uniform(placement: _Placement, body: Stmt) -> frozenset[Var]:
    """Returns the memory of single threads that holds the same in all of a block."""
    buffers = {s.buffer.data for s in statements(body) if isinstance(s, Allocate) and is_private(s.buffer.scope)}
    tiles = {first.buffer.data for first in placement.firsts}
    uniform = {b for b in buffers if b not in tiles}
    while True:
        lost: set[Var] = set()

        def visit(s: Stmt, varying: Set[Var], alone: bool, known: frozenset[Var], lost: set[Var] = lost) -> None:
            """Look at a statement; ``alone``: not all threads run it together."""

            def differs(e: Expr) -> bool:
                return _differs(e, varying, placement.watched, known)

            if isinstance(s, BufferStore) and s.buffer.data in known:
                if alone or differs(s.value) or any(map(differs, s.indices)):
                    lost.add(s.buffer.data)
            elif isinstance(s, LetStmt) and differs(s.value):
                varying = varying | {s.var}
            elif isinstance(s, For) and (differs(s.min) or differs(s.extent)):
                varying, alone = varying | {s.loop_var}, True
            elif isinstance(s, (IfThenElse, While)) and differs(s.condition):
                alone = True
            for child in statements_in(s):
                visit(child, varying, alone, known)

        visit(body, frozenset(placement.varying), False, frozenset(uniform))
        if not lost:
            return frozenset(uniform)
        uniform -= lost
