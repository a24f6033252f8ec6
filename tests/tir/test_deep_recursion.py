"""Sums of many terms and chains of many stages: printed, parsed, checked, simplified, run, compiled."""

import sys

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import Target, compile, lower
from tilewright.codegen.c.c_source import emit_c
from tilewright.schedule import Schedule
from tilewright.tir import assert_structural_equal, interpret, parse, structural_hash, verify
from tilewright.tir.analysis.simplify import simplify
from tilewright.tir.expr.deep_recursion import TooDeepError, in_room, nesting, with_room
from tilewright.tir.walk import post_order, pre_order

NATIVE = Target("native -num-cores=1")


def sum_of(terms, size=7):
    A = te.placeholder((size,), "float32", name="A")

    def body(i):
        e = A[i]
        for k in range(1, terms):
            e = e + float(k % 5) * A[(i + k) % size]
        return e

    return te.create_prim_func([A, te.compute((size,), body, name="B")])


def chain_of(stages, size=7):
    A = B = te.placeholder((size,), "float32", name="A")
    for k in range(stages):
        B = te.compute((size,), lambda i, P=B: P[i] + 1.0, name=f"S{k}")
    return te.create_prim_func([A, B])


def expected(terms, a):
    return a + sum(np.float32(k % 5) * np.roll(a, -k) for k in range(1, terms))


@pytest.mark.parametrize("func", [sum_of(450), chain_of(150)], ids=["a sum of 450 terms", "a chain of 150 stages"])
def test_deep_programs(func):
    limit = sys.getrecursionlimit()
    verify(func)
    text = func.script()
    again = parse(text)
    assert_structural_equal(again, func)
    assert structural_hash(again) == structural_hash(func)
    assert_structural_equal(parse(simplify(func).script()), simplify(func))
    a = np.arange(7, dtype="float32")
    b, c = np.full(7, np.nan, "float32"), np.full(7, np.nan, "float32")
    interpret(func, a, b)
    np.testing.assert_array_equal(b, a + 150 if "S0" in text else expected(450, a))
    compile(func, NATIVE)(a, c)
    np.testing.assert_array_equal(c, b)
    assert "int32_t main(" in emit_c([lower(func, Target("c -num-cores=1"))])
    assert sys.getrecursionlimit() == limit


def test_inlining_into_a_deep_sum():
    func = chain_of(60)
    sch = Schedule(func)
    for k in range(59):
        sch.compute_inline(f"S{k}")
    a, b = np.arange(7, dtype="float32"), np.zeros(7, "float32")
    interpret(sch.func, a, b)
    np.testing.assert_array_equal(b, a + 60)


def deep(levels):
    return 0 if levels == 0 else 1 + deep(levels - 1)


def test_room_is_made_when_it_is_needed():
    assert with_room(deep)(100) == 100
    assert with_room(deep)(20_000) == 20_000
    assert in_room(in_room, deep, 20_000) == 20_000
    with pytest.raises(TooDeepError, match="nests too deeply"):
        with_room(deep)(10_000_000)


def test_errors_come_out_of_the_room():
    with pytest.raises(KeyError, match="away"):
        in_room({}.__getitem__, "away")


def test_post_order_of_a_deep_sum():
    func = sum_of(450)
    nodes = list(post_order(func))
    assert nodes[-1] is func and set(nodes) == set(pre_order(func))
    assert nesting(func) > 450
