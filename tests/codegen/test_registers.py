"""Register tiles: what becomes register values, and that the ones that fit never go to the stack."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tilewright.codegen.compile import compile as compile_function
from tilewright.codegen.lower import lower
from tilewright.codegen.lower.promote_registers import partition_accesses
from tilewright.codegen.machine.target import Target
from tilewright.tir.expr import BufferLoad
from tilewright.tir.parser import parse
from tilewright.tir.walk import pre_order, transform

sys.path.insert(0, str(Path(__file__).parent))
from test_lower import AVX2, AVX512, check, matmul_tiled  # noqa: E402

TWO_WIDTHS = """
@T.prim_func
def main(A: T.Buffer((16, 32), "float32"), C: T.Buffer((32,), "float32")):
    S = T.alloc_buffer((32,), scope="local")
    for v in T.vectorized({first}):
        for h in T.unroll({32 // first}):
            S[h * {first} + v] = T.float32(0)
    for k in range(16):
        for h in T.unroll({32 // second}):
            for v in T.vectorized({second}):
                S[h * {second} + v] = S[h * {second} + v] + A[k, h * {second} + v]
    for h in T.unroll({32 // third}):
        for v in T.vectorized({third}):
            C[h * {third} + v] = S[h * {third} + v] * T.float32(2)
"""


def two_widths(first: int, second: int, third: int):
    """A tile of 32 accumulators that is cleared, summed into and read in vectors of these lengths."""
    text = re.sub(
        r"\{([^}]*)\}", lambda m: str(eval(m[1], {"first": first, "second": second, "third": third})), TWO_WIDTHS
    )
    return parse(text)


@pytest.mark.parametrize("widths", [(16, 16, 32), (32, 16, 16), (32, 16, 32), (16, 8, 32), (32, 32, 8), (4, 32, 16)])
def test_a_tile_seen_in_vectors_of_two_lengths_is_in_registers(widths):
    lowered = check(two_widths(*widths), AVX512)
    assert 'scope="register"' in str(lowered) and 'scope="local"' not in str(lowered)


def test_a_store_that_stands_twice_is_cut_into_pieces_twice():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
    S = T.alloc_buffer((16,), scope="local")
    for h in T.unroll(2):
        for v in T.vectorized(8):
            S[h * 8 + v] = T.float32(0)
    for u in T.unroll(2):
        for v in T.vectorized(16):
            S[v] = A[v] * T.float32(2)
    for h in T.unroll(2):
        for v in T.vectorized(8):
            C[h * 8 + v] = S[h * 8 + v]
""")
    assert str(check(func, AVX512)).count("as piece") == 2


def test_uneven_pieces_stay_in_memory():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((24,), "float32"), C: T.Buffer((16,), "float32")):
    S = T.alloc_buffer((24,), scope="local")
    for v in T.vectorized(16):
        S[v] = A[v]
    for v in T.vectorized(8):
        S[16 + v] = A[16 + v]
    for v in T.vectorized(16):
        C[v] = S[v + 4]
""")
    assert 'scope="local"' in str(check(func, AVX512))


@pytest.mark.parametrize(
    ("slots", "stored", "expected"),
    [
        ([(0, 8), (8, 8)], [(0, 8), (8, 8)], {(0, 8): ((0, 8),), (8, 8): ((8, 8),)}),
        ([(0, 8), (3, 1)], [(0, 8)], {(0, 8): ((0, 8),), (3, 1): ((0, 8),)}),
        ([(0, 4), (3, 1)], [(3, 1)], None),
        ([(0, 16), (8, 16)], [(0, 16)], {(0, 16): ((0, 8), (8, 8)), (8, 16): ((8, 8), (16, 8))}),
        ([(0, 16), *[(n, 1) for n in range(16)]], [(3, 1)], None),
    ],
)
def test_homes(slots, stored, expected):
    assert partition_accesses(slots, set(stored)) == expected


def inner_loop(asm: str) -> list[str]:
    """The instructions of the block with the most multiply-adds that jumps to itself."""
    best: list[str] = []
    for label, body in re.findall(r"^(\.LBB\w+):.*\n((?:(?!^\.LBB|^\.Lfunc).*\n)*)", asm, re.M):
        jump = re.search(rf"\tj\w+\t{re.escape(label)}\b", body)
        loop = body[: jump.end()].splitlines() if jump else []
        if sum("vfmadd" in line for line in loop) > sum("vfmadd" in line for line in best):
            best = loop
    return best


@pytest.mark.parametrize(
    ("target", "lanes", "rows", "vectors"),
    [
        *[(AVX512, 16, *tile) for tile in [(8, 3), (6, 4), (14, 2), (12, 2), (4, 6), (28, 1)]],
        *[(AVX2, 8, *tile) for tile in [(4, 3), (6, 2), (5, 2)]],
    ],
)
def test_tiles_that_fit_are_not_spilled(target, lanes, rows, vectors):
    cols = lanes * vectors
    func = parse(matmul_tiled(3 * rows, 2 * cols, 64, rows, vectors, lanes, 4, "serial"))
    loop = inner_loop(compile_function(func, Target(target), "kernel").get_source("asm"))
    assert sum("vfmadd" in line for line in loop) == 4 * rows * vectors
    assert not [line for line in loop if "%rsp" in line or "%rbp" in line]


def test_a_tile_that_does_not_fit_is_seen_to_spill():
    """That the count above can find something."""
    func = parse(matmul_tiled(30, 96, 64, 15, 3, 16, 1, "serial"))
    loop = inner_loop(compile_function(func, Target(AVX512), "kernel").get_source("asm"))
    assert [line for line in loop if "%rsp" in line or "%rbp" in line]


def test_a_masked_piece_of_a_wider_vector():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((13,), "float32"), C: T.Buffer((16,), "float32")):
    S = T.alloc_buffer((16,), scope="local")
    for v in T.vectorized(16):
        S[v] = T.float32(1)
    for v in T.vectorized(8):
        if v < 5:
            S[8 + v] = A[8 + v]
    for v in T.vectorized(16):
        C[v] = S[v]
""")
    check(func, AVX512)
    assert lower(func, AVX512).func is not None


def test_rows_whose_last_vector_is_masked_are_in_registers():
    """A masked vector reaches beyond its row of 12, where the next row must not be."""
    func = parse("""
@T.prim_func
def main(A: T.Buffer((9, 12), "float32"), C: T.Buffer((2, 12), "float32")):
    S = T.alloc_buffer((2, 12), scope="local")
    for i in T.unroll(2):
        for h in T.unroll(2):
            for v in T.vectorized(8):
                if h * 8 + v < 12:
                    S[i, h * 8 + v] = T.float32(0)
    for k in range(9):
        for i in T.unroll(2):
            for h in T.unroll(2):
                for v in T.vectorized(8):
                    if h * 8 + v < 12:
                        S[i, h * 8 + v] = S[i, h * 8 + v] + A[k, h * 8 + v]
    for i in T.unroll(2):
        for h in T.unroll(2):
            for v in T.vectorized(8):
                if h * 8 + v < 12:
                    C[i, h * 8 + v] = S[i, h * 8 + v]
""")
    lowered = check(func, AVX2)
    assert 'scope="register"' in str(lowered) and 'scope="local"' not in str(lowered)


def test_a_load_shared_inside_and_outside_a_parallel_loop_stays_in_memory():
    """The same node of a program may stand at several places; whether a parallel loop is around it differs."""
    func = parse("""
@T.prim_func
def main(B: T.Buffer((17,), "float32"), C: T.Buffer((1,), "float32")):
    S = T.alloc_buffer((), "float32")
    with T.block("S"):
        S[()] = T.float32(3)
    for i in T.parallel(17):
        with T.block("B"):
            vi = T.axis.spatial(17, i)
            B[vi] = S[()]
    with T.block("C"):
        C[0] = S[()]
""")
    load = next(n for n in pre_order(func) if isinstance(n, BufferLoad) and n.buffer.name == "S")
    same = func.with_body(transform(func.body, lambda n: load if isinstance(n, BufferLoad) else None))
    check(same, AVX2)
    assert "register" not in str(lower(same, AVX2).func)


@pytest.mark.parametrize("value", ["S[v] + A[16 + v]", "T.max(S[v] * S[v], A[16 + v])"])
def test_what_a_masked_store_adds_to_is_not_masked_too(value):
    """Lanes that the store leaves out stay as they were, whatever is computed in them."""
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer((28,), "float32"), C: T.Buffer((16,), "float32")):
    S = T.alloc_buffer((16,), scope="local")
    for v in T.vectorized(16):
        S[v] = A[v]
    for v in T.vectorized(16):
        if 16 + v < 28:
            S[v] = {value}
    for v in T.vectorized(16):
        C[v] = S[v]
""")
    lowered = str(check(func, AVX512))
    assert 'scope="register"' in lowered and lowered.count("T.Select") == 1
