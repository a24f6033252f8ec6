"""Arithmetic on data wraps around in its own type, also where it stands in an index."""

import numpy as np
import pytest

from tilewright import te, tir
from tilewright.codegen import compile
from tilewright.schedule import Schedule

BIG = np.array(
    [0, 1, -1, 2**31 - 1, -(2**31), 1431655766, -1431655766, 2**30, 715827883, 3, 12345, -7, 2**30 + 1], np.int32
)


def clamped(e):
    return te.max(te.min(e, te.const(1)), te.const(0))


FORMS = {
    "product": lambda a: clamped(a * 3),
    "sum": lambda a: clamped(a + a + 1),
    "difference": lambda a: clamped(te.const(-5) - a),
    "quotient": lambda a: clamped((a * 5) // 4),
    "remainder": lambda a: te.floormod(a * 3, te.const(2)),
    "extreme": lambda a: clamped(te.min(a * 3, a + 2**30)),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("vectorized", [False, True])
def test_data_wraps_in_an_index(form, vectorized):
    n = len(BIG)
    A, X = te.placeholder((n,), "int32", "A"), te.placeholder((2, n), "int32", "X")
    func = te.create_prim_func([A, X, te.compute((n,), lambda i: X[FORMS[form](A[i]), i], name="Y")])
    if vectorized:
        sch = Schedule(func)
        sch.vectorize(sch.get_loops("Y")[0])
        func = sch.func
    x = np.arange(2 * n, dtype=np.int32).reshape(2, n)
    want, got = np.zeros(n, np.int32), np.zeros(n, np.int32)
    tir.interpret(func, BIG, x, want)
    compile(func)(BIG, x, got)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("form", FORMS)
def test_data_wraps_in_an_index_where_both_widths_meet(form):
    n = len(BIG)
    size = tir.IntImm(n, "int64")
    A, X = te.placeholder((size,), "int32", "A"), te.placeholder((2, size, 2), "int32", "X")
    k = te.reduce_axis((0, 2), name="k")
    func = te.create_prim_func(
        [A, X, te.compute((size,), lambda i: te.sum(X[FORMS[form](A[i]), i, k], axis=k), name="Y")]
    )
    x = np.arange(4 * n, dtype=np.int32).reshape(2, n, 2)
    want, got = np.zeros(n, np.int32), np.zeros(n, np.int32)
    tir.interpret(func, BIG, x, want)
    compile(func)(BIG, x, got)
    np.testing.assert_array_equal(got, want)
