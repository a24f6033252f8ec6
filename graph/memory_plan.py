"""This module places the intermediate results of kernels in one block of memory, in which they share space over time.

The method is that of greedy allocation by size (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net
Inference", 2020): the largest result first, each at the lowest offset at which no result alive at the same time lies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ..tir.expr import DType
from .graph import GraphError, Value
from .kernels import Division

ALIGNMENT = 64
"""Results begin at multiples of so many bytes."""


@dataclass(frozen=True)
class MemoryPlan:
    """The size of the block, and the offset of each intermediate result, in bytes; ``lifetimes`` are the first and the
    last kernel, by number, between which a result is alive."""

    size: int
    offsets: Mapping[Value, int]
    lifetimes: Mapping[Value, tuple[int, int]]

    @property
    def apart(self) -> int:
        """Returns the bytes of all results, each in a place of its own."""
        return sum(size_of(v) for v in self.offsets)

    @property
    def least(self) -> int:
        """Returns the bytes of the results that are alive at the same time at most: no plan for this order is smaller."""
        last = max((end for _, end in self.lifetimes.values()), default=-1)
        alive = [[v for v, (a, b) in self.lifetimes.items() if a <= n <= b] for n in range(last + 1)]
        return max((sum(size_of(v) for v in values) for values in alive), default=0)

    def describe(self) -> str:
        """Returns a table of the results: offset, bytes, first and last kernel."""
        rows = [
            f"{'offset':>10} {'bytes':>10} {'kernels':>9}  result",
        ]
        for v, at in sorted(self.offsets.items(), key=lambda item: item[1]):
            first, last = self.lifetimes[v]
            rows.append(f"{at:10} {size_of(v):10} {f'{first}-{last}':>9}  {v}")
        return "\n".join([*rows, f"{self.size} bytes in all; {self.apart} without sharing, at least {self.least}"])


def size_of(value: Value) -> int:
    """Returns the bytes of a value, whose sizes are numbers."""
    if not value.is_static:
        raise GraphError(f"the size of {value} is not known")
    return math.prod(value.shape) * DType(value.dtype).bytes


def plan_memory(division: Division) -> MemoryPlan:
    """Returns offsets for all results of kernels that are not outputs of the graph."""
    outside = {division.root(v) for v in division.graph.outputs}
    lifetimes: dict[Value, tuple[int, int]] = {}
    for n, kernel in enumerate(division.kernels):
        for v in kernel.outputs:
            if v not in outside:
                lifetimes[v] = (n, n)
        for v in kernel.inputs:
            root = division.root(v)
            if root in lifetimes:
                lifetimes[root] = (lifetimes[root][0], n)
    offsets: dict[Value, int] = {}
    for v in sorted(lifetimes, key=lambda v: (-size_of(v), lifetimes[v])):
        offsets[v] = _lowest(v, offsets, lifetimes)
    size = max((at + size_of(v) for v, at in offsets.items()), default=0)
    return MemoryPlan(size, offsets, lifetimes)


def _lowest(value: Value, offsets: Mapping[Value, int], lifetimes: Mapping[Value, tuple[int, int]]) -> int:
    """Returns the lowest offset at which ``value`` meets no other result in space and time."""
    first, last = lifetimes[value]
    taken = sorted(
        (at, at + size_of(other))
        for other, at in offsets.items()
        if lifetimes[other][0] <= last and first <= lifetimes[other][1]
    )
    need, at = size_of(value), 0
    for begin, end in taken:
        if at + need <= begin:
            break
        at = max(at, -(-end // ALIGNMENT) * ALIGNMENT)
    return at
