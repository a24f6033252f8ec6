"""Steps along rows, with rows as lanes, read and write whole vectors, and nothing else is turned."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.codegen import Target
from tilewright.codegen import compile as compile_function
from tilewright.codegen.lower.transpose_steps import transpose_steps
from tilewright.tir.interpret import interpret
from tilewright.tir.parser import parse

from .test_lower import AVX2, AVX512, check

LOOP = """
@T.prim_func
def main(X: T.Buffer((2, 33, 50), "{dtype}"), S: T.Buffer((2, 33, 50), "{dtype}"), R: T.Buffer((2, 33, 50), "{dtype}")):
    T.func_attr({{"tir.noalias": True}})
    for i in range(2):
        for r in range(33):
            for t in range(2):
                S[i, r, t] = X[i, r, t]
                R[i, r, t] = X[i, r, t + 1]
    for i, q in T.grid(2, {groups}):
        for t in range({first}, {end}):
            for l in T.vectorized({width}):
                {body}
"""
SUM = "S[i, q * {w} + l, t] = S[i, q * {w} + l, t - 1] + X[i, q * {w} + l, t]"


def program(body=SUM, width=16, first=1, end=50, groups=2, dtype="float32"):
    body = body.replace("{w}", str(width)).replace("\n", "\n" + " " * 16)
    return LOOP.format(body=body, width=width, first=first, end=end, groups=groups, dtype=dtype)


def turned(text, target):
    return transpose_steps(parse(text), Target.of(target)).script()


@pytest.mark.parametrize(("target", "width"), [(AVX512, 16), (AVX2, 8)])
@pytest.mark.parametrize("end", [4, 5, 17, 18, 20, 33, 50])
def test_running_sums(target, width, end):
    """The steps are whole squares, an incomplete one, or a few that are left; none is a loop around a vector of rows."""
    text = program(width=width, end=end)
    check(parse(text), target)
    made = turned(text, target)
    assert ("S_steps" in made) == (end >= 5)
    assert "T.vectorized" in made
    check(parse(made), target)


@pytest.mark.parametrize(
    "body",
    [
        "S[i, q * {w} + l, t] = S[i, q * {w} + l, t - 1] * T.float32(0.5) + S[i, q * {w} + l, t - 2]",
        "S[i, q * {w} + l, t] = X[i, q * {w} + l, t] - X[i, q * {w} + l, t - 1]",
        "S[i, q * {w} + l, t] = T.max(S[i, q * {w} + l, t - 1], X[i, q * {w} + l, 51 - t - 2])",
        "S[i, q * {w} + l, t] = S[i, q * {w} + l, t - 1] + X[i, q * {w} + l, t] * X[1, t // 3, 7]",
        "S[i, q * {w} + l, t] = S[i, q * {w} + l, t - 1] + R[i, q * {w} + l, t - 1]\n"
        "R[i, q * {w} + l, t] = S[i, q * {w} + l, t] * T.float32(0.25) - R[i, q * {w} + l, t - 1]",
        "R[i, q * {w} + l, t] = S[i, q * {w} + l, t - 1]\n"
        "S[i, q * {w} + l, t] = S[i, q * {w} + l, t - 1] + R[i, q * {w} + l, t]",
        "if q * {w} + l < 27:\n    S[i, q * {w} + l, t] = S[i, q * {w} + l, t - 1] + X[i, q * {w} + l, t]",
    ],
)
@pytest.mark.parametrize(("target", "width"), [(AVX512, 16), (AVX2, 8)])
def test_other_steps(body, target, width):
    text = program(body, width, first=2)
    check(parse(text), target)
    assert "S_steps" in turned(text, target)


@pytest.mark.parametrize(
    ("body", "first", "end"),
    [
        ("S[i, q * 16 + l, t] = S[i, q * 16 + l, t + 1] + X[i, q * 16 + l, t]", 1, 49),  # what a later step stores
        ("S[i, q * 16 + l, t] = S[i, q * 16 + l, 0] + X[i, q * 16 + l, t]", 1, 50),  # no step of its own
        ("S[i, q * 16 + l, t] = S[i, 32, t] + X[i, q * 16 + l, t]", 1, 50),  # another row
        ("S[i, q * 16 + l, t] = T.if_then_else(X[i, 0, t] > T.float32(0), R[i, q * 16 + l, t], T.float32(0))", 1, 50),
        ("S[i, t // 3, q * 16 + l] = X[i, t // 3, q * 16 + l]", 1, 50),  # contiguous already
    ],
)
def test_what_stays(body, first, end):
    text = program(body, first=first, end=end)
    check(parse(text), AVX512)
    assert "_steps" not in turned(text, AVX512)


@pytest.mark.parametrize(
    "body",
    [
        "S[i, q * {w} + l, t] = S[i, q * {w} + l, t] + X[i, q * {w} + l, t]",
        "R[i, q * {w} + l, t] = S[i, q * {w} + l, t]\nS[i, q * {w} + l, t] = X[i, q * {w} + l, t]",
    ],
)
def test_what_an_array_held_before_the_steps_is_read(body):
    """A sum over an outer loop adds to it; it is no value of this or an earlier step."""
    text = program(body)
    check(parse(text), AVX512)
    assert "S_steps" not in turned(text, AVX512)
    check(parse(turned(text, AVX512)), AVX512)


def test_what_a_step_has_stored_is_read_of_registers():
    body = "S[i, q * {w} + l, t] = X[i, q * {w} + l, t]\nR[i, q * {w} + l, t] = S[i, q * {w} + l, t] + T.float32(1)"
    check(parse(program(body)), AVX512)
    assert "S_steps" in turned(program(body), AVX512)


def test_arrays_that_may_overlap_stay():
    text = program().replace('T.func_attr({"tir.noalias": True})', "T.evaluate(0)")
    assert "_steps" not in turned(text, AVX512)


@pytest.mark.parametrize(("dtype", "width"), [("float64", 8), ("int32", 16), ("int8", 16), ("int64", 8)])
def test_types(dtype, width):
    text = program(width=width, dtype=dtype)
    check(parse(text), AVX512)
    assert "S_steps" in turned(text, AVX512)


@pytest.mark.parametrize("rows", [16, 33])
@pytest.mark.parametrize(
    "value",
    [
        "S[r, t - 1] + X[r, t]",
        "S[r, t - 1] * T.float32(0.5) + X[r, t] - X[r, t - 1]",
        "T.max(S[r, t - 1], X[r, t] * R[()])",
    ],
)
def test_a_number_of_steps_that_is_known_at_the_call(rows, value):
    """The first step may be apart in the text, or by a condition, since there may be no steps."""
    text = f"""
@T.prim_func
def main(x: T.handle, s: T.handle, R: T.Buffer(())):
    T.func_attr({{"tir.noalias": True}})
    n = T.int32()
    X = T.match_buffer(x, ({rows}, n))
    S = T.match_buffer(s, ({rows}, n))
    for q in range({-(-rows // 16)}):
        for t in range(n):
            for l in T.vectorized(16):
                if q * 16 + l < {rows}:
                    S[q * 16 + l, t] = T.if_then_else(t < 1, X[q * 16 + l, 0], {value.replace("[r", "[q * 16 + l")})
"""
    made = turned(text, AVX512)
    assert "S_steps" in made and "T.vectorized" in made
    run = compile_function(parse(text), Target.of(AVX512), "kernel") if not Target.of(AVX512).missing_here() else None
    for n in range(41):
        x = np.random.default_rng(n).integers(-4, 5, (rows, n)).astype("float32")
        want, got, r = np.zeros_like(x), np.zeros_like(x), np.ones((), "float32")
        interpret(parse(text), x, want, r)
        if run is not None:
            run(x, got, r)
            np.testing.assert_array_equal(got, want, err_msg=str(n))
        if n in (1, 5, 18):
            got = np.zeros_like(x)
            interpret(parse(made), x, got, r)
            np.testing.assert_array_equal(got, want, err_msg=str(n))
