"""Large programs: the work and the nesting grow in proportion, or with a logarithm."""

import sys

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.graph import Builder
from tilewright.graph.kernels import fuse
from tilewright.graph.memory_plan import order_kernels
from tilewright.tir import parse, structural_equal
from tilewright.tir.expr.deep_recursion import nesting
from tilewright.tuner import Space

TARGET = "native -num-cores=1"


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("parts", [8, 9, 17, 81, 300])
def test_a_concatenation_of_many_arrays(parts, axis):
    widths = [n % 3 for n in range(parts)]
    shapes = [(w, 2) if axis == 0 else (2, w) for w in widths]
    given = [te.placeholder(s, name=f"x{n}") for n, s in enumerate(shapes)]
    func = te.create_prim_func([*given, te.ops.concatenate(given, axis)])
    assert nesting(func.body) < 40
    assert structural_equal(parse(str(func)), func)
    arrays = [np.random.default_rng(n).standard_normal(s).astype("float32") for n, s in enumerate(shapes)]
    np.testing.assert_array_equal(tw.build(func, target=TARGET)(*arrays), np.concatenate(arrays, axis))


@pytest.mark.parametrize("terms", [990, 2000])
def test_a_sum_of_many_terms(terms):
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: sum((a[i] * float(q) for q in range(terms)), te.const(0.0, "float32")), name="B")
    func = te.create_prim_func([a, b])
    assert structural_equal(parse(str(func)), func)
    np.testing.assert_allclose(tw.build(func, target=TARGET)(np.ones(8, "float32")), sum(range(terms)), rtol=1e-4)


def chain(stages):
    a = x = te.placeholder((8,), name="A")
    for q in range(stages):
        x = te.compute((8,), lambda i, x=x: x[i] + 1.0, name=f"s{q}")
    return [a, x]


def calls(run):
    count = 0

    def seen(_frame, event, _argument):
        nonlocal count
        count += event == "call"

    sys.setprofile(seen)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


def test_scheduling_a_long_chain_of_stages_takes_work_in_proportion():
    target = tw.Target(TARGET)
    short, long = (te.create_prim_func(chain(n)) for n in (300, 900))
    Space(te.create_prim_func(chain(10)), target)
    one, three = calls(lambda: Space(short, target)), calls(lambda: Space(long, target))
    assert three < 3.5 * one, (one, three)
    np.testing.assert_array_equal(tw.build(long, target=TARGET)(np.zeros(8, "float32")), 900)


def test_ordering_kernels_takes_work_in_proportion():
    def parts(count):
        builder = Builder("parts")
        x = builder.input("x", (count, 4))
        return fuse(builder.graph([builder.op("strided_slice", x, begin=(n, 0), end=(n + 1, 4)) for n in range(count)]))

    few, many = parts(40), parts(160)
    one, four = calls(lambda: order_kernels(few)), calls(lambda: order_kernels(many))
    assert four < 5 * one, (one, four)
