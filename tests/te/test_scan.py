"""Recurrences: te.scan in functions and in classic schedules, against NumPy."""

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.schedule import ScheduleError
from tilewright.tir.difference import assert_structural_equal
from tilewright.tir.interpret import interpret
from tilewright.tir.parser import parse
from tilewright.tir.verify import verify


def running_sum(steps, width):
    X, state = te.placeholder((steps, width), name="X"), te.placeholder((steps, width), name="state")
    first = te.compute((1, width), lambda _, i: X[0, i], name="first")
    update = te.compute((steps, width), lambda t, i: state[t - 1, i] + X[t, i], name="update")
    return X, update, te.scan(first, update, state, inputs=[X], name="S")


def network(steps, width):
    """h[t] = max(W h[t - 1] + X[t], 0), h[0] = 1, with a stage of its own for the product."""
    X, W = te.placeholder((steps, width), name="X"), te.placeholder((width, width), name="W")
    state, k = te.placeholder((steps, width)), te.reduce_axis((0, width), "k")
    z = te.compute((steps, width), lambda t, i: te.sum(state[t - 1, k] * W[i, k], axis=k), name="z")
    h = te.compute((steps, width), lambda t, i: te.max(z[t, i] + X[t, i], 0.0), name="h")
    return X, W, z, h, te.scan(te.compute((1, width), lambda _, i: te.const(1.0), name="h0"), h, state, name="rnn")


def test_steps_of_64_bits():
    """The initial steps are counted in 32 bits, all of them in 64."""
    n = te.const(7, "int64")
    X, state = te.placeholder((n, 3), name="X"), te.placeholder((n, 3), name="state")
    first = te.compute((2, 3), lambda t, i: X[t, i], name="first")
    total = te.scan(first, te.compute((n, 3), lambda t, i: state[t - 2, i] + X[t, i], name="u"), state, name="S")
    func = te.create_prim_func([X, total])
    verify(func)
    x, got = np.arange(21, dtype="float32").reshape(7, 3), np.full((7, 3), np.nan, "float32")
    interpret(func, x, got)
    want = x.copy()
    for t in range(2, 7):
        want[t] += want[t - 2]
    np.testing.assert_array_equal(got, want)


def states(x, w):
    out = np.ones_like(x)
    for t in range(1, len(x)):
        out[t] = np.maximum(w @ out[t - 1] + x[t], 0)
    return out


def test_the_loops_of_a_recurrence():
    X, _, S = running_sum(13, 7)
    assert_structural_equal(
        te.create_prim_func([X, S]),
        parse("""
@T.prim_func
def main(X: T.Buffer((13, 7)), S: T.Buffer((13, 7))):
    T.func_attr({"global_symbol": "main", "tir.noalias": True})
    for _, i in T.grid(1, 7):
        with T.block("first"):
            v__, v_i = T.axis.remap("SS", [_, i])
            S[v__, v_i] = X[0, v_i]
    for t in range(1, 13):
        for i in range(7):
            with T.block("update"):
                v_t = T.axis.scan((1, 13), t)
                v_i = T.axis.spatial(7, i)
                S[v_t, v_i] = S[v_t - 1, v_i] + X[v_t, v_i]
"""),
    )


@pytest.mark.parametrize("rows", [1, 2, 10])
def test_first_steps_on_threads_of_a_gpu(rows):
    """The first row is computed in the buffer of the result, by the threads that go on from it."""
    X, _, S = running_sum(te.var("m"), te.var("n"))
    s = te.create_schedule(S.op)
    for stage in (S.op.init[0].op, S.op.update[0].op):
        block, thread = s[stage].split(stage.axis[1], factor=64)
        s[stage].bind(block, te.thread_axis("blockIdx.x"))
        s[stage].bind(thread, te.thread_axis("threadIdx.x"))
    x, got = np.arange(rows * 100, dtype="float32").reshape(rows, 100), np.zeros((rows, 100), "float32")
    tw.build(s, [X, S], "gpu-sim")(x, got)
    np.testing.assert_array_equal(got, np.cumsum(x, 0))


def test_first_steps_that_others_read_or_that_reduce_are_copied(evaluate):
    X, k = te.placeholder((4, 3), name="X"), te.reduce_axis((0, 4), name="k")
    x = np.arange(12, dtype="float32").reshape(4, 3)
    for kind in ("argument", "read", "reduced"):
        value = (lambda _, i: te.sum(X[k, i], axis=k)) if kind == "reduced" else (lambda _, i: X[0, i] * 2.0)
        first, state = te.compute((1, 3), value, name="first"), te.placeholder((4, 3), name="state")
        step = te.compute((4, 3), lambda t, i: state[t - 1, i] + X[t, i], name="step")  # noqa: B023
        S = te.scan(first, step, state, name="S")
        start = x.sum(0) if kind == "reduced" else x[0] * 2
        want = np.cumsum(np.concatenate([start[None], x[1:]]), 0)
        if kind == "argument":
            one, both = np.zeros((1, 3), "float32"), np.zeros((4, 3), "float32")
            tw.build(te.create_prim_func([X, first, S]), target="native -num-cores=1")(x, one, both)
            np.testing.assert_array_equal(one, start[None])
            np.testing.assert_array_equal(both, want)
        elif kind == "read":
            T = te.compute((4, 3), lambda t, i: S[t, i] + first[0, i], name="T")  # noqa: B023
            np.testing.assert_array_equal(evaluate(T, [X], x), want + start)
        else:
            np.testing.assert_array_equal(evaluate(S, [X], x), want)


@pytest.mark.parametrize("steps, width", [(1, 7), (2, 1), (13, 17), (16, 16)])
def test_results(evaluate, rng, steps, width):
    X, _, S = running_sum(steps, width)
    x = rng.integers(-4, 5, (steps, width)).astype("float32")
    np.testing.assert_array_equal(evaluate(S, [X], x), np.cumsum(x, 0))
    w = rng.integers(-1, 2, (width, width)).astype("float32") * (rng.random((width, width)) < 0.1)
    X, W, _, _, H = network(steps, width)
    np.testing.assert_allclose(evaluate(H, [X, W], x, w), states(x, w), rtol=1e-5)


def test_two_states_and_two_first_steps(evaluate):
    n = 13
    A, B = te.placeholder((n,), "int32"), te.placeholder((n,), "int32")
    first = [te.compute((2,), lambda i: i + 0), te.compute((2,), lambda i: te.const(0))]
    a = te.compute((n,), lambda t: A[t - 1] + A[t - 2], name="a")
    b = te.compute((n,), lambda t: B[t - 1] + a[t], name="b")
    fibonacci, total = te.scan(first, [a, b], [A, B], name="both")
    got = evaluate([fibonacci, total], [])
    want = [0, 1]
    while len(want) < n:
        want.append(want[-1] + want[-2])
    assert got[0].tolist() == want and got[1].tolist() == [0, 0, *np.cumsum(want[2:])]


def test_any_number_of_steps():
    m = te.var("m")
    X, _, S = running_sum(m, 3)
    f = tw.build(te.create_prim_func([X, S]))
    for steps in (1, 2, 7, 17):
        x, s = np.arange(steps * 3, dtype="float32").reshape(steps, 3), np.full((steps, 3), np.nan, "float32")
        f(x, s)
        np.testing.assert_array_equal(s, np.cumsum(x, 0))


def test_all_earlier_steps_may_be_read(evaluate, rng):
    n = 7
    state = te.placeholder((n,), name="state")

    def step(t):
        k = te.reduce_axis((0, t), "k")
        return te.sum(state[k] * (k + 1), axis=k)

    out = te.scan(te.compute((1,), lambda i: te.const(1.0)), te.compute((n,), step, name="step"), state)
    want = [1.0]
    for t in range(1, n):
        want.append(sum(want[k] * (k + 1) for k in range(t)))
    assert evaluate(out, []).tolist() == want


def test_classic_schedules(rng):
    X, W, z, h, H = network(13, 17)
    s = te.create_schedule(H.op)
    assert [stage.name for stage in s.stages if stage.name in ("z", "h", "rnn")] == ["z", "h", "rnn"]
    outer, inner = s[h].split(h.op.axis[1], factor=4)
    s[h].unroll(inner)
    s[z].vectorize(z.op.axis[1])
    x, w = rng.standard_normal((13, 17)).astype("float32"), rng.standard_normal((17, 17)).astype("float32") / 9
    got = np.full((13, 17), np.nan, "float32")
    tw.build(s, [X, W, H])(x, w, got)
    np.testing.assert_allclose(got, states(x, w), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("step", ["vectorize", "parallel"])
def test_elements_of_a_step_are_independent_and_steps_are_not(step):
    X, _, S = running_sum(13, 17)
    func = te.create_prim_func([X, S])
    sch = tw.Schedule(func, debug_mask="all")
    t, i = sch.get_loops("update")
    getattr(sch, step)(i)
    with pytest.raises(ScheduleError, match="axis v_t of block 'update' is scan"):
        getattr(sch, step)(t)
    x, got, want = np.ones((13, 17), "float32"), np.zeros((13, 17), "float32"), np.zeros((13, 17), "float32")
    interpret(sch.func, x, got)
    tw.build(sch)(x, want)
    np.testing.assert_array_equal(got, np.cumsum(x, 0))
    np.testing.assert_array_equal(want, np.cumsum(x, 0))


def test_errors():
    X, state = te.placeholder((5, 3), name="X"), te.placeholder((5, 3), name="state")
    first = te.compute((1, 3), lambda _, i: X[0, i])

    def update(at, rows=5, f=lambda e: e):
        return te.compute((rows, 3), lambda t, i: f(state[at(t), i]), name="u")

    with pytest.raises(ValueError, match=r"scan S: u reads the state at step t; it may read t - 1 and what is earlier"):
        te.scan(first, update(lambda t: t), state, name="S")
    with pytest.raises(ValueError, match=r"reads the state at step t - 2; .* as far as the 1 initial steps reach"):
        te.scan(first, update(lambda t: t - 2), state)
    with pytest.raises(ValueError, match="the shapes do not fit"):
        te.scan(first, update(lambda t: t - 1, 6), state)
    with pytest.raises(TypeError, match="the data types differ"):
        te.scan(first, update(lambda t: t - 1, f=lambda e: e.astype("float64")), state)
    with pytest.raises(ValueError, match="1, 2, 1 initial values, updates and states"):
        te.scan([first], [first, first], [state])
    with pytest.raises(ValueError, match=r"the state .* is not a placeholder"):
        te.scan(first, update(lambda t: t - 1), first)
    z = te.compute((5, 3), lambda t, i: state[t - 1, i] * 2.0, name="z")
    late = te.compute((5, 3), lambda t, i: z[t - 1, i], name="late")
    with pytest.raises(
        ValueError, match="late reads z at step t - 1; what is computed within a step is read at this step"
    ):
        te.scan(first, late, state)
    whole = te.compute((3,), lambda i: state[0, i], name="whole")
    with pytest.raises(ValueError, match="whole depends on the state, so its first dimension has to be the 5 steps"):
        te.scan(first, te.compute((5, 3), lambda t, i: state[t - 1, i] + whole[i]), state)
    same = update(lambda t: t - 1)
    with pytest.raises(ValueError, match="one update for two states"):
        te.scan([first, first], [same, same], [state, te.placeholder((5, 3))])


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_steps_along_any_dimension(axis):
    """A recurrence of second order: each element is the sum of the two before it, and of an input."""
    shape, at = (5, 6, 7), axis % 3

    def moved(i, by):
        return tuple([e - by if d == at else e for d, e in enumerate(i)])

    x, s = te.placeholder(shape, "int32", "x"), te.placeholder(shape, "int32", "s")
    first = [2 if d == at else e for d, e in enumerate(shape)]
    init = te.compute(first, lambda *i: x(*i))
    step = te.compute(
        shape, lambda *i: te.if_then_else(i[at] < 2, 0, s(*moved(i, 1)) + s(*moved(i, 2))) + x(*i), name="step"
    )
    out = te.scan(init, step, s, axis=axis)
    run = tw.build(te.create_prim_func([x, out]), target="native -num-cores=1")
    data = np.random.default_rng(0).integers(0, 9, shape).astype(np.int32)
    made, want = np.zeros(shape, np.int32), np.moveaxis(data.copy(), at, 0)
    run(data, made)
    for t in range(2, want.shape[0]):
        want[t] += want[t - 1] + want[t - 2]
    np.testing.assert_array_equal(made, np.moveaxis(want, 0, at))


def test_a_dimension_that_does_not_exist_is_refused():
    x, s = te.placeholder((5, 6)), te.placeholder((5, 6))
    step = te.compute((5, 6), lambda t, i: s[t - 1, i] + x[t, i])
    with pytest.raises(ValueError, match="axis=2 of states of 2 dimensions"):
        te.scan(te.compute((1, 6), lambda t, i: x[0, i]), step, s, axis=2)
    with pytest.raises(ValueError, match="they differ in dimension 1 of init alone"):
        te.scan(te.compute((1, 6), lambda t, i: x[0, i]), step, s, axis=1)
