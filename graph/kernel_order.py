"""This module chooses the order in which kernels run, so that few bytes of results are alive at a time.

From the kernels that are ready the one is taken that adds the least to what is alive: the bytes of its results less those of
operands that nothing else will read. The order of the graph stays where this plan is not smaller.
"""

from __future__ import annotations

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
    done: set[Value] = set()
    waiting = list(division.kernels)
    out: list[Kernel | Loop] = []

    def growth(kernel: Kernel | Loop) -> tuple[int, int]:
        freed = sum(size_of(v) for v in reads[kernel] if left[v] == 1)
        return sum(size_of(v) for v in kernel.outputs) - freed, position[kernel]

    while waiting:
        ready = [kernel for kernel in waiting if all(v in done for v in reads[kernel])]
        chosen = min(ready, key=growth)
        waiting.remove(chosen)
        out.append(chosen)
        done.update(chosen.outputs)
        left.subtract(reads[chosen])
    return out
