"""Which thread of a GPU computes which element of a value, and which values lie in registers.

All loop nests over one shape with one fast axis give an element to the same thread, so that what is only read where it was
written needs no shared memory (:func:`own_registers`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from ..tir.expr import BufferLoad, Expr, Var, const, same
from ..tir.expr.dtype import DType
from ..tir.expr.node import IRNode
from ..tir.stmt import Allocate, Buffer, BufferStore, For, Stmt

THREAD_AXIS = "threadIdx.x"
NARROWEST = 16
"""The number of threads along the fast axis, where a block has several dimensions and so many elements there."""
FRAGMENT_TILE = 16
"""The rows and columns of the tiles that warps hold of a product on matrix units."""


@dataclass(frozen=True)
class ThreadLayout:
    """The threads along each dimension of a shape.

    ``fast``: the dimension along which neighbouring threads differ; ``vector``: the elements there that a thread has side by side.
    """

    shape: tuple[int, ...]
    fast: int
    along: tuple[int, ...]
    vector: int = field(default=1, kw_only=True)
    most_unrolled: ClassVar[int] = 128
    """Loops of one thread over at most so many elements are written out."""

    @staticmethod
    def of(shape: Sequence[int], fast: int, threads: int, vector: int = 1) -> ThreadLayout:
        """Return the layout of a shape on at most so many threads."""
        total = 1
        for n in shape:
            total *= n
        others = total // shape[fast]
        along = [1] * len(shape)
        along[fast] = min(shape[fast] // vector, threads if others == 1 else max(NARROWEST, threads // others))
        left = threads // along[fast]
        for d in reversed(range(len(shape))):
            if d != fast:
                along[d] = min(shape[d], left)
                left //= along[d]
        return ThreadLayout(tuple(shape), fast, tuple(along), vector=vector)

    @property
    def threads(self) -> int:
        """The threads that have elements."""
        out = 1
        for n in self.along:
            out *= n
        return out

    @property
    def steps(self) -> tuple[int, ...]:
        """The elements of a thread along each dimension."""
        return tuple([n // c for n, c in zip(self.shape, self.along, strict=True)])

    def nest(self, index: DType) -> ThreadNest:
        """Return new variables for a loop nest."""
        thread = Var("thread", index)
        order = [self.fast, *[d for d in reversed(range(len(self.shape))) if d != self.fast]]
        lanes: list[Expr] = [const(0, index)] * len(self.shape)
        places: list[Expr] = [const(0, index)] * len(self.shape)
        ranks: list[Expr] = [const(0, index)] * len(self.shape)
        loops: list[tuple[Var, int, int]] = []
        below, last = 1, [d for d in order if self.along[d] > 1][-1:]
        for d in order:
            vector = self.vector if d == self.fast else 1
            count, steps = self.along[d], self.steps[d] // vector
            at: Expr | None = None
            if count > 1:
                at = thread if below == 1 else thread // const(below, index)
                at = at if [d] == last else at % const(count, index)
                below *= count
                ranks[d] = at
            if steps > 1:
                step = Var(f"i{d}", index)
                loops.append((step, steps, d))
                places[d] = step
                far = step * const(count, index) if count > 1 else step
                at = far if at is None else far + at
            if vector > 1:
                lane, wide = Var("lane", index), const(vector, index)
                at = lane if at is None else at * wide + lane
                places[d] = places[d] * wide + lane
                loops.insert(0, (lane, vector, d))
            if at is not None:
                lanes[d] = at
        return ThreadNest(self, thread, tuple(lanes), tuple(places), tuple(ranks), tuple(reversed(loops)))


@dataclass(frozen=True)
class FragmentLayout(ThreadLayout):
    """The layout of a product's sums on matrix units (:mod:`...tir.expr.intrinsics.warp_fragments`).

    ``warps``: along rows and columns. Tiles of 16 by 16 go around the warps; a thread has two rows of a tile, eight apart, and pairs of
    columns, eight apart.
    """

    warps: tuple[int, int]
    most_unrolled: ClassVar[int] = 256

    @staticmethod
    def of_product(shape: tuple[int, int], warps: int, rows_whole: bool) -> FragmentLayout:
        """Return the layout of sums on at most so many warps. ``rows_whole``: rows lie in one warp where that is possible."""
        most = (shape[0] // FRAGMENT_TILE, shape[1] // FRAGMENT_TILE)
        rows = columns = 1
        while rows * columns < warps and (rows < most[0] or columns < most[1]):
            taller = shape[0] // rows >= shape[1] // columns
            if rows < most[0] and (taller or rows_whole or columns == most[1]):
                rows *= 2
            else:
                columns *= 2
        return FragmentLayout(shape, 1, (8 * rows, 4 * columns), (rows, columns))

    def warp(self, thread: Expr) -> tuple[Expr, Expr]:
        """Return the numbers of a thread's warp along rows and columns."""
        number, rows = thread // const(32, thread.dtype), const(self.warps[0], thread.dtype)
        zero = const(0, thread.dtype)
        return (
            (number if self.warps[1] == 1 else number % rows) if self.warps[0] > 1 else zero,
            (number if self.warps[0] == 1 else number // rows) if self.warps[1] > 1 else zero,
        )

    @property
    def tiles(self) -> tuple[int, int]:
        """The tiles of a warp along rows and columns."""
        return (self.shape[0] // (FRAGMENT_TILE * self.warps[0]), self.shape[1] // (FRAGMENT_TILE * self.warps[1]))

    def nest(self, index: DType) -> ThreadNest:
        """Return new variables for a loop nest over the numbers of each thread."""

        def number(n: int) -> Expr:
            return const(n, index)

        thread = Var("thread", index)
        rows, columns = self.tiles
        i, j = [Var(name, index) if n > 1 else number(0) for name, n in (("i", rows), ("j", columns))]
        half, eight, pair = Var("half", index), Var("eight", index), Var("pair", index)
        g, q = thread // number(4) % number(8), thread % number(4)
        first, second = self.warp(thread)
        tile = [number(FRAGMENT_TILE)] * 2
        row = (i * number(self.warps[0]) + first) * tile[0] + half * number(8) + g
        column = (j * number(self.warps[1]) + second) * tile[1] + eight * number(8) + q * number(2) + pair
        places = (i * number(2) + half, j * number(4) + eight * number(2) + pair)
        ranks = (first * number(8) + g, second * number(4) + q)
        every = ((i, rows, 0), (half, 2, 0), (j, columns, 1), (eight, 2, 1), (pair, 2, 1))
        loops = tuple([(v, n, axis) for v, n, axis in every if isinstance(v, Var)])
        return ThreadNest(self, thread, (row, column), places, ranks, loops)


@dataclass(frozen=True, eq=False)
class ThreadNest:
    """The variables of one loop nest over the elements of a block.

    They are the thread, the element's indices ``lanes``, its indices among those of its thread, ``places``, the thread's number along
    each dimension, ``ranks``, and the loops: the variable, the iterations and the dimension.
    """

    layout: ThreadLayout
    thread: Var
    lanes: tuple[Expr, ...]
    places: tuple[Expr, ...]
    ranks: tuple[Expr, ...]
    loops: tuple[tuple[Var, int, int], ...]

    @property
    def variables(self) -> tuple[Var, ...]:
        """The thread and the variables of the loops, all from 0 on."""
        return (self.thread, *[var for var, _, _ in self.loops])

    def around(self, body: Stmt, without: int | None = None) -> Stmt:
        """Return loops over the elements of a thread, apart from those along one dimension."""
        count = 1
        for _, n, _ in self.loops:
            count *= n
        kind = "unrolled" if count <= self.layout.most_unrolled else "serial"
        for var, n, axis in reversed(self.loops):
            if axis != without:
                together = self.layout.vector > 1 and var is self.loops[-1][0]
                body = For(var, const(0, var.dtype), const(n, var.dtype), "vectorized" if together else kind, body)
        return body

    def on_threads(self, body: Stmt) -> Stmt:
        """Return a body for all threads that have elements; for a block of one element it is the body."""
        if self.layout.threads == 1:
            return body
        zero, count = const(0, self.thread.dtype), const(self.layout.threads, self.thread.dtype)
        return For(self.thread, zero, count, "thread_binding", body, THREAD_AXIS)


def own_registers(body: Stmt, nests: Mapping[Var, ThreadNest]) -> Stmt:
    """Return ``body`` with shared memory that each thread uses for its own elements alone as memory of the thread.

    ``nests``: the loop nests by the variables of their threads.
    """
    layouts: dict[Buffer, ThreadLayout | None] = {}

    def own(buffer: Buffer, indices: Sequence[Expr], nest: ThreadNest | None) -> bool:
        return (
            nest is not None
            and len(indices) == len(nest.lanes)
            and tuple([int(n) for n in buffer.shape]) == nest.layout.shape  # type: ignore[call-overload]
            and all([same(a, b) for a, b in zip(indices, nest.lanes, strict=True)])
        )

    def look(n: IRNode, nest: ThreadNest | None) -> None:
        if isinstance(n, For) and n.loop_var in nests:
            nest = nests[n.loop_var]
        if isinstance(n, (BufferLoad, BufferStore)) and n.buffer.scope == "shared":
            known = layouts.setdefault(n.buffer, nest.layout if nest is not None else None)
            if known is not None and not (nest is not None and known == nest.layout and own(n.buffer, n.indices, nest)):
                layouts[n.buffer] = None
        for child in n.children():
            look(child, nest)

    look(body, None)
    private = {
        b: b.with_(shape=tuple([const(n, b.shape[0].dtype) for n in layout.steps]), scope="local")
        for b, layout in layouts.items()
        if layout is not None
    }
    if not private:
        return body

    def rewritten(n: IRNode, nest: ThreadNest | None) -> IRNode:
        if isinstance(n, For) and n.loop_var in nests:
            nest = nests[n.loop_var]
        if isinstance(n, BufferLoad) and n.buffer in private:
            assert nest is not None
            return BufferLoad(private[n.buffer], nest.places)
        made = n.map_children(lambda c: rewritten(c, nest))
        if isinstance(made, BufferStore) and made.buffer in private:
            assert nest is not None
            return BufferStore(private[made.buffer], made.value, nest.places)
        if isinstance(made, Allocate) and made.buffer in private:
            return Allocate(private[made.buffer], made.body, made.annotations)
        return made

    out = rewritten(body, None)
    assert isinstance(out, Stmt)
    return out
