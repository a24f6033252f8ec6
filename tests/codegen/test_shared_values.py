"""Values that several places use: C names them once, inside the condition that guards them."""

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import Target, lower
from tilewright.codegen.c import emit_c
from tilewright.codegen.c.c_stmt import shared_values
from tilewright.schedule import Schedule
from tilewright.tir.expr import EQ, And, Call, FloatImm, IntImm, Let, Select, StringImm, Var
from tilewright.tir.interpret import interpret
from tilewright.tir.stmt import decl_buffer

X, N = Var("x", "float32"), Var("n", "int32")
A = decl_buffer((99,), "float32", "A")


def long(e):
    """An expression of more than twelve parts."""
    for k in range(7):
        e = e * FloatImm(k, "float32")
    return e


def guarded(condition, usual):
    return Call("tir.if_then_else", (condition, usual, FloatImm(0, "float32")), usual.dtype)


PART, LOAD = long(X), long(A[N])
HOLDS = EQ(N, IntImm(1))
CASES = {
    "one use": ((PART + X,), ()),
    "two uses": ((PART + PART,), (PART,)),
    "two roots": ((PART, PART + X), (PART,)),
    "the same root": ((PART, PART), (PART,)),
    "a small value": ((X * X + X * X,), ()),
    "equal but not the same": ((long(X) + long(X),), ()),
    "a value and its part": ((long(PART) + long(PART), PART), ()),
    "mentioned twice": ((Call("tir.isnan", (PART,), "bool"),), (PART,)),
    "both of a Select": ((Select(HOLDS, LOAD, LOAD + X),), (LOAD,)),
    "a guarded load": ((guarded(HOLDS, LOAD + LOAD),), ()),
    "the second condition": ((And(HOLDS, EQ(LOAD, LOAD)),), ()),
    "the first condition": ((And(EQ(LOAD, X), EQ(LOAD, PART)),), (LOAD,)),
    "guarded and not": ((LOAD + guarded(HOLDS, LOAD),), (LOAD,)),
    "the scope of a variable": ((Let(X, FloatImm(1, "float32"), PART + PART),), ()),
    "beside an effect": ((PART + PART + Call("tir.call_extern", (StringImm("g"), X), "float32"),), ()),
}  # fmt: skip


@pytest.mark.parametrize("case", sorted(CASES))
def test_which_values_are_shared(case):
    roots, want = CASES[case]
    got = shared_values(roots, ())
    if case == "a value and its part":
        assert PART in got and len(got) == 1
    else:
        assert set(got) == set(want)


def test_register_values_are_small():
    part = A[long(X).astype("int32")] + FloatImm(1, "float32")
    assert shared_values([part + part], ()) == {part} and shared_values([part + part], (A,)) == ()


@pytest.mark.parametrize("vector", [False, True])
def test_an_argmax_with_a_condition(vector, through_c):
    """The condition guards the loads of the value, which guard those of the comparison with the best so far."""
    a = te.placeholder((8, 17), "int32", name="A")
    r = te.reduce_axis((0, 13), name="r")
    argmax = te.comm_reducer(
        lambda x, y: (
            te.select(te.any(x[1] > y[1], te.all(x[1] == y[1], x[0] <= y[0])), x[0], y[0]),
            te.select(x[1] >= y[1], x[1], y[1]),
        ),
        lambda i, v: (te.max_value(i), te.min_value(v)),
        name="argmax",
    )

    def body(i, j):
        value = a[i, te.max(te.min(a[7 - i, j], 16), 0)] * a[i // 2, r] - a[i, j]
        return argmax((te.cast("int32", r.var), value), axis=r, where=a[i, j] != a[i, r])

    best = te.compute((8, 17), body, name="S")
    sch = Schedule(te.create_prim_func([a, *best]))
    if vector:
        sch.vectorize(sch.get_loops("S")[1])
    data = np.random.default_rng(0).integers(-9, 20, (8, 17)).astype("int32")
    want, got = ([np.full((8, 17), 77, "int32") for _ in range(2)] for _ in range(2))
    interpret(sch.func, data, *want)
    through_c(sch.func)(data, *got)
    np.testing.assert_array_equal(got, want)
    assert max(map(len, emit_c([lower(sch.func, Target("c"))]).splitlines())) < 2500
