"""Conditions of unrolled loops: what each copy keeps of them, and how often they are simplified for that."""

import numpy as np

from tilewright.codegen.lower.unroll_loops import unroll_loops
from tilewright.tir.interpret import interpret
from tilewright.tir.parser import parse

WINDOW = """
@T.prim_func
def window(A: T.Buffer((32,), "float32"), B: T.Buffer((3, 32), "float32")):
    for x in range(4):
        for y in T.unroll(3):
            for i in T.unroll(8):
                for r in T.unroll(5):
                    B[y, x * 8 + i] = B[y, x * 8 + i] + T.if_then_else(
                        y >= 1 and x * 8 + i + r >= 2 and x * 8 + i + r < 34, A[x * 8 + i + r - 2], T.float32(0))
"""


def test_copies_of_the_same_numbers_share_a_condition(monkeypatch):
    func, simplified = parse(WINDOW), []
    unroller = unroll_loops.__globals__["_Unroller"]
    scalar = unroller.scalar

    def counting(self, x, env, uses):
        simplified.append(x)
        return scalar(self, x, env, uses)

    monkeypatch.setattr(unroller, "scalar", counting)
    made = unroll_loops(func)
    sums, rows = 12, 3
    assert len(simplified) <= 3 * sums + rows  # there are 120 copies
    assert "T.unroll" not in made.script()
    rng = np.random.default_rng(0)
    a = rng.random(32, dtype=np.float32)
    found, wanted = [np.zeros((3, 32), np.float32) for _ in range(2)]
    interpret(made, a, found)
    interpret(func, a, wanted)
    np.testing.assert_array_equal(found, wanted)
    assert found[0].max() == 0 < found[1].min()
