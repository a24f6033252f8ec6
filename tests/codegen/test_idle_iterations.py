"""Loops end where no check around the work, and no condition of a reduction, can hold any more."""

import numpy as np
import pytest

import tilewright as tw
from tilewright.codegen.lower.hoist_guards import cut_idle_iterations
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
