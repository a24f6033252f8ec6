"""Which loops leave LLVM nothing to move, and that those compile to the same result either way."""

import numpy as np
import pytest

from tilewright.codegen import lower
from tilewright.codegen.compile import compile_ir
from tilewright.codegen.llvm.emit import emit, has_no_loop_invariants
from tilewright.codegen.llvm.jit import NO_LOOP_INVARIANTS
from tilewright.tir.parser import parse


def loops(body: str):
    """A function of A[17], n[1] -> B[17] with these loops."""
    lines = "\n".join("    " + line for line in body.strip("\n").splitlines())
    return parse(f"""
@T.prim_func
def main(A: T.Buffer((17,), "float32"), n: T.Buffer((1,), "int32"), B: T.Buffer((17, 17), "float32")):
{lines}
""")


@pytest.mark.parametrize(
    ("expected", "body"),
    [
        (True, "for i, j in T.grid(17, 17):\n    B[i, j] = A[j]"),
        (True, "for i in range(17):\n    if i < 7:\n        B[i, i] = A[i]"),
        (True, "B[0, 0] = A[3]"),
        (True, "for i in range(17):\n    B[0, i] = A[3]\n    for j in range(17):\n        B[i, j] = A[j]"),
        (False, "for i in range(17):\n    B[0, i] = A[3]\n    for j in range(17):\n        B[i, j] = A[i]"),
        (True, "for i in range(17):\n    with T.LetStmt(A[i]) as x:\n        B[i, 0] = x + x"),
        (False, "for i, j in T.grid(17, 17):\n    B[i, j] = A[i]"),  # a load to be moved out of the loop over j
        (False, "for i, j in T.grid(17, 17):\n    B[i, 0] = A[j]"),  # a value that could wait in a register
        (False, "for i in range(17):\n    if n[0] < 7:\n        B[i, 0] = A[i]"),  # a condition that does not change
        (False, "for i in range(17):\n    with T.LetStmt(A[1]) as x:\n        B[i, 0] = x"),
    ],
)
def test_settled(expected, body):
    assert has_no_loop_invariants(lower(loops(body)).func.body) is expected


def test_both_pipelines_agree():
    lowered = lower(loops("for i, j in T.grid(17, 17):\n    B[i, j] = A[j] * T.float32(2)"))
    text = emit(lowered)
    assert NO_LOOP_INVARIANTS in text
    a, n = np.arange(17, dtype="float32"), np.zeros(1, "int32")
    for ir in (text, text.replace(NO_LOOP_INVARIANTS, "")):
        b = np.full((17, 17), np.nan, "float32")
        compile_ir([ir], {"main": lowered}, lowered.target, cache=False)(a, n, b)
        np.testing.assert_array_equal(b, np.broadcast_to(2 * a, (17, 17)))
