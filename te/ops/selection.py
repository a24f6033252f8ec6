"""This module selects the largest or smallest elements of rows, in order.

Elements are compared as integers: :func:`_ordered_keys` maps floats to integers of the same order. A few are found by as many
vectorized reductions over the row; more by a heap of those found so far, in O(n log k) steps (Knuth, *The Art of Computer
Programming* 3, 5.2.3). Of long rows only the largest element of each chunk is looked at, and then the chunks that can hold what
is looked for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...tir.expr import (
    And,
    DType,
    Expr,
    IntImm,
    Not,
    Or,
    Range,
    Var,
    all_,
    cast,
    const,
    convert,
    max_value,
    min_value,
    select,
)
from ...tir.expr.intrinsics.control_and_memory import if_then_else
from ...tir.expr.intrinsics.number_operations import bitwise_not, bitwise_xor, isnan, reinterpret
from ...tir.stmt import Block, BlockRealize, Buffer, BufferStore, For, IfThenElse, Stmt, While, seq
from ..compute import compute, extern
from ..reduce import max_, min_, reduce_axis
from ..tensor import Tensor
from .arguments import ELEMWISE, INJECTIVE, check_tensor, normalize_axis, sizes_analyzer

_BY_REDUCTIONS = 8
"""The number of elements up to which each is found by reductions over the row."""

_FEWEST_CHUNKED = 256
"""The elements of the shortest rows that are looked at in chunks."""

_LARGEST_SHARE_CHUNKED = 1 / 16
"""The largest part of a row that is looked for in chunks."""


def topk(
    x: Tensor, k: Any = 1, axis: int = -1, largest: bool = True, dtype: str = "int64", name: str = "T_topk"
) -> tuple[Tensor, Tensor]:
    """Returns the ``k`` largest (or smallest) elements along ``axis`` in order, and their indices.

    Of equal elements the first comes first; NaN is larger than all numbers.
    """
    op = "topk"
    check_tensor(op, x)
    axis = normalize_axis(op, axis, x.ndim)
    extent = x.shape[axis]
    fits, sizes = all_(convert(k) >= 0, convert(k) <= extent), sizes_analyzer(k, extent)
    if sizes.can_prove(Not(fits)):
        raise ValueError(f"{op}: k={k} of {extent} elements")
    requires = () if sizes.can_prove(fits) else ((fits, f"{op}: k={k} of {extent} elements of {x.name}"),)
    keys = compute(x.shape, lambda *i: _ordered_key(x(*i), largest), f"{name}_key", ELEMWISE, requires=requires)
    count = convert(k)
    positions = _positions(keys, count, axis, name)
    shape = [count if d == axis else e for d, e in enumerate(x.shape)]

    def value(*i: Expr) -> Any:
        return x(*i[:axis], positions(*i), *i[axis + 1 :])

    values: Tensor = compute(shape, value, f"{name}_values", tag=INJECTIVE)
    indices: Tensor = compute(shape, lambda *i: cast(dtype, positions(*i)), f"{name}_indices", tag=INJECTIVE)
    return values, indices


def _ordered_key(e: Expr, largest: bool) -> Expr:
    """Returns an integer that is larger where ``e`` comes earlier: NaN counts as the largest number, both zeros are equal."""
    if e.dtype.is_float:
        wide = "float64" if e.dtype.bits == 64 else "float32"
        e = cast(wide, e)
        kind = "int64" if wide == "float64" else "int32"
        bits = reinterpret(kind, select(e.equal(const(0.0, wide)), const(0.0, wide), e))
        most = const(max_value(kind), kind)
        key = select(isnan(e), most, select(bits < const(0, kind), bitwise_xor(bits, most), bits))
    else:
        key = cast("uint8", e) if e.dtype == "bool" else e
    return key if largest else bitwise_not(key)


def _positions(keys: Tensor, k: Expr, axis: int, name: str) -> Tensor:
    """Returns the positions of the ``k`` elements that come first, in order."""
    extent = keys.shape[axis]
    if isinstance(extent, IntImm) and isinstance(k, IntImm) and extent.value >= _FEWEST_CHUNKED:
        if 1 < k.value <= extent.value * _LARGEST_SHARE_CHUNKED:
            return _by_chunks(keys, k, axis, name)
    return _looking_at_all(keys, k, axis, name)


def _looking_at_all(keys: Tensor, k: Expr, axis: int, name: str, places: Tensor | None = None) -> Tensor:
    """Returns the positions of the ``k`` elements that come first, found among all of the row.

    ``places``: the positions of the keys, where these are not in order.
    """
    if isinstance(k, IntImm) and 0 < k.value <= _BY_REDUCTIONS:
        return _by_reductions(keys, k, axis, name, places)
    return _by_heap(keys, k, axis, name, places)


def _by_chunks(keys: Tensor, k: IntImm, axis: int, name: str) -> Tensor:
    """Returns the positions of the elements that come first, which stand in ``k`` chunks of the row.

    These are the chunks whose largest keys come first: an element of another chunk comes later than these ``k`` keys. Of chunks
    with equal largest keys, the first comes first.
    """
    rows = keys.shape[axis]
    assert isinstance(rows, IntImm)
    assert isinstance(k, IntImm)
    extent, count = rows.value, k.value
    chunk = 1 << (max(16, math.isqrt(extent // count)) - 1).bit_length()
    size, chunks = const(chunk), const(-(-extent // chunk))
    least = const(min_value(keys.dtype), keys.dtype)

    def key(i: Sequence[Expr], place: Expr) -> Expr:
        """Returns the key at a place of a row; places behind the last chunk's elements have the least one."""
        own = keys(*i[:axis], place, *i[axis + 1 :])
        return own if extent % chunk == 0 else if_then_else(place < extent, own, least)

    def largest(*i: Expr) -> Any:
        o = reduce_axis(Range.from_extent(size), "o")
        return max_(key(i, i[axis] * chunk + o.var), axis=o)

    def along(e: Expr) -> list[Expr]:
        return [e if d == axis else other for d, other in enumerate(keys.shape)]

    best = compute(along(chunks), largest, f"{name}_chunk_key", tag="comm_reduce")
    chosen = _looking_at_all(best, k, axis, f"{name}_chunk")

    def place(*i: Expr) -> Expr:
        first: Expr = chosen(*i[:axis], i[axis] // chunk, *i[axis + 1 :])
        return first * chunk + cast("int32", i[axis] % chunk)

    places = compute(along(const(count * chunk)), place, f"{name}_place", tag=INJECTIVE)
    among = compute(places.shape, lambda *i: key(i, places(*i)), f"{name}_among", tag=INJECTIVE)
    return _looking_at_all(among, k, axis, name, places)


def _by_reductions(keys: Tensor, k: IntImm, axis: int, name: str, places: Tensor | None) -> Tensor:
    """Returns the positions of the elements that come first, found one after the other.

    Each has the largest key of those that come later than the one before; it is the first that has this key.
    """
    extent, kind = keys.shape[axis], keys.dtype
    rows = [e for d, e in enumerate(keys.shape) if d != axis]
    least, behind = const(min_value(kind), kind), const(max_value("int32"), "int32")
    best: list[Tensor] = []
    first: list[Tensor] = []

    def position_of(row: Sequence[Expr], j: Expr) -> Expr:
        return cast("int32", j) if places is None else places(*row[:axis], j, *row[axis:])

    def among(row: Sequence[Expr], j: Expr, n: int) -> tuple[Expr, Expr]:
        """Returns the key at place ``j``, and whether it comes later than what was found before number ``n``."""
        own = keys(*row[:axis], j, *row[axis:])
        if not n:
            return own, const(True, "bool")
        last = best[n - 1](*row)
        return own, Or(own < last, And(own.equal(last), position_of(row, j) > first[n - 1](*row)))

    def find(n: int) -> None:
        def largest(*row: Expr) -> Any:
            j = reduce_axis(Range.from_extent(extent), "j")
            own, later = among(row, j.var, n)
            return max_(select(later, own, least), axis=j)

        def position(*row: Expr) -> Any:
            j = reduce_axis(Range.from_extent(extent), "j")
            own, later = among(row, j.var, n)
            return min_(select(And(later, own.equal(best[n](*row))), position_of(row, j.var), behind), axis=j)

        best.append(compute(rows, largest, f"{name}_key{n}", tag="comm_reduce"))
        first.append(compute(rows, position, f"{name}_position{n}", tag="comm_reduce"))

    for n in range(k.value):
        find(n)
    shape = [k if d == axis else e for d, e in enumerate(keys.shape)]

    def chosen(*i: Expr) -> Any:
        row = (*i[:axis], *i[axis + 1 :])
        out: Expr = first[-1](*row)
        for n in reversed(range(k.value - 1)):
            out = select(i[axis] <= n, first[n](*row), out)
        return out

    return compute(shape, chosen, f"{name}_position", tag=INJECTIVE)


def _by_heap(keys: Tensor, k: Expr, axis: int, name: str, places: Tensor | None) -> Tensor:
    """Returns the positions of the elements that come first, from a heap of ``k`` whose root comes last of them."""
    shape = [k if d == axis else e for d, e in enumerate(keys.shape)]
    kind = keys.dtype

    def fill(given: list[Buffer], made: list[Buffer]) -> Stmt:
        return _HeapOfRows(given[0], given[1] if places is not None else None, made[0], made[1], axis, k).program()

    read = [keys] if places is None else [keys, places]
    positions: Tensor = extern([shape, shape], read, fill, f"{name}_heap", ["int32", kind])[0]
    return positions


class _HeapOfRows:
    """The statements that fill ``places`` with the positions of the first ``k`` elements of each row of ``keys``, in order.

    ``given``: the positions of the keys, None where these are in order. While a row is read, ``places`` and ``kept`` are a heap: positions and keys, with what comes last at place 0.
    """

    def __init__(self, keys: Buffer, given: Buffer | None, places: Buffer, kept: Buffer, axis: int, k: Expr) -> None:
        self.given = given
        self.keys, self.places, self.kept, self.axis = keys, places, kept, axis
        self.rows = [Var(f"i{d}", e.dtype) for d, e in enumerate(keys.shape) if d != axis]
        self.extent, self.kind = keys.shape[axis], keys.shape[axis].dtype
        self.k = cast(self.kind, k)
        self.hole, self.child = [Buffer(n, (const(1),), self.kind) for n in ("hole", "child")]
        self.moved, self.last = [
            (Buffer(f"{n}_place", (const(1),), DType("int32")), Buffer(f"{n}_key", (const(1),), keys.dtype))
            for n in ("moved", "last")
        ]

    def at(self, buffer: Buffer, place: Expr) -> Expr:
        return buffer[(*self.rows[: self.axis], place, *self.rows[self.axis :])]

    def put(self, place: Expr, entry: tuple[Expr, Expr]) -> Stmt:
        index = (*self.rows[: self.axis], place, *self.rows[self.axis :])
        return seq(BufferStore(self.places, entry[0], index), BufferStore(self.kept, entry[1], index))

    def entry(self, place: Expr) -> tuple[Expr, Expr]:
        return self.at(self.places, place), self.at(self.kept, place)

    def offered(self, place: Expr) -> tuple[Expr, Expr]:
        """Returns the entry of a key of the row."""
        position = cast("int32", place) if self.given is None else self.at(self.given, place)
        return position, self.at(self.keys, place)

    def program(self) -> Stmt:
        """Returns the root block.

        For each row the first elements become a heap, each other element that comes before the root takes its place, and
        at the end the roots are taken out one after the other.
        """
        zero = const(0, self.kind)
        fill, build, read, take = [Var(n, self.kind) for n in ("e", "parent", "other", "taken")]
        first = For(fill, zero, self.k, "serial", self.put(fill, self.offered(fill)))
        parents, parent = self.k // 2, self.k // 2 - 1 - build
        heap = For(build, zero, parents, "serial", self.let_down(parent, self.k, self.entry(parent)))
        at = self.k + read
        better = self.at(self.keys, at) > self.at(self.kept, zero)
        if self.given is not None:
            better = self.comes_later(self.entry(zero), self.offered(at))
        replace = self.let_down(zero, self.k, self.offered(at))
        others = For(read, zero, self.extent - self.k, "serial", IfThenElse(better, replace))
        end = self.k - 1 - take
        out = seq(
            *self.remember(self.last, self.entry(zero)),
            self.let_down(zero, end, self.entry(end)),
            self.put(end, (self.last[0][0], self.last[1][0])),
        )
        ordered = For(take, zero, self.k - 1, "serial", out)
        body: Stmt = IfThenElse(self.k > 0, seq(first, heap, others, ordered))
        extents = [e for d, e in enumerate(self.keys.shape) if d != self.axis]
        for var, extent in reversed(list(zip(self.rows, extents, strict=True))):
            body = For(var, const(0, var.dtype), extent, "serial", body)
        scratch = (self.hole, self.child, *self.moved, *self.last)
        return BlockRealize((), const(True, "bool"), Block((), (), (), "root", body, None, scratch, (), {}))

    def remember(self, where: tuple[Buffer, Buffer], entry: tuple[Expr, Expr]) -> list[Stmt]:
        return [BufferStore(buffer, e, (const(0),)) for buffer, e in zip(where, entry, strict=True)]

    def comes_later(self, a: tuple[Expr, Expr], b: tuple[Expr, Expr]) -> Expr:
        return Or(a[1] < b[1], And(a[1].equal(b[1]), a[0] > b[0]))

    def let_down(self, place: Expr, size: Expr, entry: tuple[Expr, Expr]) -> Stmt:
        """Returns the statements that put an entry at ``place`` or below it, in a heap of ``size`` places."""
        hole, child, zero = self.hole[0], self.child[0], (const(0),)
        moved = (self.moved[0][0], self.moved[1][0])
        right = child + 1

        other = IfThenElse(
            right < size,
            IfThenElse(self.comes_later(self.entry(right), self.entry(child)), BufferStore(self.child, right, zero)),
        )
        up = seq(
            self.put(hole, self.entry(child)),
            BufferStore(self.hole, child, zero),
            BufferStore(self.child, hole * 2 + 1, zero),
        )
        step = IfThenElse(self.comes_later(self.entry(child), moved), up, BufferStore(self.child, size, zero))
        return seq(
            *self.remember(self.moved, entry),
            BufferStore(self.hole, place, zero),
            BufferStore(self.child, place * 2 + 1, zero),
            While(child < size, seq(other, step)),
            self.put(hole, moved),
        )
