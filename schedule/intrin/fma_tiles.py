"""This module defines a tile of multiply-adds: the micro-kernel of a matrix product, one step of k."""

from __future__ import annotations

from ...tir.parser import parse
from ...tir.stmt import PrimFunc

_HEAD = """
@T.prim_func
def fma_{rows}x{lanes}_{role}(
    A: T.Buffer(({rows}, 1), "{dtype}", offset_factor=1),
    B: T.Buffer((1, {lanes}), "{dtype}", offset_factor=1),
    C: T.Buffer(({rows}, {lanes}), "{dtype}", offset_factor=1),
):
    T.func_attr({{"any_scope": True}})
    with T.block("root"):
        T.reads(C[0:{rows}, 0:{lanes}], A[0:{rows}, 0:1], B[0:1, 0:{lanes}])
        T.writes(C[0:{rows}, 0:{lanes}])
"""

_DESC = """
        for i, j in T.grid({rows}, {lanes}):
            with T.block("update"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = C[vi, vj] + A[vi, 0] * B[0, vj]
"""

_IMPL = """
        for i in T.unroll({rows}):
            C[i, 0:{lanes}] = C[i, 0:{lanes}] + T.Broadcast(A[i, 0], {lanes}) * B[0, 0:{lanes}]
"""


def fma_tile(rows: int, lanes: int, dtype: str = "float32") -> tuple[PrimFunc, PrimFunc]:
    """Return ``C[i, j] += A[i, 0] * B[0, j]`` for ``rows`` i and ``lanes`` j. It takes a vector of ``lanes`` at a time.

    Rounded as any other product and sum: twice in the interpreter, once where lowering forms a fused multiply-add.
    """

    def text(role: str, body: str) -> PrimFunc:
        words = {"rows": rows, "lanes": lanes, "dtype": dtype, "role": role}
        func = parse((_HEAD + body.lstrip("\n")).format(**words))
        assert isinstance(func, PrimFunc)
        return func

    return text("desc", _DESC), text("impl", _IMPL)
