"""What one iteration stores and the next one loads goes through a register, and nothing else does."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import Target, compile, lower
from tilewright.codegen.lower.carry_recurrences import carry_recurrences
from tilewright.driver.building import plan
from tilewright.tir.interpret import interpret
from tilewright.tir.parser import parse

from .test_lower import AVX2, AVX512, check, inputs_of, spoil

ROWS = """
@T.prim_func
def main(X: T.Buffer((4, 9)), S: T.Buffer((4, 9))):
    T.func_attr({"tir.noalias": True})
    for i in range(4):
        S[i, 0] = X[i, 0]
    for i in range(2):
        for t in range(1, 9):
            S[i * 2, t] = S[i * 2, t - 1] * T.float32(0.5) + X[i * 2, t]
            S[i * 2 + 1, t] = S[i * 2 + 1, t - 1] + S[i * 2, t - 1] * T.float32(0.25)
"""


def carried(text: str) -> str:
    return carry_recurrences(parse(text)).script()


@pytest.mark.parametrize("target", [AVX512, AVX2])
def test_rows_side_by_side(target):
    """The second row reads the first one's last step, which its register no longer holds: that comes from memory."""
    func = parse(ROWS)
    check(func, target)
    made = carry_recurrences(func)
    check(made, target)
    text = made.script()
    assert text.count('scope="register"') == 2
    assert "S_carried_1[()] = S_carried_1[()] + S[i * 2, t - 1]" in text or text.count("S[i * 2, t - 1]") == 1


def test_rows_of_a_loop_of_one_iteration():
    """The index with that loop is zero, but is written as a product."""
    text = (
        ROWS.replace("range(2)", "range(1)")
        .replace("T.Buffer((4, 9))", "T.Buffer((2, 9))")
        .replace("range(4)", "range(2)")
    )
    made = carry_recurrences(parse(text))
    check(made, AVX512)
    assert made.script().count('scope="register"') == 2


LOOP = """
@T.prim_func
def main(X: T.Buffer((9,)), S: T.Buffer((9,)), R: T.Buffer((9,))):
    T.func_attr({{"tir.noalias": True}})
    S[0] = X[0]
    S[1] = X[1]
    for t in range({first}, 9):
        {body}
"""


@pytest.mark.parametrize(
    ("first", "body", "count"),
    [
        (1, "S[t] = S[t - 1] + X[t]", 1),
        (2, "S[t] = S[t - 1] + S[t - 2]", 1),  # the step before the last one is in memory
        (2, "S[t] = S[t - 2] + X[t]", 0),
        (0, "S[t] = T.if_then_else(t < 1, X[0], S[T.max(t - 1, 0)] + X[t])", 0),
        (0, "S[t] = X[t]", 0),
        (1, "S[t] = S[8 - t] + X[t]", 0),
    ],
)
def test_what_is_carried(first, body, count):
    text = LOOP.format(first=first, body=body)
    check(parse(text), AVX512)
    assert carried(text).count('scope="register"') == count


def test_two_stores_of_one_iteration_to_one_array_are_apart():
    text = LOOP.format(first=1, body="S[t] = S[t - 1] + X[t]\n        R[t] = S[t - 1] + S[t]")
    check(parse(text), AVX512)
    lines = [line.strip() for line in carried(text).splitlines()]
    assert "R[t] = S[t - 1] + S[t]" in lines  # the register holds the new element by then


def test_arrays_that_may_overlap_are_left_alone():
    text = LOOP.format(first=1, body="S[t] = S[t - 1] + X[t]").replace('T.func_attr({"tir.noalias": True})', "pass")
    assert "register" not in carried(text.replace("    pass\n", ""))


@pytest.mark.parametrize(
    ("second", "count"),
    [("S[t] = S[t] + X[t]", 0), ("S[t] = S[t - 1] + X[t]", 0), ("S[t] = S[t - 1] * T.float32(2)", 0)],
)
def test_a_place_that_one_iteration_writes_twice_is_not_carried(second, count):
    """The next iteration reads what was written last."""
    text = LOOP.format(first=1, body=f"S[t] = S[t - 1] + X[t]\n        {second}")
    check(parse(text), AVX512)
    assert carried(text).count('scope="register"') == count


def test_the_first_step_of_a_loop_that_may_be_empty_comes_before_it():
    n = te.size_var("n")
    x = te.placeholder((40, n), name="x")
    func = te.create_prim_func([x, te.ops.cumsum(x, 1)])
    text = lower(func, "native -num-cores=1").script()
    assert "if_then_else" not in text and 'scope="register"' in text
    module = compile(func, Target("native -num-cores=1"))
    for size in (0, 1, 2, 3, 6, 7, 33, 128, 129, 512):
        values = np.random.default_rng(size).integers(-4, 5, (40, size)).astype("float32")
        out = np.full((40, size), np.nan, "float32")
        module(values, out)
        np.testing.assert_array_equal(out, np.cumsum(values, 1))


@pytest.mark.parametrize(
    ("axis", "exclusive", "reverse"), [(0, False, True), (1, True, False), (0, True, False), (1, False, True)]
)
def test_running_sums_along_a_size_start_and_go_as_asked(axis, exclusive, reverse):
    n = te.size_var("n")
    x = te.placeholder((n, 5) if axis == 0 else (5, n), name="x")
    module = plan([x, te.ops.cumsum(x, axis, exclusive=exclusive, reverse=reverse)], "native -num-cores=1").compile()
    for size in (0, 1, 2, 7, 16, 33, 130):
        values = np.random.default_rng(size).integers(-4, 5, (size, 5) if axis == 0 else (5, size)).astype("float32")
        turned = np.flip(values, axis) if reverse else values
        sums = np.cumsum(turned, axis) - (turned if exclusive else 0)
        out = np.full(values.shape, np.nan, "float32")
        module(values, out)
        np.testing.assert_array_equal(out, np.flip(sums, axis) if reverse else sums)


def test_sums_of_rows_that_have_other_values_at_their_ends():
    """A check that holds for the first element of a row alone holds in no vector as a whole, and other checks leave the loop."""
    n = te.size_var("n")
    x, y = te.placeholder((6, n), name="x"), te.placeholder((6,), name="y")

    def inner(i, j):
        return te.if_then_else((j >= 1) & (j < n - 1), te.max(x[i, j], y[i]), te.const(0, "float32"))

    made = plan([x, y, te.ops.cumsum(te.compute((6, n), inner, name="s"), 1)], "native -num-cores=1")
    text = lower(made.scheduled, "native -num-cores=1").script()
    assert 'scope="register"' in text and "_0 < 0" not in text
    module = made.compile()
    for size in (0, 1, 2, 3, 5, 15, 16, 17, 18, 33, 61, 64, 100, 130, 300):
        rng = np.random.default_rng(size)
        a, b = rng.integers(-4, 5, (6, size)).astype("float32"), rng.integers(-4, 5, 6).astype("float32")
        values = np.maximum(a, b[:, None])
        values[:, :1] = values[:, -1:] = 0
        out = np.full((6, size), np.nan, "float32")
        module(a, b, out)
        np.testing.assert_array_equal(out, np.cumsum(values, 1), str(size))


MASKED = """
@T.prim_func
def main(var_Z: T.handle, X: T.Buffer((9, 16)), S: T.Buffer((9, 16)), R: T.Buffer((9, 16))):
    T.func_attr({{"tir.noalias": True}})
    n = T.int32()
    Z = T.match_buffer(var_Z, (n,))
    for k in range(16):
        S[0, k] = X[0, k]
    for t in range(1, 9):
        S.vstore([t, T.Ramp(0, 1, 16)], {old} + X.vload([t, T.Ramp(0, 1, 16)], predicate={inside}), predicate={inside})
        R.vstore([t, T.Ramp(0, 1, 16)], {copied}, predicate=T.Ramp(0, 1, 16) < T.Broadcast({others}, 16))
"""
INSIDE = "T.Ramp(0, 1, 16) < T.Broadcast(12, 16)"
FEW = "T.Ramp(0, 1, 16) < T.Broadcast(T.min(n, 12), 16)"


@pytest.mark.parametrize(
    ("inside", "copied", "others", "count"),
    [
        (INSIDE, "X.vload([t, T.Ramp(0, 1, 16)], predicate={inside})", "16", 1),
        (FEW, "X.vload([t, T.Ramp(0, 1, 16)], predicate={inside})", "T.min(n, 12)", 1),  # n is the same in all steps
        (INSIDE.replace("12", "T.min(t, 12)"), "T.Broadcast(T.float32(1), 16)", "16", 0),
        (
            INSIDE.replace("12", "T.Cast('int32', T.min(X[t, 0], T.float32(12)))"),
            "T.Broadcast(T.float32(1), 16)",
            "16",
            0,
        ),
        (FEW, "T.Broadcast(T.float32(1), 16) - {old}", "9", 1),
        (FEW, "T.Broadcast(T.float32(1), 16) - {old}", "16", 1),
    ],
)
@pytest.mark.parametrize("target", [AVX512, AVX2])
def test_vectors_under_one_mask_are_carried(inside, copied, others, count, target):
    """Lanes outside the mask are zero to a load, whichever mask the value that takes them is stored with."""
    old = "S.vload([t - 1, T.Ramp(0, 1, 16)], predicate={inside})"
    parts = {"inside": inside, "old": old.format(inside=inside), "others": others}
    func = parse(MASKED.format(copied=copied.format(**parts), **parts))
    made = carry_recurrences(func)
    assert made.script().count('scope="register"') == count
    for size in (0, 1, 7, 12, 16):
        check(func, target, {"n": size})
        arrays = inputs_of(func, {"n": size})
        want, got = spoil(func, arrays), spoil(func, arrays)
        interpret(func, *want)
        interpret(made, *got)
        for w, g in zip(want, got, strict=True):
            np.testing.assert_array_equal(w, g)


@pytest.mark.parametrize(
    ("shape", "axis"), [((16, 24, 12), 1), ((256, 12), 0), ((9, 5), 0), ((9, 23), 0), ((9, 40), 0)]
)
def test_running_sums_of_rows_that_are_no_whole_vectors(shape, axis):
    x = te.placeholder(shape, name="x")
    made = plan([x, te.ops.cumsum(x, axis)], "native -num-cores=1")
    assert 'scope="register"' in lower(made.scheduled, "native -num-cores=1").script()
    values = np.random.default_rng(0).integers(-4, 5, shape).astype("float32")
    out = np.full(shape, np.nan, "float32")
    made.compile()(values, out)
    np.testing.assert_array_equal(out, np.cumsum(values, axis))
