"""Copies that exchange two axes: squares in registers, at any size, and left alone where they are no plain transposes."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tilewright.codegen import Target
from tilewright.codegen.compile import compile as compile_function
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
        (80, 64, (16, 32)),
        (1, 7, None),
    ],
)
def test_transposes_of_awkward_sizes(rows, columns, tile, vector, target):
    check(parse(copy(rows, columns, "float32", tile, vector)), target)


@pytest.mark.parametrize("dtype", ["int8", "bool", "uint16", "int32", "float64"])
@pytest.mark.parametrize("target", [AVX2, AVX512])
def test_transposes_of_other_types(dtype, target):
    check(parse(copy(19, 37, dtype, (16, 16), "j")), target)


@pytest.mark.parametrize(("target", "shuffles"), [(SSE, 8), (AVX2, 24), (AVX512, 64)])
def test_a_square_is_as_many_shuffles_as_it_takes(target, shuffles):
    text = emit(lower(parse(copy(48, 48, "float32", (16, 16), "j")), target))
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


def part(rows: int, columns: int, pitch: int, tiles: tuple[int, int], dtype: str, shift: int = 0) -> str:
    """B[:rows, :columns] = A[:columns, shift : shift + rows].T of wider arrays, in tiles."""
    ti, tj = tiles
    return f"""
@T.prim_func
def main(A: T.Buffer(({max(columns, 1)}, {pitch}), "{dtype}"), B: T.Buffer(({max(rows, 1)}, {pitch}), "{dtype}")):
    for i0, j0, i1 in T.grid({rows // ti}, {columns // tj}, {ti}):
        for j1 in T.vectorized({tj}):
            with T.block("B"):
                vi = T.axis.spatial({max(rows, 1)}, i0 * {ti} + i1)
                vj = T.axis.spatial({max(columns, 1)}, j0 * {tj} + j1)
                B[vi, vj] = A[vj, vi + {shift}]
"""


def placed(array: np.ndarray, offset: int) -> np.ndarray:
    """Return a copy of an array that begins ``offset`` bytes after a multiple of 4096."""
    memory = np.full(array.nbytes + 2 * 4096 + 64, 77, np.uint8)
    start = -memory.ctypes.data % 4096 + offset
    out = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    out[...] = array
    return out


def check_at_addresses(text: str, rows: int, columns: int, shift: int, target: str, offsets=range(0, 64, 4)) -> str:
    """Compare with NumPy where both arrays begin at different places in a line; return the lowered text."""
    func = parse(text)
    kernel = compile_function(func, target, "kernel")
    (pitch,) = {int(b.shape[1]) for b in func.buffer_map.values()}
    dtype = str(next(iter(func.buffer_map.values())).dtype)
    a = np.random.default_rng(0).integers(1, 100, (max(columns, 1), pitch)).astype(dtype)
    b = np.full((max(rows, 1), pitch), 101, dtype)
    want = b.copy()
    want[:rows, :columns] = a[:columns, shift : shift + rows].T
    for offset in offsets:
        for other in {offset, 16, 60 - offset}:
            size = np.dtype(dtype).itemsize
            source, result = placed(a, offset // size * size), placed(b, other // size * size)
            whole = result.base
            while whole.base is not None:
                whole = whole.base
            kernel(source, result)
            np.testing.assert_array_equal(result, want, err_msg=f"at {offset} and {other}")
            place = result.ctypes.data - whole.ctypes.data
            assert (whole[:place] == 77).all() and (whole[place + result.nbytes :] == 77).all()
    return str(lower(func, target).func)


LENGTHS = [0, 1, 15, 16, 17, 63, 64, 65, 255, 256, 257]


@pytest.mark.parametrize("target", [AVX2, AVX512])
@pytest.mark.parametrize("length", LENGTHS)
def test_transposes_at_any_address(length, target):
    if Target(target).missing_here():
        pytest.skip("needs instructions that this machine lacks")
    for rows, columns in [(length, 80), (80, length), (length, length)]:
        text = check_at_addresses(
            part(rows, columns, 1024, (rows or 1, columns or 1), "float32"), rows, columns, 0, target, range(0, 64, 12)
        )
        assert "misaligned" in text or length != 256


@pytest.mark.parametrize("target", [SSE, AVX2, AVX512])
@pytest.mark.parametrize(
    ("rows", "columns", "tiles", "dtype"),
    [(256, 192, (16, 64), "float32"), (96, 256, (32, 128), "float32"), (128, 64, (16, 32), "float64")],
)
@pytest.mark.parametrize("shift", [0, 5])
def test_tiled_transposes_at_any_address(rows, columns, tiles, dtype, shift, target):
    if Target(target).missing_here():
        pytest.skip("needs instructions that this machine lacks")
    text = check_at_addresses(part(rows, columns, 1024, tiles, dtype, shift), rows, columns, shift, target)
    assert target == SSE or text.count("misaligned") == {AVX2: 1, AVX512: 2}[target]


@pytest.mark.parametrize(("pitch", "shifts"), [(256, 1), (257, 0), (1024, 2), (1040, 1)])
def test_what_is_shifted_depends_on_the_distance_of_rows(pitch, shifts):
    """Stores are shifted where the lines of a square's rows are in the same set of the cache."""
    text = check_at_addresses(part(256, 128, pitch, (16, 64), "float32"), 256, 128, 0, AVX512, [0, 4, 16])
    assert text.count("misaligned") == shifts


@pytest.mark.parametrize(
    ("place", "source"),
    [
        ("B[i0 * 16 + i1, j0 * 64 + j1]", "A[j1, j0, i0 * 16 + i1]"),  # rows have other neighbours
        ("B[i0 * 16 + i1, j0 * 64 + j1]", "A[0, j0 * 64 + j1, i0 * 16 + i1]"),
    ],
)
def test_an_axis_of_two_dimensions(place, source):
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer((64, 256, 1024), "float32"), B: T.Buffer((128, 1024), "float32")):
    for i0, j0, i1 in T.grid(8, 4, 16):
        for j1 in T.vectorized(64):
            {place} = {source}
""")
    text = str(lower(func, AVX512).func)
    assert "i1_shift" in text and ("j1_shift" in text) == ("A[0," in source)
    kernel = compile_function(func, "native -num-cores=1", "kernel")
    a = np.random.default_rng(0).random((64, 256, 1024)).astype("float32")
    want = a[:, :4, :128].transpose(2, 1, 0).reshape(128, 256) if "A[j1" in source else a[0, :256, :128].T
    for offset in (0, 4, 16, 60):
        x, y = placed(a, offset), placed(np.zeros((128, 1024), "float32"), offset)
        kernel(x, y)
        np.testing.assert_array_equal(y[:, :256], want)
        assert not y[:, 256:].any()
