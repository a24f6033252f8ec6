"""The order of kernels and the places of their results: few bytes are alive at a time."""

import numpy as np
import pytest

from tilewright.graph import Builder, evaluate, fuse, order_kernels, plan_memory, prepare, unfused
from tilewright.graph.memory_plan import size_of

from .random_graphs import random_graph


def wide_and_narrow():
    """Four large results of which only sums are needed: each is summed before the next one is made."""
    b = Builder("net")
    x = b.input("x", (8,))
    wide = [b.op("tile", x, reps=(100 * (k + 1),)) for k in range(4)]
    sums = [b.op("cumsum", w, axis=0) for w in wide]
    ends = [b.op("max", s, axis=0, keepdims=True) for s in sums]
    return b.graph([b.op("concatenate", *ends, axis=0)])


def test_an_order_of_less_memory_is_taken():
    division = unfused(wide_and_narrow())
    before, after = plan_memory(division), plan_memory(order_kernels(division))
    assert after.size <= 2 * 3200 * 4 + 4 * 64 < before.size < before.apart
    assert f"{after.size} bytes in all; {before.apart} without sharing" in after.describe()


@pytest.mark.parametrize("seed", range(6))
def test_orders_of_random_graphs(seed):
    graph = prepare(random_graph(seed + 5000)[0])
    for division in (fuse(graph), unfused(graph)):
        ordered = order_kernels(division)
        plan, known = plan_memory(ordered), {*graph.inputs, *graph.constants}
        assert plan.least <= plan.size <= plan_memory(division).size
        assert sorted(k.name for k in ordered.kernels) == sorted(k.name for k in division.kernels)
        for kernel in ordered.kernels:
            assert all(division.root(v) in known for v in kernel.inputs)
            known.update(kernel.outputs)
        assert plan.apart == sum(size_of(v) for v in plan.offsets)


def test_the_graph_of_the_example_is_computed():
    graph = wide_and_narrow()
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(evaluate(graph, x)[0], [2800, 5600, 8400, 11200])
