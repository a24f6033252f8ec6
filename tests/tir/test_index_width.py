"""64-bit indices: where they are needed, what a program becomes, and proofs over both widths."""

import numpy as np
import pytest

from tilewright import te
from tilewright.tir import IntImm, Range, Var, const, convert, decl_buffer, interpret, parse, structural_equal, verify
from tilewright.tir.arith import Analyzer, detect_iter_map
from tilewright.tir.expr import cast, product
from tilewright.tir.index_width import needs_wide_indices, widened, with_index_dtype


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(2**31 - 1, "int32"), (-(2**31), "int32"), (2**31, "int64"), (-(2**31) - 1, "int64"), (2**63 - 1, "int64")],
)
def test_a_number_without_a_type_gets_one_that_holds_it(value, dtype):
    assert (const(value).dtype, convert(value).dtype, const(value).value) == (dtype, dtype, value)


def test_a_number_beyond_64_bits_is_refused():
    with pytest.raises(ValueError, match="does not fit in 64 bits"):
        const(2**63)


def test_the_largest_number_of_64_bits_without_a_sign_reads_back():
    text = "T.uint64(18446744073709551615)"
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer((1,), "uint64")):
    A[0] = {text}
""")
    assert text in func.script()
    assert structural_equal(parse(func.script()), func)


def test_beside_a_larger_number_an_index_is_widened():
    i = Var("i")
    assert (i + 2**31).dtype == "int64"
    assert (i + (2**31 - 1)).dtype == "int32"


@pytest.mark.parametrize(
    ("value", "dtype", "expected"), [(300, "int8", 44), (-1, "uint8", 255), (2**31, "int32", -(2**31))]
)
def test_a_converted_constant_wraps(value, dtype, expected):
    assert (cast(dtype, const(value)).value, cast(dtype, const(value)).dtype) == (expected, dtype)


def test_products_of_sizes_do_not_wrap():
    n = Var("n")
    assert (product([const(50000), const(50000)]).value, product([const(7), const(13)]).dtype) == (2500000000, "int32")
    assert product([n, const(50000), const(50000)]).dtype == "int64"
    strides = decl_buffer((3, 50000, 50000)).element_strides()
    assert [e.value for e in strides] == [2500000000, 50000, 1]


MATRIX = """
@T.prim_func
def main(A: T.Buffer((SIZE, SIZE), "int8"), B: T.Buffer((7,), "int64"), m: T.int32):
    S = T.alloc_buffer((7,), "int64")
    for i in range(7):
        with T.block("S"):
            v = T.axis.spatial(7, i)
            S[v] = T.Cast("int64", A[v, T.min(m, v)]) + T.Cast("int64", v * 3)
    for i in range(7):
        with T.block("B"):
            v = T.axis.spatial(7, i)
            T.where(i < m)
            B[v] = S[v] + T.if_then_else(v < m, T.Cast("int64", m), T.int64(5))
"""


@pytest.mark.parametrize(("size", "wide"), [("13", False), ("40000", False), ("46341", True), ("50000", True)])
def test_a_buffer_that_int32_does_not_count_makes_a_program_wide(size, wide):
    func = parse(MATRIX.replace("SIZE", size))
    assert needs_wide_indices(func) is wide
    new = widened(func)
    assert (new is not func) is wide
    assert widened(new) is new
    verify(new)
    assert [p.dtype for p in new.params if p not in new.buffer_map] == ["int32"]


@pytest.mark.parametrize(
    ("index", "wide"),
    [("v * 16 + w", False), ("v * 500000000 + w", True), ("(v + 50000) * (w + 50000)", True), ("A[0] * 500000000", False),
     ("T.min(v, 1) * 2000000000 + w", False), ("v * 500000000 // 1000", True), ("2147483640 + w", True)],
)  # fmt: skip
def test_index_arithmetic_beyond_int32_makes_a_program_wide(index, wide):
    func = parse(f"""
@T.prim_func
def main(A: T.Buffer((8,), "int32"), B: T.Buffer((16, 16), "int32")):
    for i, j in T.grid(16, 16):
        with T.block("B"):
            v, w = T.axis.remap("SS", [i, j])
            B[v, w] = T.if_then_else({index} < 7, A[0], 1)
""")
    assert needs_wide_indices(func) is wide
    expected, got = np.zeros((16, 16), "int32"), np.zeros((16, 16), "int32")
    interpret(func, np.arange(8, dtype="int32"), expected)
    interpret(widened(func), np.arange(8, dtype="int32"), got)
    assert (got == expected).all()


def test_a_matrix_product_of_many_steps_stays_as_it_is():
    A, B = te.placeholder((4096, 4096), name="A"), te.placeholder((4096, 4096), name="B")
    k = te.reduce_axis((0, 4096), "k")
    C = te.compute((4096, 4096), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    assert "int64" not in str(te.create_prim_func([A, B, C]))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_the_type_of_indices_can_be_asked_for(dtype):
    n = te.var("n", "int32" if dtype == "int64" else "int64")
    A = te.placeholder((n, 13), name="A")
    k = te.reduce_axis((0, 13), "k")
    B = te.compute((n,), lambda i: te.sum(A[i, (k + i) % 13], axis=k), name="B")
    func = te.create_prim_func([A, B], index_dtype_override=dtype)
    verify(func)
    other = {"int32": "int64", "int64": "int32"}[dtype]
    assert f"T.{other}" not in str(func)
    a = np.arange(7 * 13, dtype="float32").reshape(7, 13)
    b = np.zeros(7, "float32")
    interpret(func, a, b)
    assert (b == a.sum(axis=1)).all()


def test_asking_for_the_type_that_is_there_changes_nothing():
    A = te.placeholder((7, 13), name="A")
    func = te.create_prim_func([A, te.compute((7, 13), lambda i, j: A[i, j] + 1.0, name="B")])
    assert with_index_dtype(func, "int32") is func
    assert with_index_dtype(with_index_dtype(func, "int64"), "int32") is not func
    assert structural_equal(with_index_dtype(with_index_dtype(func, "int64"), "int32"), func)


def test_indices_that_need_64_bits_are_not_narrowed():
    A = te.placeholder((50000, 50000), name="A")
    B = te.compute((50000, 50000), lambda i, j: A[i, j] + 1.0, name="B")
    ok = te.create_prim_func([A, B], index_dtype_override="int32")
    assert "T.int64" not in str(ok)
    C = te.placeholder((3_000_000_000,), name="C")
    D = te.compute((7,), lambda i: C[i], name="D")
    with pytest.raises(ValueError, match="3000000000 is no int32"):
        te.create_prim_func([C, D], index_dtype_override="int32")
    with pytest.raises(ValueError, match="int32 or int64, not 'int16'"):
        te.create_prim_func([C, D], index_dtype_override="int16")


# proofs


def test_simplifying_keeps_coefficients_that_int32_does_not_hold():
    i, an = Var("i"), Analyzer()
    an.bind(i, (0, 50000))
    e = (i + 50000) * 50000
    assert an.simplify(e) is e
    assert str(an.simplify(e - i * 50000 - 7 < 0)) == "False" or an.can_prove(e - i * 50000 >= 2500000000)


def test_both_widths_in_one_proof():
    i, n, an = Var("i"), Var("n", "int64"), Analyzer()
    an.bind(n, (0, None))
    an.bind(i, (0, cast("int32", n) - 1))
    an.bind(i, Range(const(0, "int64"), n))
    assert an.can_prove(i < n)
    assert an.can_prove(i * 4 + 3 < n * 4)
    assert an.can_prove_equal(cast("int64", i) * 4 + 4, (i + 1) * const(4, "int64"))
    assert an.can_prove_equal(cast("int32", cast("int64", i % 13) + 1), i % 13 + 1)


def test_a_value_that_wraps_is_not_taken_for_an_index():
    A = decl_buffer((4,), "int32", "A")
    load, an = A[0], Analyzer()
    assert not an.can_prove_equal(cast("int64", load + 1), cast("int64", load) + 1)
    assert an.can_prove_equal(cast("int64", load) + 1 - 1, cast("int64", load))


def test_digits_of_a_wide_loop_bound_to_narrow_axes():
    f = Var("f", "int64")
    size = IntImm(50000, "int64")
    found = detect_iter_map([cast("int32", f // size), cast("int32", f % size)], {f: Range.from_extent(size * size)})
    assert found.bijective
    assert [int(e) for e in found.extents] == [50000, 50000]
