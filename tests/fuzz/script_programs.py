"""Random programs that no te program gives.

There are blocks without axes at the top, blocks that compute a part of a buffer, and branches that write what their
conditions read.
"""

from __future__ import annotations

import numpy as np

from tilewright.tir.parser import parse
from tilewright.tir.stmt import PrimFunc

from .elementwise_stages import one_of

_SIZES = (1, 2, 4, 7, 8, 13, 16, 17)

_SHARED = """
@T.prim_func
def main(A: T.Buffer(({m}, {n}), "{dtype}"), C: T.Buffer(({m}, {n}), "{dtype}")):
    S = T.alloc_buffer((1,), "{dtype}")
    {buffers}
    with T.block("s"):
        {declared}
        S[0] = A[{at}, 0] * T.{dtype}(3)
    {middle}
    for i, j in T.grid({m}, {n}):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = {source} + S[0]
"""
"""A number computed once at the top by a block without axes, of which the later ones read the result."""

_MIDDLE = """B = T.alloc_buffer(({m}, {n}), "{dtype}")
    for i, j in T.grid({m}, {n}):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.{dtype}(2) - S[0]"""

_PART = """
@T.prim_func
def main(A: T.Buffer(({m}, {n}), "{dtype}"), C: T.Buffer(({rows}, {n}), "{dtype}")):
    B = T.alloc_buffer(({m}, {n}), "{dtype}")
    for i, j in T.grid({m}, {n}):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            T.where({test})
            B[vi, vj] = A[vi, vj] * T.{dtype}(3)
    for i, j in T.grid({rows}, {n}):
        with T.block("C"):
            vi = T.axis.spatial({rows}, i)
            vj = T.axis.spatial({n}, j)
            C[vi, vj] = B[vi{plus}, vj] + T.{dtype}(1)
"""
"""A producer that computes some rows, by its predicate, and a consumer of those alone."""


_BRANCHES = """
@T.prim_func
def main(A: T.Buffer(({m}, {n}), "{dtype}"), C: T.Buffer(({m}, {n}), "{dtype}")):
    B = T.alloc_buffer(({m}, {n}), "{dtype}")
    for i, j in T.grid({m}, {n}):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.{dtype}(2) - T.{dtype}(3)
    for i, j in T.grid({m}, {n}):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = T.{dtype}(1)
            if {test}:
                B[vi, vj] = B[vi, vj] - T.{dtype}(4)
                C[vi, vj] = B[vi, vj]
            {otherwise}
"""
"""A block whose branches change the element that decides between them."""

_OTHERWISE = """else:
                if {test}:
                    B[vi, vj] = T.{dtype}(3) - B[vi, vj]
                C[vi, vj] = B[vi, vj] * T.{dtype}(2)"""


def script_program(rng: np.random.Generator) -> PrimFunc:
    """One of the texts, with random sizes."""
    m, n, dtype = one_of(rng, _SIZES), one_of(rng, _SIZES), one_of(rng, ("float32", "int32", "int64"))
    text = (_shared, _part, _branches)[int(rng.integers(3))](rng, m, n, dtype)
    func = parse(text)
    assert isinstance(func, PrimFunc)
    return func


def _shared(rng: np.random.Generator, m: int, n: int, dtype: str) -> str:
    at, middle = int(rng.integers(m)), rng.random() < 0.6
    declared = f"T.reads(A[{at}, 0])\n        T.writes(S[0])" if rng.random() < 0.5 else ""
    return _SHARED.format(
        m=m, n=n, dtype=dtype, at=at, declared=declared, buffers="",
        middle=_MIDDLE.format(m=m, n=n, dtype=dtype) if middle else "", source="B[vi, vj]" if middle else "A[vi, vj]",
    )  # fmt: skip


def _part(rng: np.random.Generator, m: int, n: int, dtype: str) -> str:
    first = int(rng.integers(m))
    last = int(rng.integers(first, m))
    tests = [*([f"i >= {first}"] if first or rng.random() < 0.2 else []), f"i < {last + 1}"]
    rows = last - first + 1
    return _PART.format(
        m=m, n=n, dtype=dtype, rows=rows, test=" and ".join(tests), plus=f" + {first}" if first else ""
    )  # fmt: skip


def _branches(rng: np.random.Generator, m: int, n: int, dtype: str) -> str:
    def test() -> str:
        terms = [
            f"B[vi, vj] > T.{dtype}({int(rng.integers(-3, 4))})", f"A[vi, vj] <= T.{dtype}({int(rng.integers(-2, 3))})",
            f"vj < {int(rng.integers(n + 2))}", f"B[vi, vj] != T.{dtype}(1)",
        ]  # fmt: skip
        chosen = [one_of(rng, terms) for _ in range(int(rng.integers(1, 4)))]
        joined = chosen[0]
        for term in chosen[1:]:
            joined = f"({joined} {one_of(rng, ('and', 'or'))} {term})"
        return joined

    otherwise = _OTHERWISE.format(dtype=dtype, test=test()) if rng.random() < 0.6 else ""
    return _BRANCHES.format(m=m, n=n, dtype=dtype, test=test(), otherwise=otherwise)
