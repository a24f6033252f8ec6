"""Prefetches of what the next trip of an outer loop reads: how many, of which addresses, and that nothing changes."""

import re

import numpy as np
import pytest

from tilewright.codegen import Target, lower
from tilewright.codegen.compile import compile as compile_function
from tilewright.codegen.lower.spread import spread_prefetches
from tilewright.tir.interpret import interpret
from tilewright.tir.parser import parse

AVX512 = Target("llvm -mcpu=x86-64-v4 -num-cores=1")

PRODUCT = """
@T.prim_func
def main(A: T.Buffer(({m}, {k})), B: T.Buffer(({p}, {k}, 16)), C: T.Buffer(({m}, {p}, 16))):
    for p in T.serial({p}, annotations={{"pragma_prefetch_next": ["{name}"]}}):
        for i in range({m}):
            for j in T.vectorized(16):
                C[i, p, j] = T.float32(0)
            for k in range({k}):
                for j in T.vectorized(16):
                    C[i, p, j] = C[i, p, j] + A[i, k] * B[p, k, j]
"""


def asked(func):
    return re.findall(r'"tir.prefetch", T.address_of\((.*?\])\), 0, 2', str(lower(func, AVX512).func))


@pytest.mark.parametrize(("m", "k", "p"), [(1, 7, 3), (13, 16, 5), (7, 17, 2)])
def test_every_line_of_the_next_part_is_asked_for(m, k, p):
    func = parse(PRODUCT.format(m=m, k=k, p=p, name="B"))
    (place,) = asked(func)
    found = set()
    for i in range(m):
        for step in range(k):
            for trip in range(p):
                index = eval(re.sub(r"B_flat\[(.*)\]", r"\1", place), {"i": i, "k": step, "p": trip})
                start = (trip + 1) * k * 16
                assert index >= start and (index - start) % 16 == 0
                found.add((trip, (index - start) // 16))
    assert {(trip, n) for trip in range(p) for n in range(k)} <= found
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (m, k)).astype("float32"), rng.integers(-4, 5, (p, k, 16)).astype("float32")
    lowered = lower(func, AVX512).func
    runs = [lambda *x: interpret(lowered, *x), compile_function(func, Target("native -num-cores=1"), "product")]
    for run in runs:
        c = np.full((m, p, 16), np.nan, "float32")
        run(a, b, c)
        np.testing.assert_array_equal(c, np.einsum("ik,pkj->ipj", a, b))


def test_several_lines_a_trip():
    """Two trips of the inner loop for 4 lines: each asks for two."""
    text = PRODUCT.format(m=2, k=1, p=4, name="B").replace("16", "64")
    assert asked(parse(text)) == ["B_flat[p * 64 + i * 32 + 64]", "B_flat[p * 64 + i * 32 + 80]"]


@pytest.mark.parametrize("name", ["A", "X"])
def test_what_does_not_move_with_the_loop_is_left_alone(name):
    func = parse(PRODUCT.format(m=3, k=7, p=2, name=name))
    assert asked(func) == []
    assert "pragma_prefetch_next" not in str(spread_prefetches(func, AVX512))
