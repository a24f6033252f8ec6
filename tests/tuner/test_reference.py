"""What candidates are compared with: right ones pass though rounding grows, and wrong ones are caught all the same."""

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen.machine.target import Target
from tilewright.tir.parser import parse
from tilewright.tuner import LocalRunner, tune
from tilewright.tuner.measure.inputs import make_arguments
from tilewright.tuner.measure.reference import in_double, is_recurrence, reference_run

TARGET = Target("native -num-cores=1")


def recurrent(steps=65, width=32, batch=7, act=te.tanh):
    """A recurrent network: with weights in [-1, 1) rounding errors triple at each step."""
    x, w = te.placeholder((steps, batch, width), name="X"), te.placeholder((width, width), name="W")
    state, k = te.placeholder((steps, batch, width), name="S"), te.reduce_axis((0, width), name="k")
    first = te.compute((1, batch, width), lambda t, i, j: 0.0, name="first")
    h = te.compute((steps, batch, width), lambda t, i, j: te.sum(state[t - 1, i, k] * w[k, j], axis=k), name="h")
    step = te.compute((steps, batch, width), lambda t, i, j: act(h[t, i, j] + x[t, i, j]), name="step")
    return te.create_prim_func([x, w, te.scan(first, step, state, inputs=[x, w])])


def running_sum(steps=1000, width=17):
    x, state = te.placeholder((steps, width), name="X"), te.placeholder((steps, width), name="S")
    first = te.compute((1, width), lambda t, i: x[0, i], name="first")
    step = te.compute((steps, width), lambda t, i: state[t - 1, i] + x[t, i], name="step")
    return te.create_prim_func([x, te.scan(first, step, state, inputs=[x])])


def logistic(steps=200, width=17):
    """Chaotic for large r, whatever the order of its operations."""
    r, state = te.placeholder((width,), name="R"), te.placeholder((steps, width), name="S")
    first = te.compute((1, width), lambda t, i: 0.3, name="first")
    step = te.compute(
        (steps, width), lambda t, i: (r[i] * 0.2 + 3.8) * state[t - 1, i] * (1.0 - state[t - 1, i]), name="step"
    )
    return te.create_prim_func([r, te.scan(first, step, state, inputs=[r])])


TRIANGULAR = """
@T.prim_func
def main(L: T.Buffer((65, 65), "float32"), B: T.Buffer((65, 7), "float32"), X: T.Buffer((65, 7), "float32")):
    acc = T.alloc_buffer((65, 7))
    for i in range(65):
        for j, k in T.grid(7, 65):
            with T.block("acc"):
                vi = T.axis.opaque(65, i)
                vj = T.axis.spatial(7, j)
                vk = T.axis.reduce(65, k)
                with T.init():
                    acc[vi, vj] = T.float32(0)
                acc[vi, vj] = acc[vi, vj] + T.if_then_else(vk < vi, L[vi, vk] * X[vk, vj], T.float32(0))
        for j in range(7):
            with T.block("X"):
                vi = T.axis.opaque(65, i)
                vj = T.axis.spatial(7, j)
                X[vi, vj] = (B[vi, vj] - acc[vi, vj]) / L[vi, vi]
"""


def long_sum(rows=7, length=100_000):
    a, k = te.placeholder((rows, length), name="A"), te.reduce_axis((0, length), name="k")
    return te.create_prim_func([a, te.compute((rows,), lambda i: te.sum(a[i, k], axis=k), name="B")])


def measured(func, *programs):
    with LocalRunner(workers=1, max_samples=2) as runner:
        runner.open(func, TARGET)
        return [
            (r.status, r.error) for r in runner.measure([p if isinstance(p, str) else p.script() for p in programs])
        ]


def changed(func, *pairs):
    text = func.script()
    for old, new in pairs:
        assert old in text, text
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(
    "make", [recurrent, running_sum, lambda: recurrent(act=te.sigmoid), lambda: recurrent(act=lambda x: x)]
)
def test_every_candidate_of_a_recurrence_is_right(make):
    records = tune(make(), TARGET, trials=6, final_race=0).records
    assert len(records) >= 3 and {(r.status, r.error) for r in records} == {("ok", "")}


BACKWARDS = (
    ("for i, j, k in T.grid(7, 32, 32)", "for i, j, k0 in T.grid(7, 32, 32)"),
    ('v_t, v_i, v_j, v_k = T.axis.remap("SSSR", [t, i, j, k])',
     'v_t, v_i, v_j = T.axis.remap("SSS", [t, i, j])\n                v_k = T.axis.reduce(32, 31 - k0)'),
)  # fmt: skip


def test_another_order_of_a_recurrence_is_right_and_mistakes_are_found():
    func = recurrent()
    assert is_recurrence(func)
    off_by_one = changed(func, ("X[v_t, v_i, v_j]", "X[v_t - 1, v_i, v_j]"))
    skipped = changed(func, ("T.grid(7, 32, 32)", "T.grid(7, 32, 31)"))
    transposed = changed(func, ("W[v_k, v_j]", "W[v_j, v_k]"))
    last = changed(func, ("for t in range(1, 65)", "for t in range(1, 64)"))
    late = changed(func, ("scan[v_t - 1, v_i, v_k]", "scan[T.max(v_t - 2, 0), v_i, v_k]"))
    right, *wrong = measured(func, changed(func, *BACKWARDS), off_by_one, skipped, transposed, last, late)
    assert right == ("ok", "")
    assert [status for status, _ in wrong] == ["wrong_result"] * 5, wrong


def test_mistakes_in_the_solution_of_a_triangular_system_are_found():
    func = parse(TRIANGULAR)
    assert is_recurrence(func)
    wrong = [
        changed(func, ("vk < vi", "vk < vi - 1")),
        changed(func, ("L[vi, vk] *", "L[vk, vi] *")),
        changed(func, ("L[vi, vi]", "L[vi, 0]")),
        changed(func, ("vk < vi", "vk < vi and vk != 3")),
    ]
    right, *others = measured(func, func, *wrong)
    assert right == ("ok", "")
    assert [status for status, _ in others] == ["wrong_result"] * 4, others


def test_a_skipped_element_of_a_long_sum_is_found():
    func = long_sum()
    halves = changed(func, ("for i, k in T.grid(7, 100000)", "for i, k0 in T.grid(7, 100000)"),
                     ('v_i, v_k = T.axis.remap("SR", [i, k])',
                      'v_i = T.axis.spatial(7, i)\n            v_k = T.axis.reduce(100000, 99999 - k0)'))  # fmt: skip
    last = changed(func, ("T.grid(7, 100000)", "T.grid(7, 99999)"))
    twice = changed(func, ("A[v_i, v_k]", "A[v_i, T.max(v_k, 1)]"))
    right, *wrong = measured(func, halves, last, twice)
    assert right == ("ok", "")
    assert [status for status, _ in wrong] == ["wrong_result"] * 2, wrong


def test_what_is_no_recurrence():
    a, k = te.placeholder((13, 17), name="A"), te.reduce_axis((0, 17), name="k")
    total = te.compute((13,), lambda i: te.sum(a[i, k], axis=k), name="B")
    func = te.create_prim_func([a, total, te.compute((13,), lambda i: total[i] + 1.0, name="C")])
    assert not is_recurrence(func) and not is_recurrence(long_sum()) and is_recurrence(running_sum())


def test_the_same_in_float64():
    func = recurrent(steps=7)
    wide = in_double(func)
    assert {b.dtype for b in wide.buffers} == {"float64"}
    arguments = make_arguments(func, 0, fill="small")
    reference_run(func, TARGET, arguments)
    values = [v.astype(np.float64) for v in arguments.values]
    from tilewright.tir.interpret import interpret

    interpret(wide, *values)
    x, w = values[:2]
    state = np.zeros_like(x)
    for t in range(1, 7):
        state[t] = np.tanh(state[t - 1] @ w + x[t])
    np.testing.assert_allclose(values[2], state, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(arguments.values[2], state, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "value",
    [lambda x: te.floor(x), lambda x: te.if_then_else(x > 0.5, 1.0, 0.0), lambda x: x.astype("int32").astype("float32"),
     lambda x: x.astype("float16").astype("float32")],
)  # fmt: skip
def test_what_jumps_is_not_judged_by_another_type(value):
    a = te.placeholder((17,), name="A")
    b = te.compute((17,), lambda i: value(a[i]), name="B")
    func = te.create_prim_func([a, b])
    wide = in_double(func)
    assert wide is None or "float16" in func.script()


def test_inputs_of_any_fill_are_the_same_in_every_process():
    func = recurrent(steps=3)
    for fill in ("plain", "positive", "small", "dominant"):
        one, two = make_arguments(func, 1, fill=fill), make_arguments(func, 1, fill=fill)
        assert np.array_equal(one.values[0], two.values[0]) and np.isfinite(one.values[1]).all()


def test_a_chaotic_recurrence_is_not_refused():
    (result,) = measured(logistic(), logistic())
    assert result == ("ok", "")
