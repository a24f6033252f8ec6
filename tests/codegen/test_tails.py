"""Splits that do not divide: a main loop with a small remainder, or one loop under masks, as annotated."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import Target, compile, lower
from tilewright.schedule import Schedule
from tilewright.tir import parse
from tilewright.tir.stmt import For
from tilewright.tir.walk import pre_order

TARGETS = ["llvm -mcpu=x86-64-v3 -num-cores=1", "native -num-cores=1"]


def scaled(n, tail=None):
    """B = 2 A, eight lanes at a time."""
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] * 2.0, name="B")
    sch = Schedule(te.create_prim_func([a, b]))
    outer, inner = sch.split(sch.get_loops("B")[0], [None, 8])
    sch.vectorize(inner)
    if tail is not None:
        sch.annotate(outer, "pragma_tail", tail)
    return sch


def loops(sch):
    """The extents of the loops after lowering."""
    made = lower(sch, Target(TARGETS[0]))
    return [int(n.extent) for n in pre_order(made.func.body) if isinstance(n, For)]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("tail", [None, "peel", "mask"])
@pytest.mark.parametrize("n", [1, 7, 8, 13, 16, 17, 100])
def test_numbers(n, tail, target):
    x, y = np.arange(n, dtype="float32"), np.full(n + 8, np.nan, "float32")
    compile(scaled(n, tail), target)(x, y[:n])
    np.testing.assert_array_equal(y[:n], 2 * x)
    assert np.isnan(y[n:]).all()


def test_peeled_or_whole():
    assert loops(scaled(100)) == loops(scaled(100, "peel")) == [12]
    assert loops(scaled(100, "mask")) == [13]


@pytest.mark.parametrize("kind", ["range", "T.unroll"])
def test_loops_of_symbolic_sizes_end_with_the_last_whole_tile(kind):
    func = parse(f"""
@T.prim_func
def main(var_a: T.handle, var_c: T.handle):
    n = T.int32()
    A = T.match_buffer(var_a, (3, n))
    C = T.match_buffer(var_c, (3, n))
    for r in range(3):
        for i0 in {kind}((n + 7) // 8):
            for i1 in T.vectorized(8):
                if i0 * 8 + i1 < n:
                    C[r, i0 * 8 + i1] = A[r, i0 * 8 + i1] * T.float32(2.0)
""")
    text = lower(func, Target(TARGETS[0])).script()
    assert "for i0 in range(n // 8):" in text
    assert text.count("predicate") == 2  # of the load and of the store behind the loop
    built = compile(func, TARGETS[0])
    for n in range(20):
        x, y = np.arange(3 * n, dtype="float32").reshape(3, n), np.full((3, n), np.nan, "float32")
        built(x, y)
        np.testing.assert_array_equal(y, 2 * x)


@pytest.mark.parametrize("check", ["i0 * 4 + i1 < n", "n <= i0 * 4 + i1", "i0 * 4 + i1 < n and i0 * 2 + i1 < m - 3"])
def test_any_number_of_tiles_behind_the_last_whole_one(check):
    func = parse(f"""
@T.prim_func
def main(C: T.Buffer((40,)), n: T.int32, m: T.int32):
    for i0 in range(m):
        for i1 in T.unroll(4):
            if {check}:
                C[i0] = C[i0] + T.float32(1.0)
""")
    built = compile(func, TARGETS[0])
    for n in (-5, 0, 1, 4, 7, 50, 200):
        for m in (-2, 0, 1, 3, 17, 40):
            c = np.zeros(40, "float32")
            built(c, n, m)
            wanted = [sum(eval(check, {"i0": i0, "i1": i1, "n": n, "m": m}) for i1 in range(4)) for i0 in range(m)]
            np.testing.assert_array_equal(c, [*wanted, *[0] * (40 - max(m, 0))])


def test_a_wish_that_nobody_knows():
    with pytest.raises(ValueError, match='pragma_tail of loop i_0 is \'scalar\'; it is "peel" or "mask"'):
        compile(scaled(100, "scalar"), TARGETS[0])


def joined(first, rows=2, columns=100, width=8):
    """``first`` columns of A, then squares of B, then zeros, a vector at a time."""
    a, b = te.placeholder((rows, columns), name="A"), te.placeholder((rows, columns), name="B")

    def element(i, j):
        behind = te.if_then_else(j < first + columns // 2, b[i, j - first] * b[i, j - first], 0.0)
        return te.if_then_else(j < first, a[i, j], behind)

    sch = Schedule(te.create_prim_func([a, b, te.compute((rows, 2 * columns), element, name="C")]))
    sch.vectorize(sch.split(sch.get_loops("C")[1], [None, width])[1])
    return sch


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("width", [8, 32])
@pytest.mark.parametrize("first", [1, 8, 31, 64, 67, 99])
def test_numbers_of_choices(first, width, target):
    rng = np.random.default_rng(first)
    a, b = rng.standard_normal((2, 2, 100), dtype="float32")
    c = np.full((2, 200), np.nan, "float32")
    compile(joined(first, width=width), target)(a, b, c)
    want = np.zeros_like(c)
    want[:, :first], want[:, first : first + 50] = a[:, :first], b[:, :50] ** 2
    np.testing.assert_array_equal(c, want)


def test_only_vectors_across_two_parts_choose():
    """Of 25 vectors, 8 lie in the first part, 16 in the second, and one across."""
    a, b = te.placeholder((67,), name="A"), te.placeholder((133,), name="B")
    both = te.compute((200,), lambda i: te.if_then_else(i < 67, a[i], b[i - 67] * b[i - 67]), name="C")
    sch = Schedule(te.create_prim_func([a, b, both]))
    sch.vectorize(sch.split(sch.get_loops("C")[0], [None, 8])[1])
    assert loops(sch) == [8, 16]


@pytest.mark.parametrize("target", TARGETS)
def test_a_choice_at_a_number_divides_the_whole_tiles_of_a_symbolic_size(target):
    n = te.size_var("n")
    a, b = te.placeholder((3, n), name="A"), te.placeholder((3, n), name="B")
    c = te.compute((3, n), lambda r, i: te.if_then_else(i < 37, a[r, i], b[r, i] * 2.0), name="C")
    sch = Schedule(te.create_prim_func([a, b, c]))
    _, inner = sch.split(sch.get_loops("C")[1], [None, 8])
    sch.vectorize(inner)
    text = lower(sch, Target(target)).script()
    assert "in range(T.min(4, n // 8))" in text  # tiles of A alone
    assert "in range(T.max(n // 8 - 4, 0))" in text  # the one of both, and those of B
    built = compile(sch, target)
    for size in (*range(1, 50), 64, 65):
        x = np.arange(3 * size, dtype="float32").reshape(3, size)
        got = np.full((3, size), np.nan, "float32")
        built(x, -x, got)
        np.testing.assert_array_equal(got, np.where(np.arange(size) < 37, x, -2 * x), err_msg=str(size))
