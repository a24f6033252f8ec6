"""Copies that exchange two axes: squares in registers, at any size, and left alone where they are no plain transposes."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tilewright.codegen.llvm.emit import emit
from tilewright.codegen.lower import lower
from tilewright.codegen.lower.transpose_in_registers import transposed
from tilewright.tir.expr import Expr, Shuffle, Var
from tilewright.tir.parser import parse

sys.path.insert(0, str(Path(__file__).parent))
from test_lower import AVX2, AVX512, check  # noqa: E402

SSE = "llvm -mcpu=x86-64-v2 -num-cores=1"


def values(e: Expr, rows: dict[Var, list[int]]) -> list[int]:
    """What a tree of shuffles picks."""
    if isinstance(e, Var):
        return rows[e]
    assert isinstance(e, Shuffle)
    together = [x for v in e.vectors for x in values(v, rows)]
    return [together[n] for n in e.indices]


@pytest.mark.parametrize("block", [2, 4, 8, 16])
@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_the_network_transposes(size, block):
    rows = {Var(f"r{n}", f"float32x{size}"): [n * 100 + k for k in range(size)] for n in range(size)}
    out = [values(e, rows) for e in transposed(list(rows), block)]
    np.testing.assert_array_equal(out, np.array(list(rows.values())).T)


def copy(rows: int, columns: int, dtype: str, tile: tuple[int, int] | None, vector: str) -> str:
    """B = A.T with B of this shape, in tiles that need not divide; ``vector`` is the inner axis."""
    ti, tj = tile or (rows, columns)
    inner, outer = ("j1", "i1") if vector == "j" else ("i1", "j1")
    sizes = {"i1": ti, "j1": tj}
    return f"""
@T.prim_func
def main(A: T.Buffer(({columns}, {rows}), "{dtype}"), B: T.Buffer(({rows}, {columns}), "{dtype}")):
    for i0, j0 in T.grid({-(-rows // ti)}, {-(-columns // tj)}):
        for {outer} in range({sizes[outer]}):
            for {inner} in T.vectorized({sizes[inner]}):
                with T.block("B"):
                    vi = T.axis.spatial({rows}, i0 * {ti} + i1)
                    vj = T.axis.spatial({columns}, j0 * {tj} + j1)
                    T.where(i0 * {ti} + i1 < {rows} and j0 * {tj} + j1 < {columns})
                    B[vi, vj] = A[vj, vi]
"""


@pytest.mark.parametrize("target", [SSE, AVX2, AVX512])
@pytest.mark.parametrize("vector", ["i", "j"])
@pytest.mark.parametrize(
    ("rows", "columns", "tile"),
    [
        (16, 16, None),
        (17, 13, None),
        (7, 33, None),
        (13, 50, (8, 16)),
        (37, 41, (16, 32)),
        (5, 64, (4, 64)),
        (1, 7, None),
    ],
)
def test_transposes_of_awkward_sizes(rows, columns, tile, vector, target):
    check(parse(copy(rows, columns, "float32", tile, vector)), target)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "float64"])
@pytest.mark.parametrize("target", [AVX2, AVX512])
def test_transposes_of_other_types(dtype, target):
    check(parse(copy(19, 37, dtype, (16, 16), "j")), target)


@pytest.mark.parametrize(("target", "shuffles"), [(SSE, 8), (AVX2, 24), (AVX512, 64)])
def test_a_square_is_as_many_shuffles_as_it_takes(target, shuffles):
    text = emit(lower(parse(copy(64, 64, "float32", (16, 16), "j")), target))
    assert text.count("shufflevector") == shuffles and "gather" not in text and "insertelement" not in text


def test_tails_are_masked():
    text = emit(lower(parse(copy(17, 50, "float32", (16, 16), "j")), AVX512))
    assert "masked.load" in text and "masked.store" in text and "gather" not in text


def nest(store: str, loops: str = "for i in range(16):\n        for j in T.vectorized(16):") -> str:
    return f"""
@T.prim_func
def main(A: T.Buffer((16, 16, 16), "float32"), B: T.Buffer((16, 16, 16), "float32"), inout: T.Buffer((16, 16), "float32")):
    {loops}
            {store}
"""


@pytest.mark.parametrize(
    "store",
    [
        "B[0, i, j] = A[0, j, i] + T.float32(1)",  # not a copy
        "B[0, i, j] = A[0, i, j]",  # nothing exchanged
        "B[0, 0, j] = A[0, j, i]",  # places are written more than once
        "inout[i, j] = inout[j, i]",  # in place
        "B[j, i, j] = A[0, j, i]",  # no vector is stored
        "if i < j:\n                B[0, i, j] = A[0, j, i]",  # a condition on both axes
        "B[0, i, j] = A[0, j, i * 2 % 16]",  # no vector is loaded
    ],
)
def test_other_nests_are_left_alone(store):
    assert "row0" not in str(check(parse(nest(store)), AVX512))


@pytest.mark.parametrize(
    "store",
    [
        "B[0, i, j] = A[0, j, i]",
        "B[i, 7, j] = A[j, 3, i]",
        "B[i // 8, i % 8, j] = A[j, 5, i]",
        "if i < 13:\n                if 3 <= j:\n                    B[0, i, j] = A[0, j, i]",
    ],
)
def test_nests_that_are_transposes(store):
    assert ("row0" in str(check(parse(nest(store)), AVX512))) is ("//" not in store)


def test_an_axis_between_the_two():
    loops = "for i in range(16):\n      for k in range(16):\n        for j in T.vectorized(16):"
    assert "row0" in str(check(parse(nest("B[k, i, j] = A[k, j, i]", loops)), AVX512))


def packed(rows: int, columns: int, height: int, condition: str) -> str:
    """A packed a panel of ``height`` rows at a time, zeros below the last row."""
    panels = -(-rows // height)
    return f"""
@T.prim_func
def main(A: T.Buffer(({rows}, {columns}), "float32"), P: T.Buffer(({panels}, {columns}, {height}), "float32")):
    for p in range({panels}):
        for k in range({columns}):
            for i in T.vectorized({height}):
                with T.block("P"):
                    vp, vk, vi = T.axis.remap("SSS", [p, k, i])
                    P[vp, vk, vi] = {condition.format(rows=rows, height=height)}
"""


@pytest.mark.parametrize("target", [AVX2, AVX512])
@pytest.mark.parametrize("height", [6, 8, 14])
@pytest.mark.parametrize(
    "condition",
    [
        "T.if_then_else(vp * {height} + vi < {rows}, A[vp * {height} + vi, vk], T.float32(0))",
        "T.if_then_else(vp * {height} + vi >= {rows}, T.float32(0), A[vp * {height} + vi, vk])",
    ],
)
def test_packing_with_zeros_below(condition, height, target):
    func = parse(packed(17, 23, height, condition))
    check(func, target)
    assert "gather" not in emit(lower(func, target))


def test_other_padding_is_left_alone():
    text = packed(5, 23, 8, "T.if_then_else(vi < 5, A[vi, vk], T.float32(1))")
    assert "row0" not in str(check(parse(text), AVX512))


@pytest.mark.parametrize("shape", [(4, 4), (16, 17), (7, 13), (1, 16)])
@pytest.mark.parametrize("stored", ["T.float32(2)", "S[()]", "inout[0]"])
def test_one_value_in_every_place_is_no_transpose(shape, stored):
    rows, columns = shape
    check(
        parse(f"""
@T.prim_func
def main(inout: T.Buffer((1,), "float32"), B: T.Buffer(({rows}, {columns}), "float32")):
    S = T.alloc_buffer((), "float32")
    with T.block("S"):
        S[()] = inout[0] * T.float32(2)
    for i in range({rows}):
        for j in T.vectorized({columns}):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = {stored}
"""),
        AVX512,
    )
