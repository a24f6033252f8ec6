"""Tells whether two accesses may touch one element from two threads of a block, by listing what each thread touches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

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
    Cast,
    Expr,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Or,
    Sub,
    Var,
    vars_in,
)
from ...tir.stmt import Buffer, For

MOST = 1 << 19
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
    """Answers questions about the accesses of one kernel. ``threads``: the extents of the variables of its threads."""

    def __init__(self, threads: Mapping[Var, int]) -> None:
        self.threads = dict(threads)
        self._tables: dict[tuple[Any, ...], np.ndarray | None] = {}

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
        here = [loop for loop in common if any(loop.loop_var in vars_in(i) for i in (*a.indices, *b.indices))]
        first, second = self._table(a, here), self._table(b, here)
        if first is None or second is None:
            return True
        return _meet(first, second)

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

    def _table(self, access: ThreadAccess, common: Sequence[For]) -> np.ndarray | None:
        """Return rows of (place, thread), where the place is the element, and the iterations of common loops."""
        key = (access.buffer.data, access.indices, access.loops, access.conditions, tuple(common))
        if key not in self._tables:
            self._tables[key] = self._listed(access, common)
        return self._tables[key]

    def _listed(self, access: ThreadAccess, common: Sequence[For]) -> np.ndarray | None:
        used: set[Var] = set().union(*[vars_in(i) for i in access.indices]) if access.indices else set()
        domain: dict[Var, int] = dict(self.threads)
        for loop in (*common, *access.loops):
            if loop.loop_var in used or loop in common:
                extent = _count(loop)
                if extent is None:
                    return None
                domain[loop.loop_var] = extent
        shape = [e.value for e in access.buffer.shape if isinstance(e, IntImm)]
        if prod(domain.values()) > MOST or used - domain.keys() or len(shape) != len(access.buffer.shape):
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
        thread = np.zeros(count, np.int64)
        for var, extent in self.threads.items():
            thread = thread * extent + values[var]
        happens = np.ones(count, bool)
        for condition in access.conditions:
            holds = values_of(condition, values)  # one that is not known may hold
            happens &= True if holds is None else holds
        return np.unique(np.stack([place[happens], thread[happens]]), axis=1)


def _count(loop: For) -> int | None:
    """Return how many iterations a loop has that begins at 0, or None where that is no constant."""
    fits = isinstance(loop.extent, IntImm) and isinstance(loop.min, IntImm) and loop.min.value == 0
    return loop.extent.value if fits else None  # type: ignore[attr-defined]


def _meet(a: np.ndarray, b: np.ndarray) -> bool:
    """Return whether some place stands in both tables with different threads."""
    both = np.unique(np.concatenate([a, b], axis=1), axis=1)
    shared = np.intersect1d(a[0], b[0])
    places, counts = np.unique(both[0], return_counts=True)
    several = places[counts > 1]
    return bool(np.intersect1d(several, shared).size)


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
