"""Orders kernels and places their results in one block of memory, in which they share space over time.

Placing is greedy allocation by size (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net
Inference", 2020): the largest result first, each at the lowest offset at which no result alive at the same time lies.
The order takes, of the kernels whose operands are ready, the one that adds the fewest bytes of living results: those of its
results less those of operands that nothing else will read. The order of the graph stays where this plan is not smaller.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from ..pages.messages import short_repr
from ..tir.arith import Analyzer
from ..tir.expr import DType, Expr, Range, Var, const, vars_in
from .graph import GraphError, Value
from .kernels import Division, Kernel, LoopKernel

ALIGNMENT = 64
"""Results begin at multiples of so many bytes."""

_NO_BOUNDS: Mapping[Var, int] = MappingProxyType({})


@dataclass(frozen=True)
class MemoryPlan:
    """The size of the block, and the offset and the size of each intermediate result, in bytes. ``lifetimes`` are the
    first and the last kernel, by number, between which a result is alive. ``bounds``: the largest values of symbolic
    sizes, for which there is space.

    A loop has a place, too, while it runs: for what ``loops`` says of its body, and then for a second copy of each state,
    at ``second`` from the loop's place. States are double buffered: a step reads the copy that the step before it wrote.
    """

    size: int
    offsets: Mapping[Value | LoopKernel, int]
    sizes: Mapping[Value | LoopKernel, int]
    lifetimes: Mapping[Value | LoopKernel, tuple[int, int]]
    bounds: Mapping[Var, int]
    loops: Mapping[LoopKernel, MemoryPlan] = field(default_factory=dict)
    second: Mapping[Value, int] = field(default_factory=dict)

    __repr__ = short_repr("size", "apart", "bounds")

    @property
    def apart(self) -> int:
        """Returns the bytes of all results, each in a place of its own."""
        return sum(self.sizes[v] for v in self.offsets)

    @property
    def least(self) -> int:
        """Returns the most bytes of results that are alive at the same time. No plan for this order is smaller."""
        last = max((end for _, end in self.lifetimes.values()), default=-1)
        alive = [[v for v, (a, b) in self.lifetimes.items() if a <= n <= b] for n in range(last + 1)]
        return max((sum(self.sizes[v] for v in values) for values in alive), default=0)

    def describe(self) -> str:
        """Returns a table of the results: offset, bytes, first and last kernel."""
        rows = [
            f"{'offset':>10} {'bytes':>10} {'kernels':>9}  result",
        ]
        for v, at in sorted(self.offsets.items(), key=lambda item: item[1]):
            first, last = self.lifetimes[v]
            rows.append(f"{at:10} {self.sizes[v]:10} {f'{first}-{last}':>9}  {v}")
        return "\n".join([*rows, f"{self.size} bytes in all; {self.apart} without sharing, at least {self.least}"])


def size_of(value: Value, bounds: Mapping[Var, int] = _NO_BOUNDS) -> int:
    """Returns the bytes of a value, at most; GraphError when a size has no bound."""
    extents = [d if isinstance(d, int) else largest_extent(d, bounds) for d in value.shape]
    if any(e is None for e in extents):
        free = sorted({v.name for d in value.shape if isinstance(d, Expr) for v in vars_in(d) if v not in bounds})
        raise GraphError(f"the size of {value} is not known: {', '.join(free)} has no bound")
    return math.prod([e for e in extents if e is not None]) * DType(value.dtype).bytes


def largest_extent(extent: Expr, bounds: Mapping[Var, int]) -> int | None:
    """Returns the largest value of an extent when each size is between 0 and its bound. None stands for a size without
    a bound."""
    analyzer = Analyzer()
    for var in vars_in(extent):
        if var not in bounds:
            return None
        analyzer.bind(var, Range(const(0), const(bounds[var] + 1)))
    return analyzer.const_int_bound(extent).hi


def plan_memory(division: Division, bounds: Mapping[Var, int] = _NO_BOUNDS) -> MemoryPlan:
    """Returns offsets for all results of kernels that are not outputs of the graph."""
    outside = {division.root(v) for v in division.graph.outputs}
    lifetimes: dict[Value | LoopKernel, tuple[int, int]] = {}
    sizes: dict[Value | LoopKernel, int] = {}
    loops: dict[LoopKernel, MemoryPlan] = {}
    second: dict[Value, int] = {}
    for n, kernel in enumerate(division.kernels):
        for v in kernel.outputs:
            if v not in outside:
                lifetimes[v] = (n, n)
        for v in kernel.inputs:
            root = division.root(v)
            if root in lifetimes:
                lifetimes[root] = (lifetimes[root][0], n)
        if isinstance(kernel, LoopKernel):
            loops[kernel] = plan_memory(kernel.body, bounds)
            sizes[kernel], places = _with_second_states(kernel, loops[kernel])
            second.update(places)
            lifetimes[kernel] = (n, n)
    sizes.update((v, size_of(v, bounds)) for v in lifetimes if isinstance(v, Value))
    offsets: dict[Value | LoopKernel, int] = {}
    for one in sorted(lifetimes, key=lambda one: (-sizes[one], lifetimes[one])):
        offsets[one] = _lowest(one, offsets, sizes, lifetimes)
    size = max((at + sizes[v] for v, at in offsets.items()), default=0)
    return MemoryPlan(size, offsets, sizes, lifetimes, dict(bounds), loops, second)


def _with_second_states(loop: LoopKernel, inner: MemoryPlan) -> tuple[int, dict[Value, int]]:
    """Returns the bytes that a loop needs, and where the second copies of its states are in them."""
    at, places = inner.size, {}
    for v in loop.double_buffered:
        places[v] = -(-at // ALIGNMENT) * ALIGNMENT
        at = places[v] + size_of(v, inner.bounds)
    return at, places


def _lowest(
    value: Value | LoopKernel,
    offsets: Mapping[Value | LoopKernel, int],
    sizes: Mapping[Value | LoopKernel, int],
    lifetimes: Mapping[Value | LoopKernel, tuple[int, int]],
) -> int:
    """Returns the lowest offset at which ``value`` meets no other result in space and time."""
    first, last = lifetimes[value]
    taken = sorted(
        (at, at + sizes[other])
        for other, at in offsets.items()
        if lifetimes[other][0] <= last and first <= lifetimes[other][1]
    )
    need, at = sizes[value], 0
    for begin, end in taken:
        if at + need <= begin:
            break
        at = max(at, -(-end // ALIGNMENT) * ALIGNMENT)
    return at


def order_kernels(division: Division) -> Division:
    """Returns the division with its kernels in the order whose plan needs the least memory, of those tried."""
    division = replace(division, kernels=tuple([_with_ordered_body(k) for k in division.kernels]))
    if any(not v.is_static for kernel in division.kernels for v in kernel.outputs):
        return division
    greedy = replace(division, kernels=tuple(_greedy(division)))
    return min(division, greedy, key=lambda d: plan_memory(d).size)


def _with_ordered_body(kernel: Kernel | LoopKernel) -> Kernel | LoopKernel:
    return replace(kernel, body=order_kernels(kernel.body)) if isinstance(kernel, LoopKernel) else kernel


def _greedy(division: Division) -> list[Kernel | LoopKernel]:
    makers = {v: kernel for kernel in division.kernels for v in kernel.outputs}
    reads = {
        k: list(dict.fromkeys([division.root(v) for v in k.inputs if division.root(v) in makers]))
        for k in division.kernels
    }
    left = Counter(v for roots in reads.values() for v in roots)
    left.update(division.root(v) for v in division.graph.outputs)
    position = {kernel: n for n, kernel in enumerate(division.kernels)}
    readers: dict[Value, list[Kernel | LoopKernel]] = {}
    for kernel, roots in reads.items():
        for v in roots:
            readers.setdefault(v, []).append(kernel)
    missing = {kernel: len(roots) for kernel, roots in reads.items()}
    out: list[Kernel | LoopKernel] = []
    done: set[Kernel | LoopKernel] = set()
    ready: list[tuple[int, int]] = []  # a heap; entries whose growth has fallen since have a newer one before them

    def offer(kernel: Kernel | LoopKernel) -> None:
        freed = sum(size_of(v) for v in reads[kernel] if left[v] == 1)
        heapq.heappush(ready, (sum(size_of(v) for v in kernel.outputs) - freed, position[kernel]))

    for kernel in division.kernels:
        if not missing[kernel]:
            offer(kernel)
    while ready:
        chosen = division.kernels[heapq.heappop(ready)[1]]
        if chosen in done:
            continue
        done.add(chosen)
        out.append(chosen)
        left.subtract(reads[chosen])
        for v in reads[chosen]:
            if left[v] == 1:
                for kernel in readers[v]:
                    if kernel not in done and not missing[kernel]:
                        offer(kernel)
        for v in chosen.outputs:
            for kernel in readers.get(v, ()):
                missing[kernel] -= 1
                if not missing[kernel]:
                    offer(kernel)
    return out
