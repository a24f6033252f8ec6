"""Loops end where no check around the work, and no condition of a reduction, can hold any more."""

import numpy as np
import pytest

import tilewright as tw
from tilewright.codegen.lower.hoist_guards import cut_idle_iterations, end_loops_at_guards
from tilewright.tir import parse


def _sum(condition, scope="local", start="T.float32(0.0)", other="T.float32(0.0)", combined="acc[0] + {}"):
    term = f"T.if_then_else({condition}, A[i, r], {other})"
    return parse(f"""
@T.prim_func
def main(A: T.Buffer((24, 32)), C: T.Buffer((24,))):
    for i in range(24):
        acc = T.decl_buffer((1,), scope="{scope}")
        acc[0] = {start}
        for r in range(32):
            acc[0] = {combined.format(term)}
        C[i] = acc[0]
""")


def _ends(func):
    return cut_idle_iterations(func).script()


def test_a_sum_ends_where_its_condition_cannot_hold():
    assert "range(i + 1)" in _ends(_sum("r <= i"))
    assert "range(T.min(i * 2 + 1, 32))" in _ends(_sum("r <= i * 2"))
    assert "range(32 - i)" in _ends(_sum("r >= i"))


@pytest.mark.parametrize("func", [
    _sum("r <= i", start="T.float32(-0.0)"),  # -0.0 + 0.0 is 0.0
    _sum("r <= i", other="T.float32(1.0)"),
    _sum("r <= i", combined="acc[0] * {}"),
    _sum("r <= i + 20"),  # never much earlier
    _sum("r <= 40 - i % 2"),
])  # fmt: skip
def test_what_goes_on_to_the_end(func):
    assert "range(32)" in _ends(func)


@pytest.mark.parametrize(
    "condition", ["r <= i", "r >= i", "r <= i and r >= i - 3", "r * 3 < i", "i - 2 * r < 5", "r < 30 - 2 * i"]
)
def test_what_is_cut_computes_the_same(condition):
    func = _sum(condition)
    a = np.random.default_rng(0).integers(-9, 9, (24, 32)).astype("float32")
    holds = np.array([[eval(condition, {"i": i, "r": r}) for r in range(32)] for i in range(24)])
    made = np.zeros(24, "float32")
    tw.build(func, target="llvm")(a, made)
    np.testing.assert_array_equal(made, np.where(holds, a, 0).sum(1))


def test_a_result_that_was_negative_zero_becomes_zero():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((24, 32)), C: T.Buffer((24,))):
    for i, r in T.grid(24, 32):
        C[i] = C[i] + T.if_then_else(r <= i, A[i, r], T.float32(0.0))
""")
    made = np.full(24, -0.0, "float32")
    tw.build(func, target="llvm")(np.full((24, 32), -0.0, "float32"), made)
    assert not np.signbit(made[:-1]).any()


def test_loops_end_where_the_check_around_their_work_ends():
    func = parse("""
@T.prim_func
def main(var_a: T.handle, var_c: T.handle):
    n = T.int32()
    A = T.match_buffer(var_a, (n,))
    C = T.match_buffer(var_c, (n,))
    for i0 in range((n + 7) // 8):
        for i1 in range(8):
            t = T.decl_buffer((1,))
            if i0 * 8 + i1 < n:
                t[0] = A[i0 * 8 + i1] + T.float32(1.0)
            if i0 * 8 + i1 < n:
                C[i0 * 8 + i1] = t[0]
""")
    text = end_loops_at_guards(func).script()
    assert "for i1 in range(T.max(T.min(n - i0 * 8, 8), 0)):" in text
    assert "if " not in text
    built = tw.build(func, target="llvm")
    for n in range(20):
        a, c = np.arange(n, dtype="float32"), np.full(n, -1, "float32")
        built(a, c)
        np.testing.assert_array_equal(c, a + 1)


@pytest.mark.parametrize("check", ["C[i1] < T.float32(3.0)", "i1 + j < n", "n < i1", "i1 < 5"])
def test_checks_at_which_no_loop_ends(check):
    func = parse(f"""
@T.prim_func
def main(C: T.Buffer((8,)), n: T.int32):
    for i1 in range(8):
        for j in range(3):
            if {check}:
                C[i1] = C[i1] + T.float32(1.0)
""")
    assert end_loops_at_guards(func) is func
