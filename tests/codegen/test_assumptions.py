"""Assumptions are dropped before anything else is lowered."""

from __future__ import annotations

import numpy as np

from tilewright.codegen.compile import compile as compile_function
from tilewright.codegen.lower.flatten_blocks import drop_assumptions
from tilewright.schedule import Schedule
from tilewright.tir.parser import parse
from tilewright.tir.walk import blocks_of

TEXT = """
@T.prim_func
def main(A: T.Buffer((13,), "float32"), B: T.Buffer((13,), "float32")):
    for i in range(13):
        with T.block("B"):
            vi = T.axis.spatial(13, i)
            B[vi] = A[vi] * T.float32(2)
"""


def test_assumptions_go_with_their_loops():
    sch = Schedule(parse(TEXT))
    sch.transform_layout("B", ("read", 0), lambda i: (i // 4, i % 4), pad_value=0.0)
    left = drop_assumptions(sch.func)
    assert "assume(" in sch.func.script()
    assert "assume(" not in left.script()
    assert [r.block.name_hint for r in blocks_of(left)] == ["root", "B"]
    assert drop_assumptions(left) is left
    a, b = np.zeros(16, "float32"), np.full(13, np.nan, "float32")
    a[:13] = np.arange(13)
    compile_function(sch.func, "native -num-cores=1", "main")(a.reshape(4, 4), b)
    np.testing.assert_array_equal(b, 2 * a[:13])
