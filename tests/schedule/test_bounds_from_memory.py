"""Loops whose bounds depend on other loops, or are read from memory: what the steps refuse, and what they keep right."""

import numpy as np
import pytest

from tilewright import te
from tilewright.schedule import Schedule, ScheduleError
from tilewright.tir.interpret import interpret

N = 17


def program(end):
    """C[i] = max over k < Q[i] (or ``end(i)``) of A[i, k], with Q = P + 1; then E = C + 1."""
    P, A = te.placeholder((N,), "int32", name="P"), te.placeholder((N, N), name="A")
    Q = te.compute((N,), lambda i: P[i] + 1, name="Q")

    def row(i):
        k = te.reduce_axis((0, end(Q, i)), "k")
        return te.max(A[i, k], axis=k)

    C = te.compute((N,), row, name="C")
    return te.create_prim_func([P, A, te.compute((N,), lambda i: C[i] + 1.0, name="E")])


FROM_MEMORY, TRIANGLE = program(lambda q, i: q[i]), program(lambda q, i: i + 1)


@pytest.mark.parametrize(
    "func, step, words",
    [
        (FROM_MEMORY, lambda s, i, k: s.compute_inline("Q"), "compute_inline: buffer Q is read outside of blocks, by the "
         "bounds of loop k"),
        (FROM_MEMORY, lambda s, i, k: s.compute_at("Q", i), "compute_at: buffer Q is read outside of blocks"),
        (FROM_MEMORY, lambda s, i, k: s.split(i, [None, 4]), r"split: the factors \[5, 4\] give more than the 17 .* and "
         r"Q\[i\] would be read"),
        (FROM_MEMORY, lambda s, i, k: s.blockize(k), "blockize: the bounds of the loops in loop k depend on loop i"),
        (FROM_MEMORY, lambda s, i, k: s.blockize(i), "blockize: what one iteration of loop i touches depends on loop i in it"),
        (TRIANGLE, lambda s, i, k: s.blockize(k), "blockize: the bounds of the loops in loop k depend on loop i"),
        (TRIANGLE, lambda s, i, k: s.blockize(i), "blockize: what one iteration of loop i touches depends on loop i in it"),
        (TRIANGLE, lambda s, i, k: s.rfactor(k, 0), r"rfactor: the extent i \+ 1 of loop k changes, so that no buffer"),
        (FROM_MEMORY, lambda s, i, k: s.rfactor(k, 0), r"rfactor: the extent Q\[i\] of loop k changes, so that no buffer"),
    ],
)  # fmt: skip
def test_what_is_refused(func, step, words):
    sch = Schedule(func)
    with pytest.raises(ScheduleError, match=words):
        step(sch, *sch.get_loops("C"))
    assert sch.func is func


@pytest.mark.parametrize("end", [lambda i: i, lambda i: i % 3, lambda i: i // 2])
@pytest.mark.parametrize(
    "step",
    [
        lambda s, i, k: s.fuse(i, k),
        lambda s, i, k: s.split(k, [4, None]),
        lambda s, i, k: s.split(k, [2, None, 2]),
    ],
)
def test_a_reduction_over_nothing_keeps_its_init(step, end):
    """In loops that the first row of a triangle does not run, its element would stay unwritten."""
    A = te.placeholder((7, 5, 13), name="A")

    def row(i, j):
        k = te.reduce_axis((0, end(i)), "k")
        return te.sum(A[i, j, k], axis=k)

    func = te.create_prim_func([A, te.compute((7, 5), row, name="B")])
    sch = Schedule(func)
    _, j, k = sch.get_loops("B")
    with pytest.raises(
        ScheduleError, match="the reduction of block 'B' may be over no elements, and its init would run in"
    ):
        step(sch, j, k)
    assert sch.func is func


@pytest.mark.parametrize("n", [1, 7])
def test_reductions_over_something_fuse_and_split(agree, replays, n):
    A = te.placeholder((n, 5, 13), name="A")

    def row(i, j):
        k = te.reduce_axis((0, i + 1), "k")
        return te.sum(A[i, j, k], axis=k)

    func = te.create_prim_func([A, te.compute((n, 5), row, name="B")])
    for step in (lambda s, j, k: s.fuse(j, k), lambda s, j, k: s.split(k, [4, None])):
        sch = Schedule(func, debug_mask="all")
        step(sch, *sch.get_loops("B")[1:])
        agree(func, sch.func)
        replays(sch, func)


@pytest.mark.parametrize("func", [FROM_MEMORY, TRIANGLE])
@pytest.mark.parametrize(
    "step",
    [
        lambda s, i, k: s.split(i, [None, 17]),
        lambda s, i, k: s.split(k, [None, 4]),
        lambda s, i, k: s.parallel(i),
        lambda s, i, k: s.vectorize(i),
        lambda s, i, k: s.decompose_reduction("C", k),
        lambda s, i, k: s.unroll(k),
    ],
)
def test_what_is_kept_right(func, step, replays):
    sch = Schedule(func, debug_mask="all")
    step(sch, *sch.get_loops("C"))
    rng = np.random.default_rng(0)
    p, a = rng.integers(0, N, N).astype("int32"), rng.integers(-9, 9, (N, N)).astype("float32")
    got, want = np.full(N, np.nan, "float32"), np.full(N, np.nan, "float32")
    interpret(sch.func, p, a, got)
    interpret(func, p, a, want)
    ends = p + 1 if func is FROM_MEMORY else np.arange(N) + 1
    np.testing.assert_array_equal(want, [a[i, :e].max() + 1 for i, e in enumerate(ends)])
    np.testing.assert_array_equal(got, want)
    replays(sch, func)
