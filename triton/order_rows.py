"""The rows of ``tl`` that put elements in order, or take them from where other elements say.

A block is sorted by a bitonic network: each of its steps puts all pairs of elements at one distance in order, so that a step is a
whole block. NaN counts as the largest number, as in NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..tir.expr import Expr, Select, all_, any_, const
from ..tir.expr.dtype import BOOL
from ..tir.expr.intrinsics.number_operations import isnan
from ..tir.stmt import Buffer, BufferStore, Stmt, seq
from .basic_rows import _cheap
from .block_values import BlockValue, PointerArgument, broadcast_make, converted, element, guarded, negated
from .kernel_builder import KernelBuilder, inner_type
from .rows import axis_of, builtin, int32, member, shape_of, whole

Lanes = tuple[Expr, ...]


def _larger(x: Expr, y: Expr) -> Expr:
    """Returns whether ``x`` comes after ``y`` in ascending order."""
    if not x.dtype.is_float:
        return x > y
    return any_(x > y, all_(isnan(x), negated(isnan(y))))


class BitonicNetwork:
    """Puts the elements of a block in order along its last dimension, step by step between two buffers."""

    def __init__(self, k: KernelBuilder, value: BlockValue) -> None:
        self.k, self.dtype, self.shape = k, value.dtype, value.shape
        self.here, self.there = self.memory(), self.memory()
        k.fill(self.here, value)

    def memory(self) -> Buffer:
        return self.k.allocated(self.shape, self.dtype, "ordered")

    def pairs(self, distance: int, stored: Callable[[Lanes, Expr, Expr], Stmt]) -> None:
        """Add a nest over all pairs of elements at a distance. ``stored``: of the indices before the last one, the number of
        the group of pairs, and the place in it."""
        count = self.shape[-1] // (2 * distance)
        shape = (*self.shape[:-1], count, distance)
        self.k.emit(self.k.nest(shape, lambda lanes: stored(lanes[:-2], lanes[-2], lanes[-1]), self.dtype.bits))

    def pair(self, rows: Lanes, group: Expr, place: Expr, distance: int) -> tuple[Lanes, Lanes]:
        """Return the indices of the two elements of a pair."""
        first = group * self.k.number(2 * distance) + place
        return (*rows, first), (*rows, first + self.k.number(distance))

    def larger_first(self, at: tuple[Lanes, Lanes]) -> tuple[Expr, Expr, Expr, Expr]:
        """Return two elements, whether the first one is larger, and whether the second one is."""
        inner = inner_type(self.dtype)
        a, b = (element(self.here, lanes) for lanes in at)
        x, y = converted(a, inner), converted(b, inner)
        return a, b, _larger(x, y), _larger(y, x)

    def merge(self, run: int, descending: bool | None) -> None:
        """Sort bitonic runs of so many elements; where ``descending`` is None, up and down by turns."""
        distance = run // 2
        while distance:

            def stored(rows: Lanes, group: Expr, place: Expr, distance: int = distance) -> Stmt:
                at = self.pair(rows, group, place, distance)
                a, b, falls, rises = self.larger_first(at)
                turn = group // self.k.number(run // (2 * distance)) % self.k.number(2)
                swapped = (
                    Select(turn.equal(self.k.number(0)), falls, rises)
                    if descending is None
                    else rises
                    if descending
                    else falls
                )
                return seq(
                    BufferStore(self.there, Select(swapped, b, a), at[0]),
                    BufferStore(self.there, Select(swapped, a, b), at[1]),
                )

            self.pairs(distance, stored)
            self.here, self.there = self.there, self.here
            distance //= 2

    def halve(self, run: int, larger: bool) -> None:
        """Keep of each two runs the larger elements, or the smaller ones, pair by pair."""
        half = (*self.shape[:-1], self.shape[-1] // 2)
        out = self.k.allocated(half, self.dtype, "ordered")

        def stored(rows: Lanes, group: Expr, place: Expr) -> Stmt:
            a, b, falls, rises = self.larger_first(self.pair(rows, group, place, run))
            kept = Select(rises if larger else falls, b, a)
            return BufferStore(out, kept, (*rows, group * self.k.number(run) + place))

        self.pairs(run, stored)
        self.shape = half
        self.here, self.there = out, self.memory()

    def first(self, count: int, descending: bool) -> BlockValue:
        """Return the first ``count`` elements in order. Runs of so many are sorted up and down by turns; the larger elements of
        two runs are bitonic again."""
        run = 2
        while run <= count:
            self.merge(run, None if run < self.shape[-1] else descending)
            run *= 2
        while self.shape[-1] > count:
            self.halve(count, descending)
            self.merge(count, None if self.shape[-1] > count else descending)
        return self.value()

    def value(self) -> BlockValue:
        """Return the block as it is now."""
        here = self.here
        return self.k.read_of(here, BlockValue(self.shape, self.dtype, lambda lanes: element(here, lanes)))


def _network(k: KernelBuilder, x: Any, dim: Any, what: str) -> BitonicNetwork:
    """Returns the network for a block whose elements are put in order along its last dimension."""
    value = k.value(x)
    if value.pointer is not None or not value.shape:
        raise TypeError(f"{what} is for blocks of numbers, not {value.type_text()}")
    if dim is not None and axis_of(value, dim) != len(value.shape) - 1:
        raise ValueError(f"{what} along dimension {dim} of {value.type_text()}; it is along the last one (tl.trans)")
    return BitonicNetwork(k, value)


def _known(x: Any) -> bool:
    return bool(whole(int(x) if isinstance(x, bool) else x, "descending"))


@member
def sort(k: KernelBuilder, x: Any, dim: Any = None, descending: Any = False) -> BlockValue:
    """Return the elements in ascending or descending order along the last dimension; NaN counts as the largest."""
    network = _network(k, x, dim, "sort")
    return network.first(network.shape[-1], _known(descending))


@builtin
def topk(builder: KernelBuilder, x: Any, k: Any, dim: Any = None, descending: Any = True) -> BlockValue:
    """Return the ``k`` largest elements along the last dimension in order; the smallest ones unless ``descending``."""
    network, (count,) = _network(builder, x, dim, "topk"), shape_of([[k]])
    if count > network.shape[-1]:
        raise ValueError(f"topk of {count} elements, and the last dimension has {network.shape[-1]}")
    return network.first(count, _known(descending))


@builtin
def bitonic_merge(k: KernelBuilder, x: Any, dim: Any = None, descending: Any = False) -> BlockValue:
    """Return a block that rises and falls along its last dimension in ascending or descending order."""
    network = _network(k, x, dim, "bitonic_merge")
    network.merge(network.shape[-1], _known(descending))
    return network.value()


# -- elements by the numbers of their places ---------------------------------------------------------------------------


@member
def gather(k: KernelBuilder, src: Any, index: Any, axis: Any) -> BlockValue:
    """Return the elements of a block whose places along an axis ``index`` says."""
    value, places = k.value(src), k.value(index)
    n = axis_of(value, axis)
    if not places.dtype.is_int or places.pointer is not None:
        raise TypeError(f"the index of gather holds integers, and this is {places.type_text()}")
    fits = len(places.shape) == len(value.shape)
    if not fits or any(a != b for d, (a, b) in enumerate(zip(value.shape, places.shape, strict=True)) if d != n):
        raise ValueError(
            f"gather from {value.type_text()} along dimension {n} by {places.type_text()}; they differ in other dimensions"
        )
    value = _cheap(k, value)
    at = k.index_value(k.kept(places, "places") if places.cost else places)
    size = k.number(value.shape[n])
    along = PointerArgument(f"dimension {n} of the block", Buffer("block", (size,), value.dtype), k.number(0))
    k.check("gathers from", BlockValue(at.shape, at.dtype, at.make, at.cost, at.reads, along), None)

    def make(lanes: Lanes) -> Expr:
        e = at.make(lanes)
        found = value.make((*lanes[:n], e, *lanes[n + 1 :]))
        found = found if value.pointer is not None else converted(found, value.dtype)
        return guarded(all_(e >= k.number(0), e < size), found, const(0, found.dtype))

    return BlockValue(places.shape, value.dtype, make, value.cost + at.cost + 2, value.reads | at.reads, value.pointer)


@member
def histogram(k: KernelBuilder, input: Any, num_bins: Any, mask: Any = None) -> BlockValue:
    """Return how many elements are 0, 1, … ``num_bins`` - 1, where the mask holds; others are not counted."""
    value, (bins,) = k.value(input), shape_of([[num_bins]])
    if len(value.shape) != 1 or value.dtype not in ("int32", "uint32"):
        raise TypeError(f"histogram counts int32 or uint32 of one dimension, and this is {value.type_text()}")
    if value.cost > 1:
        k.keep(value)
    allowed = None
    if mask is not None:
        given = k.data(k.value(mask), BOOL)
        allowed = broadcast_make(given, value.shape)
    reads = value.reads | (frozenset() if mask is None else k.value(mask).reads)

    def make(lanes: Lanes) -> Expr:
        here = converted(value.make(lanes[:1]), value.dtype).equal(converted(lanes[1], value.dtype))
        return converted(here if allowed is None else all_(here, allowed(lanes[:1])), int32)

    return k.reduce(BlockValue((value.shape[0], bins), int32, make, 3, reads), 0, "sum")
