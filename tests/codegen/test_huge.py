"""Arrays of more than 2**31 elements, index expressions beyond int32, mixed widths: every back end against the interpreter.

The arrays are sparse: what is never written takes no memory.
"""

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen import lower
from tilewright.schedule import Schedule
from tilewright.tir import interpret, parse

from .sparse import sparse

TARGETS = ("llvm", "native", "c")


def check(func, make, targets=TARGETS):
    """What the interpreter and each back end write to the last array that ``make`` gives is the same."""
    source = func.func if isinstance(func, Schedule) else func
    expected = make()
    interpret(source, *expected)
    for target in targets:
        got = make()
        tw.build(func, target=target)(*got)
        np.testing.assert_array_equal(got[-1], expected[-1], err_msg=f"{target}\n{source}")
    return expected[-1]


FLAT = """
@T.prim_func
def main(A: T.Buffer((3000000000,), "int8"), I: T.Buffer((17,), "int32"), B: T.Buffer((17,), "int8")):
    for i in range(17):
        with T.block("B"):
            v = T.axis.spatial(17, i)
            B[v] = A[I[v] + 2400000000]
"""


def flat_arrays():
    a = sparse((3_000_000_000,), "int8")
    a[2_400_000_000:2_400_000_017] = np.arange(17)
    return a, np.arange(17, dtype="int32")[::-1].copy(), np.zeros(17, "int8")


@pytest.mark.parametrize("factor", [1, 7, 8, 16, 17])
def test_a_gather_far_into_a_flat_array(factor):
    sch = Schedule(parse(FLAT))
    outer, inner = sch.split(sch.get_loops("B")[0], [None, factor])
    sch.vectorize(inner)
    sch.parallel(outer)
    assert check(sch, flat_arrays).tolist() == list(range(16, -1, -1))


SQUARE = """
@T.prim_func
def main(A: T.Buffer((50000, 60000), "int8"), B: T.Buffer((10, 13), "int8")):
    for i, j in T.grid(10, 13):
        with T.block("B"):
            v, w = T.axis.remap("SS", [i, j])
            B[v, w] = A[w + 49987, v + 59990]
"""


def square_arrays():
    a = sparse((50000, 60000), "int8")
    a[49987:, 59990:] = np.arange(130).reshape(13, 10)
    return a, np.zeros((10, 13), "int8")


def rows(sch, i, j):
    sch.vectorize(j)


def columns(sch, i, j):
    sch.reorder(j, i)
    sch.vectorize(i)


def both(sch, i, j):
    outer, inner = sch.split(sch.fuse(i, j), [None, 16])
    sch.parallel(outer)
    sch.vectorize(inner)


@pytest.mark.parametrize("apply", [rows, columns, both])
def test_a_corner_of_a_matrix_with_more_elements_than_int32_counts(apply):
    sch = Schedule(parse(SQUARE))
    apply(sch, *sch.get_loops("B"))
    np.testing.assert_array_equal(check(sch, square_arrays), np.arange(130, dtype="int8").reshape(13, 10).T)


def test_an_index_that_a_user_flattens_in_int32():
    def arrays():
        a = sparse((2_500_000_000,), "int8")
        a[-10:] = np.arange(10)
        return a, np.zeros(10, "int32")

    sch = Schedule(
        parse("""
@T.prim_func
def main(A: T.Buffer((2500000000,), "int8"), B: T.Buffer((10,), "int32")):
    for i, j in T.grid(1, 10):
        with T.block("B"):
            v, w = T.axis.remap("SS", [i, j])
            B[w] = T.Cast("int32", A[(v + 49999) * 50000 + (w + 49990)])
""")
    )
    sch.vectorize(sch.get_loops("B")[1])
    assert check(sch, arrays).tolist() == list(range(10))


@pytest.mark.parametrize("kind", ["serial", "vectorized"])
def test_index_arithmetic_beyond_int32_as_a_value_and_in_a_condition(kind):
    func = parse("""
@T.prim_func
def main(A: T.Buffer((17,), "int32"), B: T.Buffer((17,), "float64")):
    for i in range(17):
        with T.block("B"):
            v = T.axis.spatial(17, i)
            B[v] = T.Cast("float64", v * 500000000) + T.Cast("float64", T.if_then_else(v * 300000000 < 2500000000, A[v], 7)) + T.Cast(
                "float64", T.Select(v * 300000000 // 1000 % 7 == 3, 1, 0))
""")
    sch = Schedule(func)
    if kind == "vectorized":
        sch.vectorize(sch.get_loops("B")[0])
    n = np.arange(17, dtype="int64")
    got = check(sch, lambda: (np.arange(17, dtype="int32"), np.zeros(17)))
    expected = n * 5e8 + np.where(n * 300000000 < 2500000000, n, 7) + (n * 300000000 // 1000 % 7 == 3)
    np.testing.assert_array_equal(got, expected)


STRIDED = """
@T.prim_func
def main(a: T.handle, B: T.Buffer((4, 7), "int8")):
    s0, s1 = T.int32(), T.int64()
    A = T.match_buffer(a, (50000, 50000), "int8", strides=(s0, s1))
    for i, j in T.grid(4, 7):
        with T.block("B"):
            v, w = T.axis.remap("SS", [i, j])
            B[v, w] = A[v * 16000, w * 8000]
"""


@pytest.mark.parametrize("strides", [(70000, 1), (0, 1), (1, 0), (1, 1), (0, 0), (1, 50000)])
def test_a_view_with_huge_or_tiny_strides(strides):
    def arrays():
        memory = sparse((49999 * (strides[0] + strides[1]) + 1,), "int8")
        view = np.lib.stride_tricks.as_strided(memory, (50000, 50000), strides)
        for i in range(4):
            view[i * 16000, ::8000] = np.arange(7) + i
        return view, np.zeros((4, 7), "int8")

    sch = Schedule(parse(STRIDED))
    sch.vectorize(sch.get_loops("B")[1])
    check(sch, arrays)
    check(parse(STRIDED), arrays)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_sizes_of_both_widths_in_one_shape(dtype):
    def arrays():
        a = sparse((50000, 50000), "int8")
        a[range(49999, 49992, -1), range(49999, 49992, -1)] = np.arange(7) + 1
        return a, np.zeros(7, "int8")

    n, m = te.var("n", dtype), te.var("m", "int32")
    A = te.placeholder((n, m), "int8", name="A")
    B = te.compute((7,), lambda i: A[n - 1 - i, m - 1 - i], name="B")
    assert check(te.create_prim_func([A, B]), arrays).tolist() == list(range(1, 8))


def test_all_of_a_huge_array_is_computed():
    A = te.placeholder((50000, 50000), "int8", name="A")
    B = te.compute((50000, 50000), lambda i, j: A[i, j] + te.const(1, "int8"), name="B")
    sch = Schedule(te.create_prim_func([A, B]), debug_mask="all")
    outer, inner = sch.split(sch.fuse(*sch.get_loops("B")), [None, 64])
    sch.vectorize(inner)
    text = lower(sch, "llvm", check=True).script()
    assert "in range(T.int64(39062500)):" in text  # 2.5e9 / 64
    assert "B_flat[i_j_fused_0 * T.int64(64)" in text and "i_j_fused_0 * T.int64(64) + T.int64(64)]" in text


@pytest.mark.parametrize("factors", [[2**31, 4], [2**40, 4], [None, 2**33], [2**31 - 1, None], [None, 2**31 - 1]])
def test_a_loop_split_by_more_than_it_has_ends_where_it_ends(factors):
    A = te.placeholder((13,), name="A")
    B = te.compute((13,), lambda i: A[i] * 2.0, name="B")
    sch = Schedule(te.create_prim_func([A, B]), debug_mask="all")
    sch.split(sch.get_loops("B")[0], factors)
    a, b = np.arange(13, dtype="float32"), np.zeros(13, "float32")
    for target in TARGETS:
        b[:] = np.nan
        tw.build(sch, target=target)(a, b)
        assert b.tolist() == (a * 2).tolist()


def test_an_intermediate_larger_than_memory_is_an_error_of_the_call():
    A = te.placeholder((1 << 20, 1 << 20), "int64", name="A")
    S = te.compute((1 << 20, 1 << 20), lambda i, j: A[i, j] + te.const(1, "int64"), name="S")
    B = te.compute((1,), lambda i: S[(1 << 20) - 1, (1 << 20) - 1], name="B")
    module = tw.build(Schedule(te.create_prim_func([A, B])), target="llvm")
    with pytest.raises(RuntimeError, match="no memory for its scratch buffers"):
        module(sparse((1 << 20, 1 << 20), "int64"), np.zeros(1, "int64"))


def test_loops_fused_beyond_int32_over_narrow_axes_are_vectors_without_gathers():
    A, B = te.placeholder((4096, 4096), name="A"), te.placeholder((4096, 4096), name="B")
    k = te.reduce_axis((0, 4096), "k")
    C = te.compute((4096, 4096), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    sch = Schedule(te.create_prim_func([A, B, C]), debug_mask="all")
    sch.decompose_reduction("C", sch.get_loops("C")[0])
    i, j, k = sch.get_loops("C_update")
    sch.reorder(i, k, j)
    outer, inner = sch.split(sch.fuse(i, k, j), [None, 16])
    sch.vectorize(inner)
    assert outer.dtype == "int64"
    text = lower(sch, "llvm", check=True).script()
    assert "Cast" not in text
    assert "gather" not in tw.build(sch, target="llvm").get_source()


@pytest.mark.parametrize("shape", [(1, 1), (7, 13), (16, 17), (1, 33)])
def test_vectors_over_a_product_of_sizes_have_wide_indices(shape):
    n, m = te.var("n"), te.var("m")
    A = te.placeholder((n, m), "int8", name="A")
    B = te.compute((n, m), lambda i, j: A[i, j] + te.const(1, "int8"), name="B")
    sch = Schedule(te.create_prim_func([A, B]))
    _, inner = sch.split(sch.fuse(*sch.get_loops("B")), [None, 16])
    sch.vectorize(inner)
    assert "i_j_fused_0 * T.int64(16)" in lower(sch, "llvm", check=True).script()
    a = np.arange(shape[0] * shape[1]).astype("int8").reshape(shape)
    for target in TARGETS:
        b = np.zeros(shape, "int8")
        tw.build(sch, target=target)(a, b)
        np.testing.assert_array_equal(b, a + np.int8(1))
