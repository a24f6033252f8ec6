"""call_blas: which blocks are matrix products that BLAS computes, and that the calls compute the same."""

import numpy as np
import pytest

from tilewright import te
from tilewright.codegen import Target, TargetError, compile
from tilewright.schedule import Schedule, ScheduleError
from tilewright.tir import assert_structural_equal, interpret, parse
from tilewright.tir.blas_calls import blas_calls, computed_product

try:
    HERE = Target("native -num-cores=1 -libs=cblas")
except TargetError:  # no library beside NumPy: the interpreter alone runs the calls
    HERE = None

ONE = te.const(1, "float32")


def product(left, right, out, read, dtype="float32", k=5):
    """The function ``out[…] = Σₖ`` of what ``read(A, B, k, *axes)`` returns."""
    A, B = te.placeholder(left, dtype, name="A"), te.placeholder(right, dtype, name="B")
    r = te.reduce_axis((0, k), name="r")
    C = te.compute(out, lambda *at: te.sum(read(A, B, r, *at), axis=r), name="C")
    return te.create_prim_func([A, B, C])


# shapes of A, B and C, what is summed, NumPy's einsum, and the loops around the call
FORMS = {
    "nn": ((3, 5), (5, 4), (3, 4), lambda A, B, k, i, j: A[i, k] * B[k, j], "ik,kj->ij", 0),
    "nt": ((3, 5), (4, 5), (3, 4), lambda A, B, k, i, j: A[i, k] * B[j, k], "ik,jk->ij", 0),
    "tn": ((5, 3), (5, 4), (3, 4), lambda A, B, k, i, j: B[k, j] * A[k, i], "ki,kj->ij", 0),
    "tt": ((5, 3), (4, 5), (3, 4), lambda A, B, k, i, j: A[k, i] * B[j, k], "ki,jk->ij", 0),
    "result transposed": ((3, 5), (5, 4), (4, 3), lambda A, B, k, j, i: A[i, k] * B[k, j], "ik,kj->ji", 0),
    "batches": ((2, 3, 5), (2, 5, 4), (2, 3, 4), lambda A, B, k, b, i, j: A[b, i, k] * B[b, k, j], "bik,bkj->bij", 1),
    "rows in line": ((2, 3, 5), (4, 5), (2, 3, 4), lambda A, B, k, b, i, j: A[b, i, k] * B[j, k], "bik,jk->bij", 0),
    "heads": ((3, 2, 5), (4, 2, 5), (2, 3, 4), lambda A, B, k, h, i, j: A[i, h, k] * B[j, h, k], "ihk,jhk->hij", 1),
    "rows apart": ((2, 3, 5), (5, 4), (3, 2, 4), lambda A, B, k, i, b, j: A[b, i, k] * B[k, j], "bik,kj->ibj", 1),
    "one row": ((1, 5), (5, 4), (1, 4), lambda A, B, k, i, j: A[i, k] * B[k, j], "ik,kj->ij", 0),
    "one column": ((3, 5), (5, 1), (3, 1), lambda A, B, k, i, j: A[i, k] * B[k, j], "ik,kj->ij", 0),
    "matrix times vector": ((3, 5), (5,), (3,), lambda A, B, k, i: A[i, k] * B[k], "ik,k->i", 0),
    "results apart": ((2, 3, 5), (5,), (3, 2), lambda A, B, k, i, b: A[b, i, k] * B[k], "bik,k->ib", 1),
    "no rows": ((0, 5), (5, 4), (0, 4), lambda A, B, k, i, j: A[i, k] * B[k, j], "ik,kj->ij", 0),
    "a part": ((6, 9), (7, 4), (3, 4), lambda A, B, k, i, j: A[i + 2, k + 1] * B[k + 2, j], None, 0),
}  # fmt: skip


def numbers(func, seed=0):
    rng = np.random.default_rng(seed)
    dtype = str(func.buffers[0].dtype)
    a, b, c = [rng.standard_normal([int(e) for e in buffer.shape]).astype(dtype) for buffer in func.buffers]
    return a, b, np.full_like(c, 9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("form", FORMS)
def test_forms(form, dtype):
    left, right, out, read, einsum, loops = FORMS[form]
    func = product(left, right, out, read, dtype)
    sch = Schedule(func)
    sch.call_blas("C")
    (call,) = blas_calls(sch.func.body)
    assert call.args[0].value == {"float32": "tw_cblas_sgemm", "float64": "tw_cblas_dgemm"}[dtype]
    assert len(sch.get_loops("C")) == loops
    a, b, c = numbers(func)
    interpret(sch.func, a, b, c, check_regions=True)
    want = np.einsum(einsum, a, b) if einsum else a[2:5, 1:6] @ b[2:]
    np.testing.assert_allclose(c, want, rtol=1e-5, atol=1e-5)
    if HERE is not None:
        d = np.full_like(c, np.nan)
        compile(sch, HERE)(a, b, d)
        np.testing.assert_allclose(d, want, rtol=1e-5, atol=1e-5)
    assert_structural_equal(parse(sch.func.script()), sch.func)
    again = Schedule(func)
    sch.trace.apply_to_schedule(again)
    assert_structural_equal(again.func, sch.func)


REFUSED = {
    "it is no sum": lambda A, B, k, i, j: te.max(A[i, k] * B[k, j], axis=k),
    "what it adds is no product": lambda A, B, k, i, j: te.sum(A[i, k] + B[k, j], axis=k),
    "a factor is no element of an array of float32": lambda A, B, k, i, j: te.sum((A[i, k] + ONE) * B[k, j], axis=k),
    "only one operand depends on the reduced axis": lambda A, B, k, i, j: te.sum(A[i, k] * B[i, j], axis=k),
    "is not linear in its axes": lambda A, B, k, i, j: te.sum(A[i, k] * B[k, j // 2], axis=k),
    "runs backwards": lambda A, B, k, i, j: te.sum(A[i, 4 - k] * B[k, j], axis=k),
    "neither axis of the matrix in A is contiguous": lambda A, B, k, i, j: te.sum(A[i * 2, k * 2] * B[k, j], axis=k),
    "or its rows overlap": lambda A, B, k, i, j: te.sum(A[0, i + k] * B[k, j], axis=k),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_refusals(why):
    A, B, r = te.placeholder((9, 12), name="A"), te.placeholder((5, 4), name="B"), te.reduce_axis((0, 5), name="r")
    C = te.compute((4, 4), lambda i, j: REFUSED[why](A, B, r, i, j), name="C")
    with pytest.raises(ScheduleError, match=why):
        Schedule(te.create_prim_func([A, B, C])).call_blas("C")


def test_other_types_are_refused():
    func = product((3, 5), (5, 4), (3, 4), FORMS["nn"][3], "int32")
    with pytest.raises(ScheduleError, match="its results are int32"):
        Schedule(func).call_blas("C")


def test_windows_are_no_product():
    X, W = te.placeholder((2, 9, 9), name="X"), te.placeholder((3, 2, 3, 3), name="W")
    c, y, x = te.reduce_axis((0, 2)), te.reduce_axis((0, 3)), te.reduce_axis((0, 3))
    Y = te.compute((3, 7, 7), lambda o, i, j: te.sum(X[c, i + y, j + x] * W[o, c, y, x], axis=[c, y, x]), name="Y")
    with pytest.raises(ScheduleError, match="do not lie in line"):
        Schedule(te.create_prim_func([X, W, Y])).call_blas("Y")


def test_a_sum_without_its_init_is_added_up():
    func = product((3, 5), (5, 4), (3, 4), FORMS["nn"][3])
    sch = Schedule(func)
    sch.decompose_reduction("C", sch.get_loops("C")[0])
    sch.call_blas("C_update" if any("C_update" in b for b in _blocks(sch)) else "C")
    a, b, c = numbers(func)
    interpret(sch.func, a, b, c, check_regions=True)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-5)
    (call,) = blas_calls(sch.func.body)
    assert call.args[11].value == 1


def _blocks(sch):
    return [b.name for b in sch.get_child_blocks("root")]


def test_symbolic_sizes():
    m, n, k = te.var("m"), te.var("n"), te.var("k")
    A, B, r = te.placeholder((m, k), name="A"), te.placeholder((n, k), name="B"), te.reduce_axis((0, k))
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[j, r], axis=r), name="C")
    sch = Schedule(te.create_prim_func([A, B, C]))
    sch.call_blas("C")
    for sizes in ((3, 4, 5), (1, 1, 1), (2, 3, 0), (0, 3, 2)):
        a, b = np.ones((sizes[0], sizes[2]), "float32"), np.ones((sizes[1], sizes[2]), "float32")
        c = np.full(sizes[:2], 9, "float32")
        interpret(sch.func, a, b, c)
        assert (c == sizes[2]).all()


def test_the_meaning_looks_at_the_ends_of_arrays():
    a, c = np.zeros(6, "float32"), np.zeros(4, "float32")
    with pytest.raises(ValueError, match="A has 2 rows of 3 elements, 4 apart, in 6 elements"):
        computed_product(0, 0, 0, 2, 2, 3, a, 4, a, 2, 0, c, 2)
