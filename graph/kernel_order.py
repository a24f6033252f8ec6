"""This module chooses the order in which kernels run, so that few bytes of results are alive at a time.

From the kernels that are ready the one is taken that adds the least to what is alive: the bytes of its results less those of
operands that nothing else will read. The order of the graph stays where this plan is not smaller.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import replace

from .graph import Value
from .kernels import Division, Kernel, Loop
from .memory_plan import plan_memory, size_of


def order_kernels(division: Division) -> Division:
    """Returns the division with its kernels in the order whose plan needs the least memory, of those tried."""
    division = replace(division, kernels=tuple([_with_ordered_body(k) for k in division.kernels]))
    if any(not v.is_static for kernel in division.kernels for v in kernel.outputs):
        return division
    greedy = replace(division, kernels=tuple(_greedy(division)))
    return min(division, greedy, key=lambda d: plan_memory(d).size)


def _with_ordered_body(kernel: Kernel | Loop) -> Kernel | Loop:
    return replace(kernel, body=order_kernels(kernel.body)) if isinstance(kernel, Loop) else kernel


def _greedy(division: Division) -> list[Kernel | Loop]:
    makers = {v: kernel for kernel in division.kernels for v in kernel.outputs}
    reads = {
        k: list(dict.fromkeys([division.root(v) for v in k.inputs if division.root(v) in makers]))
        for k in division.kernels
    }
    left = Counter(v for roots in reads.values() for v in roots)
    left.update(division.root(v) for v in division.graph.outputs)
    position = {kernel: n for n, kernel in enumerate(division.kernels)}
    readers: dict[Value, list[Kernel | Loop]] = {}
    for kernel, roots in reads.items():
        for v in roots:
            readers.setdefault(v, []).append(kernel)
    missing = {kernel: len(roots) for kernel, roots in reads.items()}
    out: list[Kernel | Loop] = []
    done: set[Kernel | Loop] = set()
    ready: list[tuple[int, int]] = []  # a heap; entries whose growth has fallen since have a newer one before them

    def offer(kernel: Kernel | Loop) -> None:
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
