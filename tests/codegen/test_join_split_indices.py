"""Vectors over several dimensions: what a fused loop walks in order is one stretch of memory."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import te, tir
from tilewright.codegen.lower.join_split_indices import join_split_indices
from tilewright.schedule import Schedule
from tilewright.tir.expr import BufferLoad, FloorDiv, FloorMod, IntImm
from tilewright.tir.parser import parse

from .test_lower import AVX2, AVX512, check

PAD = """
@T.prim_func
def main(X: T.Buffer(({h}, {w}, {c})), P: T.Buffer(({h} + 2, {w} + 2, {c}))):
    for y, x, c in T.grid({h} + 2, {w} + 2, {c}):
        with T.block("P"):
            vy, vx, vc = T.axis.remap("SSS", [y, x, c])
            P[vy, vx, vc] = T.if_then_else(
                1 <= vy and vy < {h} + 1 and 1 <= vx and vx < {w} + 1, X[vy - 1, vx - 1, vc], T.float32(0))
"""


def fused(text: str, count: int, lanes: int) -> Schedule:
    """The innermost ``count`` loops of ``P`` as one, in vectors."""
    sch = Schedule(parse(text))
    _, within = sch.split(sch.fuse(*sch.get_loops("P")[-count:]), [None, lanes])
    sch.vectorize(within)
    return sch


def quotients(func: tir.PrimFunc) -> int:
    return sum(isinstance(n, (FloorDiv, FloorMod)) for n in tir.walk.pre_order(func.body))


@pytest.mark.parametrize("target", [AVX512, AVX2])
@pytest.mark.parametrize(("h", "w", "c"), [(1, 7, 3), (13, 16, 3), (5, 17, 7), (3, 1, 16)])
def test_a_padded_copy_by_rows(h, w, c, target):
    text = PAD.format(h=h, w=w, c=c)
    sch = fused(text, 2, 16)
    check(sch.func, target)


def test_no_division_is_left():
    """All accesses are vectors of consecutive elements: no gather, no scatter, no division by the inner extent."""
    sch = fused(PAD.format(h=13, w=16, c=3), 2, 16)
    func = check(sch.func, AVX512)
    assert quotients(func) == 0
    assert quotients(sch.func) > 0


def test_scratch_memory_in_copied_code():
    """The loop around scratch memory is written twice (its last trip is smaller): each copy has views of its own."""
    sch = Schedule(
        parse("""
@T.prim_func
def main(X: T.Buffer((13, 7, 3)), C: T.Buffer((13, 7, 3))):
    P = T.alloc_buffer((13, 7, 3))
    for y, x, c in T.grid(13, 7, 3):
        with T.block("P"):
            vy, vx, vc = T.axis.remap("SSS", [y, x, c])
            P[vy, vx, vc] = X[vy, vx, vc] * T.float32(2)
    for y, x, c in T.grid(13, 7, 3):
        with T.block("C"):
            vy, vx, vc = T.axis.remap("SSS", [y, x, c])
            C[vy, vx, vc] = P[vy, 6 - vx, vc] + T.float32(1)
""")
    )
    outer, _ = sch.split(sch.get_loops("C")[0], [None, 4])
    sch.compute_at("P", outer)
    _, lanes = sch.split(sch.fuse(*sch.get_loops("P")[-2:]), [None, 16])
    sch.vectorize(lanes)
    check(sch.func, AVX512)
    check(sch.func, AVX2)


def test_what_does_not_follow_in_memory_stays():
    """A transposed walk keeps its two indices."""
    func = parse("""
@T.prim_func
def main(X: T.Buffer((3, 16)), P: T.Buffer((48,))):
    for v in T.vectorized(48):
        P[v] = X[v % 3, v // 3]
""")
    assert join_split_indices(func) is func


SYMBOLIC = """
@T.prim_func
def main(x: T.handle, p: T.handle):
    n = T.int32()
    X = T.match_buffer(x, (n, 7, 3))
    P = T.match_buffer(p, (n, 7, 3))
    for i, j, k in T.grid(n, 7, 3):
        with T.block("P"):
            vi, vj, vk = T.axis.remap("SSS", [i, j, k])
            P[vi, vj, vk] = X[vi, vj, vk] * T.float32(2)
"""


@pytest.mark.parametrize("rows", [0, 1, 5, 16])
def test_a_symbolic_outer_dimension(rows):
    """An array with a symbolic number of rows is one stretch of memory."""
    func = check(fused(SYMBOLIC, 3, 16).func, AVX512, {"n": rows})
    found = [n for n in tir.walk.pre_order(func.body) if isinstance(n, BufferLoad)]
    assert found
    assert all(len(n.indices) == 1 for n in found)


SHAPES = [("n", "n"), ("n", "m"), ("n", "m", 8), ("n", 3, "m"), (4, "n", "m"), ("n", "m", "k"), (2, "n", 5, "m")]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_symbolic_inner_dimensions(shape):
    """However many sizes are symbolic, element-wise work goes through one stretch of memory."""
    sizes = {name: te.var(name) for name in "nmk"}
    extents = [sizes.get(extent, extent) for extent in shape]
    a, b = te.placeholder(extents, name="A"), te.placeholder(extents, name="B")
    total = te.compute(extents, lambda *i: te.max(a[i] * 2.0 + b[i], 0.0), name="C")
    module = tw.build([a, b, total], "native -num-cores=1")
    lowered = module["main"]._lowered
    loads = [n for n in tir.walk.pre_order(lowered.func.body) if isinstance(n, BufferLoad) and n.dtype.lanes > 1]
    assert loads
    assert all(len(n.indices) == 1 for n in loads)
    assert tir.parser.parse(lowered.script()).script() == lowered.script()
    for n, m, k in ((1, 1, 1), (3, 5, 7), (17, 33, 2), (2, 1, 40)):
        data = [
            np.random.default_rng(n).random([{"n": n, "m": m, "k": k}.get(e, e) for e in shape], "float32")
            for _ in "ab"
        ]
        np.testing.assert_allclose(module(*data), np.maximum(data[0] * 2 + data[1], 0), rtol=1e-6)


REDUCED = [("n", "n", 16), ("n", "n", 8), ("n", 4, "n"), (3, "n", "m"), ("n", 12), ("n", "m", 3, "k")]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
@pytest.mark.parametrize("shape", REDUCED, ids=str)
def test_reduced_symbolic_dimensions(shape, dtype):
    """A reduction over several sizes goes through one stretch of memory, also where its lanes stay within the last dimension."""
    sizes = {name: te.var(name) for name in "nmk"}
    extents = [sizes.get(extent, extent) for extent in shape]
    a, b = te.placeholder(extents, dtype, name="A"), te.placeholder((), dtype, name="B")
    axes = [te.reduce_axis((0, extent), name=f"r{n}") for n, extent in enumerate(extents)]
    largest = te.compute((), lambda: te.max(a[tuple(axes)] * b[()], axis=axes), name="C")
    module = tw.build([a, b, largest], "native -num-cores=1")
    assert not [n for n in tir.walk.pre_order(module["main"]._lowered.func.body) if is_wide_quotient(n)]
    for n, m, k in ((1, 1, 1), (2, 7, 3), (16, 17, 5), (17, 33, 2), (64, 3, 1), (65, 2, 9)):
        rng = np.random.default_rng(n)
        data = rng.integers(-9, 9, [{"n": n, "m": m, "k": k}.get(e, e) for e in shape]).astype(dtype)
        np.testing.assert_array_equal(module(data, np.array(3, dtype)), (data * np.array(3, dtype)).max())


@pytest.mark.parametrize(("times", "at"), [(2, 0), (2, 1), (3, 2)])
def test_rows_of_several_elements_each(times, at):
    """Where each row is ``times`` as long as another array's, the place of ``times`` a column is one number as well."""
    n, m = te.var("n"), te.var("m")
    a, b = te.placeholder((n, m), name="A"), te.placeholder((n, times * m), name="B")
    r = [te.reduce_axis((0, n), name="r0"), te.reduce_axis((0, m), name="r1")]
    total = te.compute((), lambda: te.sum(a[r[0], r[1]] * b[r[0], times * r[1] + at], axis=r), name="C")
    module = tw.build([a, b, total], "native -num-cores=1")
    assert not [e for e in tir.walk.pre_order(module["main"]._lowered.func.body) if is_wide_quotient(e)]
    for rows, columns in ((1, 1), (2, 7), (17, 33), (65, 2)):
        rng = np.random.default_rng(rows)
        x = rng.integers(-9, 9, (rows, columns)).astype("float32")
        y = rng.integers(-9, 9, (rows, times * columns)).astype("float32")
        assert module(x, y) == (x * y[:, at::times]).sum()


def is_wide_quotient(n):
    """Returns whether a node divides a vector by a number that is not constant."""
    return isinstance(n, (FloorDiv, FloorMod)) and n.dtype.lanes > 1 and not isinstance(n.b.value, IntImm)


def test_digits_in_another_order_stay():
    """What is divided by another number than the extents behind it is no walk through memory."""
    func = parse("""
@T.prim_func
def main(x: T.handle, p: T.handle):
    n = T.int32()
    m = T.int32()
    X = T.match_buffer(x, (n, m))
    P = T.match_buffer(p, (n * m,))
    for v in T.vectorized(16):
        P[v] = X[v // n, v % n]
""")
    assert join_split_indices(func) is func
