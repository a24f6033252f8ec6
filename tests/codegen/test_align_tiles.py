"""Tiles as wide as a line begin with the lines of the arrays, at every address; what must not be shifted is left alone."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tilewright.codegen.compile import compile as compile_function
from tilewright.codegen.lower import lower
from tilewright.tir.parser import parse

sys.path.insert(0, str(Path(__file__).parent))
from test_lower import AVX512, check  # noqa: E402
from test_transpose import placed  # noqa: E402

HERE = "native -num-cores=1"


def columns(
    rows: int, width: int, body: str = "B[i, c * 16 + v] = A[i, c * 16 + v] * W[c * 16 + v]", more: str = ""
) -> str:
    """A kernel that takes the columns of a matrix in tiles of 16."""
    return f"""
@T.prim_func
def main(A: T.Buffer(({rows}, {width}), "float32"), W: T.Buffer(({width},), "float32"), B: T.Buffer(({rows}, {width}), "float32")):
    T.func_attr({{"tir.noalias": True}})
    for c in range({width // 16}):
        for i in range({rows}):
            {more}
            for v in T.vectorized(16):
                {body}
"""


def shifted(text: str) -> bool:
    """Return whether a kernel's tiles are shifted."""
    return "misaligned" in str(lower(parse(text), AVX512).func)


@pytest.mark.parametrize(("rows", "width"), [(256, 96), (257, 112), (1000, 256), (513, 144)])
def test_columns_at_any_address(rows, width):
    text = columns(rows, width)
    assert shifted(text)
    kernel = compile_function(parse(text), HERE, "kernel")
    g = np.random.default_rng(0)
    a, w = g.random((rows, width)).astype("float32"), g.random(width).astype("float32")
    for offset in range(0, 64, 4):
        for other in {offset, 16, 60 - offset}:
            b = placed(np.zeros((rows, width), "float32"), other)
            memory = b.base
            while memory.base is not None:
                memory = memory.base
            kernel(placed(a, offset), placed(w, other), b)
            np.testing.assert_array_equal(b, a * w)
            start = b.ctypes.data - memory.ctypes.data
            assert (memory[:start] == 77).all() and (memory[start + b.nbytes :] == 77).all()


def test_passes_keep_the_numbers():
    check(parse(columns(128, 96)), "llvm -mcpu=x86-64-v4 -num-cores=1")


@pytest.mark.parametrize(
    ("rows", "width", "body"),
    [
        (1000, 1000, "B[i, c * 16 + v] = A[i, c * 16 + v]"),  # the rows begin at different places
        (1000, 64, "B[i, c * 16 + v] = A[i, c * 16 + v]"),  # few tiles
        (8, 256, "B[i, c * 16 + v] = A[i, c * 16 + v]"),  # little memory between the uses of a line
        (1000, 256, "B[i, c * 16 + v] = B[i, c * 16 + v] + A[i, c * 16 + v]"),  # cannot be computed twice
        (1000, 256, "B[i, c * 16 + v] = A[i, c * 16 + v] + T.Cast('float32', c)"),  # not only in indices
        (1000, 256, "B[i, c + v] = A[i, c * 16 + v]"),  # no multiple of a tile
        (1000, 256, "if c % 2 == 0:\n                    B[i, c * 16 + v] = A[i, c * 16 + v]"),
        (1000, 256, "B[i, c * 16 + v] = A[i, c * 16 + v] * W[v]"),  # it counts where in the tile
        (1000, 256, "if v < 9:\n                    B[i, c * 16 + v] = A[i, c * 16 + v]"),
        (1000, 256, "if v % 3 == 0:\n                    B[i, c * 16 + v] = A[i, c * 16 + v]"),
        (1000, 256, "B[i, c * 16 + v] = A[i, v]"),
        (1000, 256, "B[i, v] = A[i, c * 8 + v]"),  # half a line
    ],
)
def test_what_is_left_alone(rows, width, body):
    assert not shifted(columns(rows, width, body))


def test_sums_in_registers():
    """Tiles of a depthwise convolution with its border: sums in scratch memory, weights in registers."""
    func = parse("""
@T.prim_func
def main(A: T.Buffer((40, 40, 112), "float32"), W: T.Buffer((3, 112), "float32"), B: T.Buffer((40, 40, 112), "float32")):
    T.func_attr({"tir.noalias": True})
    S = T.alloc_buffer((40, 40, 112), scope="local")
    for c, i in T.grid(7, 40):
        for j in T.unroll(40):
            for v in T.vectorized(16):
                with T.block("init"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    vc = T.axis.spatial(112, c * 16 + v)
                    S[vi, vj, vc] = T.float32(0)
        for r in range(3):
            for j in T.unroll(40):
                for v in T.vectorized(16):
                    with T.block("sum"):
                        vi, vj, vr = T.axis.remap("SSR", [i, j, r])
                        vc = T.axis.spatial(112, c * 16 + v)
                        S[vi, vj, vc] = S[vi, vj, vc] + T.if_then_else(1 <= vi + vr and vi + vr < 41, A[vi + vr - 1, vj, vc], T.float32(0)) * W[vr, vc]
        for j in T.unroll(40):
            for v in T.vectorized(16):
                with T.block("store"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    vc = T.axis.spatial(112, c * 16 + v)
                    B[vi, vj, vc] = S[vi, vj, vc]
""")
    assert "misaligned" in str(lower(func, AVX512).func)
    kernel = compile_function(func, HERE, "kernel")
    g = np.random.default_rng(0)
    a, w = g.integers(-9, 9, (40, 40, 112)).astype("float32"), g.integers(-9, 9, (3, 112)).astype("float32")
    padded = np.pad(a, ((1, 1), (0, 0), (0, 0)))
    want = sum(padded[r : r + 40] * w[r] for r in range(3))
    for offset in range(0, 64, 4):
        b = placed(np.zeros(a.shape, "float32"), offset)
        kernel(placed(a, offset), placed(w, 16), b)
        np.testing.assert_array_equal(b, want)


def test_a_tile_added_to_its_transpose():
    func = parse("""
@T.prim_func
def main(A: T.Buffer((256, 256), "float32"), B: T.Buffer((256, 256), "float32")):
    T.func_attr({"tir.noalias": True})
    for i0, j0 in T.grid(16, 4):
        P = T.decl_buffer((16, 64), "float32", scope="local")
        for i in range(16):
            for j in T.vectorized(64):
                P[i, j] = A[j0 * 64 + j, i0 * 16 + i]
        for i in range(16):
            for j in T.vectorized(64):
                B[i0 * 16 + i, j0 * 64 + j] = A[i0 * 16 + i, j0 * 64 + j] + P[i, j]
""")
    assert "misaligned" in str(lower(func, AVX512).func)
    kernel = compile_function(func, HERE, "kernel")
    a = np.random.default_rng(0).random((256, 256)).astype("float32")
    for offset in range(0, 64, 4):
        b = placed(np.zeros(a.shape, "float32"), 60 - offset)
        kernel(placed(a, offset), b)
        np.testing.assert_array_equal(b, a + a.T)
