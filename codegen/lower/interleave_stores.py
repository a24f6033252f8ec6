"""Stores whole vectors where the lanes of several vectors lie side by side in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...tir.arith import Analyzer
from ...tir.expr import Broadcast, BufferLoad, Call, Expr, IntImm, Ramp, Shuffle, Var, const, structural_equal
from ...tir.stmt import BufferStore, LetStmt, PrimFunc, SeqStmt, Stmt, seq
from ...tir.walk import nodes_by_type, pre_order
from ..lane_offsets import NEAR
from .scoped_transform import ScopedTransform

_FEWEST_LANES = 4


def interleave_stores(func: PrimFunc) -> PrimFunc:
    """Store the lanes of vectors that fill a stretch of memory together as vectors of that stretch.

    Before::

        C.vstore([T.Ramp(i * 2, 2, 16)], a)
        C.vstore([T.Ramp(i * 2 + 1, 2, 16)], b)

    After::

        lanes0: T.float32x16 = a
        lanes1: T.float32x16 = b
        C[i * 2:i * 2 + 16] = T.Shuffle([lanes0, lanes1], [0, 16, 1, 17, …])
        C[i * 2 + 16:i * 2 + 32] = T.Shuffle([lanes0, lanes1], [8, 24, 9, 25, …])

    It applies to two to four vectors among the stores that follow one another, in functions whose arrays do not overlap.
    The lanes may be in another dimension than the innermost one, as in ``C[0:16, 0]`` and ``C[0:16, 1]``. Stores lane by
    lane take as many steps as there are lanes.
    """
    spaced = [s for s in nodes_by_type(func.body).get(BufferStore, ()) if _lanes_of(s) is not None]
    if len(spaced) < 2 or not func.attrs.get("tir.noalias"):
        return func
    return ScopedTransform(after={SeqStmt: _interleaved}).function(func)


def _interleaved(s: SeqStmt, scope: ScopedTransform) -> Stmt | None:
    out: list[Stmt] = []
    run: list[_SpacedStore] = []
    changed = False

    def close() -> None:
        nonlocal changed
        made = _together(run, scope.analyzer)
        changed = changed or made is not None
        out.extend([lanes.store for lanes in run] if made is None else made)
        run.clear()

    for part in s.seq:
        lanes = _lanes_of(part)
        if lanes is None or (run and not run[0].is_like(lanes)):
            close()
        if lanes is None:
            out.append(part)
        else:
            run.append(lanes)
    close()
    return seq(*out) if changed else None


@dataclass(frozen=True)
class _SpacedStore:
    """A store of lanes that are ``stride`` elements apart, the first one at ``start`` of the dimensions from ``dim`` on.

    ``shape`` has the extents of the dimensions behind ``dim``.
    """

    store: BufferStore
    start: Expr
    stride: int
    dim: int
    shape: tuple[int, ...]

    def is_like(self, other: _SpacedStore) -> bool:
        """Return whether ``other`` goes to the same row of the buffer, with as many lanes as far apart."""
        a, b = self.store, other.store
        same = a.buffer is b.buffer and self.stride == other.stride and a.value.dtype == b.value.dtype
        return (
            same and self.dim == other.dim and all(map(structural_equal, a.indices[: self.dim], b.indices[: self.dim]))
        )

    def begins_a_row(self) -> bool:
        """Return whether the first lane is the first element of the dimensions behind that of the lanes."""
        return all(isinstance(i, IntImm) and i.value == 0 for i in self.store.indices[self.dim + 1 :])


def _lanes_of(s: Stmt) -> _SpacedStore | None:
    """Returns the lanes of a store that may change places with its neighbours; None for other statements."""
    if not isinstance(s, BufferStore) or not s.indices or s.predicate is not None:
        return None
    buffer, dims = s.buffer, [n for n, index in enumerate(s.indices) if index.dtype.lanes > 1]
    if len(dims) != 1:
        return None
    (dim,) = dims
    inner, behind = s.indices[dim], s.indices[dim + 1 :]
    shape = tuple([n.value for n in buffer.shape[dim + 1 :] if isinstance(n, IntImm)])
    if not (isinstance(inner, Ramp) and isinstance(inner.stride, IntImm)) or len(shape) != len(behind):
        return None
    start, stride = inner.base, inner.stride.value
    for index, extent in zip(behind, shape, strict=True):
        start, stride = start * extent + index, stride * extent
    if not 2 <= stride <= NEAR:
        return None
    if buffer.scope != "global" or buffer.dtype.lanes > 1 or buffer.dtype.is_bool or buffer.strides:
        return None
    if s.value.dtype.lanes < _FEWEST_LANES:
        return None
    for n in pre_order(s.value):
        if isinstance(n, BufferLoad) and n.buffer.data is buffer.data:
            return None
        if isinstance(n, Call) and n.op.startswith("tir.call"):
            return None
    return _SpacedStore(s, start, stride, dim, shape)


def _together(run: Sequence[_SpacedStore], analyzer: Analyzer) -> list[Stmt] | None:
    """Returns stores in place of ``run``, some of whole vectors; None where no stretch of memory is filled."""
    if not run or len(run) < run[0].stride:
        return None
    stride, count = run[0].stride, run[0].store.value.dtype.lanes
    at: dict[int, _SpacedStore] = {}
    for lanes in run:
        distance = analyzer.simplify(lanes.start - run[0].start)
        if not isinstance(distance, IntImm) or distance.value in at:
            return None
        at[distance.value] = lanes
    if any(0 < b - a < stride * count and (b - a) % stride == 0 for a in at for b in at):
        return None  # one element is written twice
    out: list[Stmt] = []
    for first in sorted(at):
        if all(first + n in at for n in range(stride)) and at[first].begins_a_row():
            out.append(_filled([at.pop(first + n) for n in range(stride)], analyzer))
    return [*out, *[lanes.store for lanes in at.values()]] if out else None


def _filled(group: Sequence[_SpacedStore], analyzer: Analyzer) -> Stmt:
    """Returns the stores of a stretch of memory that the lanes of ``group`` fill in turn."""
    stores = [lanes.store for lanes in group]
    dtype, first = stores[0].value.dtype, group[0]
    outer, inner = stores[0].indices[: first.dim], stores[0].indices[first.dim]
    assert isinstance(inner, Ramp)
    names = [Var(f"lanes{n}", dtype) for n in range(len(stores))]
    parts: list[Stmt] = []
    for part in range(len(stores)):
        place = _run(inner.base, part * dtype.lanes, dtype.lanes, first.shape, analyzer)
        parts.append(BufferStore(stores[0].buffer, _in_turn(names, part * dtype.lanes), (*outer, *place)))
    body = seq(*parts)
    for name, store in reversed([*zip(names, stores, strict=True)]):
        body = LetStmt(name, store.value, body)
    return body


def _run(base: Expr, begin: int, lanes: int, shape: Sequence[int], analyzer: Analyzer) -> list[Expr]:
    """Returns the indices of ``lanes`` elements from number ``begin`` on behind ``base``, whose rows have ``shape``."""
    width = math.prod(shape)
    if not shape:
        start = analyzer.simplify(base + begin)
        return [Ramp(start, const(1, start.dtype), lanes)]
    row, first = divmod(begin, width)
    start = analyzer.simplify(base + row)

    def number(n: int) -> Expr:
        return Broadcast(const(n, start.dtype), lanes)

    lane = Ramp(const(first, start.dtype), const(1, start.dtype), lanes)
    places: list[Expr] = [Broadcast(start, lanes) + lane // number(width)]
    for extent in shape:
        width //= extent
        places.append(lane // number(width) % number(extent))
    return places


def _in_turn(vectors: Sequence[Expr], begin: int) -> Expr:
    """Returns a vector of the lanes from ``begin`` on, where the lanes of ``vectors`` follow one another in turn."""
    count = vectors[0].dtype.lanes
    places = [divmod(begin + n, len(vectors)) for n in range(count)]
    order = [lane + count * min(vector, 1) for lane, vector in places]
    made: Expr = Shuffle((vectors[0], vectors[1]), tuple(order))
    for n in range(2, len(vectors)):
        more = [count + lane if vector == n else t for t, (lane, vector) in enumerate(places)]
        made = Shuffle((made, vectors[n]), tuple(more))
    return made
