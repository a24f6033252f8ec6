"""T.q_multiply_shift and T.q_multiply_shift_per_axis: the interpreter and machine code against whole numbers."""

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.tir import parse
from tilewright.tir.difference import assert_structural_equal
from tilewright.tir.interpret import interpret


def rounded(product, right):
    """``product / 2**right``, a half up, cut to 32 bits."""
    return ((product + (1 << (right - 1))) >> right) + (1 << 31) & 0xFFFFFFFF


def expected(x, y, q, s):
    left, right = max(s, 0), q + max(-s, 0)
    return [rounded((a << left) * b, right) - (1 << 31) for a, b in zip(x.tolist(), y.tolist(), strict=True)]


def both(func, *arrays):
    out = []
    for run in (lambda *a: interpret(func, *a), tw.build(func, target="native -num-cores=1")):
        got = np.full(arrays[0].shape, 77, "int32")
        run(*arrays, got)
        out.append(got.tolist())
    return out


def numbers(n, seed=0):
    rng = np.random.default_rng(seed)
    special = np.array([0, 1, -1, 2**31 - 1, -(2**31), 3, -3, 2**30], "int32")
    return np.concatenate([special, rng.integers(-(2**31), 2**31, n)])[:n].astype("int32")


@pytest.mark.parametrize("n", [1, 7, 16, 17])
@pytest.mark.parametrize("q, s", [(31, 0), (31, -5), (31, 1), (1, 0), (15, 2), (31, -31)])
def test_one_shift_for_all(n, q, s):
    X, Y = te.placeholder((n,), "int32", name="X"), te.placeholder((n,), "int32", name="Y")
    Z = te.compute((n,), lambda i: te.q_multiply_shift(X[i], Y[i], q, s), name="Z")
    func = te.create_prim_func([X, Y, Z])
    assert_structural_equal(parse(func.script()), func)
    x, y = numbers(n), numbers(n, 1)[::-1].copy()
    if s > 0:
        x = x >> (s + 1)  # what leaves 64 bits is cut, as in TVM
    assert both(func, x, y) == [expected(x, y, q, s)] * 2


def test_shifts_of_their_own():
    n = 17
    X, Y, L, R = (te.placeholder((n,), "int32", name=name) for name in "XYLR")
    x, y = numbers(n) >> 4, numbers(n, 1)
    left, right = np.arange(n, dtype="int32") % 3, np.arange(n, dtype="int32") % 5
    for needed in (0, 1):
        Z = te.compute((n,), lambda i: te.q_multiply_shift_per_axis(X[i], Y[i], L[i], R[i], 31, needed, 1), name="Z")  # noqa: B023
        func = te.create_prim_func([X, Y, L, R, Z])
        assert_structural_equal(parse(func.script()), func)
        parts = zip(*[a.tolist() for a in (x, y, left * needed, right)], strict=True)
        want = [rounded((a << ls) * b, 31 + rs) - (1 << 31) for a, b, ls, rs in parts]
        assert both(func, x, y, left, right) == [want] * 2


def test_in_vectors_and_in_c():
    X = te.placeholder((17,), "int32", name="X")
    func = te.create_prim_func([X, te.compute((17,), lambda i: te.q_multiply_shift(X[i], 1 << 30, 31, -2), name="Z")])
    sch = tw.Schedule(func)
    sch.vectorize(sch.get_loops("Z")[0])
    x = numbers(17)
    assert both(sch.func, x) == [expected(x, np.full(17, 1 << 30), 31, -2)] * 2
    assert "q_multiply_shift" not in tw.build(func).get_source("c")


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda x: te.q_multiply_shift(te.cast("float32", x), x, 31, 0), "multiplies int32 numbers, not float32"),
        (lambda x: te.q_multiply_shift(x, te.cast("int64", x), 31, 0), "multiplies int32 numbers, not int64"),
        (lambda x: te.q_multiply_shift(x, x, 31.0, 0), "shifts by integers, not float32"),
    ],
)
def test_types(call, message):
    with pytest.raises(TypeError, match=message):
        call(te.var("x"))
