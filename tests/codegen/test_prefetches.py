"""Prefetches of what the next trip of an outer loop reads: how many, of which addresses, and that nothing changes."""

import itertools
import re
from types import SimpleNamespace

import numpy as np
import pytest

from tilewright.codegen import Target, lower
from tilewright.codegen.compile import compile as compile_function
from tilewright.codegen.lower.insert_prefetches import _progression, insert_prefetches
from tilewright.tir.difference import assert_structural_equal
from tilewright.tir.expr import BufferLoad
from tilewright.tir.interpret import interpret
from tilewright.tir.parser import parse
from tilewright.tir.walk import pre_order

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

COPIED = """
@T.prim_func
def main(A: T.Buffer(({m}, {k})), B: T.Buffer(({k}, {n})), C: T.Buffer(({m}, {n}))):
    P = T.alloc_buffer(({rows}, {cols}))
    for s in range({n} // {cols}):
        for i in range({m}):
            for j in T.vectorized({cols}):
                C[i, s * {cols} + j] = T.float32(0)
        for q in T.serial({k} // {rows}, annotations={{"pragma_prefetch_next": ["B"]}}):
            for r in range({rows}):
                for j in T.vectorized({cols}):
                    P[r, j] = B[q * {rows} + r, s * {cols} + j]
            for i in range({m}):
                for k in range({rows}):
                    for j in T.vectorized({cols}):
                        C[i, s * {cols} + j] = C[i, s * {cols} + j] + A[i, q * {rows} + k] * P[k, j]
"""


def asked(func):
    return re.findall(r'"tir.prefetch", T.address_of\((.*?\])\), 0, 2', str(lower(func, AVX512).func))


def lines_of(places, name, **loops):
    """The cache lines (of 16 floats) that ``places`` name, with these loop variables."""
    ops = SimpleNamespace(truncdiv=lambda a, b: int(a / b), min=min)
    found = [eval(re.sub(rf"{name}_flat\[(.*)\]", r"\1", place), {"T": ops, **loops}) for place in places]
    assert all(place % 16 == 0 for place in found)
    return {place // 16 for place in found}


def check_product(func, m, n, k, shape_of_b, to_matrix):
    """Interpreted after lowering, and compiled, the function computes A times B."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (m, k)).astype("float32"), rng.integers(-4, 5, shape_of_b).astype("float32")
    lowered = lower(func, AVX512).func
    for run in [lambda *x: interpret(lowered, *x), compile_function(func, Target("native -num-cores=1"), "product")]:
        c = np.full((m, n), np.nan, "float32").reshape((m, -1, 16) if len(shape_of_b) == 3 else (m, n))
        run(a, b, c)
        np.testing.assert_array_equal(c.reshape(m, n), a @ to_matrix(b))


@pytest.mark.parametrize(("m", "k", "p"), [(1, 7, 3), (13, 16, 5), (7, 17, 2)])
def test_the_lines_of_the_next_part_are_asked_for_and_no_others(m, k, p):
    func = parse(PRODUCT.format(m=m, k=k, p=p, name="B"))
    places = asked(func)
    for trip in range(p):
        found = set().union(
            *(lines_of(places, "B", i=i, k=step, p=trip) for i, step in itertools.product(range(m), range(k)))
        )
        assert found == set(range((trip + 1) * k, (trip + 2) * k))
    check_product(func, m, p * 16, k, (p, k, 16), lambda b: b.transpose(1, 0, 2).reshape(k, p * 16))


@pytest.mark.parametrize(
    ("m", "k", "n", "rows", "cols"), [(13, 20, 96, 5, 32), (3, 32, 64, 16, 16), (2, 24, 96, 8, 48)]
)
def test_rows_that_lie_apart_are_asked_for_across_the_loop_around(m, k, n, rows, cols):
    func = parse(COPIED.format(m=m, k=k, n=n, rows=rows, cols=cols))
    places = asked(func)
    assert len(places) == -(-rows * cols // 16 // (m * rows))
    trips = [(s, q) for s in range(n // cols) for q in range(k // rows)]
    for (s, q), (s1, q1) in itertools.pairwise(trips):
        found = set().union(
            *(lines_of(places, "B", i=i, k=step, s=s, q=q) for i, step in itertools.product(range(m), range(rows)))
        )
        starts = [((q1 * rows + r) * n + s1 * cols) // 16 for r in range(rows)]
        assert found == {start + c for start in starts for c in range(cols // 16)}
    check_product(func, m, n, k, (k, n), lambda b: b)


def test_two_loops_see_a_buffer_as_the_same_flat_one():
    """The edge of the rows is a loop of its own; what is printed parses to the same program."""
    text = PRODUCT.format(m=3, k=7, p=2, name="B")
    body = text[text.index("    for p") :]
    func = lower(parse(text + body), AVX512).func
    assert len({id(n.buffer) for n in pre_order(func) if isinstance(n, BufferLoad) and n.buffer.name == "B_flat"}) == 1
    assert_structural_equal(func, parse(func.script()), map_free_vars=True)


def test_several_lines_a_trip():
    """Two trips of the inner loop for 4 lines: each asks for two."""
    text = PRODUCT.format(m=2, k=1, p=4, name="B").replace("16", "64")
    assert asked(parse(text)) == ["B_flat[p * 64 + i * 32 + 64]", "B_flat[p * 64 + i * 32 + 80]"]


def test_rows_of_an_unrolled_loop_are_one_part():
    """Eight steps of k side by side in the program read eight rows: the next part is all of them."""
    text = PRODUCT.format(m=3, k=16, p=2, name="B").replace(
        "for k in range(16):", 'for k in T.serial(16, annotations={"pragma_unroll_factor": 8}):'
    )
    places = asked(parse(text))
    assert len(places) == 3
    found = set().union(*(lines_of(places, "B", i=i, k_o=k, p=0) for i in range(3) for k in range(2)))
    assert found == set(range(16, 32))


@pytest.mark.parametrize("name", ["A", "X"])
def test_what_does_not_move_with_the_loop_is_left_alone(name):
    func = parse(PRODUCT.format(m=3, k=7, p=2, name=name))
    assert asked(func) == []
    assert "pragma_prefetch_next" not in str(insert_prefetches(func, AVX512))


def test_numbers_as_sums_of_steps():
    cases = {(5,): [], (0, 16, 32): [(16, 3)], (0, 16, 768, 784): [(16, 2), (768, 2)], (0, 3, 5): [(2, 3)]}
    assert {numbers: _progression(numbers) for numbers in cases} == cases
